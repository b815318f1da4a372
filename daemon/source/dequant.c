/* Dequantisation, one function a type: nb blocks at p to floats at y. Here the
 * plain types and those with a scale, or a scale and a minimum, over whole
 * numbers; dequant_codes.c and dequant_grid.c have the others.
 *
 * The arithmetic is that of the `gguf` Python package: fp32 with a rounding
 * after every operation (the build forbids contraction), products in the order
 * written here. The loops have fixed bounds and no branches, so that the
 * compiler makes vector code of them; these files are built with -O3 for that,
 * once for each kind of machine. Layouts are ggml's block structures; each is
 * drawn above its function. */
#include <string.h>

#include "base/half.h"
#include "base/num.h"
#include "source/dequant.h"
#include "source/gguf_impl.h"

static void deq_f32(const uint8_t *p, float *y, size_t nb)
{
    memcpy(y, p, nb * sizeof(*y));
}

static void deq_f16(const uint8_t *p, float *y, size_t nb)
{
    if ((uintptr_t)p % sizeof(uint16_t) == 0) {
        half_to_floats((const uint16_t *)(const void *)p, y, nb);
        return;
    }
    for (size_t i = 0; i < nb; i++) {
        y[i] = f16(p + 2 * i);
    }
}

static void deq_bf16(const uint8_t *p, float *y, size_t nb)
{
    for (size_t i = 0; i < nb; i++) {
        y[i] = half_from_bf16(gguf_u16(p + 2 * i));
    }
}

/* f16 d; 16 bytes: low nibbles are elements 0..15, high ones 16..31 */
static void deq_q4_0(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 18, y += 32) {
        float d = f16(p);
        for (int i = 0; i < 16; i++) {
            y[i] = d * (float)((p[2 + i] & 15) - 8);
            y[i + 16] = d * (float)((p[2 + i] >> 4) - 8);
        }
    }
}

/* f16 d, f16 m; nibbles as above */
static void deq_q4_1(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 20, y += 32) {
        float d = f16(p);
        float m = f16(p + 2);
        for (int i = 0; i < 16; i++) {
            y[i] = d * (float)(p[4 + i] & 15) + m;
            y[i + 16] = d * (float)(p[4 + i] >> 4) + m;
        }
    }
}

/* Nibbles as above, with bit i of qh as the fifth bit of element i. */
static void five_bits(const uint8_t *nibbles, uint32_t qh, int32_t q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = nibbles[i] & 15;
        q[i + 16] = nibbles[i] >> 4;
    }
    for (uint32_t i = 0; i < 32; i++) {
        q[i] |= (int32_t)(((qh >> i) & 1u) << 4);
    }
}

/* f16 d, u32 qh, 16 bytes */
static void deq_q5_0(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 22, y += 32) {
        float d = f16(p);
        int32_t q[32];
        five_bits(p + 6, gguf_u32(p + 2), q);
        for (int i = 0; i < 32; i++) {
            y[i] = d * (float)(q[i] - 16);
        }
    }
}

/* f16 d, f16 m, u32 qh, 16 bytes */
static void deq_q5_1(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 24, y += 32) {
        float d = f16(p);
        float m = f16(p + 2);
        int32_t q[32];
        five_bits(p + 8, gguf_u32(p + 4), q);
        for (int i = 0; i < 32; i++) {
            y[i] = d * (float)q[i] + m;
        }
    }
}

/* f16 d, 32 x i8 */
static void deq_q8_0(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 34, y += 32) {
        float d = f16(p);
        for (int i = 0; i < 32; i++) {
            y[i] = (float)(int8_t)p[2 + i] * d;
        }
    }
}

/* 16 bytes: low nibble scale, high nibble min, of 16 elements each; 64 bytes
 * of 2-bit values; f16 d, f16 dmin.
 * Element 128 h + 32 s + i is bits 2 s of byte 32 h + i. */
static void deq_q2_k(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 84, y += QK) {
        const uint8_t *q = p + 16;
        float d = f16(p + 80);
        float dmin = f16(p + 82);
        for (int g = 0; g < 16; g++) {
            float dl = d * (float)(p[g] & 15);
            float ml = dmin * (float)(p[g] >> 4);
            const uint8_t *src = q + g / 8 * 32 + g % 2 * 16;
            int shift = g / 2 % 4 * 2;
            for (int i = 0; i < 16; i++) {
                y[16 * g + i] = dl * (float)((src[i] >> shift) & 3) - ml;
            }
        }
    }
}

/* 32 bytes hmask, 64 bytes of low 2-bit values (placed as in Q2_K), 12 bytes
 * of sixteen 6-bit scales, f16 d. Bit g/2 of hmask[16 (g%2) + i] clear means
 * minus 4. */
