/* Row programs: what the short passes recognise and what they must not, op by
 * op beside the interpreter. Norms, rotations and states have files of their
 * own. */
#include "row_case.h"

/* --- views --- */

static void test_views(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k); /* heads apart and joined again: nothing moves */
    struct mil_value *x = heads(&k, in4(&k, "x", 32, -1, 1), 4, 8);
    output(&k, unheads(&k, one(&k, "relu", x), 4, 8));
    case_check(&k, "view view unary view view", 0);

    pkg_begin(&k); /* neighbouring channels */
    x = in4(&k, "x", 32, -1, 1);
    output(&k, one(&k, "relu", slice(&k, x, 1, 8, 20)));
    case_check(&k, "view unary", 0);

    pkg_begin(&k); /* a split into neighbours, all of them read */
    struct mil_value *part[2];
    x = in4(&k, "x", 32, -1, 1);
    mil_split(k.p, k.f, "split", x, 2, 1, part);
    output(&k, two(&k, "sub", part[1], part[0]));
    case_check(&k, "view binary", 0);

    pkg_begin(&k); /* a slice of a slice */
    x = slice(&k, slice(&k, in4(&k, "x", 32, -1, 1), 1, 4, 30), 1, 3, 9);
    output(&k, one(&k, "abs", x));
    case_check(&k, "view view unary", 0);

    pkg_begin(&k); /* outputs that are views, and one value under two */
    x = in4(&k, "x", 32, -1, 1);
    struct mil_value *y = one(&k, "relu", x);
    output(&k, slice(&k, y, 1, 3, 5));
    output(&k, y);
    case_check(&k, "unary view", 0);
}

static void test_what_moves_is_no_view(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k); /* heads and their elements change places */
    struct mil_value *x = in4(&k, "x", 4, -1, 8);
    output(&k, transpose(&k, x, 0, 3, 2, 1));
    case_check(&k, "step", 0);

    pkg_begin(&k); /* a piece of every head */
    x = in4(&k, "x", 4, -1, 8);
    output(&k, one(&k, "relu", slice(&k, x, 3, 2, 5)));
    case_check(&k, "step unary", 0);

    pkg_begin(&k);
    struct mil_value *part[2];
    x = in4(&k, "x", 4, -1, 8);
    mil_split(k.p, k.f, "split", x, 2, 3, part);
    output(&k, two(&k, "sub", part[1], part[0]));
    case_check(&k, "step binary", 0);

    pkg_begin(&k); /* every second channel */
    static const int32_t begin[4] = {0, 1, 0, 0};
    static const int32_t end[4] = {0, 8, 0, 0};
    static const int32_t stride[4] = {1, 2, 1, 1};
    static const bool all[4] = {true, false, true, true};
    static const bool none[4] = {false, false, false, false};
    x = in4(&k, "x", 8, -1, 1);
    x = mil_op(k.p, k.f, "slice_by_index", "slice", "x", x, "begin",
               mil_i32s(k.p, k.f, 4, begin), "end", mil_i32s(k.p, k.f, 4, end),
               "stride", mil_i32s(k.p, k.f, 4, stride), "begin_mask",
               mil_bools(k.p, k.f, 4, all), "end_mask",
               mil_bools(k.p, k.f, 4, all), "squeeze_mask",
               mil_bools(k.p, k.f, 4, none), NULL);
    output(&k, one(&k, "relu", x));
    case_check(&k, "step unary", 0);
}

/* --- products --- */

static void test_linear(void **state)
{
    (void)state;
    for (int form = ROW_OPS_FP16; form <= ROW_OPS_LUT6; form++) {
        float bound = form == ROW_OPS_FP16 ? CASE_REAL : CASE_INT;
        for (int bias = 0; bias < 2; bias++) {
            struct pkg k;
            pkg_begin(&k);
            struct mil_value *x = in4(&k, "x", 96, -1, 1);
            output(&k, conv(&k, x, 40, form, bias != 0, 3));
            case_check(&k, "linear", bound);
            pkg_begin(&k);
            x = in3(&k, "x", -1, 96);
            output(&k, dense(&k, x, 40, form, 3));
            case_check(&k, "linear", bound);
        }
    }
}

