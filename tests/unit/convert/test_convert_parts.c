/* The pure parts: the range's choice, the plan. */
#include "convert/plan.h"
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

/* --- plan --- */

static void check_cover(const struct plan_range *r, uint32_t n, uint32_t all)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r[i].first, at);
        assert_true(r[i].last > r[i].first);
        at = r[i].last;
    }
    assert_int_equal(at, all);
}

static void plan_of_real_shapes(void **state)
{
    (void)state;
    static const struct {
        struct plan_input in;
        const char *profile;
        uint32_t shards, heads;
    } t[] = {
        /* gemma-3-270m int8, its vocabulary is the largest there is */
        {{18, 262144, 4096, 5570560, 642, true}, "law", 1, 8},
        /* Qwen2.5-0.5B int8: 24 layers of 14.9 MB */
        {{24, 151936, 4096, 14909440, 898, true}, "law", 2, 5},
        {{24, 151936, 4096, 14909440, 898, true}, "m4-max", 1, 3},
        /* 40 state tensors a program */
        {{24, 1000, 512, 1000, 66, true}, "law", 2, 1},
        {{24, 1000, 512, 1000, 66, false}, "law", 1, 1},
        /* one layer a program */
        {{7, 1000, 512, 249000000, 66, true}, "law", 7, 1},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct plan_profile p;
        struct plan plan;
        struct err e = {0};
        unit_ok(plan_profile(t[i].profile, &p, &e), &e);
        unit_ok(plan_make(&p, &t[i].in, &plan, &e), &e);
        assert_int_equal(plan.n_shards, t[i].shards);
        assert_int_equal(plan.n_heads, t[i].heads);
        check_cover(plan.shards, plan.n_shards, t[i].in.n_layers);
        check_cover(plan.heads, plan.n_heads, t[i].in.vocab);
        for (uint32_t k = 0; k < plan.n_shards; k++) {
            uint32_t n = plan.shards[k].last - plan.shards[k].first;
            assert_true(n * t[i].in.layer_bytes <= p.program_bytes);
        }
        for (uint32_t k = 0; k < plan.n_heads; k++) {
            assert_true(plan.heads[k].last - plan.heads[k].first <=
                        p.head_rows);
        }
    }
}

static void plan_refuses(void **state)
{
    (void)state;
    struct plan_profile p;
    struct plan plan;
    struct err e = {0};
    assert_int_equal(plan_profile("m9", &p, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "law"));
    unit_ok(plan_profile(NULL, &p, &e), &e);
    assert_string_equal(p.name, "law");
    struct plan_input in = {2, 100, 512, 251000000, 66, true};
    assert_int_equal(plan_make(&p, &in, &plan, &e), ERR_CONVERT);
    in.layer_bytes = 100;
    in.context = 20000;
    assert_int_equal(plan_make(&p, &in, &plan, &e), ERR_CONVERT);
    assert_non_null(strstr(e.msg, "16384"));
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(alpha_keeps_four_free),
        cmocka_unit_test(norm_follows_the_measure),
        cmocka_unit_test(forced_values_name_the_tensor),
        cmocka_unit_test(plan_of_real_shapes),
        cmocka_unit_test(plan_refuses),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
