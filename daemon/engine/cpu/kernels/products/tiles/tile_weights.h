/* tile_weights.h - strips of rows of weights, and their steps as tiles. */
#pragma once

#include "base/num.h"
#include "engine/cpu/kernels/products/tiles/tile.h"

/* Weights are bytes, or halves of table entries that are no bytes: tiles of a
 * strip's rows. */
INLINE size_t planes(int kind)
{
    return kind == WEIGHT_LUT4 || kind == WEIGHT_LUT6 ? 2 : 1;
}

INLINE size_t strip_rows(int kind)
{
    return 2 / planes(kind) * TILE_ROWS;
}

/* What a row's indices are looked up in: 64 entries, or four times 16. */
struct table {
    __m512i high, low;
};

INLINE struct table table_of(int kind, const int16_t *e)
{
    const __m512i even = _mm512_set_epi64(6, 4, 2, 0, 6, 4, 2, 0);
    const __m512i both = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
    struct table t = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (kind == WEIGHT_I4) { /* the numbers of four bits */
        t.high = _mm512_set4_epi32((int)0xfffefdfc, (int)0xfbfaf9f8, 0x07060504,
                                   0x03020100);
    } else if (kind == LOOK_NARROW) {
        const __m128i a = _mm_loadu_si128((const void *)e);
        const __m128i b = _mm_loadu_si128((const void *)(e + 8));
        t.high = _mm512_broadcast_i32x4(_mm_packs_epi16(a, b));
    } else if (kind == WEIGHT_LUT4) {
        const __m512i a =
            _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)e));
        const __m512i low = _mm512_and_si512(a, _mm512_set1_epi16(63));
        const __m512i k = _mm512_packs_epi16(_mm512_srai_epi16(a, 6), low);
        t.high = _mm512_permutexvar_epi64(even, k);
        t.low = _mm512_permutexvar_epi64(
            _mm512_add_epi64(even, _mm512_set1_epi64(1)), k);
    } else if (kind == WEIGHT_LUT6) {
        const __m512i low6 = _mm512_set1_epi16(63);
        const __m512i a = _mm512_loadu_si512((const void *)e);
        const __m512i b = _mm512_loadu_si512((const void *)(e + 32));
        t.high = _mm512_permutexvar_epi64(
            both, _mm512_packs_epi16(_mm512_srai_epi16(a, 6),
                                     _mm512_srai_epi16(b, 6)));
        t.low = _mm512_permutexvar_epi64(
            both, _mm512_packs_epi16(_mm512_and_si512(a, low6),
                                     _mm512_and_si512(b, low6)));
    }
    return t;
}

/* Where a row's step begins, and the bytes that it reads. */
INLINE size_t step_at(int kind, size_t step)
{
    return in_pairs(kind) ? step / 2 * STEP : int_bytes(kind, STEP) * step;
}

INLINE size_t step_bytes(int kind)
{
    return kind == WEIGHT_LUT6 ? STEP / 4 * 3 : STEP;
}

INLINE size_t steps_of(int kind, size_t n)
{
    return in_pairs(kind) ? (n + PACK_PAIR - 1) / PACK_PAIR * 2
                          : (n + STEP - 1) / STEP;
}

/* Each three bytes as four times six bits; others of a byte do not count. */
INLINE __m512i six_bits(__m512i k)
{
    const __m512i spread = _mm512_set_epi32(
        0x2f2f2e2d, 0x2c2c2b2a, 0x29292827, 0x26262524, 0x23232221, 0x20201f1e,
        0x1d1d1c1b, 0x1a1a1918, 0x17171615, 0x14141312, 0x1111100f, 0x0e0e0d0c,
        0x0b0b0a09, 0x08080706, 0x05050403, 0x02020100);
    const __m512i from = _mm512_set1_epi64(0x322c2620120c0600);
    return _mm512_multishift_epi64_epi8(from,
                                        _mm512_permutexvar_epi8(spread, k));
}

/* One row of a step's tiles; kinds in pairs have row_pair. */
INLINE void row_step(int kind, const struct table *t, __m512i k, int8_t *to)
{
    if (kind == WEIGHT_I8) {
        _mm512_storeu_si512((void *)to, k);
        return;
    }
    must(kind == WEIGHT_LUT6);
    k = six_bits(k);
    _mm512_storeu_si512((void *)to, _mm512_permutexvar_epi8(k, t->high));
    _mm512_storeu_si512((void *)(to + TILE),
                        _mm512_permutexvar_epi8(k, t->low));
}

/* One row of both steps of a pair; next: from step to step. */
INLINE void row_pair(int kind, const struct table *t, __m512i k, int8_t *to,
                     size_t next)
{
    const __m512i odd = _mm512_srli_epi16(k, 4);
    _mm512_storeu_si512((void *)to, _mm512_permutexvar_epi8(k, t->high));
    _mm512_storeu_si512((void *)(to + next),
                        _mm512_permutexvar_epi8(odd, t->high));
    if (planes(kind) == 2) {
        _mm512_storeu_si512((void *)(to + TILE),
                            _mm512_permutexvar_epi8(k, t->low));
        _mm512_storeu_si512((void *)(to + next + TILE),
                            _mm512_permutexvar_epi8(odd, t->low));
    }
}

