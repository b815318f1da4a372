/* linear and matmul.
 *
 *   y transposed, [.., N, K]:  rows of y are gemm.c's rows; the reduction is
 *                              the canonical 16-lane one
 *   y plain, [.., K, N]:       out[n] is the chain of fused multiply-adds over
 *                              k in order, eight n at a time
 *
 * Either order depends on K alone. y may be fp16 read in place (a state, a
 * constant), or a weight. */
#include <string.h>

#include "base/crew.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/ops/ops.h"

#define PARALLEL_MIN 131072 /* multiply-adds */

int step_dense(struct step *s, int arg, const float **ret, struct err *e)
{
    const struct val *v = step_in(s, arg);
    if (v->kind == VAL_F32) {
        *ret = v->f;
        return 0;
    }
    if (v->w == NULL) {
        return err_set(e, ERR_MIL_INVALID, "operand %d is not a constant", arg);
    }
    float *f = step_data(s, v->n * sizeof(float));
    for (size_t i = 0; f != NULL && i < v->w->rows; i++) {
        weight_row(v->w, i, f + i * v->w->cols);
    }
    *ret = f;
    return f != NULL ? 0 : err_set(e, ERR_NOMEM, "constants");
}

void gemm_operand(struct gemm *g, const struct val *v, size_t row0, size_t rows,
                  size_t k)
{
    if (v->kind == VAL_WEIGHT) {
        gemm_weight(g, v->w, row0, rows);
        return;
    }
    g->kind = v->kind == VAL_F16 ? WEIGHT_F16 : WEIGHT_F32;
    g->w = v->kind == VAL_F16 ? (const void *)(v->h + row0 * k)
                              : (const void *)(v->f + row0 * k);
    g->ldw = k;
    g->k = k;
    g->rows = rows;
}

/* --- linear(x, weight, bias) --- */

int dense_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *w = step_in(s, 1);
    const struct val *b = step_opt(s, 2);
    int64_t dims[MIL_RANK_MAX];
    if (x->kind != VAL_F32 || x->rank < 1 || w->rank != 2 ||
        x->dims[x->rank - 1] != w->dims[1] ||
        (b != NULL && (b->kind != VAL_F32 || b->n != (size_t)w->dims[0]))) {
        return err_set(e, ERR_MIL_SHAPE, "x, weight and bias do not fit");
    }
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = w->dims[0];
    size_t k = (size_t)w->dims[1];
    size_t rows = k > 0 ? x->n / k : 0;
    s->scratch = (rows + s->plan_threads) * gemm_pad(k) * sizeof(float);
    return val_set(step_out(s, 0), VAL_F32, x->rank, dims, e);
}

int dense_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct val *x = step_in(s, 0);
    const struct val *w = step_in(s, 1);
    const struct val *b = step_opt(s, 2);
    size_t k = (size_t)w->dims[1];
    size_t n = (size_t)w->dims[0];
    size_t rows = k > 0 ? x->n / k : 0;
    float *cols = r->scratch;
    gemm_pack(cols, x->f, rows, k, k, 1);
    struct gemm g = {.rowbuf = cols + rows * gemm_pad(k),
                     .cols = rows,
                     .x = cols,
                     .bias = b != NULL ? b->f : NULL,
                     .y = step_out(s, 0)->f,
                     .ldr = 1,
                     .ldc = n,
                     .threads = r->threads};
    gemm_operand(&g, w, 0, n, k);
    gemm_run(&g);
    return 0;
}

/* --- matmul(x, y, transpose_x, transpose_y) --- */

struct matmul_params {
    size_t m, n, k, batches;
    bool tx, ty;
    int rank; /* batch axes */
    size_t dims[MIL_RANK_MAX], sx[MIL_RANK_MAX], sy[MIL_RANK_MAX];
    const float *dense; /* y decoded, when it cannot be read in place */
    bool rows;          /* y is a weight [K, N] decoded row by row */
};

/* Matrix axes and batch axes of v; a vector is a matrix of one row (x) or one
 * column (y). */
struct matrix {
    size_t rows, cols;
    int batch_rank;
};

static struct matrix matrix_of(const struct val *v, bool transpose, bool is_y)
{
    struct matrix r = {1, 1, v->rank - 2};
    if (v->rank == 1) {
        r.batch_rank = 0;
        *(is_y ? &r.rows : &r.cols) = (size_t)v->dims[0];
        return r;
    }
    r.rows = (size_t)v->dims[v->rank - 2];
    r.cols = (size_t)v->dims[v->rank - 1];
    if (transpose) {
        size_t t = r.rows;
        r.rows = r.cols;
        r.cols = t;
    }
    return r;
}

static int batch_axes(struct matmul_params *u, const struct val *x, int bx,
                      const struct val *y, int by, int64_t *dims, struct err *e)
{
    u->rank = bx > by ? bx : by;
    u->batches = 1;
    size_t stride_x = u->m * u->k;
    size_t stride_y = u->k * u->n;
    for (int i = u->rank - 1; i >= 0; i--) {
        int ix = bx - u->rank + i;
        int iy = by - u->rank + i;
        size_t dx = ix < 0 ? 1 : (size_t)x->dims[ix];
        size_t dy = iy < 0 ? 1 : (size_t)y->dims[iy];
        if (dx != dy && dx != 1 && dy != 1) {
            return err_set(e, ERR_MIL_SHAPE, "the batch axes do not fit");
        }
        u->dims[i] = dx == 1 ? dy : dx;
        u->sx[i] = dx == 1 ? 0 : stride_x;
        u->sy[i] = dy == 1 ? 0 : stride_y;
        stride_x *= dx;
        stride_y *= dy;
        u->batches *= u->dims[i];
        dims[i] = (int64_t)u->dims[i];
    }
    return 0;
}

