/* Normalisations. Sums are the canonical ones of vmath.c. */
#include <math.h>
#include <string.h>

#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"

/* --- layer_norm(x, axes, gamma, beta, epsilon) --- */

struct layer_params {
    size_t n;         /* elements normalised together */
    const size_t *at; /* their offsets from the first, in memory order */
    int n_kept;       /* the other axes */
    size_t dims[MIL_RANK_MAX], strides[MIL_RANK_MAX], rows;
    float eps;
};

/* Put the normalised axes into at, the other axes into dims and strides. */
static int layer_axes(struct step *s, struct layer_params *u, const bool *set,
                      struct err *e)
{
    const struct val *x = step_in(s, 0);
    int64_t strides[MIL_RANK_MAX];
    val_strides(x, strides);
    u->n = u->rows = 1;
    for (int i = 0; i < x->rank; i++) {
        size_t d = (size_t)x->dims[i];
        if (set[i]) {
            u->n *= d;
            continue;
        }
        u->dims[u->n_kept] = d;
        u->strides[u->n_kept++] = (size_t)strides[i];
        u->rows *= d;
    }
    size_t *at = step_data(s, (u->n + 1) * sizeof(*at));
    if (at == NULL) {
        return err_set(e, ERR_NOMEM, "a plan");
    }
    for (size_t k = 0; k < u->n; k++) {
        size_t rest = k;
        for (int i = x->rank - 1; i >= 0; i--) {
            if (set[i]) {
                at[k] += rest % (size_t)x->dims[i] * (size_t)strides[i];
                rest /= (size_t)x->dims[i];
            }
        }
    }
    u->at = at;
    return 0;
}

int layer_norm_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct layer_params *u = step_alloc(s, sizeof(*u));
    bool set[MIL_RANK_MAX];
    s->u = u;
    u->eps = 1e-5f;
    RETERR(step_axes(s, 1, x->rank, set, e));
    RETERR(step_float(s, 4, &u->eps, e));
    RETERR(layer_axes(s, u, set, e));
    for (int k = 2; k <= 3; k++) {
        const struct val *v = step_opt(s, k);
        if (x->kind != VAL_F32 || u->n == 0 ||
            (v != NULL && (v->n != u->n || v->kind != VAL_F32))) {
            return err_set(e, ERR_MIL_SHAPE, "gamma or beta does not fit x");
        }
    }
    s->scratch = u->n * sizeof(float);
    return val_like(step_out(s, 0), VAL_F32, x, e);
}

int layer_norm_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct layer_params *u = s->u;
    const float *gamma = step_opt(s, 2) != NULL ? step_opt(s, 2)->f : NULL;
    const float *beta = step_opt(s, 3) != NULL ? step_opt(s, 3)->f : NULL;
    float *row = r->scratch;
    for (size_t k = 0; k < u->rows; k++) {
        size_t base = 0;
        size_t rest = k;
        for (int i = u->n_kept - 1; i >= 0; i--) {
            base += rest % u->dims[i] * u->strides[i];
            rest /= u->dims[i];
        }
        const float *x = step_in(s, 0)->f + base;
        float *o = step_out(s, 0)->f + base;
        for (size_t i = 0; i < u->n; i++) {
            row[i] = x[u->at[i]];
        }
        float mean = vmath_sum(row, u->n) / (float)u->n;
        for (size_t i = 0; i < u->n; i++) {
            row[i] -= mean;
        }
        float var = vmath_sum_square(row, u->n) / (float)u->n;
        float scale = 1.0f / sqrtf(var + u->eps);
        for (size_t i = 0; i < u->n; i++) {
            float v = row[i] * scale;
            v = gamma != NULL ? v * gamma[i] : v;
            o[u->at[i]] = beta != NULL ? v + beta[i] : v;
        }
    }
    return 0;
}

/* --- batch_norm(x, mean, variance, gamma, beta, epsilon),
 *     instance_norm(x, gamma, beta, epsilon): axis 1 is the channel --- */

struct channel_params {
    size_t batch, channels, inner;
    float eps;
};

