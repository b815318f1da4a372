/* Error feedback: against its definition, and its invariance. */
#include "base/crew.h"
#include "base/half.h"
#include "base/isa.h"
#include "convert/quant.h"
#include "convert/quant/feedback.h"
#include "mkgguf.h"

enum { COLS_MAX = 150, ROWS = 7, TOKENS = 300, STRIDE = 304 };

struct inputs {
    size_t cols;
    float x[COLS_MAX * STRIDE], wanted[COLS_MAX * STRIDE];
    float w[ROWS * COLS_MAX];
};

static float drawn(uint64_t *seed)
{
    return (float)mk_random(seed) / 1073741824.0f - 1.0f;
}

/* Inputs that depend on each other, of sizes that differ; the second column is
 * never used; few tokens make the Hessian singular. */
static void draw(struct inputs *in, size_t cols, uint64_t seed)
{
    in->cols = cols;
    for (size_t f = 0; f < cols; f++) {
        float size = f == 1 ? 0 : 0.1f + fabsf(drawn(&seed));
        for (size_t t = 0; t < STRIDE; t++) {
            float v = size * drawn(&seed);
            v += f > 2 ? 0.7f * in->x[(f - 2) * STRIDE + t] : 0;
            in->x[f * STRIDE + t] = v;
            in->wanted[f * STRIDE + t] = v * (1 + 0.1f * drawn(&seed));
        }
    }
    for (size_t i = 0; i < ROWS * cols; i++) {
        in->w[i] = drawn(&seed) * drawn(&seed);
    }
}

static struct hessian *sum_up(const struct inputs *in, size_t tokens,
                              unsigned threads)
{
    struct hessian *h = NULL;
    struct err e = {0};
    unit_ok(hessian_open(in->cols, &h, &e), &e);
    size_t half = tokens / 2;
    unit_ok(hessian_add(h, threads, in->x, STRIDE, half, &e), &e);
    unit_ok(hessian_add(h, threads, in->x + half, STRIDE, tokens - half, &e),
            &e);
    return h;
}

/* sum over rows of d H d^T, d = W - Q */
static double loss(const struct hessian *h, const float *w, const float *q,
                   size_t cols)
{
    double sum = 0;
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < cols; i++) {
            for (size_t j = 0; j < cols; j++) {
                double a = (double)(w[r * cols + i] - q[r * cols + i]);
                double b = (double)(w[r * cols + j] - q[r * cols + j]);
                sum += a * b * hessian_get(h, i, j);
            }
        }
    }
    return sum;
}

/* first: number of the first row in its tensor */
static void encode_from(const struct inputs *in, const struct hessian *h,
                        const struct feedback *f, const char *spec,
                        uint64_t first, float *values)
{
    static uint8_t codes[ROWS * COLS_MAX * 2];
    static uint16_t params[ROWS * 64];
    float imp[COLS_MAX];
    struct err e = {0};
    struct quant_form out = {.codes = codes, .params = params};
    struct quant_input q = {.rows = in->w,
                            .n_rows = ROWS,
                            .cols = in->cols,
                            .first = first,
                            .importance = imp,
                            .feedback = f};
    hessian_importance(h, imp);
    unit_ok(quant_parse(spec, &q.spec, &e), &e);
    q.spec = quant_fit(q.spec, ROWS);
    unit_ok(quant_encode(&q, &out, &e), &e);
    unsigned bits = quant_bits(q.spec.kind);
    for (size_t i = 0; i < ROWS * in->cols; i++) {
        unsigned c = 0;
        for (size_t b = 0; b < bits; b++) {
            size_t at = i * bits + b;
            c |= (unsigned)(codes[at / 8] >> at % 8 & 1) << b;
        }
        size_t row = i / in->cols;
        unsigned n = quant_entries(q.spec.kind);
        values[i] =
            n > 0 ? half_to_float(params[row / q.spec.group * n + c])
                  : half_to_float(params[row]) *
                        (float)(bits == 4 ? (int)(c ^ 8u) - 8 : (int8_t)c);
    }
}

static void encode(const struct inputs *in, const struct hessian *h,
                   const struct feedback *f, const char *spec, float *values)
{
    encode_from(in, h, f, spec, 0, values);
}

