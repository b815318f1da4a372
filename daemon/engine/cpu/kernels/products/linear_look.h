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
 *   LOOK_EIGHT true           (optional) eight sums of a tile of 4 rows at once:
 *   lk_put8(a, out, next, first)
 *                             the first four to out, the others to next, as
 *                             vi_put_wide does
 *   LOOK_KEEP                 (optional) columns stay in registers from row to
 *                             row
 *   LOOK_DIRECT               (optional) columns for which indices are looked
 *                             up where they are used; for more once, see below.
 *                             Pairs are for all columns of a tile
 *   LOOK_MEASURED             (optional) columns are words, and are measured
 *                             (kernels.run); with vi_abs and vi_ones
 *   LOOK_PAIRS                (optional) WEIGHT_LUT4 is looked up 2 * VB weights
 *                             at a time, which needs fewer instructions, with
 *                             columns in an order of their own: PAIRS_ONE, a
 *                             single row and column, or PAIRS_ALL
 *   lk_pair(t, k, half, w)    a half of the weights whose indices are in k
 *   pair_words(q, to)         2 * VB elements of a column: the two parts of the
 *                             first half of a pair, then those of the second
 *   LOOK_NARROWS              (optional) LOOK_NARROW is known (linear_narrow.h)
 *
 * Entries of 13 bits times activations of 15 fill an int32 after LOOK_PRODUCTS
 * products. A lane is then split: what is above LOOK_SHIFT bits is added to a
 * second accumulator, the rest stays. That is for columns of peaks alone: what
 * columns hold is measured, and usually a lane has room for a whole block
 * (kernels.run). Sums of a block are exact, wherever lanes are split and
 * however many there are, so they are the same everywhere, and are rounded to
 * float once. A single row (linear_one.h) has so many accumulators that it
 * needs no split inside a block. Where a block meets more columns than
 * look_direct it is looked up once, into the first cache, and read from there.
 * Pairs go row by row: with the tables and sums of two rows, and columns that
 * both would read, 16 registers do not do (AVX2, 4 columns: 0.6 of the speed).
 */
#pragma once

#define LOOK_RUN   ((size_t)LOOK_PRODUCTS / 4 * VB) /* elements of a tile */
#define LOOK_ONE   ((size_t)LOOK_PRODUCTS * VB)     /* of a single row */
#define LOOK_WORDS WEIGHT_ROWS /* a kind: weights that are looked up already \
                                */
#define LOOK_COLS (FEW_TALL == FEW_COLS && FEW_COLS > 4 ? 4 : FEW_COLS)
#if !defined(LOOK_DIRECT)
#define LOOK_DIRECT LOOK_COLS
#endif
#if !defined(LOOK_EIGHT)
#define LOOK_EIGHT false
#define lk_put8(a, out, next, first) \
    ((void)(a), (void)(out), (void)(next), (void)(first)) /* never used */
#endif

#define PAIRS_ONE 1
#define PAIRS_ALL 2
#if !defined(LOOK_PAIRS)
#define LOOK_PAIRS 0
#define lk_pair(t, k, half, w) \
    ((void)(t), (void)(k), (void)(half), (void)(w)) /* never used */
#endif

static_assert((int64_t)LOOK_PRODUCTS * WEIGHT_TABLE_PEAK * (int)LINEAR_PEAK <
                  INT32_MAX - (1 << LOOK_SHIFT),
              "a lane");
static_assert(((int64_t)LOOK_BLOCK * WEIGHT_TABLE_PEAK * (int)LINEAR_PEAK >>
               LOOK_SHIFT) < (1 << 24) - LOOK_BLOCK,
              "vi_put_wide: the high part of a block, and carries");

INLINE bool look_has(int kind)
{
    return kind == LOOK_WORDS || kind == WEIGHT_LUT4 || kind == WEIGHT_LUT6 ||
           kind == LOOK_NARROW;
}

INLINE size_t look_bytes(int kind, size_t n)
{
    return kind == LOOK_WORDS ? n * sizeof(int16_t) : int_bytes(kind, n);
}

