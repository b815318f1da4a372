/* test_sparse.c - small mixtures with random weights in sparse form: the same bits
 * in chunks of any size and with any number of experts open, near the dense form,
 * in each form of bundle, by rows and by columns; and manifests that lie. */
#include "../convert/room.h"
#include "convert/shape.h"
#include "engine/impl.h"

#include "../convert/mkfamilies.h" /* its macros are short: after all else */

enum { TEXT = 60, CONTEXT = 128, EXPERTS = 6, TOP = 2, WIDE = 10 };

/* Experts beside a dense feed-forward. */
static const struct mk_row branch_rows[] = {
    ENDS,
    QKVO,
    MLP,
    PRE,
    POST,
    HEAD_NORMS,
    LAYER("ffn_gate_inp.weight", D, EXPERTS),
    LAYER("ffn_gate_inp.scale", D, 0),
    LAYER("ffn_down_exps.weight", WIDE, EXPERTS *D),
    LAYER("ffn_down_exps.scale", EXPERTS, 0),
    LAYER("pre_ffw_norm_2.weight", D, 0),
    LAYER("post_ffw_norm_1.weight", D, 0),
    LAYER("post_ffw_norm_2.weight", D, 0),
    LAYER("ffn_gate_up_exps.weight", D, 2 * EXPERTS *WIDE),
};
static const uint32_t kinds[] = {1, 0};
static const struct mk_item branch_items[] = {
    U("attention.key_length", 8),
    U("attention.value_length", 8),
    U("attention.key_length_swa", 8),
    U("rope.dimension_count", 8),
    U("attention.sliding_window", 24),
    BS("attention.sliding_window_pattern", 2, kinds),
    U("expert_count", EXPERTS),
    U("expert_used_count", TOP),
    U("expert_feed_forward_length", WIDE),
};
static const struct mk branch = MODEL("gemma4", 2, branch_rows, branch_items);

static int32_t text[TEXT];
static float want[TEXT][VOCAB];

enum { ON_DEVICE = 7 }; /* the first form that needs Core ML */

static const struct form {
    const char *shape, *kv, *quant, *backend, *experts;
    bool rows;
} forms[] = {
    {"ranged",        "state", "fp16", "cpu",         "dense",    true },
    {"ranged",        "state", "fp16", "cpu",         "sparse:2", true },
    {"functions",     "state", "fp16", "cpu",         "sparse",   true },
    {"ranged",        "state", "int8", "cpu",         "sparse:3", true },
    {"ranged",        "host",  "fp16", "cpu",         "sparse",   false},
    {"ranged",        "state", "fp16", "interpreter", "sparse",   false},
    {"functions:1,8", "host",  "fp16", "interpreter", "sparse:5", false},
    /* where there is Core ML, or what imitates it */
    {"ranged",        "state", "fp16", "coreml",      "sparse",   false},
    {"functions:1,8", "host",  "int8", "coreml",      "sparse:3", false},
};

/* With Core ML its own forms, and the first one, which others are compared with. */
static bool is_run(size_t i)
{
    bool there = backend_find("coreml") != NULL;
    bool needed = strcmp(forms[i].backend, "coreml") == 0;
    return i == 0 || needed == there;
}

static void convert_form(const struct mk *of, const struct form *f,
                         const char *out)
{
    struct mk m = *of;
    struct convert_result r;
    struct err e = {0};
    m.n_tokens = VOCAB;
    m.context = CONTEXT;
    m.gain = 1.7f;
    struct convert_options o = options(write_model(&m, "m.gguf"), out);
    o.quant = f->quant;
    o.shape = f->shape;
    o.kv = f->kv;
    o.experts = f->experts;
    o.accept = "quality,exactness";
    if (!file_exists(out)) {
        unit_ok(convert_run(&o, &r, &e), &e);
    }
}

static struct engine *open_with(const char *dir, const struct form *f,
                                uint32_t experts_max)
{
    struct engine *g = NULL;
    struct err e = {0};
    const struct engine_conf conf = {
        .threads = 2, .backend = f->backend, .experts_max = experts_max};
    unit_ok(engine_open(dir, &conf, &g, &e), &e);
    assert_int_equal(g->rows.max > 0, f->rows);
    for (uint32_t i = 0; i < TEXT; i++) {
        text[i] = (int32_t)((5u + i * i * 7919u) % VOCAB);
    }
    return g;
}

