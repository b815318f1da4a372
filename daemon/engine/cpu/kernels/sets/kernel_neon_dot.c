/* kernel_neon_dot.c - the "neon_dot" set: FEAT_DotProd's sdot, sums of four
 * products of bytes. A column's parts are the high bytes of 16 elements and
 * their low bytes. */
#include "engine/cpu/kernels/sets/kernel_neon_bytes.h"

#define KERNELS  kernels_neon_dot
#define NAME     "neon_dot"
#define FEW_TALL 3 /* each column takes two accumulators a row */
#define FEW_COLS 6

INLINE int32x4_t vi_dot(int32x4_t acc, int32x4_t w, int32x4_t x)
{
    acc = vdotq_s32(acc, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
    ORDER(acc);
    return acc;
}

INLINE int32x4_t vi_join(int32x4_t high, int32x4_t low)
{
    return vaddq_s32(vshlq_n_s32(high, BYTES_LOW), low);
}

INLINE void rb_store(const int32x4_t v[4], int16_t *q)
{
    UNSET int8x16_t high;
    UNSET int8x16_t low;
    bytes_of(v, &high, &low);
    vst1q_s16(q, vreinterpretq_s16_s8(high));
    vst1q_s16(q + 8, vreinterpretq_s16_s8(low));
}

INLINE void words_of(const int16_t *q, int16_t *to)
{
    int8x16_t h = vreinterpretq_s8_s16(vld1q_s16(q));
    int8x16_t l = vreinterpretq_s8_s16(vld1q_s16(q + 8));
    const int8x8_t high[2] = {vget_low_s8(h), vget_high_s8(h)};
    const int8x8_t low[2] = {vget_low_s8(l), vget_high_s8(l)};
    words_store(high, low, to);
}

#include "engine/cpu/kernels/sets/kernel_neon.h"
