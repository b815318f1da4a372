/* linear_look_one.h - products of a single row and column with tables, the part
 * of linear_look.h that takes most of the time of decoding one token with 4 or
 * 6 bits. linear_one.h says in which order rows are read.
 *
 * Four sums are kept, so that no product waits for the one before; a block has
 * so few products for each of them that no lane is split.
 */
#pragma once

#include "engine/cpu/kernels/products/linear_look.h"

/* Of a single row and column, with a sum for each half of a pair. */
INLINE void look_pair_one(const struct lk_table *t, const char *p,
                          const int16_t *q, vi a[2])
{
    const vi k = vi_load((const int16_t *)(const void *)p); /* once */
    for (int half = 0; half < 2; half++) {
        UNSET vi w[2];
        lk_pair(t, k, half, w);
        for (int part = 0; part < 2; part++) {
            a[half] = lk_dot(a[half], w[part],
                             vi_load(q + (2 * half + part) * (VB / 2)));
        }
    }
}

/* What is left of a row after whole pairs of pairs, less than 4 * VB elements:
 * no sum gets more products than one of these has. */
INLINE void look_rest(int kind, const struct lk_table *t, const char *p,
                      const char *ahead, enum ahead to, const int16_t *q,
                      size_t n, vi a[4])
{
    if (n >= (size_t)2 * VB) {
        ahead_line(ahead, to);
        look_pair_one(t, p, q, a);
        p += look_bytes(kind, (size_t)2 * VB);
        q += (size_t)2 * VB;
        n -= (size_t)2 * VB;
    }
    if (n > VB) {
        char buf[VB] = {0};
        memcpy(buf, p, look_bytes(kind, n));
        look_pair_one(t, buf, q, a + 2);
    } else if (n > 0) {
        look_tail(kind, 1, 1, t, p, 0, n, q, 0, a + 2);
    }
}

/* n <= LOOK_ONE elements: four steps at a time, each with a sum of its own, so
 * that no product waits for the one before. *high, *low: their lanes. */
INLINE void look_lanes(int kind, const struct lk_table *t, const char *p,
                       const char *ahead, enum ahead to, const int16_t *q,
                       size_t n, vi *high, vi *low)
{
    const size_t step = look_bytes(kind, VB);
    UNSET vi a[4];
    size_t i = 0;
    for (int s = 0; s < 4; s++) {
        a[s] = vi_zero();
    }
    for (; i + (size_t)4 * VB <= n; i += (size_t)4 * VB) {
        for (size_t line = 0; line < 4 * step; line += 64) {
            ahead_line(ahead + line, to);
        }
        if (look_pairs_one(kind)) {
            look_pair_one(t, p, q, a);
            look_pair_one(t, p + 2 * step, q + (size_t)2 * VB, a + 2);
            p += 4 * step;
            ahead += 4 * step;
            q += (size_t)4 * VB;
            continue;
        }
        for (int s = 0; s < 4; s++, p += step, ahead += step, q += VB) {
            look_step(kind, 1, 1, t, p, 0, q, 0, a + s);
        }
    }
    if (look_pairs_one(kind)) {
        look_rest(kind, t, p, ahead, to, q, n - i, a);
        i = n;
    }
    for (int s = 0; s < 3; s++) {
        if (i + VB <= n) {
            ahead_line(ahead, to);
            look_step(kind, 1, 1, t, p, 0, q, 0, a + s);
            i += VB;
            p += step;
            ahead += step;
            q += VB;
        }
    }
    if (i < n) {
        look_tail(kind, 1, 1, t, p, 0, n - i, q, 0, a + 3);
    }
    *high = vi_add(vi_add(vi_high(a[0]), vi_high(a[1])),
                   vi_add(vi_high(a[2]), vi_high(a[3])));
    *low = vi_add(vi_add(vi_low(a[0]), vi_low(a[1])),
                  vi_add(vi_low(a[2]), vi_low(a[3])));
}

/* The same of n <= LOOK_BLOCK. less: narrow_less. */
INLINE void look_block(int kind, const struct lk_table *t, const char *p,
                       const char *ahead, enum ahead to, const int16_t *q,
                       size_t less, size_t n, vi *high, vi *low)
{
    if (kind == LOOK_NARROW) { /* look_sums4 splits it */
        *low = narrow_one(t, p, ahead, to, q, less, n);
        return;
    }
    size_t have = LOOK_ONE < LOOK_BLOCK && n > LOOK_ONE ? LOOK_ONE : n;
    look_lanes(kind, t, p, ahead, to, q, have, high, low);
    for (size_t i = have; LOOK_ONE < LOOK_BLOCK && i < n; i += have) {
        UNSET vi more[2];
        const size_t at = look_bytes(kind, i);
        have = n - i < LOOK_ONE ? n - i : LOOK_ONE;
        look_lanes(kind, t, p + at, ahead + at, to, q + i, have, &more[0],
                   &more[1]);
        *high = vi_add(*high, more[0]);
        *low = vi_add(*low, more[1]);
    }
}

/* Four sums of lanes. Those of narrow tables are whole, and fit in int32 if rows
 * are short. */
INLINE void look_sums4(int kind, bool fit, vi high[4], vi low[4], float *sums)
{
    if (fit) {
        vi_put(vi_across(low), sums, true);
        return;
    }
    for (int i = 0; kind == LOOK_NARROW && i < 4; i++) {
        high[i] = vi_high(low[i]);
        low[i] = vi_low(low[i]);
    }
    vi_put_wide(vi_across(high), vi_across(low), sums, true);
}

/* one_rows (linear_one.h): `rows` rows from o on, a multiple of four. */
INLINE void look_rows(const struct linear_job *j, int kind, enum ahead to,
                      size_t o, size_t rows, const char *end, float *sums)
{
    UNSET vi high[4];
    UNSET vi low[4];
    UNSET struct lk_table t;
    struct look_at at = look_at(kind, j, o);
    size_t have = 0;
    const bool fit = kind == LOOK_NARROW && j->k <= LINEAR_BLOCK;
    lk_set(kind, &t, at.entries);
    for (size_t r = o; r < o + rows; r++) {
        for (size_t k = 0; k < j->k; k += LOOK_BLOCK) {
            const size_t n = int_block_at(kind, j->k, k);
            const char *p = j->w + r * j->ldw + look_bytes(kind, k);
            const char *ahead = p + ahead_bytes(to);
            if (ahead >= end && j->then != NULL) {
                ahead = j->then + (ahead - end);
            }
            look_block(kind, &t, p, ahead, to, j->q + k, narrow_less(j->k, k),
                       n, &high[have % 4], &low[have % 4]);
            if (++have % 4 == 0) {
                look_sums4(kind, fit, high, low, sums + have - 4);
            }
        }
        if (r + 1 < o + rows && look_next(kind, j, &at)) {
            lk_set(kind, &t, at.entries);
        }
    }
}
