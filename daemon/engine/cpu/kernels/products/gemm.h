/* gemm.h - rows of weights times columns of activations, the one reduction of
 * the backend.
 *
 *   y[r, c] = scale[r] * sum_k w[r, k] * x[c, k] + bias[r]
 *
 * The sum runs over the canonical 16 lanes (simd.h) with fused multiply-adds,
 * k in order inside a lane: its bits depend on row r, column c and k alone,
 * never on how many rows, columns or threads there are.
 */
#pragma once

#include "engine/cpu/cpu.h"

struct gemm {
    enum weight_kind kind;    /* of w; WEIGHT_ROWS decodes rows of src */
    const void *w;            /* first row; unused for WEIGHT_ROWS */
    size_t ldw;               /* elements from row to row */
    const float *scale;       /* WEIGHT_I8: one a row */
    const struct weight *src; /* WEIGHT_ROWS, with the first row */
    size_t src_row;
    float *rowbuf; /* WEIGHT_ROWS: buf_rows * gemm_pad(k) floats a thread */
    size_t buf_rows; /* rows that are decoded before they are used; 0: one */

    size_t rows, cols, k;
    const float *x;    /* column c at x + c * gemm_pad(k), zeros after k */
    const float *bias; /* one a row, or NULL */
    float *y;
    size_t ldr, ldc; /* y[r * ldr + c * ldc] */
    unsigned threads;
};

#define GEMM_COLS    4  /* of a tile */
#define GEMM_DECODED 12 /* buf_rows that are best with many columns */

static inline size_t gemm_element(enum weight_kind kind)
{
    return kind == WEIGHT_I8 ? 1 : kind == WEIGHT_F16 ? 2 : 4;
}

static inline const void *gemm_row_at(enum weight_kind kind, const void *w,
                                      size_t at)
{
    return (const char *)w + at * gemm_element(kind);
}

/* Elements of a padded column. */
static inline size_t gemm_pad(size_t k)
{
    return (k + 15) & ~(size_t)15;
}

/* Take a package's weight, `rows` rows from row0 on, as w. */
void gemm_weight(struct gemm *g, const struct weight *w, size_t row0,
                 size_t rows);

/* Rows row0.. of any value that holds floats, k elements each (op_matmul.c). */
void gemm_operand(struct gemm *g, const struct val *v, size_t row0, size_t rows,
                  size_t k);

void gemm_run(struct gemm *g);

/* x columns [cols][k] with element (c, i) at x[c * sc + i * sk] into padded
 * columns. */
void gemm_pack(float *out, const float *x, size_t cols, size_t k, size_t sc,
               size_t sk);

/* A second kind of reduction (op_matmul.c): o[m, n] is the chain of fused
 * multiply-adds of x[m, k] * y[k, n] over k in order. */
struct chain {
    const float *x; /* [m][ldx] */
    size_t ldx, k, n, m;
    const void *y; /* [k][n] */
    bool half;     /* y is fp16, else fp32 */
    float *o;      /* [m][n] */
};

void chain_run(struct chain *c, unsigned threads);
