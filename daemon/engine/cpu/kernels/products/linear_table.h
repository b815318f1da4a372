/* linear_table.h - products with weights that are indices of four bits into a
 * table of 16 floats (WEIGHT_LUT4), a template over a few vector operations.
 *
 * Included by a kernel_NAME.c that defines
 *   TB_STEP           elements looked up at once, 16 or 32
 *   TB_COLS           columns in a tile, at most TABLE_COLS
 *   TB_ROWS(C)        rows in a tile of C columns
 *   tb_vec, TB_VECS   floats, and how many of them hold 16
 *   tb_zero, tb_load, tb_fma(a, b, c), tb_and
 *   struct tb_table   a table as this set looks it up
 *   tb_table_set(t, lut)
 *   tb_look(t, p, w)  the TB_STEP weights whose indices lie at p, in an order
 *                     that is the set's own inside every 16
 *   tb_order(to, x)   TB_STEP elements of a column in that order
 *   tb_sum4(a, out)   the sums of four accumulators of TB_VECS each
 *
 * The arithmetic is gemm.h's and so are the bits: element k of a row goes to
 * lane k % 16 by a fused multiply-add, k in order, zeros after the row's end,
 * and tb_sum4 adds the lanes up as v16_sum does. A lane may lie anywhere in the
 * registers: nibbles then fall apart by a shift or two where the natural order
 * would take as many shuffles again, and each thread lays its columns out alike
 * (some hundred nanoseconds, for thousands of rows).
 *
 * These are a quarter of fp16's bytes, so the instructions count before the bus
 * does. A table is held in registers, entries are looked up there, and an entry
 * serves every column of the tile at once. Decoding rows to memory first took 7
 * to 8 times as long for one column; where registers are few (avx2), stretches
 * of 512 elements in the first cache took as long for 8 columns as looking up
 * twice, and a quarter longer for 4. A chain of multiply-adds cannot be split
 * without other bits, so a single column takes several rows, and neighbouring
 * rows are prefetched as one stream.
 */
#pragma once

#include "engine/cpu/kernels/products/linear_impl.h"

#define TB_LOOK  (TB_STEP / 16 * TB_VECS) /* registers that tb_look fills */
#define TB_LANES ((size_t)16 / TB_VECS)
#define TB_LINE  128 /* elements in a cache line */
#define TB_TALL  8   /* rows in the tallest tile */

#define TABLE_AHEAD 6144   /* prefetch distance in bytes */
#define TABLE_SHORT 8192   /* in a group of short rows; others: a group ahead */
#define TABLE_BYTES 262144 /* of rows that stay in the second cache */

static_assert(TB_COLS <= TABLE_COLS && TB_LINE % TB_STEP == 0, "tiles");

/* Columns as tb_look has the weights, ld apart, and what is of the last step:
 * ones where there are elements. */
struct table_cols {
    const float *x;
    size_t ld;
    const float *mask;
};

/* R rows of a tile and what is read after the last row of the piece. */
struct table_tile {
    const char *w;
    size_t ldw, k;
    const char *end, *then;
};

/* One step of R rows times C columns; mask: NULL, or what there is of its
 * first `used` registers, the only ones that count. */
INLINE void table_step(int R, int C, const struct tb_table *t, const char *p,
                       size_t ldw, const float *x, size_t ldx,
                       const float *mask, int used, tb_vec *a)
{
    UNSET tb_vec w[TB_TALL][TB_LOOK];
    for (int r = 0; r < R; r++) {
        tb_look(&t[r], p + (size_t)r * ldw, w[r]);
        for (int s = 0; mask != NULL && s < used; s++) {
            tb_vec m = tb_load(mask + (size_t)s * TB_LANES);
            w[r][s] = tb_and(w[r][s], m);
        }
    }
    for (int c = 0; c < C; c++) {
        for (int s = 0; s < used; s++) {
            tb_vec v = tb_load(x + (size_t)c * ldx + (size_t)s * TB_LANES);
            for (int r = 0; r < R; r++) {
                tb_vec *sum = &a[(c * R + r) * TB_VECS + s % TB_VECS];
                *sum = tb_fma(w[r][s], v, *sum);
            }
        }
    }
}

/* The last n < TB_STEP elements: nothing after them is read. Whole lanes of
 * 16, as gemm.c does it: one that was -0 becomes 0. */
INLINE void table_tail(int R, int C, const struct tb_table *t, const char *p,
                       size_t ldw, size_t n, const struct table_cols *f,
                       const float *x, tb_vec *a)
{
    const size_t size = TB_STEP / 2;
    char buf[TB_TALL * TB_STEP / 2] = {0};
    for (size_t r = 0; r < (size_t)R; r++) {
        memcpy(buf + r * size, p + r * ldw, n / 2);
    }
    if (n <= 16) {
        table_step(R, C, t, buf, size, x, f->ld, f->mask, TB_VECS, a);
    } else {
        table_step(R, C, t, buf, size, x, f->ld, f->mask, TB_LOOK, a);
    }
}

