/* Row programs: a mixture of experts in dense form becomes one operation, for
 * weights of every form; what looks like it and is not runs as it stands. Rows
 * of several sequences at once get the bits that they get alone. */
#include "row_case.h"

enum { D = 32, WIDTH = 24, E = 5, OUT = 48 };

/* What is changed of the form. */
enum change {
    AS_IS,
    SWAPPED,     /* operands of both products */
    OTHER_INPUT, /* gate and up read different values */
    BIAS,        /* gate has a bias */
    NO_ACT,      /* nothing between gate and the product */
    CHANNELS,    /* what the gates meet: the channels of each expert */
    OVER_OUTS,   /* the sum is over each expert's results */
    SUMMED_LATE, /* between the convolution and the sum stands an operation */
};

static struct mil_value *grouped(struct pkg *k, struct mil_value *x,
                                 int32_t groups, int64_t rows, int64_t cols,
                                 int form)
{
    static const int32_t ones[] = {1, 1};
    static const int32_t zeros[] = {0, 0, 0, 0};
    struct mil_value *w = matrix(k, 4, rows, cols, form, 9);
    struct mil_value *one = mil_i32s(k->p, k->f, 2, ones);
    struct mil_value *pad = mil_i32s(k->p, k->f, 4, zeros);
    struct mil_value *valid = mil_str(k->p, k->f, "valid");
    return mil_op(k->p, k->f, "conv", "conv", "x", x, "weight", w, "strides",
                  one, "pad_type", valid, "pad", pad, "dilations", one,
                  "groups", mil_i32(k->p, k->f, groups), NULL);
}

/* Gates of which about half are zero; then the mixture of `form`. */
static void make(struct pkg *k, int form, enum change change)
{
    pkg_begin(k);
    struct mil_value *x = in4(k, "x", D, -1, 1);
    struct mil_value *by = in4(k, "by", E, -1, 1);
    struct mil_value *zero = num(k, 0);
    by = two(k, "maximum", by, zero);
    struct mil_value *a =
        conv(k, x, E * WIDTH, form, change == BIAS, 2);
    struct mil_value *in = change == OTHER_INPUT ? one(k, "abs", x) : x;
    struct mil_value *u = conv(k, in, E * WIDTH, form, false, 3);
    u = change == CHANNELS ? reshape4(k, u, WIDTH, E, -1)
                           : reshape4(k, u, E, WIDTH, -1);
    by = change == CHANNELS ? reshape4(k, by, 1, E, -1)
                            : reshape4(k, by, E, 1, -1);
    u = change == SWAPPED ? two(k, "mul", by, u) : two(k, "mul", u, by);
    u = reshape4(k, u, E * WIDTH, -1, 1);
    a = change == NO_ACT ? a : one(k, "silu", a);
    a = change == SWAPPED ? two(k, "mul", u, a) : two(k, "mul", a, u);
    a = grouped(k, a, E, E * OUT, WIDTH, form);
    a = change == SUMMED_LATE ? one(k, "abs", a) : a;
    a = change == OVER_OUTS ? reshape4(k, a, OUT, E, -1)
                            : reshape4(k, a, E, OUT, -1);
    a = reduce(k, "reduce_sum", a, 1);
    output(k, reshape4(k, a, change == OVER_OUTS ? E : OUT, -1, 1));
}

static void test_forms(void **state)
{
    (void)state;
    static const int forms[] = {ROW_OPS_FP16, ROW_OPS_INT8, ROW_OPS_INT4};
    for (size_t i = 0; i < countof(forms); i++) {
        for (int swapped = 0; swapped < 2; swapped++) {
            struct pkg k;
            make(&k, forms[i], swapped ? SWAPPED : AS_IS);
            case_check(&k, "binary view experts view",
                       row_ops_integer(forms[i]) ? CASE_INT : CASE_REAL);
        }
    }
}

/* Two tables for all rows: an expert's do not end where a table does. */
static void test_tables_across_experts(void **state)
{
    (void)state;
    struct pkg k;
    make(&k, ROW_OPS_LUT4, AS_IS);
    case_check(&k, "binary linear view view view step view glu step view step view",
               CASE_INT);
}

static void test_not_experts(void **state)
{
    (void)state;
    static const enum change changes[] = {OTHER_INPUT, BIAS,      NO_ACT,
                                          CHANNELS,    OVER_OUTS, SUMMED_LATE};
    for (size_t i = 0; i < countof(changes); i++) {
        struct pkg k;
        struct twin t = {.bound = CASE_REAL, .seed = 5};
        struct backend_conf conf = {.threads = 2};
        char got[512];
        make(&k, ROW_OPS_FP16, changes[i]);
        pkg_finish(&k);
        case_must(&t, twin_open(&t, k.path, &conf));
        case_list(t.rows->rows, got, sizeof(got));
        if (strstr(got, "experts") != NULL) {
            fail_msg("change %d: %s", (int)changes[i], got);
        }
        case_run(&t);
        twin_close(&t);
        pkg_end(&k);
    }
}

/* An input that no result depends on is named: programs that others made may
 * declare a write mask without states. */
static void test_unread_input(void **state)
{
    (void)state;
    struct pkg k;
    struct twin t = {.bound = CASE_REAL, .seed = 7};
    struct backend_conf conf = {.threads = 2};
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", D, -1, 1);
    struct mil_value *mask = in4(&k, "kv_write_mask", OUT, -1, 1);
    (void)one(&k, "abs", mask); /* and nothing reads that */
    output(&k, one(&k, "silu", x));
    pkg_finish(&k);
    case_must(&t, twin_open(&t, k.path, &conf));
    for (size_t i = 0; i < t.info.n_in; i++) {
        bool read = strcmp(t.info.in[i].name, "x") == 0;
        assert_int_equal(t.info.row_in[i].use,
                         read ? BACKEND_ROW_DATA : BACKEND_ROW_UNREAD);
    }
    case_run(&t);
    twin_close(&t);
    pkg_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_tables_across_experts),
        cmocka_unit_test(test_not_experts),
        cmocka_unit_test(test_unread_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
