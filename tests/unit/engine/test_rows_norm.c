/* Row programs: RMSNorm in every form that is recognised, rotary embedding,
 * and what looks like them and is not. */
#include "row_case.h"

enum { N = 48 }; /* channels; 6 heads of 8 */

static const int32_t channels = 1;
static const int32_t last = -1;

/* --- the forms of a mean of squares --- */

enum { SQUARES = 3 }; /* x * x, x ^ 2, square(x) */

static struct mil_value *square(struct pkg *k, int form, struct mil_value *x)
{
    return form == 0   ? two(k, "mul", x, x)
           : form == 1 ? two(k, "pow", x, num(k, 2))
                       : one(k, "square", x);
}

/* 0: mean; 1: sum * 1/n; 2: 1/n * sum; 3: sum; 4: sum of squares */
static struct mil_value *mean_of(struct pkg *k, int form, int sq,
                                 struct mil_value *x, int32_t axis, float n)
{
    struct mil_value *c = num(k, 1 / n);
    struct mil_value *s = NULL;
    if (form == 4) {
        return two(k, "mul", reduce(k, "reduce_sum_square", x, axis), c);
    }
    s = reduce(k, form == 0 ? "reduce_mean" : "reduce_sum", square(k, sq, x),
               axis);
    return form == 1   ? two(k, "mul", s, c)
           : form == 2 ? two(k, "mul", c, s)
                       : s;
}

static struct mil_value *root(struct pkg *k, struct mil_value *mean, float eps,
                              bool inside)
{
    if (!inside) {
        mean = two(k, "add", mean, num(k, eps));
    }
    return mil_op(k->p, k->f, "rsqrt", "rsqrt", "x", mean, "epsilon",
                  num(k, inside ? eps : 0), NULL);
}

static void test_norm_forms(void **state)
{
    (void)state;
    for (int form = 0; form <= 4; form++) {
        for (int sq = 0; sq < SQUARES; sq++) {
            for (int variant = 0; variant < 8; variant++) {
                struct pkg k;
                pkg_begin(&k);
                struct mil_value *x = in4(&k, "x", N, -1, 1);
                struct mil_value *u =
                    (variant & 1) != 0 ? two(&k, "mul", x, num(&k, 0.25f)) : x;
                struct mil_value *s =
                    root(&k, mean_of(&k, form, sq, u, channels, N), 0.01f,
                         (variant & 2) != 0);
                u = (variant & 4) != 0 ? two(&k, "mul", s, u)
                                       : two(&k, "mul", u, s);
                output(&k, u);
                case_check(&k, "norm", CASE_REAL);
            }
        }
    }
}

static struct mil_value *norm_of(struct pkg *k, struct mil_value *x,
                                 int32_t axis)
{
    struct mil_value *m =
        mean_of(k, 0, 0, x, axis, (float)x->type.dims[axis < 0 ? 3 : axis]);
    return two(k, "mul", x, root(k, m, 0.01f, false));
}

static void test_norm_weights(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = norm_of(&k, in4(&k, "x", N, -1, 1), channels);
    output(&k, two(&k, "mul", x, noise4(&k, N, 1, 1, 1, 0.5f, 3)));
    case_check(&k, "norm", CASE_REAL);

    pkg_begin(&k); /* a factor too, on either side, and twice */
    x = norm_of(&k, in4(&k, "x", N, -1, 1), channels);
    x = two(&k, "mul", num(&k, 3), x);
    x = two(&k, "mul", noise4(&k, N, 1, 1, 1, 0.5f, 3), x);
    output(&k, two(&k, "mul", x, num(&k, -0.5f)));
    case_check(&k, "norm", CASE_REAL);

    pkg_begin(&k); /* two sets of weights: the second stays */
    x = norm_of(&k, in4(&k, "x", N, -1, 1), channels);
    x = two(&k, "mul", x, noise4(&k, N, 1, 1, 1, 0.5f, 3));
    output(&k, two(&k, "mul", x, noise4(&k, N, 1, 1, 1, 0.5f, 4)));
    case_check(&k, "norm binary", CASE_REAL);

    pkg_begin(&k); /* what is after it is read elsewhere as well */
    x = norm_of(&k, in4(&k, "x", N, -1, 1), channels);
    output(&k, two(&k, "mul", x, noise4(&k, N, 1, 1, 1, 0.5f, 3)));
    output(&k, x);
    case_check(&k, "norm binary", CASE_REAL);

    pkg_begin(&k); /* added, not multiplied */
    x = norm_of(&k, in4(&k, "x", N, -1, 1), channels);
    output(&k, two(&k, "add", x, noise4(&k, N, 1, 1, 1, 0.5f, 3)));
    case_check(&k, "norm binary", CASE_REAL);
}