static void sums_are_those_of_the_panels(void **state)
{
    (void)state;
    static struct inputs in;
    struct shift *s = NULL;
    struct err e = {0};
    draw(&in, 70, 1);
    struct hessian *h = sum_up(&in, TOKENS, 1);
    unit_ok(shift_open(70, NULL, &s, &e), &e);
    unit_ok(shift_add(s, 1, in.wanted, in.x, STRIDE, TOKENS, &e), &e);
    for (size_t i = 0; i < 70; i++) {
        for (size_t j = 0; j < 70; j++) {
            double a = 0;
            double b = 0;
            for (size_t t = 0; t < TOKENS; t++) {
                double x = (double)in.x[i * STRIDE + t];
                double y = (double)in.x[j * STRIDE + t];
                a += x * y;
                b += ((double)in.wanted[i * STRIDE + t] - x) * y;
            }
            assert_true(fabs(hessian_get(h, i, j) - a) < 1e-4);
            assert_true(fabs((double)shift_row(s, i)[j] - b) < 1e-4);
        }
    }
    float imp[70];
    hessian_importance(h, imp);
    assert_true(imp[1] > 0); /* never used, and yet not free */
    assert_true(imp[1] < imp[5] / 5);
    hessian_close(h);
    shift_close(s);
}

static void feedback_lowers_the_loss(void **state)
{
    (void)state;
    static const char *const specs[] = {"lut4", "lut4:7", "lut6", "int4",
                                        "int8"};
    static struct inputs in;
    static float plain[ROWS * COLS_MAX];
    static float fed[ROWS * COLS_MAX];
    for (size_t k = 0; k < 60; k++) {
        size_t cols = 24 + 4 * (k * 7 % 31);
        size_t tokens = k % 3 == 0 ? 20 : TOKENS; /* fewer than columns */
        struct feedback *f = NULL;
        struct err e = {0};
        draw(&in, cols, k + 3);
        struct hessian *h = sum_up(&in, tokens, 1);
        unit_ok(feedback_open(h, NULL, 0, 1, &f, &e), &e);
        encode(&in, h, NULL, specs[k % countof(specs)], plain);
        encode(&in, h, f, specs[k % countof(specs)], fed);
        double before = loss(h, in.w, plain, cols);
        double after = loss(h, in.w, fed, cols);
        if (!(after < before)) {
            fail_msg("draw %zu: %zu columns, %s: %g is not below %g", k, cols,
                     specs[k % countof(specs)], after, before);
        }
        feedback_close(f);
        hessian_close(h);
    }
}

/* The output on the quantised inputs comes nearer to the wanted one. */
static void shift_moves_towards_the_wanted(void **state)
{
    (void)state;
    static struct inputs in;
    static float q[3][ROWS * COLS_MAX];
    struct shift *s = NULL;
    struct err e = {0};
    double off[3] = {0};
    draw(&in, 64, 9);
    struct hessian *h = sum_up(&in, TOKENS, 1);
    unit_ok(shift_open(64, NULL, &s, &e), &e);
    unit_ok(shift_add(s, 1, in.wanted, in.x, STRIDE, TOKENS, &e), &e);
    for (size_t k = 0; k < 3; k++) {
        struct feedback *f = NULL;
        unit_ok(feedback_open(h, s, 0.5 * (double)k, 1, &f, &e), &e);
        encode(&in, h, f, "lut6", q[k]);
        feedback_close(f);
        for (size_t i = 0; i < ROWS * TOKENS; i++) {
            double d = 0;
            for (size_t c = 0; c < 64; c++) {
                size_t at = c * STRIDE + i % TOKENS;
                size_t w = i / TOKENS * 64 + c;
                d += (double)in.w[w] * (double)in.wanted[at] -
                     (double)q[k][w] * (double)in.x[at];
            }
            off[k] += d * d;
        }
    }
    if (!(off[1] < off[0] && off[2] < off[1])) {
        fail_msg("off by %g, half the way %g, all %g", off[0], off[1], off[2]);
    }
    assert_int_equal(feedback_open(h, s, 1.5, 1, NULL, &e), ERR_INVALID);
    hessian_close(h);
    shift_close(s);
}