/* A strip of rows from o on. */
struct strip {
    const struct linear_job *j;
    size_t o;
    const char *w;
    const char *next; /* a strip to come, to prefetch */
    struct table table[UNIT]; /* of each row */
};

/* Neighbours often share a table. */
INLINE void strip_tables(struct strip *s, int kind)
{
    const size_t rows = kind == WEIGHT_I4 ? SIZE_MAX : s->j->table_rows;
    const size_t n = rows == 1 ? s->o : s->o / rows;
    const size_t entries = look_entries(kind);
    const int16_t *e = s->j->table + n * entries;
    size_t left = rows - (s->o - n * rows);
    struct table t = table_of(kind, e);
    for (size_t r = 0; r < strip_rows(kind); r++) {
        s->table[r] = t;
        if (--left == 0 && r + 1 < strip_rows(kind)) {
            e += entries;
            left = rows;
            t = table_of(kind, e);
        }
    }
}

INLINE void strip_new(struct strip *s, int kind, const struct linear_job *j,
                      size_t o, size_t end)
{
    const size_t bytes = strip_rows(kind) * j->ldw;
    const size_t after =
        o + (AHEAD + bytes - 1) / bytes * strip_rows(kind);
    s->j = j;
    s->o = o;
    s->w = j->w + o * j->ldw;
    s->next = after < end || j->then == NULL ? j->w + after * j->ldw
                                             : j->then + (after - end) * j->ldw;
    if (kind != WEIGHT_I8) {
        strip_tables(s, kind);
    }
}

/* Where a step of a block at k, of n elements, is. */
struct step {
    const char *p;    /* the strip's first row */
    const char *next; /* lines of the next strip that stand where these do */
    size_t valid;     /* bytes; 64 and more: of all rows a whole line */
};

INLINE struct step step_of(const struct strip *s, int kind, size_t k, size_t n,
                           size_t step)
{
    const size_t at = step_at(kind, step);
    return (struct step){
        .p = s->w + int_bytes(kind, k) + at,
        .next = s->next + (int_bytes(kind, k) + at) * strip_rows(kind),
        .valid = int_bytes(kind, n) - at,
    };
}

INLINE __mmask64 step_mask(const struct step *at, int kind)
{
    return ~(__mmask64)0 >> (64 - num_min(at->valid, step_bytes(kind)));
}

/* Prefetch for row r: a line of the next strip to the second cache, and what
 * this row has two lines further to the first. */
INLINE void row_ahead(const struct step *at, size_t r, const char *p)
{
    __builtin_prefetch(at->next + r * 64, 0, 2);
    __builtin_prefetch(p + 2 * STEP, 0, 3);
}

/* Step `step` of a block at k, of n elements, as two tiles. */
INLINE void strip_step(const struct strip *s, int kind, size_t k, size_t n,
                       size_t step, bool ahead, int8_t *to)
{
    const size_t rows = strip_rows(kind);
    const size_t lines = rows * step_bytes(kind) / 64;
    const struct step at = step_of(s, kind, k, n, step);
    const __mmask64 mask = step_mask(&at, kind);
    const size_t ldw = s->j->ldw;
    const char *p = at.p;
    if (at.valid >= 64) {
        for (size_t r = 0; r < rows; r++, p += ldw) {
            const size_t tile = r / TILE_ROWS * TILE;
            if (ahead && r < lines) {
                row_ahead(&at, r, p);
            }
            row_step(kind, &s->table[r], _mm512_loadu_si512((const void *)p),
                     to + tile + r % TILE_ROWS * STEP);
        }
        return;
    }
    for (size_t r = 0; r < rows; r++, p += ldw) {
        row_step(kind, &s->table[r], _mm512_maskz_loadu_epi8(mask, p),
                 to + r / TILE_ROWS * TILE + r % TILE_ROWS * STEP);
    }
}

/* Steps `step` and the next one, which have the same bytes (in_pairs). */
INLINE void strip_pair(const struct strip *s, int kind, size_t k, size_t n,
                       size_t step, bool ahead, int8_t *to)
{
    const size_t rows = strip_rows(kind);
    const struct step at = step_of(s, kind, k, n, step);
    const __mmask64 mask = step_mask(&at, kind);
    const size_t ldw = s->j->ldw;
    const char *p = at.p;
    if (at.valid >= 64) {
        for (size_t r = 0; r < rows; r++, p += ldw, to += STEP) {
            if (ahead) {
                row_ahead(&at, r, p);
            }
            row_pair(kind, &s->table[r], _mm512_loadu_si512((const void *)p),
                     to, PAIR);
        }
        return;
    }
    for (size_t r = 0; r < rows; r++, p += ldw, to += STEP) {
        row_pair(kind, &s->table[r], _mm512_maskz_loadu_epi8(mask, p), to,
                 PAIR);
    }
}