static void test_norm_per_head(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k); /* weights of an element, the same for each head */
    struct mil_value *x = heads(&k, in4(&k, "x", N, -1, 1), 6, 8);
    x = two(&k, "mul", norm_of(&k, x, last), noise4(&k, 1, 1, 8, 1, 0.5f, 3));
    output(&k, unheads(&k, x, 6, 8));
    case_check(&k, "view view norm view view", CASE_REAL);

    pkg_begin(&k); /* weights of every element of every head */
    x = heads(&k, in4(&k, "x", N, -1, 1), 6, 8);
    x = two(&k, "mul", norm_of(&k, x, last), noise4(&k, 6, 1, 8, 1, 0.5f, 3));
    output(&k, unheads(&k, x, 6, 8));
    case_check(&k, "view view norm view view", CASE_REAL);

    pkg_begin(&k); /* weights of a head: not the elements' order */
    x = heads(&k, in4(&k, "x", N, -1, 1), 6, 8);
    x = two(&k, "mul", norm_of(&k, x, last), noise4(&k, 6, 1, 1, 1, 0.5f, 3));
    output(&k, unheads(&k, x, 6, 8));
    case_check(&k, "view view norm step view view", CASE_REAL);

    pkg_begin(&k); /* the same where both are 8 */
    x = heads(&k, in4(&k, "x", 64, -1, 1), 8, 8);
    x = two(&k, "mul", norm_of(&k, x, last), noise4(&k, 8, 1, 1, 1, 0.5f, 3));
    output(&k, unheads(&k, x, 8, 8));
    case_check(&k, "view view norm step view view", CASE_REAL);

    pkg_begin(&k); /* one mean over all heads, weights of an element */
    static const int32_t both[2] = {1, 3};
    x = heads(&k, in4(&k, "x", N, -1, 1), 6, 8);
    struct mil_value *m =
        reduce_over(&k, "reduce_mean", square(&k, 0, x), 2, both, true);
    x = two(&k, "mul", x, root(&k, m, 0.01f, false));
    x = two(&k, "mul", x, noise4(&k, 1, 1, 8, 1, 0.5f, 3));
    output(&k, unheads(&k, x, 6, 8));
    case_check(&k, "view view norm step view view", CASE_REAL);
}

/* u = x / max(max |x|, floor), eps = (root / max)^2 and perhaps a plain one. */
static struct mil_value *peak_norm(struct pkg *k, struct mil_value *x,
                                   int32_t axis, int32_t peak_axis, float plain)
{
    struct mil_value *top =
        reduce(k, "reduce_max", one(k, "abs", x), peak_axis);
    top = two(k, "maximum", top, num(k, 0.001f));
    struct mil_value *u = two(k, "real_div", x, top);
    struct mil_value *m = reduce(k, "reduce_mean", two(k, "mul", u, u), axis);
    struct mil_value *eps = num(k, plain);
    if (plain == 0) {
        struct mil_value *r = two(k, "real_div", num(k, 0.1f), top);
        eps = two(k, "mul", r, r);
    }
    struct mil_value *s = root(k, two(k, "add", m, eps), 0, true);
    return two(k, "mul", u, s);
}

static void test_norm_by_peak(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    output(&k, peak_norm(&k, in4(&k, "x", N, -1, 1), 1, 1, 0));
    case_check(&k, "norm", CASE_REAL);
    pkg_begin(&k); /* eps that is not divided by the peak */
    output(&k, peak_norm(&k, in4(&k, "x", N, -1, 1), 1, 1, 0.25f));
    case_check(&k, "norm", CASE_REAL);
    pkg_begin(&k); /* of each head */
    output(&k, peak_norm(&k, in4(&k, "x", 6, -1, 8), 3, 3, 0.25f));
    case_check(&k, "norm", CASE_REAL);
    pkg_begin(&k); /* the peak of one group, the mean of another */
    output(&k, peak_norm(&k, in4(&k, "x", 6, -1, 8), 3, 1, 0.25f));
    case_check(&k, "unary step binary step norm", CASE_REAL);
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 8, -1, 8);
    output(&k, peak_norm(&k, x, 1, 3, 0.25f));
    case_check(&k, "unary step binary step binary step binary unary step",
               CASE_REAL);
}

/* --- what is no norm --- */

