/* The pure parts: quantisation, the range's choice. */
#include "base/half.h"
#include "convert/quant.h"
#include "convert/range.h"
#include "mkgguf.h"

/* --- quantisation --- */

static void fill(float *w, size_t n, float size, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float u = (float)mk_random(&seed) / 1073741824.0f - 1.0f;
        w[i] = size * u;
    }
}

/* An element is off by at most half a step of the rounded scale. */
static void int8_error_bound(void **state)
{
    (void)state;
    static const float sizes[] = {3e-7f, 1e-5f, 1e-3f, 7.7e-3f,
                                  0.05f, 1.0f,  300.0f};
    enum { N = 101 }; /* whole vectors and a rest */
    float w[N];
    int8_t q[N];
    for (size_t k = 0; k < countof(sizes); k++) {
        fill(w, N, sizes[k], k + 1);
        uint16_t bits = quant_scale(quant_peak(w, N), 127);
        float s = half_to_float(bits);
        assert_true(s > 0);
        quant_int8(w, N, bits, q);
        for (size_t i = 0; i < N; i++) {
            float err = fabsf((float)q[i] * s - w[i]);
            assert_true(err <= 0.5001f * s + 1e-12f);
            assert_int_equal(q[i],
                             (int8_t)fmaxf(-127, fminf(127, rintf(w[i] / s))));
        }
    }
}

static void zero_and_extreme_rows(void **state)
{
    (void)state;
    float w[40] = {0};
    int8_t q[40];
    memset(q, 1, sizeof(q));
    assert_true(quant_peak(w, 40) == 0);
    assert_int_equal(quant_scale(0, 127), half_from_float(1.0f));
    quant_int8(w, 40, quant_scale(0, 127), q);
    for (size_t i = 0; i < 40; i++) {
        assert_int_equal(q[i], 0);
    }
    /* the least scale is the least subnormal, never zero */
    assert_int_equal(quant_scale(1e-9f, 127), 1);
    /* rounding the scale down may not clip: the peak keeps its value */
    for (float peak = 1e-6f; peak < 1e-2f; peak *= 1.07f) {
        float s = half_to_float(quant_scale(peak, 127));
        assert_true(peak / s <= 127.5f);
    }
    w[3] = NAN;
    assert_true(isnan(quant_peak(w, 40)));
    w[3] = 0;
    w[39] = -INFINITY; /* in the rest after the vectors */
    assert_true(isnan(quant_peak(w, 40)));
}

static void int4_packs_low_nibble_first(void **state)
{
    (void)state;
    const float w[6] = {7, -7, 1, -1, 0, 3};
    uint8_t q[3];
    quant_int4(w, 6, half_from_float(1.0f), q);
    assert_int_equal(q[0], 0x97);
    assert_int_equal(q[1], 0xf1);
    assert_int_equal(q[2], 0x30);
}

static void quant_names(void **state)
{
    (void)state;
    struct err e = {0};
    enum quant q = QUANT_INT4;
    unit_ok(quant_parse(NULL, &q, &e), &e);
    assert_int_equal(q, QUANT_INT8);
    assert_int_equal(quant_parse("lut4", &q, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "lut4"));
    assert_int_equal(quant_parse("q4_k", &q, &e), ERR_INVALID);
    assert_int_equal(q, QUANT_INT8);
}

/* --- range --- */

static struct range gemma_like(double top)
{
    struct range r = {0};
    range_add_peak(&r, RANGE_EMBEDDING, 0, 23);
    range_add_peak(&r, RANGE_RESIDUAL, 0, 2984);
    range_add_peak(&r, RANGE_Q, 1, 100);
    range_add_peak(&r, RANGE_RESIDUAL, 1, top);
    range_add_peak(&r, RANGE_RESIDUAL, 2, top / 2);
    struct range_norm *n = range_add_norm(&r, RANGE_ATTN_NORM, 1);
    for (size_t i = 0; i < RANGE_ALPHAS; i++) {
        n->error[i] = i < 3 ? INFINITY : 0.001f;
    }
    return r;
}

