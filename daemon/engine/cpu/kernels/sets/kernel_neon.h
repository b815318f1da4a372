/* kernel_neon.h - the sets of NEON, a template. The includer defines
 *   KERNELS, NAME     of its table
 *   FEW_TALL, FEW_COLS, vi_dot, vi_half8, vi_half4
 *                     for linear_int.h, and what else that may want; VB is 16,
 *                     vi is int32x4_t
 *   rb_store(v, q)    16 integers as the two parts of a column
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

/* out (+)= four sums. */
INLINE void vi_put(vi s, float out[4], bool first)
{
    float32x4_t f = vcvtq_f32_s32(s);
    vst1q_f32(out, first ? f : vaddq_f32(vld1q_f32(out), f));
}

INLINE void vi_sum4(const vi a[4], float out[4], bool first)
{
    vi_put(vpaddq_s32(vpaddq_s32(a[0], a[1]), vpaddq_s32(a[2], a[3])), out,
           first);
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

/* --- tables (linear_table.h): lanes in natural order --- */

#define TB_STEP    16
#define TB_VECS    4
#define TB_COLS    4
#define TB_ROWS(C) ((C) <= 2 ? 2 : 1)

typedef float32x4_t tb_vec;

/* The entries' first bytes, their second ones, ... */
struct tb_table {
    uint8x16x4_t bytes;
};

INLINE tb_vec tb_zero(void)
{
    return vdupq_n_f32(0);
}

INLINE tb_vec tb_load(const float *p)
{
    return vld1q_f32(p);
}

INLINE tb_vec tb_fma(tb_vec a, tb_vec b, tb_vec c)
{
    return vfmaq_f32(c, a, b);
}

INLINE tb_vec tb_and(tb_vec a, tb_vec b)
{
    return vreinterpretq_f32_u32(
        vandq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}

INLINE void tb_table_set(struct tb_table *t, const float *lut)
{
    t->bytes = vld4q_u8((const uint8_t *)(const void *)lut);
}

INLINE tb_vec tb_floats(uint8x16_t low, uint8x16_t high, int second)
{
    uint16x8_t a = vreinterpretq_u16_u8(low);
    uint16x8_t b = vreinterpretq_u16_u8(high);
    return vreinterpretq_f32_u16(second ? vzip2q_u16(a, b) : vzip1q_u16(a, b));
}

INLINE void tb_look(const struct tb_table *t, const char *p, tb_vec w[4])
{
    UNSET uint8x16_t b[4];
    uint8x8_t u = vld1_u8((const uint8_t *)(const void *)p);
    uint8x8_t even = vand_u8(u, vdup_n_u8(15));
    uint8x8_t odd = vshr_n_u8(u, 4);
    uint8x16_t k = vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd));
    for (int i = 0; i < 4; i++) {
        b[i] = vqtbl1q_u8(t->bytes.val[i], k);
    }
    for (int i = 0; i < 2; i++) {
        w[i] = tb_floats(vzip1q_u8(b[0], b[1]), vzip1q_u8(b[2], b[3]), i);
        w[2 + i] = tb_floats(vzip2q_u8(b[0], b[1]), vzip2q_u8(b[2], b[3]), i);
    }
}

INLINE void tb_order(float *to, const float *x)
{
    memcpy(to, x, TB_STEP * sizeof(*to));
}

/* Lanes i, 4 + i, 8 + i and 12 + i. */
INLINE float64x2_t sum_fours(const tb_vec a[4])
{
    return vreinterpretq_f64_f32(
        vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3])));
}

/* The sums of the even lanes and of the odd ones, of a and of b. */
INLINE float32x4_t sum_pairs(const tb_vec a[4], const tb_vec b[4])
{
    float64x2_t t = sum_fours(a);
    float64x2_t u = sum_fours(b);
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(t, u)),
                     vreinterpretq_f32_f64(vzip2q_f64(t, u)));
}

INLINE void tb_sum4(const tb_vec a[16], float out[4])
{
    vst1q_f32(out, vpaddq_f32(sum_pairs(a, a + 4), sum_pairs(a + 8, a + 12)));
}

#include "engine/cpu/kernels/products/linear_int.h"
#include "engine/cpu/kernels/products/linear_round.h"
#include "engine/cpu/kernels/products/linear_table.h"

const struct kernels KERNELS = {
    .name = NAME,
    .k_step = VB,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_few,
    .int_many = int_few,
    .many = SIZE_MAX,
    .table_rows = table_rows,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
    .attend_join = attend_join,
};
