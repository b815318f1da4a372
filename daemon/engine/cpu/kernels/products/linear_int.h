/* linear_int.h - integer products, a template over a few vector operations.
 *
 * Included by a kernel_NAME.c that defines, besides what linear_look.h wants,
 *   VB                        bytes in a vector of weights; a column has two
 *                             vectors of VB / 2 int16, its parts, for VB
 *                             elements
 *   FEW_TALL, FEW_COLS        columns in a tile of 4 rows, in any tile
 *   vi                        int32 sums, a part of a column, or weights
 *   vi_zero, vi_load          of a part
 *   vi_add                    of sums
 *   vi_dot(acc, w, x)         acc + products, some of them added up
 *   vi_half8(p, part)         of VB int8 what a part is multiplied with
 *   vi_half4(p, part)         the same of VB int4 (VB / 2 bytes)
 *   vi4, vi_across(const vi a[4])
 *                             four int32, and the sums of four accumulators
 *   vi_put(s, out, first)     out (+)= four sums
 * Where instructions multiply 16 bits, the parts are the even elements and the
 * odd ones: int8 and int4 weights fall apart that way with shifts alone. Where
 * they multiply 8 bits, a part is made of bytes (sets/kernel_neon_bytes.h), and
 * a set may define besides
 *   VI_SUMS 2                 each part has an accumulator of its own
 *   vi_join(a, b)             the sums of both in one: vi_add, if not defined
 *   VI_ROWS 2                 where there are two rows, products are of both:
 *   vi_rows8, vi_rows4 (p, ldw, part)   vi_half8 and vi_half4 of two rows,
 *                             whose parts share an accumulator, and
 *   vi_rows_join(const vi a[2])         the four sums of two of these
 *   VI_KEEP                   weights stay in registers from part to part
 *
 * Sums of a block (int_block) are exact, so tiles of any shape give the
 * same bits; the blocks are added as floats in order of k.
 *
 * int_few keeps a tile of sums in registers and reads the weights where they
 * lie: for a handful of columns the memory bus is the limit. Tiles are 4 rows
 * high for up to FEW_TALL columns, which needs the fewest loads for a product;
 * where more columns would want more registers they are 2 rows high, or (with
 * FEW_TALL == FEW_COLS) several tiles, the weights taken apart once for each.
 * Four accumulators are summed across at once. A single column reads row by row
 * (linear_one.h); many have a form of their own on x86 (linear_many.h).
 *
 * Weights are prefetched into the first cache as long as the columns stay there
 * beside them. Longer columns come from the second, again for each group of
 * rows, and must not wait: a core has few buffers for lines that the first
 * cache misses (Zen 4: 24), and lines from memory would fill them all. So the
 * weights go to the second cache then (linear_job.ahead). Reading long rows
 * block by block, to keep that block of the columns in the first cache, is
 * slower.
 */
#pragma once

#include "base/num.h"
#include "engine/cpu/kernels/products/linear_impl.h"

/* Prefetch distances, at least: into the first cache, or into the second. */
#define AHEAD_NEAR 6144u
#define AHEAD_FAR  12288u
#define AHEAD_LAST 2048u

#if !defined(VI_SUMS)
#define VI_SUMS 1
#define vi_join vi_add
#endif
#if !defined(VI_ROWS)
#define VI_ROWS 1
#endif

INLINE void vi_sum4(const vi a[4], float out[4], bool first)
{
    vi_put(vi_across(a), out, first);
}

INLINE vi int_half(int kind, const char *p, int part)
{
    return kind == WEIGHT_I4 ? vi_half4((const uint8_t *)(const void *)p, part)
                             : vi_half8((const int8_t *)(const void *)p, part);
}

/* Rows of a tile of R that a vector of weights holds. */
#define FEW_PER(R) (VI_ROWS == 2 && (R) % 2 == 0 ? 2 : 1)
/* The first accumulator of row r and column c, and how many n results take. */
#define FEW_SUM(R, c, r) \
    (FEW_PER(R) == 2 ? ((c) * (R) + (r)) / 2 : ((c) * (R) + (r)) * VI_SUMS)
#define FEW_SUMS(R, n) FEW_SUM(R, 0, n)