static struct mil_value *conv_form(struct pkg *k, struct mil_value *x,
                                   struct mil_value *w, const int32_t *strides,
                                   const int32_t *pad, int32_t groups)
{
    static const int32_t ones[2] = {1, 1};
    return mil_op(k->p, k->f, "conv", "conv", "x", x, "weight", w, "strides",
                  mil_i32s(k->p, k->f, 2, strides), "pad_type",
                  mil_str(k->p, k->f, "custom"), "pad",
                  mil_i32s(k->p, k->f, 4, pad), "dilations",
                  mil_i32s(k->p, k->f, 2, ones), "groups",
                  mil_i32(k->p, k->f, groups), NULL);
}

static void test_what_is_no_linear(void **state)
{
    (void)state;
    static const int32_t ones[2] = {1, 1};
    static const int32_t two_wide[2] = {1, 2};
    static const int32_t two_long[2] = {2, 1};
    static const int32_t zeros[4] = {0, 0, 0, 0};
    static const int32_t left[4] = {0, 0, 1, 0};
    static const int32_t above[4] = {2, 0, 0, 0};
    static const int64_t three[4] = {16, 8, 3, 1};
    struct pkg k;
    pkg_begin(&k); /* groups */
    struct mil_value *x = in4(&k, "x", 16, -1, 1);
    output(&k, conv_form(&k, x, matrix(&k, 4, 16, 8, 0, 3), ones, zeros, 2));
    case_check(&k, "step", CASE_REAL);

    pkg_begin(&k); /* several columns beside T */
    x = in4(&k, "x", 8, -1, 3);
    output(&k, conv_form(&k, x, matrix(&k, 4, 16, 8, 0, 3), ones, zeros, 1));
    case_check(&k, "step", CASE_REAL);

    pkg_begin(&k); /* all that is seen is the padding */
    x = in4(&k, "x", 8, -1, 1);
    output(&k, conv_form(&k, x, matrix(&k, 4, 16, 8, 0, 3), two_wide, left, 1));
    case_check(&k, "step", CASE_REAL);

    pkg_begin(&k); /* neighbours along T */
    x = in4(&k, "x", 8, -1, 1);
    output(&k, conv_form(&k, x, noise(&k, 4, three, 0, 1, 3), ones, above, 1));
    case_check(&k, "!may mix rows", CASE_REAL);

    pkg_begin(&k); /* every second row */
    x = in4(&k, "x", 8, -1, 1);
    output(&k,
           conv_form(&k, x, matrix(&k, 4, 16, 8, 0, 3), two_long, zeros, 1));
    case_check(&k, "!", CASE_REAL);

    pkg_begin(&k); /* heads share a matrix */
    static const int64_t heads3[3] = {4, -1, 8};
    x = mil_add_input(k.p, k.f, "x", MIL_FP16, 3, heads3, 1, 64);
    output(&k, dense(&k, x, 6, ROW_OPS_FP16, 3));
    case_check(&k, "step", CASE_REAL);
}

static void test_products_of_one_input_are_shared(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = one(&k, "relu", in4(&k, "x", 64, -1, 1));
    struct mil_value *a = conv(&k, x, 24, ROW_OPS_INT8, true, 3);
    struct mil_value *b = conv(&k, x, 40, ROW_OPS_INT8, false, 4);
    struct mil_value *c = conv(&k, x, 24, ROW_OPS_INT4, true, 5);
    b = slice(&k, b, 1, 0, 24);
    output(&k, two(&k, "sub", two(&k, "mul", a, c), b));
    case_check(&k, "unary linear view view binary binary", CASE_INT);

    pkg_begin(&k); /* not when one is an output: its place is the caller's */
    x = one(&k, "relu", in4(&k, "x", 64, -1, 1));
    a = conv(&k, x, 24, ROW_OPS_INT8, true, 3);
    output(&k, a);
    output(&k, one(&k, "abs", conv(&k, x, 40, ROW_OPS_INT8, false, 4)));
    case_check(&k, "unary linear linear unary", CASE_INT);

    pkg_begin(&k); /* nor of another input, or in other arithmetic */
    x = in4(&k, "x", 64, -1, 1);
    a = conv(&k, one(&k, "relu", x), 24, ROW_OPS_INT8, true, 3);
    b = conv(&k, x, 24, ROW_OPS_INT8, false, 4);
    c = conv(&k, x, 24, ROW_OPS_FP16, false, 5);
    output(&k, two(&k, "add", a, two(&k, "sub", b, c)));
    case_check(&k, "unary linear linear linear binary binary", CASE_INT);
}

