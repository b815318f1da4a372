/* linear_int.h - integer products, a template over a few vector operations.
 *
 * Included by a kernel_NAME.c that defines
 *   VB                        bytes in a vector of weights; a vector of
 *                             columns is VB / 2 int16
 *   FEW_COLS                  columns in a tile of few
 *   vi                        int32 sums, or int16 elements
 *   vi_zero, vi_load          of int16
 *   vi_dot(acc, w, x)         acc + products, neighbours added
 *   vi_split8(p, vi w[2])     VB int8: the even ones, the odd ones
 *   vi_split4(p, vi w[2])     the same of VB int4 (VB / 2 bytes)
 *   vi_sum4(const vi a[4], float out[4], bool first)
 *                             out (+)= the sums of four accumulators
 * A column holds, for each VB elements, the even ones and then the odd ones:
 * int8 and int4 weights fall apart that way with shifts alone.
 *
 * Sums of a block of LINEAR_BLOCK are exact, so tiles of any shape give the
 * same bits; the blocks are added as floats in order of k.
 *
 * int_few keeps 4 rows of weights x up to FEW_COLS columns in registers and
 * reads the weights where they lie: for a handful of columns the memory bus is
 * the limit. Four accumulators are summed across at once.
 */
#pragma once

#include "engine/cpu/linear_impl.h"

#define FEW_ROWS 4
/* Asked for ahead of use, in each row of a tile: AHEAD / rows. */
#define AHEAD_BYTES 6144

/* Bytes of n elements; n is even for int4. */
INLINE size_t int_bytes(bool i4, size_t n)
{
    return i4 ? n / 2 : n;
}

INLINE void int_split(bool i4, const char *p, vi w[2])
{
    if (i4) {
        vi_split4((const uint8_t *)(const void *)p, w);
    } else {
        vi_split8((const int8_t *)(const void *)p, w);
    }
}

/* The last n < VB elements of a row: nothing behind them is read. */
INLINE void int_split_tail(bool i4, const char *p, size_t n, vi w[2])
{
    char buf[VB] = {0};
    memcpy(buf, p, int_bytes(i4, n));
    int_split(i4, buf, w);
}

/* One vector of each of R rows times C columns. */
INLINE void few_step(int R, int C, vi w[FEW_ROWS][2], const int16_t *q,
                     size_t ldq, vi a[FEW_COLS][FEW_ROWS])
{
    for (int c = 0; c < C; c++) {
        vi x0 = vi_load(q + (size_t)c * ldq);
        for (int r = 0; r < R; r++) {
            a[c][r] = vi_dot(a[c][r], w[r][0], x0);
        }
        vi x1 = vi_load(q + (size_t)c * ldq + VB / 2);
        for (int r = 0; r < R; r++) {
            a[c][r] = vi_dot(a[c][r], w[r][1], x1);
        }
    }
}

/* Where the weights come from: a block of R rows, and what to ask for. */
struct few_rows {
    const char *w;
    size_t ldw;
    const char *ahead; /* NULL: they are in the first cache already */
    size_t ahead_left; /* bytes until `ahead` leaves its row */
};

/* n <= LINEAR_BLOCK elements of R rows and C columns. */
INLINE void few_tile(bool i4, int R, int C, const struct few_rows *f,
                     const int16_t *q, size_t ldq, size_t n, float *acc,
                     bool first)
{
    UNSET vi a[FEW_COLS][FEW_ROWS];
    UNSET vi w[FEW_ROWS][2];
    const size_t step = int_bytes(i4, VB);
    const char *p = f->w;
    const char *ahead = f->ahead;
    size_t left = f->ahead_left;
    size_t i = 0;
    for (int c = 0; c < C; c++) {
        for (int r = 0; r < FEW_ROWS; r++) {
            a[c][r] = vi_zero();
        }
    }
    for (; i + 64 / step * VB <= n; i += 64 / step * VB) {
        if (f->ahead != NULL) {
            for (int r = 0; r < R; r++) {
                __builtin_prefetch(ahead + (size_t)r * f->ldw, 0, 3);
            }
            ahead += left >= 64 ? 64 : 64 + (size_t)(R - 1) * f->ldw;
            left -= 64; /* wraps: it leaves its row once in a block */
        }
        for (size_t s = 0; s < 64 / step; s++, p += step, q += VB) {
            for (int r = 0; r < R; r++) {
                int_split(i4, p + (size_t)r * f->ldw, w[r]);
            }
            few_step(R, C, w, q, ldq, a);
        }
    }
    for (; i + VB <= n; i += VB, p += step, q += VB) {
        for (int r = 0; r < R; r++) {
            int_split(i4, p + (size_t)r * f->ldw, w[r]);
        }
        few_step(R, C, w, q, ldq, a);
    }
    if (i < n) {
        for (int r = 0; r < R; r++) {
            int_split_tail(i4, p + (size_t)r * f->ldw, n - i, w[r]);
        }
        few_step(R, C, w, q, ldq, a);
    }
    for (int c = 0; c < C; c++) {
        vi_sum4(a[c], acc + c * FEW_ROWS, first);
    }
}

