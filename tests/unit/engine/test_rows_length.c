/* Row programs that look at shapes: what says nothing of T runs as rows, what
 * depends on how many rows there are runs as a whole, and both give the
 * interpreter's results. */
#include "row_case.h"

#define WHOLE "!depends on how many rows there are"

enum { WIDTH = 8 };

static const int32_t like_x[4] = {1, WIDTH, -1, 1};

static struct mil_value *begin(struct pkg *k)
{
    pkg_begin(k);
    return in4(k, "x", WIDTH, -1, 1);
}

static struct mil_value *i32(struct pkg *k, int32_t v)
{
    return mil_i32(k->p, k->f, v);
}

static struct mil_value *listed(struct pkg *k, struct mil_value *x)
{
    static const int32_t one_long = 1;
    return reshape(k, x, 1, &one_long);
}

/* dims, with T of x for -1. */
static struct mil_value *with_t(struct pkg *k, struct mil_value *x,
                                const int32_t *dims)
{
    struct mil_value *v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = dims[i] < 0 ? listed(k, dim_of(k, x, 2))
                           : mil_i32s(k->p, k->f, 1, &dims[i]);
    }
    return mil_concat(k->p, k->f, "dims", 4, v, 0);
}

static void check(struct pkg *k, struct mil_value *v, const char *want)
{
    output(k, v);
    case_check(k, want, 1e-6f);
}

/* --- rows --- */

static void test_widths_are_no_length(void **state)
{
    (void)state;
    static const int32_t ends[2] = {1, 3};
    struct mil_value *part[4];
    struct pkg k;
    struct mil_value *x = begin(&k); /* cut out, cast, computed with */
    struct mil_value *v = number(&k, dim_of(&k, x, 1));
    check(&k, two(&k, "mul", x, two(&k, "real_div", v, num(&k, 3))), "binary");

    x = begin(&k); /* cast first, as int16 programs do */
    v = gather(&k, number(&k, shape_of(&k, x)), i32(&k, 1), 0);
    check(&k, two(&k, "add", x, v), "binary");

    x = begin(&k);
    mil_split(k.p, k.f, "dims", shape_of(&k, x), 4, 0, part);
    v = two(&k, "mul", number(&k, part[1]), num(&k, 0.25f));
    check(&k, two(&k, "add", x, v), "binary");

    x = begin(&k); /* all but T: a slice with steps of 2 */
    v = mil_op(k.p, k.f, "slice_by_index", "odd", "x", shape_of(&k, x), "begin",
               mil_i32s(k.p, k.f, 1, &ends[0]), "end",
               mil_i32s(k.p, k.f, 1, &(int32_t){4}), "stride",
               mil_i32s(k.p, k.f, 1, &(int32_t){2}), NULL);
    v = reduce(&k, "reduce_max", number(&k, v), 0);
    check(&k, two(&k, "mul", x, v), "binary");
}

/* A range over a width has a length that inference does not know, and that T
 * does not change. */
static void test_ranges_over_widths(void **state)
{
    (void)state;
    static const int32_t last[4] = {1, 1, 1, WIDTH};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 4, -1, WIDTH);
    struct mil_value *v = range_of(&k, dim_of(&k, x, 3));
    v = reshape(&k, number(&k, v), 4, last);
    check(&k, two(&k, "mul", x, one(&k, "exp", one(&k, "abs", v))), "step");

    pkg_begin(&k); /* and its own shape */
    x = in4(&k, "x", 4, -1, WIDTH);
    v = dim_of(&k, range_of(&k, dim_of(&k, x, 3)), 0);
    check(&k, two(&k, "mul", x, number(&k, v)), "binary");
}

