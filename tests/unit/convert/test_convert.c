/* Whole conversions of small models of every family. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "convert/arch/arch.h"
#include "model/bundle.h"
#include "model/tokenizer.h"
#include "room.h"

static const struct mil_feature *find_in(const struct mil_function *f,
                                         const char *name)
{
    for (size_t i = 0; i < f->n_in; i++) {
        if (strcmp(f->in[i].name, name) == 0) {
            return &f->in[i];
        }
    }
    return NULL;
}

/* The shard's inputs, states and output are the contract's. */
static void check_contract(const struct mil_function *f, const struct bundle *b,
                           bool ranged)
{
    static const char *const plain[] = {"x", "rope_cos", "rope_sin",
                                        "attn_mask", "kv_write_mask"};
    for (size_t i = 0; i < countof(plain); i++) {
        const struct mil_feature *in = find_in(f, plain[i]);
        if (in == NULL) {
            fail_msg("input %s is absent", plain[i]);
            return;
        }
        assert_int_equal(in->type.dtype, MIL_FP16);
        assert_int_equal(in->has_range, ranged);
        int axis = in->type.rank - (i == 3 || i == 0 ? 2 : i == 4 ? 1 : 2);
        assert_true(!ranged || (in->lo[axis] == 1 && in->hi[axis] == 4));
    }
    bool local = b->rope_local.present;
    assert_int_equal(find_in(f, "rope_cos_local") != NULL, local);
    assert_int_equal(find_in(f, "rope_sin_local") != NULL, local);
    assert_int_equal(find_in(f, "attn_mask_local") != NULL, local);
    assert_string_equal(f->out[0].name, "hidden");
    char name[64];
    if (strcmp(b->kv, "state") == 0) {
        assert_int_equal(f->n_states, 2 * b->n_layers);
        assert_int_equal(f->n_out, 1);
        for (uint32_t i = 0; i < b->n_layers; i++) {
            (void)snprintf(name, sizeof(name), "layers_%u_k_state", i);
            assert_string_equal(f->states[2 * (size_t)i].name, name);
            const struct mil_type *t = &f->states[2 * (size_t)i].type;
            assert_int_equal(t->dims[1], b->n_kv_heads);
            assert_int_equal(t->dims[2], b->context);
            assert_int_equal(t->dims[3], b->d_head);
        }
    } else {
        assert_int_equal(f->n_states, 0);
        assert_int_equal(f->n_out, 1 + 2 * b->n_layers);
        assert_non_null(find_in(f, "layers_1_v_past"));
        assert_string_equal(f->out[4].name, "layers_1_v_new");
    }
    for (size_t i = 0; i < f->body->n_ops; i++) {
        const struct mil_op *op = f->body->ops[i];
        for (size_t k = 0; k < op->n_outputs; k++) {
            assert_true(op->outputs[k]->type.rank <= 4);
        }
    }
}

/* Dequantised q rows of layer 0 against the source's, in rotate-half order. */
static void check_weights(const struct mil_function *f, const struct mk *m,
                          const char *path)
{
    struct err e = {0};
    struct gguf *g = NULL;
    struct decoder d;
    unit_ok(gguf_open(path, &g, &e), &e);
    unit_ok(arch_read(g, &d, &e), &e);
    const struct mil_op *op =
        find_op(f, "constexpr_blockwise_shift_scale", "layers_0_q_weight");
    assert_non_null(op);
    const struct mil_const *data = mil_op_const(op, "data");
    const struct mil_const *scale = mil_op_const(op, "scale");
    assert_int_equal(data->type.dims[0], m->heads * m->d_head);
    assert_int_equal(scale->type.dims[0], m->heads * m->d_head);
    const int8_t *q = data->data;
    const uint16_t *s = scale->data;
    float *row = malloc(m->d * sizeof(float));
    for (uint32_t r = 0; r < m->heads * m->d_head; r++) {
        struct head_rows perm;
        uint32_t in = r % m->d_head;
        bool permutes = arch_permutes(&d, 0, &perm);
        uint32_t from = r - in + (permutes ? head_row(&perm, in) : in);
        unit_ok(gguf_rows(arch_part(&d, 0, SLOT_Q)->t, from, 1, row, &e), &e);
        float step = half_to_float(s[r]);
        for (uint32_t i = 0; i < m->d; i++) {
            float got = (float)q[(size_t)r * m->d + i] * step;
            assert_true(fabsf(got - row[i]) <= 0.5001f * step);
        }
    }
    free(row);
    arch_fini(&d);
    gguf_close(g);
}

