/* Programs that run as a whole: a mixture of experts in dense form and the
 * count of better scores become one operation each, for weights of every form;
 * what looks like them and is not stays as it is. The interpreter's own short
 * way gives its bits. */
#include "row_case.h"

/* More experts than reduce_sum has lanes. */
enum { D = 32, WIDTH = 24, E = 19, OUT = 48, ROWS = 64 };

/* What is changed of the form. */
enum change {
    AS_IS,
    SWAPPED,     /* operands of the products */
    BIASES,      /* of both products */
    CLAMPED,     /* the Privacy Filter's f, with its constants */
    NO_ACT,      /* nothing between gate and the product */
    ONE_PRODUCT, /* no gate's product: D f(U x * gates) */
    RANKED,      /* gates from a choice by rank */
    GELU,        /* in place of silu */
    LARGE,       /* x is so large that fp16 holds some products, not others */
    FUSED,       /* --- the others are none --- */
    OTHER_INPUT, /* gate and up read different values */
    ADDED,       /* the gates are added: f is not zero where they are */
    AFTER,       /* something else is added behind the gates */
    CHANNELS,    /* what the gates meet: the channels of each expert */
    OVER_OUTS,   /* the sum is over each expert's results */
    SUMMED_LATE, /* between the convolution and the sum stands an operation */
    DOWN_BIAS,   /* the last product has a bias */
    CHANGES,
};

static struct mil_value *grouped(struct pkg *k, struct mil_value *x, int form,
                                 bool biased)
{
    static const int32_t ones[] = {1, 1};
    static const int32_t zeros[] = {0, 0, 0, 0};
    struct mil_value *w = matrix(k, 4, (int64_t)E * OUT, WIDTH, form, 9);
    struct mil_value *one = mil_i32s(k->p, k->f, 2, ones);
    struct mil_value *pad = mil_i32s(k->p, k->f, 4, zeros);
    struct mil_value *valid = mil_str(k->p, k->f, "valid");
    struct mil_value *n = mil_i32(k->p, k->f, E);
    static const int64_t dims[] = {(int64_t)E * OUT};
    if (biased) {
        struct mil_value *b = noise(k, 1, dims, 0, 1, 4);
        return mil_op(k->p, k->f, "conv", "conv", "x", x, "weight", w, "bias",
                      b, "strides", one, "pad_type", valid, "pad", pad,
                      "dilations", one, "groups", n, NULL);
    }
    return mil_op(k->p, k->f, "conv", "conv", "x", x, "weight", w, "strides",
                  one, "pad_type", valid, "pad", pad, "dilations", one,
                  "groups", n, NULL);
}

static struct mil_value *pick(struct pkg *k, struct mil_value *cond,
                              struct mil_value *a, struct mil_value *b)
{
    return mil_op(k->p, k->f, "select", "select", "cond", cond, "a", a, "b", b,
                  NULL);
}

/* How many of the scores are better, as convert/program_experts.c counts. */
static struct mil_value *rank(struct pkg *k, struct mil_value *keys,
                              float corner)
{
    struct mil_type t = {
        .dtype = MIL_FP16, .rank = 4, .dims = {1, E, 1, E}
    };
    uint16_t lower[E * E];
    for (int i = 0; i < E * E; i++) {
        lower[i] = half_from_float(i % E < i / E ? 1 : 0);
    }
    lower[E - 1] = half_from_float(corner);
    struct mil_value *first =
        mil_const_op(k->p, k->f, "lower", mil_imm(k->p, &t, lower));
    struct mil_value *others = transpose(k, keys, 0, 3, 2, 1);
    struct mil_value *zeros = two(k, "mul", others, num(k, 0));
    first = two(k, "add", first, zeros);
    struct mil_value *same = two(k, "greater_equal", others, keys);
    same = pick(k, same, first, num(k, 0));
    struct mil_value *more = two(k, "greater", others, keys);
    more = pick(k, more, num(k, 1), same);
    return reduce(k, "reduce_sum", more, 3);
}

/* Scores of which about half are zero, many of them alike. */
static struct mil_value *gates(struct pkg *k, struct mil_value *by,
                               enum change change)
{
    struct mil_value *g = two(k, "maximum", by, num(k, 0));
    if (change != RANKED) {
        return g;
    }
    g = two(k, "minimum", g, num(k, 0.5F)); /* ties */
    struct mil_value *chosen = two(k, "less", rank(k, g, 0), num(k, 2));
    return pick(k, chosen, by, num(k, 0));
}