/* W times the sum over inputs, the one way and the other. */
static void rows_of_a_shift(void **state)
{
    (void)state;
    static struct inputs in;
    struct shift *s[2] = {NULL};
    struct err e = {0};
    draw(&in, 100, 11);
    const struct shift_rows of = {in.w, 40, ROWS};
    unit_ok(shift_open(100, NULL, &s[0], &e), &e);
    unit_ok(shift_open(100, &of, &s[1], &e), &e);
    for (size_t k = 0; k < 2; k++) {
        assert_int_equal(shift_has_rows(s[k]), k == 1);
        unit_ok(shift_add(s[k], 1, in.wanted, in.x, STRIDE, TOKENS, &e), &e);
    }
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < 100; c++) {
            double sum = 0;
            for (size_t k = 0; k < 100; k++) {
                sum += (double)in.w[r * 100 + k] *
                       (double)shift_row(s[0], k)[c];
            }
            assert_true(fabs(sum - (double)shift_row(s[1], 40 + r)[c]) < 1e-3);
        }
    }
    static float q[2][ROWS * COLS_MAX];
    struct hessian *h = sum_up(&in, TOKENS, 1);
    for (size_t k = 0; k < 2; k++) {
        struct feedback *f = NULL;
        unit_ok(feedback_open(h, s[k], 0.5, 1, &f, &e), &e);
        encode_from(&in, h, f, "int8", k == 1 ? 40 : 0, q[k]);
        feedback_close(f);
        shift_close(s[k]);
    }
    hessian_close(h);
    size_t same = 0;
    for (size_t i = 0; i < ROWS * 100; i++) {
        same += q[0][i] == q[1][i] ? 1 : 0;
    }
    assert_true(same > ROWS * 100 * 9 / 10); /* but for what lies between two */
}

static void threads_change_nothing(void **state)
{
    (void)state;
    static struct inputs in;
    static float q[2][ROWS * COLS_MAX];
    draw(&in, COLS_MAX, 21);
    crew_ref();
    for (unsigned k = 0; k < 2; k++) {
        struct feedback *f = NULL;
        struct shift *s = NULL;
        struct err e = {0};
        unsigned threads = k == 0 ? 1 : 4;
        struct hessian *h = sum_up(&in, TOKENS, threads);
        unit_ok(shift_open(COLS_MAX, NULL, &s, &e), &e);
        unit_ok(shift_add(s, threads, in.wanted, in.x, STRIDE, TOKENS, &e), &e);
        unit_ok(feedback_open(h, s, 0.5, threads, &f, &e), &e);
        encode(&in, h, f, "int8", q[k]);
        feedback_close(f);
        hessian_close(h);
        shift_close(s);
    }
    crew_unref();
    assert_memory_equal(q[0], q[1], sizeof(float) * ROWS * COLS_MAX);
}

static void hopeless_inputs(void **state)
{
    (void)state;
    static struct inputs in;
    static float q[2][ROWS * COLS_MAX];
    struct feedback *f = NULL;
    struct hessian *h = NULL;
    struct err e = {0};
    assert_int_equal(hessian_open(QUANT_HESSIAN_MAX + 1, &h, &e),
                     ERR_UNSUPPORTED);
    draw(&in, 32, 2);
    unit_ok(hessian_open(32, &h, &e), &e); /* nothing was ever seen */
    unit_ok(feedback_open(h, NULL, 0, 1, &f, &e), &e);
    encode(&in, h, NULL, "int8", q[0]);
    encode(&in, h, f, "int8", q[1]);
    assert_memory_equal(q[0], q[1], sizeof(float) * ROWS * 32);
    feedback_close(f);
    in.x[5 * STRIDE] = NAN;
    unit_ok(hessian_add(h, 1, in.x, STRIDE, TOKENS, &e), &e);
    assert_int_equal(feedback_open(h, NULL, 0, 1, &f, &e), ERR_CONVERT);
    hessian_close(h);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(sums_are_those_of_the_panels),
        cmocka_unit_test(feedback_lowers_the_loss),
        cmocka_unit_test(shift_moves_towards_the_wanted),
        cmocka_unit_test(rows_of_a_shift),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(hopeless_inputs),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
