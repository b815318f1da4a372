/* test_engine.c - the engine on the Core ML backend: the demo model's logits
 * are the interpreter's bit for bit, whatever the form of the bundle and
 * however a text is cut; and with last bits that depend on the width, they
 * still do not depend on the cut. */
#include "../../unit/engine/converted.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/impl.h"
#include "kit.h"

enum { N = UNIT_SANITIZED ? 18 : 90, NINTH = N / 9 };

static int32_t tokens[N];

/* Where compiled models lie. NULL: made for each engine, so that their shapes
 * are new to the stand-in. */
static const char *cache;
static char kept[512];

static const struct form {
    const char *shape, *kv;
} forms[] = {
    {"ranged",    "state"},
    {"functions", "state"},
    {"ranged",    "host" },
    {"functions", "host" },
};

static int set_up(void **state)
{
    uint32_t x = 11;
    for (size_t i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(x >> 16) % 200;
    }
    (void)snprintf(kept, sizeof(kept), "%s", kit_path("cache"));
    cache = kept;
    return kit_make(state);
}

static struct engine *open_form(const struct form *f, const char *backend,
                                bool round)
{
    char out[400];
    const struct engine_conf conf = {
        .threads = 1, .backend = backend, .round_fp16 = round, .cache = cache};
    (void)snprintf(out, sizeof(out), "%s-%s-%s", kit_path("bundle"), f->shape,
                   f->kv);
    return converted_open(converted_demo(), out, NULL, f->shape, f->kv, &conf);
}

static struct engine_seq *seq_of(struct engine *g)
{
    struct engine_seq *s = NULL;
    struct err e = {0};
    unit_ok(engine_seq_open(g, &s, &e), &e);
    return s;
}

/* Logits of all rows of tokens[from, to), in chunks, into out. */
static void eval(struct engine_seq *s, uint32_t from, uint32_t to,
                 uint32_t chunk, float *out)
{
    const float *got = NULL;
    struct err e = {0};
    struct msg_ready r;
    engine_ready(s->g, &r);
    unit_ok(engine_eval(s, tokens + from, to - from, chunk, 2, &got, NULL, &e),
            &e);
    memcpy(out + (size_t)from * r.vocab, got,
           (size_t)(to - from) * r.vocab * sizeof(float));
}

static size_t bytes_of(struct engine *g)
{
    struct msg_ready r;
    engine_ready(g, &r);
    return (size_t)N * r.vocab * sizeof(float);
}

static float *logits_of(struct engine *g, uint32_t chunk)
{
    struct engine_seq *s = seq_of(g);
    float *out = malloc(bytes_of(g));
    assert_non_null(out);
    eval(s, 0, N, chunk, out);
    engine_seq_close(s);
    return out;
}

static void same_logits(struct engine *g, uint32_t chunk, const float *want)
{
    float *got = logits_of(g, chunk);
    assert_memory_equal(got, want, bytes_of(g));
    free(got);
}

/* A fork goes on while the first sequence does, and one is cut and goes on. */
static void fork_and_cut(struct engine *g, const float *want)
{
    struct engine_seq *a = seq_of(g);
    struct engine_seq *b = NULL;
    struct err e = {0};
    float *got = malloc(bytes_of(g));
    assert_non_null(got);
    eval(a, 0, 4 * NINTH, 0, got);
    unit_ok(engine_seq_fork(a, 3 * NINTH, &b, &e), &e);
    eval(a, 4 * NINTH, N, 3, got);
    assert_memory_equal(got, want, bytes_of(g));
    eval(b, 3 * NINTH, 5 * NINTH, 1, got);
    unit_ok(engine_seq_truncate(a, NINTH + 1, &e), &e);
    eval(a, NINTH + 1, 6 * NINTH, 0, got);
    eval(b, 5 * NINTH, N, 2, got);
    assert_memory_equal(got, want, bytes_of(g));
    engine_seq_close(a);
    engine_seq_close(b);
    free(got);
}

static void test_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(forms); i++) {
        kit_faults("");
        struct kit_left before = kit_count();
        struct engine *want = open_form(&forms[i], "interpreter", true);
        struct engine *got = open_form(&forms[i], "coreml", false);
        float *logits = logits_of(want, 0);
        same_logits(got, 0, logits);
        same_logits(got, 1, logits);
        same_logits(got, 3, logits);
        kit_faults("backings_ignored = *");
        same_logits(got, 2, logits);
        kit_faults("");
        fork_and_cut(got, logits);
        free(logits);
        engine_close(got);
        engine_close(want);
        kit_same(before);
    }
}

