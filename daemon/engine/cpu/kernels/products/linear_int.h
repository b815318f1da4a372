/* linear_int.h - integer products, a template over a few vector operations.
 *
 * Included by a kernel_NAME.c that defines
 *   VB                        bytes in a vector of weights; a vector of
 *                             columns is VB / 2 int16
 *   FEW_TALL, FEW_COLS        columns in a tile of 4 rows, in any tile
 *   vi                        int32 sums, or int16 elements
 *   vi_zero, vi_load          of int16
 *   vi_add                    of sums
 *   vi_dot(acc, w, x)         acc + products, neighbours added
 *   vi_half8(p, odd)          of VB int8 the even ones, or the odd ones
 *   vi_half4(p, odd)          the same of VB int4 (VB / 2 bytes)
 *   vi_sum4(const vi a[4], float out[4], bool first)
 *                             out (+)= the sums of four accumulators
 * A column holds, for each VB elements, the even ones and then the odd ones:
 * int8 and int4 weights fall apart that way with shifts alone.
 *
 * Sums of a block of LINEAR_BLOCK are exact, so tiles of any shape give the
 * same bits; the blocks are added as floats in order of k.
 *
 * int_few keeps a tile of sums in registers and reads the weights where they
 * lie: for a handful of columns the memory bus is the limit. Tiles are 4 rows
 * high for up to FEW_TALL columns, which needs the fewest loads for a product;
 * where more columns would want more registers they are 2 rows high, or (with
 * FEW_TALL == FEW_COLS) several tiles, the weights taken apart once for each.
 * Four accumulators are summed across at once. A single column reads row by row
 * (linear_one.h).
 */
#pragma once

#include "engine/cpu/kernels/products/linear_impl.h"

#define AHEAD_BYTES 6144  /* prefetch distance, at least */
#define AHEAD_ROWS  8     /* where rows pass by block by block */
#define FEW_BYTES   18432 /* of columns that stay in the first cache */

/* Bytes of n elements; n is even for int4. */
INLINE size_t int_bytes(bool i4, size_t n)
{
    return i4 ? n / 2 : n;
}

INLINE vi int_half(bool i4, const char *p, int odd)
{
    return i4 ? vi_half4((const uint8_t *)(const void *)p, odd)
              : vi_half8((const int8_t *)(const void *)p, odd);
}

/* One vector of each of R rows times C columns. */
INLINE void few_step(bool i4, int R, int C, const char *p, size_t ldw,
                     const int16_t *q, size_t ldq, vi *a)
{
    UNSET vi w[4];
    UNSET const int16_t *base[(FEW_COLS + 2) / 3];
    for (int c = 0; c < C; c += 3) {
        base[c / 3] = q + (size_t)c * ldq;
        HOLD(base[c / 3]);
    }
    for (int odd = 0; odd < 2; odd++) {
        RELOAD(); /* rather than keep what the other half came from */
        for (int r = 0; r < R; r++) {
            w[r] = int_half(i4, p + (size_t)r * ldw, odd);
        }
        for (int c = 0; c < C; c++) {
            vi x =
                vi_load(base[c / 3] + (size_t)(c % 3) * ldq + odd * (VB / 2));
            for (int r = 0; r < R; r++) {
                a[c * R + r] = vi_dot(a[c * R + r], w[r], x);
            }
        }
    }
}

/* The last n < VB elements of R rows: nothing after them is read. */
INLINE void few_tail(bool i4, int R, int C, const char *p, size_t ldw, size_t n,
                     const int16_t *q, size_t ldq, vi *a)
{
    char buf[4 * VB] = {0};
    for (int r = 0; r < R; r++) {
        memcpy(buf + r * VB, p + (size_t)r * ldw, int_bytes(i4, n));
    }
    few_step(i4, R, C, buf, VB, q, ldq, a);
}

/* A block of R rows, and what to prefetch meanwhile: one cache line for each
 * line that is used, `step` bytes apart from row to row. */
struct few_rows {
    const char *w;
    size_t ldw;
    const char *ahead; /* NULL: they are in the first cache already */
    size_t step;
    size_t stride; /* bytes that it advances when w advances by one */
};

