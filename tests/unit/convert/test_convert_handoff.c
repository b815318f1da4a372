/* Keys and values from program to program: a model whose last layers read an
 * earlier layer's, cut anywhere, is the model that it is uncut, bit for bit, in
 * every form, and so are its sequences; and what is wrong with it has a name. */
#include "convert/quality/quality.h"
#include "convert/reshard.h"
#include "engine/snapshot.h"
#include "mkfamilies.h"
#include "model/bundle.h"
#include "package_edit.h"

#define N    40u /* tokens; the window is 24 */
#define MOST 6u  /* layers */

static int32_t tokens[N];

static void fill_tokens(void)
{
    for (uint32_t i = 0; i < N; i++) {
        tokens[i] = (int32_t)((5u + i * 7919u) % VOCAB);
    }
}

static struct mk e_model(void)
{
    struct mk m = models[GEMMA4];
    m.n_tokens = VOCAB;
    m.context = 128;
    m.gain = 1.7f;
    return m;
}

/* Programs that begin at the layers of `cuts`, a bit each. */
static struct plan plan_of(uint32_t cuts)
{
    struct plan p = {.n_heads = 1, .heads = {{0, VOCAB}}};
    uint32_t at = 0;
    for (uint32_t l = 1; l <= MOST; l++) {
        if (l == MOST || (cuts >> l & 1) != 0) {
            p.shards[p.n_shards++] = (struct plan_range){at, l};
            at = l;
        }
    }
    return p;
}

static struct convert_result whole; /* of the last make() */

static void make(const char *out, const char *shape, const char *kv,
                 const char *norm)
{
    struct mk m = e_model();
    struct convert_options o = options(write_model(&m, "m.gguf"), at(out));
    struct err e = {0};
    o.quant = "fp16";
    o.shape = shape;
    o.kv = kv;
    o.norm = norm;
    o.accept = "quality,exactness";
    unit_ok(file_rmtree(at(out), &e), &e);
    unit_ok(convert_run(&o, &whole, &e), &e);
}

static const char *verdict(const struct convert_result *r, const char *name)
{
    for (size_t i = 0; i < r->n_gates; i++) {
        if (strcmp(r->gates[i].name, name) == 0) {
            return r->gates[i].verdict;
        }
    }
    return "";
}

/* Residency says of it what it says of the whole. */
static void cut(const char *from, const char *out, uint32_t cuts)
{
    struct convert_options o = options(NULL, at(out));
    struct convert_result r;
    struct plan p = plan_of(cuts);
    struct err e = {0};
    o.bundle = at(from);
    unit_ok(file_rmtree(at(out), &e), &e);
    unit_ok(reshard_as(&o, &p, &r, &e), &e);
    assert_string_equal(verdict(&r, "structure"), "passed");
    assert_string_equal(verdict(&r, "exactness"), "passed");
    assert_string_equal(verdict(&r, "residency"),
                        verdict(&whole, "residency"));
}

static struct engine *open_as(const char *bundle, const char *backend)
{
    const struct engine_conf conf = {.threads = 2, .backend = backend};
    struct engine *g = NULL;
    struct err e = {0};
    unit_ok(engine_open(at(bundle), &conf, &g, &e), &e);
    return g;
}

/* Logits of all tokens after the first `from`, which s has. */
static void rest(struct engine_seq *s, uint32_t from, uint32_t chunk,
                 float *out)
{
    const float *got = NULL;
    struct err e = {0};
    unit_ok(engine_eval(s, tokens + from, N - from, chunk, 2, &got, NULL, &e),
            &e);
    memcpy(out, got, (size_t)(N - from) * VOCAB * sizeof(*out));
}

static float *logits_of(const char *bundle, const char *backend, uint32_t chunk)
{
    struct engine *g = open_as(bundle, backend);
    struct engine_seq *s = NULL;
    struct err e = {0};
    float *out = calloc((size_t)N * VOCAB, sizeof(*out));
    assert_non_null(out);
    unit_ok(engine_seq_open(g, &s, &e), &e);
    rest(s, 0, chunk, out);
    engine_seq_close(s);
    engine_close(g);
    return out;
}

/* --- cut anywhere --- */

/* One program a layer, the cut at the first layer that reads, before and behind
 * it, between two owners, ... of 32. */
static const uint32_t some_cuts[] = {0x3e, 0x08, 0x04, 0x10, 0x14, 0x2a, 0x28};

static const struct form {
    const char *shape, *kv;
} forms[] = {
    {"ranged",          "state"},
    {"ranged",          "host" },
    {"functions",       "state"},
    {"functions:1,2,8", "host" },
};

