/* Mixtures of experts: what a source says of them and where their rows are, and
 * which experts a token gets. What the logits are is asked elsewhere
 * (tests/oracle/test_families.py). */
#include "convert/reference/reference.h"
#include "mkmixtures.h"
#include "read_family.h"

static const struct mk_item dense_items[] = {ITEMS};

static void numbers(void **state)
{
    (void)state;
    struct read r;
    unit_ok(try_read(&fused, &r), &r.e);
    for (uint32_t l = 0; l < 2; l++) {
        const struct layer *y = &r.d.layers[l];
        assert_int_equal(y->router, ROUTER_SOFTMAX_TOP);
        assert_int_equal(y->n_experts, EXPERTS);
        assert_int_equal(y->n_top, TOP);
        assert_int_equal(y->d_expert, WIDE);
        assert_int_equal(y->d_ff, FF);
        assert_true(y->expert_branch);
    }
    end(&r);
}

/* Rows [first, first + n) of a part are what gguf_rows has at `at`. */
static void same_rows(const struct part *p, uint64_t first, uint64_t n,
                      uint64_t at)
{
    struct err e = {0};
    float a[2 * EXPERTS * WIDE * D];
    float b[2 * EXPERTS * WIDE * D];
    unit_ok(arch_rows_of(p, first, n, a, &e), &e);
    unit_ok(gguf_rows(p->t, at, n, b, &e), &e);
    assert_memory_equal(a, b, n * D * sizeof(float));
}

static void rows_of_experts(void **state)
{
    (void)state;
    struct err e = {0};
    struct read r;
    float a[EXPERTS * WIDE * D];
    unit_ok(try_read(&fused, &r), &r.e);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        const struct part gate = arch_expert(&r.d, 1, SLOT_EXPERT_GATE, i);
        const struct part up = arch_expert(&r.d, 1, SLOT_EXPERT_UP, i);
        const struct part down = arch_expert(&r.d, 1, SLOT_EXPERT_DOWN, i);
        assert_int_equal(gate.first, 2 * WIDE * i);
        assert_int_equal(up.first, 2 * WIDE * i + WIDE);
        assert_int_equal(down.first, D * i);
        assert_int_equal(gate.rows, WIDE);
        assert_int_equal(down.rows, D);
        assert_int_equal(down.cols, WIDE);
        same_rows(arch_part(&r.d, 1, SLOT_EXPERT_GATE), WIDE * i, WIDE,
                  gate.first);
        same_rows(arch_part(&r.d, 1, SLOT_EXPERT_UP), WIDE * i + 3, WIDE - 3,
                  up.first + 3);
        same_rows(&up, 1, 4, up.first + 1);
    }
    /* which rows are whose */
    for (uint64_t at = 0; at < 2 * EXPERTS * WIDE; at++) {
        uint64_t row = 99;
        bool up = at / WIDE % 2 == 1;
        const struct part *p =
            arch_part(&r.d, 1, up ? SLOT_EXPERT_UP : SLOT_EXPERT_GATE);
        assert_true(arch_has_row(p, at, &row));
        assert_int_equal(row, at / (2 * WIDE) * WIDE + at % WIDE);
        p = arch_part(&r.d, 1, up ? SLOT_EXPERT_GATE : SLOT_EXPERT_UP);
        assert_false(arch_has_row(p, at, &row));
    }
    /* across experts */
    unit_ok(arch_rows_of(arch_part(&r.d, 1, SLOT_EXPERT_UP), 0, EXPERTS * WIDE,
                         a, &e),
            &e);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        const struct part up = arch_expert(&r.d, 1, SLOT_EXPERT_UP, i);
        float b[WIDE * D];
        unit_ok(gguf_rows(up.t, up.first, WIDE, b, &e), &e);
        assert_memory_equal(a + i * WIDE * D, b, sizeof(b));
    }
    end(&r);
    unit_ok(try_read(&split, &r), &r.e);
    const struct part up = arch_expert(&r.d, 0, SLOT_EXPERT_UP, 4);
    assert_string_equal(up.t->name, "blk.0.ffn_up_exps.weight");
    assert_int_equal(up.first, 4 * WIDE);
    end(&r);
}

