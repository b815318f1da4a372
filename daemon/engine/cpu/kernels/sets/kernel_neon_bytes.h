/* kernel_neon_bytes.h - what the sets share whose instructions multiply bytes.
 *
 * An activation q of 15 bits is two bytes, high * 128 + low, with high = q >> 7
 * in -128 .. 127 and low in 0 .. 127: products with both are summed apart and
 * joined once for a block, high * 128 + low again. The sum of a block fits in
 * int32 (linear.h); what wraps on the way to it does so modulo 2^32.
 *
 * Weights stay in their order, as they lie in memory: nothing is taken apart
 * but nibbles. */
#pragma once

#include <arm_neon.h>

#include "engine/cpu/kernels/products/linear_impl.h"

#define BYTES_LOW 7 /* bits of the low byte */

#define VI_SUMS   2
#define OWN_WORDS 1
#define VI_KEEP

/* The high and the low bytes of 16 integers. */
INLINE void bytes_of(const int32x4_t v[4], int8x16_t *high, int8x16_t *low)
{
    int16x8_t a = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
    int16x8_t b = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    *high = vcombine_s8(vshrn_n_s16(a, BYTES_LOW), vshrn_n_s16(b, BYTES_LOW));
    *low = vandq_s8(vcombine_s8(vmovn_s16(a), vmovn_s16(b)),
                    vdupq_n_s8((1 << BYTES_LOW) - 1));
}

/* 16 int4 in their order: each byte twice, of the first its low half moved up,
 * then all down with their sign. */
INLINE int8x16_t bytes_of4(uint8x8_t u)
{
    uint8x16_t twice = vcombine_u8(vzip1_u8(u, u), vzip2_u8(u, u));
    int8x16_t up = vreinterpretq_s8_u16(vdupq_n_u16(4)); /* 4, 0, 4, 0, ... */
    return vshrq_n_s8(vshlq_s8(vreinterpretq_s8_u8(twice), up), 4);
}

/* Both parts of a column meet the same 16 weights of a row. */
INLINE int32x4_t vi_half8(const int8_t *p, int part)
{
    (void)part;
    return vreinterpretq_s32_s8(vld1q_s8(p));
}

INLINE int32x4_t vi_half4(const uint8_t *p, int part)
{
    (void)part;
    return vreinterpretq_s32_s8(bytes_of4(vld1_u8(p)));
}

/* 16 activations of whose bytes eight each are given: the even ones, then the
 * odd ones. */
INLINE void words_store(const int8x8_t high[2], const int8x8_t low[2],
                        int16_t *to)
{
    int16x8_t a = vaddw_s8(vshll_n_s8(high[0], BYTES_LOW), low[0]);
    int16x8_t b = vaddw_s8(vshll_n_s8(high[1], BYTES_LOW), low[1]);
    vst1q_s16(to, vuzp1q_s16(a, b));
    vst1q_s16(to + 8, vuzp2q_s16(a, b));
}