static void check_bundle(const char *dir, const struct mk *m,
                         const char *source, const struct convert_options *o)
{
    struct err e = {0};
    struct bundle *b = NULL;
    struct mil_program *p = NULL;
    char path[512];
    unit_ok(bundle_open(dir, &b, &e), &e);
    unit_ok(bundle_verify(b, NULL, NULL, &e), &e);
    assert_string_equal(b->architecture, m->arch);
    assert_int_equal(b->context, 64);
    assert_int_equal(b->n_shards, 1);
    assert_int_equal(b->heads[b->n_heads_shards - 1].vocab_last, m->vocab);
    assert_true(b->n_peaks > 10 * m->layers);
    assert_true(b->margin > 4);
    bool functions = o->shape != NULL && strcmp(o->shape, "functions") == 0;
    assert_int_equal(b->shards[0].n_functions, functions ? 2 : 1);
    for (size_t i = 0; i < b->shards[0].n_functions; i++) {
        assert_true(file_join(path, sizeof(path), dir, b->shards[0].path));
        unit_ok(mil_read(path, &p, &e), &e);
        unit_ok(mil_validate(p, &e), &e);
        const struct mil_function *f =
            mil_function_find(p, b->shards[0].functions[i]);
        assert_non_null(f);
        check_contract(f, b, !functions);
        if (o->quant == NULL) {
            check_weights(f, m, source);
        }
        mil_free(p);
    }
    bundle_close(b);
}

static void every_family_and_form(void **state)
{
    (void)state;
    static const struct {
        const char *quant, *shape, *kv, *norm;
        double alpha;
    } t[] = {
        {NULL, NULL, NULL, NULL, 0},
        {"fp16", NULL, "host", NULL, 0},
        {"int4", "functions", NULL, "max", 0.25},
        {"int8-tensor", "functions", "host", "scale", 0.5},
    };
    const struct mk *models[] = {&mk_llama, &mk_qwen2, &mk_gemma3};
    for (size_t i = 0; i < countof(models); i++) {
        for (size_t k = 0; k < countof(t); k++) {
            if (unit_passed_over(i + k, 3)) { /* each form, each model */
                continue;
            }
            struct mk m = *models[i];
            m.rope_dim = k == 1 ? m.d_head - 4 : 0;
            m.factors = k == 1 && i == 0;
            const char *source = write_model(&m, "m.gguf");
            struct convert_options o = options(source, at("bundle"));
            o.quant = t[k].quant;
            o.shape = t[k].shape;
            o.kv = t[k].kv;
            o.norm = t[k].norm;
            o.residual_scale = t[k].alpha;
            struct convert_result r = {0};
            struct err e = {0};
            unit_ok(convert_run(&o, &r, &e), &e);
            assert_string_equal(r.gates[0].verdict, "passed");
            assert_string_equal(r.gates[2].verdict, "warned"); /* so small */
            assert_memory_equal(r.gates[2].detail, "predicted for profile law",
                                25);
            check_bundle(o.out, &m, source, &o);
            unit_ok(file_rmtree(o.out, &e), &e);
            assert_int_equal(count_entries(room), 1); /* the model */
            (void)unlink(source);
        }
    }
}

static void same_bytes_whatever_the_threads(void **state)
{
    (void)state;
    const char *source = write_model(&mk_gemma3, "m.gguf");
    struct bundle *b[2] = {NULL, NULL};
    struct err e = {0};
    for (unsigned i = 0; i < 2; i++) {
        struct convert_options o = options(source, at(i ? "two" : "one"));
        struct convert_result r = {0};
        o.threads = i + 1;
        o.quant = "lut4:2";
        o.quant_for[0] = "*ffn*=lut6";
        o.quant_for[1] = "*attn_k*=int8-tensor";
        o.n_quant_for = 2;
        unit_ok(convert_run(&o, &r, &e), &e);
        unit_ok(bundle_open(o.out, &b[i], &e), &e);
    }
    assert_string_equal(b[0]->fingerprint, b[1]->fingerprint);
    assert_int_equal(b[0]->n_files, b[1]->n_files);
    for (size_t i = 0; i < b[0]->n_files; i++) {
        assert_string_equal(b[0]->files[i].sha256, b[1]->files[i].sha256);
    }
    unit_ok(file_rmtree(b[0]->dir, &e), &e);
    unit_ok(file_rmtree(b[1]->dir, &e), &e);
    bundle_close(b[0]);
    bundle_close(b[1]);
    (void)unlink(source);
}

/* --- the vocabulary --- */

