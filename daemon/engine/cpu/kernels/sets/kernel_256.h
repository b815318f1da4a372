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

INLINE vi vi_abs(vi a)
{
    return _mm256_abs_epi16(a);
}

INLINE vi vi_ones(void)
{
    return _mm256_set1_epi16(1);
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

typedef __m128i vi4;

INLINE vi4 vi_across(const vi a[4])
{
    vi s = _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]),
                             _mm256_hadd_epi32(a[2], a[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(s),
                         _mm256_extracti128_si256(s, 1));
}

INLINE void vi_floats(float *out, vi a, bool first)
{
    __m256 f = _mm256_cvtepi32_ps(a);
    _mm256_storeu_ps(out, first ? f : _mm256_add_ps(_mm256_loadu_ps(out), f));
}

INLINE void vi_floats_wide(float *out, vi high, vi low, bool first)
{
    __m256 f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(high),
                               _mm256_set1_ps((float)(1 << LOOK_SHIFT)),
                               _mm256_cvtepi32_ps(low));
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

/* --- tables (linear_look.h): 16 entries' low bytes, and their high bytes ---
 *
 * A shuffle chooses among 16 bytes, so 64 entries take four, of which one
 * counts. It gives 0 where the index byte's highest bit is set, and keeps to
 * the low four bits otherwise. Index k plus 112 - 16 * i has that bit clear for
 * k below 16 * (i + 1) alone, and the same low bits. So part i holds what
 * entries 16 * i and on differ in from those of the next part: the XOR of all
 * four lookups is the entry. Blends choose too, but need masks, and fewer of
 * the ports do them (Zen 3: 30 instructions for 32 weights, not 36).
 */

#define LOOK_MEASURED
#define LOOK_PAIRS  PAIRS_ALL
#define LOOK_DIRECT 2 /* beside more columns tables are read from memory */

struct lk_table {
    vi low[4], high[4]; /* in both halves; four for 64 entries: see above */
};

INLINE vi vi_high(vi a)
{
    return _mm256_srai_epi32(a, LOOK_SHIFT);
}

INLINE vi vi_low(vi a)
{
    return _mm256_and_si256(a, _mm256_set1_epi32((1 << LOOK_SHIFT) - 1));
}

INLINE void lk_set(int kind, struct lk_table *t, const int16_t *e)
{
    const vi apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    for (int i = 0; i < (kind == WEIGHT_LUT4 ? 1 : 4); i++) {
        vi v = _mm256_loadu_si256((const void *)(e + 16 * i));
        v = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, apart), 0xd8);
        t->low[i] = _mm256_permute2x128_si256(v, v, 0x00);
        t->high[i] = _mm256_permute2x128_si256(v, v, 0x11);
    }
    for (int i = 0; kind != WEIGHT_LUT4 && i < 3; i++) {
        t->low[i] = _mm256_xor_si256(t->low[i], t->low[i + 1]);
        t->high[i] = _mm256_xor_si256(t->high[i], t->high[i + 1]);
    }
}

/* w: words of the low bytes and the high bytes. Indices, and so bytes, of even
 * elements are in the low quarters, those of odd ones in the high quarters. */
INLINE void lk_words(vi low, vi high, vi w[2])
{
    w[0] = _mm256_unpacklo_epi8(low, high);
    w[1] = _mm256_unpackhi_epi8(low, high);
}

INLINE void lk_look4(const struct lk_table *t, const uint8_t *p, vi w[2])
{
    const vi places = _mm256_setr_epi64x(0, 4, 0, 4);
    vi k = _mm256_castsi128_si256(_mm_loadu_si128((const void *)p));
    k = _mm256_srlv_epi64(_mm256_permute4x64_epi64(k, 0x50), places);
    k = _mm256_and_si256(k, _mm256_set1_epi8(15));
    lk_words(_mm256_shuffle_epi8(t->low[0], k),
             _mm256_shuffle_epi8(t->high[0], k), w);
}

/* Bytes of 32 even weights, or odd ones, and their words. */
INLINE void lk_pair(const struct lk_table *t, vi k, int odd, vi w[2])
{
    k = _mm256_and_si256(odd ? _mm256_srli_epi16(k, 4) : k,
                         _mm256_set1_epi8(15));
    lk_words(_mm256_shuffle_epi8(t->low[0], k),
             _mm256_shuffle_epi8(t->high[0], k), w);
}

/* lk_words takes bytes 0 to 7 of both halves, then bytes 8 to 15: of the even
 * weights 0 to 14 and 32 to 46, then 16 to 30 and 48 to 62. */
INLINE void pair_words(const int16_t *q, int16_t *to)
{
    for (int odd = 0; odd < 2; odd++) {
        vi a = vi_load(q + odd * (VB / 2));
        vi b = vi_load(q + VB + odd * (VB / 2));
        vi_store(to + odd * VB, _mm256_permute2x128_si256(a, b, 0x20));
        vi_store(to + odd * VB + VB / 2, _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* Three bytes of four indices in a word and a word that overlaps it. */
INLINE void lk_look6(const struct lk_table *t, const uint8_t *p, vi w[2])
{
    const vi bytes = _mm256_setr_epi8(
        0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, /* of p */
        4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 14, 15 /* of p + 8 */);
    vi k = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const void *)p)),
        _mm_loadu_si128((const void *)(p + 8)), 1);
    k = _mm256_shuffle_epi8(k, bytes);
    k = _mm256_mullo_epi16(k, _mm256_set1_epi32(1 << 16 | 16));
    vi even = _mm256_and_si256(_mm256_srli_epi16(k, 4), _mm256_set1_epi16(63));
    k = _mm256_packus_epi16(even, _mm256_srli_epi16(k, 10));
    vi low = _mm256_shuffle_epi8(t->low[3], k); /* k < 64: the bit is clear */
    vi high = _mm256_shuffle_epi8(t->high[3], k);
    for (int i = 0; i < 3; i++) {
        vi at = _mm256_add_epi8(k, _mm256_set1_epi8((char)(112 - 16 * i)));
        low = _mm256_xor_si256(low, _mm256_shuffle_epi8(t->low[i], at));
        high = _mm256_xor_si256(high, _mm256_shuffle_epi8(t->high[i], at));
    }
    lk_words(low, high, w);
}

#include "engine/cpu/kernels/sets/kernel_x86.h"
#include "engine/cpu/kernels/products/linear_int.h"
#include "engine/cpu/kernels/products/linear_round.h"

const struct kernels KERNELS = {
    .name = NAME,
    .k_step = VB,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_few,
    .int_many = int_many,
    .many = 32,
    .lane = int_lane,
    .run = look_run_of,
    .own_words = SIZE_MAX,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
    .attend_join = attend_join,
};
