/* linear_look.h - products with weights that are indices into tables of
 * integers (WEIGHT_LUT4, WEIGHT_LUT6); a part of linear_int.h.
 *
 * Included after the set has defined
 *   struct lk_table           a table as this set looks it up
 *   lk_set(kind, t, entries)
 *   lk_look(kind, t, p, w)    the VB weights whose indices begin at p, as the
 *                             two parts of a column are; int16 in a vi
 *   lk_dot(acc, w, x)         acc + products of 16 bits, two in each lane
 *   vi_high(a), vi_low(a)     a >> LOOK_SHIFT, and the bits below
 *   vi_put_wide(high, low, out, first)
 *                             out (+)= high * 2^LOOK_SHIFT + low, rounded once;
 *                             both are below 2^24 and thus exact as floats
 *   vi_store                  of a part
 *   LOOK_KEEP                 (optional) columns stay in registers from row to
 *                             row
 *
 * Entries of 13 bits times activations of 15 fill an int32 after LOOK_PRODUCTS
 * products. A lane is then split: what is above LOOK_SHIFT bits is added to a
 * second accumulator, the rest stays. Sums of a block are exact, whatever the
 * number of lanes, so they are the same everywhere, and are rounded to float
 * once. A single row (linear_one.h) has so many accumulators that it needs no
 * split inside a block. Where a block meets more columns than fit in a tile it
 * is looked up once, into the first cache, and read from there.
 */
#pragma once

#define LOOK_RUN   ((size_t)LOOK_PRODUCTS / 4 * VB) /* elements of a tile */
#define LOOK_ONE   ((size_t)LOOK_PRODUCTS * VB)     /* of a single row */
#define LOOK_WORDS WEIGHT_ROWS /* a kind: weights that are looked up already \
                                */
#define LOOK_COLS (FEW_TALL == FEW_COLS && FEW_COLS > 4 ? 4 : FEW_COLS)

static_assert((int64_t)LOOK_PRODUCTS * WEIGHT_TABLE_PEAK * (int)LINEAR_PEAK <
                  INT32_MAX - (1 << LOOK_SHIFT),
              "a lane");

INLINE bool look_has(int kind)
{
    return kind == LOOK_WORDS || kind == WEIGHT_LUT4 || kind == WEIGHT_LUT6;
}

INLINE size_t look_bytes(int kind, size_t n)
{
    return kind == LOOK_WORDS ? n * sizeof(int16_t) : int_bytes(kind, n);
}

/* *high is in memory, and stays there: all at once would take more registers
 * than there are. */
INLINE void look_split(vi *a, vi *high)
{
    *high = vi_add(*high, vi_high(*a));
    RELOAD();
    *a = vi_low(*a);
    ORDER(*a);
}

INLINE void look_weights(int kind, const struct lk_table *t, const char *p,
                         vi w[2])
{
    if (kind == LOOK_WORDS) {
        const int16_t *words = (const int16_t *)(const void *)p;
        w[0] = vi_load(words);
        w[1] = vi_load(words + VB / 2);
    } else {
        lk_look(kind, t, (const uint8_t *)(const void *)p, w);
    }
}

/* The tables of R rows. Neighbours often share one. */
INLINE void look_tables(int kind, const struct linear_job *j, size_t row, int R,
                        struct lk_table *t)
{
    const int16_t *last = NULL;
    for (int r = 0; r < R; r++) {
        const int16_t *entries = linear_table(j, row + (size_t)r);
        if (r > 0 && entries == last) {
            t[r] = t[r - 1];
        } else {
            lk_set(kind, &t[r], entries);
        }
        last = entries;
    }
}

/* One step of R rows times C columns. */
INLINE void look_step(int kind, int R, int C, const struct lk_table *t,
                      const char *p, size_t ldw, const int16_t *q, size_t ldq,
                      vi *a)
{
#if defined(LOOK_KEEP)
    UNSET vi x[FEW_COLS][2];
    for (int c = 0; c < C; c++) {
        x[c][0] = vi_load(q + (size_t)c * ldq);
        x[c][1] = vi_load(q + (size_t)c * ldq + VB / 2);
    }
#endif
    for (int r = 0; r < R; r++) {
        UNSET vi w[2];
        look_weights(kind, &t[r], p + (size_t)r * ldw, w);
        for (int part = 0; part < 2; part++) { /* neighbours: other sums */
            for (int c = 0; c < C; c++) {
#if defined(LOOK_KEEP)
                vi v = x[c][part];
#else
                vi v = vi_load(q + (size_t)c * ldq + part * (VB / 2));
#endif
                a[c * R + r] = lk_dot(a[c * R + r], w[part], v);
            }
        }
    }
}

/* The last n < VB elements of R rows: nothing after them is read. What else is
 * looked up meets zeros. */
INLINE void look_tail(int kind, int R, int C, const struct lk_table *t,
                      const char *p, size_t ldw, size_t n, const int16_t *q,
                      size_t ldq, vi *a)
{
    char buf[4 * VB] = {0};
    for (int r = 0; r < R; r++) {
        memcpy(buf + r * VB, p + (size_t)r * ldw, look_bytes(kind, n));
    }
    look_step(kind, R, C, t, buf, VB, q, ldq, a);
}

/* The prefetch that belongs to the step of `step` bytes at byte `at` of the
 * rows. */
INLINE void look_ahead(const struct few_rows *f, int R, size_t at, size_t step)
{
    if (f->ahead != NULL && at % 64 < step) {
        few_ahead(f, R, at / 64 * 64);
    }
}