static int convert_vocab(const struct mk *m, struct convert_result *r,
                         struct err *e)
{
    const char *source = write_model(m, "m.gguf");
    struct convert_options o = options(source, at("bundle"));
    struct err ignored = {0};
    int rc = convert_run(&o, r, e);
    if (rc == 0) {
        unit_ok(file_rmtree(o.out, &ignored), &ignored);
    }
    assert_int_equal(count_entries(room), 1);
    (void)unlink(source);
    return rc;
}

/* The bundle has the template that the options give, and another fingerprint
 * for it; one that is none, or too long, ends it with the line and no file. */
static void another_chat_template(void **state)
{
    (void)state;
    static const char other[] = "{% for m in messages %}{{ m.content }}"
                                "{% endfor %}{{ tools }}";
    static char big[JINJA_TEXT_MAX + 2];
    struct mk m = mk_llama;
    struct err e = {0};
    struct convert_result r = {0};
    struct bundle *b[2] = {NULL, NULL};
    m.n_tokens = m.vocab;
    const char *source = write_model(&m, "m.gguf");
    for (unsigned i = 0; i < 2; i++) {
        struct tokenizer *t = NULL;
        struct convert_options o = options(source, at(i ? "two" : "one"));
        o.chat_template = i == 1 ? other : NULL;
        unit_ok(convert_run(&o, &r, &e), &e);
        unit_ok(bundle_open(o.out, &b[i], &e), &e);
        unit_ok(tokenizer_open(o.out, &t, &e), &e);
        if (i == 1) {
            assert_string_equal(tokenizer_template(t), other);
        } else {
            assert_null(tokenizer_template(t));
        }
        tokenizer_close(t);
    }
    assert_string_not_equal(b[0]->fingerprint, b[1]->fingerprint);
    unit_ok(file_rmtree(b[0]->dir, &e), &e);
    unit_ok(file_rmtree(b[1]->dir, &e), &e);
    bundle_close(b[0]);
    bundle_close(b[1]);
    memset(big, 'x', sizeof(big) - 1);
    const char *const wrong[] = {"a\n{% if x %}\n{% endfor %}", big, "\xff"};
    const char *const said[] = {"line 3", "bytes", "UTF-8"};
    for (size_t i = 0; i < countof(wrong); i++) {
        struct convert_forecast f = {0};
        struct convert_options o = options(source, at("bundle"));
        o.chat_template = wrong[i];
        assert_int_equal(convert_run(&o, &r, &e), ERR_TEMPLATE);
        assert_non_null(strstr(e.msg, "chat_template: "));
        assert_non_null(strstr(e.msg, said[i]));
        assert_int_equal(convert_forecast(&o, &f, &e), ERR_TEMPLATE);
        assert_int_equal(count_entries(room), 1);
    }
    (void)unlink(source);
}

/* An id that generation uses is refused by its key, as `aned inspect` does;
 * one that nothing reads, and a token without text, are warned about. */
static void ids_outside_the_vocabulary(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool no_bos, refused;
    } t[] = {
        {"bos_token_id",       false, true },
        {"bos_token_id",       true,  false},
        {"eos_token_id",       false, true },
        {"eot_token_id",       false, true },
        {"eom_token_id",       false, true },
        {"unknown_token_id",   false, true },
        {"padding_token_id",   false, false},
        {"mask_token_id",      false, false},
        {"seperator_token_id", false, false},
        {"fim_pre_token_id",   false, false},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct mk m = mk_llama;
        struct convert_result r = {0};
        struct err e = {0};
        m.n_tokens = m.vocab;
        m.no_bos = t[i].no_bos;
        m.id_key = t[i].key;
        m.id_value = 1000000;
        int rc = convert_vocab(&m, &r, &e);
        if (rc != (t[i].refused ? ERR_GGUF_VOCAB : 0)) {
            fail_msg("%s: %s: %s", t[i].key, err_name(rc), e.msg);
        }
        if (t[i].refused) {
            assert_non_null(strstr(e.msg, t[i].key));
            continue;
        }
        assert_string_equal(r.gates[0].verdict, "warned");
        assert_int_equal(r.notes.n, 1);
        assert_non_null(strstr(r.notes.text[0], t[i].key));
        assert_non_null(strstr(r.gates[0].detail, t[i].key));
        m.id_value = UINT32_MAX; /* absent */
        unit_ok(convert_vocab(&m, &r, &e), &e);
        assert_int_equal(r.notes.n, 0);
        assert_string_equal(r.gates[0].verdict, "passed");
    }
}

