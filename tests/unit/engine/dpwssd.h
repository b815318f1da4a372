/* dpwssd.h - vpdpwssd by its description, for machines (and emulators) without
 * AVX-VNNI. Intel, Intrinsics Guide, _mm256_dpwssd_avx_epi32:
 *
 *   FOR j := 0 to 7
 *       tmp1.dword := SignExtend32(a.word[2*j]) * SignExtend32(b.word[2*j])
 *       tmp2.dword := SignExtend32(a.word[2*j+1]) * SignExtend32(b.word[2*j+1])
 *       dst.dword[j] := src.dword[j] + tmp1 + tmp2
 *
 * The sums wrap (vpdpwssds is the one that saturates). Included before anything
 * else. */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline __m256i described_dpwssd(__m256i src, __m256i a, __m256i b)
{
    uint32_t s[8];
    int16_t x[16];
    int16_t y[16];
    memcpy(s, &src, sizeof(s));
    memcpy(x, &a, sizeof(x));
    memcpy(y, &b, sizeof(y));
    for (int j = 0; j < 8; j++) {
        s[j] += (uint32_t)((int32_t)x[2 * j] * y[2 * j]);
        s[j] += (uint32_t)((int32_t)x[2 * j + 1] * y[2 * j + 1]);
    }
    memcpy(&src, s, sizeof(src));
    return src;
}
#define _mm256_dpwssd_avx_epi32 described_dpwssd