/* A part of FEW_PER(R) rows at p. */
INLINE vi few_weights(int kind, int R, const char *p, size_t ldw, int part)
{
#if VI_ROWS == 2
    if (FEW_PER(R) == 2) {
        return kind == WEIGHT_I4
                   ? vi_rows4((const uint8_t *)(const void *)p, ldw, part)
                   : vi_rows8((const int8_t *)(const void *)p, ldw, part);
    }
#endif
    (void)R;
    (void)ldw;
    return int_half(kind, p, part);
}

/* One vector of each of R rows times C columns. */
INLINE void few_step(int kind, int R, int C, const char *p, size_t ldw,
                     const int16_t *q, size_t ldq, vi *a)
{
    UNSET vi w[4];
    UNSET const int16_t *base[(FEW_COLS + 2) / 3];
    for (int c = 0; c < C; c += 3) {
        base[c / 3] = q + (size_t)c * ldq;
        HOLD(base[c / 3]);
    }
    for (int part = 0; part < 2; part++) {
        const int own = FEW_PER(R) == 1 && VI_SUMS == 2 ? part : 0;
#if !defined(VI_KEEP)
        RELOAD(); /* rather than keep what the other part came from */
#endif
        for (int r = 0; r < R; r += FEW_PER(R)) {
            w[r] = few_weights(kind, R, p + (size_t)r * ldw, ldw, part);
        }
        for (int c = 0; c < C; c++) {
            vi x =
                vi_load(base[c / 3] + (size_t)(c % 3) * ldq + part * (VB / 2));
            for (int r = 0; r < R; r += FEW_PER(R)) {
                vi *sum = &a[FEW_SUM(R, c, r) + own];
                *sum = vi_dot(*sum, w[r], x);
            }
        }
    }
}

/* out (+)= four results of a tile of R rows, from the s-th on. */
INLINE void few_sum4(int R, const vi *a, int s, float out[4], bool first)
{
    a += FEW_SUMS(R, s);
#if VI_ROWS == 2
    if (FEW_PER(R) == 2) {
        vi_put(vi_rows_join(a), out, first);
        return;
    }
#endif
#if VI_SUMS == 2
    UNSET vi t[4];
    for (int i = 0; i < 4; i++) {
        t[i] = vi_join(a[2 * i], a[2 * i + 1]);
    }
    vi_sum4(t, out, first);
#else
    vi_sum4(a, out, first);
#endif
}

/* The last n < VB elements of R rows: nothing after them is read. */
INLINE void few_tail(int kind, int R, int C, const char *p, size_t ldw,
                     size_t n, const int16_t *q, size_t ldq, vi *a)
{
    char buf[4 * VB] = {0};
    for (int r = 0; r < R; r++) {
        memcpy(buf + r * VB, p + (size_t)r * ldw, int_bytes(kind, n));
    }
    few_step(kind, R, C, buf, VB, q, ldq, a);
}

/* Prefetch the line at p, ahead_bytes before it is used. What is on its way to
 * both caches has a short rest of it when it is asked for again. */
INLINE void ahead_line(const char *p, enum ahead to)
{
    if (to == TO_FIRST) {
        __builtin_prefetch(p, 0, 3);
    } else {
        __builtin_prefetch(p, 0, 2);
    }
    if (to == TO_BOTH) {
        __builtin_prefetch(p - (AHEAD_FAR - AHEAD_LAST), 0, 3);
    }
}

INLINE size_t ahead_bytes(enum ahead to)
{
    return to == TO_FIRST ? AHEAD_NEAR : AHEAD_FAR;
}

/* A block of R rows, and what to prefetch meanwhile: one cache line for each
 * line that is used, in the order of addresses. */
struct few_rows {
    const char *w;
    size_t ldw;
    const char *ahead; /* NULL: they are in the first cache already */
    enum ahead to; /* linear_job's */
    const struct lk_table *table; /* of each row */
    size_t run;                   /* elements a lane of tables can add up */
    size_t less;                  /* narrow_less */
};

/* Rows of one call. */
struct few_piece {
    const struct linear_job *j;
    int kind;
    size_t end;   /* the row after them */
    size_t ahead; /* rows prefetched ahead */
    float *acc;
    int16_t *words; /* a block of four rows, looked up */
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
    const char *p = f->ahead + i * (size_t)R;
    for (int r = 0; r < R; r++, p += 64) {
        ahead_line(p, f->to == TO_FIRST ? TO_FIRST : TO_BOTH);
    }
}

/* Floats from column to column of the sums: four rows are a vector that goes
 * where the product's other rows are, fewer stay together. */