static int channel_prep(struct step *s, int first, int last, int eps_arg,
                        struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct channel_params *u = step_alloc(s, sizeof(*u));
    s->u = u;
    u->eps = 1e-5f;
    int rc = step_float(s, eps_arg, &u->eps, e);
    if (rc < 0) {
        return rc;
    }
    if (x->rank < 2 || x->kind != VAL_F32) {
        return err_set(e, ERR_MIL_SHAPE, "x has no channels");
    }
    struct axis3 a = val_axis3(x, 1);
    *u = (struct channel_params){a.outer, a.n, a.inner, u->eps};
    for (int k = first; k <= last; k++) {
        const struct val *v = step_opt(s, k);
        if (v != NULL && (v->n != u->channels || v->kind != VAL_F32)) {
            return err_set(e, ERR_MIL_SHAPE, "a parameter does not fit x");
        }
    }
    return val_like(step_out(s, 0), VAL_F32, x, e);
}

int batch_norm_prep(struct step *s, struct err *e)
{
    return channel_prep(s, 1, 4, 5, e);
}

int batch_norm_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct channel_params *u = s->u;
    const float *x = step_in(s, 0)->f;
    const float *mean = step_in(s, 1)->f;
    const float *var = step_in(s, 2)->f;
    const struct val *g = step_opt(s, 3);
    const struct val *b = step_opt(s, 4);
    float *o = step_out(s, 0)->f;
    for (size_t k = 0; k < u->batch * u->channels; k++) {
        size_t c = k % u->channels;
        float scale = 1.0f / sqrtf(var[c] + u->eps);
        float gamma = g != NULL ? g->f[c] : 1.0f;
        float beta = b != NULL ? b->f[c] : 0.0f;
        for (size_t i = 0; i < u->inner; i++) {
            size_t at = k * u->inner + i;
            o[at] = (x[at] - mean[c]) * scale * gamma + beta;
        }
    }
    return 0;
}

int instance_norm_prep(struct step *s, struct err *e)
{
    return channel_prep(s, 1, 2, 3, e);
}

int instance_norm_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct channel_params *u = s->u;
    const struct val *g = step_opt(s, 1);
    const struct val *b = step_opt(s, 2);
    for (size_t k = 0; k < u->batch * u->channels && u->inner > 0; k++) {
        const float *x = step_in(s, 0)->f + k * u->inner;
        float *o = step_out(s, 0)->f + k * u->inner;
        size_t c = k % u->channels;
        float mean = vmath_sum(x, u->inner) / (float)u->inner;
        for (size_t i = 0; i < u->inner; i++) {
            o[i] = x[i] - mean;
        }
        float var = vmath_sum_square(o, u->inner) / (float)u->inner;
        float scale = 1.0f / sqrtf(var + u->eps);
        for (size_t i = 0; i < u->inner; i++) {
            float v = o[i] * scale;
            v = g != NULL ? v * g->f[c] : v;
            o[i] = b != NULL ? v + b->f[c] : v;
        }
    }
    return 0;
}

/* --- l2_norm(x, epsilon): over the last three axes --- */

int l2_norm_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    float *eps = step_alloc(s, sizeof(*eps));
    *eps = 1e-6f;
    s->u = eps;
    RETERR(step_float(s, 1, eps, e));
    if (x->rank < 3 || x->kind != VAL_F32) {
        return err_set(e, ERR_MIL_SHAPE, "x has a rank below 3");
    }
    return val_like(step_out(s, 0), VAL_F32, x, e);
}

int l2_norm_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const float *eps = s->u;
    const struct val *x = step_in(s, 0);
    size_t n = 1;
    for (int i = x->rank - 3; i < x->rank; i++) {
        n *= (size_t)x->dims[i];
    }
    for (size_t k = 0; n > 0 && k < x->n; k += n) {
        float norm = sqrtf(vmath_sum_square(x->f + k, n) + *eps);
        for (size_t i = 0; i < n; i++) {
            step_out(s, 0)->f[k + i] = x->f[k + i] / norm;
        }
    }
    return 0;
}
