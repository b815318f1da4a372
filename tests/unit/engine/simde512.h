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
