/* kernel_256.h - the sets of 256-bit vectors, a template. The includer defines
 *   KERNELS, NAME     of its table
 *   DOT(acc, w, x)    acc plus the sums of neighbouring products of int16, in
 *                     int32 that wraps
 */
#pragma once

#include <immintrin.h>

#include "engine/cpu/kernels/attention/attend_impl.h"
#include "engine/cpu/kernels/products/linear_impl.h"
#include "engine/cpu/kernels/simd.h"

#define VB        32
#define FEW_TALL  2
#define FEW_COLS  6
#define MANY_VECS 2
#define MANY_COLS 6

typedef __m256i vi;

INLINE vi vi_zero(void)
{
    return _mm256_setzero_si256();
}

INLINE vi vi_load(const int16_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}

INLINE void vi_store(int16_t *p, vi a)
{
    _mm256_storeu_si256((void *)p, a);
}

INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

INLINE vi vi_dot(vi acc, vi w, vi x)
{
    acc = DOT(acc, w, x);
    ORDER(acc);
    return acc;
}

INLINE vi vi_pair(const int16_t *q)
{
    int32_t pair = 0;
    memcpy(&pair, q, sizeof(pair));
    return _mm256_set1_epi32(pair);
}

INLINE vi vi_split8(vi b, int odd)
{
    return _mm256_srai_epi16(odd ? b : _mm256_slli_epi16(b, 8), 8);
}

INLINE vi vi_half8(const int8_t *p, int odd)
{
    return vi_split8(_mm256_loadu_si256((const void *)p), odd);
}

INLINE vi vi_half4(const uint8_t *p, int odd)
{
    __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
    return odd ? _mm256_srai_epi16(b, 4)
               : _mm256_srai_epi16(_mm256_slli_epi16(b, 12), 12);
}

INLINE void vi_sum4(const vi a[4], float out[4], bool first)
{
    vi s = _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]),
                             _mm256_hadd_epi32(a[2], a[3]));
    __m128 f = _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(s),
                                             _mm256_extracti128_si256(s, 1)));
    _mm_storeu_ps(out, first ? f : _mm_add_ps(_mm_loadu_ps(out), f));
}

INLINE void vi_floats(float *out, vi a, bool first)
{
    __m256 f = _mm256_cvtepi32_ps(a);
    _mm256_storeu_ps(out, first ? f : _mm256_add_ps(_mm256_loadu_ps(out), f));
}

/* 8 x 8 of int32. */
INLINE void vi_transpose(vi t[8])
{
    UNSET vi a[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(t[i], t[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(t[i], t[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        t[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        t[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        t[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        t[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
        a[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) {
        t[i] = a[i];
    }
}

/* --- tables (linear_table.h): of eight lanes first the even ones --- */

#define TB_STEP    32
#define TB_VECS    2
#define TB_COLS    4
#define TB_ROWS(C) ((C) == 1 ? 2 : 1)

typedef __m256 tb_vec;

/* The entries' first bytes, their second ones, ..., in both halves. */
struct tb_table {
    __m256i bytes[4];
};

INLINE tb_vec tb_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE tb_vec tb_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

INLINE tb_vec tb_fma(tb_vec a, tb_vec b, tb_vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE tb_vec tb_and(tb_vec a, tb_vec b)
{
    return _mm256_and_ps(a, b);
}

INLINE void tb_table_set(struct tb_table *t, const float *lut)
{
    uint8_t bytes[64];
    memcpy(bytes, lut, sizeof(bytes));
    for (int b = 0; b < 4; b++) {
        uint8_t plane[16];
        for (int i = 0; i < 16; i++) {
            plane[i] = bytes[i * 4 + b];
        }
        t->bytes[b] = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const void *)plane));
    }
}

/* Even elements in the low half, odd ones in the high half; their bytes are
 * looked up one by one and put together, which takes fewer instructions than
 * two lookups of eight floats and a choice. */
INLINE void tb_look(const struct tb_table *t, const char *p, tb_vec w[4])
{
    const __m256i places = _mm256_setr_epi64x(0, 0, 4, 4);
    UNSET __m256i b[4];
    __m256i k =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
    k = _mm256_and_si256(_mm256_srlv_epi64(k, places), _mm256_set1_epi8(15));
    for (int i = 0; i < 4; i++) {
        b[i] = _mm256_shuffle_epi8(t->bytes[i], k);
    }
    __m256i l01 = _mm256_unpacklo_epi8(b[0], b[1]);
    __m256i h01 = _mm256_unpackhi_epi8(b[0], b[1]);
    __m256i l23 = _mm256_unpacklo_epi8(b[2], b[3]);
    __m256i h23 = _mm256_unpackhi_epi8(b[2], b[3]);
    w[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(l01, l23));
    w[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(l01, l23));
    w[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(h01, h23));
    w[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(h01, h23));
}

INLINE void tb_order(float *to, const float *x)
{
    const __m256i lanes = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    for (int i = 0; i < TB_STEP; i += 8) {
        _mm256_storeu_ps(
            to + i, _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + i), lanes));
    }
}

/* Lanes i and 8 + i of a and of b, then 0 + 4 and 2 + 6 of a, of b; the odd
 * ones in the high half. */
INLINE __m256 sum_pairs(const tb_vec a[2], const tb_vec b[2])
{
    __m256 t = _mm256_add_ps(a[0], a[1]);
    __m256 u = _mm256_add_ps(b[0], b[1]);
    return _mm256_add_ps(_mm256_shuffle_ps(t, u, 0x44),
                         _mm256_shuffle_ps(t, u, 0xee));
}

INLINE void tb_sum4(const tb_vec a[8], float out[4])
{
    __m256 p = sum_pairs(a, a + 2);
    __m256 q = sum_pairs(a + 4, a + 6);
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(p, q, 0x88),
                             _mm256_shuffle_ps(p, q, 0xdd));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s),
                                  _mm256_extractf128_ps(s, 1)));
}

#include "engine/cpu/kernels/sets/kernel_x86.h"
#include "engine/cpu/kernels/products/linear_int.h"
#include "engine/cpu/kernels/products/linear_round.h"
#include "engine/cpu/kernels/products/linear_table.h"

const struct kernels KERNELS = {
    .name = NAME,
    .k_step = VB,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_few,
    .int_many = int_many,
    .many = 32,
    .table_rows = table_rows,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
    .attend_join = attend_join,
};