static const char *name_of(const struct mk *m, const struct form *f)
{
    static char name[96];
    (void)snprintf(name, sizeof(name), "%s-%s-%s-%s-%s", m->arch, f->shape,
                   f->kv, f->quant, f->experts);
    return at(name);
}

/* The text in chunks, whose logits must be those of the first run. */
static void go(struct engine *g, uint32_t chunk)
{
    const float *got = NULL;
    struct engine_seq *s = NULL;
    struct err e = {0};
    unit_ok(engine_seq_open(g, &s, &e), &e);
    unit_ok(engine_eval(s, text, TEXT, chunk, 2, &got, NULL, &e), &e);
    for (uint32_t i = 0; i < TEXT; i++, got += VOCAB) {
        if (memcmp(got, want[i], sizeof(want[i])) != 0) {
            fail_msg("row %u, chunks of %u", i, chunk);
        }
    }
    engine_seq_close(s);
}

static void first_run(struct engine *g)
{
    const float *got = NULL;
    struct engine_seq *s = NULL;
    struct err e = {0};
    unit_ok(engine_seq_open(g, &s, &e), &e);
    for (uint32_t i = 0; i < TEXT; i++) {
        unit_ok(engine_eval(s, text + i, 1, 0, 2, &got, NULL, &e), &e);
        memcpy(want[i], got, sizeof(want[i]));
    }
    engine_seq_close(s);
}

/* fp16 is near the first one, which is dense: a row that chose otherwise, by a
 * hair, is not, so most rows are asked. */
static void check_near(const struct form *f)
{
    static float first[TEXT][VOCAB];
    uint32_t near = 0;
    if (f == &forms[0]) {
        memcpy(first, want, sizeof(first));
    }
    for (uint32_t i = 0; i < TEXT; i++) {
        double off = 0;
        double largest = 0;
        for (uint32_t v = 0; v < VOCAB; v++) {
            double d = fabs((double)want[i][v] - (double)first[i][v]);
            off = d > off ? d : off;
            d = fabs((double)first[i][v]);
            largest = d > largest ? d : largest;
        }
        near += off <= 0.02 * largest;
    }
    if (strcmp(f->quant, "fp16") == 0 && near < TEXT * 9 / 10) {
        fail_msg("%u of %u rows are near the dense form's", near, TEXT);
    }
}

static size_t total_experts(const struct engine *g)
{
    size_t n = 0;
    for (uint32_t l = 0; l < g->b->n_layers; l++) {
        n += g->b->layers[l].n_experts;
    }
    return n;
}

/* SEQS texts, each begun elsewhere in the same one: what is drawn after each of
 * their tokens, in steps of all of them, or of one alone. */
#define SEQS 3u
static void draw(struct engine *g, bool together, int32_t drawn[SEQS][TEXT])
{
    struct engine_row rows[SEQS];
    struct msg_row row[SEQS];
    struct msg_row_done done[SEQS];
    struct err e = {0};
    for (uint32_t i = 0; i < SEQS; i++) {
        rows[i] = (struct engine_row){.row = &row[i], .done = &done[i]};
        row[i] = (struct msg_row){.n_tokens = 1, .sample = true};
        msg_sampling_init(&row[i].sampling);
        unit_ok(engine_seq_open(g, &rows[i].seq, &e), &e);
    }
    for (uint32_t n = 0; n < TEXT; n++) {
        for (uint32_t i = 0; i < SEQS; i++) {
            row[i].position = n;
            row[i].tokens = &text[(n + 7 * i) % TEXT];
        }
        for (uint32_t i = 0; i < (together ? 1 : SEQS); i++) {
            engine_step_rows(g, rows + i, together ? SEQS : 1, NULL);
        }
        for (uint32_t i = 0; i < SEQS; i++) {
            unit_ok(rows[i].rc, &rows[i].err);
            drawn[i][n] = done[i].tokens[0].id;
        }
    }
    for (uint32_t i = 0; i < SEQS; i++) {
        engine_seq_close(rows[i].seq);
    }
}

static void check_batch(struct engine *g)
{
    static int32_t alone[SEQS][TEXT];
    static int32_t together[SEQS][TEXT];
    draw(g, false, alone);
    draw(g, true, together);
    assert_memory_equal(alone, together, sizeof(alone));
}