static void alpha_keeps_four_free(void **state)
{
    (void)state;
    const struct decoder d = {.norm_eps = 1e-5f};
    static const struct {
        double top;
        float alpha;
    } t[] = {
        {10, 1}, {16376, 1}, {16377, 0.5f}, {104000, 0.125f}, {1e6, 0.015625f},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct range r = gemma_like(t[i].top < 2984 ? 2984 : t[i].top);
        struct range_choice c = {0};
        struct err e = {0};
        unit_ok(range_choose(&r, &d, NULL, 0, &c, &e), &e);
        assert_true(c.alpha == t[i].alpha);
        assert_true(c.margin >= RANGE_FREE);
        assert_false(c.warned);
        range_fini(&r);
    }
}

static void norm_follows_the_measure(void **state)
{
    (void)state;
    struct decoder d = {.norm_eps = 1e-5f};
    struct range r = gemma_like(60000); /* alpha 1/4: the form overflows */
    struct range_choice c = {0};
    struct err e = {0};
    unit_ok(range_choose(&r, &d, NULL, 0, &c, &e), &e);
    assert_int_equal(c.norm, NORM_MAX);
    range_fini(&r);
    r = gemma_like(104000); /* 1/8: it fits, and epsilon is still there */
    unit_ok(range_choose(&r, &d, NULL, 0, &c, &e), &e);
    assert_int_equal(c.norm, NORM_SCALE);
    d.norm_eps = 1e-6f; /* times 1/64: nothing in fp16 */
    unit_ok(range_choose(&r, &d, NULL, 0, &c, &e), &e);
    assert_int_equal(c.norm, NORM_MAX);
    assert_false(c.eps_omitted);
    unit_ok(range_choose(&r, &d, "scale", 0, &c, &e), &e);
    assert_true(c.eps_omitted);
    range_fini(&r);
}

static void forced_values_name_the_tensor(void **state)
{
    (void)state;
    const struct decoder d = {.norm_eps = 1e-6f};
    struct range r = gemma_like(104000);
    struct range_choice c = {0};
    struct err e = {0};
    assert_int_equal(range_choose(&r, &d, NULL, 1, &c, &e), ERR_RANGE);
    assert_non_null(strstr(e.msg, "layers.1.residual "));
    assert_int_equal(range_choose(&r, &d, "scale", 0.5, &c, &e), ERR_RANGE);
    assert_non_null(strstr(e.msg, "layers.1.attn_norm"));
    assert_int_equal(range_choose(&r, &d, NULL, 0.3, &c, &e), ERR_INVALID);
    assert_int_equal(range_choose(&r, &d, NULL, 2, &c, &e), ERR_INVALID);
    assert_int_equal(range_choose(&r, &d, "sum", 0, &c, &e), ERR_INVALID);
    /* less than four free is said aloud */
    unit_ok(range_choose(&r, &d, "max", 0.5, &c, &e), &e);
    assert_true(c.warned);
    /* what no scaling fixes */
    range_add_peak(&r, RANGE_GATE, 5, 70000);
    assert_int_equal(range_choose(&r, &d, NULL, 0, &c, &e), ERR_RANGE);
    assert_non_null(strstr(e.msg, "layers.5.gate"));
    range_fini(&r);
    range_add_peak(&r, RANGE_V, 0, (double)NAN);
    assert_int_equal(range_choose(&r, &d, NULL, 0, &c, &e), ERR_RANGE);
    range_fini(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(int8_error_bound),
        cmocka_unit_test(zero_and_extreme_rows),
        cmocka_unit_test(int4_packs_low_nibble_first),
        cmocka_unit_test(quant_names),
        cmocka_unit_test(alpha_keeps_four_free),
        cmocka_unit_test(norm_follows_the_measure),
        cmocka_unit_test(forced_values_name_the_tensor),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
