/* The quality gate: a right bundle passes, and each fault fails the rung that
 * is there for it, by name.
 *
 * The reference and the emitter share nothing but the layer descriptions. So a
 * description that is changed between conversion and measurement is the same as
 * an emitter with that fault. */
#include "base/half.h"
#include "convert/quality/quality.h"
#include "proto/quality_text.h"
#include "room.h"

struct made {
    struct gguf *g;
    struct decoder d;
};

static struct mk model(const struct mk *of)
{
    struct mk m = *of;
    m.context = 128;
    m.embed_gain = 0.12f; /* logits in which no token is sure */
    return m;
}

static struct made make(const struct mk *m, const char *quant, const char *kv)
{
    struct made r = {0};
    struct err e = {0};
    struct convert_result result;
    const char *path = write_model(m, "m.gguf");
    struct convert_options o = options(path, at("b"));
    o.quant = quant;
    o.kv = kv;
    if (file_exists(at("b"))) {
        unit_ok(file_rmtree(at("b"), &e), &e);
    }
    unit_ok(convert_run(&o, &result, &e), &e);
    assert_string_equal(result.gates[3].name, "quality");
    assert_string_equal(result.gates[3].verdict, "passed");
    assert_string_equal(result.gates[4].verdict, "passed");
    unit_ok(gguf_open(path, &r.g, &e), &e);
    unit_ok(arch_read(r.g, &r.d, &e), &e);
    return r;
}

static void drop(struct made *r)
{
    arch_fini(&r->d);
    gguf_close(r->g);
}

static struct quality measured(const struct made *r)
{
    const struct quality_conf conf = {.threads = 2};
    struct quality q;
    struct err e = {0};
    unit_ok(quality_measure(at("b"), &r->d, &conf, &q, &e), &e);
    return q;
}

static bool is(const struct quality_result *r, const char *verdict)
{
    return strcmp(r->verdict, verdict) == 0;
}

/* What people read has the numbers of the report, not of an empty one. */
static void assert_text_has(const struct json *report, const struct quality *q)
{
    char text[64];
    struct json *j = NULL;
    struct err e = {0};
    struct buf b;
    buf_init(&b, KIB(64));
    json_write(report, false, &b);
    unit_ok(json_parse(b.p, b.n, &j, &e), &e);
    buf_clear(&b);
    quality_report_text(j, &b);
    assert_true(buf_ok(&b));
    (void)snprintf(text, sizeof(text), ", %u positions; bars: ", q->n_tokens);
    assert_non_null(strstr(b.p, text));
    (void)snprintf(text, sizeof(text), "  %.6f  ", q->layers[0].cosine_min);
    assert_non_null(strstr(b.p, text));
    buf_fini(&b);
    json_free(j);
}

static void right_bundles(void **state)
{
    (void)state;
    const struct mk *models[] = {&mk_llama, &mk_qwen2, &mk_gemma3};
    static const char *const forms[][2] = {
        {"fp16", "state"}, {"int8", "state"}, {"fp16", "host"}};
    for (size_t i = 0; i < countof(models) * countof(forms); i++) {
        struct mk m = model(models[i / countof(forms)]);
        const char *const *f = forms[i % countof(forms)];
        struct made r = make(&m, f[0], f[1]);
        struct quality q = measured(&r);
        if (!is(&q.all, "passed")) {
            fail_msg("%s %s %s: %s", m.arch, f[0], f[1], q.all.detail);
        }
        assert_int_equal(q.n_tokens, 128);
        assert_int_equal(q.n_layers, m.layers);
        assert_true(is(&q.rungs[RUNG_STEPS], "passed"));
        assert_true(is(&q.rungs[RUNG_CHUNKS], "passed"));
        assert_true(is(&q.exactness, "passed"));
        assert_int_equal(q.chunks.n, 16);
        struct json *j = quality_json(&q, MIB(1));
        assert_int_equal(json_count(json_get(j, "layers")), m.layers);
        assert_int_equal(json_count(json_get(j, "kl")), 128);
        assert_text_has(j, &q);
        json_free(j);
        quality_fini(&q);
        drop(&r);
    }
}

/* --- faults of a description --- */

static void wrong_gain(struct decoder *d)
{
    d->layers[1].gain_plus_one = true;
}

static void no_qk_norm(struct decoder *d)
{
    d->layers[1].qk_norm = QK_NORM_NONE;
}