/* Predictions fail with arrays for results: the engine, which binds before it
 * warms, goes on without, and opens nothing anew. */
static void test_backings_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(forms); i++) {
        struct engine_event x;
        kit_faults("backings_refused = *");
        struct engine *want = open_form(&forms[i], "interpreter", true);
        struct engine *got = open_form(&forms[i], "coreml", false);
        float *logits = logits_of(want, 0);
        same_logits(got, 0, logits);
        same_logits(got, 1, logits);
        assert_false(engine_event(got, &x));
        free(logits);
        engine_close(got);
        engine_close(want);
    }
    kit_faults("");
}

/* Results in fp32, of inputs that are halves: near the interpreter's, and the
 * same token wherever the best two are apart. */
static void test_fp32(void **state)
{
    (void)state;
    struct msg_ready r;
    kit_faults("arith = fp32");
    for (size_t i = 0; i < countof(forms); i++) {
        struct engine *want = open_form(&forms[i], "interpreter", false);
        struct engine *got = open_form(&forms[i], "coreml", false);
        float *a = logits_of(want, 0);
        float *b = logits_of(got, 0);
        engine_ready(got, &r);
        for (size_t t = 0; t < N; t++) {
            size_t best = 0;
            size_t second = 1;
            size_t mine = 0;
            for (size_t v = 0; v < r.vocab; v++) {
                size_t at = t * r.vocab + v;
                assert_true(fabsf(a[at] - b[at]) < 0.05f);
                mine = b[at] > b[t * r.vocab + mine] ? v : mine;
                if (a[at] > a[t * r.vocab + best]) {
                    second = best;
                    best = v;
                }
            }
            float lead = a[t * r.vocab + best] - a[t * r.vocab + second];
            assert_true(mine == best || lead < 0.1f);
        }
        free(a);
        free(b);
        engine_close(got);
        engine_close(want);
    }
    kit_faults("");
}

/* Nothing was measured: every row runs at one width, and alone where keys are
 * on the host. */
static void test_bits_of_widths(void **state)
{
    (void)state;
    kit_faults("width_bits = 1");
    for (size_t i = 0; i < countof(forms); i++) {
        struct engine *plain = open_form(&forms[i], "interpreter", true);
        struct engine *g = open_form(&forms[i], "coreml", false);
        float *other = logits_of(plain, 0);
        float *logits = logits_of(g, 0);
        assert_memory_not_equal(logits, other, bytes_of(g)); /* they do */
        same_logits(g, 1, logits);
        same_logits(g, 3, logits);
        fork_and_cut(g, logits);
        free(logits);
        free(other);
        engine_close(g);
        engine_close(plain);
    }
    kit_faults("");
}

/* All that happens at a width's first prediction has happened at open. */
static void test_warmed(void **state)
{
    (void)state;
    cache = NULL;
    for (size_t i = 0; i < countof(forms); i++) {
        int64_t before = si_count_get(COUNT_SPECIALISED);
        struct engine *g = open_form(&forms[i], "coreml", false);
        int64_t was = si_count_get(COUNT_SPECIALISED);
        assert_true(was > before);
        int64_t results = si_count_get(COUNT_RESULTS_MADE);
        free(logits_of(g, 0));
        free(logits_of(g, 1));
        free(logits_of(g, 3));
        assert_int_equal(si_count_get(COUNT_SPECIALISED), was);
        assert_int_equal(si_count_get(COUNT_RESULTS_MADE), results);
        engine_close(g);
    }
}

static bool never(void *ctx)
{
    return ++*(unsigned *)ctx < 2;
}

static void test_cancelled(void **state)
{
    (void)state;
    unsigned asked = 0;
    struct engine *g = open_form(&forms[0], "coreml", false);
    struct engine_conf conf = {
        .threads = 1, .backend = "coreml", .watch = {never, &asked}
    };
    struct err e = {0};
    char dir[1024];
    (void)snprintf(dir, sizeof(dir), "%s", engine_bundle(g)->dir);
    engine_close(g);
    struct kit_left before = kit_count();
    kit_faults("shape_ms = 1500");
    assert_int_equal(engine_open(dir, &conf, &g, &e), ERR_CANCELLED);
    kit_same(before);
    kit_faults("");
}

int main(int argc, char **argv)
{
    (void)argc;
    kit_start(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),           cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_bits_of_widths), cmocka_unit_test(test_warmed),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_backings_refused),
    };
    return cmocka_run_group_tests_name("coreml engine", tests, set_up,
                                       kit_unmake);
}