/* More products of one input than a set holds. */
static void test_many_products(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = one(&k, "relu", in4(&k, "x", 64, -1, 1));
    struct mil_value *v[11];
    for (uint32_t i = 0; i < 11; i++) {
        v[i] = conv(&k, x, 8, ROW_OPS_INT8, i % 2 == 0, i);
    }
    for (uint32_t i = 1; i < 11; i++) {
        v[0] = two(&k, i % 2 == 0 ? "add" : "sub", v[0], v[i]);
    }
    output(&k, v[0]);
    case_check(&k,
               "unary linear view linear view binary binary binary binary "
               "binary binary binary binary binary binary",
               CASE_INT);
}

/* --- elementwise --- */

static void test_elementwise(void **state)
{
    (void)state;
    static const char *const binary[] = {"add",     "sub",     "mul",
                                         "maximum", "minimum", "real_div"};
    static const char *const unary[] = {"relu", "tanh", "sigmoid", "silu",
                                        "gelu", "exp",  "abs",     "square"};
    for (size_t i = 0; i < countof(binary); i++) {
        for (int side = 0; side < 4; side++) { /* scalar, vector, left, both */
            struct pkg k;
            pkg_begin(&k);
            struct mil_value *x = in4(&k, "x", 24, -1, 1);
            struct mil_value *c =
                side == 0 ? num(&k, 1.5f) : noise4(&k, 24, 1, 1, 2, 0.5f, 9);
            if (side == 3) {
                c = two(&k, "add", in4(&k, "y", 24, -1, 1), num(&k, 3));
            }
            output(&k, side == 2 ? two(&k, binary[i], c, x)
                                 : two(&k, binary[i], x, c));
            bool div = i == 5 && side == 2; /* by noise: as it comes */
            case_check(&k, side == 3 ? "binary binary" : "binary",
                       div ? 1e-4f : 1e-6f);
        }
    }
    for (size_t i = 0; i < countof(unary); i++) {
        struct pkg k;
        pkg_begin(&k);
        output(&k, one(&k, unary[i], in4(&k, "x", 24, -1, 1)));
        case_check(&k, "unary", 1e-6f);
    }
}

/* A constant of some axes only is spread by the plain step. */
static void test_spread_constants(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k); /* of each head */
    struct mil_value *x = in4(&k, "x", 4, -1, 8);
    output(&k, two(&k, "mul", x, noise4(&k, 4, 1, 1, 1, 0.5f, 9)));
    case_check(&k, "step", 0);
    pkg_begin(&k); /* of each element of a head */
    x = in4(&k, "x", 4, -1, 8);
    output(&k, two(&k, "mul", x, noise4(&k, 1, 1, 8, 1, 0.5f, 9)));
    case_check(&k, "step", 0);
    pkg_begin(&k); /* a row that is spread over heads */
    x = in4(&k, "x", 4, -1, 8);
    output(&k, two(&k, "mul", x, in4(&k, "y", 1, -1, 8)));
    case_check(&k, "step", 0);
    pkg_begin(&k); /* a constant of positions: T is 4, or nothing works */
    x = in4(&k, "x", 8, -1, 1);
    output(&k, two(&k, "mul", x, noise4(&k, 1, 4, 1, 1, 0.5f, 9)));
    pkg_finish(&k);
    pkg_open(&k, &backend_cpu, 1, false);
    assert_null(k.m->rows);
    pkg_end(&k);
}