/* Rows of one call. */
struct few_piece {
    const struct linear_job *j;
    bool i4;
    size_t end;   /* the row after them */
    size_t ahead; /* rows prefetched ahead, where rows are read whole */
    float *acc;
};

/* Where a row is; after the last row the stream continues elsewhere. */
INLINE const char *few_at(const struct few_piece *p, size_t row)
{
    const struct linear_job *j = p->j;
    return row < p->end || j->then == NULL
               ? j->w + row * j->ldw
               : j->then + (row - p->end) * j->ldw;
}

INLINE void few_ahead(const struct few_rows *f, int R, size_t i)
{
    const char *p = f->ahead + i * f->stride;
    for (int r = 0; r < R; r++, p += f->step) {
        __builtin_prefetch(p, 0, 3);
    }
}

/* Floats from column to column of the sums: four rows are a vector that goes
 * where the product's other rows are, fewer stay together. */
INLINE size_t few_lda(int R)
{
    return R == 4 ? LINEAR_MANY : (size_t)R;
}

/* n <= LINEAR_BLOCK elements of R rows and C columns: acc[c * lda + r]. */
INLINE void few_tile(bool i4, int R, int C, const struct few_rows *f,
                     const int16_t *q, size_t ldq, size_t n, float *acc,
                     bool first)
{
    UNSET vi a[4 * FEW_COLS];
    const size_t step = int_bytes(i4, VB);
    const size_t line = 64 / step * VB; /* elements in a cache line */
    const char *p = f->w;
    size_t i = 0;
    const int sums = (C * R + 3) / 4 * 4;
    for (int s = 0; s < sums; s++) {
        a[s] = vi_zero();
    }
    for (; f->ahead != NULL && i + line <= n; i += line) {
        few_ahead(f, R, int_bytes(i4, i));
        for (size_t s = 0; s < 64 / step; s++, p += step, q += VB) {
            few_step(i4, R, C, p, f->ldw, q, ldq, a);
        }
    }
    for (; i + VB <= n; i += VB, p += step, q += VB) {
        few_step(i4, R, C, p, f->ldw, q, ldq, a);
    }
    if (i < n) {
        few_tail(i4, R, C, p, f->ldw, n - i, q, ldq, a);
    }
    for (int s = 0; s + 4 <= C * R; s += 4) {
        vi_sum4(a + s, acc + (R == 4 ? (size_t)s / 4 * few_lda(R) : (size_t)s),
                first);
    }
    if (C * R % 4 != 0) { /* the neighbour's sums are not ours to touch */
        float rest[4];
        int s = C * R / 4 * 4;
        memcpy(rest, acc + s, (size_t)(C * R % 4) * sizeof(float));
        vi_sum4(a + s, rest, first);
        memcpy(acc + s, rest, (size_t)(C * R % 4) * sizeof(float));
    }
}

#define FEW_CASE(C)                                                            \
    case C:                                                                    \
        if (R == 4 ? C <= FEW_TALL : C >= FEW_COLS / 2 && C <= FEW_COLS) {     \
            few_tile(i4, R, C <= FEW_COLS ? C : 1, &f, q + c * j->ldq, j->ldq, \
                     n, acc + c * few_lda(R), k == 0);                         \
        }                                                                      \
        break

/* One block of R rows, n elements from k on: all columns. */
INLINE void few_block(const struct linear_job *j, bool i4, int R,
                      struct few_rows f, size_t k, size_t n, float *acc)
{
    const int16_t *q = j->q + k;
    for (size_t c = 0; c < j->cols;) {
        size_t left = j->cols - c;
        size_t tiles = (left + FEW_COLS - 1) / FEW_COLS;
        size_t take = R == 1 ? 1 : (left + tiles - 1) / tiles;
        if (R == 1) {
            few_tile(i4, 1, 1, &f, q + c * j->ldq, j->ldq, n, acc + c, k == 0);
        }
        switch (R == 1 ? 0 : take) {
            FEW_CASE(1);
            FEW_CASE(2);
            FEW_CASE(3);
            FEW_CASE(4);
            FEW_CASE(5);
            FEW_CASE(6);
            FEW_CASE(7);
            FEW_CASE(8);
        default:
            must(R == 1);
        }
        f.ahead = NULL;
        c += take;
    }
}

