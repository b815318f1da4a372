/* kernel_neon.c - the "neon" set. Products are widening multiply-adds of 16
 * bits, which every arm64 machine has: eight elements in two instructions,
 * four sums. */
#include <arm_neon.h>

#include "engine/cpu/kernels/products/linear_impl.h"

#define KERNELS  kernels_neon
#define NAME     "neon"
#define OWN_WORDS 0
#define FEW_TALL 4
#define FEW_COLS 8

INLINE int32x4_t vi_dot(int32x4_t acc, int32x4_t w, int32x4_t x)
{
    int16x8_t a = vreinterpretq_s16_s32(w);
    int16x8_t b = vreinterpretq_s16_s32(x);
    acc = vmlal_s16(acc, vget_low_s16(a), vget_low_s16(b));
    acc = vmlal_high_s16(acc, a, b);
    ORDER(acc);
    return acc;
}

INLINE int32x4_t vi_half8(const int8_t *p, int odd)
{
    int16x8_t b = vreinterpretq_s16_s8(vld1q_s8(p));
    return vreinterpretq_s32_s16(vshrq_n_s16(odd ? b : vshlq_n_s16(b, 8), 8));
}

INLINE int32x4_t vi_half4(const uint8_t *p, int odd)
{
    int16x8_t b = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return vreinterpretq_s32_s16(odd ? vshrq_n_s16(b, 4)
                                     : vshrq_n_s16(vshlq_n_s16(b, 12), 12));
}

/* The even ones and the odd ones apart. */
INLINE void rb_store(const int32x4_t v[4], int16_t *q)
{
    int16x8_t a = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
    int16x8_t b = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    vst1q_s16(q, vuzp1q_s16(a, b));
    vst1q_s16(q + 8, vuzp2q_s16(a, b));
}

#include "engine/cpu/kernels/sets/kernel_neon.h"