static void empty_tokens_are_warned_about(void **state)
{
    (void)state;
    struct mk m = mk_llama;
    struct convert_result r = {0};
    struct err e = {0};
    m.n_tokens = m.vocab;
    m.empty_token = 7;
    unit_ok(convert_vocab(&m, &r, &e), &e);
    assert_string_equal(r.gates[0].verdict, "warned");
    assert_int_equal(r.notes.n, 1);
    assert_non_null(strstr(r.notes.text[0], "token 7"));
}

/* --- failures leave nothing --- */

struct stop {
    const char *stage; /* cancel here */
    double last;
};

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct stop *s = ctx;
    assert_true(fraction >= s->last && fraction <= 1);
    s->last = fraction;
    return strcmp(stage, s->stage) != 0;
}

static void cancel_in_every_stage(void **state)
{
    (void)state;
    static const char *const stages[] = {"reading", "measuring", "writing",
                                         "gating", "publishing"};
    const char *source = write_model(&mk_llama, "m.gguf");
    for (size_t i = 0; i < countof(stages); i++) {
        struct stop s = {.stage = stages[i]};
        struct convert_options o = options(source, at("bundle"));
        struct convert_result r = {.ms = 77};
        struct err e = {0};
        o.progress = on_progress;
        o.ctx = &s;
        assert_int_equal(convert_run(&o, &r, &e), ERR_CANCELLED);
        assert_int_equal(r.ms, 77);
        assert_false(file_exists(at("bundle")));
        /* what was written stays, beside the model: a folder and its bundle */
        assert_int_equal(count_entries(room), i < 3 ? 1 : 3);
    }
    struct convert_options o = options(source, at("bundle"));
    struct convert_result r = {0};
    struct err e = {0};
    unit_ok(convert_run(&o, &r, &e), &e);
    assert_int_equal(count_entries(room), 2); /* and then it goes */
    unit_ok(file_rmtree(at("bundle"), &e), &e);
    (void)unlink(source);
}

static void refusals_leave_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int code;
        struct convert_options o;
    } t[] = {
        {"along a row", ERR_UNSUPPORTED, {.quant = "q4_0"}},
        {"quant", ERR_INVALID, {.quant = "int3"}},
        {"quant", ERR_INVALID, {.head_quant = "lut8"}},
        {"'blk.9.*'",
         ERR_INVALID,
         {.quant_for = {"blk.9.*=int8"}, .n_quant_for = 1}},
        {"'*norm*'",
         ERR_INVALID,
         {.quant_for = {"*norm*=int8"}, .n_quant_for = 1}},
        {"shape", ERR_INVALID, {.shape = "round"}},
        {"kv", ERR_INVALID, {.kv = "none"}},
        {"profile", ERR_INVALID, {.profile = "m0"}},
        {"name", ERR_INVALID, {.name = "a/b"}},
        {"context", ERR_INVALID, {.context = 65}},
        {"residual scale", ERR_INVALID, {.residual_scale = 0.3}},
    };
    const char *source = write_model(&mk_llama, "m.gguf");
    for (size_t i = 0; i < countof(t); i++) {
        struct convert_options o = t[i].o;
        struct convert_result r = {0};
        struct err e = {0};
        o.source = source;
        o.out = at("bundle");
        int rc = convert_run(&o, &r, &e);
        if (rc != t[i].code || strstr(e.msg, t[i].word) == NULL) {
            fail_msg("row %zu: %s: %s", i, err_name(rc), e.msg);
        }
        assert_int_equal(count_entries(room), 1);
    }
    struct convert_options o = options(source, room);
    struct convert_result r = {0};
    struct err e = {0};
    assert_int_equal(convert_run(&o, &r, &e), ERR_EXISTS);
    o = options(at("absent.gguf"), at("bundle"));
    assert_int_equal(convert_run(&o, &r, &e), ERR_NOT_FOUND);
    o = options(source, at("absent/bundle"));
    assert_int_equal(convert_run(&o, &r, &e), ERR_NOT_FOUND);
    (void)unlink(source);
}

/* A stream of 10^5, as the real gemma has: alpha is chosen, forced values
 * fail by name. */