static void test_glu(void **state)
{
    (void)state;
    static const char *const f[] = {"silu", "gelu", "sigmoid", "relu", "tanh"};
    struct pkg k;
    for (size_t i = 0; i < countof(f); i++) {
        for (int side = 0; side < 2; side++) {
            pkg_begin(&k);
            struct mil_value *a = one(&k, f[i], in4(&k, "x", 24, -1, 1));
            struct mil_value *b = in4(&k, "y", 24, -1, 1);
            output(&k, side == 0 ? two(&k, "mul", a, b) : two(&k, "mul", b, a));
            case_check(&k, "glu", 1e-6f);
        }
    }
    pkg_begin(&k); /* x * sigmoid(x), times up */
    struct mil_value *x = in4(&k, "x", 24, -1, 1);
    struct mil_value *y = two(&k, "mul", x, one(&k, "sigmoid", x));
    output(&k, two(&k, "mul", y, in4(&k, "y", 24, -1, 1)));
    case_check(&k, "glu binary", 1e-6f);

    pkg_begin(&k); /* f(x) is read elsewhere too */
    x = one(&k, "silu", in4(&k, "x", 24, -1, 1));
    output(&k, two(&k, "mul", x, in4(&k, "y", 24, -1, 1)));
    output(&k, two(&k, "add", x, num(&k, 1)));
    case_check(&k, "unary binary binary", 1e-6f);

    pkg_begin(&k); /* f(x) is an output too */
    x = one(&k, "silu", in4(&k, "x", 24, -1, 1));
    output(&k, x);
    output(&k, two(&k, "mul", x, in4(&k, "y", 24, -1, 1)));
    case_check(&k, "unary binary", 1e-6f);

    pkg_begin(&k); /* not a product */
    x = one(&k, "silu", in4(&k, "x", 24, -1, 1));
    output(&k, two(&k, "add", x, in4(&k, "y", 24, -1, 1)));
    case_check(&k, "unary binary", 1e-6f);
}

static void test_dead_ops_are_gone(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 24, -1, 1);
    (void)conv(&k, one(&k, "exp", x), 8, ROW_OPS_FP16, false, 1);
    output(&k, one(&k, "relu", x));
    case_check(&k, "unary", 0);
}

/* --- what mixes rows --- */

static void whole(struct pkg *k, struct mil_value *v, const char *why)
{
    output(k, v);
    case_check(k, why, CASE_REAL);
}

static void test_mixed_rows(void **state)
{
    (void)state;
    static const int32_t flat[4] = {1, 8, -1, 2};
    struct mil_value *v[2];
    struct pkg k;
    pkg_begin(&k); /* T and channels joined and taken apart otherwise */
    whole(&k, reshape(&k, in4(&k, "x", 16, -1, 1), 4, flat), "!may mix rows");
    pkg_begin(&k);
    whole(&k, softmax(&k, in4(&k, "x", 8, -1, 1), 2), "!may mix rows");
    pkg_begin(&k); /* the same axis counted from the end */
    whole(&k, softmax(&k, in4(&k, "x", 8, -1, 1), -2), "!may mix rows");
    pkg_begin(&k);
    v[0] = in4(&k, "x", 8, -1, 1);
    v[1] = reduce(&k, "reduce_max", v[0], 2);
    whole(&k, two(&k, "sub", v[0], v[1]), "!may mix rows");
    pkg_begin(&k);
    v[0] = in4(&k, "x", 8, -1, 1);
    v[1] = one(&k, "abs", v[0]);
    whole(&k, mil_concat(k.p, k.f, "concat", 2, v, 2), "!may mix rows");
    pkg_begin(&k); /* rows times rows */
    v[0] = in4(&k, "x", 4, -1, 8);
    v[1] = matmul(&k, v[0], v[0], false, true);
    whole(&k, matmul(&k, v[1], v[0], false, false), "!");
    pkg_begin(&k); /* a sum over T in a product */
    v[0] = in4(&k, "x", 4, -1, 8);
    v[1] = matmul(&k, v[0], v[0], true, false);
    whole(&k, matmul(&k, v[0], v[1], false, false), "!may mix rows");
    pkg_begin(&k); /* turned around */
    v[0] = in4(&k, "x", 8, -1, 1);
    static const int32_t at = 2;
    whole(&k,
          mil_op(k.p, k.f, "reverse", "reverse", "x", v[0], "axes",
                 mil_i32s(k.p, k.f, 1, &at), NULL),
          "!may mix rows");
    pkg_begin(&k);
    v[0] = in4(&k, "x", 8, -1, 1);
    whole(&k,
          mil_op(k.p, k.f, "cumsum", "cumsum", "x", v[0], "axis",
                 mil_i32(k.p, k.f, 2), "exclusive", mil_bool(k.p, k.f, false),
                 "reverse", mil_bool(k.p, k.f, false), NULL),
          "!may mix rows");
    pkg_begin(&k);
    whole(&k, reduce(&k, "reduce_sum", in4(&k, "x", 8, -1, 1), 2),
          "!an output does not depend on T");
}