static void groups(void **state)
{
    (void)state;
    struct layer y = {.n_experts = 128, .d_expert = 704};
    assert_int_equal(layer_expert_group(&y, 2816), 22); /* 6 groups, 23 fit */
    assert_int_equal(layer_expert_group(&y, 512), 64);
    y.n_experts = 32;
    y.d_expert = 1792;
    assert_int_equal(layer_expert_group(&y, 2048), 32);
    y.d_expert = MODEL_DIM_MAX;
    assert_int_equal(layer_expert_group(&y, 2048), 1);
}

static void refused(void **state)
{
    (void)state;
    static const char *const needed[] = {
        "ffn_gate_inp.weight", "ffn_gate_inp.scale",    "ffn_down_exps.weight",
        "ffn_down_exps.scale", "pre_ffw_norm_2.weight", "post_ffw_norm_1.weight",
    };
    struct mk m = fused;
    for (size_t i = 0; i < countof(needed); i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "blk.1.%s", needed[i]);
        m.without = name;
        must_refuse(&m, ERR_GGUF_MISSING, name);
    }
    m.without = "blk.0.ffn_gate_up_exps.weight";
    must_refuse(&m, ERR_GGUF_MISSING, "blk.0.ffn_gate_exps.weight");
    m.without = NULL;
    m.items = dense_items; /* they would have no use */
    m.n_items = countof(dense_items);
    must_refuse(&m, ERR_CONVERT, "has no place");
    m = fused;
    m.extra_key = "expert_gating_func";
    m.extra_value = 2;
    must_refuse(&m, ERR_UNSUPPORTED, "gemma4.expert_gating_func");
    m.extra_key = "expert_shared_count";
    must_refuse(&m, ERR_UNSUPPORTED, "gemma4.expert_shared_count");
}

static void wrong_numbers(void **state)
{
    (void)state;
    static const struct {
        size_t item; /* from the end */
        uint32_t value;
        int rc;
        const char *tells;
    } t[] = {
        {3, 1,                     ERR_CONVERT,     "expert_used_count"         },
        {3, MODEL_EXPERTS_MAX + 1, ERR_CONVERT,     "expert_count"              },
        {3, EXPERTS + 1,           ERR_CONVERT,     "ffn_"                      },
        {2, EXPERTS + 1,           ERR_CONVERT,     "expert_used_count"         },
        {2, 0,                     ERR_CONVERT,     "expert_used_count"         },
        {1, 0,                     ERR_CONVERT,     "expert_feed_forward_length"},
        {1, WIDE + 1,              ERR_CONVERT,     "ffn_"                      },
        {1, MODEL_DIM_MAX,         ERR_CONVERT,     "ffn_"                      },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct mk_item other[countof(items)];
        struct mk m = fused;
        memcpy(other, items, sizeof(items));
        other[countof(items) - t[i].item].u = t[i].value;
        m.items = other;
        must_refuse(&m, t[i].rc, t[i].tells);
    }
}

/* --- the choice --- */

static void is_near(float a, double b)
{
    assert_true(fabs((double)a - b) < 1e-6);
}

static void softmax_top(void **state)
{
    (void)state;
    const struct layer y = {
        .router = ROUTER_SOFTMAX_TOP, .n_experts = 5, .n_top = 2};
    const float scores[] = {0.5f, 2, -1, 2, 1};
    const float scale[] = {7, 3, 7, 0.5f, 7};
    float g[5];
    reference_gates(&y, scores, NULL, NULL, g);
    const float half[] = {0, 0.5f, 0, 0.5f, 0};
    assert_memory_equal(g, half, sizeof(g));
    reference_gates(&y, scores, NULL, scale, g);
    const float scaled[] = {0, 1.5f, 0, 0.25f, 0};
    assert_memory_equal(g, scaled, sizeof(g));
    const float apart[] = {0.5f, 2, -1, 0, 1};
    reference_gates(&y, apart, NULL, NULL, g);
    is_near(g[1], 1 / (1 + exp(-1)));
    is_near(g[4], 1 / (1 + exp(1)));
    assert_true(g[0] == 0 && g[2] == 0 && g[3] == 0);
}