INLINE size_t few_lda(int R)
{
    return R == 4 ? LINEAR_MANY : (size_t)R;
}

/* With the pieces above, for what follows. */
#include "engine/cpu/kernels/products/linear_look.h"
#include "engine/cpu/kernels/products/linear_look_one.h"

/* n <= int_block(kind) elements of R rows and C columns: acc[c * lda + r]. */
INLINE void few_tile(int kind, int R, int C, const struct few_rows *f,
                     const int16_t *q, size_t ldq, size_t n, float *acc,
                     bool first)
{
    UNSET vi a[4 * FEW_COLS * VI_SUMS];
    if (look_has(kind)) {
        look_tile(kind, R, C, f, q, ldq, n, acc, first);
        return;
    }
    const size_t step = int_bytes(kind, VB);
    const size_t line = 64 / step * VB; /* elements in a cache line */
    const char *p = f->w;
    size_t i = 0;
    const int sums = FEW_SUMS(R, (C * R + 3) / 4 * 4);
    for (int s = 0; s < sums; s++) {
        a[s] = vi_zero();
    }
    for (; f->ahead != NULL && i + line <= n; i += line) {
        few_ahead(f, R, int_bytes(kind, i));
        for (size_t s = 0; s < 64 / step; s++, p += step, q += VB) {
            few_step(kind, R, C, p, f->ldw, q, ldq, a);
        }
    }
    for (; i + VB <= n; i += VB, p += step, q += VB) {
        few_step(kind, R, C, p, f->ldw, q, ldq, a);
    }
    if (i < n) {
        few_tail(kind, R, C, p, f->ldw, n - i, q, ldq, a);
    }
    for (int s = 0; s + 4 <= C * R; s += 4) {
        few_sum4(R, a, s,
                 acc + (R == 4 ? (size_t)s / 4 * few_lda(R) : (size_t)s),
                 first);
    }
    if (C * R % 4 != 0) { /* the neighbour's sums are not ours to touch */
        float rest[4];
        int s = C * R / 4 * 4;
        memcpy(rest, acc + s, (size_t)(C * R % 4) * sizeof(float));
        few_sum4(R, a, s, rest, first);
        memcpy(acc + s, rest, (size_t)(C * R % 4) * sizeof(float));
    }
}

#define FEW_CASE(C)                                                        \
    case C:                                                                \
        if (R == 4 ? C <= FEW_TALL : C >= FEW_COLS / 2 && C <= FEW_COLS) { \
            few_tile(kind, R, C <= FEW_COLS ? C : 1, &f, q + c * j->ldq,   \
                     j->ldq, n, acc + c * few_lda(R), k == 0);             \
        }                                                                  \
        break