static struct mil_value *clamped(struct pkg *k, struct mil_value *a)
{
    a = two(k, "minimum", a, num(k, 0.75F));
    struct mil_value *s = two(k, "mul", a, num(k, 1.702F));
    return two(k, "mul", a, one(k, "sigmoid", s));
}

static struct mil_value *inner(struct pkg *k, struct mil_value *x,
                               struct mil_value *by, int form,
                               enum change change)
{
    struct mil_value *a = conv(k, x, E * WIDTH, form, change == BIASES, 2);
    struct mil_value *in = change == OTHER_INPUT ? one(k, "abs", x) : x;
    struct mil_value *u = conv(k, in, E * WIDTH, form, change == BIASES, 3);
    bool across = change == CHANNELS;
    const char *act = change == GELU ? "gelu" : "silu";
    if (change == CLAMPED) {
        u = two(k, "maximum", u, num(k, -0.5F));
        u = two(k, "add", u, num(k, 1));
    }
    u = across ? reshape4(k, u, WIDTH, E, -1) : reshape4(k, u, E, WIDTH, -1);
    by = across ? reshape4(k, by, 1, E, -1) : reshape4(k, by, E, 1, -1);
    u = two(k, change == ADDED ? "add" : "mul", change == SWAPPED ? by : u,
            change == SWAPPED ? u : by);
    u = reshape4(k, u, E * WIDTH, -1, 1);
    u = change == AFTER ? two(k, "add", u, num(k, 1)) : u;
    if (change == ONE_PRODUCT) {
        return u;
    }
    a = change == CLAMPED ? clamped(k, a)
        : change == NO_ACT ? a
                           : one(k, act, a);
    return two(k, "mul", change == SWAPPED ? u : a, change == SWAPPED ? a : u);
}

/* Sums along T, which no program does that runs as rows. */
static struct mil_value *along(struct pkg *k, struct mil_value *x)
{
    struct mil_value *axis = mil_i32(k->p, k->f, 2);
    struct mil_value *exclusive = mil_bool(k->p, k->f, false);
    struct mil_value *reverse = mil_bool(k->p, k->f, false);
    return mil_op(k->p, k->f, "cumsum", "cumsum", "x", x, "axis", axis,
                  "exclusive", exclusive, "reverse", reverse, NULL);
}

/* The mixture, then what keeps it from running as rows. */
static void make(struct pkg *k, int form, enum change change)
{
    pkg_begin(k);
    struct mil_value *x = in4(k, "x", D, -1, 1);
    struct mil_value *by = gates(k, in4(k, "by", E, -1, 1), change);
    x = change == LARGE ? two(k, "mul", x, num(k, 4e4F)) : x;
    struct mil_value *a = inner(k, x, by, form, change);
    a = grouped(k, a, form, change == DOWN_BIAS);
    a = change == SUMMED_LATE ? one(k, "abs", a) : a;
    a = change == OVER_OUTS ? reshape4(k, a, OUT, E, -1)
                            : reshape4(k, a, E, OUT, -1);
    a = reduce(k, "reduce_sum", a, 1);
    a = reshape4(k, a, change == OVER_OUTS ? E : OUT, -1, 1);
    output(k, along(k, a));
}

static int count(const struct backend_model *m, const char *type)
{
    int n = 0;
    for (int i = 0; i < m->n_nodes; i++) {
        n += strcmp(m->nodes[i]->def->type, type) == 0;
    }
    return n;
}

static void test_experts(void **state)
{
    (void)state;
    static const int forms[] = {ROW_OPS_FP16, ROW_OPS_INT8, ROW_OPS_INT4,
                                ROW_OPS_LUT4};
    for (size_t i = 0; i < countof(forms); i++) {
        for (int c = AS_IS; c < CHANGES; c++) {
            struct pkg k;
            struct twin t = {.bound = CASE_REAL, .seed = 5};
            struct backend_conf conf = {.threads = 2};
            if (c == FUSED) {
                continue;
            }
            make(&k, forms[i], (enum change)c);
            pkg_finish(&k);
            case_must(&t, twin_open(&t, k.path, &conf));
            assert_null(t.rows->rows);
            if (count(t.rows, "experts") != (c < FUSED) ||
                count(t.rows, "conv") == (c < FUSED)) {
                fail_msg("form %d, change %d: %d of experts", forms[i], c,
                         count(t.rows, "experts"));
            }
            assert_int_equal(count(t.rows, "rank"), c == RANKED);
            for (uint32_t n = 1; n <= ROWS; n = 3 * n + 1) {
                case_must(&t, twin_whole(&t, 0, n));
            }
            twin_close(&t);
            pkg_end(&k);
        }
    }
}