/* few_tile. */
INLINE void look_tile(int kind, int R, int C, const struct few_rows *f,
                      const int16_t *q, size_t ldq, size_t n, float *acc,
                      bool first)
{
    UNSET vi a[4 * FEW_COLS + 3];
    UNSET vi high[4 * FEW_COLS + 3];
    const size_t step = look_bytes(kind, VB);
    const int sums = (C * R + 3) / 4 * 4;
    const char *p = f->w;
    for (int s = 0; s < sums; s++) {
        a[s] = high[s] = vi_zero();
    }
    for (size_t i = 0; i < n;) {
        size_t stop = n - i < LOOK_RUN ? n : i + LOOK_RUN;
        for (; i + VB <= stop; i += VB, p += step, q += VB) {
            look_ahead(f, R, look_bytes(kind, i), step);
            look_step(kind, R, C, f->table, p, f->ldw, q, ldq, a);
        }
        if (kind != LOOK_WORDS && i < stop) { /* those come in whole steps */
            look_tail(kind, R, C, f->table, p, f->ldw, n - i, q, ldq, a);
            i = n;
        }
        for (int s = 0; s < C * R; s++) {
            look_split(&a[s], &high[s]);
        }
    }
    for (int s = 0; s < sums; s += 4) {
        float *to = acc + (R == 4 ? (size_t)s / 4 * few_lda(R) : (size_t)s);
        float rest[4] = {0};
        bool whole = s + 4 <= C * R; /* the neighbour's sums are not ours */
        size_t have = whole ? 4 : (size_t)(C * R - s);
        memcpy(rest, to, have * sizeof(float));
        vi_put_wide(vi_across(high + s), vi_across(a + s), rest, first);
        memcpy(to, rest, have * sizeof(float));
    }
}

/* n elements of R rows as LOOK_WORDS, LINEAR_BLOCK from row to row. */
INLINE void look_words(int kind, int R, const struct few_rows *f, size_t n,
                       int16_t *words)
{
    const size_t step = look_bytes(kind, VB);
    for (size_t i = 0; i < n; i += VB) {
        const size_t at = look_bytes(kind, i);
        look_ahead(f, R, at, step);
        for (int r = 0; r < R; r++) {
            UNSET vi w[2];
            char buf[VB];
            const char *p = f->w + (size_t)r * f->ldw + at;
            if (i + VB > n) {
                memset(buf, 0, sizeof(buf));
                memcpy(buf, p, look_bytes(kind, n - i));
                p = buf;
            }
            look_weights(kind, &f->table[r], p, w);
            vi_store(words + (size_t)r * LINEAR_BLOCK + i, w[0]);
            vi_store(words + (size_t)r * LINEAR_BLOCK + i + VB / 2, w[1]);
        }
    }
}

/* --- a single row --- */

/* n <= LINEAR_BLOCK elements: four steps at a time, each with a sum of its own,
 * so that no product waits for the one before. *high, *low: their lanes. */
INLINE void look_block(int kind, const struct lk_table *t, const char *p,
                       const char *ahead, const int16_t *q, size_t n, vi *high,
                       vi *low)
{
    const size_t step = look_bytes(kind, VB);
    *high = *low = vi_zero();
    for (size_t i = 0; i < n;) {
        UNSET vi a[4];
        size_t stop = n - i < LOOK_ONE ? n : i + LOOK_ONE;
        for (int s = 0; s < 4; s++) {
            a[s] = vi_zero();
        }
        for (; i + (size_t)4 * VB <= stop; i += (size_t)4 * VB) {
            for (size_t line = 0; line < 4 * step; line += 64) {
                __builtin_prefetch(ahead + line, 0, 3);
            }
            for (int s = 0; s < 4; s++, p += step, ahead += step, q += VB) {
                look_step(kind, 1, 1, t, p, 0, q, 0, a + s);
            }
        }
        for (int s = 0; s < 3; s++) {
            if (i + VB <= stop) {
                __builtin_prefetch(ahead, 0, 3);
                look_step(kind, 1, 1, t, p, 0, q, 0, a + s);
                i += VB;
                p += step;
                ahead += step;
                q += VB;
            }
        }
        if (i < stop) {
            look_tail(kind, 1, 1, t, p, 0, n - i, q, 0, a + 3);
            i = n;
        }
        for (int s = 0; s < 4; s++) {
            *high = vi_add(*high, vi_high(a[s]));
            *low = vi_add(*low, vi_low(a[s]));
        }
    }
}

/* one_rows (linear_one.h): `rows` rows from o on, a multiple of four. */
INLINE void look_rows(const struct linear_job *j, int kind, size_t o,
                      size_t rows, const char *end, float *sums)
{
    UNSET vi high[4];
    UNSET vi low[4];
    struct lk_table t = {0};
    const int16_t *last = NULL;
    size_t have = 0;
    for (size_t r = o; r < o + rows; r++) {
        const int16_t *entries = linear_table(j, r);
        if (entries != last) {
            lk_set(kind, &t, entries);
            last = entries;
        }
        for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
            size_t n = j->k - k < LINEAR_BLOCK ? j->k - k : LINEAR_BLOCK;
            const char *p = j->w + r * j->ldw + look_bytes(kind, k);
            const char *ahead = p + AHEAD_BYTES;
            if (ahead >= end && j->then != NULL) {
                ahead = j->then + (ahead - end);
            }
            look_block(kind, &t, p, ahead, j->q + k, n, &high[have % 4],
                       &low[have % 4]);
            if (++have % 4 == 0) {
                vi_put_wide(vi_across(high), vi_across(low), sums + have - 4,
                            true);
            }
        }
    }
}
