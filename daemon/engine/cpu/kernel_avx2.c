/* kernel_avx2.c - the "avx2" set. */
#include <immintrin.h>

#include "engine/cpu/attend_impl.h"
#include "engine/cpu/linear_impl.h"
#include "engine/cpu/simd.h"

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
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(w, x));
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

#include "engine/cpu/kernel_x86.h"
#include "engine/cpu/linear_int.h"
#include "engine/cpu/linear_round.h"

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .k_step = VB,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_few,
    .int_many = int_many,
    .many = 32,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
};