#define FEW_CASE(C)                                                           \
    case C:                                                                   \
        few_tile(i4, R, C, &f, q + c * j->ldq, j->ldq, n, acc + c * FEW_ROWS, \
                 k == 0);                                                     \
        break

/* R rows from row o on, all columns. */
INLINE void few_group(const struct linear_job *j, bool i4, int R, size_t o,
                      float *acc)
{
    const size_t row = int_bytes(i4, j->k);
    const char *w = j->w + o * j->ldw;
    for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
        size_t n = j->k - k < LINEAR_BLOCK ? j->k - k : LINEAR_BLOCK;
        size_t at = int_bytes(i4, k);
        size_t far = at + AHEAD_BYTES / FEW_ROWS;
        struct few_rows f = {.w = w + at, .ldw = j->ldw, .ahead = w + far};
        f.ahead_left = row - far;
        if (far >= row) {
            f.ahead += (size_t)(R - 1) * j->ldw;
            f.ahead_left = SIZE_MAX;
        }
        const int16_t *q = j->q + k;
        for (size_t c = 0; c < j->cols;) {
            size_t left = j->cols - c;
            size_t tiles = (left + FEW_COLS - 1) / FEW_COLS;
            size_t take = (left + tiles - 1) / tiles;
            switch (take) {
                FEW_CASE(1);
                FEW_CASE(2);
                FEW_CASE(3);
#if FEW_COLS > 3
                FEW_CASE(4);
#endif
#if FEW_COLS > 4
                FEW_CASE(5);
                FEW_CASE(6);
#endif
            default:
                break;
            }
            f.ahead = NULL;
            c += take;
        }
    }
    linear_finish(j, o, (size_t)R, acc, FEW_ROWS);
}

INLINE void few_rows_run(const struct linear_job *j, bool i4, size_t begin,
                         size_t end, float *acc)
{
    size_t o = begin;
    for (; o + FEW_ROWS <= end; o += FEW_ROWS) {
        few_group(j, i4, FEW_ROWS, o, acc);
    }
    for (; o < end; o++) {
        few_group(j, i4, 1, o, acc);
    }
}

static void int_few(const struct linear_job *j, size_t begin, size_t end,
                    void *scratch)
{
    if (j->kind == WEIGHT_I4) {
        few_rows_run(j, true, begin, end, scratch);
    } else {
        few_rows_run(j, false, begin, end, scratch);
    }
}

/* --- many columns ---
 * A tile of MANY_ROWS rows is unpacked once to int16, pairs of neighbours in k
 * from all rows side by side, and then meets all columns: one pair of a column
 * broadcast, no sums across. Defined where the set has
 *   MANY_VECS                 vectors of rows in a tile, VB / 4 rows each
 *   MANY_COLS                 columns in a tile
 *   vi_pair(q)                the pair at q in every lane
 *   vi_transpose(vi t[VB / 4])  of int32 lanes
 *   vi_store, vi_floats(float *out, vi a, bool first)
 */
#if defined(MANY_VECS)

#define LANES     (VB / 4)
#define MANY_ROWS (MANY_VECS * LANES)

static_assert(MANY_ROWS <= LINEAR_MANY, "scratch");
static_assert(MANY_ROWS * LINEAR_BLOCK * 2 <= LINEAR_TILE, "scratch");

