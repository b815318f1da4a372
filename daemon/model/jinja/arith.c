/* arith.c - Python's arithmetic on values. Integers have 64 bits here: what
 * does not fit is an error, where Python would go on. */
#include <math.h>
#include <string.h>

#include "model/jinja/eval.h"
#include "model/jinja/text.h"
#include "proto/limits.h"

static int too_large(struct run *r)
{
    return run_error(r, "a number beyond 64 bits");
}

static int by_zero(struct run *r)
{
    return run_error(r, "division by zero");
}

/* --- strings and lists --- */

/* Source: markupsafe.escape. */
int escape_html(struct run *r, struct span s, struct val *ret)
{
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    struct buf b;
    RETERR(run_charge_chars(r, s.n));
    run_buf(r, &b);
    for (size_t i = 0; i < s.n; i++) {
        const char *known = s.p[i] != '\0' ? strchr(from, s.p[i]) : NULL;
        if (known != NULL) {
            buf_puts(&b, to[known - from]);
        } else {
            buf_put(&b, &s.p[i], 1);
        }
    }
    int rc = run_take(r, &b, ret);
    buf_fini(&b);
    ret->markup = true;
    return rc;
}

int join_strings(struct run *r, const struct val *a, const struct val *b,
                 struct val *ret)
{
    struct val x = *a;
    struct val y = *b;
    bool markup = a->markup || b->markup;
    if (markup && !a->markup) {
        RETERR(escape_html(r, a->s, &x));
    }
    if (markup && !b->markup) {
        RETERR(escape_html(r, b->s, &y));
    }
    char *p = arena_alloc(r->arena, x.s.n + y.s.n + 1);
    if (p == NULL) {
        return run_no_memory(r);
    }
    if (x.s.n > 0) {
        memcpy(p, x.s.p, x.s.n);
    }
    if (y.s.n > 0) {
        memcpy(p + x.s.n, y.s.p, y.s.n);
    }
    *ret = val_str((struct span){p, x.s.n + y.s.n});
    ret->markup = markup;
    return run_charge(r, ret->s.n);
}

/* An array for a list of n items, with room for as many more behind it. */
static int new_array(struct run *r, const struct val_list *a, size_t n,
                     struct val_list *ret)
{
    ret->cap = 2 * n;
    ret->v = arena_array(r->arena, ret->cap + 1, sizeof(*ret->v));
    ret->used = arena_alloc(r->arena, sizeof(*ret->used));
    if (ret->v == NULL || ret->used == NULL) {
        return run_no_memory(r);
    }
    if (a->n > 0) {
        memcpy(ret->v, a->v, a->n * sizeof(*a->v));
    }
    return run_charge(r, n * sizeof(*a->v));
}

/* a + b. Templates collect lists as l = l + [x], so the sum stands in the array
 * of a when that has room and nothing yet behind a: both are its beginning, and
 * neither changes. */
static int join_lists(struct run *r, const struct val *x, const struct val *y,
                      struct val *ret)
{
    const struct val_list *a = x->list;
    const struct val_list *b = y->list;
    RETERR(run_list(r, x->kind, ret));
    struct val_list *sum = ret->list;
    if (a->used != NULL && *a->used == a->n && a->cap - a->n >= b->n) {
        sum->v = a->v;
        sum->cap = a->cap;
        sum->used = a->used;
    } else {
        RETERR(new_array(r, a, a->n + b->n, sum));
    }
    if (b->n > 0) {
        memcpy(sum->v + a->n, b->v, b->n * sizeof(*b->v));
    }
    sum->n = a->n + b->n;
    *sum->used = sum->n;
    return run_charge(r, b->n * sizeof(*b->v));
}

static int repeat(struct run *r, const struct val *a, int64_t times,
                  struct val *ret)
{
    size_t n = times > 0 ? (size_t)times : 0;
    if (a->kind != V_STR) {
        RETERR(run_list(r, a->kind, ret));
        for (size_t k = 0; k < n && a->list->n > 0; k++) {
            for (size_t i = 0; i < a->list->n; i++) {
                RETERR(run_push(r, ret, a->list->v[i]));
            }
        }
        return 0;
    }
    size_t bytes = 0;
    char *p = NULL;
    if (!__builtin_mul_overflow(n, a->s.n, &bytes) && bytes < SIZE_MAX) {
        p = arena_alloc(r->arena, bytes + 1);
    }
    if (p == NULL) {
        return run_no_memory(r);
    }
    RETERR(run_charge(r, bytes));
    for (size_t k = 0; k < n && a->s.n > 0; k++) {
        memcpy(p + k * a->s.n, a->s.p, a->s.n);
    }
    *ret = val_str((struct span){p, bytes});
    ret->markup = a->markup;
    return 0;
}

