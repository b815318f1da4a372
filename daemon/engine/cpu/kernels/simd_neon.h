/* simd_neon.h - the operations of simd.h on arm64, for that file to include.
 * Eight floats are two vectors; as an array they would live on the stack. */
#pragma once

#include <arm_neon.h>

typedef struct {
    float32x4_t lo, hi;
} v8;

static inline v8 v8_set(float x)
{
    float32x4_t a = vdupq_n_f32(x);
    return (v8){a, a};
}

static inline v8 v8_zero(void)
{
    return v8_set(0.0f);
}

static inline v8 v8_load(const float *p)
{
    return (v8){vld1q_f32(p), vld1q_f32(p + 4)};
}

static inline void v8_store(float *p, v8 a)
{
    vst1q_f32(p, a.lo);
    vst1q_f32(p + 4, a.hi);
}

static inline v8 v8_add(v8 a, v8 b)
{
    return (v8){vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
}

static inline v8 v8_sub(v8 a, v8 b)
{
    return (v8){vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)};
}

static inline v8 v8_mul(v8 a, v8 b)
{
    return (v8){vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}

static inline v8 v8_div(v8 a, v8 b)
{
    return (v8){vdivq_f32(a.lo, b.lo), vdivq_f32(a.hi, b.hi)};
}

/* a * b + c, rounded once */
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    return (v8){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

/* a < b ? x : y */
static inline v8 v8_less(v8 a, v8 b, v8 x, v8 y)
{
    return (v8){vbslq_f32(vcltq_f32(a.lo, b.lo), x.lo, y.lo),
                vbslq_f32(vcltq_f32(a.hi, b.hi), x.hi, y.hi)};
}

/* a > b ? a : b, so b when either is NaN: fmax would give NaN */
static inline v8 v8_max(v8 a, v8 b)
{
    return v8_less(b, a, a, b);
}

static inline v8 v8_min(v8 a, v8 b)
{
    return v8_less(a, b, a, b);
}

static inline v8 v8_abs(v8 a)
{
    return (v8){vabsq_f32(a.lo), vabsq_f32(a.hi)};
}

/* |a| with the sign of b */
static inline v8 v8_copysign(v8 a, v8 b)
{
    uint32x4_t sign = vdupq_n_u32(0x80000000u);
    return (v8){vbslq_f32(sign, b.lo, a.lo), vbslq_f32(sign, b.hi, a.hi)};
}

static inline v8 v8_from_f16(const uint16_t *p)
{
    float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
    return (v8){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}

static inline v8 v8_from_i8(const int8_t *p)
{
    int16x8_t b = vmovl_s8(vld1_s8(p));
    return (v8){vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))),
                vcvtq_f32_s32(vmovl_high_s16(b))};
}

/* Nearest binary16 and back. */
static inline v8 v8_round16(v8 a)
{
    return (v8){vcvt_f32_f16(vcvt_f16_f32(a.lo)),
                vcvt_f32_f16(vcvt_f16_f32(a.hi))};
}

/* Half of v8_scale2, which simd.h describes. */
static inline float32x4_t scale2_half(float32x4_t p, float32x4_t t,
                                      float32x4_t magic)
{
    int32x4_t n =
        vsubq_s32(vreinterpretq_s32_f32(t), vreinterpretq_s32_f32(magic));
    int32x4_t half = vshrq_n_s32(n, 1);
    int32x4_t bias = vdupq_n_s32(127);
    int32x4_t a = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t b = vshlq_n_s32(vaddq_s32(vsubq_s32(n, half), bias), 23);
    p = vmulq_f32(p, vreinterpretq_f32_s32(a));
    return vmulq_f32(p, vreinterpretq_f32_s32(b));
}

static inline v8 v8_scale2(v8 p, v8 t, v8 magic)
{
    return (v8){scale2_half(p.lo, t.lo, magic.lo),
                scale2_half(p.hi, t.hi, magic.hi)};
}

/* Sum of the lanes: (0+4)+(2+6) + (1+5)+(3+7). */
static inline float v8_sum(v8 a)
{
    float32x4_t s = vaddq_f32(a.lo, a.hi);
    return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)));
}
