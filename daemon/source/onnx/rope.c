/* rope.c - from tables of cosines and sines back to a rotation.
 *
 * Column i turns by angle p * t[i] at position p. t[i] is measured at positions
 * 1, 2, 4, ... : each measurement is off by no more than the one before
 * foretells; then all positions together, by least squares, so that tables of
 * halves give frequencies as well as they hold them. Then t[i] =
 * base^(-2i/dim) / divisor[i], with the configuration's base, or with the one
 * that makes every divisor 1. In the end every number of the tables is computed
 * and compared.
 *
 * Exporters compute p * t in fp32: an angle is off by up to 2^-24 of itself.
 */
#include "source/onnx/rope.h"

#include <math.h>

#include "base/fmath.h"

static const double pi = 3.14159265358979323846;

struct table {
    struct onnx_grid cos, sin;
    uint64_t positions;
    uint32_t half;
    double eps; /* what rounding to the table's type may change */
    double m;   /* magnitude */
    double *t;  /* half frequencies */
};

static double at(const struct onnx_grid *g, const struct table *x, uint64_t p,
                 uint32_t i)
{
    return (double)onnx_number(g, p * x->half + i);
}

/* sin of (the table's angle at p) - (angle): small when they agree. */
static double off(const struct table *x, uint64_t p, uint32_t i, double angle)
{
    double s = 0;
    double c = 0;
    fmath_sincos(angle, &s, &c);
    return (at(&x->sin, x, p, i) * c - at(&x->cos, x, p, i) * s) / x->m;
}

/* The angle at position 1, in (-pi, pi]. */
static double first_angle(const struct table *x, uint32_t i)
{
    double s = at(&x->sin, x, 1, i) / x->m;
    double c = at(&x->cos, x, 1, i) / x->m;
    double a = 0;
    if (fabs(s) <= fabs(c)) {
        a = c > 0 ? s : pi - s;
    } else {
        a = s > 0 ? pi / 2 - c : c - pi / 2;
    }
    for (unsigned k = 0; k < 4; k++) {
        double d = off(x, 1, i, a);
        a += d + d * d * d / 6;
    }
    return a;
}

static bool measure(struct table *x, uint32_t i)
{
    double t = first_angle(x, i);
    for (uint64_t p = 2; p < x->positions; p *= 2) {
        double d = off(x, p, i, (double)p * t);
        if (!(fabs(d) < 0.5)) { /* NaN too */
            return false;
        }
        t += (d + d * d * d / 6) / (double)p;
    }
    double sum = 0; /* least squares over all positions */
    double weight = 0;
    for (uint64_t p = 1; p < x->positions; p++) {
        sum += (double)p * off(x, p, i, (double)p * t);
        weight += (double)p * (double)p;
    }
    x->t[i] = t + sum / weight;
    return x->t[i] > -x->eps && x->t[i] < 3.2;
}

static int no_rotation(const struct onnx_tensor *t, const char *why,
                       struct err *e)
{
    return err_set(e, ERR_ONNX_GRAPH, "the table '%.80s' is no rotation: %s",
                   t->name[0] != '\0' ? t->name : "of an If", why);
}

static int open_table(struct onnx *m, const struct onnx_tensor *cos,
                      const struct onnx_tensor *sin, struct table *x,
                      struct err *e)
{
    *x = (struct table){
        .cos = {cos->data, cos->bytes, cos->type, 0, 0},
        .sin = {sin->data, sin->bytes, sin->type, 0, 0},
        .positions = cos->dims[0],
        .half = (uint32_t)cos->dims[1],
        .eps = cos->type == ONNX_FLOAT     ? 1e-6
               : cos->type == ONNX_FLOAT16 ? 1e-3
                                           : 8e-3};
    x->t = arena_array(&m->arena, x->half, sizeof(*x->t));
    if (x->t == NULL) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    x->m = at(&x->cos, x, 0, 0);
    if (!(x->m > 0.1 && x->m < 10)) {
        return no_rotation(cos, "the first cosine", e);
    }
    for (uint32_t i = 0; i < x->half; i++) {
        if (!measure(x, i)) {
            return no_rotation(cos, "its angles do not grow with the position",
                               e);
        }
    }
    return 0;
}

static double frequency(double base, uint32_t i, uint32_t half)
{
    return fmath_pow(base, -(double)i / (double)half);
}

/* How far a measured frequency may be from the true one, as a part of it: the
 * last angle is known to eps, or, where it is small, to as much of itself. */
static double slack(const struct table *x, double t)
{
    double far = (double)(x->positions / 2) * t;
    double tiny = 1e-7 / (far > 1e-12 ? far : 1e-12); /* below normal halves */
    return 4 * (far > 1 ? x->eps / far : x->eps) + 2e-6 +
           (x->eps > 1e-5 ? tiny : 0);
}

/* Every number against angle p * t. */
static int check_table(const struct table *x, const struct onnx_tensor *cos,
                       const double *t, struct err *e)
{
    for (uint64_t p = 0; p < x->positions; p++) {
        for (uint32_t i = 0; i < x->half; i++) {
            double angle = (double)p * t[i];
            double s = 0;
            double c = 0;
            double may = x->m * (4e-6 + x->eps + angle * 4e-7);
            fmath_sincos(angle, &s, &c);
            if (!(fabs(at(&x->cos, x, p, i) - x->m * c) <= may &&
                  fabs(at(&x->sin, x, p, i) - x->m * s) <= may)) {
                return err_set(e, ERR_ONNX_GRAPH,
                               "the table '%.80s' is no rotation: at position "
                               "%llu column %u is off by more than %g",
                               cos->name, (unsigned long long)p, i, may);
            }
        }
    }
    return 0;
}