static void the_same_bits(void **state)
{
    (void)state;
    static const char *const backends[] = {"cpu", "interpreter"};
    size_t bytes = (size_t)N * VOCAB * sizeof(float);
    for (size_t f = 0; f < countof(forms); f++) {
        make("whole", forms[f].shape, forms[f].kv, NULL);
        for (size_t c = 0; c < countof(some_cuts); c++) {
            cut("whole", "cut", some_cuts[c]);
            for (size_t b = 0; b < countof(backends); b++) {
                for (uint32_t chunk = 0; chunk < 6; chunk += 5) {
                    float *want = logits_of("whole", backends[b], chunk);
                    float *got = logits_of("cut", backends[b], chunk);
                    if (memcmp(want, got, bytes) != 0) {
                        fail_msg("%s %s, cuts %x, %s, chunks of %u: other bits",
                                 forms[f].shape, forms[f].kv, some_cuts[c],
                                 backends[b], chunk);
                    }
                    free(want);
                    free(got);
                }
            }
        }
    }
}

/* What the manifest says of layers 0-3, 3-5 and 5: layer 3 and 4 read layer 1,
 * layer 5 reads layer 2. */
static void the_manifest_says_it(void **state)
{
    (void)state;
    struct bundle *b = NULL;
    struct err e = {0};
    make("whole", NULL, NULL, NULL);
    cut("whole", "cut", 0x28);
    unit_ok(bundle_open(at("cut"), &b, &e), &e);
    const struct bundle_shard *s = b->shards;
    assert_int_equal(b->n_shards, 3);
    assert_int_equal(s[0].n_gives, 4);
    assert_int_equal(s[0].n_takes, 0);
    assert_int_equal(s[1].n_takes, 2);
    assert_int_equal(s[1].takes[0].layer, 1);
    assert_false(s[1].takes[0].values);
    assert_string_equal(s[1].takes[0].name, "shared_1_k_new");
    assert_int_equal(s[2].n_takes, 2);
    assert_int_equal(s[2].takes[1].layer, 2);
    assert_true(s[2].takes[1].values);
    assert_string_equal(s[0].gives[3].name, "layers_2_v_new");
    assert_int_equal(s[1].n_gives + s[2].n_gives, 0);
    bundle_close(b);
}

/* To pieces and back: the packages are those of the conversion. */
static void there_and_back(void **state)
{
    (void)state;
    static const char file[] = "layers_00_06.mlpackage/Data/com.apple.CoreML";
    static const char *const tails[] = {"model.mlmodel", "weights/weight.bin"};
    make("whole", NULL, NULL, NULL);
    cut("whole", "cut", 0x3e);
    cut("cut", "back", 0);
    for (size_t i = 0; i < countof(tails); i++) {
        struct buf text[2] = {{0}};
        struct err e = {0};
        for (size_t k = 0; k < 2; k++) {
            char name[256];
            char path[512];
            (void)snprintf(name, sizeof(name), "%s/%s", file, tails[i]);
            assert_true(file_join(path, sizeof(path),
                                  at(k == 0 ? "whole" : "back"), name));
            unit_ok(file_read(path, MIB(64), &text[k], &e), &e);
        }
        assert_int_equal(text[0].n, text[1].n);
        assert_memory_equal(text[0].p, text[1].p, text[0].n);
        buf_fini(&text[0]);
        buf_fini(&text[1]);
    }
}

/* --- sequences --- */

enum { BEFORE = 64, MORE = 8 }; /* tokens: a whole block, and then some */

static int all_of(struct snapshot *x, struct err *e)
{
    int rc = 0;
    while (rc == 0) {
        rc = snapshot_run(x, 0, e);
    }
    return rc;
}

static struct engine_seq *saved_and_loaded(struct engine *g,
                                           const struct engine_seq *s)
{
    struct snapshot *x = NULL;
    struct msg_state_done done;
    struct err e = {0};
    uint32_t n = engine_seq_length(s);
    int32_t text[BEFORE];
    memcpy(text, engine_seq_tokens(s), n * sizeof(*text));
    const struct msg_state_part part = {0, n, at("states")};
    const struct msg_state m = {.tokens = text,
                                .n_tokens = n,
                                .n_parts = 1,
                                .parts = {part}};
    unit_ok(snapshot_save(s, &part, &x, &e), &e);
    assert_int_equal(all_of(x, &e), 1);
    snapshot_free(x);
    unit_ok(snapshot_load(g, &m, &x, &e), &e);
    assert_int_equal(all_of(x, &e), 1);
    snapshot_done(x, &done, &e);
    assert_int_equal(done.n, n);
    struct engine_seq *back = snapshot_take(x);
    snapshot_free(x);
    return back;
}