/* OUT * n results of the interpreter. */
static void interpret(const struct pkg *k, bool chosen, bool round, uint32_t n,
                      float *out)
{
    const struct cpu_conf cpu = {.round_fp16 = round, .chosen_experts = chosen};
    const struct backend_conf conf = {.threads = 2, .cpu = &cpu};
    const int64_t x_dims[] = {1, D, n, 1};
    const int64_t by_dims[] = {1, E, n, 1};
    static float x[(size_t)D * ROWS];
    static float by[(size_t)E * ROWS];
    struct backend_model *m = NULL;
    struct tensor got = {0};
    struct err e = {0};
    uint32_t seed = n;
    for (size_t i = 0; i < (size_t)D * n; i++) {
        x[i] = pkg_noise(&seed);
    }
    for (size_t i = 0; i < (size_t)E * n; i++) {
        by[i] = pkg_noise(&seed);
    }
    const struct tensor in[] = {pkg_tensor("x", 4, x_dims, x),
                                pkg_tensor("by", 4, by_dims, by)};
    unit_ok(backend_interpreter.open(k->path, NULL, &conf, &m, &e), &e);
    assert_int_equal(count(m, "experts"), chosen);
    assert_int_equal(count(m, "rank"), 0);
    got.name = m->out[0].name;
    for (int again = 0; again < 2; again++) { /* peaks are measured once */
        unit_ok(plain_predict(&backend_interpreter, m, NULL, in, 2, &got, 1, &e),
                &e);
    }
    memcpy(out, got.data, (size_t)OUT * n * sizeof(*out));
    backend_interpreter.close(m);
}

/* The chosen experts alone have the bits of all, also where what nobody chose
 * is not a number. */
static void test_chosen(void **state)
{
    (void)state;
    static const int forms[] = {ROW_OPS_FP16, ROW_OPS_INT8, ROW_OPS_LUT4};
    static float want[(size_t)OUT * ROWS];
    static float got[(size_t)OUT * ROWS];
    for (size_t i = 0; i < countof(forms) * FUSED * 2; i++) {
        enum change c = (enum change)(i / 2 % FUSED);
        bool round = i % 2 != 0;
        struct pkg k;
        make(&k, forms[i / 2 / FUSED], c);
        pkg_finish(&k);
        for (uint32_t n = 1; n <= ROWS; n = 3 * n + 1) {
            size_t none = 0;
            interpret(&k, false, round, n, want);
            interpret(&k, true, round, n, got);
            for (size_t j = 0; j < (size_t)OUT * n; j++) {
                none += isnan(want[j]) ? 1 : 0;
                if (isnan(want[j]) != isnan(got[j]) ||
                    (!isnan(want[j]) &&
                     memcmp(&want[j], &got[j], sizeof(*got)) != 0)) {
                    fail_msg("change %d, element %zu: %.9g, not %.9g", (int)c,
                             j, (double)got[j], (double)want[j]);
                }
            }
            assert_true(none == 0 || (c == LARGE && round));
            assert_true(none > 0 || n == 1 || c != LARGE || !round);
        }
        pkg_end(&k);
    }
}

/* A count of other things is none. */
static void test_rank(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct pkg k;
        struct twin t = {.bound = 0, .seed = 3};
        struct backend_conf conf = {.threads = 2};
        pkg_begin(&k);
        struct mil_value *keys = in4(&k, "x", E, -1, 1);
        struct mil_value *r = rank(&k, keys, (float)other);
        output(&k, along(&k, r));
        pkg_finish(&k);
        case_must(&t, twin_open(&t, k.path, &conf));
        assert_int_equal(count(t.rows, "rank"), 1 - other);
        case_must(&t, twin_whole(&t, 0, 40));
        twin_close(&t);
        pkg_end(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
