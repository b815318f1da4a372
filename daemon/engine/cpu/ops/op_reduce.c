/* Reductions, softmax and running sums. A reduced set of elements is first
 * brought into a contiguous row (a copy, when it is not one already), then the
 * canonical 16-lane sums of vmath.c run over it: so a result's bits depend on
 * its own elements and their number alone. */
#include <string.h>

#include "base/fmath.h"
#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"

struct reduce_params {
    struct axes out, in; /* axes kept, axes reduced */
    size_t count;        /* elements of a set */
    bool flat;           /* a set is contiguous */
};

static bool is_arg(int sub)
{
    return sub == RED_ARGMAX || sub == RED_ARGMIN;
}

int reduce_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct reduce_params *u = step_alloc(s, sizeof(*u));
    bool set[MIL_RANK_MAX] = {false};
    bool keep = false;
    s->u = u;
    if (is_arg(s->node->def->sub)) {
        int64_t axis = -1;
        RETERR(step_axis(s, 1, x->rank, &axis, e));
        set[axis] = true;
    } else {
        RETERR(step_axes(s, 1, x->rank, set, e));
    }
    RETERR(step_bool(s, 2, &keep, e));
    if (x->kind != VAL_F32 && x->kind != VAL_I32) {
        return err_set(e, ERR_MIL_INVALID, "x is not numbers");
    }
    int64_t strides[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    val_strides(x, strides);
    u->count = 1;
    for (int i = 0; i < x->rank; i++) {
        size_t d = (size_t)x->dims[i];
        size_t st = (size_t)strides[i];
        if (set[i]) {
            axes_add(&u->in, d, st);
            u->count *= d;
        } else {
            axes_add(&u->out, d, st);
        }
        if (!set[i] || keep) {
            dims[rank++] = set[i] ? 1 : x->dims[i];
        }
    }
    if (u->count == 0) {
        return err_set(e, ERR_MIL_SHAPE, "a reduction over no elements");
    }
    u->flat = u->in.n == 0 || (u->in.n == 1 && u->in.strides[0] == 1);
    s->scratch = u->flat ? 0 : u->count * sizeof(float);
    return val_set(step_out(s, 0),
                   is_arg(s->node->def->sub) ? VAL_I32 : x->kind, rank, dims,
                   e);
}

/* The set whose first element is at x, in memory order of its axes. */
static void collect(const struct reduce_params *u, const int32_t *x,
                    int32_t *row)
{
    size_t idx[MIL_RANK_MAX] = {0};
    size_t at = 0;
    size_t n = u->in.dims[u->in.n - 1];
    size_t st = u->in.strides[u->in.n - 1];
    for (size_t k = 0; k < u->count; k += n) {
        for (size_t i = 0; i < n; i++) {
            row[k + i] = x[at + i * st];
        }
        at = axes_next(&u->in, u->in.n - 1, idx, at);
    }
}

static float log_sum_exp(const float *x, size_t n)
{
    float m = vmath_max(x, n);
    float sum = 0.0f;
    if (m == -INFINITY || m == INFINITY) {
        return m;
    }
    for (size_t i = 0; i < n; i++) {
        sum += fmath_expf(x[i] - m);
    }
    return m + fmath_logf(sum);
}

static float reduce_float(int sub, const float *x, size_t n)
{
    float r = 0.0f;
    switch (sub) {
    case RED_SUM:
        return vmath_sum(x, n);
    case RED_MEAN:
        return vmath_sum(x, n) / (float)n;
    case RED_SUM_SQUARE:
        return vmath_sum_square(x, n);
    case RED_L2:
        return sqrtf(vmath_sum_square(x, n));
    case RED_MAX:
        return vmath_max(x, n);
    case RED_LOG_SUM:
        return fmath_logf(vmath_sum(x, n));
    case RED_LOG_SUM_EXP:
        return log_sum_exp(x, n);
    case RED_MIN:
        r = INFINITY;
        for (size_t i = 0; i < n; i++) {
            r = x[i] < r ? x[i] : r;
        }
        return r;
    case RED_PROD:
        r = 1.0f;
        for (size_t i = 0; i < n; i++) {
            r *= x[i];
        }
        return r;
    default: /* RED_L1 */
        for (size_t i = 0; i < n; i++) {
            r += fabsf(x[i]);
        }
        return r;
    }
}