static void check_forms(const struct mk *m)
{
    static const uint32_t chunks[] = {2, 7, 64, 0};
    for (size_t i = 0; i < countof(forms); i++) {
        if (!is_run(i) || unit_passed_over(i % ON_DEVICE, 3)) {
            continue;
        }
        bool sparse = strcmp(forms[i].experts, "dense") != 0;
        convert_form(m, &forms[i], name_of(m, &forms[i]));
        struct engine *g = open_with(name_of(m, &forms[i]), &forms[i], 0);
        assert_int_equal(g->b->n_groups > 0, sparse);
        assert_int_equal(g->experts.n_open, sparse ? 1 : 0); /* the others wait */
        first_run(g);
        check_near(&forms[i]);
        for (size_t k = 0; k < countof(chunks); k++) {
            go(g, chunks[k]);
        }
        assert_true(g->experts.n_open <= total_experts(g));
        check_batch(g);
        engine_close(g);
        for (uint32_t most = 1; sparse && most < 4; most += 2) {
            g = open_with(name_of(m, &forms[i]), &forms[i], most);
            go(g, 0);
            go(g, 1);
            assert_true(g->experts.n_open <= most); /* a text may need fewer */
            assert_true(most > 1 || g->experts.n_open == 1);
            engine_close(g);
        }
    }
}

static void test_branch(void **state)
{
    (void)state;
    check_forms(&branch);
}

/* A router's state between programs, a class that is none, tails. */
static void test_network(void **state)
{
    (void)state;
    check_forms(&models[ZAYA]);
}

/* A backend that has so many models at once: experts get what the others leave. */
static void test_few_models(void **state)
{
    (void)state;
    const struct form *f = &forms[2]; /* two functions each */
    struct backend few = backend_cpu;
    struct engine *g = NULL;
    struct err e = {0};
    const struct engine_conf conf = {.threads = 1};
    convert_form(&branch, f, name_of(&branch, f));
    g = open_with(name_of(&branch, f), f, 0);
    first_run(g);
    size_t others = 2 * (g->n_shards + g->n_heads);
    assert_int_equal(g->experts.most, EXPERTS_OPEN_MAX);
    engine_close(g);
    few.models_max = (uint32_t)others + 7;
    unit_ok(engine_open_with(&few, name_of(&branch, f), &conf, &g, &e), &e);
    assert_int_equal(g->experts.most, 3);
    go(g, 0);
    assert_int_equal(g->experts.n_open, 3);
    engine_close(g);
    few.models_max = 1; /* one expert there has to be */
    unit_ok(engine_open_with(&few, name_of(&branch, f), &conf, &g, &e), &e);
    assert_int_equal(g->experts.most, 1);
    go(g, 0);
    engine_close(g);
}

/* --- a device that fails --- */

static struct {
    struct backend be;
    uint32_t after, times; /* predictions of experts: when, and how often */
} bad_device;

static int predict_badly(struct backend_io *io, struct backend_state *s,
                         struct err *e)
{
    struct backend_info info;
    bad_device.be.info(io->m, &info);
    if (info.n_out == 1 && strcmp(info.out[0].name, "y") == 0) {
        bad_device.after -= bad_device.after > 0;
        if (bad_device.after == 0 && bad_device.times > 0) {
            bad_device.times--;
            return err_set(e, ERR_BACKEND, "the device said no");
        }
    }
    return backend_interpreter.predict(io, s, e);
}

/* Fails once: nothing is seen. Twice: it is opened anew, with the same bits. For
 * ever: it is on the CPU, the text is computed again, and who uses it is told. */