static int place_y(struct step *s, struct matmul_params *u, struct err *e)
{
    const struct val *y = step_in(s, 1);
    if (y->kind != VAL_WEIGHT) {
        return 0;
    }
    if (y->rank == 2) { /* rows are what either form walks over */
        u->rows = !u->ty;
        return 0;
    }
    return step_dense(s, 1, &u->dense, e);
}

int matmul_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *y = step_in(s, 1);
    struct matmul_params *u = step_alloc(s, sizeof(*u));
    int64_t dims[MIL_RANK_MAX + 2];
    s->u = u;
    RETERR(step_bool(s, 2, &u->tx, e));
    RETERR(step_bool(s, 3, &u->ty, e));
    if (x->kind != VAL_F32 || x->rank < 1 || y->rank < 1 ||
        (y->kind != VAL_F32 && y->kind != VAL_F16 && y->kind != VAL_WEIGHT)) {
        return err_set(e, ERR_MIL_OP, "operands that are not floating point");
    }
    struct matrix a = matrix_of(x, u->tx, false);
    struct matrix b = matrix_of(y, u->ty, true);
    if (a.cols != b.rows) {
        return err_set(e, ERR_MIL_SHAPE, "%zu columns times %zu rows", a.cols,
                       b.rows);
    }
    u->tx = u->tx && x->rank > 1;
    u->ty = u->ty && y->rank > 1;
    u->m = a.rows;
    u->n = b.cols;
    u->k = a.cols;
    RETERR(batch_axes(u, x, a.batch_rank > 0 ? a.batch_rank : 0, y,
                      b.batch_rank > 0 ? b.batch_rank : 0, dims, e));
    RETERR(place_y(s, u, e));
    int rank = u->rank;
    if (x->rank > 1) {
        dims[rank++] = (int64_t)u->m;
    }
    if (y->rank > 1) {
        dims[rank++] = (int64_t)u->n;
    }
    s->scratch =
        ((u->m + s->plan_threads) * gemm_pad(u->k) + u->n) * sizeof(float);
    return val_set(step_out(s, 0), VAL_F32, rank, dims, e);
}

static void chain_block(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    floats()->chain(ctx, begin, end);
}

void chain_run(struct chain *c, unsigned threads)
{
    size_t work = c->m * c->n * c->k;
    crew_run(work < PARALLEL_MIN ? 1 : threads, (c->n + 31) / 32, 1,
             chain_block, c);
}

/* y is a weight: its rows are decoded one at a time, out gathers them. */
static void rows_run(const struct matmul_params *u, const struct weight *w,
                     const float *x, float *row, float *o)
{
    size_t ldx = gemm_pad(u->k);
    memset(o, 0, u->m * u->n * sizeof(*o));
    for (size_t k = 0; k < u->k; k++) {
        weight_row(w, k, row);
        for (size_t m = 0; m < u->m; m++) {
            floats()->add_scaled(o + m * u->n, x[m * ldx + k], row, u->n);
        }
    }
}

static void matmul_one(const struct step *s, const struct run *r,
                       const float *x, size_t y_at, float *o)
{
    const struct matmul_params *u = s->u;
    const struct val *y = step_in(s, 1);
    float *cols = r->scratch;
    float *buf = cols + u->m * gemm_pad(u->k);
    gemm_pack(cols, x, u->m, u->k, u->tx ? 1 : u->k, u->tx ? u->m : 1);
    if (u->rows) {
        rows_run(u, y->w, cols, buf, o);
        return;
    }
    if (u->ty) {
        struct gemm g = {.rowbuf = buf,
                         .cols = u->m,
                         .x = cols,
                         .y = o,
                         .ldr = 1,
                         .ldc = u->n,
                         .threads = r->threads};
        if (u->dense != NULL) {
            g.kind = WEIGHT_F32;
            g.w = u->dense + y_at;
            g.ldw = g.k = u->k;
            g.rows = u->n;
        } else {
            gemm_operand(&g, y, u->k > 0 ? y_at / u->k : 0, u->n, u->k);
        }
        gemm_run(&g);
        return;
    }
    bool half = y->kind == VAL_F16;
    const float *f = u->dense != NULL ? u->dense : y->f;
    struct chain c = {.x = cols,
                      .ldx = gemm_pad(u->k),
                      .k = u->k,
                      .n = u->n,
                      .m = u->m,
                      .y = half ? (const void *)(y->h + y_at)
                                : (const void *)(f + y_at),
                      .half = half,
                      .o = o};
    chain_run(&c, r->threads);
}

int matmul_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct matmul_params *u = s->u;
    const float *x = step_in(s, 0)->f;
    float *o = step_out(s, 0)->f;
    size_t idx[MIL_RANK_MAX] = {0};
    size_t ax = 0;
    size_t ay = 0;
    for (size_t b = 0; b < u->batches; b++) {
        matmul_one(s, r, x + ax, ay, o + b * u->m * u->n);
        for (int i = u->rank - 1; i >= 0; i--) {
            ax += u->sx[i];
            ay += u->sy[i];
            if (++idx[i] < u->dims[i]) {
                break;
            }
            ax -= u->sx[i] * u->dims[i];
            ay -= u->sy[i] * u->dims[i];
            idx[i] = 0;
        }
    }
    return 0;
}
