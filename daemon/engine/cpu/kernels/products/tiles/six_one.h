/* six_one.h - products of a single row and column with tables of 64 entries
 * (WEIGHT_LUT6) by bytes: VBMI looks 64 indices up at once.
 *
 * No tile takes part. Words would be looked up 32 at a time, with three
 * instructions' work of one port for each. Here both the table and the column
 * are taken apart into bytes (sets/kernel_amx.c), the table's high ones made
 * unsigned, so that there are four products:
 *
 *   64 * (128 * a[0] + a[1]) + 128 * a[2] + a[3]
 *
 * with a[1] beginning at what makes up for that. Sums are those of the "avx512"
 * set, and are rounded as there. A thread makes the column's bytes once, behind
 * the first of those that narrow tables want (kernels.narrow_cols; a row has
 * room for two, as it may be wide). */
#pragma once

#include "engine/cpu/kernels/products/tiles/tile_columns.h"
#include "engine/cpu/kernels/products/tiles/tile_weights.h"
#include "engine/cpu/kernels/sets/vectors_512.h"

#define SIX_ROWS   4u
#define SIX_MORE   64    /* with it the high bytes of entries are unsigned */
#define SIX_NEAR   2048u /* bytes before it is used that a line is prefetched */
#define SIX_BYTES  (STEP / 4 * 3)
#define SIX_CHAINS 2 /* of products, so that none waits for the one before */

static_assert((int64_t)LOOK_BLOCK / 16 * (128 * 127 * 128 + 127 * 127) +
                      (int64_t)LOOK_BLOCK / 16 * SIX_MORE * 16383 <
                  INT32_MAX,
              "a lane");

/* Does a thread have a place for a block's sums of SIX_ROWS rows? */
INLINE bool six_fits(const struct linear_job *j)
{
    const size_t blocks = (j->k + LOOK_BLOCK - 1) / LOOK_BLOCK;
    return j->kind == WEIGHT_LUT6 && j->cols == 1 &&
           blocks <= LINEAR_TILE / sizeof(float) / SIX_ROWS;
}

/* A column as bytes: of each STEP elements the high ones, then the low ones;
 * then for each block what a[1] begins with. */
INLINE void six_own(const int16_t *q, size_t k, int8_t *to)
{
    int8_t *more = to + narrow_words(k) * sizeof(int16_t);
    const __m512i low7 = _mm512_set1_epi16(0x7f);
    for (size_t at = 0; at < k; at += LOOK_BLOCK, more += 64) {
        __m512i sum = _mm512_setzero_si512();
        for (size_t i = at; i < k && i < at + LOOK_BLOCK; i += STEP) {
            const struct words w = words_of(PACK_PLAIN, q, k, i / STEP);
            int8_t *step = to + i * 2;
            _mm512_storeu_si512((void *)step,
                                woven(_mm512_srai_epi16(w.a, 7),
                                      _mm512_srai_epi16(w.b, 7)));
            _mm512_storeu_si512((void *)(step + STEP),
                                woven(_mm512_and_si512(w.a, low7),
                                      _mm512_and_si512(w.b, low7)));
            sum = _mm512_dpwssd_epi32(sum, w.a, _mm512_set1_epi16(-1));
            sum = _mm512_dpwssd_epi32(sum, w.b, _mm512_set1_epi16(-1));
        }
        _mm512_storeu_si512(
            (void *)more,
            _mm512_mullo_epi32(sum, _mm512_set1_epi32(SIX_MORE)));
    }
}

/* STEP weights, of which `bytes` bytes are there. */
INLINE void six_step(const struct table *t, const char *p, size_t bytes,
                     const int8_t *x, __m512i a[4])
{
    const __mmask64 mask = ~(__mmask64)0 >> (64 - bytes);
    const __m512i k = six_bits(_mm512_maskz_loadu_epi8(mask, p));
    const __m512i high = _mm512_permutexvar_epi8(k, t->high);
    const __m512i low = _mm512_permutexvar_epi8(k, t->low);
    const __m512i q = _mm512_loadu_si512((const void *)x);
    const __m512i r = _mm512_loadu_si512((const void *)(x + STEP));
    a[0] = _mm512_dpbusd_epi32(a[0], high, q);
    a[1] = _mm512_dpbusd_epi32(a[1], high, r);
    a[2] = _mm512_dpbusd_epi32(a[2], low, q);
    a[3] = _mm512_dpbusd_epi32(a[3], low, r);
}

