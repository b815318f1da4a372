/* test_encode.c - encode.h: windows give the bits of the text as a whole, of
 * any length, in programs of any length and of fixed ones; how a run ends. */
#include "engine/encode.h"

#include <math.h>

#include "base/num.h"
#include "converted.h"

enum { LABELS = 33, ROWS = 3 * 4096 };

static char dir[256];
static int32_t tokens[ROWS];

static bool source(char out[512])
{
    const char *shared = unit_shared();
    (void)snprintf(out, 512, "%s/data/families/privacy-filter/a/model.gguf",
                   shared != NULL ? shared : "");
    return shared != NULL && file_exists(out);
}

/* The tiny encoder, in a shape; converted once. */
static struct encoder *open_shape(const char *shape)
{
    char from[512];
    char out[512];
    struct convert_options o;
    struct convert_result r;
    struct encoder *g = NULL;
    struct err e = {0};
    const struct engine_conf conf = {.threads = 2};
    if (!source(from)) {
        skip();
    }
    assert_true(file_join(out, sizeof(out), dir, shape));
    convert_options_init(&o);
    o.source = from;
    o.out = out;
    o.quant = "fp16";
    o.shape = shape;
    o.threads = 1;
    if (!file_exists(out)) {
        unit_ok(convert_run(&o, &r, &e), &e);
    }
    unit_ok(encoder_open(out, &conf, &g, &e), &e);
    return g;
}

static int setup(void **state)
{
    (void)state;
    uint64_t x = 1;
    for (size_t i = 0; i < ROWS; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        tokens[i] = (int32_t)((x >> 33) % 318);
    }
    converted_dir(dir, "encode");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    unit_ok(file_rmtree(dir, &e), &e);
    return 0;
}

struct sink {
    float *v;
    uint32_t n; /* rows so far */
    uint32_t windows, stop_at; /* asked to go on so often; 0: always goes on */
    int fails;
};

static int on_rows(void *ctx, uint32_t first, uint32_t n, const float *logits,
                   struct err *e)
{
    struct sink *s = ctx;
    assert_int_equal(first, s->n); /* in order, each once */
    memcpy(s->v + (size_t)first * LABELS, logits,
           (size_t)n * LABELS * sizeof(*logits));
    s->n += n;
    return s->fails != 0 ? err_set(e, s->fails, "not wanted") : 0;
}

static bool go(void *ctx)
{
    struct sink *s = ctx;
    return ++s->windows != s->stop_at;
}

static float *run(struct encoder *g, uint32_t n, uint32_t rows)
{
    struct sink s = {.v = calloc((size_t)n * LABELS, sizeof(float))};
    struct err e = {0};
    const struct encoder_run r = {.tokens = tokens,
                                  .n = n,
                                  .rows = rows,
                                  .fn = on_rows,
                                  .go = go,
                                  .ctx = &s};
    assert_non_null(s.v);
    unit_ok(encoder_run(g, &r, &e), &e);
    assert_int_equal(s.n, n);
    return s.v;
}

/* Windows of every size that holds the reach. */
static void test_windows(void **state)
{
    (void)state;
    struct encoder *g = open_shape("ranged");
    static const uint32_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 500, 1025};
    static const uint32_t rows[] = {96, 128, 160, 1024};
    for (size_t i = 0; i < countof(lengths); i++) {
        uint32_t n = lengths[i];
        float *whole = run(g, n, 0);
        assert_true(encoder_plan(g, n).exact);
        for (size_t k = 0; k < countof(rows); k++) {
            float *got = run(g, n, rows[k]);
            if (memcmp(got, whole, (size_t)n * LABELS * sizeof(*got)) != 0) {
                fail_msg("%u tokens in windows of %u: other bits", n, rows[k]);
            }
            free(got);
        }
        free(whole);
    }
    encoder_close(g);
}

/* Texts around and beyond the longest window: what is far from their seam is
 * what a window of any other place gives. */
static void test_long(void **state)
{
    (void)state;
    struct encoder *g = open_shape("ranged");
    static const uint32_t lengths[] = {4095, 4096, 4097, 9001};
    const size_t count = UNIT_SANITIZED ? 3 : countof(lengths);
    for (size_t i = 0; i < count; i++) {
        uint32_t n = lengths[i];
        float *a = run(g, n, 0);
        float *b = run(g, n, 2048);
        struct encoder_plan p = encoder_plan(g, n);
        assert_true(p.exact && p.rows == ENCODER_ROWS_MAX && p.side >= 24);
        assert_memory_equal(a, b, (size_t)n * LABELS * sizeof(*a));
        free(a);
        free(b);
    }
    encoder_close(g);
}

/* A change farther away than the layers reach changes nothing, one that is
 * nearer does: the reach is not larger than it has to be, and not smaller. */
