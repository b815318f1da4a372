/* Two operands with numpy's broadcasting, select, and cast.
 *
 * The shapes are folded at prep time: neighbouring axes over which both
 * operands advance (or stand still) alike become one, so that most operations
 * are one or two loops. In the innermost axis an operand advances by one
 * element or stands still; the loop is a plain one per operation and case, for
 * the compiler to vectorise. */
#include <string.h>

#include "base/fmath.h"
#include "base/half.h"
#include "engine/cpu/ops/ops.h"

struct binary_params {
    int n; /* folded axes; the last is the inner loop */
    size_t dims[MIL_RANK_MAX];
    size_t sa[MIL_RANK_MAX], sb[MIL_RANK_MAX], sc[MIL_RANK_MAX];
};

/* Element strides of v spread over the result's axes, 0 where it repeats. */
static void spread(const struct val *v, int rank, size_t *out)
{
    int64_t own[MIL_RANK_MAX];
    val_strides(v, own);
    for (int i = 0; i < rank; i++) {
        int k = v->rank - rank + i;
        out[i] = k < 0 || v->dims[k] == 1 ? 0 : (size_t)own[k];
    }
}

/* c may be NULL. */
static void fold(struct binary_params *u, const struct val *o,
                 const struct val *a, const struct val *b, const struct val *c)
{
    size_t sa[MIL_RANK_MAX];
    size_t sb[MIL_RANK_MAX];
    size_t sc[MIL_RANK_MAX] = {0};
    spread(a, o->rank, sa);
    spread(b, o->rank, sb);
    if (c != NULL) {
        spread(c, o->rank, sc);
    }
    u->n = 0;
    for (int i = 0; i < o->rank; i++) {
        size_t d = (size_t)o->dims[i];
        if (d == 1) {
            continue;
        }
        int k = u->n - 1;
        if (k >= 0 && u->sa[k] == sa[i] * d && u->sb[k] == sb[i] * d &&
            u->sc[k] == sc[i] * d) {
            u->dims[k] *= d;
        } else {
            k = u->n++;
            u->dims[k] = d;
        }
        u->sa[k] = sa[i];
        u->sb[k] = sb[i];
        u->sc[k] = sc[i];
    }
    if (u->n == 0) {
        u->n = 1;
        u->dims[0] = o->n;
    }
}

static bool is_compare(int sub)
{
    return sub >= BIN_GREATER && sub <= BIN_NOT_EQUAL;
}

static bool is_logical(int sub)
{
    return sub >= BIN_AND;
}

int binary_prep(struct step *s, struct err *e)
{
    const struct val *a = step_in(s, 0);
    const struct val *b = step_in(s, 1);
    struct val *o = step_out(s, 0);
    int sub = s->node->def->sub;
    int rank = 0;
    int64_t dims[MIL_RANK_MAX];
    if (a->kind != b->kind ||
        (is_logical(sub) ? a->kind != VAL_BOOL
                         : a->kind != VAL_F32 && a->kind != VAL_I32 &&
                               !(is_compare(sub) && a->kind == VAL_BOOL))) {
        return err_set(e, ERR_MIL_INVALID, "the operands' types do not fit");
    }
    RETERR(val_broadcast(a, b, &rank, dims, e));
    RETERR(val_set(o, is_compare(sub) ? VAL_BOOL : a->kind, rank, dims, e));
    struct binary_params *u = step_alloc(s, sizeof(*u));
    fold(u, o, a, b, NULL);
    s->u = u;
    return 0;
}

/* --- inner loops --- */

#define LOOPS(T, O, expr)                    \
    do {                                     \
        const T *pa_ = a;                    \
        const T *pb_ = b;                    \
        O *po_ = o;                          \
        if (sa != 0 && sb != 0) {            \
            for (size_t i = 0; i < n; i++) { \
                T x = pa_[i];                \
                T y = pb_[i];                \
                po_[i] = (expr);             \
            }                                \
        } else if (sa != 0) {                \
            T y = pb_[0];                    \
            for (size_t i = 0; i < n; i++) { \
                T x = pa_[i];                \
                po_[i] = (expr);             \
            }                                \
        } else {                             \
            T x = pa_[0];                    \
            for (size_t i = 0; i < n; i++) { \
                T y = pb_[i];                \
                po_[i] = (expr);             \
            }                                \
        }                                    \
    } while (0);                             \
    break

/* Exact special cases first: norms square by pow(x, 2). */
static float power(float x, float y)
{
    return y == 2.0f ? x * x : y == 0.5f ? sqrtf(x) : fmath_powf(x, y);
}

static float floor_mod(float x, float y)
{
    float r = fmodf(x, y);
    return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r;
}

static void float_row(int sub, float *o, const float *a, size_t sa,
                      const float *b, size_t sb, size_t n)
{
    switch (sub) {
    case BIN_ADD:
        LOOPS(float, float, x + y);
    case BIN_SUB:
        LOOPS(float, float, x - y);
    case BIN_MUL:
        LOOPS(float, float, x *y);
    case BIN_DIV:
        LOOPS(float, float, x / y);
    case BIN_MAX:
        LOOPS(float, float, x > y ? x : y);
    case BIN_MIN:
        LOOPS(float, float, x < y ? x : y);
    case BIN_POW:
        LOOPS(float, float, power(x, y));
    case BIN_FLOOR_DIV:
        LOOPS(float, float, floorf(x / y));
    case BIN_MOD:
        LOOPS(float, float, floor_mod(x, y));
    default:
        must(sub < 0);
    }
}