/* Looked up 2 * VB weights at a time? A row ends with a pair, of which some may
 * be missing, if more than VB weights are left: columns have whole groups of VB.
 */
INLINE bool look_pairs(int kind)
{
    return LOOK_PAIRS == PAIRS_ALL && kind == WEIGHT_LUT4;
}

/* The same of a single row and column. */
INLINE bool look_pairs_one(int kind)
{
    return LOOK_PAIRS > 0 && kind == WEIGHT_LUT4;
}

/* Columns beside which indices are looked up where they are used. */
INLINE size_t look_direct(int kind)
{
    return look_pairs(kind) ? FEW_COLS : LOOK_DIRECT;
}

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

/* Tables that R rows of a tile are looked up in. Those of 64 entries fill two
 * registers, so that a tile has one: other rows go by look_words. */
INLINE int look_held(int kind, int R)
{
    return kind == WEIGHT_LUT6 ? 1 : R;
}

/* The table of `row` and those after it: a division for several rows. */
struct look_at {
    const int16_t *entries;
    size_t left; /* rows that have it, from this one on */
};

INLINE struct look_at look_at(int kind, const struct linear_job *j, size_t row)
{
    const size_t one = j->table_rows;
    size_t n = one == 1 ? row : row / one;
    size_t at = n * look_entries(kind);
    return (struct look_at){j->table + at, one - (row - n * one)};
}

/* On to the next row. Does it have another table? */
INLINE bool look_next(int kind, const struct linear_job *j, struct look_at *at)
{
    if (--at->left > 0) {
        return false;
    }
    at->entries += look_entries(kind);
    at->left = j->table_rows;
    return true;
}

/* The tables of R rows. Neighbours often share one; do all? */
INLINE bool look_tables(int kind, const struct linear_job *j, size_t row, int R,
                        struct lk_table *t)
{
    struct look_at at = look_at(kind, j, row);
    bool same = true;
    lk_set(kind, &t[0], at.entries);
    for (int r = 1; r < R; r++) {
        if (look_next(kind, j, &at)) {
            lk_set(kind, &t[r], at.entries);
            same = false;
        } else {
            t[r] = t[r - 1];
        }
    }
    return same;
}

#if !defined(LOOK_KEEP)
/* One step of R rows of LOOK_WORDS times C columns. Each column is read once,
 * for all rows: R weights, a column and the sums are all that registers hold.
 */
INLINE void look_words_step(int R, int C, const char *p, size_t ldw,
                            const int16_t *q, size_t ldq, vi *a)
{
    UNSET vi w[4];
    UNSET const int16_t *base[(FEW_COLS + 2) / 3];
    for (int c = 0; c < C; c += 3) {
        base[c / 3] = q + (size_t)c * ldq;
        HOLD(base[c / 3]);
    }
    for (int part = 0; part < 2; part++) {
        for (int r = 0; r < R; r++) {
            const char *row = p + (size_t)r * ldw;
            w[r] = vi_load((const int16_t *)(const void *)row +
                           part * (VB / 2));
        }
        for (int c = 0; c < C; c++) {
            vi x =
                vi_load(base[c / 3] + (size_t)(c % 3) * ldq + part * (VB / 2));
            for (int r = 0; r < R; r++) {
                a[c * R + r] = lk_dot(a[c * R + r], w[r], x);
            }
        }
    }
}
#endif