/* A block of n elements as sums of lanes, *high * 2^LOOK_SHIFT + *low. */
INLINE void six_block(const struct table *t, const char *p, const char *ahead,
                      const int8_t *x, const int8_t *more, size_t n,
                      __m512i *high, __m512i *low)
{
    UNSET __m512i a[SIX_CHAINS * 4];
    for (int i = 0; i < SIX_CHAINS * 4; i++) {
        a[i] = _mm512_setzero_si512();
    }
    a[1] = _mm512_loadu_si512((const void *)more);
    size_t i = 0;
    for (; i + 4 * STEP <= n; i += 4 * STEP, ahead += 4 * SIX_BYTES) {
        for (size_t line = 0; line < 4 * SIX_BYTES; line += 64) {
            __builtin_prefetch(ahead + line, 0, 2);
            __builtin_prefetch(ahead + line - (AHEAD - SIX_NEAR), 0, 3);
        }
        for (size_t s = 0; s < 4; s++, p += SIX_BYTES, x += 2 * STEP) {
            six_step(t, p, SIX_BYTES, x, a + s % SIX_CHAINS * 4);
        }
    }
    for (; i < n; i += STEP, p += SIX_BYTES, x += 2 * STEP) {
        const size_t left = n - i < STEP ? n - i : STEP;
        six_step(t, p, left / 4 * 3, x, a);
    }
    for (int s = 0; s < 4; s++) {
        a[s] = _mm512_add_epi32(a[s], a[s + 4]);
    }
    const __m512i u = _mm512_add_epi32(_mm512_slli_epi32(a[0], 7), a[1]);
    const __m512i v = _mm512_add_epi32(_mm512_slli_epi32(a[2], 7), a[3]);
    *high = _mm512_add_epi32(_mm512_srai_epi32(u, LOOK_SHIFT - 6),
                             _mm512_srai_epi32(v, LOOK_SHIFT));
    *low = _mm512_add_epi32(
        _mm512_slli_epi32(
            _mm512_and_si512(u, _mm512_set1_epi32((1 << (LOOK_SHIFT - 6)) - 1)),
            6),
        _mm512_and_si512(v, _mm512_set1_epi32((1 << LOOK_SHIFT) - 1)));
}

INLINE struct table six_table(const int16_t *entries)
{
    struct table t = table_of(WEIGHT_LUT6, entries);
    t.high = _mm512_add_epi8(t.high, _mm512_set1_epi8(SIX_MORE));
    return t;
}

/* Four sums, rounded once. */
INLINE void six_put(const __m512i high[4], const __m512i low[4], float *out)
{
    const __m128 h = _mm_cvtepi32_ps(across_512(high));
    const __m128 l = _mm_cvtepi32_ps(across_512(low));
    _mm_storeu_ps(
        out, _mm_fmadd_ps(h, _mm_set1_ps((float)(1 << LOOK_SHIFT)), l));
}

/* SIX_ROWS rows from o on: the sums of their blocks, row by row. */
INLINE void six_rows(const struct linear_job *j, size_t o, const char *end,
                     const int8_t *x, float *sums)
{
    UNSET __m512i high[4];
    UNSET __m512i low[4];
    const int8_t *more = x + narrow_words(j->k) * sizeof(int16_t);
    const int16_t *entries = j->table + o / j->table_rows * 64;
    size_t left = j->table_rows - o % j->table_rows; /* rows that share it */
    struct table t = six_table(entries);
    size_t have = 0;
    for (size_t r = o; r < o + SIX_ROWS; r++) {
        for (size_t k = 0; k < j->k; k += LOOK_BLOCK) {
            const char *p = j->w + r * j->ldw + int_bytes(WEIGHT_LUT6, k);
            const char *ahead = p + AHEAD;
            if (ahead >= end && j->then != NULL) {
                ahead = j->then + (ahead - end);
            }
            six_block(&t, p, ahead, x + 2 * k, more + k / LOOK_BLOCK * 64,
                      int_block_at(WEIGHT_LUT6, j->k, k), &high[have % 4],
                      &low[have % 4]);
            if (++have % 4 == 0) {
                six_put(high, low, sums + have - 4);
            }
        }
        if (--left == 0 && r + 1 < o + SIX_ROWS) {
            entries += 64;
            left = j->table_rows;
            t = six_table(entries);
        }
    }
}

/* Rows from begin on, as many as there are fours; returns where they end. */
static size_t six_run(const struct linear_job *j, size_t begin, size_t end,
                      char *scratch)
{
    const size_t blocks = (j->k + LOOK_BLOCK - 1) / LOOK_BLOCK;
    int16_t *own = (int16_t *)(void *)(scratch + linear_scratch(1)) + j->ldq +
                   narrow_stride(j->k);
    const int8_t *x = (const int8_t *)own;
    float *sums = (float *)(void *)scratch;
    float *acc = (float *)(void *)(scratch + LINEAR_TILE);
    const char *stop = j->w + end * j->ldw;
    if (!j->owned[OWN_SIX_FORM]) {
        six_own(j->q, j->k, (int8_t *)own);
        j->owned[OWN_SIX_FORM] = true;
    }
    while (begin + SIX_ROWS <= end) {
        const size_t n = num_min((end - begin) / SIX_ROWS * SIX_ROWS, UNIT);
        for (size_t r = 0; r < n; r += SIX_ROWS) {
            six_rows(j, begin + r, stop, x, sums);
            for (size_t i = 0; i < SIX_ROWS; i++) {
                float sum = sums[i * blocks];
                for (size_t b = 1; b < blocks; b++) {
                    sum += sums[i * blocks + b];
                }
                acc[r + i] = sum;
            }
        }
        linear_finish(j, begin, n, 0, j->n, acc, UNIT);
        begin += n;
    }
    return begin;
}