static void range_gate(void **state)
{
    (void)state;
    struct mk m = mk_gemma3;
    m.post_gain = 30000;
    const char *source = write_model(&m, "m.gguf");
    struct convert_options o = options(source, at("bundle"));
    struct convert_result r = {0};
    struct err e = {0};
    unit_ok(convert_run(&o, &r, &e), &e);
    struct bundle *b = NULL;
    unit_ok(bundle_open(o.out, &b, &e), &e);
    assert_true(b->residual_scale < 0.25f && b->margin >= 4);
    assert_string_equal(b->norm, "max");
    bundle_close(b);
    unit_ok(file_rmtree(o.out, &e), &e);
    o.residual_scale = 1;
    assert_int_equal(convert_run(&o, &r, &e), ERR_RANGE);
    assert_non_null(strstr(e.msg, "layers."));
    o.residual_scale = 0;
    o.norm = "scale";
    assert_int_equal(convert_run(&o, &r, &e), ERR_RANGE);
    assert_non_null(strstr(e.msg, "_norm"));
    assert_int_equal(count_entries(room), 1);
    (void)unlink(source);
}

/* The file shrinks while it is read: an error, no crash, nothing left. */
struct cut {
    const char *path;
    bool done;
};

static bool on_cut(void *ctx, const char *stage, double fraction)
{
    (void)fraction;
    struct cut *c = ctx;
    if (!c->done && strcmp(stage, "writing") == 0) {
        assert_int_equal(truncate(c->path, 8192), 0);
        c->done = true;
    }
    return true;
}

static void truncated_meanwhile(void **state)
{
    (void)state;
    const char *source = write_model(&mk_llama, "m.gguf");
    struct cut c = {.path = source};
    struct convert_options o = options(source, at("bundle"));
    struct convert_result r = {0};
    struct err e = {0};
    o.progress = on_cut;
    o.ctx = &c;
    assert_int_equal(convert_run(&o, &r, &e), ERR_SOURCE_CHANGED);
    assert_true(c.done);
    assert_int_equal(count_entries(room), 1);
    (void)unlink(source);
}

/* Somebody writes one byte, and the time of change stays within its second. */
static bool on_touch(void *ctx, const char *stage, double fraction)
{
    (void)fraction;
    struct cut *c = ctx;
    struct stat st;
    if (c->done || strcmp(stage, "gating") != 0) {
        return true;
    }
    c->done = true;
    assert_int_equal(stat(c->path, &st), 0);
    int fd = open(c->path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, st.st_size - 1), 1);
    int64_t ns = file_mtime_ns(&st);
    struct timespec t[2] = {{.tv_nsec = UTIME_OMIT},
                            {.tv_sec = ns / 1000000000,
                             .tv_nsec = ns % 1000000000 ^ 1}};
    assert_int_equal(futimens(fd, t), 0);
    (void)close(fd);
    return true;
}

static void written_within_a_second(void **state)
{
    (void)state;
    const char *source = write_model(&mk_llama, "m.gguf");
    struct cut c = {.path = source};
    struct convert_options o = options(source, at("bundle"));
    struct convert_result r = {0};
    struct err e = {0};
    o.progress = on_touch;
    o.ctx = &c;
    assert_int_equal(convert_run(&o, &r, &e), ERR_SOURCE_CHANGED);
    assert_true(c.done);
    assert_int_equal(count_entries(room), 1);
    (void)unlink(source);
}

static void stories(void **state)
{
    (void)state;
    char source[1024];
    if (unit_shared() == NULL) {
        skip();
    }
    static const char *const types[] = {"F32", "F16", "BF16", "Q4_K_M"};
    for (size_t i = 0; i < countof(types); i++) {
        if (unit_passed_over(i, 3)) {
            continue;
        }
        (void)snprintf(source, sizeof(source),
                       "%s/data/models/derived/stories260K.%s.gguf",
                       unit_shared(), types[i]);
        struct convert_options o = options(source, at("bundle"));
        struct convert_result r = {0};
        struct err e = {0};
        unit_ok(convert_run(&o, &r, &e), &e);
        struct bundle *b = NULL;
        unit_ok(bundle_open(o.out, &b, &e), &e);
        assert_int_equal(b->context, 128);
        assert_true(b->residual_scale == 1.0f);
        assert_string_equal(b->norm, "scale");
        bundle_close(b);
        unit_ok(file_rmtree(o.out, &e), &e);
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(ids_outside_the_vocabulary),
        cmocka_unit_test(empty_tokens_are_warned_about),
        cmocka_unit_test(another_chat_template),
        cmocka_unit_test(every_family_and_form),
        cmocka_unit_test(same_bytes_whatever_the_threads),
        cmocka_unit_test(cancel_in_every_stage),
        cmocka_unit_test(refusals_leave_nothing),
        cmocka_unit_test(range_gate),
        cmocka_unit_test(truncated_meanwhile),
        cmocka_unit_test(written_within_a_second),
        cmocka_unit_test(stories),
    };
    return cmocka_run_group_tests(t, setup, teardown);
}