/* T on two axes that meet: x is of T rows, y of T columns. */
static void test_t_on_two_axes(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 1, -1, 4);
    struct mil_value *y = transpose(&k, x, 0, 2, 1, 3);
    whole(&k, two(&k, "add", x, y), "!");
    pkg_begin(&k); /* T meets an axis of 4: right for T = 1 and 4 alone */
    x = in4(&k, "x", 4, -1, 8);
    y = transpose(&k, in4(&k, "y", 1, -1, 8), 0, 2, 1, 3);
    whole(&k, two(&k, "add", x, y), "!");
}

/* Row-wise operations that have no form of their own. */
static void test_plain_steps(void **state)
{
    (void)state;
    struct mil_value *v[2];
    struct pkg k;
    pkg_begin(&k);
    output(&k, softmax(&k, in4(&k, "x", 8, -1, 4), 1));
    case_check(&k, "step", 1e-6f);
    pkg_begin(&k);
    v[0] = in4(&k, "x", 8, -1, 4);
    v[1] = one(&k, "exp", v[0]);
    output(&k, mil_concat(k.p, k.f, "concat", 2, v, 3));
    case_check(&k, "unary step", 1e-6f);
    pkg_begin(&k); /* through a condition, which is no float */
    v[0] = in4(&k, "x", 8, -1, 4);
    v[1] = two(&k, "greater", v[0], num(&k, 0.25f));
    output(&k, mil_op(k.p, k.f, "select", "select", "cond", v[1], "a", v[0],
                      "b", noise4(&k, 8, 1, 4, 0, 1, 3), NULL));
    case_check(&k, "step step", 0);
    pkg_begin(&k);
    v[0] = in4(&k, "x", 4, -1, 8);
    static const int64_t dims[4] = {1, 4, 8, 5};
    output(&k, matmul(&k, v[0], noise(&k, 4, dims, 0, 1, 3), false, false));
    case_check(&k, "step", CASE_REAL);
}

/* A fixed shape is a row of its own. */
static void test_fixed_shapes(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 32, 1, 1);
    output(&k, conv(&k, one(&k, "silu", x), 8, ROW_OPS_INT8, true, 2));
    case_check(&k, "unary linear", CASE_INT);
    pkg_begin(&k); /* four positions: one row of 4 times as much */
    x = softmax(&k, in4(&k, "x", 8, 4, 1), 2);
    output(&k, conv(&k, x, 8, ROW_OPS_INT8, true, 2));
    case_check(&k, "step step", CASE_INT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_what_moves_is_no_view),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_what_is_no_linear),
        cmocka_unit_test(test_products_of_one_input_are_shared),
        cmocka_unit_test(test_many_products),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_spread_constants),
        cmocka_unit_test(test_glu),
        cmocka_unit_test(test_dead_ops_are_gone),
        cmocka_unit_test(test_mixed_rows),
        cmocka_unit_test(test_t_on_two_axes),
        cmocka_unit_test(test_plain_steps),
        cmocka_unit_test(test_fixed_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