static void other_rotation(struct decoder *d)
{
    static struct arch_row row;
    row = *d->arch;
    row.pairs = !row.pairs;
    d->arch = &row;
}

static void window_shifted(struct decoder *d)
{
    d->kinds[LAYER_LOCAL].window += 4;
}

static void score_scale(struct decoder *d)
{
    d->layers[1].score_scale *= 2;
}

static void other_activation(struct decoder *d)
{
    d->layers[1].act =
        d->layers[1].act == ACT_SILU ? ACT_GELU_TANH : ACT_SILU;
}

static void norm_left_out(struct decoder *d)
{
    d->layers[1].post_norm = false;
}

static void out_scaled(struct decoder *d)
{
    d->layers[1].out_scale = -1;
}

static void logits_capped(struct decoder *d)
{
    d->logit_cap = 0.5f;
}

static void logits_scaled(struct decoder *d)
{
    d->logit_scale = 4;
}

static void faults_of_a_description(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*plant)(struct decoder *d);
        const char *says;
    } t[] = {
        {"gain",       wrong_gain,       "layer 1"},
        {"qk norm",    no_qk_norm,       "layer 1"},
        {"rotation",   other_rotation,   "layer "  },
        {"window",     window_shifted,   ""        },
        {"scale",      score_scale,      "layer 1"},
        {"activation", other_activation, ""        },
        {"post norm",  norm_left_out,    "layer 1"},
        {"out scale",  out_scaled,       "layer 1"},
        {"cap",        logits_capped,    "logits"  },
        {"logits",     logits_scaled,    "logits"  },
    };
    struct mk m = model(&mk_gemma3);
    m.gain = 4;
    m.window = 6;
    struct made r = make(&m, "fp16", "state");
    unsigned missed = 0;
    for (size_t i = 0; i < countof(t); i++) {
        struct decoder d = r.d;
        d.layers = malloc(d.n_layers * sizeof(*d.layers));
        assert_non_null(d.layers);
        memcpy(d.layers, r.d.layers, d.n_layers * sizeof(*d.layers));
        t[i].plant(&d);
        const struct made planted = {r.g, d};
        struct quality q = measured(&planted);
        const struct quality_result *p = &q.rungs[RUNG_PROGRAM];
        if (!is(p, "failed") || strstr(p->detail, t[i].says) == NULL ||
            !is(&q.all, "failed") ||
            !is(&q.rungs[RUNG_STEPS], "not run")) {
            printf("# %s: %s: %s\n", t[i].name, p->verdict, p->detail);
            missed++;
        }
        quality_fini(&q);
        free(d.layers);
    }
    assert_int_equal(missed, 0);
    drop(&r);
}

/* --- faults of files --- */

/* Change two bytes of weight.bin of the first package: fp16 numbers that are
 * `from` become `to`. */
static void change_weights(uint16_t from, uint16_t to)
{
    struct err e = {0};
    struct bundle *b = NULL;
    struct buf text = {0};
    char path[2048];
    unit_ok(bundle_open(at("b"), &b, &e), &e);
    (void)snprintf(path, sizeof(path),
                   "%s/%s/Data/com.apple.CoreML/weights/weight.bin", at("b"),
                   b->shards[0].path);
    unit_ok(file_read(path, MIB(64), &text, &e), &e);
    uint16_t *h = (uint16_t *)(void *)text.p;
    size_t n = 0;
    for (size_t i = 64; n == 0 && i < text.n / 2; i++) {
        if (h[i] == from) {
            h[i] = to;
            n++;
        }
    }
    assert_int_equal(n, 1);
    unit_ok(file_write(path, text.p, text.n, &e), &e);
    buf_fini(&text);
    bundle_close(b);
}

static void weights_that_are_no_numbers(void **state)
{
    (void)state;
    struct mk m = model(&mk_qwen2);
    struct made r = make(&m, "fp16", "state");
    float row[4096];
    struct err e = {0};
    unit_ok(gguf_rows(arch_part(&r.d, 1, SLOT_GATE)->t, 3, 1, row, &e), &e);
    change_weights(half_from_float(row[2]), 0x7e00);
    struct quality q = measured(&r);
    assert_true(is(&q.rungs[RUNG_WEIGHTS], "failed"));
    assert_non_null(strstr(q.rungs[RUNG_WEIGHTS].detail, "layers_"));
    assert_true(is(&q.rungs[RUNG_PROGRAM], "not run"));
    assert_memory_equal(q.all.detail, "weights: ", 9);
    quality_fini(&q);
    drop(&r);
}