static void test_near_norms(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k); /* over the heads, whose elements are not neighbours */
    output(&k, norm_of(&k, in4(&k, "x", 6, -1, 8), 1));
    case_check(&k, "binary step binary unary step", CASE_REAL);

    pkg_begin(&k); /* over T */
    output(&k, norm_of(&k, in4(&k, "x", 6, -1, 8), 2));
    case_check(&k, "!may mix rows", CASE_REAL);

    pkg_begin(&k); /* each head's mean, but spread over the elements */
    struct mil_value *x = in4(&k, "x", 8, -1, 8);
    struct mil_value *s = root(&k, mean_of(&k, 0, 0, x, -1, 8), 0.01f, false);
    output(&k, two(&k, "mul", x, transpose(&k, s, 0, 3, 2, 1)));
    case_check(&k, "binary step binary unary view step", CASE_REAL);

    pkg_begin(&k); /* another value's mean */
    x = in4(&k, "x", N, -1, 1);
    s = root(&k, mean_of(&k, 0, 0, one(&k, "tanh", x), 1, N), 0.01f, false);
    output(&k, two(&k, "mul", x, s));
    case_check(&k, "unary binary step binary unary step", CASE_REAL);

    pkg_begin(&k); /* a cube */
    x = in4(&k, "x", N, -1, 1);
    s = reduce(&k, "reduce_mean", two(&k, "pow", x, num(&k, 4)), 1);
    output(&k, two(&k, "mul", x, root(&k, s, 0.01f, false)));
    case_check(&k, "binary step binary unary step", CASE_REAL);

    pkg_begin(&k); /* x y, not x x */
    x = in4(&k, "x", N, -1, 1);
    s = two(&k, "mul", x, in4(&k, "y", N, -1, 1));
    s = reduce(&k, "reduce_mean", one(&k, "abs", s), 1);
    output(&k, two(&k, "mul", x, root(&k, s, 0.01f, false)));
    case_check(&k, "binary unary step binary unary step", CASE_REAL);

    pkg_begin(&k); /* the mean without its axis, put back elsewhere */
    x = in4(&k, "x", 8, -1, 8);
    s = reduce_over(&k, "reduce_mean", square(&k, 0, x), 1, &last, false);
    s = root(&k, reshape4(&k, s, 1, -1, 8), 0.01f, false);
    output(&k, two(&k, "mul", x, s));
    case_check(&k, "!may mix rows", CASE_REAL);
}

/* A norm's parts that somebody else reads. */
static void test_norm_with_readers(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", N, -1, 1);
    struct mil_value *m = mean_of(&k, 0, 0, x, channels, N);
    output(&k, two(&k, "mul", x, root(&k, m, 0.01f, false)));
    output(&k, m);
    case_check(&k, "binary step norm", CASE_REAL);
}

/* --- rope --- */

struct rope {
    int32_t heads, dim, half;
    bool split;   /* else slices */
    bool swapped; /* the factors stand the other way round */
};

static struct mil_value *times(struct pkg *k, const struct rope *r,
                               struct mil_value *a, struct mil_value *b)
{
    return r->swapped ? two(k, "mul", b, a) : two(k, "mul", a, b);
}

static struct mil_value *rope(struct pkg *k, const struct rope *r,
                              struct mil_value *x, struct mil_value *c,
                              struct mil_value *s)
{
    struct mil_value *p[2];
    struct mil_value *out[3];
    if (r->split) {
        mil_split(k->p, k->f, "split", x, 2, -1, p);
    } else {
        p[0] = slice(k, x, 3, 0, r->half);
        p[1] = slice(k, x, 3, r->half, 2 * r->half);
    }
    out[0] = two(k, "sub", times(k, r, p[0], c), times(k, r, p[1], s));
    out[1] = two(k, "add", times(k, r, p[1], c), times(k, r, p[0], s));
    if (2 * r->half < r->dim) {
        out[2] = slice(k, x, 3, 2 * r->half, r->dim);
    }
    return mil_concat(k->p, k->f, "rope", 2 * r->half < r->dim ? 3 : 2, out,
                      -1);
}

static void test_rope(void **state)
{
    (void)state;
    static const struct rope forms[] = {
        {4, 16, 8, false, false},
        {4, 16, 8, true,  false},
        {4, 16, 8, true,  true },
        {4, 16, 4, false, false}, /* the rest passes */
        {1, 16, 8, false, false}, /* then pieces are views */
        {1, 16, 8, true,  true },
        {1, 16, 6, false, true },
    };
    for (size_t i = 0; i < countof(forms); i++) {
        const struct rope *r = &forms[i];
        struct pkg k;
        pkg_begin(&k);
        struct mil_value *x = in4(&k, "x", r->heads, -1, r->dim);
        output(&k, rope(&k, r, x, in4(&k, "c", 1, -1, r->half),
                        in4(&k, "s", 1, -1, r->half)));
        case_check(&k, "rope", 1e-6f);
    }
}