static void test_shapes_with_t_in_its_place(void **state)
{
    (void)state;
    static const int32_t apart[4] = {1, 2, WIDTH / 2, -1};
    static const int32_t reps[4] = {1, 1, -1, 1};
    struct pkg k;
    struct mil_value *x = begin(&k);
    struct mil_value *v =
        reshaped(&k, one(&k, "abs", x), shape_of(&k, x), like_x);
    check(&k, v, "unary view");

    x = begin(&k);
    v = reshaped(&k, transpose(&k, x, 0, 3, 1, 2), with_t(&k, x, apart), apart);
    check(&k, one(&k, "relu", v), "view view unary");

    x = begin(&k); /* rows that are all alike, and what is made of them */
    v = declared(filled(&k, shape_of(&k, x), 0.5f), like_x);
    check(&k, two(&k, "add", x, one(&k, "exp", v)), "binary");

    x = begin(&k);
    v = noise4(&k, WIDTH, 1, 1, 1, 0.5f, 3);
    v = tiled(&k, v, with_t(&k, x, reps), like_x);
    check(&k, two(&k, "sub", v, x), "binary");
}

/* --- what depends on T --- */

static void test_length_as_a_number(void **state)
{
    (void)state;
    static const char *const ops[] = {"add", "mul", "real_div", "maximum"};
    struct pkg k;
    for (size_t i = 0; i < countof(ops); i++) {
        struct mil_value *x = begin(&k);
        struct mil_value *t = number(&k, dim_of(&k, x, 2));
        check(&k, two(&k, ops[i], x, t), WHOLE);
    }
    struct mil_value *x = begin(&k); /* through the shape of what has T's */
    struct mil_value *v = filled(&k, shape_of(&k, x), 1);
    v = number(&k, dim_of(&k, declared(v, like_x), 2));
    check(&k, two(&k, "mul", x, v), WHOLE);

    static const int32_t all[4] = {0, 1, 2, 3};
    x = begin(&k); /* counted: a sum over rows that are all alike */
    v = declared(filled(&k, shape_of(&k, x), 1), like_x);
    v = reduce_over(&k, "reduce_sum", v, 4, all, false);
    check(&k, two(&k, "mul", x, v), WHOLE);

    x = begin(&k);
    v = declared(filled(&k, shape_of(&k, x), 1), like_x);
    v = mil_op(k.p, k.f, "non_zero", "nonzero", "x", v, NULL);
    v = number(&k, gather(&k, shape_of(&k, v), i32(&k, 0), 0));
    check(&k, two(&k, "add", x, v), WHOLE);

    x = begin(&k); /* equal at T = 1, 2 and 3: min(T, 3) */
    v = two(&k, "minimum", dim_of(&k, x, 2), i32(&k, 3));
    v = two(&k, "greater", v, i32(&k, 2));
    v = mil_op(k.p, k.f, "select", "select", "cond", v, "a", x, "b",
               one(&k, "exp", x), NULL);
    check(&k, v, WHOLE);
}

static void test_places_among_rows(void **state)
{
    (void)state;
    static const int32_t flat[4] = {1, 1, -1, 1};
    static const int64_t table[2] = {16, WIDTH};
    static const int32_t apart[4] = {1, -1, WIDTH, 1};
    struct pkg k;
    struct mil_value *x = begin(&k);
    struct mil_value *v = range_of(&k, dim_of(&k, x, 2));
    v = reshape(&k, number(&k, v), 4, flat);
    check(&k, two(&k, "add", x, v), WHOLE);

    x = begin(&k); /* a table of positions */
    v = gather(&k, noise(&k, 2, table, 0, 1, 5), range_of(&k, dim_of(&k, x, 2)),
               0);
    v = transpose(&k, reshape(&k, v, 4, apart), 0, 2, 1, 3);
    check(&k, two(&k, "add", x, v), WHOLE);

    x = begin(&k); /* running sums of what is the same everywhere */
    v = declared(filled(&k, shape_of(&k, x), 0.5f), like_x);
    v = mil_op(k.p, k.f, "cumsum", "cumsum", "x", v, "axis", i32(&k, 2),
               "exclusive", mil_bool(k.p, k.f, false), "reverse",
               mil_bool(k.p, k.f, false), NULL);
    check(&k, two(&k, "mul", x, v), WHOLE);

    x = begin(&k); /* a triangle */
    v = dim_of(&k, x, 2);
    struct mil_value *square[2] = {listed(&k, v), listed(&k, v)};
    v = filled(&k, mil_concat(k.p, k.f, "dims", 2, square, 0), 1);
    v = mil_op(k.p, k.f, "band_part", "band", "x", v, "lower", i32(&k, -1),
               "upper", i32(&k, 0), NULL);
    v = reshape(&k, reduce(&k, "reduce_sum", v, 1), 4, flat);
    check(&k, two(&k, "real_div", x, v), WHOLE);
}