/* out[c * R + r] */
INLINE void table_sums(int R, int C, const struct table_tile *g,
                       const struct tb_table *t, const struct table_cols *f,
                       float *out)
{
    UNSET tb_vec a[(16 + 3) * TB_VECS];
    const int sums = (R * C + 3) / 4 * 4;
    const size_t group = (size_t)R * g->ldw;
    const bool tall = group > TABLE_SHORT;
    const char *p = g->w;
    const char *ahead = p + (tall ? group : TABLE_AHEAD);
    const float *x = f->x;
    size_t i = 0;
    if (ahead >= g->end && g->then != NULL) {
        ahead = g->then + (ahead - g->end);
    }
    for (int s = 0; s < sums * TB_VECS; s++) {
        a[s] = tb_zero();
    }
    for (; i + TB_LINE <= g->k; i += TB_LINE) {
        for (int r = 0; r < R; r++, ahead += 64) {
            if (tall) {
                __builtin_prefetch(ahead, 0, 2);
            } else {
                __builtin_prefetch(ahead, 0, 3);
            }
        }
        for (int s = 0; s < TB_LINE / TB_STEP; s++) {
            table_step(R, C, t, p, g->ldw, x, f->ld, NULL, TB_LOOK, a);
            p += TB_STEP / 2;
            x += TB_STEP;
        }
    }
    for (; i + TB_STEP <= g->k; i += TB_STEP) {
        table_step(R, C, t, p, g->ldw, x, f->ld, NULL, TB_LOOK, a);
        p += TB_STEP / 2;
        x += TB_STEP;
    }
    if (i < g->k) {
        table_tail(R, C, t, p, g->ldw, g->k % TB_STEP, f, x, a);
    }
    for (int s = 0; s < sums; s += 4) {
        tb_sum4(a + s * TB_VECS, out + s);
    }
}

/* Rows from o on, R at a time, with C columns from c on; returns where they
 * end. */
INLINE size_t table_group(int R, int C, const struct linear_job *j, size_t o,
                          size_t end, size_t c, const struct table_cols *f)
{
    struct tb_table t[TB_TALL] = {0};
    UNSET float out[16 + 3];
    const float *of[TB_TALL] = {NULL};
    struct table_tile g = {.ldw = j->ldw,
                           .k = j->k,
                           .end = j->w + end * j->ldw,
                           .then = j->then};
    for (; o + (size_t)R <= end; o += (size_t)R) {
        for (size_t r = 0; r < (size_t)R; r++) {
            const float *lut = j->lut + (o + r) / j->lut_rows * 16;
            if (lut != of[r]) {
                of[r] = lut;
                tb_table_set(&t[r], lut);
            }
        }
        g.w = j->w + o * j->ldw;
        table_sums(R, C, &g, t, f, out);
        for (size_t i = 0; i < (size_t)(R * C); i++) {
            size_t at = o + i % (size_t)R;
            float bias = j->bias != NULL ? j->bias[at] : 0.0f;
            float *y = &j->y[(c + i / (size_t)R) * j->ldy + at];
            *y = j->bias != NULL ? out[i] + bias : out[i];
        }
    }
    return o;
}

#define TABLE_CASE(C)                                                   \
    case C:                                                             \
        if (C <= TB_COLS) {                                             \
            o = table_group(TB_ROWS(C), C, j, o, end, c, &f);           \
            (void)table_group(1, C, j, o, end, c, &f);                  \
        }                                                               \
        break

/* Rows [o, end) with n columns from c on. */
static void table_block(const struct linear_job *j, size_t o, size_t end,
                        size_t c, size_t n, float *room)
{
    struct table_cols f = {.x = room, .ld = table_stride(j->k)};
    float *mask = room + TABLE_COLS * f.ld;
    float part[TB_STEP];
    f.mask = mask;
    for (size_t i = 0; i < n; i++) {
        const float *x = j->x + (c + i) * j->ldx;
        float *to = room + i * f.ld;
        size_t k = 0;
        for (; k + TB_STEP <= j->k; k += TB_STEP) {
            tb_order(to + k, x + k);
        }
        memset(part, 0, sizeof(part));
        memcpy(part, x + k, (j->k - k) * sizeof(float));
        tb_order(to + k, part);
    }
    memset(part, 0, sizeof(part));
    memset(part, 0xff, j->k % TB_STEP * sizeof(float));
    tb_order(mask, part);
    switch (n) {
        TABLE_CASE(1);
        TABLE_CASE(2);
        TABLE_CASE(3);
        TABLE_CASE(4);
        TABLE_CASE(5);
        TABLE_CASE(6);
        TABLE_CASE(7);
        TABLE_CASE(8);
    default:
        must(false);
    }
}

static void table_rows(const struct linear_job *j, size_t begin, size_t end,
                       void *scratch)
{
    size_t step = j->n > TB_COLS ? TABLE_BYTES / j->ldw + TB_TALL : end - begin;
    for (size_t o = begin; o < end; o += step) {
        size_t stop = end - o < step ? end : o + step;
        for (size_t c = 0; c < j->n;) {
            size_t left = j->n - c;
            size_t tiles = (left + TB_COLS - 1) / TB_COLS;
            size_t n = (left + tiles - 1) / tiles;
            table_block(j, o, stop, c, n, scratch);
            c += n;
        }
    }
}