/* Splitting more than FEW_COLS columns evenly gives at least half as many. */
static_assert(FEW_TALL + 1 >= FEW_COLS / 2 && FEW_COLS <= 8, "tiles");

/* Group g of R rows from o on, the block at k. Rows that are read whole, one
 * group after another, are one stream, and are prefetched as one even where
 * they are read side by side: short rows some groups ahead, of long rows the
 * next group. All into the first cache: from the second cache, rows of 3072
 * were read at 0.93 of the rate (two columns, Zen 5). */
INLINE void few_group(const struct few_piece *p, int R, size_t o, size_t g,
                      size_t groups, size_t k)
{
    const struct linear_job *j = p->j;
    const size_t rows = (size_t)R;
    const size_t n = j->k - k < LINEAR_BLOCK ? j->k - k : LINEAR_BLOCK;
    const size_t at = int_bytes(p->i4, k);
    const size_t row = o + g * rows;
    struct few_rows f = {
        .w = j->w + row * j->ldw + at,
        .ldw = j->ldw,
        .step = 64,
        .stride = rows,
    };
    if (groups == 1) {
        f.ahead = few_at(p, row + p->ahead) + at * rows;
    } else { /* the block of a group that comes later */
        bool wraps = g * rows + AHEAD_ROWS >= groups * rows;
        f.step = j->ldw;
        f.stride = 1;
        if (!wraps) {
            f.ahead = j->w + (row + AHEAD_ROWS) * j->ldw + at;
        } else if (k + n < j->k) {
            f.ahead = j->w + (row + AHEAD_ROWS - groups * rows) * j->ldw +
                      int_bytes(p->i4, k + n);
        } else {
            f.ahead = few_at(p, row + AHEAD_ROWS);
        }
    }
    few_block(j, p->i4, R, f, k, n,
              p->acc + g * (R == 4 ? 4 : rows * j->cols));
}

/* `groups` times R rows from row o on. While the columns stay in the first
 * cache rows are read from end to end; longer ones pass by block by block, each
 * block of the columns for all groups. */
INLINE void few_groups(const struct few_piece *p, int R, size_t o,
                       size_t groups, bool blocks)
{
    const struct linear_job *j = p->j;
    const size_t rows = (size_t)R;
    if (blocks) {
        for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
            for (size_t g = 0; g < groups; g++) {
                few_group(p, R, o, g, groups, k);
            }
        }
    } else {
        for (size_t g = 0; g < groups; g++) {
            for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
                few_group(p, R, o, g, 1, k);
            }
        }
    }
    if (R == 4) {
        linear_finish(j, o, groups * rows, 0, j->n, p->acc, few_lda(R));
        return;
    }
    for (size_t g = 0; g < groups; g++) {
        linear_finish(j, o + g * rows, rows, 0, j->n,
                      p->acc + g * rows * j->cols, few_lda(R));
    }
}

/* Rows from o on in groups of R as far as they go; returns where they end. */
INLINE size_t few_rows_run(const struct few_piece *p, int R, size_t o)
{
    const struct linear_job *j = p->j;
    const size_t most = LINEAR_MANY / (size_t)R;
    const bool blocks = j->k > LINEAR_BLOCK &&
                        j->cols * j->k * sizeof(*j->q) > FEW_BYTES;
    while (o + (size_t)R <= p->end) {
        size_t groups = (p->end - o) / (size_t)R;
        groups = groups < most ? groups : most;
        few_groups(p, R, o, groups, blocks);
        o += groups * (size_t)R;
    }
    return o;
}

#include "engine/cpu/kernels/products/linear_one.h" /* of the pieces above, for what follows */