/* Elements [from, to) of a list, each of which may count from the end. */
static struct mil_value *cut(struct pkg *k, struct mil_value *x, int32_t from,
                             int32_t to)
{
    return mil_op(k->p, k->f, "slice_by_index", "cut", "x", x, "begin",
                  mil_i32s(k->p, k->f, 1, &from), "end",
                  mil_i32s(k->p, k->f, 1, &to), NULL);
}

/* What stands where is not the same in a list of T. */
static void test_lists_of_t(void **state)
{
    (void)state;
    static const int32_t five[1] = {5};
    struct pkg k;
    struct mil_value *x = begin(&k); /* of one row: 5 */
    struct mil_value *list[2] = {mil_i32s(k.p, k.f, 1, five),
                                 range_of(&k, dim_of(&k, x, 2))};
    struct mil_value *v =
        cut(&k, mil_concat(k.p, k.f, "list", 2, list, 0), -2, -1);
    check(&k, two(&k, "add", x, number(&k, reshape(&k, v, 0, NULL))), WHOLE);

    x = begin(&k); /* T itself is one element: 5 stands before it */
    list[0] = mil_i32s(k.p, k.f, 1, five);
    list[1] = listed(&k, dim_of(&k, x, 2));
    v = cut(&k, mil_concat(k.p, k.f, "list", 2, list, 0), -2, -1);
    check(&k, two(&k, "add", x, number(&k, reshape(&k, v, 0, NULL))),
          "binary");
}

/* T says which channel is read. */
static void test_length_as_an_index(void **state)
{
    (void)state;
    static const int32_t size[4] = {1, 2, -1, 1};
    struct pkg k;
    struct mil_value *x = begin(&k);
    struct mil_value *v = listed(&k, dim_of(&k, x, 2));
    check(&k, two(&k, "sub", x, gather(&k, x, v, 1)), WHOLE);

    x = begin(&k);
    v = listed(&k, dim_of(&k, x, 2));
    struct mil_value *zero = mil_i32s(k.p, k.f, 1, &(int32_t){0});
    struct mil_value *from[4] = {zero, v, zero, zero};
    v = mil_op(k.p, k.f, "slice_by_size", "slice", "x", x, "begin",
               mil_concat(k.p, k.f, "begin", 4, from, 0), "size",
               mil_i32s(k.p, k.f, 4, size), NULL);
    check(&k, one(&k, "relu", v), WHOLE);
}

/* The declared shape has T where the computed one has not: with one channel
 * both are the same of one row. */
static void test_declared_otherwise(void **state)
{
    (void)state;
    static const int32_t said[4] = {1, 1, -1, WIDTH};
    static const int32_t meant[4] = {1, -1, 1, WIDTH};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 1, -1, WIDTH);
    struct mil_value *v = reshaped(&k, x, with_t(&k, x, meant), said);
    output(&k, softmax(&k, v, 1));
    pkg_finish(&k);
    pkg_open(&k, &backend_cpu, 1, false);
    assert_null(k.m->rows);
    assert_non_null(strstr(k.m->why_not_rows, &WHOLE[1]));
    pkg_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths_are_no_length),
        cmocka_unit_test(test_ranges_over_widths),
        cmocka_unit_test(test_shapes_with_t_in_its_place),
        cmocka_unit_test(test_length_as_a_number),
        cmocka_unit_test(test_places_among_rows),
        cmocka_unit_test(test_lists_of_t),
        cmocka_unit_test(test_length_as_an_index),
        cmocka_unit_test(test_declared_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