/* --- numbers --- */

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static int int_power(struct run *r, int64_t a, int64_t n, struct val *ret)
{
    int64_t y = 1;
    while (n > 0) {
        if ((n & 1) != 0 && __builtin_mul_overflow(y, a, &y)) {
            return too_large(r);
        }
        n >>= 1;
        if (n > 0 && __builtin_mul_overflow(a, a, &a)) {
            return too_large(r);
        }
    }
    *ret = val_int(y);
    return 0;
}

static int int_arith(struct run *r, enum op op, int64_t a, int64_t b,
                     struct val *ret)
{
    int64_t y = 0;
    bool over = false;
    bool divides = op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD;
    if (divides && b == 0) {
        return by_zero(r);
    }
    switch ((int)op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &y);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &y);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &y);
        break;
    case OP_DIV:
        *ret = val_float((double)a / (double)b);
        return 0;
    case OP_POW:
        return int_power(r, a, b, ret);
    case OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        y = over ? 0 : floor_div(a, b);
        break;
    default:
        y = b == -1 ? 0 : a - b * floor_div(a, b);
        break;
    }
    *ret = val_int(y);
    return over ? too_large(r) : 0;
}

/* Python's remainder has the sign of the divisor. */
static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m != 0) {
        return (b < 0) != (m < 0) ? m + b : m;
    }
    return copysign(0.0, b);
}

static double float_floordiv(double a, double b)
{
    double m = fmod(a, b);
    double q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) {
        q -= 1;
    }
    if (q == 0) {
        return copysign(0.0, a / b);
    }
    double f = floor(q);
    return q - f > 0.5 ? f + 1 : f;
}

/* Whole exponents, and 0.5: libm's pow is not the same on every machine
 * (tests/lint/libm.py), and no template needs more. */
static int float_power(struct run *r, double a, double b, struct val *ret)
{
    if (b == 0.5 && a >= 0) {
        *ret = val_float(sqrt(a));
        return 0;
    }
    if (floor(b) != b || fabs(b) > 1024) {
        return run_error(r, "a power with this exponent");
    }
    long double y = 1;
    long double x = b < 0 ? 1 / (long double)a : (long double)a;
    for (int n = (int)fabs(b); n > 0; n >>= 1) {
        y = (n & 1) != 0 ? y * x : y;
        x = x * x;
    }
    *ret = val_float((double)y);
    return isinf(ret->f) && !isinf(a)
               ? run_error(r, "a power beyond all floats")
               : 0;
}

static int float_arith(struct run *r, enum op op, double a, double b,
                       struct val *ret)
{
    bool divides = op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD;
    if ((divides && b == 0) || (op == OP_POW && a == 0 && b < 0)) {
        return by_zero(r);
    }
    switch ((int)op) {
    case OP_ADD:
        *ret = val_float(a + b);
        return 0;
    case OP_SUB:
        *ret = val_float(a - b);
        return 0;
    case OP_MUL:
        *ret = val_float(a * b);
        return 0;
    case OP_DIV:
        *ret = val_float(a / b);
        return 0;
    case OP_MOD:
        *ret = val_float(float_mod(a, b));
        return 0;
    case OP_FLOORDIV:
        *ret = val_float(float_floordiv(a, b));
        return 0;
    default:
        break;
    }
    return float_power(r, a, b, ret);
}

static int no_operator(struct run *r, enum op op, const struct val *a,
                       const struct val *b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    const struct val *u = a->kind == V_UNDEFINED ? a : b;
    if (u->kind == V_UNDEFINED) {
        return run_error(r, "'%.*s' is undefined",
                         (int)(u->s.n < 60 ? u->s.n : 60), u->s.p);
    }
    return run_error(r, "unsupported operand types for %s: '%s' and '%s'",
                     names[op], val_type(a), val_type(b));
}

int arith(struct run *r, enum op op, const struct val *a, const struct val *b,
          struct val *ret)
{
    int64_t i = 0;
    int64_t k = 0;
    bool seq_a = a->kind == V_STR || a->kind == V_LIST || a->kind == V_TUPLE;
    bool seq_b = b->kind == V_STR || b->kind == V_LIST || b->kind == V_TUPLE;
    if (val_is_number(a) && val_is_number(b)) {
        if (val_as_int(a, &i) && val_as_int(b, &k) &&
            (op != OP_POW || k >= 0)) {
            return int_arith(r, op, i, k, ret);
        }
        return float_arith(r, op, val_as_double(a), val_as_double(b), ret);
    }
    if (op == OP_MOD && a->kind == V_STR) {
        return format_percent(r, a->s, b, ret);
    }
    if (op == OP_ADD && seq_a && a->kind == b->kind) {
        return a->kind == V_STR ? join_strings(r, a, b, ret)
                                : join_lists(r, a, b, ret);
    }
    if (op == OP_MUL && seq_a && val_as_int(b, &k)) {
        return repeat(r, a, k, ret);
    }
    if (op == OP_MUL && seq_b && val_as_int(a, &i)) {
        return repeat(r, b, i, ret);
    }
    return no_operator(r, op, a, b);
}