INLINE void few_run(const struct linear_job *j, bool i4, size_t begin,
                    size_t end, char *scratch)
{
    const struct few_piece p = {
        .j = j,
        .i4 = i4,
        .end = end,
        .ahead = (AHEAD_BYTES + j->ldw * 4 - 1) / (j->ldw * 4) * 4,
        .acc = (float *)(void *)scratch,
    };
    size_t o = begin;
    if (one_fits(j)) {
        o = one_run(j, i4, begin, end, scratch);
    } else if (FEW_TALL == FEW_COLS || j->cols <= FEW_TALL) {
        o = few_rows_run(&p, 4, o);
    } else {
        o = few_rows_run(&p, 2, o);
    }
    (void)few_rows_run(&p, 1, o);
}

static void int_few(const struct linear_job *j, size_t begin, size_t end,
                    void *scratch)
{
    if (j->kind == WEIGHT_I4) {
        few_run(j, true, begin, end, scratch);
    } else {
        few_run(j, false, begin, end, scratch);
    }
}

/* --- many columns ---
 * A tile of MANY_ROWS rows is unpacked once to int16, pairs of neighbours in k
 * from all rows side by side, and then meets all columns: one pair of a column
 * broadcast, no sums across. A set that defines none of these uses int_few for
 * any number of columns; any other set defines
 *   MANY_VECS                 vectors of rows in a tile, VB / 4 rows each
 *   MANY_COLS                 columns in a tile
 *   vi_pair(q)                the pair at q in every lane
 *   vi_split8(b, odd)         vi_half8 of what is in a vector already
 *   vi_transpose(vi t[VB / 4])  of int32 lanes
 *   vi_store, vi_floats(float *out, vi a, bool first)
 */
#if defined(MANY_VECS)

#define LANES     (VB / 4)
#define MANY_ROWS (MANY_VECS * LANES)

static_assert(MANY_ROWS <= LINEAR_MANY, "scratch");
static_assert(MANY_ROWS * LINEAR_BLOCK * 2 <= LINEAR_TILE, "scratch");

INLINE void many_store(const vi t[LANES], int16_t *tile)
{
    for (int i = 0; i < LANES; i++) {
        vi_store(tile + (size_t)i * MANY_ROWS * 2, t[i]);
    }
}

/* VB elements of LANES rows: their pairs transposed into a tile, those of the
 * even ones and then those of the odd ones. Four neighbours of int8 are one
 * pair of each, so that they are transposed before they are taken apart. */
INLINE void many_group(bool i4, const char *p, size_t ldw, int16_t *tile)
{
    UNSET vi t[LANES];
    UNSET vi half[LANES];
    for (size_t r = 0; r < LANES && !i4; r++) {
        t[r] = vi_load((const int16_t *)(const void *)(p + r * ldw));
    }
    if (!i4) {
        vi_transpose(t);
    }
    for (int odd = 0; odd < 2; odd++) {
        for (size_t r = 0; r < LANES; r++) {
            half[r] = i4 ? int_half(true, p + r * ldw, odd)
                         : vi_split8(t[r], odd);
        }
        if (i4) {
            vi_transpose(half);
        }
        many_store(half, tile);
        tile += (size_t)LANES * MANY_ROWS * 2;
    }
}

