/* vectors_512.h - what several files do with registers of 512 bits. */
#pragma once

#include <immintrin.h>

#include "engine/cpu/kernels/products/linear_impl.h"

INLINE __m512i across_pair(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b),
                            _mm512_unpackhi_epi32(a, b));
}

/* The sum of each register's 16 int32. */
INLINE __m128i across_512(const __m512i a[4])
{
    __m512i p = across_pair(a[0], a[1]);
    __m512i q = across_pair(a[2], a[3]);
    __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi64(p, q),
                                 _mm512_unpackhi_epi64(p, q));
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(s),
                                 _mm512_extracti64x4_epi64(s, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(h),
                         _mm256_extracti128_si256(h, 1));
}

/* The low bytes of a's words, then those of b's. */
INLINE __m512i bytes_512(__m512i a, __m512i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                              _mm512_cvtepi16_epi8(b), 1);
}