/* Of equal scores the first ones, however many there are. */
static void ties(void **state)
{
    (void)state;
    struct layer y = {.router = ROUTER_SOFTMAX_TOP, .n_experts = 6};
    const float scores[] = {1, 3, 1, 1, 3, 1};
    float g[6];
    static const bool want[][6] = {
        {0, 1, 0, 0, 0, 0}, {0, 1, 0, 0, 1, 0}, {1, 1, 0, 0, 1, 0},
        {1, 1, 1, 0, 1, 0}, {1, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 1},
    };
    for (uint32_t top = 1; top <= 6; top++) {
        y.n_top = top;
        reference_gates(&y, scores, NULL, NULL, g);
        for (size_t i = 0; i < 6; i++) {
            assert_int_equal(g[i] != 0, want[top - 1][i]);
        }
    }
}

/* The bias chooses and does not weigh. */
static void sigmoid_bias(void **state)
{
    (void)state;
    const struct layer y = {
        .router = ROUTER_SIGMOID_BIAS, .n_experts = 4, .n_top = 2};
    const float scores[] = {2, 1, 0, -1};
    const float bias[] = {-1, 0, 0, 2};
    float g[4];
    reference_gates(&y, scores, bias, NULL, g);
    double one = 1 / (1 + exp(-1));
    double other = 1 / (1 + exp(1));
    double sum = one + other + (double)ROUTER_SUM_MIN;
    is_near(g[1], one / sum);
    is_near(g[3], other / sum);
    assert_true(g[0] == 0 && g[2] == 0);
}

/* One class more than experts, which stands for none; the bias chooses and does
 * not weigh, and the weight is a share of all. */
static void network(void **state)
{
    (void)state;
    const struct layer y = {
        .router = ROUTER_NETWORK, .n_experts = 3, .n_top = 1, .d_router = 4};
    const float scores[] = {1, 2, 0, 1.5f};
    const float none[] = {0, 0, 0, 0};
    const float first[] = {0.5f, 0, 0, 0};
    const float last[] = {0, 0, 0, 0.5f};
    double sum = exp(1) + exp(2) + 1 + exp(1.5);
    float g[3];
    reference_gates(&y, scores, none, NULL, g);
    is_near(g[1], exp(2) / sum);
    assert_true(g[0] == 0 && g[2] == 0);
    reference_gates(&y, scores, first, NULL, g);
    is_near(g[0], exp(1) / sum);
    assert_true(g[1] == 0 && g[2] == 0);
    reference_gates(&y, scores, last, NULL, g);
    assert_true(g[0] == 0 && g[1] == 0 && g[2] == 0);
}

/* Of equal ones the first; the class for none has the highest index. */
static void network_ties(void **state)
{
    (void)state;
    const struct layer y = {
        .router = ROUTER_NETWORK, .n_experts = 3, .n_top = 1, .d_router = 4};
    const float bias[] = {0, 0, 0, 0};
    static const struct {
        float scores[4];
        int chosen; /* -1: none */
    } t[] = {
        {{2, 2, 2, 2}, 0}, {{1, 2, 2, 2}, 1},  {{1, 1, 2, 2}, 2},
        {{1, 1, 1, 2}, -1}, {{2, 1, 1, 2}, 0}, {{1, 2, 1, 2}, 1},
        /* the next float above is higher */
        {{1, 1, 2, 2.0000002f}, -1}, {{1, 2, 2.0000002f, 2}, 2},
    };
    for (size_t i = 0; i < countof(t); i++) {
        float g[3];
        reference_gates(&y, t[i].scores, bias, NULL, g);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(g[k] != 0, k == t[i].chosen);
        }
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(network),       cmocka_unit_test(network_ties),
        cmocka_unit_test(numbers),       cmocka_unit_test(rows_of_experts),
        cmocka_unit_test(groups),        cmocka_unit_test(refused),
        cmocka_unit_test(wrong_numbers), cmocka_unit_test(softmax_top),
        cmocka_unit_test(ties),          cmocka_unit_test(sigmoid_bias),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