/* The pairs of VB elements of LANES rows: transposed into a tile. */
INLINE void many_transpose(vi t[LANES], int16_t *tile)
{
    vi_transpose(t);
    for (int i = 0; i < LANES; i++) {
        vi_store(tile + (size_t)i * MANY_ROWS * 2, t[i]);
    }
}

INLINE void many_pack(bool i4, const char *w, size_t ldw, size_t n,
                      int16_t *tile)
{
    UNSET vi even[LANES];
    UNSET vi odd[LANES];
    UNSET vi h[2];
    for (size_t i = 0; i < n; i += VB, tile += (size_t)VB * MANY_ROWS) {
        for (size_t v = 0; v < MANY_VECS; v++) {
            for (size_t r = 0; r < LANES; r++) {
                const char *p = w + (v * LANES + r) * ldw + int_bytes(i4, i);
                if (i + VB <= n) {
                    int_split(i4, p, h);
                } else {
                    int_split_tail(i4, p, n - i, h);
                }
                even[r] = h[0];
                odd[r] = h[1];
            }
            int16_t *t = tile + v * LANES * 2;
            many_transpose(even, t);
            many_transpose(odd, t + (size_t)LANES * MANY_ROWS * 2);
        }
    }
}

/* pairs of a tile times C columns. */
INLINE void many_tile(int C, const int16_t *tile, size_t pairs,
                      const int16_t *q, size_t ldq, float *acc, bool first)
{
    UNSET vi a[MANY_COLS][MANY_VECS];
    UNSET vi w[MANY_VECS];
    for (int c = 0; c < C; c++) {
        for (int v = 0; v < MANY_VECS; v++) {
            a[c][v] = vi_zero();
        }
    }
    for (size_t p = 0; p < pairs; p++) {
        for (int v = 0; v < MANY_VECS; v++) {
            w[v] = vi_load(tile + p * MANY_ROWS * 2 + (size_t)v * LANES * 2);
        }
        for (int c = 0; c < C; c++) {
            vi x = vi_pair(q + (size_t)c * ldq + 2 * p);
            for (int v = 0; v < MANY_VECS; v++) {
                a[c][v] = vi_dot(a[c][v], w[v], x);
            }
        }
    }
    for (int c = 0; c < C; c++) {
        for (int v = 0; v < MANY_VECS; v++) {
            vi_floats(acc + c * MANY_ROWS + v * LANES, a[c][v], first);
        }
    }
}

INLINE void many_columns(const struct linear_job *j, size_t k, size_t n,
                         const int16_t *tile, float *acc)
{
    size_t pairs = (n + VB - 1) / VB * (VB / 2);
    const int16_t *q = j->q + k;
    size_t c = 0;
    for (; c + MANY_COLS <= j->cols; c += MANY_COLS) {
        many_tile(MANY_COLS, tile, pairs, q + c * j->ldq, j->ldq,
                  acc + c * MANY_ROWS, k == 0);
    }
    for (; c + 3 <= j->cols; c += 3) {
        many_tile(3, tile, pairs, q + c * j->ldq, j->ldq, acc + c * MANY_ROWS,
                  k == 0);
    }
    for (; c < j->cols; c++) {
        many_tile(1, tile, pairs, q + c * j->ldq, j->ldq, acc + c * MANY_ROWS,
                  k == 0);
    }
}

INLINE void many_rows_run(const struct linear_job *j, bool i4, size_t begin,
                          size_t end, void *scratch)
{
    int16_t *tile = scratch;
    float *acc = (float *)(void *)((char *)scratch + LINEAR_TILE);
    size_t o = begin;
    for (; o + MANY_ROWS <= end; o += MANY_ROWS) {
        for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
            size_t n = j->k - k < LINEAR_BLOCK ? j->k - k : LINEAR_BLOCK;
            many_pack(i4, j->w + o * j->ldw + int_bytes(i4, k), j->ldw, n,
                      tile);
            many_columns(j, k, n, tile, acc);
        }
        linear_finish(j, o, MANY_ROWS, acc, MANY_ROWS);
    }
    few_rows_run(j, i4, o, end, acc);
}

static void int_many(const struct linear_job *j, size_t begin, size_t end,
                     void *scratch)
{
    if (j->kind == WEIGHT_I4) {
        many_rows_run(j, true, begin, end, scratch);
    } else {
        many_rows_run(j, false, begin, end, scratch);
    }
}

#else
#define int_many int_few
#endif