static void a_package_is_gone(void **state)
{
    (void)state;
    struct mk m = model(&mk_llama);
    struct made r = make(&m, "fp16", "state");
    struct err e = {0};
    char path[2048];
    (void)snprintf(path, sizeof(path),
                   "%s/head_0.mlpackage/Data/com.apple.CoreML/model.mlmodel",
                   at("b"));
    struct buf text = {0};
    unit_ok(file_read(path, MIB(4), &text, &e), &e);
    memset(text.p + text.n / 2, 0xff, 64);
    unit_ok(file_write(path, text.p, text.n, &e), &e);
    buf_fini(&text);
    struct quality q = measured(&r);
    assert_true(is(&q.all, "failed"));
    quality_fini(&q);
    drop(&r);
}

static void bars(void **state)
{
    (void)state;
    static const char *const quants[] = {"fp16", "int8", "int8-tensor",
                                         "int4", "lut4", "lut6"};
    struct quality_bars b;
    struct err e = {0};
    for (size_t i = 0; i < countof(quants); i++) {
        struct quality_bars x;
        unit_ok(quality_bars(quants[i], false, &b, &e), &e);
        unit_ok(quality_bars(quants[i], true, &x, &e), &e);
        assert_string_equal(b.quant, quants[i]);
        assert_true(b.cosine > 0.9 && b.kl > 0 && b.argmax > 0.5);
        /* of experts never more than without them */
        assert_true(x.cosine <= b.cosine && x.kl >= b.kl &&
                    x.argmax <= b.argmax && x.cosine <= 0.97);
    }
    assert_int_equal(quality_bars("int2", false, &b, &e), ERR_INVALID);
}

/* --- progress --- */

struct told {
    unsigned all, within; /* calls; of them, other fractions while the packages
                             ran in one prediction, */
    unsigned widths, exact; /* in pieces, and on the CPU */
    double last;
    unsigned stop; /* at that call within; 0: never */
};

static uint64_t later(void)
{
    static uint64_t ms;
    return ms += 1000; /* each step of the work is worth telling */
}

static bool on_told(void *ctx, const char *stage, double fraction)
{
    struct told *t = ctx;
    assert_string_equal(stage, "gating");
    assert_true(fraction >= t->last);
    t->all++;
    /* of 28 parts 4 are the reference, then come 13, 4 and 7 (ladder.c) */
    bool more = fraction > t->last;
    t->within += more && fraction > 4.5 / 28 && fraction < 16.5 / 28;
    t->widths += more && fraction > 17.1 / 28 && fraction < 20.9 / 28;
    t->exact += more && fraction > 21.1 / 28 && fraction < 27.9 / 28;
    t->last = fraction;
    return t->stop == 0 || t->within < t->stop;
}

/* One prediction of a long context takes minutes: it is told of layer by layer,
 * and more often that it goes on, and it can be cancelled there. */
static void told_while_a_program_runs(void **state)
{
    (void)state;
    struct mk m = model(&mk_gemma3);
    struct made r = make(&m, "int8", "state");
    const struct progress_part part = {"gating", 1};
    for (unsigned stop = 0; stop < 2; stop++) {
        struct told t = {.stop = stop};
        struct progress p = {.fn = on_told, .ctx = &t, .now_ms = later};
        const struct quality_conf conf = {.threads = 2, .progress = &p};
        struct quality q = {0};
        struct err e = {0};
        progress_plan(&p, &part, 1);
        unit_ok(progress_stage(&p, "gating", quality_work(&r.d), &e), &e);
        int rc = quality_measure(at("b"), &r.d, &conf, &q, &e);
        assert_int_equal(rc, stop ? ERR_CANCELLED : 0);
        assert_true(t.within >= (stop ? 1 : m.layers - 1));
        assert_true(t.all > 20 * m.layers || stop);
        assert_true((t.widths >= 8 && t.exact >= 8) || stop);
        assert_true(stop ? t.last < 0.5 : t.last > 0.99);
        quality_fini(&q);
    }
    drop(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(right_bundles),
        cmocka_unit_test(faults_of_a_description),
        cmocka_unit_test(weights_that_are_no_numbers),
        cmocka_unit_test(a_package_is_gone),
        cmocka_unit_test(bars),
        cmocka_unit_test(told_while_a_program_runs),
    };
    return cmocka_run_group_tests(t, setup, teardown);
}