void binary_floats(int sub, float *o, const float *a, size_t sa, const float *b,
                   size_t sb, size_t n)
{
    float_row(sub, o, a, sa, b, sb, n);
}

static int32_t int_div(int32_t x, int32_t y)
{
    if (y == 0) {
        return 0;
    }
    return y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}

static int32_t int_floor_div(int32_t x, int32_t y)
{
    int32_t q = int_div(x, y);
    bool exact = y == 0 || y == -1 || x % y == 0;
    return !exact && (x < 0) != (y < 0) ? q - 1 : q;
}

static int32_t int_mod(int32_t x, int32_t y)
{
    uint32_t q = (uint32_t)int_floor_div(x, y);
    return y == 0 ? 0 : (int32_t)((uint32_t)x - q * (uint32_t)y);
}

static int32_t int_pow(int32_t x, int32_t y)
{
    uint32_t r = 1;
    uint32_t b = (uint32_t)x;
    if (y < 0) {
        return x == 1 ? 1 : x == -1 ? (y % 2 != 0 ? -1 : 1) : 0;
    }
    for (uint32_t k = (uint32_t)y; k != 0; k >>= 1) {
        r = (k & 1) != 0 ? r * b : r;
        b *= b;
    }
    return (int32_t)r;
}

/* Two's complement wraps; division by zero gives 0. */
static void int_row(int sub, int32_t *o, const int32_t *a, size_t sa,
                    const int32_t *b, size_t sb, size_t n)
{
    switch (sub) {
    case BIN_ADD:
        LOOPS(int32_t, int32_t, (int32_t)((uint32_t)x + (uint32_t)y));
    case BIN_SUB:
        LOOPS(int32_t, int32_t, (int32_t)((uint32_t)x - (uint32_t)y));
    case BIN_MUL:
        LOOPS(int32_t, int32_t, (int32_t)((uint32_t)x * (uint32_t)y));
    case BIN_DIV:
        LOOPS(int32_t, int32_t, int_div(x, y));
    case BIN_MAX:
        LOOPS(int32_t, int32_t, x > y ? x : y);
    case BIN_MIN:
        LOOPS(int32_t, int32_t, x < y ? x : y);
    case BIN_POW:
        LOOPS(int32_t, int32_t, int_pow(x, y));
    case BIN_FLOOR_DIV:
        LOOPS(int32_t, int32_t, int_floor_div(x, y));
    case BIN_MOD:
        LOOPS(int32_t, int32_t, int_mod(x, y));
    case BIN_AND:
        LOOPS(int32_t, int32_t, (x != 0) & (y != 0));
    case BIN_OR:
        LOOPS(int32_t, int32_t, (x != 0) | (y != 0));
    case BIN_XOR:
        LOOPS(int32_t, int32_t, (x != 0) ^ (y != 0));
    default:
        must(sub < 0);
    }
}

#define COMPARE(name, T)                                                     \
    static void name(int sub, int32_t *o, const T *a, size_t sa, const T *b, \
                     size_t sb, size_t n)                                    \
    {                                                                        \
        switch (sub) {                                                       \
        case BIN_GREATER:                                                    \
            LOOPS(T, int32_t, x > y);                                        \
        case BIN_GREATER_EQUAL:                                              \
            LOOPS(T, int32_t, x >= y);                                       \
        case BIN_LESS:                                                       \
            LOOPS(T, int32_t, x < y);                                        \
        case BIN_LESS_EQUAL:                                                 \
            LOOPS(T, int32_t, x <= y);                                       \
        case BIN_EQUAL:                                                      \
            LOOPS(T, int32_t, x == y);                                       \
        default:                                                             \
            LOOPS(T, int32_t, x != y);                                       \
        }                                                                    \
    }

COMPARE(float_compare, float)
COMPARE(int_compare, int32_t)

static void inner(int sub, bool is_float, void *o, const void *a, size_t sa,
                  const void *b, size_t sb, size_t n)
{
    if (is_compare(sub)) {
        if (is_float) {
            float_compare(sub, o, a, sa, b, sb, n);
        } else {
            int_compare(sub, o, a, sa, b, sb, n);
        }
    } else if (is_float) {
        float_row(sub, o, a, sa, b, sb, n);
    } else {
        int_row(sub, o, a, sa, b, sb, n);
    }
}

/* Where a row of the result and of each operand begins. */
struct walk {
    size_t idx[MIL_RANK_MAX];
    size_t a, b, c;
    int32_t *out; /* 4-byte elements of any type */
};

