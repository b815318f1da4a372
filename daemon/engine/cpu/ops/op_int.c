/* linear and matmul over integers: sums wrap as two's complement does. */
#include <string.h>

#include "engine/cpu/ops/ops.h"

struct int_params {
    size_t m, n, k, batches;
    size_t xm, xk, yk, yn; /* strides */
    int rank;              /* batch axes */
    size_t dims[MIL_RANK_MAX], sx[MIL_RANK_MAX], sy[MIL_RANK_MAX];
};

/* Batch axes of x and y, the last two taken off. */
static int int_batches(struct int_params *u, const struct val *x,
                       const struct val *y, int64_t *dims, struct err *e)
{
    struct val a = *x;
    struct val b = *y;
    int64_t own[MIL_RANK_MAX];
    a.rank = x->rank > 2 ? x->rank - 2 : 0;
    b.rank = y->rank > 2 ? y->rank - 2 : 0;
    RETERR(val_broadcast(&a, &b, &u->rank, dims, e));
    u->batches = 1;
    for (int i = u->rank - 1; i >= 0; i--) {
        int ix = i - (u->rank - a.rank);
        int iy = i - (u->rank - b.rank);
        val_strides(x, own);
        u->sx[i] = ix < 0 || x->dims[ix] == 1 ? 0 : (size_t)own[ix];
        val_strides(y, own);
        u->sy[i] = iy < 0 || y->dims[iy] == 1 ? 0 : (size_t)own[iy];
        u->dims[i] = (size_t)dims[i];
        u->batches *= u->dims[i];
    }
    return 0;
}

/* sub 1: linear(x, weight, bias), else matmul(x, y, ...). */
int int_product_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *y = step_in(s, 1);
    bool linear = s->node->def->sub == 1;
    const struct val *bias = linear ? step_opt(s, 2) : NULL;
    struct int_params *u = step_alloc(s, sizeof(*u));
    bool tx = false;
    bool ty = linear;
    int64_t dims[MIL_RANK_MAX + 2];
    s->u = u;
    if (!linear) {
        RETERR(step_bool(s, 2, &tx, e));
        RETERR(step_bool(s, 3, &ty, e));
    }
    if (x->kind != VAL_I32 || y->kind != VAL_I32 || x->rank < 1 ||
        y->rank < 2 || (tx && x->rank < 2) || (linear && y->rank != 2)) {
        return err_set(e, ERR_MIL_INVALID, "the operands do not fit");
    }
    size_t last = (size_t)x->dims[x->rank - 1];
    size_t above = x->rank > 1 ? (size_t)x->dims[x->rank - 2] : 1;
    size_t rows = (size_t)y->dims[y->rank - 2];
    size_t cols = (size_t)y->dims[y->rank - 1];
    u->m = tx ? last : above;
    u->k = tx ? above : last;
    u->n = ty ? rows : cols;
    u->xm = tx ? 1 : last;
    u->xk = tx ? last : 1;
    u->yk = ty ? 1 : cols;
    u->yn = ty ? cols : 1;
    if (u->k != (ty ? cols : rows) ||
        (bias != NULL && (bias->kind != VAL_I32 || bias->n != u->n))) {
        return err_set(e, ERR_MIL_SHAPE, "the operands do not fit");
    }
    RETERR(int_batches(u, x, y, dims, e));
    int rank = u->rank;
    if (x->rank > 1) {
        dims[rank++] = (int64_t)u->m;
    }
    dims[rank++] = (int64_t)u->n;
    return val_set(step_out(s, 0), VAL_I32, rank, dims, e);
}

int int_product_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct int_params *u = s->u;
    const struct val *bias = s->node->def->sub == 1 ? step_opt(s, 2) : NULL;
    int32_t *o = step_out(s, 0)->i;
    for (size_t b = 0; b < u->batches; b++) {
        const int32_t *x = step_in(s, 0)->i;
        const int32_t *y = step_in(s, 1)->i;
        size_t rest = b;
        for (int i = u->rank - 1; i >= 0; i--) {
            x += rest % u->dims[i] * u->sx[i];
            y += rest % u->dims[i] * u->sy[i];
            rest /= u->dims[i];
        }
        for (size_t k = 0; k < u->m * u->n; k++) {
            size_t row = k / u->n;
            size_t col = k % u->n;
            uint32_t sum = bias != NULL ? (uint32_t)bias->i[col] : 0;
            for (size_t j = 0; j < u->k; j++) {
                sum += (uint32_t)x[row * u->xm + j * u->xk] *
                       (uint32_t)y[j * u->yk + col * u->yn];
            }
            *o++ = (int32_t)sum;
        }
    }
    return 0;
}