static __attribute__((noinline)) void
many_pack(bool i4, const char *w, size_t ldw, size_t n, int16_t *tile)
{
    UNSET char buf[LANES * VB];
    for (size_t i = 0; i < n; i += VB, tile += (size_t)VB * MANY_ROWS) {
        for (size_t v = 0; v < MANY_VECS; v++) {
            const char *p = w + v * LANES * ldw + int_bytes(i4, i);
            int16_t *t = tile + v * LANES * 2;
            size_t ld = ldw;
            if (i + VB > n) {
                memset(buf, 0, sizeof(buf));
                for (size_t r = 0; r < LANES; r++) {
                    memcpy(buf + r * VB, p + r * ldw, int_bytes(i4, n - i));
                }
                p = buf;
                ld = VB;
            }
            if (i4) {
                many_group(true, p, ld, t);
            } else {
                many_group(false, p, ld, t);
            }
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
    for (size_t p = 0; p < pairs; p++, q += 2, tile += (size_t)MANY_ROWS * 2) {
        UNSET const int16_t *base[(MANY_COLS + 2) / 3];
        for (int c = 0; c < C; c += 3) {
            base[c / 3] = q + (size_t)c * ldq;
            HOLD(base[c / 3]);
        }
        for (int v = 0; v < MANY_VECS; v++) {
            w[v] = vi_load(tile + (size_t)v * LANES * 2);
        }
        for (int c = 0; c < C; c++) {
            vi x = vi_pair(base[c / 3] + (size_t)(c % 3) * ldq);
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

/* The prefetch of the block of weights that is packed next: a few lines with
 * every tile of columns, into the second cache. */
#define ASK_COLS 256 /* for fewer it is a burst that products wait for */

struct many_ahead {
    const char *w; /* NULL: there is none */
    size_t ldw, lines; /* of 64 bytes in a row */
    size_t at;         /* lines prefetched */
};

INLINE void many_ask(struct many_ahead *a, size_t lines)
{
    for (; a->w != NULL && lines > 0 && a->at < MANY_ROWS * a->lines; lines--) {
        __builtin_prefetch(a->w + a->at / a->lines * a->ldw +
                               a->at % a->lines * 64,
                           0, 2);
        a->at++;
    }
}

/* A block of n elements from k on of MANY_ROWS rows from o on. */
struct many_block {
    const struct linear_job *j;
    size_t o, k, n;
    const int16_t *tile;
    float *acc;
};

/* Columns c .. c + C - 1. After the last block their results are finished while
 * the sums are at hand, and their way to memory passes beside the next
 * products; a wide row's second column stands elsewhere and is waited for. */
INLINE void many_some(const struct many_block *b, int C, size_t c)
{
    const struct linear_job *j = b->j;
    size_t pairs = (b->n + VB - 1) / VB * (VB / 2);
    many_tile(C, b->tile, pairs, j->q + c * j->ldq + b->k, j->ldq,
              b->acc + c * MANY_ROWS, b->k == 0);
    if (b->k + b->n == j->k && j->cols == j->n) {
        linear_finish(j, b->o, MANY_ROWS, c, c + (size_t)C, b->acc, MANY_ROWS);
    }
}

INLINE void many_columns(const struct many_block *b, struct many_ahead *ahead)
{
    const size_t cols = b->j->cols;
    size_t ask = MANY_ROWS * ahead->lines * MANY_COLS / cols + 1;
    size_t c = 0;
    for (; c + MANY_COLS <= cols; c += MANY_COLS) {
        many_ask(ahead, ask);
        many_some(b, MANY_COLS, c);
    }
    for (; c + 3 <= cols; c += 3) {
        many_some(b, 3, c);
    }
    for (; c < cols; c++) {
        many_some(b, 1, c);
    }
}

static void int_many(const struct linear_job *j, size_t begin, size_t end,
                     void *scratch)
{
    bool i4 = j->kind == WEIGHT_I4;
    int16_t *tile = scratch;
    float *acc = (float *)(void *)((char *)scratch + LINEAR_TILE);
    size_t o = begin;
    for (; o + MANY_ROWS <= end; o += MANY_ROWS) {
        const char *w = j->w + o * j->ldw;
        for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
            size_t n = j->k - k < LINEAR_BLOCK ? j->k - k : LINEAR_BLOCK;
            struct many_ahead ahead = {
                .ldw = j->ldw,
                .lines = (int_bytes(i4, n) + 63) / 64,
            };
            if (k + n < j->k) {
                ahead.w = w + int_bytes(i4, k + n);
            } else if (o + 2 * MANY_ROWS <= end) {
                ahead.w = w + MANY_ROWS * j->ldw;
            }
            if (j->cols < ASK_COLS) {
                ahead.w = NULL;
            }
            many_pack(i4, w + int_bytes(i4, k), j->ldw, n, tile);
            const struct many_block b = {j, o, k, n, tile, acc};
            many_columns(&b, &ahead);
        }
        if (j->cols > j->n) {
            linear_finish(j, o, MANY_ROWS, 0, j->n, acc, MANY_ROWS);
        }
    }
    int_few(j, o, end, scratch);
}

#endif
