/* tile_columns.h - columns of 16 bits as tiles of their high and low bytes
 * (kernels.pack). */
#pragma once

#include "engine/cpu/kernels/products/tiles/tile.h"
#include "engine/cpu/kernels/sets/vectors_512.h"

/* The low bytes of even elements and of odd ones, in the order of k. */
INLINE __m512i woven(__m512i even, __m512i odd)
{
    return _mm512_or_si512(_mm512_and_si512(even, _mm512_set1_epi16(0xff)),
                           _mm512_slli_epi16(odd, 8));
}

/* 8 x 8 of 64 bits: number i of every register becomes register i. */
INLINE void transpose8(__m512i t[8])
{
    UNSET __m512i a[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm512_unpacklo_epi64(t[i], t[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int n = 0; n < 2; n++) {
            t[i + n] = _mm512_shuffle_i64x2(a[i + n], a[i + n + 2], 0x88);
            t[i + n + 2] = _mm512_shuffle_i64x2(a[i + n], a[i + n + 2], 0xdd);
        }
    }
    for (int n = 0; n < 4; n++) {
        a[n] = _mm512_shuffle_i64x2(t[n], t[n + 4], 0x88);
        a[n + 4] = _mm512_shuffle_i64x2(t[n], t[n + 4], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        t[i] = a[i];
    }
}

/* 64 words of a column, as two halves, into bytes. */
struct words {
    __m512i a, b;
};

/* The words of tile `step`, of a column that has k_pad; there may be less. */
INLINE struct words words_of(enum pack_order order, const int16_t *q,
                             size_t k_pad, size_t step)
{
    const __m512i zero = _mm512_setzero_si512();
    if (order == PACK_PLAIN) {
        q += step * STEP;
        return (struct words){_mm512_loadu_si512((const void *)q),
                              _mm512_loadu_si512((const void *)(q + STEP / 2))};
    }
    const bool both = (step / 2 + 1) * PACK_PAIR <= k_pad;
    q += step / 2 * PACK_PAIR + step % 2 * (STEP / 2);
    return (struct words){
        _mm512_loadu_si512((const void *)q),
        both ? _mm512_loadu_si512((const void *)(q + STEP)) : zero};
}

/* A tile of up to GROUP columns: row r has four elements of each, their high
 * bytes and their low ones. */
INLINE void pack_tile(enum pack_order order, const int16_t *q, size_t ldq,
                      size_t cols, size_t k_pad, size_t step, int8_t *to)
{
    const __m512i low7 = _mm512_set1_epi16(0x7f);
    UNSET __m512i first[GROUP];  /* rows 0, 1, 4, 5, 8 ... */
    UNSET __m512i second[GROUP]; /* rows 2, 3, 6, 7 ... */
    for (size_t c = 0; c < GROUP; c++) {
        __m512i high = _mm512_setzero_si512();
        __m512i low = high;
        if (c < cols) {
            struct words w = words_of(order, q + c * ldq, k_pad, step);
            struct words h = {_mm512_srai_epi16(w.a, 7),
                              _mm512_srai_epi16(w.b, 7)};
            struct words l = {_mm512_and_si512(w.a, low7),
                              _mm512_and_si512(w.b, low7)};
            high = order == PACK_PLAIN ? woven(h.a, h.b) : bytes_512(h.a, h.b);
            low = order == PACK_PLAIN ? woven(l.a, l.b) : bytes_512(l.a, l.b);
        }
        first[c] = _mm512_unpacklo_epi32(high, low);
        second[c] = _mm512_unpackhi_epi32(high, low);
    }
    transpose8(first);
    transpose8(second);
    for (size_t i = 0; i < 4; i++) {
        int8_t *rows = to + i * 4 * STEP;
        _mm512_storeu_si512((void *)rows, first[2 * i]);
        _mm512_storeu_si512((void *)(rows + STEP), first[2 * i + 1]);
        _mm512_storeu_si512((void *)(rows + 2 * STEP), second[2 * i]);
        _mm512_storeu_si512((void *)(rows + 3 * STEP), second[2 * i + 1]);
    }
}

static enum pack_order pack_order(int kind)
{
    return in_pairs(kind) ? PACK_PAIRS : PACK_PLAIN;
}

static void pack(enum pack_order order, const int16_t *q, size_t ldq,
                 size_t cols, size_t k_pad, int8_t *to)
{
    const size_t steps = order == PACK_PLAIN
                             ? k_pad / STEP
                             : (k_pad + PACK_PAIR - 1) / PACK_PAIR * 2;
    for (size_t i = 0; i < steps; i++) {
        if (order == PACK_PLAIN) {
            pack_tile(PACK_PLAIN, q, ldq, cols, k_pad, i, to + i * TILE);
        } else {
            pack_tile(PACK_PAIRS, q, ldq, cols, k_pad, i, to + i * TILE);
        }
    }
}

/* A product's columns, packed. */
struct columns {
    const int8_t *b; /* packed */
    size_t groups, ld; /* bytes from group to group */
};

INLINE struct columns columns_of(const struct linear_job *j)
{
    return (struct columns){j->packed, linear_groups(j->cols),
                            pack_bytes(j->k)};
}
