/* quantize and dequantize: activations to 8 bits and back. */
#include <math.h>
#include <string.h>

#include "engine/cpu/ops/ops.h"

struct quant_params {
    struct axis3 a;     /* one scale an element of its axis, or n == 1 */
    const float *scale; /* a.n */
    const int32_t *zero;
    int32_t lo, hi;
};

enum { INPUT, SCALE, ZERO_POINT, AXIS, OUTPUT_DTYPE };

/* scale and zero_point are scalars, or vectors along axis. */
static int quant_axis(struct step *s, struct quant_params *u, struct err *e)
{
    const struct val *x = step_in(s, INPUT);
    const struct val *scale = step_in(s, SCALE);
    const struct val *zero = step_opt(s, ZERO_POINT);
    int64_t axis = 0;
    u->a = (struct axis3){1, 1, x->n};
    if (!scale->known || (zero != NULL && !zero->known)) {
        return CPU_UNKNOWN;
    }
    if (scale->rank > 0) {
        int rc = step_axis(s, AXIS, x->rank, &axis, e);
        if (rc < 0) {
            return rc;
        }
        u->a = val_axis3(x, axis);
    }
    if (scale->kind != VAL_F32 || scale->n != u->a.n ||
        (zero != NULL && (zero->kind != VAL_I32 || zero->n != u->a.n))) {
        return err_set(e, ERR_MIL_SHAPE, "scale or zero_point does not fit");
    }
    u->scale = scale->f;
    u->zero = zero != NULL ? zero->i : NULL;
    return 0;
}

int quantize_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, INPUT);
    struct quant_params *u = step_alloc(s, sizeof(*u));
    s->u = u;
    int rc = quant_axis(s, u, e);
    if (rc < 0) {
        return rc;
    }
    const char *to = step_str(s, OUTPUT_DTYPE);
    bool sign = strcmp(to, "int8") == 0;
    if (x->kind != VAL_F32 || (!sign && strcmp(to, "uint8") != 0)) {
        return err_set(e, ERR_MIL_OP, "to \"%s\"", to);
    }
    u->lo = sign ? INT8_MIN : 0;
    u->hi = sign ? INT8_MAX : UINT8_MAX;
    return val_like(step_out(s, 0), VAL_I32, x, e);
}

/* round(x / scale) + zero, half to even, saturating; NaN gives zero's. */
static int32_t to_grid(const struct quant_params *u, float x, size_t c)
{
    float zero = u->zero != NULL ? (float)u->zero[c] : 0.0f;
    float q = rintf(x / u->scale[c]) + zero;
    if (q != q) {
        q = zero;
    }
    return q < (float)u->lo ? u->lo : q > (float)u->hi ? u->hi : (int32_t)q;
}

int quantize_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct quant_params *u = s->u;
    const struct val *x = step_in(s, INPUT);
    struct val *o = step_out(s, 0);
    for (size_t k = 0; k < x->n; k++) {
        o->i[k] = to_grid(u, x->f[k], k / u->a.inner % u->a.n);
    }
    return 0;
}

int dequantize_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, INPUT);
    struct quant_params *u = step_alloc(s, sizeof(*u));
    s->u = u;
    RETERR(quant_axis(s, u, e));
    if (x->kind != VAL_I32) {
        return err_set(e, ERR_MIL_INVALID, "input is not integers");
    }
    return val_like(step_out(s, 0), VAL_F32, x, e);
}

int dequantize_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct quant_params *u = s->u;
    const struct val *x = step_in(s, INPUT);
    struct val *o = step_out(s, 0);
    for (size_t k = 0; k < x->n; k++) {
        size_t c = k / u->a.inner % u->a.n;
        int32_t zero = u->zero != NULL ? u->zero[c] : 0;
        o->f[k] = (float)(x->i[k] - zero) * u->scale[c];
    }
    return 0;
}
