/* The pure parts: the range's choice. */
#include "convert/range.h"
#include "mkgguf.h"

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
        cmocka_unit_test(alpha_keeps_four_free),
        cmocka_unit_test(norm_follows_the_measure),
        cmocka_unit_test(forced_values_name_the_tensor),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