/* The number with the fewest digits that is near enough. */
static double rounded(double v, double may)
{
    for (double unit = 1e12; unit >= 1; unit /= 10) {
        double r = floor(v / unit + 0.5) * unit;
        if (fabs(r / v - 1) <= may) {
            return r;
        }
    }
    return v;
}

/* The base for which every divisor is 1; 0: there is none. */
static double fit_base(const struct table *x)
{
    uint32_t last = x->half - 1;
    if (last == 0 || !(x->t[last] > 0)) {
        return 0;
    }
    double base = rounded(
        fmath_exp(-fmath_log(x->t[last]) * (double)x->half / (double)last),
        x->eps > 1e-5 ? 1e-3 : 1e-5);
    for (uint32_t i = 0; i < x->half; i++) {
        double t = frequency(base, i, x->half);
        if (fabs(x->t[i] / t - 1) > slack(x, t) + 1e-5) {
            return 0;
        }
    }
    return base;
}

/* Divisors of a table's frequencies. *plain: all are 1; *even: all are one. */
static int divisors(struct onnx *m, const struct table *x, double base,
                    double **ret, bool *plain, bool *even, struct err *e)
{
    double *f = arena_array(&m->arena, x->half, sizeof(*f));
    if (f == NULL) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    *plain = *even = true;
    for (uint32_t i = 0; i < x->half; i++) {
        double t = frequency(base, i, x->half);
        f[i] = x->t[i] > 0 ? t / x->t[i] : 1e30;
        *plain = *plain && fabs(f[i] - 1) <= slack(x, t);
        *even = *even && fabs(f[i] / f[0] - 1) <= 2 * slack(x, t);
    }
    *ret = f;
    return 0;
}

/* The configuration's divisors, where they are the table's. */
static int settle(const struct table *x, const struct onnx_tensor *cos,
                  double *f, const double *hint, size_t n, struct err *e)
{
    if (n == 0) {
        return 0;
    }
    if (n != x->half) {
        return err_set(e, ERR_ONNX_GRAPH,
                       "config.json has %zu divisors of frequencies, the graph "
                       "%u",
                       n, x->half);
    }
    for (uint32_t i = 0; i < x->half; i++) {
        if (!(fabs(f[i] / hint[i] - 1) <= 4 * slack(x, x->t[i]) + 1e-5)) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "config.json divides frequency %u by %g, the table "
                           "'%.80s' by %g",
                           i, hint[i], cos->name, f[i]);
        }
        f[i] = hint[i];
    }
    return 0;
}

/* Divisors of one pair of tables, checked number by number. */
static int read_pair(struct onnx *m, const struct onnx_tensor *const pair[2],
                     const struct onnx_rope_hint *h, bool is_long,
                     struct onnx_rope *r, float **ret_factors, struct err *e)
{
    const struct onnx_tensor *cos = pair[0];
    size_t n_hint = is_long ? h->n_long : h->n_short;
    struct table x;
    double *f = NULL;
    bool plain = false;
    bool even = false;
    RETERR(open_table(m, cos, pair[1], &x, e));
    r->base = r->base > 0 ? r->base : (float)fit_base(&x);
    if (!(r->base >= 1)) {
        return no_rotation(cos, "no base fits, and no config.json says one", e);
    }
    RETERR(divisors(m, &x, (double)r->base, &f, &plain, &even, e));
    if (!plain && !h->scaled && h->base > 0) {
        return no_rotation(cos, "the configuration says another base, and "
                                "nothing of divided frequencies",
                           e);
    }
    if (n_hint > 0) {
        RETERR(settle(&x, cos, f, is_long ? h->longs : h->shorts, n_hint, e));
        plain = even = false;
    }
    float *out = arena_array(&m->arena, x.half, sizeof(*out));
    if (out == NULL) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    even = even && !plain;
    for (uint32_t i = 0; i < x.half; i++) {
        double one = even ? floor(f[0] * 1e4 + 0.5) / 1e4 : 1;
        f[i] = plain || even ? one : f[i];
        out[i] = (float)f[i];
        x.t[i] = frequency((double)r->base, i, x.half) / f[i];
    }
    r->factor = even ? out[0] : 1;
    r->magnitude = (float)x.m;
    *ret_factors = plain || even ? NULL : out;
    return check_table(&x, cos, x.t, e);
}

int onnx_rope_read(struct onnx *m, const struct onnx_rotation *r,
                   const struct onnx_rope_hint *hint, struct onnx_rope *ret,
                   struct err *e)
{
    const struct onnx_tensor *const first[2] = {r->cos, r->sin};
    const struct onnx_tensor *const later[2] = {r->cos_long, r->sin_long};
    struct onnx_rope_hint h = *hint;
    bool two = r->cos_long != NULL;
    *ret = (struct onnx_rope){.dim = (uint32_t)(2 * r->cos->dims[1]),
                              .base = (float)hint->base,
                              .original = r->original,
                              .positions = r->cos->dims[0]};
    h.n_short = two ? h.n_short : 0;
    h.scaled = h.scaled || two;
    RETERR(read_pair(m, first, &h, false, ret, &ret->shorts, e));
    if (!two) {
        return 0;
    }
    float magnitude = ret->magnitude;
    float factor = ret->factor;
    RETERR(read_pair(m, later, &h, true, ret, &ret->longs, e));
    ret->positions = r->cos_long->dims[0];
    if (fabsf(ret->magnitude - magnitude) > 1e-5f || factor != 1 ||
        ret->factor != 1 || ret->shorts == NULL || ret->longs == NULL) {
        return no_rotation(r->cos_long,
                           "its short and long tables do not fit together", e);
    }
    return 0;
}