/* A sequence that was extended wrongly and cut, forked, saved
 * and loaded goes on as one that nothing happened to. */
static void check_sequences(struct engine *g)
{
    struct engine_seq *s[4] = {NULL};
    struct err e = {0};
    int32_t text[BEFORE + MORE];
    float want[MORE * VOCAB];
    const float *got = NULL;
    for (uint32_t i = 0; i < countof(text); i++) {
        text[i] = tokens[i % N];
    }
    unit_ok(engine_seq_open(g, &s[0], &e), &e);
    unit_ok(engine_eval(s[0], text, BEFORE, 1, 0, NULL, NULL, &e), &e);
    unit_ok(engine_eval(s[0], text + BEFORE, MORE, 1, 2, &got, NULL, &e), &e);
    memcpy(want, got, sizeof(want));
    unit_ok(engine_seq_truncate(s[0], BEFORE, &e), &e);
    unit_ok(engine_eval(s[0], text + 1, MORE, 0, 0, NULL, NULL, &e), &e);
    unit_ok(engine_seq_fork(s[0], BEFORE, &s[1], &e), &e);
    unit_ok(engine_seq_truncate(s[0], BEFORE, &e), &e);
    s[2] = saved_and_loaded(g, s[1]);
    unit_ok(engine_seq_fork(s[2], BEFORE, &s[3], &e), &e);
    for (size_t i = 0; i < countof(s); i++) {
        unit_ok(engine_eval(s[i], text + BEFORE, MORE, 1, 2, &got, NULL, &e),
                &e);
        assert_memory_equal(got, want, sizeof(want));
        engine_seq_close(s[i]);
    }
}

static void sequences(void **state)
{
    (void)state;
    for (size_t f = 0; f < countof(forms); f++) {
        make("whole", forms[f].shape, forms[f].kv, NULL);
        cut("whole", "cut", 0x2a);
        struct engine *g = open_as("cut", NULL);
        check_sequences(g);
        engine_close(g);
    }
}

#define SEQS 3u

/* The tokens that SEQS sequences draw in N steps of all of them. */
static void draw_together(const char *bundle, int32_t drawn[SEQS][N])
{
    struct engine *g = open_as(bundle, NULL);
    struct engine_row rows[SEQS];
    struct msg_row row[SEQS];
    struct msg_row_done done[SEQS];
    struct err e = {0};
    for (uint32_t i = 0; i < SEQS; i++) {
        rows[i] = (struct engine_row){.row = &row[i], .done = &done[i]};
        row[i] = (struct msg_row){.n_tokens = 1, .sample = true};
        msg_sampling_init(&row[i].sampling);
        row[i].sampling.no_logprob = true;
        unit_ok(engine_seq_open(g, &rows[i].seq, &e), &e);
    }
    for (uint32_t n = 0; n < N; n++) {
        for (uint32_t i = 0; i < SEQS; i++) {
            row[i].position = n;
            row[i].tokens = &tokens[(n + 3 * i) % N];
        }
        engine_step_rows(g, rows, SEQS, NULL);
        for (uint32_t i = 0; i < SEQS; i++) {
            unit_ok(rows[i].rc, &rows[i].err);
            drawn[i][n] = done[i].tokens[0].id;
        }
    }
    for (uint32_t i = 0; i < SEQS; i++) {
        engine_seq_close(rows[i].seq);
    }
    engine_close(g);
}

/* Several sequences in a step, each with its own keys. */
static void sequences_in_one_step(void **state)
{
    (void)state;
    int32_t want[SEQS][N];
    int32_t got[SEQS][N];
    make("whole", NULL, NULL, NULL);
    cut("whole", "cut", 0x3e);
    draw_together("whole", want);
    draw_together("cut", got);
    assert_memory_equal(want, got, sizeof(want));
}

/* --- what is wrong has a name --- */

static void rename_take(struct bundle *b)
{
    b->shards[1].takes[0].name = "another";
}

static void rename_give(struct bundle *b)
{
    b->shards[0].gives[0].name = "another";
}

static void exchange_takes(struct bundle *b)
{
    const char *name = b->shards[1].takes[0].name;
    b->shards[1].takes[0].name = b->shards[2].takes[0].name;
    b->shards[2].takes[0].name = name;
}

/* Heads of layer 2 are larger than those of layer 1. */
static void exchange_gives(struct bundle *b)
{
    const char *name = b->shards[0].gives[0].name;
    b->shards[0].gives[0].name = b->shards[0].gives[2].name;
    b->shards[0].gives[2].name = name;
}