/* One step of R rows times C columns. */
INLINE void look_step(int kind, int R, int C, const struct lk_table *t,
                      const char *p, size_t ldw, const int16_t *q, size_t ldq,
                      vi *a)
{
#if !defined(LOOK_KEEP)
    if (kind == LOOK_WORDS) {
        look_words_step(R, C, p, ldw, q, ldq, a);
        return;
    }
#endif
#if defined(LOOK_KEEP)
    UNSET vi x[FEW_COLS][2];
    UNSET const int16_t *base[(FEW_COLS + 2) / 3];
    for (int c = 0; c < C; c += 3) {
        base[c / 3] = q + (size_t)c * ldq;
        HOLD(base[c / 3]);
    }
    for (int c = 0; c < C; c++) {
        const int16_t *at = base[c / 3] + (size_t)(c % 3) * ldq;
        x[c][0] = vi_load(at);
        x[c][1] = vi_load(at + VB / 2);
    }
#endif
    for (int r = 0; r < R; r++) {
        UNSET vi w[2];
        look_weights(kind, &t[look_held(kind, R) == 1 ? 0 : r],
                     p + (size_t)r * ldw, w);
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

/* One pair of a row times C columns. */
INLINE void look_pair(int C, const struct lk_table *t, const char *p,
                      const int16_t *q, size_t ldq, vi *a)
{
    UNSET const int16_t *base[(FEW_COLS + 2) / 3];
    for (int c = 0; c < C; c += 3) {
        base[c / 3] = q + (size_t)c * ldq;
        HOLD(base[c / 3]);
    }
    HOLD(ldq);
    const vi k = vi_load((const int16_t *)(const void *)p);
    for (int half = 0; half < 2; half++) {
        UNSET vi w[2];
        lk_pair(t, k, half, w);
        for (int part = 0; part < 2; part++) {
            for (int c = 0; c < C; c++) {
                vi x = vi_load(base[c / 3] + (size_t)(c % 3) * ldq +
                               (2 * half + part) * (VB / 2));
                a[c] = lk_dot(a[c], w[part], x);
            }
        }
    }
}

/* The last n elements of R rows, less than a step: nothing after them is read.
 * What else is looked up meets zeros. */
INLINE void look_tail(int kind, int R, int C, const struct lk_table *t,
                      const char *p, size_t ldw, size_t n, const int16_t *q,
                      size_t ldq, vi *a)
{
    char buf[4 * VB] = {0};
    for (int r = 0; r < R; r++) {
        memcpy(buf + r * VB, p + (size_t)r * ldw, look_bytes(kind, n));
    }
    if (look_pairs(kind) && n > VB) {
        look_pair(C, t, buf, q, ldq, a);
    } else {
        look_step(kind, R, C, t, buf, VB, q, ldq, a);
    }
}

/* A single step is due, of `left` elements. */
INLINE bool look_single(int kind, size_t left)
{
    return look_pairs(kind) ? left == VB : left >= VB;
}

/* The prefetch that belongs to the step of `step` bytes at byte `at` of the
 * rows. */
INLINE void look_ahead(const struct few_rows *f, int R, size_t at, size_t step)
{
    if (f->ahead != NULL && at % 64 < step) {
        few_ahead(f, R, at / 64 * 64);
    }
}

/* The sums of n elements of R rows and C columns: what fits in their lanes, and
 * in *high what was split off. run: elements from one split to the next. */
INLINE void look_sums(int kind, int R, int C, const struct few_rows *f,
                      const int16_t *q, size_t ldq, size_t n, size_t run, vi *a,
                      vi *high)
{
    const size_t step = look_bytes(kind, VB);
    const char *p = f->w;
    UNROLL
    for (int s = 0; s < C * R; s++) {
        a[s] = vi_zero();
    }
    for (size_t i = 0;;) {
        size_t stop = n - i < run ? n : i + run;
        for (; look_pairs(kind) && i + (size_t)2 * VB <= stop;
             i += (size_t)2 * VB, p += 2 * step, q += (size_t)2 * VB) {
            look_ahead(f, R, look_bytes(kind, i), 2 * step);
            look_pair(C, f->table, p, q, ldq, a);
        }
        for (; look_single(kind, stop - i); i += VB, p += step, q += VB) {
            look_ahead(f, R, look_bytes(kind, i), step);
            look_step(kind, R, C, f->table, p, f->ldw, q, ldq, a);
        }
        if (kind != LOOK_WORDS && i < stop) { /* those come in whole steps */
            look_tail(kind, R, C, f->table, p, f->ldw, n - i, q, ldq, a);
            i = n;
        }
        if (i == n) {
            return;
        }
        UNROLL
        for (int s = 0; s < C * R; s++) {
            look_split(&a[s], &high[s]);
        }
    }
}

/* look_sums of one row after the other: its table and sums are all that
 * registers hold. */
INLINE void look_rows_sums(int kind, int R, int C, const struct few_rows *f,
                           const int16_t *q, size_t ldq, size_t n, vi *a,
                           vi *high)
{
    for (int r = 0; r < R; r++) {
        UNSET vi sum[FEW_COLS];
        UNSET vi split[FEW_COLS];
        const struct lk_table table = f->table[r];
        struct few_rows one = *f;
        one.w += (size_t)r * f->ldw;
        one.table = &table;
        if (f->ahead != NULL) {
            one.ahead += (size_t)r * look_bytes(kind, n); /* a share each */
        }
        UNROLL
        for (int c = 0; c < C; c++) {
            split[c] = vi_zero();
        }
        look_sums(kind, 1, C, &one, q, ldq, n, f->run, sum, split);
        UNROLL
        for (int c = 0; c < C; c++) {
            a[c * R + r] = sum[c];
            if (n > f->run) {
                high[c * R + r] = split[c];
            }
        }
    }
}

/* What few_tile does with the s-th four sums, of which *high was split off. */
INLINE void look_put4(int R, int C, int s, const vi *a, const vi *high,
                      float *acc, bool first)
{
    UNSET vi h[4];
    UNSET vi l[4];
    for (int i = 0; i < 4; i++) {
        h[i] = vi_high(a[s + i]);
        l[i] = vi_low(a[s + i]);
        if (high != NULL) {
            h[i] = vi_add(h[i], high[s + i]);
        }
    }
    float *to = acc + (R == 4 ? (size_t)s / 4 * few_lda(R) : (size_t)s);
    if (s + 4 <= C * R) {
        vi_put_wide(vi_across(h), vi_across(l), to, first);
        return;
    }
    float rest[4] = {0}; /* the neighbour's sums are not ours */
    const size_t have = (size_t)(C * R - s) * sizeof(float);
    memcpy(rest, to, have);
    vi_put_wide(vi_across(h), vi_across(l), rest, first);
    memcpy(to, rest, have);
}

#include "engine/cpu/kernels/products/linear_narrow.h" /* of the pieces above */

/* few_tile. */
INLINE void look_tile(int kind, int R, int C, const struct few_rows *f,
                      const int16_t *q, size_t ldq, size_t n, float *acc,
                      bool first)
{
    UNSET vi a[4 * FEW_COLS + 3];
    UNSET vi split[4 * FEW_COLS + 3];
    vi *high = split;
    HOLD(high); /* in memory, not in registers that others need */
    if (n > f->run) {
        UNROLL
        for (int s = 0; s < C * R; s++) {
            high[s] = vi_zero();
        }
    }
    if (kind == LOOK_NARROW) {
        narrow_rows_sums(R, C, f, q, ldq, n, a);
    } else if (look_pairs(kind) && R > 1) {
        look_rows_sums(kind, R, C, f, q, ldq, n, a, high);
    } else {
        look_sums(kind, R, C, f, q, ldq, n, f->run, a, high);
    }
    UNROLL
    for (int s = C * R; s < (C * R + 3) / 4 * 4; s++) {
        a[s] = vi_zero();
    }
    if (n > f->run) {
        UNROLL
        for (int s = 0; s < C * R; s += 4) {
            look_put4(R, C, s, a, high, acc, first);
        }
        return;
    }
    const int eights = LOOK_EIGHT && R == 4 ? C / 2 * 8 : 0;
    UNROLL
    for (int s = 0; s < eights; s += 8) {
        float *to = acc + (size_t)s / 4 * few_lda(R);
        lk_put8(a + s, to, to + few_lda(R), first);
    }
    UNROLL
    for (int s = eights; s < C * R; s += 4) {
        look_put4(R, C, s, a, NULL, acc, first);
    }
}

/* A step, or a pair, as LOOK_WORDS. */
INLINE void look_words_store(int kind, const struct lk_table *t, bool pair,
                             const char *p, int16_t *words)
{
    for (int half = 0; half < (pair ? 2 : 1); half++, words += VB) {
        UNSET vi w[2];
        if (pair) {
            lk_pair(t, vi_load((const int16_t *)(const void *)p), half, w);
        } else {
            look_weights(kind, t, p, w);
        }
        vi_store(words, w[0]);
        vi_store(words + VB / 2, w[1]);
    }
}

/* n elements of R rows as LOOK_WORDS, LOOK_BLOCK from row to row. */
INLINE void look_words(int kind, int R, const struct few_rows *f, size_t n,
                       int16_t *words)
{
    const size_t step = look_bytes(kind, VB);
    for (int r = 0; r < R; r++, words += LOOK_BLOCK) {
        const struct lk_table t = f->table[r];
        const char *p = f->w + (size_t)r * f->ldw;
        const size_t most = look_pairs(kind) ? (size_t)2 * VB : VB;
        for (size_t i = 0; i < n;) {
            const size_t left = n - i < most ? n - i : most;
            const bool pair = look_pairs(kind) && left > VB;
            const size_t whole = pair ? (size_t)2 * VB : VB;
            char buf[VB] = {0};
            const char *from = p;
            if (r == 0) { /* for all rows */
                look_ahead(f, R, look_bytes(kind, i), pair ? 2 * step : step);
            }
            if (left < whole) {
                memcpy(buf, p, look_bytes(kind, left));
                from = buf;
            }
            look_words_store(kind, &t, pair, from, words + i);
            i += whole;
            p += look_bytes(kind, whole);
        }
    }
}

#if LOOK_PAIRS > 0
static_assert(LOOK_RUN % (2 * VB) == 0 && LOOK_BLOCK % (2 * VB) == 0,
              "no pair crosses a border");

/* n elements of a column in the order of pairs; n is a multiple of VB. */
INLINE void look_pair_words(const int16_t *q, size_t n, int16_t *to)
{
    size_t i = 0;
    for (; i + (size_t)2 * VB <= n; i += (size_t)2 * VB) {
        pair_words(q + i, to + i);
    }
    memcpy(to + i, q + i, (n - i) * sizeof(*q));
}
#endif

#if defined(LOOK_MEASURED)
/* --- how often the lanes of a tile are split --- */

/* Do the lanes of all runs of `run` elements stay below the bound? A lane of a
 * tile adds up the same places of every step. */
INLINE bool look_fits(const int16_t *q, size_t n, size_t run)
{
    const int32_t most = (INT32_MAX - (1 << LOOK_SHIFT)) / WEIGHT_TABLE_PEAK;
    int32_t over = 0;
    for (size_t i = 0; i < n;) {
        size_t stop = n - i < run ? n : i + run;
        int32_t lane[VB / 4];
        vi sum = vi_zero();
        for (; i < stop; i += VB / 2) {
            sum = lk_dot(sum, vi_abs(vi_load(q + i)), vi_ones());
        }
        vi_store((int16_t *)(void *)lane, sum);
        for (size_t l = 0; l < VB / 4; l++) {
            over |= lane[l] > most;
        }
    }
    return over == 0;
}

/* kernels.run. Where there are pairs a lane of WEIGHT_LUT4 adds up other places
 * than one of WEIGHT_LUT6: both must have room. */
static size_t look_run_of(const int16_t *q, size_t k_pad)
{
    size_t run = LOOK_BLOCK;
    for (size_t k = 0; k < k_pad; k += LOOK_BLOCK) {
        size_t n = k_pad - k < LOOK_BLOCK ? k_pad - k : LOOK_BLOCK;
#if LOOK_PAIRS == PAIRS_ALL
        UNSET int16_t own[LOOK_BLOCK];
        look_pair_words(q + k, n, own);
#endif
        while (run > LOOK_RUN && !look_fits(q + k, n, run)) {
            run /= 2;
        }
#if LOOK_PAIRS == PAIRS_ALL
        while (run > LOOK_RUN && !look_fits(own, n, run)) {
            run /= 2;
        }
#endif
    }
    return run;
}
#else
#define look_run_of NULL
#endif
