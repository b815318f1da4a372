/* kernel_avx512.c - the "avx512" set: F, BW, VL and VNNI. */
#include <immintrin.h>

#include "engine/cpu/kernels/attention/attend_impl.h"
#include "engine/cpu/kernels/products/linear_impl.h"
#include "engine/cpu/kernels/simd.h"

#define VB        64
#define FEW_TALL  4
#define FEW_COLS  4
#define MANY_VECS 2
#define MANY_COLS 8

typedef __m512i vi;

INLINE vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

/* ORDER: loaded once, not once for each product or by way of the stack. */
INLINE vi vi_load(const int16_t *p)
{
    vi a = _mm512_loadu_si512((const void *)p);
#if defined(__AVX512F__) /* not when simulated */
    ORDER(a);
#endif
    return a;
}

INLINE void vi_store(int16_t *p, vi a)
{
    _mm512_storeu_si512((void *)p, a);
}

INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

INLINE vi vi_dot(vi acc, vi w, vi x)
{
    acc = _mm512_dpwssd_epi32(acc, w, x);
#if defined(__AVX512F__)
    ORDER(acc);
#endif
    return acc;
}

INLINE vi vi_pair(const int16_t *q)
{
    int32_t pair = 0;
    memcpy(&pair, q, sizeof(pair));
    return _mm512_set1_epi32(pair);
}

INLINE vi vi_split8(vi b, int odd)
{
    return _mm512_srai_epi16(odd ? b : _mm512_slli_epi16(b, 8), 8);
}

INLINE vi vi_half8(const int8_t *p, int odd)
{
    return vi_split8(_mm512_loadu_si512((const void *)p), odd);
}

INLINE vi vi_half4(const uint8_t *p, int odd)
{
    __m512i b = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
    return odd ? _mm512_srai_epi16(b, 4)
               : _mm512_srai_epi16(_mm512_slli_epi16(b, 12), 12);
}

INLINE vi add_across(vi a, vi b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b),
                            _mm512_unpackhi_epi32(a, b));
}

INLINE void vi_sum4(const vi a[4], float out[4], bool first)
{
    vi p = add_across(a[0], a[1]);
    vi q = add_across(a[2], a[3]);
    vi s = _mm512_add_epi32(_mm512_unpacklo_epi64(p, q),
                            _mm512_unpackhi_epi64(p, q));
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(s),
                                 _mm512_extracti64x4_epi64(s, 1));
    __m128 f = _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(h),
                                             _mm256_extracti128_si256(h, 1)));
    _mm_storeu_ps(out, first ? f : _mm_add_ps(_mm_loadu_ps(out), f));
}

INLINE void vi_floats(float *out, vi a, bool first)
{
    __m512 f = _mm512_cvtepi32_ps(a);
    _mm512_storeu_ps(out, first ? f : _mm512_add_ps(_mm512_loadu_ps(out), f));
}

/* 16 x 16 of int32: each 4 x 4 in its lane of 128 bits, then the lanes. */
INLINE void vi_transpose(vi t[16])
{
    UNSET vi a[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(t[i], t[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(t[i], t[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        t[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        t[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        t[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        t[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        t[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
    }
}

/* --- tables (linear_table.h): lane i lies at 2 i, lane 8 + i after it --- */

#define TB_STEP    16
#define TB_VECS    1
#define TB_COLS    8
#define TB_ROWS(C) ((C) == 1 ? 8 : (C) <= 4 ? 4 : 2)

typedef __m512 tb_vec;

struct tb_table {
    __m512 entries;
};

INLINE tb_vec tb_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE tb_vec tb_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE tb_vec tb_fma(tb_vec a, tb_vec b, tb_vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE tb_vec tb_and(tb_vec a, tb_vec b)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a),
                                                _mm512_castps_si512(b)));
}

INLINE void tb_table_set(struct tb_table *t, const float *lut)
{
    t->entries = _mm512_loadu_ps(lut);
}

/* Of an index only the lowest four bits count: nothing is masked. */
INLINE void tb_look(const struct tb_table *t, const char *p, tb_vec w[1])
{
    const __m512i places = _mm512_set_epi64(28, 24, 20, 16, 12, 8, 4, 0);
    int64_t word = 0;
    memcpy(&word, p, sizeof(word));
    __m512i k = _mm512_srlv_epi64(_mm512_set1_epi64(word), places);
    w[0] = _mm512_permutexvar_ps(k, t->entries);
}

INLINE void tb_order(float *to, const float *x)
{
    const __m512i lanes = _mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3,
                                           10, 2, 9, 1, 8, 0);
    _mm512_storeu_ps(to, _mm512_permutexvar_ps(lanes, _mm512_loadu_ps(x)));
}

/* Lanes i and 8 + i of a and of b: 0 1 of a, of b, 2 3, 4 5, 6 7. */
INLINE __m512 sum_pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88),
                         _mm512_shuffle_ps(a, b, 0xdd));
}

/* The sums of the even lanes and of the odd ones, for both. */
INLINE __m128 sum_lanes(__m512 t)
{
    __m256 h = _mm256_add_ps(
        _mm512_castps512_ps256(t),
        _mm256_castsi256_ps(
            _mm512_extracti64x4_epi64(_mm512_castps_si512(t), 1)));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

INLINE void tb_sum4(const tb_vec a[4], float out[4])
{
    __m128 p = sum_lanes(sum_pairs(a[0], a[1]));
    __m128 q = sum_lanes(sum_pairs(a[2], a[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm_shuffle_ps(p, q, 0x88),
                                  _mm_shuffle_ps(p, q, 0xdd)));
}

#include "engine/cpu/kernels/sets/kernel_x86.h"
#include "engine/cpu/kernels/products/linear_int.h"
#include "engine/cpu/kernels/products/linear_round.h"
#include "engine/cpu/kernels/products/linear_table.h"

const struct kernels kernels_avx512 = {
    .name = "avx512",
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