static void test_failures(void **state)
{
    (void)state;
    static const struct {
        uint32_t times, reopened;
        bool on_cpu;
    } t[] = {
        {1, 0, false},
        {2, 1, false},
        {4, 2, true },
    };
    const struct form *f = &forms[5];
    convert_form(&branch, f, name_of(&branch, f));
    struct engine *g = open_with(name_of(&branch, f), f, 0);
    first_run(g);
    engine_close(g);
    bad_device.be = backend_interpreter;
    bad_device.be.predict = predict_badly;
    for (size_t i = 0; i < countof(t); i++) {
        const struct engine_conf conf = {.threads = 1};
        struct engine_seq *s = NULL;
        struct engine_event event;
        struct err e = {0};
        char before[ARITH_BYTES_MAX];
        bad_device.after = 0;
        bad_device.times = 0;
        unit_ok(engine_open_with(&bad_device.be, name_of(&branch, f), &conf,
                                 &g, &e),
                &e);
        (void)snprintf(before, sizeof(before), "%s", engine_arith(g));
        bad_device.after = t[i].on_cpu ? 1 : 40; /* the same one again */
        bad_device.times = t[i].times;
        if (t[i].on_cpu) {
            unit_ok(engine_seq_open(g, &s, &e), &e);
            unit_ok(engine_eval(s, text, TEXT, 0, 2, NULL, NULL, &e), &e);
            engine_seq_close(s);
        } else {
            go(g, 0);
        }
        assert_int_equal(bad_device.times, 0);
        assert_int_equal(g->n_reopened, t[i].reopened);
        assert_int_equal(g->experts.n_on_cpu, t[i].on_cpu);
        assert_int_equal(strcmp(before, engine_arith(g)) != 0, t[i].on_cpu);
        for (uint32_t k = 0; k < t[i].reopened; k++) {
            assert_true(engine_event(g, &event));
            assert_int_equal(event.on_cpu, k == 1);
            assert_non_null(strstr(event.package, "experts_"));
        }
        assert_false(engine_event(g, &event));
        engine_close(g);
    }
}

/* --- what cannot be --- */

/* bundle.json with `from` in place of its first `old`, opened; then as it was. */
static void refuses(const char *dir, const char *old, const char *with,
                    const char *said)
{
    char path[512];
    struct buf b;
    struct buf to;
    struct bundle *opened = NULL;
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), dir, "bundle.json"));
    unit_ok(file_read(path, MIB(1), &b, &e), &e);
    buf_puts(&b, "");
    const char *at_old = strstr(b.p, old);
    if (at_old == NULL) {
        fail_msg("there is no %s", old);
    }
    buf_init(&to, MIB(1));
    buf_put(&to, b.p, (size_t)(at_old - b.p));
    buf_puts(&to, with);
    buf_puts(&to, at_old + strlen(old));
    unit_ok(file_write(path, to.p, to.n, &e), &e);
    int rc = bundle_open(dir, &opened, &e);
    unit_ok(file_write(path, b.p, b.n, &(struct err){0}), &(struct err){0});
    buf_fini(&b);
    buf_fini(&to);
    assert_int_equal(rc, ERR_BUNDLE);
    if (strstr(e.msg, said) == NULL) {
        fail_msg("%s -> %s: %s", old, with, e.msg);
    }
}

static void test_manifests(void **state)
{
    (void)state;
    static const struct {
        const char *old, *with, *said;
    } bad[] = {
        {"\"expert\": 1,", "\"expert\": 0,", "expert 0 of layer 0 has a second"},
        {"\"expert\": 1,", "\"expert\": 6,", "expert 6 of layer 0, which has 6"},
        {"\"expert\": 1,", "\"expert\": 1024,", "expert"},
        {"\"expert\": 1,", "\"expert\": -1,", "expert"},
        {"\"expert\": 2,", "\"expert\": 1,",
         "experts_00_01.mlpackage: expert 1 of layer 0 is in "
         "experts_00_00.mlpackage too"},
        {"\"t\": 0,\n          \"function\": \"expert_1\"",
         "\"t\": 4,\n          \"function\": \"expert_1\"", "has T 4"},
        {"\"function\": \"expert_1\"", "\"function\": \"\"", "function"},
        {"\"path\": \"experts_00_01.mlpackage\"",
         "\"path\": \"experts_00_00.mlpackage\"", "stands in two groups"},
        {"\"path\": \"experts_00_01.mlpackage\"",
         "\"path\": \"experts_00_09.mlpackage\"",
         "experts_00_09.mlpackage has no file"},
        {"\"function\": \"expert_1\"", "\"function\": \"expert_0\"",
         "fingerprint"},
        {"\"sparse\": true", "\"sparse\": false", "layer 0 is not sparse"},
        {"\"layer\": 0,\n", "\"layer\": 1,\n", "is in experts_"},
        {"\"layer\": 0,\n", "\"layer\": 9,\n", "layer 9 is not sparse"},
        {"\"groups\"", "\"gruops\"", "expert 0 of layer 0 has not all"},
    };
    const struct form *f = &forms[1];
    const char *dir = name_of(&branch, f);
    convert_form(&branch, f, dir);
    for (size_t i = 0; i < countof(bad); i++) {
        refuses(dir, bad[i].old, bad[i].with, bad[i].said);
    }
}

/* The manifest and the package do not say the same: the error names both when the
 * expert is first chosen, and the sequence can go on with others. */
