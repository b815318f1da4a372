/* topk and argsort. Equal elements keep the order of their indices, so the
 * result is one and the same everywhere; NaN comes after every number, whether
 * the order ascends or descends, as in numpy. */
#include <math.h>
#include <string.h>

#include "engine/cpu/ops/ops.h"

struct sort_params {
    struct axis3 a;
    size_t k;
    bool ascending;
};

/* Does element x at index i come before y at j? */
static bool before(const struct val *v, bool ascending, size_t x, size_t y)
{
    if (v->kind == VAL_F32) {
        float a = v->f[x];
        float b = v->f[y];
        if (isnan(a) || isnan(b)) {
            return !isnan(a);
        }
        return ascending ? a < b : a > b;
    }
    return ascending ? v->i[x] < v->i[y] : v->i[x] > v->i[y];
}

/* Merge sort of the indices of one row into idx; tmp has as much room. */
static void sort_row(const struct val *x, const struct sort_params *u,
                     size_t base, int32_t *idx, int32_t *tmp)
{
    size_t n = u->a.n;
    for (size_t i = 0; i < n; i++) {
        idx[i] = (int32_t)i;
    }
    for (size_t w = 1; w < n; w *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * w) {
            size_t mid = lo + w < n ? lo + w : n;
            size_t hi = lo + 2 * w < n ? lo + 2 * w : n;
            size_t i = lo;
            size_t j = mid;
            for (size_t k = lo; k < hi; k++) {
                bool right =
                    i == mid ||
                    (j < hi &&
                     before(x, u->ascending, base + (size_t)idx[j] * u->a.inner,
                            base + (size_t)idx[i] * u->a.inner));
                tmp[k] = right ? idx[j++] : idx[i++];
            }
        }
        memcpy(idx, tmp, n * sizeof(*idx));
    }
}

/* topk(x, k, axis, ascending, sort, return_indices, ...) */
int topk_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct sort_params *u = step_alloc(s, sizeof(*u));
    int64_t k = 1;
    int64_t axis = -1;
    int64_t dims[MIL_RANK_MAX];
    s->u = u;
    RETERR(step_int(s, 1, &k, e));
    RETERR(step_axis(s, 2, x->rank, &axis, e));
    RETERR(step_bool(s, 3, &u->ascending, e));
    if (k == -1) {
        k = x->dims[axis];
    }
    if (k < 0 || k > x->dims[axis]) {
        return err_set(e, ERR_MIL_SHAPE, "k = %lld of %lld", (long long)k,
                       (long long)x->dims[axis]);
    }
    u->a = val_axis3(x, axis);
    u->k = (size_t)k;
    s->scratch = 2 * u->a.n * sizeof(int32_t);
    memcpy(dims, x->dims, sizeof(dims));
    dims[axis] = k;
    RETERR(val_set(step_out(s, 0), x->kind, x->rank, dims, e));
    if (s->node->n_out > 1) {
        RETERR(val_set(step_out(s, 1), VAL_I32, x->rank, dims, e));
    }
    return 0;
}

int topk_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct sort_params *u = s->u;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    struct val *oi = s->node->n_out > 1 ? step_out(s, 1) : NULL;
    int32_t *idx = r->scratch;
    for (size_t row = 0; row < u->a.outer * u->a.inner; row++) {
        size_t outer = row / u->a.inner;
        size_t in = row % u->a.inner;
        size_t base = outer * u->a.n * u->a.inner + in;
        sort_row(x, u, base, idx, idx + u->a.n);
        for (size_t i = 0; i < u->k; i++) {
            size_t to = (outer * u->k + i) * u->a.inner + in;
            o->i[to] = x->i[base + (size_t)idx[i] * u->a.inner];
            if (oi != NULL) {
                oi->i[to] = idx[i];
            }
        }
    }
    return 0;
}

/* argsort(x, axis, ascending) */
int argsort_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct sort_params *u = step_alloc(s, sizeof(*u));
    int64_t axis = -1;
    s->u = u;
    RETERR(step_axis(s, 1, x->rank, &axis, e));
    RETERR(step_bool(s, 2, &u->ascending, e));
    u->a = val_axis3(x, axis);
    s->scratch = 2 * u->a.n * sizeof(int32_t);
    return val_like(step_out(s, 0), VAL_I32, x, e);
}

int argsort_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct sort_params *u = s->u;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int32_t *idx = r->scratch;
    for (size_t row = 0; row < u->a.outer * u->a.inner; row++) {
        size_t base = row / u->a.inner * u->a.n * u->a.inner + row % u->a.inner;
        sort_row(x, u, base, idx, idx + u->a.n);
        for (size_t i = 0; i < u->a.n; i++) {
            o->i[base + i * u->a.inner] = idx[i];
        }
    }
    return 0;
}