static int32_t reduce_int(int sub, const int32_t *x, size_t n)
{
    uint32_t sum = 0;
    int32_t r = x[0];
    for (size_t i = 0; i < n; i++) {
        uint32_t w = (uint32_t)x[i];
        switch (sub) {
        case RED_MAX:
            r = x[i] > r ? x[i] : r;
            break;
        case RED_MIN:
            r = x[i] < r ? x[i] : r;
            break;
        case RED_PROD:
            sum = i == 0 ? w : sum * w;
            break;
        case RED_SUM_SQUARE:
            sum += w * w;
            break;
        case RED_L1:
            sum += x[i] < 0 ? 0u - w : w;
            break;
        default:
            sum += w;
            break;
        }
    }
    if (sub == RED_MAX || sub == RED_MIN) {
        return r;
    }
    return sub == RED_MEAN ? (int32_t)((int32_t)sum / (int64_t)n)
                           : (int32_t)sum;
}

/* The first of equal ones; NaN is passed over while there is a number. */
static int32_t arg_of(int sub, bool is_float, const void *row, size_t n)
{
    const float *f = row;
    const int32_t *x = row;
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        bool more = is_float ? f[i] > f[best] : x[i] > x[best];
        bool less = is_float ? f[i] < f[best] : x[i] < x[best];
        bool none = is_float && isnan(f[best]) && !isnan(f[i]);
        if (none || (sub == RED_ARGMAX ? more : less)) {
            best = i;
        }
    }
    return (int32_t)best;
}

int reduce_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct reduce_params *u = s->u;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int sub = s->node->def->sub;
    size_t idx[MIL_RANK_MAX] = {0};
    size_t at = 0;
    for (size_t k = 0; k < o->n; k++) {
        const int32_t *row = x->i + at;
        if (!u->flat) {
            collect(u, row, r->scratch);
            row = r->scratch;
        }
        if (is_arg(sub)) {
            o->i[k] = arg_of(sub, x->kind == VAL_F32, row, u->count);
        } else if (x->kind == VAL_F32) {
            o->f[k] =
                reduce_float(sub, (const float *)(const void *)row, u->count);
        } else {
            o->i[k] = reduce_int(sub, row, u->count);
        }
        at = axes_next(&u->out, u->out.n, idx, at);
    }
    return 0;
}

/* --- softmax --- */

int softmax_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct axis3 *u = step_alloc(s, sizeof(*u));
    int64_t axis = -1;
    if (x->kind != VAL_F32) {
        return err_set(e, ERR_MIL_INVALID, "x is not floating point");
    }
    int rc = step_axis(s, 1, x->rank, &axis, e);
    if (rc < 0) {
        return rc;
    }
    *u = val_axis3(x, axis);
    s->u = u;
    s->scratch = u->inner > 1 ? u->n * sizeof(float) : 0;
    return val_like(step_out(s, 0), VAL_F32, x, e);
}

int softmax_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct axis3 *u = s->u;
    const float *x = step_in(s, 0)->f;
    float *o = step_out(s, 0)->f;
    float *row = r->scratch;
    if (u->n == 0) {
        return 0;
    }
    for (size_t k = 0; k < u->outer; k++) {
        size_t base = k * u->n * u->inner;
        if (u->inner == 1) {
            vmath_softmax(o + base, x + base, u->n);
            continue;
        }
        for (size_t j = 0; j < u->inner; j++) {
            for (size_t i = 0; i < u->n; i++) {
                row[i] = x[base + i * u->inner + j];
            }
            vmath_softmax(row, row, u->n);
            for (size_t i = 0; i < u->n; i++) {
                o[base + i * u->inner + j] = row[i];
            }
        }
    }
    return 0;
}

/* --- cumsum(x, axis, exclusive, reverse) --- */

struct cumsum_params {
    struct axis3 a;
    bool exclusive, reverse;
};

int cumsum_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct cumsum_params *u = step_alloc(s, sizeof(*u));
    int64_t axis = 0;
    s->u = u;
    RETERR(step_axis(s, 1, x->rank, &axis, e));
    RETERR(step_bool(s, 2, &u->exclusive, e));
    RETERR(step_bool(s, 3, &u->reverse, e));
    u->a = val_axis3(x, axis);
    return val_like(step_out(s, 0), x->kind, x, e);
}

int cumsum_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct cumsum_params *u = s->u;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    for (size_t row = 0; row < u->a.outer * u->a.inner; row++) {
        size_t base = row / u->a.inner * u->a.n * u->a.inner + row % u->a.inner;
        float f = 0.0f;
        uint32_t w = 0;
        for (size_t i = 0; i < u->a.n; i++) {
            size_t k = u->reverse ? u->a.n - 1 - i : i;
            size_t at = base + k * u->a.inner;
            if (x->kind == VAL_F32) {
                float next = f + x->f[at];
                o->f[at] = u->exclusive ? f : next;
                f = next;
            } else {
                uint32_t next = w + (uint32_t)x->i[at];
                o->i[at] = (int32_t)(u->exclusive ? w : next);
                w = next;
            }
        }
    }
    return 0;
}
