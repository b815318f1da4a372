/* kernel_neon.h - the sets of NEON, a template. The includer defines
 *   KERNELS, NAME     of its table
 *   FEW_TALL, FEW_COLS, vi_dot, vi_half8, vi_half4
 *                     for linear_int.h, and what else that may want; VB is 16,
 *                     vi is int32x4_t
 *   rb_store(v, q)    16 integers as the two parts of a column
 *   OWN_WORDS         1: these are no words, but words_of(q, to) makes some:
 *                     first the even elements, then the odd ones
 */
#pragma once

#include <arm_neon.h>

#include "engine/cpu/kernels/attention/attend_impl.h"
#include "engine/cpu/kernels/kernel_impl.h"
#include "engine/cpu/kernels/products/linear_impl.h"
#include "engine/cpu/kernels/simd.h"

#define VB 16

/* Elements are kept in the type of the sums. */
typedef int32x4_t vi;

INLINE vi vi_zero(void)
{
    return vdupq_n_s32(0);
}

INLINE vi vi_load(const int16_t *p)
{
    return vreinterpretq_s32_s16(vld1q_s16(p));
}

INLINE vi vi_add(vi a, vi b)
{
    return vaddq_s32(a, b);
}

typedef int32x4_t vi4;

/* out (+)= four sums. */
INLINE void vi_put(vi4 s, float out[4], bool first)
{
    float32x4_t f = vcvtq_f32_s32(s);
    vst1q_f32(out, first ? f : vaddq_f32(vld1q_f32(out), f));
}

INLINE vi4 vi_across(const vi a[4])
{
    return vpaddq_s32(vpaddq_s32(a[0], a[1]), vpaddq_s32(a[2], a[3]));
}

/* --- rounding (linear_round.h) --- */

typedef uint32x4_t rb_peak;

INLINE rb_peak rb_peak_new(void)
{
    return vdupq_n_u32(0);
}

INLINE rb_peak rb_peak_more(rb_peak m, const float *x)
{
    for (int i = 0; i < VB; i += 4) {
        uint32x4_t b = vreinterpretq_u32_f32(vld1q_f32(x + i));
        m = vmaxq_u32(m, vandq_u32(b, vdupq_n_u32(0x7fffffffu)));
    }
    return m;
}

INLINE uint32_t rb_peak_of(rb_peak m)
{
    return vmaxvq_u32(m);
}

struct rb_count {
    uint32x4_t some, small;
};

INLINE size_t rb_count_some(const struct rb_count *n)
{
    return vaddvq_u32(n->some);
}

INLINE size_t rb_count_small(const struct rb_count *n)
{
    return vaddvq_u32(n->small);
}

INLINE int32x4_t rb_nearest(float32x4_t x, float pre, float mul)
{
    return vcvtnq_s32_f32(vmulq_n_f32(vmulq_n_f32(x, pre), mul));
}

INLINE void rb_round(const float *x, const struct linear_round *f, int16_t *q,
                     struct rb_count *n)
{
    UNSET int32x4_t v[4];
    for (int i = 0; i < 4; i++) {
        float32x4_t a = vld1q_f32(x + 4 * i);
        v[i] = rb_nearest(a, f->pre, f->mul);
        uint32x4_t some = vshrq_n_u32(vmvnq_u32(vceqzq_f32(a)), 31);
        uint32x4_t small =
            vcltq_s32(vabsq_s32(v[i]), vdupq_n_s32(LINEAR_SMALL));
        n->some = vaddq_u32(n->some, some);
        n->small = vaddq_u32(n->small, vandq_u32(some, small));
    }
    rb_store(v, q);
}

INLINE void rb_split(const float *x, const struct linear_round *f, int16_t *hi,
                     int16_t *lo)
{
    UNSET int32x4_t h[4];
    UNSET int32x4_t l[4];
    for (int i = 0; i < 4; i++) {
        int32x4_t v = rb_nearest(vld1q_f32(x + 4 * i), f->pre, f->wide_mul);
        int32x4_t up = vaddq_s32(v, vdupq_n_s32(1 << (LINEAR_SHIFT - 1)));
        h[i] = vshrq_n_s32(up, LINEAR_SHIFT);
        l[i] = vsubq_s32(v, vshlq_n_s32(h[i], LINEAR_SHIFT));
    }
    rb_store(h, hi);
    rb_store(l, lo);
}

