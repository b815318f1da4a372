/* attend.h - attention of rows over their sequences' blocks of keys and values.
 *
 *   out[r][h] = softmax_s(scale(q[r][h] . k[s])) v[s],  lo[r] <= s < hi[r]
 *
 * Query head h reads key/value head h / (heads / kv_heads). A row reads only
 * the positions that it sees. The result of a row and head depends only on q,
 * lo, hi and the sequence's keys and values: additions are ordered by absolute
 * position, for any other rows of the call, any number of threads and any
 * instruction set. Keys and values are fp16, as kv_store rounded them.
 */
#pragma once

#include "engine/cpu/kernels/kernel.h"
#include "engine/cpu/kv.h"

struct attend {
    size_t rows;
    uint32_t heads, kv_heads;
    uint32_t dim, vdim;      /* of a key, of a value */
    size_t k_state, v_state; /* in the pool */
    const float *q;          /* q[r * ldq + h * dim + i] */
    size_t ldq;
    float *out; /* out[r * ldo + h * vdim + i] */
    size_t ldo;
    const struct kv_table *const *table; /* of each row */
    const uint32_t *lo, *hi;             /* of each row; lo < hi */
    bool tanh;   /* scores are tanh(scores * before) first */
    float before;
    bool divide; /* scores / scale, else scores * scale */
    float scale;
    float *scratch; /* attend_scratch() floats */
    unsigned threads;
};

/* Floats of scratch for any call with at most this context length and number
 * of threads, and this head shape. */
size_t attend_scratch(uint32_t positions, uint32_t heads, uint32_t kv_heads,
                      uint32_t dim, uint32_t vdim, unsigned threads);
void attend_run(const struct attend *a, const struct kernels *kn);

/* --- between attend.c and the inner loops (attend_impl.h) --- */

/* y[c][i] = the chain of fused multiply-adds of x[c][k] * w[k][i] over k in
 * order, from 0 or (add) from what y is. w is fp16. */
struct attend_product {
    const float *x;
    size_t ldx, cols, k;
    const uint16_t *w;
    size_t ldw, n; /* n: a multiple of 16 */
    float *y;
    size_t ldy;
    bool add;
    const void *ahead; /* what is read next; NULL: it is in the cache */
    size_t ahead_bytes;
};

/* What the n spans of a column gave, `step` floats apart, put together in
 * their order; the result is in o, m is used up. */
struct attend_spans {
    size_t n, step;
    float *o;     /* weighed sums of values, `width` of them */
    size_t width; /* a multiple of 8 */
    float *m;     /* the largest score */
    float *l;     /* the sum of the weights */
};