/* Angles that are cut out of longer tables, as converters write them. */
static void test_rope_of_cut_tables(void **state)
{
    (void)state;
    const struct rope r = {4, 16, 8, false, false};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = heads(&k, in4(&k, "x", 64, -1, 1), 4, 16);
    struct mil_value *t = in4(&k, "t", 1, -1, 32);
    x = rope(&k, &r, x, slice(&k, t, 3, 0, 8), slice(&k, t, 3, 20, 28));
    output(&k, unheads(&k, x, 4, 16));
    case_check(&k, "view view view view rope view view", 1e-6f);

    pkg_begin(&k); /* a slice of a slice of the head */
    x = slice(&k, in4(&k, "x", 4, -1, 24), 3, 0, 16);
    output(&k, rope(&k, &r, x, in4(&k, "c", 1, -1, 8), in4(&k, "s", 1, -1, 8)));
    pkg_finish(&k);
    pkg_open(&k, &backend_cpu, 1, false);
    assert_non_null(k.m->rows);
    pkg_end(&k);
}

static void is_no_rope(struct pkg *k, struct mil_value *v)
{
    char got[512];
    output(k, v);
    pkg_finish(k);
    struct twin t = {.bound = 1e-5f, .seed = 5};
    struct backend_conf conf = {.threads = 1};
    case_must(&t, twin_open(&t, k->path, &conf));
    assert_non_null(t.rows->rows);
    case_list(t.rows->rows, got, sizeof(got));
    if (strstr(got, "rope") != NULL) {
        fail_msg("taken for a rotation: %s", got);
    }
    case_run(&t);
    twin_close(&t);
    pkg_end(k);
}

static void test_near_ropes(void **state)
{
    (void)state;
    struct mil_value *out[4];
    struct mil_value *lo = NULL;
    struct mil_value *hi = NULL;
    struct mil_value *c = NULL;
    struct mil_value *s = NULL;
    for (int i = 0; i < 7; i++) {
        struct pkg k;
        pkg_begin(&k);
        size_t n = 2;
        int64_t t = i == 5 ? 1 : -1; /* constants have no T */
        struct mil_value *x = in4(&k, "x", 8, t, 16);
        lo = slice(&k, x, 3, 0, 8);
        hi = slice(&k, x, 3, 8, 16);
        c = i == 4 ? in4(&k, "c", 8, t, 1) : in4(&k, "c", 1, t, 8);
        s = i == 4 ? in4(&k, "s", 8, t, 1) : in4(&k, "s", 1, t, 8);
        out[0] = two(&k, "sub", two(&k, "mul", lo, c), two(&k, "mul", hi, s));
        out[1] = two(&k, "add", two(&k, "mul", hi, c), two(&k, "mul", lo, s));
        if (i == 0) { /* halves the wrong way round */
            lo = out[0];
            out[0] = out[1];
            out[1] = lo;
        } else if (i == 1) { /* turned back: + and - change places */
            out[0] =
                two(&k, "add", two(&k, "mul", lo, c), two(&k, "mul", hi, s));
            out[1] =
                two(&k, "sub", two(&k, "mul", hi, c), two(&k, "mul", lo, s));
        } else if (i == 2) { /* sine and cosine mixed up in one half */
            out[1] =
                two(&k, "add", two(&k, "mul", hi, s), two(&k, "mul", lo, c));
        } else if (i == 3) { /* a difference the other way round */
            out[0] =
                two(&k, "sub", two(&k, "mul", hi, s), two(&k, "mul", lo, c));
        } else if (i == 5) { /* the rest is a constant, not the head's */
            lo = slice(&k, x, 3, 0, 6);
            hi = slice(&k, x, 3, 6, 12);
            c = slice(&k, c, 3, 0, 6);
            s = slice(&k, s, 3, 0, 6);
            out[0] =
                two(&k, "sub", two(&k, "mul", lo, c), two(&k, "mul", hi, s));
            out[1] =
                two(&k, "add", two(&k, "mul", hi, c), two(&k, "mul", lo, s));
            out[n++] = noise4(&k, 8, 1, 4, 0, 1, 3);
        } else if (i == 6) { /* halves from two values */
            hi = slice(&k, in4(&k, "y", 8, -1, 16), 3, 8, 16);
            out[0] =
                two(&k, "sub", two(&k, "mul", lo, c), two(&k, "mul", hi, s));
            out[1] =
                two(&k, "add", two(&k, "mul", hi, c), two(&k, "mul", lo, s));
        }
        is_no_rope(&k, mil_concat(k.p, k.f, "concat", n, out, -1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_forms),
        cmocka_unit_test(test_norm_weights),
        cmocka_unit_test(test_norm_per_head),
        cmocka_unit_test(test_norm_by_peak),
        cmocka_unit_test(test_near_norms),
        cmocka_unit_test(test_norm_with_readers),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_of_cut_tables),
        cmocka_unit_test(test_near_ropes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
