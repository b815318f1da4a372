/* simde512.h - AVX-512 intrinsics out of smaller ones, for tests: SIMDe's
 * headers, and what its 0.7 lacks. Included before anything else. */
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>
#define __mmask64 __mmask64 /* clang has it, as another type than SIMDe 0.8 */
#include <simde/x86/avx512.h>
#include <string.h>

static inline __m512 shim_cvtepi32_ps(__m512i a)
{
    __m256i i[2];
    __m256 f[2];
    __m512 r;
    memcpy(i, &a, sizeof(a));
    f[0] = _mm256_cvtepi32_ps(i[0]);
    f[1] = _mm256_cvtepi32_ps(i[1]);
    memcpy(&r, f, sizeof(r));
    return r;
}
#define _mm512_cvtepi32_ps shim_cvtepi32_ps

static inline __m512i shim_srai_epi32(__m512i a, unsigned n)
{
    __m256i i[2];
    memcpy(i, &a, sizeof(a));
    i[0] = _mm256_srai_epi32(i[0], (int)n);
    i[1] = _mm256_srai_epi32(i[1], (int)n);
    memcpy(&a, i, sizeof(a));
    return a;
}
#define _mm512_srai_epi32 shim_srai_epi32

static inline __m512i shim_srai_epi64(__m512i a, unsigned n)
{
    int64_t i[8];
    memcpy(i, &a, sizeof(a));
    for (int k = 0; k < 8; k++) {
        i[k] >>= n;
    }
    memcpy(&a, i, sizeof(a));
    return a;
}
#define _mm512_srai_epi64 shim_srai_epi64

static inline __m512i shim_maskz_loadu_epi32(__mmask16 k, const void *p)
{
    const char *from = (const char *)p;
    int32_t i[16] = {0};
    __m512i r;
    for (int n = 0; n < 16; n++) { /* nothing else is read */
        if ((k >> n & 1) != 0) {
            memcpy(&i[n], from + 4 * n, sizeof(i[n]));
        }
    }
    memcpy(&r, i, sizeof(r));
    return r;
}
#define _mm512_maskz_loadu_epi32 shim_maskz_loadu_epi32

static inline __m512i shim_cvtepu8_epi16(__m256i a)
{
    __m128i half[2];
    __m256i i[2];
    __m512i r;
    memcpy(half, &a, sizeof(a));
    i[0] = _mm256_cvtepu8_epi16(half[0]);
    i[1] = _mm256_cvtepu8_epi16(half[1]);
    memcpy(&r, i, sizeof(r));
    return r;
}
#define _mm512_cvtepu8_epi16 shim_cvtepu8_epi16

static inline __m256 shim_cvtepi64_ps(__m512i a)
{
    int64_t i[8];
    float f[8];
    __m256 r;
    memcpy(i, &a, sizeof(a));
    for (int n = 0; n < 8; n++) {
        f[n] = (float)i[n];
    }
    memcpy(&r, f, sizeof(r));
    return r;
}
#define _mm512_cvtepi64_ps shim_cvtepi64_ps