static void deq_q3_k(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 110, y += QK) {
        const uint8_t *q = p + 32;
        const uint8_t *s = p + 96;
        float d = f16(p + 108);
        for (int g = 0; g < 16; g++) {
            int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
            int high = (s[8 + g % 4] >> (g / 4 * 2)) & 3;
            float dl = d * (float)((low | (high << 4)) - 32);
            const uint8_t *src = q + g / 8 * 32 + g % 2 * 16;
            const uint8_t *mask = p + g % 2 * 16;
            int shift = g / 2 % 4 * 2;
            int bit = g / 2;
            for (int i = 0; i < 16; i++) {
                int low2 = (src[i] >> shift) & 3;
                int four = (((mask[i] >> bit) & 1) ^ 1) << 2;
                y[16 * g + i] = dl * (float)(low2 - four);
            }
        }
    }
}

/* Q4_K and Q5_K begin with f16 d, f16 dmin and 12 bytes that hold eight 6-bit
 * scales and eight 6-bit mins: those of group g, multiplied out. */
static void scale_min(const uint8_t *p, int g, float *scale, float *min)
{
    const uint8_t *s = p + 4;
    int sc = s[g] & 63;
    int mn = s[g + 4] & 63;
    if (g >= 4) {
        sc = (s[g + 4] & 15) | ((s[g - 4] >> 2) & 48);
        mn = (s[g + 4] >> 4) | ((s[g] >> 2) & 48);
    }
    *scale = f16(p) * (float)sc;
    *min = f16(p + 2) * (float)mn;
}

/* f16 d, f16 dmin, 12 bytes scales, 128 bytes: 32 bytes hold two groups of 32
 * elements, low nibbles first */
static void deq_q4_k(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 144, y += QK) {
        for (int g = 0; g < 8; g++) {
            float dl = 0;
            float ml = 0;
            scale_min(p, g, &dl, &ml);
            const uint8_t *q = p + 16 + g / 2 * 32;
            int shift = g % 2 * 4;
            for (int i = 0; i < 32; i++) {
                y[32 * g + i] = dl * (float)((q[i] >> shift) & 15) - ml;
            }
        }
    }
}

/* f16 d, f16 dmin, 12 bytes scales, 32 bytes qh (bit g is the fifth bit of
 * group g), 128 bytes as in Q4_K */
static void deq_q5_k(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 176, y += QK) {
        const uint8_t *qh = p + 16;
        for (int g = 0; g < 8; g++) {
            float dl = 0;
            float ml = 0;
            scale_min(p, g, &dl, &ml);
            const uint8_t *q = p + 48 + g / 2 * 32;
            int shift = g % 2 * 4;
            for (int i = 0; i < 32; i++) {
                int v = ((q[i] >> shift) & 15) | (((qh[i] >> g) & 1) << 4);
                y[32 * g + i] = dl * (float)v - ml;
            }
        }
    }
}

/* 128 bytes ql, 64 bytes qh, 16 x i8 scales, f16 d. Group g of 32 elements:
 * low nibble from ql, two high bits from qh. */
static void deq_q6_k(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 210, y += QK) {
        float d = f16(p + 208);
        for (int g = 0; g < 16; g++) {
            float dl = d * (float)(int8_t)p[192 + g];
            const uint8_t *ql = p + g / 8 * 64 + g % 4 * 16;
            const uint8_t *qh = p + 128 + g / 8 * 32 + g % 2 * 16;
            int shift = g / 4 % 2 * 4;
            int high = g / 2 % 4 * 2;
            for (int i = 0; i < 16; i++) {
                int v = ((ql[i] >> shift) & 15) | (((qh[i] >> high) & 3) << 4);
                y[16 * g + i] = dl * (float)(v - 32);
            }
        }
    }
}

const struct dequant DEQUANT_OF(plain) = {
    .fns = {
        [GGML_F32] = deq_f32,   [GGML_F16] = deq_f16,   [GGML_Q4_0] = deq_q4_0,
        [GGML_Q4_1] = deq_q4_1, [GGML_Q5_0] = deq_q5_0, [GGML_Q5_1] = deq_q5_1,
        [GGML_Q8_0] = deq_q8_0, [GGML_Q2_K] = deq_q2_k, [GGML_Q3_K] = deq_q3_k,
        [GGML_Q4_K] = deq_q4_k, [GGML_Q5_K] = deq_q5_k, [GGML_Q6_K] = deq_q6_k,
        [GGML_BF16] = deq_bf16,
    },
};
