/* One operand, one result of the same shape. */
#include <string.h>

#include "base/fmath.h"
#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"

struct unary_params {
    float a, b; /* epsilon, alpha; beta */
    int gelu;   /* 0 EXACT, 1 TANH, 2 SIGMOID */
};

int unary_gelu_mode(const char *mode)
{
    if (strcmp(mode, "TANH_APPROXIMATION") == 0) {
        return 1;
    }
    if (strcmp(mode, "SIGMOID_APPROXIMATION") == 0) {
        return 2;
    }
    return mode[0] == '\0' || strcmp(mode, "EXACT") == 0 ? 0 : -1;
}

static int prep_gelu(struct step *s, struct unary_params *u, struct err *e)
{
    const char *mode = step_str(s, 1);
    u->gelu = unary_gelu_mode(mode);
    return u->gelu >= 0 ? 0 : err_set(e, ERR_MIL_OP, "mode %s", mode);
}

int unary_prep(struct step *s, struct err *e)
{
    struct unary_params *u = step_alloc(s, sizeof(*u));
    const struct val *x = step_in(s, 0);
    s->u = u;
    switch (s->node->def->sub) {
    case UN_RSQRT:
    case UN_LOG: /* the documented defaults vanish in fp32 sums of any size */
        RETERR(step_float(s, 1, &u->a, e));
        break;
    case UN_INVERSE:
        u->a = 1e-4f;
        RETERR(step_float(s, 1, &u->a, e));
        break;
    case UN_LEAKY_RELU:
    case UN_ELU:
    case UN_CLIP:
    case UN_HARD_SIGMOID:
        RETERR(step_float(s, 1, &u->a, e));
        RETERR(step_float(s, 2, &u->b, e));
        break;
    case UN_GELU:
        RETERR(prep_gelu(s, u, e));
        break;
    default:
        break;
    }
    if (s->node->def->sub == UN_NOT) {
        return x->kind == VAL_BOOL
                   ? val_like(step_out(s, 0), VAL_BOOL, x, e)
                   : err_set(e, ERR_MIL_INVALID, "x is not bool");
    }
    if (x->kind != VAL_F32 && x->kind != VAL_I32) {
        return err_set(e, ERR_MIL_INVALID, "x is not numbers");
    }
    return val_like(step_out(s, 0), x->kind, x, e);
}

#define EACH(expr)                   \
    for (size_t i = 0; i < n; i++) { \
        float v = x[i];              \
        o[i] = (expr);               \
    }                                \
    break

static void gelu(const struct unary_params *u, float *o, const float *x,
                 size_t n)
{
    if (u->gelu == 1) {
        vmath_gelu_tanh(o, x, n);
        return;
    }
    if (u->gelu == 2) {
        vmath_gelu_sigmoid(o, x, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        o[i] = 0.5f * v * (1.0f + fmath_erff(v * 0.70710678118654752f));
    }
}

static float sign_of(float v)
{
    return v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : v;
}

/* Within 0 .. 1; NaN is 0. */
static float unit_of(float v)
{
    return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f;
}

static float softplus(float v)
{
    return v > 20.0f ? v : fmath_log1pf(fmath_expf(v));
}

static void floats_more(int sub, const struct unary_params *u, float *o,
                        const float *x, size_t n)
{
    float a = u->a;
    float b = u->b;
    switch (sub) {
    case UN_EXP2:
        EACH(fmath_exp2f(v));
    case UN_LOG:
        EACH(fmath_logf(v + a));
    case UN_SIN:
        EACH(fmath_sinf(v));
    case UN_COS:
        EACH(fmath_cosf(v));
    case UN_TAN:
        EACH(fmath_tanf(v));
    case UN_ERF:
        EACH(fmath_erff(v));
    case UN_SOFTPLUS:
        EACH(softplus(v));
    case UN_SOFTSIGN:
        EACH(v / (1.0f + fabsf(v)));
    case UN_ELU:
        EACH(v > 0.0f ? v : a * fmath_expm1f(v));
    case UN_LEAKY_RELU:
        EACH(v > 0.0f ? v : a * v);
    case UN_HARD_SIGMOID:
        EACH(unit_of(a * v + b));
    case UN_FLOOR:
        EACH(floorf(v));
    case UN_CEIL:
        EACH(ceilf(v));
    case UN_ROUND: /* half to even: the rounding mode is never changed */
        EACH(rintf(v));
    case UN_SIGN:
        EACH(sign_of(v));
    default:
        must(sub < 0);
    }
}

static void floats(int sub, const struct unary_params *u, float *o,
                   const float *x, size_t n)
{
    float a = u->a;
    float b = u->b;
    switch (sub) {
    case UN_ABS:
        EACH(fabsf(v));
    case UN_SQUARE:
        EACH(v * v);
    case UN_SQRT:
        EACH(sqrtf(v));
    case UN_RSQRT:
        EACH(1.0f / sqrtf(v + a));
    case UN_INVERSE:
        EACH(1.0f / (v + a));
    case UN_RELU:
        EACH(v > 0.0f ? v : 0.0f);
    case UN_RELU6:
        EACH(v < 0.0f ? 0.0f : v > 6.0f ? 6.0f : v);
    case UN_CLIP:
        EACH(v < a ? a : v > b ? b : v);
    case UN_EXP:
        vmath_exp(o, x, n);
        break;
    case UN_SIGMOID:
        vmath_sigmoid(o, x, n);
        break;
    case UN_SILU:
        vmath_silu(o, x, n);
        break;
    case UN_TANH:
        vmath_tanh(o, x, n);
        break;
    case UN_GELU:
        gelu(u, o, x, n);
        break;
    default:
        floats_more(sub, u, o, x, n);
        break;
    }
}

void unary_floats(const struct step *s, float *o, const float *x, size_t n)
{
    floats(s->node->def->sub, s->u, o, x, n);
}

void unary_plain(int sub, int gelu, float *o, const float *x, size_t n)
{
    const struct unary_params u = {.gelu = gelu};
    floats(sub, &u, o, x, n);
}

static int ints(int sub, const struct unary_params *u, int32_t *o,
                const int32_t *x, size_t n, struct err *e)
{
    int32_t lo = (int32_t)u->a;
    int32_t hi = (int32_t)u->b;
    for (size_t i = 0; i < n; i++) {
        int32_t v = x[i];
        uint32_t w = (uint32_t)v;
        switch (sub) {
        case UN_ABS:
            o[i] = v < 0 ? (int32_t)(0u - w) : v;
            break;
        case UN_SQUARE:
            o[i] = (int32_t)(w * w);
            break;
        case UN_EXP2:
            o[i] = v < 0 || v > 30 ? 0 : (int32_t)1 << v;
            break;
        case UN_SIGN:
            o[i] = (v > 0) - (v < 0);
            break;
        case UN_RELU:
            o[i] = v > 0 ? v : 0;
            break;
        case UN_CLIP:
            o[i] = v < lo ? lo : v > hi ? hi : v;
            break;
        default:
            return err_set(e, ERR_MIL_INVALID, "x is not floating point");
        }
    }
    return 0;
}

int unary_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int sub = s->node->def->sub;
    if (sub == UN_NOT) {
        for (size_t i = 0; i < x->n; i++) {
            o->i[i] = x->i[i] == 0;
        }
        return 0;
    }
    if (x->kind == VAL_I32) {
        return ints(sub, s->u, o->i, x->i, x->n, e);
    }
    floats(sub, s->u, o->f, x->f, x->n);
    return 0;
}
