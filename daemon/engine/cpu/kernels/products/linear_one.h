/* linear_one.h - integer products of one column, the part of linear_int.h that
 * takes most of the time of decoding one token.
 *
 * Only the memory bus limits the speed here, and it is fastest when lines are
 * read in the order of their addresses: reading rows side by side costs a
 * tenth, even when all lines are prefetched in order (rows of 3072 and 8192,
 * two Zen 5 cores). So one row is read from end to end, and then the next one.
 * Sums of blocks are kept as vectors until there are four to sum across, from
 * any rows. For two columns the same is 4 to 9 % faster where both cores share
 * a last-level cache and 8 % slower (1.5B) where they do not: there are then
 * too many loads of the columns.
 */
#pragma once

#define ONE_ROWS 4 /* of any number of blocks: vi_sum4 comes out even */

/* Blocks of a row. */
INLINE size_t one_blocks(const struct linear_job *j, int kind)
{
    return (j->k + int_block(kind) - 1) / int_block(kind);
}

/* One column, and the sums of ONE_ROWS rows fit where a tile would lie? */
INLINE bool one_fits(const struct linear_job *j, int kind)
{
    return j->cols == 1 &&
           one_blocks(j, kind) <= LINEAR_TILE / sizeof(float) / ONE_ROWS;
}

/* The lines at p and at q, into sums of their own for the two parts. */
INLINE void one_line(int kind, const char *p, const int16_t *q, vi a[2])
{
    const size_t step = int_bytes(kind, VB);
    for (size_t at = 0; at < 64; at += step, q += VB) {
        for (int part = 0; part < 2; part++) {
            a[part] = vi_dot(a[part], int_half(kind, p + at, part),
                             vi_load(q + part * (VB / 2)));
        }
    }
}

/* A block of n elements: two lines at a time, so that no product waits for the
 * one before. */
INLINE vi one_block(int kind, const char *p, const char *ahead, enum ahead to,
                    const int16_t *q, size_t n)
{
    UNSET vi a[4];
    const size_t step = int_bytes(kind, VB);
    const size_t line = 64 / step * VB; /* elements */
    size_t i = 0;
    for (int s = 0; s < 4; s++) {
        a[s] = vi_zero();
    }
    for (; i + 2 * line <= n; i += 2 * line, p += 128, ahead += 128) {
        ahead_line(ahead, to);
        ahead_line(ahead + 64, to);
        one_line(kind, p, q + i, a);
        one_line(kind, p + 64, q + i + line, a + 2);
    }
    for (; i + VB <= n; i += VB, p += step) {
        few_step(kind, 1, 1, p, 0, q + i, 0, a);
    }
    if (i < n) {
        few_tail(kind, 1, 1, p, 0, n - i, q + i, 0, a);
    }
    return vi_join(vi_add(a[0], a[2]), vi_add(a[1], a[3]));
}

/* ONE_ROWS rows from o on: the sums of their blocks. end: of the piece, where
 * the thread continues to read elsewhere. */
INLINE void one_rows(const struct linear_job *j, int kind, enum ahead to,
                     size_t o, const char *end, float *sums)
{
    UNSET vi s[4];
    size_t have = 0;
    if (look_has(kind)) {
        look_rows(j, kind, to, o, ONE_ROWS, end, sums);
        return;
    }
    for (size_t r = o; r < o + ONE_ROWS; r++) {
        for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
            const size_t n = int_block_at(kind, j->k, k);
            const char *p = j->w + r * j->ldw + int_bytes(kind, k);
            const char *ahead = p + ahead_bytes(to);
            if (ahead >= end && j->then != NULL) {
                ahead = j->then + (ahead - end);
            }
            s[have % 4] = one_block(kind, p, ahead, to, j->q + k, n);
            if (++have % 4 == 0) {
                vi_sum4(s, sums + have - 4, true);
            }
        }
    }
}

/* The blocks' sums of ONE_ROWS rows, added in the order of k. */
INLINE void one_add(size_t blocks, const float *sums, float *acc)
{
    for (size_t r = 0; r < ONE_ROWS; r++, sums += blocks) {
        float a = sums[0];
        for (size_t b = 1; b < blocks; b++) {
            a += sums[b];
        }
        acc[r] = a;
    }
}

/* Rows from o on in groups of ONE_ROWS; returns where they end. to: the job's,
 * known to the compiler: a branch in the loop costs up to a twentieth. */
INLINE size_t one_run(const struct linear_job *j, int kind, enum ahead to,
                      size_t o, size_t end, char *scratch)
{
    float *sums = (float *)(void *)scratch;
    float *acc = (float *)(void *)(scratch + LINEAR_TILE);
    const char *stop = j->w + end * j->ldw;
    while (o + ONE_ROWS <= end) {
        size_t n = (end - o) / ONE_ROWS * ONE_ROWS;
        n = n < LINEAR_MANY ? n : LINEAR_MANY;
        for (size_t r = 0; r < n; r += ONE_ROWS) {
            one_rows(j, kind, to, o + r, stop, sums);
            one_add(one_blocks(j, kind), sums, acc + r);
        }
        linear_finish(j, o, n, 0, j->n, acc, LINEAR_MANY);
        o += n;
    }
    return o;
}