/* To the next row; false after the last. */
static bool advance(const struct binary_params *u, struct walk *w)
{
    w->out += u->dims[u->n - 1];
    for (int i = u->n - 2; i >= 0; i--) {
        w->a += u->sa[i];
        w->b += u->sb[i];
        w->c += u->sc[i];
        if (++w->idx[i] < u->dims[i]) {
            return true;
        }
        w->idx[i] = 0;
        w->a -= u->sa[i] * u->dims[i];
        w->b -= u->sb[i] * u->dims[i];
        w->c -= u->sc[i] * u->dims[i];
    }
    return false;
}

/* Call `row` for each row of the result. */
static int each_row(const struct step *s,
                    void (*row)(const struct step *s, const struct walk *w))
{
    struct val *o = step_out(s, 0);
    struct walk w = {.out = o->i};
    if (o->n == 0) {
        return 0;
    }
    do {
        row(s, &w);
    } while (advance(s->u, &w));
    return 0;
}

static void binary_row(const struct step *s, const struct walk *w)
{
    const struct binary_params *u = s->u;
    const struct val *x = step_in(s, 0);
    const struct val *y = step_in(s, 1);
    size_t k = (size_t)u->n - 1;
    inner(s->node->def->sub, x->kind == VAL_F32, w->out, x->i + w->a, u->sa[k],
          y->i + w->b, u->sb[k], u->dims[k]);
}

int binary_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    return each_row(s, binary_row);
}

/* --- select(cond, a, b) --- */

int select_prep(struct step *s, struct err *e)
{
    const struct val *c = step_in(s, 0);
    const struct val *a = step_in(s, 1);
    const struct val *b = step_in(s, 2);
    struct val *o = step_out(s, 0);
    struct val ab = {0};
    int rank = 0;
    int64_t dims[MIL_RANK_MAX];
    if (a->kind != b->kind || c->kind != VAL_BOOL) {
        return err_set(e, ERR_MIL_INVALID, "the operands' types do not fit");
    }
    RETERR(val_broadcast(a, b, &rank, dims, e));
    RETERR(val_set(&ab, a->kind, rank, dims, e));
    RETERR(val_broadcast(&ab, c, &rank, dims, e));
    RETERR(val_set(o, a->kind, rank, dims, e));
    struct binary_params *u = step_alloc(s, sizeof(*u));
    fold(u, o, a, b, c);
    s->u = u;
    return 0;
}

static void select_row(const struct step *s, const struct walk *w)
{
    const struct binary_params *u = s->u;
    size_t k = (size_t)u->n - 1;
    const int32_t *c = step_in(s, 0)->i + w->c;
    const int32_t *a = step_in(s, 1)->i + w->a;
    const int32_t *b = step_in(s, 2)->i + w->b;
    for (size_t i = 0; i < u->dims[k]; i++) {
        w->out[i] = c[i * u->sc[k]] != 0 ? a[i * u->sa[k]] : b[i * u->sb[k]];
    }
}

int select_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    return each_row(s, select_row);
}

/* --- cast --- */

static const struct {
    const char *name;
    enum val_kind kind;
    int32_t lo, hi; /* integers: values wrap into this many */
} casts[] = {
    {"fp16",   VAL_F32,  0,         0         },
    {"fp32",   VAL_F32,  0,         0         },
    {"int32",  VAL_I32,  INT32_MIN, INT32_MAX },
    {"int16",  VAL_I32,  INT16_MIN, INT16_MAX },
    {"uint16", VAL_I32,  0,         UINT16_MAX},
    {"int8",   VAL_I32,  INT8_MIN,  INT8_MAX  },
    {"uint8",  VAL_I32,  0,         UINT8_MAX },
    {"bool",   VAL_BOOL, 0,         1         },
};

int cast_prep(struct step *s, struct err *e)
{
    const char *name = step_str(s, 1);
    int *which = step_alloc(s, sizeof(*which));
    s->u = which;
    for (size_t i = 0; i < countof(casts); i++) {
        if (strcmp(casts[i].name, name) == 0) {
            *which = (int)i;
            return val_like(step_out(s, 0), casts[i].kind, step_in(s, 0), e);
        }
    }
    return err_set(e, ERR_MIL_OP, "dtype %s", name);
}

/* Toward zero, saturating; NaN gives 0. */
static int32_t truncate(float f, int32_t lo, int32_t hi)
{
    if (f != f) {
        return 0;
    }
    if (f >= 2147483648.0f) {
        return hi;
    }
    if (f <= -2147483648.0f) {
        return lo;
    }
    int32_t v = (int32_t)f;
    return v < lo ? lo : v > hi ? hi : v;
}

int cast_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int which = *(const int *)s->u;
    int32_t lo = casts[which].lo;
    int32_t hi = casts[which].hi;
    bool from_float = x->kind == VAL_F32;
    for (size_t i = 0; i < x->n; i++) {
        if (o->kind == VAL_F32) {
            o->f[i] = from_float ? x->f[i] : (float)x->i[i];
        } else if (o->kind == VAL_BOOL) {
            o->i[i] = from_float ? x->f[i] != 0.0f : x->i[i] != 0;
        } else if (from_float) {
            o->i[i] = truncate(x->f[i], lo, hi);
        } else {
            int32_t v = x->i[i];
            o->i[i] = v < lo ? lo : v > hi ? hi : v;
        }
    }
    return 0;
}
