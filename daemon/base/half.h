/* half.h - IEEE binary16 and bfloat16 as bit patterns.
 *
 * Rounding is to nearest, ties to even; |x| >= 65520 becomes infinity, NaN
 * stays NaN (quiet). Denormals are kept in both directions. There is a portable
 * form and one with F16C; both give the same bits. Files compiled for F16C use
 * it, and so do the functions for arrays where the machine has it.
 */
#pragma once

#include <string.h>

#include "base/base.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline uint32_t half_bits(float f)
{
    uint32_t u = 0;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float half_float(uint32_t u)
{
    float f = 0;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float half_to_float(uint16_t h)
{
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t e = (h >> 10) & 0x1fu;
    uint32_t m = h & 0x3ffu;
    if (e == 0x1f) {
        return half_float(sign | 0x7f800000u | (m << 13) |
                          (m != 0 ? 0x400000u : 0));
    }
    if (e == 0) { /* m * 2^-24 is exact in fp32 */
        float f = (float)m * 5.9604644775390625e-8f;
        return half_float(sign | half_bits(f));
    }
    return half_float(sign | ((e + 112) << 23) | (m << 13));
#endif
}

static inline uint16_t half_from_float(float f)
{
#if defined(__F16C__)
    return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
#else
    uint32_t u = half_bits(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((u >> 13) & 0x3ffu));
    }
    if (u >= 0x477ff000u) { /* 65520 and above */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (u < 0x38800000u) { /* below 2^-14: fp32 addition rounds for us */
        float t = half_float(u) + 0.5f;
        return (uint16_t)(sign | (half_bits(t) - 0x3f000000u));
    }
    uint32_t odd = (u >> 13) & 1u;
    return (uint16_t)(sign | ((u - 0x38000000u + 0xfffu + odd) >> 13));
#endif
}

/* f rounded to the nearest binary16 and back. */
static inline float half_round(float f)
{
    return half_to_float(half_from_float(f));
}

static inline float half_from_bf16(uint16_t b)
{
    return half_float((uint32_t)b << 16);
}

/* n elements; src and dst do not overlap. */
void half_to_floats(const uint16_t *src, float *dst, size_t n);
void half_from_floats(const float *src, uint16_t *dst, size_t n);
/* Round n floats in place to binary16. */
void half_round_floats(float *x, size_t n);
