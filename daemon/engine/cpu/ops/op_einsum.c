/* einsum of two operands, and the integer forms of linear and matmul.
 *
 * Labels of an equation are of four kinds: in both operands and the result
 * (batch), in one operand and the result (rows of x, rows of y), and not in
 * the result (summed). Each operand is packed as [batch][rows][summed] and the
 * product is gemm.c's, so its reduction is the canonical one. */
#include <string.h>

#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/ops/ops.h"
#include "proto/limits.h"

/* Loops of one kind: their sizes, and the steps of x, y and the result. */
struct loops {
    int n;
    size_t count; /* product of dims */
    size_t dims[MIL_EINSUM_LABELS];
    size_t sx[MIL_EINSUM_LABELS], sy[MIL_EINSUM_LABELS];
    size_t so[MIL_EINSUM_LABELS];
};

struct einsum_params {
    struct loops batch, rows_x, rows_y, sum;
};

struct label {
    size_t dim, sx, sy, so;
    bool in_x, in_y, in_o;
};

CHECKED static bool add_loop(struct loops *l, const struct label *a)
{
    int k = l->n++;
    l->dims[k] = a->dim;
    l->sx[k] = a->sx;
    l->sy[k] = a->sy;
    l->so[k] = a->so;
    return !__builtin_mul_overflow(l->count, a->dim, &l->count);
}

/* Dimension k of operand v stands under label a. */
static int note_label(struct label *a, const struct val *v, int k, bool is_y,
                      struct err *e)
{
    int64_t strides[MIL_RANK_MAX];
    size_t d = (size_t)v->dims[k];
    val_strides(v, strides);
    if (d != 1 && a->dim != 1 && d != a->dim) {
        return err_set(e, ERR_MIL_SHAPE, "the operands do not fit");
    }
    a->dim = d == 1 ? a->dim : d;
    *(is_y ? &a->sy : &a->sx) = d == 1 ? 0 : (size_t)strides[k];
    *(is_y ? &a->in_y : &a->in_x) = true;
    return 0;
}

static int einsum_labels(struct step *s, const struct mil_einsum *p,
                         struct label *l, struct err *e)
{
    int64_t dims[MIL_RANK_MAX];
    int64_t stride = 1;
    for (int k = 0; k < p->n_labels; k++) {
        l[k].dim = 1;
    }
    for (int v = 0; v < 2; v++) {
        const struct val *x = step_list(s, v);
        if (x->kind != VAL_F32 || x->rank != p->rank[v]) {
            return err_set(e, ERR_MIL_SHAPE, "the operands do not fit");
        }
        for (int k = 0; k < x->rank; k++) {
            int rc = note_label(&l[p->in[v][k]], x, k, v == 1, e);
            if (rc < 0) {
                return rc;
            }
        }
    }
    for (int k = p->out_rank - 1; k >= 0; k--) {
        struct label *a = &l[p->out[k]];
        a->in_o = true;
        a->so = (size_t)stride;
        dims[k] = (int64_t)a->dim;
        if (__builtin_mul_overflow(stride, dims[k], &stride)) {
            return err_set(e, ERR_TOO_BIG, "a result too large");
        }
    }
    return val_set(step_out(s, 0), VAL_F32, p->out_rank, dims, e);
}

int einsum_prep(struct step *s, struct err *e)
{
    struct mil_einsum p;
    struct label l[MIL_EINSUM_LABELS];
    struct einsum_params *u = step_alloc(s, sizeof(*u));
    s->u = u;
    memset(l, 0, sizeof(l));
    if (s->node->n_list != 2 || !mil_einsum_parse(step_str(s, 1), &p)) {
        return err_set(e, ERR_MIL_OP, "equation \"%s\"", step_str(s, 1));
    }
    int rc = einsum_labels(s, &p, l, e);
    if (rc < 0) {
        return rc;
    }
    u->batch.count = u->rows_x.count = u->rows_y.count = u->sum.count = 1;
    for (int k = 0; k < p.n_labels; k++) {
        struct loops *to = !l[k].in_o               ? &u->sum
                           : l[k].in_x && l[k].in_y ? &u->batch
                           : l[k].in_x              ? &u->rows_x
                                                    : &u->rows_y;
        if (!add_loop(to, &l[k])) {
            return err_set(e, ERR_TOO_BIG, "a product too large");
        }
    }
    size_t ld = gemm_pad(u->sum.count);
    uint64_t floats = 0;
    if (u->sum.count > MIL_TENSOR_BYTES_MAX / sizeof(float) ||
        __builtin_mul_overflow(u->rows_x.count + u->rows_y.count + 1, ld,
                               &floats) ||
        floats > MIL_TENSOR_BYTES_MAX / sizeof(float)) {
        return err_set(e, ERR_TOO_BIG, "a product too large");
    }
    s->scratch = (size_t)floats * sizeof(float) +
                 u->rows_x.count * u->rows_y.count * sizeof(float);
    return 0;
}

/* Offsets of element i of the loops in x, y and the result. */
static void loop_at(const struct loops *l, size_t i, size_t *x, size_t *y,
                    size_t *o)
{
    *x = *y = *o = 0;
    for (int k = l->n - 1; k >= 0; k--) {
        size_t c = i % l->dims[k];
        i /= l->dims[k];
        *x += c * l->sx[k];
        *y += c * l->sy[k];
        *o += c * l->so[k];
    }
}

/* One operand's rows of one batch entry, each padded with zeros. */
static void einsum_pack(const struct loops *rows, const struct loops *sum,
                        const float *from, bool is_y, float *to)
{
    size_t ld = gemm_pad(sum->count);
    size_t x = 0;
    size_t y = 0;
    size_t o = 0;
    for (size_t i = 0; i < rows->count; i++) {
        loop_at(rows, i, &x, &y, &o);
        const float *row = from + (is_y ? y : x);
        for (size_t k = 0; k < ld; k++) {
            loop_at(sum, k, &x, &y, &o);
            to[i * ld + k] = k < sum->count ? row[is_y ? y : x] : 0.0f;
        }
    }
}

int einsum_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct einsum_params *u = s->u;
    struct val *out = step_out(s, 0);
    size_t ld = gemm_pad(u->sum.count);
    float *x = r->scratch;
    float *y = x + u->rows_x.count * ld;
    float *tile = y + (u->rows_y.count + 1) * ld;
    size_t ax = 0;
    size_t ay = 0;
    size_t ao = 0;
    for (size_t b = 0; b < u->batch.count && out->n > 0; b++) {
        loop_at(&u->batch, b, &ax, &ay, &ao);
        float *o = out->f + ao;
        einsum_pack(&u->rows_x, &u->sum, step_list(s, 0)->f + ax, false, x);
        einsum_pack(&u->rows_y, &u->sum, step_list(s, 1)->f + ay, true, y);
        struct gemm g = {.kind = WEIGHT_F32,
                         .w = y,
                         .ldw = ld,
                         .rows = u->rows_y.count,
                         .cols = u->rows_x.count,
                         .k = u->sum.count,
                         .x = x,
                         .y = tile,
                         .ldr = u->rows_x.count,
                         .ldc = 1,
                         .threads = r->threads};
        gemm_run(&g);
        for (size_t i = 0; i < u->rows_y.count; i++) {
            size_t oy = 0;
            loop_at(&u->rows_y, i, &ax, &ay, &oy);
            for (size_t k = 0; k < u->rows_x.count; k++) {
                size_t ox = 0;
                loop_at(&u->rows_x, k, &ax, &ay, &ox);
                o[oy + ox] = tile[i * u->rows_x.count + k];
            }
        }
    }
    return 0;
}