/* --- tables (linear_look.h): 16 entries' low bytes, and their high bytes ---
 */

struct lk_table {
    uint8x16x4_t low, high; /* of 16 entries the first */
};

INLINE vi vi_high(vi a)
{
    return vshrq_n_s32(a, LOOK_SHIFT);
}

INLINE vi vi_low(vi a)
{
    return vandq_s32(a, vdupq_n_s32((1 << LOOK_SHIFT) - 1));
}

INLINE void vi_store(int16_t *p, vi a)
{
    vst1q_s16(p, vreinterpretq_s16_s32(a));
}

INLINE void vi_put_wide(vi4 high, vi4 low, float out[4], bool first)
{
    float32x4_t f = vfmaq_n_f32(vcvtq_f32_s32(low), vcvtq_f32_s32(high),
                                (float)(1 << LOOK_SHIFT));
    vst1q_f32(out, first ? f : vaddq_f32(vld1q_f32(out), f));
}

/* Also where other products are of bytes: entries are wider. */
INLINE vi lk_dot(vi acc, vi w, vi x)
{
    int16x8_t a = vreinterpretq_s16_s32(w);
    int16x8_t b = vreinterpretq_s16_s32(x);
    acc = vmlal_s16(acc, vget_low_s16(a), vget_low_s16(b));
    acc = vmlal_high_s16(acc, a, b);
    ORDER(acc);
    return acc;
}

INLINE void lk_set(int kind, struct lk_table *t, const int16_t *e)
{
    for (int i = 0; i < (kind == WEIGHT_LUT4 ? 1 : 4); i++) {
        uint8x16x2_t v = vld2q_u8((const uint8_t *)(const void *)(e + 16 * i));
        t->low.val[i] = v.val[0];
        t->high.val[i] = v.val[1];
    }
}

/* Bytes of eight even indices, then of eight odd ones. */
INLINE uint8x16_t lk_indices4(const uint8_t *p)
{
    uint8x8_t u = vld1_u8(p);
    return vcombine_u8(vand_u8(u, vdup_n_u8(15)), vshr_n_u8(u, 4));
}

/* The same: three bytes of four indices in a word and a word that overlaps
 * it. */
INLINE uint8x16_t lk_indices6(const uint8_t *p)
{
    static const uint8_t of_p[16] = {
        0, 1, 1, 2,  3,  4,  4,  5, /* of p */
        6, 7, 7, 12, 13, 14, 14, 15 /* of p + 4 */};
    uint16x8_t places = vreinterpretq_u16_u32(vdupq_n_u32(1u << 16 | 16));
    uint8x16_t b = vcombine_u8(vld1_u8(p), vld1_u8(p + 4));
    uint16x8_t k = vreinterpretq_u16_u8(vqtbl1q_u8(b, vld1q_u8(of_p)));
    k = vmulq_u16(k, places);
    return vcombine_u8(vand_u8(vshrn_n_u16(k, 4), vdup_n_u8(63)),
                       vmovn_u16(vshrq_n_u16(k, 10)));
}

INLINE void lk_look(int kind, const struct lk_table *t, const uint8_t *p,
                    vi w[2])
{
    uint8x16_t low;
    uint8x16_t high;
    if (kind == WEIGHT_LUT4) {
        uint8x16_t k = lk_indices4(p);
        low = vqtbl1q_u8(t->low.val[0], k);
        high = vqtbl1q_u8(t->high.val[0], k);
    } else {
        uint8x16_t k = lk_indices6(p);
        low = vqtbl4q_u8(t->low, k);
        high = vqtbl4q_u8(t->high, k);
    }
    w[0] = vreinterpretq_s32_u8(vzip1q_u8(low, high));
    w[1] = vreinterpretq_s32_u8(vzip2q_u8(low, high));
}

#include "engine/cpu/kernels/products/linear_int.h"
#include "engine/cpu/kernels/products/linear_round.h"

const struct kernels KERNELS = {
    .name = NAME,
    .k_step = VB,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_few,
    .int_many = int_few,
    .many = SIZE_MAX,
    .run = look_run_of,
    .own_words = OWN_WORDS ? SIZE_MAX : 0,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
    .attend_join = attend_join,
};