/* The packages are not those of the manifest. */
static void ports_that_are_not_there(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct bundle *b);
        const char *says;
    } t[] = {
        {rename_take,    "layers_03_05.mlpackage: input shared_1_k_new is not" },
        {rename_give,    "layers_00_03.mlpackage: no output another"           },
        {exchange_takes, "layers_03_05.mlpackage: input shared_1_k_new is not" },
        {exchange_gives, "layers_00_03.mlpackage: layers_2_k_new: shape"       },
    };
    for (size_t f = 0; f < 2; f++) {
        make("whole", NULL, forms[f].kv, NULL);
        for (size_t i = 0; i < countof(t); i++) {
            const struct engine_conf conf = {.threads = 1};
            struct bundle *b = NULL;
            struct engine *g = NULL;
            struct err e = {0};
            cut("whole", "cut", 0x28);
            unit_ok(bundle_open(at("cut"), &b, &e), &e);
            t[i].change(b);
            unit_ok(bundle_write(at("cut"), b, &e), &e);
            bundle_close(b);
            assert_int_equal(engine_open(at("cut"), &conf, &g, &e), ERR_BUNDLE);
            if (strstr(e.msg, t[i].says) == NULL) {
                fail_msg("'%s' does not say '%s'", e.msg, t[i].says);
            }
        }
    }
}

/* --- the wrong layer's keys --- */

/* Results change their names, and with them what the program gives; its own
 * layers read what they read before. */
static void exchange(struct edit *x, const char *a, const char *b)
{
    Ml__Operation *of_a = edit_op(x, a);
    Ml__Operation *of_b = edit_op(x, b);
    edit_uses(x, a, "planted");
    edit_uses(x, b, a);
    edit_uses(x, "planted", b);
    edit_text(&of_a->outputs[0]->name, b);
    edit_text(&of_b->outputs[0]->name, a);
}

/* Layer 0 has heads as layer 1, whose keys layers 3 and 4 read. */
static void plant(const char *package)
{
    struct edit x;
    edit_open(&x, package);
    edit_function(&x, NULL);
    exchange(&x, "layers_0_k_new", "layers_1_k_new");
    edit_close(&x);
}

static struct quality measured(const char *source)
{
    const struct quality_conf conf = {.threads = 2};
    struct gguf *g = NULL;
    struct decoder d = {0};
    struct quality q;
    struct err e = {0};
    unit_ok(gguf_open(source, &g, &e), &e);
    unit_ok(arch_read(g, &d, &e), &e);
    unit_ok(quality_measure(at("b"), &d, &conf, &q, &e), &e);
    arch_fini(&d);
    gguf_close(g);
    return q;
}

static void the_wrong_keys(void **state)
{
    (void)state;
    make("whole", NULL, NULL, NULL);
    cut("whole", "b", 0x28);
    struct quality q = measured(at("m.gguf"));
    assert_string_equal(q.rungs[RUNG_PROGRAM].verdict, "passed");
    quality_fini(&q);
    struct bundle *b = NULL;
    struct err e = {0};
    plant("layers_00_03.mlpackage");
    unit_ok(bundle_open(at("b"), &b, &e), &e);
    unit_ok(bundle_write(at("b"), b, &e), &e);
    bundle_close(b);
    q = measured(at("m.gguf"));
    print_message("# %s\n", q.rungs[RUNG_PROGRAM].detail);
    assert_string_equal(q.rungs[RUNG_WEIGHTS].verdict, "passed");
    assert_string_equal(q.rungs[RUNG_PROGRAM].verdict, "failed");
    assert_non_null(
        strstr(q.rungs[RUNG_PROGRAM].detail, "layer 3 of layers_03_05"));
    quality_fini(&q);
}

/* --- a norm without a weight --- */

/* Values are normed without a weight: in both forms of the norm, their rows
 * have the name by which host and later programs take them. */
static void values_have_a_name(void **state)
{
    (void)state;
    static const char *const norms[] = {"scale", "max"};
    for (size_t i = 0; i < countof(norms); i++) {
        for (size_t f = 0; f < 2; f++) {
            make("whole", NULL, forms[f].kv, norms[i]);
            cut("whole", "cut", 0x3e);
            float *want = logits_of("whole", NULL, 0);
            float *got = logits_of("cut", NULL, 0);
            assert_memory_equal(want, got, (size_t)N * VOCAB * sizeof(*got));
            free(want);
            free(got);
        }
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(the_manifest_says_it),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(sequences),
        cmocka_unit_test(sequences_in_one_step),
        cmocka_unit_test(ports_that_are_not_there),
        cmocka_unit_test(the_wrong_keys),
        cmocka_unit_test(values_have_a_name),
    };
    fill_tokens();
    return cmocka_run_group_tests(t, setup, teardown);
}
