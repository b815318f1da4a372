/* kernel_neon_i8mm.c - the "neon_i8mm" set: FEAT_I8MM's smmla multiplies two
 * rows of eight bytes with two others, four sums of eight products.
 *
 * The other two are the high and the low bytes of the same eight elements of a
 * column; a column's parts are its first eight elements and its last. A vector
 * of weights holds eight elements of two rows. Of a single row it holds all 16:
 * a part then gives two sums that count and two that do not. */
#include "engine/cpu/kernels/sets/kernel_neon_bytes.h"

#define KERNELS  kernels_neon_i8mm
#define NAME     "neon_i8mm"
#define FEW_TALL 8 /* 16 accumulators */
#define FEW_COLS 8
#define VI_ROWS  2

INLINE int32x4_t vi_dot(int32x4_t acc, int32x4_t w, int32x4_t x)
{
    acc = vmmlaq_s32(acc, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
    ORDER(acc);
    return acc;
}

/* Of a single row: lanes 0 and 1 (high, low) count in the first part, 2 and 3
 * in the second. */
INLINE int32x4_t vi_join(int32x4_t a, int32x4_t b)
{
    int32x4_t s = vcombine_s32(vget_low_s32(a), vget_high_s32(b));
    int32x4_t up = vreinterpretq_s32_u64(vdupq_n_u64(BYTES_LOW));
    return vshlq_s32(s, up);
}

/* Of two pairs of rows, each with lanes high, low, high, low. */
INLINE int32x4_t vi_rows_join(const int32x4_t a[2])
{
    int32x4_t high = vuzp1q_s32(a[0], a[1]);
    int32x4_t low = vuzp2q_s32(a[0], a[1]);
    return vaddq_s32(vshlq_n_s32(high, BYTES_LOW), low);
}

INLINE int32x4_t vi_rows8(const int8_t *p, size_t ldw, int part)
{
    int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(p));
    int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(p + ldw));
    return vreinterpretq_s32_s64(part ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
}

INLINE int32x4_t vi_rows4(const uint8_t *p, size_t ldw, int part)
{
    uint32x2_t a = vreinterpret_u32_u8(vld1_u8(p));
    uint32x2_t b = vreinterpret_u32_u8(vld1_u8(p + ldw));
    uint32x2_t both = part ? vzip2_u32(a, b) : vzip1_u32(a, b);
    return vreinterpretq_s32_s8(bytes_of4(vreinterpret_u8_u32(both)));
}

INLINE void rb_store(const int32x4_t v[4], int16_t *q)
{
    UNSET int8x16_t high;
    UNSET int8x16_t low;
    bytes_of(v, &high, &low);
    int64x2_t h = vreinterpretq_s64_s8(high);
    int64x2_t l = vreinterpretq_s64_s8(low);
    vst1q_s16(q, vreinterpretq_s16_s64(vzip1q_s64(h, l)));
    vst1q_s16(q + 8, vreinterpretq_s16_s64(vzip2q_s64(h, l)));
}

INLINE void words_of(const int16_t *q, int16_t *to)
{
    int8x16_t a = vreinterpretq_s8_s16(vld1q_s16(q));
    int8x16_t b = vreinterpretq_s8_s16(vld1q_s16(q + 8));
    const int8x8_t high[2] = {vget_low_s8(a), vget_low_s8(b)};
    const int8x8_t low[2] = {vget_high_s8(a), vget_high_s8(b)};
    words_store(high, low, to);
}

#include "engine/cpu/kernels/sets/kernel_neon.h"