static void test_missing_function(void **state)
{
    (void)state;
    const struct form *f = &forms[1];
    const struct engine_conf conf = {.threads = 1};
    struct engine *g = NULL;
    struct engine_seq *s = NULL;
    struct bundle *b = NULL;
    struct err e = {0};
    convert_form(&branch, f, at("wrong"));
    unit_ok(bundle_open(at("wrong"), &b, &e), &e);
    b->groups[0].experts[1].function = "expert_77";
    unit_ok(bundle_write(at("wrong"), b, &e), &e);
    bundle_close(b);
    unit_ok(engine_open(at("wrong"), &conf, &g, &e), &e);
    unit_ok(engine_seq_open(g, &s, &e), &e);
    int rc = engine_eval(s, text, TEXT, 0, 0, NULL, NULL, &e);
    assert_true(rc < 0);
    assert_non_null(strstr(e.msg, "expert 1 of layer 0"));
    assert_non_null(strstr(e.msg, "experts_00_00.mlpackage"));
    assert_non_null(strstr(e.msg, "expert_77"));
    assert_int_equal(engine_seq_length(s), 0);
    engine_seq_close(s);
    engine_close(g);
    unit_ok(file_rmtree(at("wrong/experts_01_00.mlpackage"), &e), &e);
    assert_int_equal(bundle_open(at("wrong"), &b, &e), ERR_BUNDLE);
    assert_non_null(strstr(e.msg, "experts_01_00.mlpackage"));
}

/* Two experts in each other's place: the logits show it. */
static void test_wrong_order(void **state)
{
    (void)state;
    const struct form *f = &forms[1];
    struct bundle *b = NULL;
    struct engine_seq *s = NULL;
    const float *got = NULL;
    struct err e = {0};
    uint32_t other = 0;
    convert_form(&branch, f, name_of(&branch, f));
    struct engine *g = open_with(name_of(&branch, f), f, 0);
    first_run(g);
    engine_close(g);
    convert_form(&branch, f, at("swapped"));
    unit_ok(bundle_open(at("swapped"), &b, &e), &e);
    struct bundle_expert *x = b->groups[0].experts;
    const char *first = x[0].function;
    x[0].function = x[1].function;
    x[1].function = first;
    unit_ok(bundle_write(at("swapped"), b, &e), &e);
    bundle_close(b);
    g = open_with(at("swapped"), f, 0);
    unit_ok(engine_seq_open(g, &s, &e), &e);
    unit_ok(engine_eval(s, text, TEXT, 0, 2, &got, NULL, &e), &e);
    for (uint32_t i = 0; i < TEXT; i++) {
        other += memcmp(got + i * VOCAB, want[i], sizeof(want[i])) != 0;
    }
    assert_true(other > TEXT / 2);
    engine_seq_close(s);
    engine_close(g);
}

static void test_options(void **state)
{
    (void)state;
    static const char *const bad[] = {"",         "sparse:",   "sparse:0",
                                      "sparse:x", "sparse:257", "none"};
    enum experts_form form = EXPERTS_AUTO;
    uint32_t group = 0;
    struct err e = {0};
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(experts_parse(bad[i], &form, &group, &e), ERR_INVALID);
        assert_non_null(strstr(e.msg, "sparse:N"));
    }
    unit_ok(experts_parse("sparse:256", &form, &group, &e), &e);
    assert_int_equal(form, EXPERTS_SPARSE);
    assert_int_equal(group, 256);
    unit_ok(experts_parse(NULL, &form, &group, &e), &e);
    assert_int_equal(form, EXPERTS_AUTO);
    assert_int_equal(group, 0);
    /* a model without experts */
    struct mk m = models[QWEN3];
    struct convert_result r;
    m.n_tokens = VOCAB;
    struct convert_options o = options(write_model(&m, "q.gguf"), at("none"));
    o.experts = "sparse";
    assert_int_equal(convert_run(&o, &r, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "qwen3 has none"));
}

int main(void)
{
    const struct CMUnitTest on_device[] = {
        cmocka_unit_test(test_branch),
        cmocka_unit_test(test_network),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branch),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_few_models),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_missing_function),
        cmocka_unit_test(test_wrong_order),
        cmocka_unit_test(test_options),
    };
    return backend_find("coreml") != NULL
               ? cmocka_run_group_tests(on_device, setup, teardown)
               : cmocka_run_group_tests(tests, setup, teardown);
}