static void test_reach(void **state)
{
    (void)state;
    struct encoder *g = open_shape("ranged");
    const uint32_t at = 200;
    const uint32_t reach = 3 * 8;
    float *a = run(g, 400, 0);
    int32_t kept = tokens[at];
    tokens[at] = (kept + 7) % 318;
    float *b = run(g, 400, 0);
    tokens[at] = kept;
    for (uint32_t i = 0; i < 400; i++) {
        bool same = memcmp(a + i * LABELS, b + i * LABELS,
                           LABELS * sizeof(*a)) == 0;
        bool far = i + reach < at || i > at + reach;
        assert_true(same || !far);
    }
    assert_true(memcmp(a + at * LABELS, b + at * LABELS, sizeof(*a)) != 0);
    assert_true(memcmp(a + (at - 8) * LABELS, b + (at - 8) * LABELS,
                       LABELS * sizeof(*a)) != 0);
    assert_true(memcmp(a + (at + 8) * LABELS, b + (at + 8) * LABELS,
                       LABELS * sizeof(*a)) != 0);
    free(a);
    free(b);
    encoder_close(g);
}

/* Programs of 128, 256 and 512 rows: within one window the same numbers, and
 * with this model's short reach beyond as well. */
static void test_functions(void **state)
{
    (void)state;
    struct encoder *ranged = open_shape("ranged");
    struct encoder *fixed = open_shape("functions");
    static const uint32_t lengths[] = {1, 127, 128, 129, 300, 512, 513, 1500};
    for (size_t i = 0; i < countof(lengths); i++) {
        uint32_t n = lengths[i];
        float *a = run(ranged, n, 0);
        float *b = run(fixed, n, 0);
        for (size_t k = 0; k < (size_t)n * LABELS; k++) {
            if (!(fabsf(a[k] - b[k]) < 1e-3F)) {
                fail_msg("%u tokens: %f and %f", n, (double)a[k],
                         (double)b[k]);
            }
        }
        struct encoder_plan p = encoder_plan(fixed, n);
        assert_true(p.rows == 512 && p.exact);
        free(a);
        free(b);
    }
    encoder_close(fixed);
    encoder_close(ranged);
}

/* Asked between programs; what was given before stays given. */
static void test_cancel(void **state)
{
    (void)state;
    struct encoder *g = open_shape("ranged");
    for (uint32_t stop = 1; stop < 8; stop++) {
        float v[1000 * LABELS];
        struct sink s = {.v = v, .stop_at = stop};
        struct err e = {0};
        const struct encoder_run r = {.tokens = tokens,
                                      .n = 1000,
                                      .rows = 160,
                                      .fn = on_rows,
                                      .go = go,
                                      .ctx = &s};
        assert_int_equal(encoder_run(g, &r, &e), ERR_CANCELLED);
        assert_int_equal(s.windows, stop);
        assert_true(s.n < 1000);
    }
    float *a = run(g, 100, 0); /* it is as it was */
    float *b = run(g, 100, 96);
    assert_memory_equal(a, b, 100 * LABELS * sizeof(*a));
    free(a);
    free(b);
    encoder_close(g);
}

static void test_refused(void **state)
{
    (void)state;
    struct encoder *g = open_shape("ranged");
    float v[4 * LABELS];
    struct sink s = {.v = v};
    struct err e = {0};
    int32_t wrong[] = {5, -1, 320, INT32_MAX};
    struct encoder_run r = {
        .tokens = wrong, .n = 0, .fn = on_rows, .ctx = &s};
    assert_int_equal(encoder_run(g, &r, &e), ERR_INVALID);
    for (size_t i = 1; i < countof(wrong); i++) {
        r.tokens = wrong + i;
        r.n = 1;
        assert_int_equal(encoder_run(g, &r, &e), ERR_INVALID);
    }
    r.tokens = tokens;
    r.n = 4;
    r.rows = 64; /* no room beside the reach on both sides */
    assert_int_equal(encoder_run(g, &r, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "reach"));
    r.rows = 0;
    s.fails = ERR_TOO_BIG; /* an error of the caller's function ends it */
    assert_int_equal(encoder_run(g, &r, &e), ERR_TOO_BIG);
    encoder_close(g);
    encoder_close(NULL);
}

/* The other kind is refused by name, both ways. */
static void test_kinds(void **state)
{
    (void)state;
    char out[512];
    struct err e = {0};
    struct encoder *t = NULL;
    struct engine *g = NULL;
    const struct engine_conf conf = {.threads = 1};
    assert_true(file_join(out, sizeof(out), dir, "demo"));
    g = converted_open(converted_demo(), out, NULL, NULL, NULL, &conf);
    engine_close(g);
    g = NULL;
    assert_int_equal(encoder_open(out, &conf, &t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "decoder"));
    encoder_close(open_shape("ranged"));
    assert_true(file_join(out, sizeof(out), dir, "ranged"));
    assert_int_equal(engine_open(out, &conf, &g, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "encoder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows), cmocka_unit_test(test_long),
        cmocka_unit_test(test_reach),   cmocka_unit_test(test_functions),
        cmocka_unit_test(test_cancel),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