/* One block of R rows, n elements from k on: all columns. */
INLINE void few_block(const struct linear_job *j, int kind, int R,
                      struct few_rows f, size_t k, size_t n, float *acc)
{
    const int16_t *q = j->q + k;
    for (size_t c = 0; c < j->cols;) {
        size_t left = j->cols - c;
        const size_t most = look_has(kind) ? LOOK_COLS : FEW_COLS;
        size_t tiles = (left + most - 1) / most;
        size_t take = R == 1 ? 1 : (left + tiles - 1) / tiles;
        if (R == 1) {
            few_tile(kind, 1, 1, &f, q + c * j->ldq, j->ldq, n, acc + c,
                     k == 0);
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

/* Functions of their own for each kind of weights, for one column and for
 * several: in one that holds all of them gcc runs out of its budget for
 * splitting arrays and leaves sums in memory (AVX2: decode at 0.8 of the
 * speed). */
#define ALONE static __attribute__((noinline))

/* few_block of weights that are looked up already. */
#define WORDS_OF(R)                                                            \
    ALONE void words_block_##R(const struct linear_job *j,                     \
                               const struct few_rows *f, size_t k, size_t n,   \
                               float *acc)                                     \
    {                                                                          \
        few_block(j, LOOK_WORDS, R, *f, k, n, acc);                            \
    }
WORDS_OF(2)
WORDS_OF(4)

/* Splitting more than FEW_COLS columns evenly gives at least half as many. */
static_assert(FEW_TALL + 1 >= FEW_COLS / 2 && FEW_COLS <= 8, "tiles");

/* R rows from `row` on, the block at k; their sums. One group of rows after
 * another is one stream, and is prefetched as one even where the rows are read
 * side by side: short rows some groups ahead, of long rows the next group. */
INLINE void few_group(const struct few_piece *p, int R, size_t row, size_t k,
                      float *acc)
{
    const struct linear_job *j = p->j;
    const size_t n = int_block_at(p->kind, j->k, k);
    const size_t at = int_bytes(p->kind, k);
    struct few_rows f = {
        .w = j->w + row * j->ldw + at,
        .ldw = j->ldw,
        .ahead = few_at(p, row + p->ahead) + at * (size_t)R,
        .to = j->ahead,
        .run = p->kind == LOOK_NARROW ? LOOK_BLOCK : num_max(j->run, LOOK_RUN),
        .less = narrow_less(j->k, k),
    };
    if (!look_has(p->kind)) {
        few_block(j, p->kind, R, f, k, n, acc);
        return;
    }
    UNSET struct lk_table table[4];
    bool same = look_tables(p->kind, j, row, R, table);
    f.table = table;
    if (R > 1 &&
        (j->cols > look_direct(p->kind) ||
         (!same && look_held(p->kind, R) == 1))) {
        look_words(p->kind, R, &f, n, p->words);
        f = (struct few_rows){.w = (const char *)p->words,
                              .ldw = LOOK_BLOCK * sizeof(int16_t),
                              .run = f.run};
        (R == 4 ? words_block_4 : words_block_2)(j, &f, k,
                                                 (n + VB - 1) / VB * VB, acc);
    } else {
        few_block(j, p->kind, R, f, k, n, acc);
    }
}

/* `groups` times R rows from row o on, each from end to end. */
INLINE void few_groups(const struct few_piece *p, int R, size_t o,
                       size_t groups)
{
    const struct linear_job *j = p->j;
    const size_t rows = (size_t)R;
    for (size_t g = 0; g < groups; g++) {
        float *acc = p->acc + g * (R == 4 ? 4 : rows * j->cols);
        for (size_t k = 0; k < j->k; k += int_block(p->kind)) {
            few_group(p, R, o + g * rows, k, acc);
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
    const size_t most = LINEAR_MANY / (size_t)R;
    while (o + (size_t)R <= p->end) {
        size_t groups = (p->end - o) / (size_t)R;
        groups = groups < most ? groups : most;
        few_groups(p, R, o, groups);
        o += groups * (size_t)R;
    }
    return o;
}

#include "engine/cpu/kernels/products/linear_one.h" /* of the pieces above, for what follows */

typedef size_t few_one(const struct linear_job *j, size_t begin, size_t end,
                       char *scratch);

/* one: one_run of the kind. */
INLINE void few_run(const struct linear_job *j, int kind, few_one *one,
                    size_t begin, size_t end, char *scratch)
{
    const struct few_piece p = {
        .j = j,
        .kind = kind,
        .end = end,
        .ahead = (ahead_bytes(j->ahead) + j->ldw * 4 - 1) / (j->ldw * 4) * 4,
        .acc = (float *)(void *)(scratch + LINEAR_TILE),
        .words = (int16_t *)(void *)scratch,
    };
    size_t o = begin;
    if (one_fits(j, kind)) {
        o = one(j, begin, end, scratch);
    } else if (FEW_TALL == FEW_COLS || j->cols <= FEW_TALL) {
        o = few_rows_run(&p, 4, o);
    } else {
        o = few_rows_run(&p, 2, o);
    }
    (void)few_rows_run(&p, 1, o);
}

#if defined(OWN_WORDS) && OWN_WORDS
#define look_owns(kind) true
INLINE void look_own(const int16_t *q, size_t n, int16_t *to)
{
    for (size_t i = 0; i < n; i += VB) {
        words_of(q + i, to + i);
    }
}
#elif LOOK_PAIRS > 0
#define look_owns look_pairs_one
#define look_own  look_pair_words
#else
#define look_owns(kind)    false
#define look_own(q, n, to) ((void)(q), (void)(n), (void)(to))
#endif

/* The same with tables. Where columns are no words, or not in the order in which
 * weights are looked up, each thread makes some once, behind the rest of its
 * scratch. Where only single rows and columns want them, the last rows, which
 * are no whole group of such, read the columns as they are.
 */
INLINE void look_run(const struct linear_job *j, int kind, few_one *one,
                     size_t begin, size_t end, char *scratch)
{
    struct linear_job mine = *j;
    int16_t *own = (int16_t *)(void *)(scratch + linear_scratch(j->cols));
    const bool alone = LOOK_PAIRS == PAIRS_ONE;
    if (!look_owns(kind) || (alone && !one_fits(j, kind))) {
        few_run(j, kind, one, begin, end, scratch);
        return;
    }
    bool *owned = &j->owned[OWN_WORDS_FORM];
    for (size_t c = 0; !*owned && c < j->cols; c++) {
        look_own(j->q + c * j->ldq, (j->k + VB - 1) / VB * VB,
                 own + c * j->ldq);
    }
    *owned = true;
    mine.q = own;
    if (alone) {
        begin = one(&mine, begin, end, scratch);
        mine.q = j->q;
    }
    few_run(&mine, kind, one, begin, end, scratch);
}

#define FEW_OF(kind, suffix, run)                                           \
    ALONE size_t first_##suffix(const struct linear_job *j, size_t begin,   \
                                size_t end, char *scratch)                  \
    {                                                                       \
        return one_run(j, kind, TO_FIRST, begin, end, scratch);             \
    }                                                                       \
    ALONE size_t second_##suffix(const struct linear_job *j, size_t begin,  \
                                 size_t end, char *scratch)                 \
    {                                                                       \
        return one_run(j, kind, TO_SECOND, begin, end, scratch);            \
    }                                                                       \
    ALONE size_t both_##suffix(const struct linear_job *j, size_t begin,    \
                               size_t end, char *scratch)                   \
    {                                                                       \
        return one_run(j, kind, TO_BOTH, begin, end, scratch);              \
    }                                                                       \
    ALONE void few_##suffix(const struct linear_job *j, size_t begin,       \
                            size_t end, char *scratch)                      \
    {                                                                       \
        static few_one *const one[] = {[TO_FIRST] = first_##suffix,         \
                                       [TO_SECOND] = second_##suffix,       \
                                       [TO_BOTH] = both_##suffix};          \
        run(j, kind, one[j->ahead], begin, end, scratch);                   \
    }

FEW_OF(WEIGHT_I8, i8, few_run)
FEW_OF(WEIGHT_I4, i4, few_run)
FEW_OF(WEIGHT_LUT4, lut4, look_run)
FEW_OF(WEIGHT_LUT6, lut6, look_run)

#if defined(LOOK_NARROWS)
/* The same with narrow tables: each thread makes the bytes of columns once,
 * behind all else in its scratch. */
INLINE void narrow_run(const struct linear_job *j, int kind, few_one *one,
                       size_t begin, size_t end, char *scratch)
{
    struct linear_job mine = *j;
    int16_t *own = (int16_t *)(void *)(scratch + linear_scratch(j->cols)) +
                   num_min(LOOK_OWN, j->cols) * j->ldq;
    bool *owned = &j->owned[OWN_NARROW_FORM];
    mine.q = own;
    mine.ldq = narrow_stride(j->k);
    for (size_t c = 0; !*owned && c < j->cols; c++) {
        narrow_own(j->q + c * j->ldq, j->k, own + c * mine.ldq);
    }
    *owned = true;
    few_run(&mine, kind, one, begin, end, scratch);
}

FEW_OF(LOOK_NARROW, narrow, narrow_run)

/* Rows of WEIGHT_LUT4, some of whose tables may be narrow. */
INLINE void few_tables(const struct linear_job *j, size_t begin, size_t end,
                       char *scratch)
{
    struct linear_job mine = *j;
    mine.narrow = j->cols <= LOOK_NARROWS ? j->narrow : NULL;
    while (begin < end) {
        bool narrow = false;
        const size_t stop = narrow_stop(&mine, begin, end, &narrow);
        mine.then = stop < end ? j->w + stop * j->ldw : j->then;
        (narrow ? few_narrow : few_lut4)(&mine, begin, stop, scratch);
        begin = stop;
    }
}
#else
#define few_tables few_lut4
#endif

static void int_few(const struct linear_job *j, size_t begin, size_t end,
                    void *scratch)
{
    if (j->kind == WEIGHT_I4) {
        few_i4(j, begin, end, scratch);
    } else if (j->kind == WEIGHT_LUT4) {
        few_tables(j, begin, end, scratch);
    } else if (j->kind == WEIGHT_LUT6) {
        few_lut6(j, begin, end, scratch);
    } else {
        few_i8(j, begin, end, scratch);
    }
}

#if defined(MANY_VECS)
#include "engine/cpu/kernels/products/linear_many.h"
#endif
