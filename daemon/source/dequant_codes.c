/* Dequantisation of types whose codes stand for something else than their own
 * number, by a rule or a table of 16: see dequant.c for what holds here. */
#include "source/dequant.h"

/* A code of IQ4_NL and IQ4_XS. */
static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* A code of MXFP4: twice a number with two bits of exponent and one of
 * mantissa. */
static const int8_t mxfp4_values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                        0, -1, -2, -3, -4, -6, -8, -12};

/* 16 bytes: low nibbles are elements 0..15, high ones 16..31. */
static void nibbles(const uint8_t *q, const int8_t values[16], float d,
                    float *y)
{
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)values[q[i] & 15];
        y[i + 16] = d * (float)values[q[i] >> 4];
    }
}

/* f16 d, 16 bytes */
static void deq_iq4_nl(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 18, y += 32) {
        nibbles(p + 2, iq4_values, f16(p), y);
    }
}

/* f16 d, u16 with the two high bits of eight 6-bit scales, 4 bytes with their
 * low nibbles, then 16 bytes a group of 32 elements */
static void deq_iq4_xs(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 136, y += QK) {
        uint32_t high = gguf_u16(p + 2);
        for (uint32_t g = 0; g < 8; g++) {
            uint32_t low = (uint32_t)p[4 + g / 2] >> (g % 2 * 4);
            int scale = (int)((low & 15) | (high >> (2 * g) & 3) << 4) - 32;
            nibbles(p + 8 + 16 * g, iq4_values, f16(p) * (float)scale,
                    y + 32 * g);
        }
    }
}

/* Half of 2^(e - 127), which the doubled values make whole again. */
static float mxfp4_scale(uint8_t e)
{
    return half_float(e < 2 ? UINT32_C(0x00200000) << e
                            : (uint32_t)(e - 1) << 23);
}

/* u8 exponent, 16 bytes */
static void deq_mxfp4(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 17, y += 32) {
        nibbles(p + 1, mxfp4_values, mxfp4_scale(p[0]), y);
    }
}

/* A byte q of TQ1_0 holds five digits of base 3 as the fraction q / 256: times
 * 3^k, without what is whole, then times 3 once more, its whole part is digit
 * k, the highest first. n bytes at q give n elements a digit. */
static void trits(const uint8_t *q, int n, int digits, float d, float *y)
{
    unsigned power = 1;
    for (int k = 0; k < digits; k++, power *= 3) {
        for (int i = 0; i < n; i++) {
            unsigned rest = (q[i] * power) & 255;
            y[k * n + i] = d * (float)((int)(rest * 3 >> 8) - 1);
        }
    }
}

/* 32 + 16 bytes of five digits, 4 bytes of four, f16 d */
static void deq_tq1_0(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 54, y += QK) {
        float d = f16(p + 52);
        trits(p, 32, 5, d, y);
        trits(p + 32, 16, 5, d, y + 160);
        trits(p + 48, 4, 4, d, y + 240);
    }
}

/* 64 bytes of 2-bit codes, f16 d: element 128 h + 32 s + i is bits 2 s of byte
 * 32 h + i, less 1 */
static void deq_tq2_0(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 66, y += QK) {
        float d = f16(p + 64);
        for (int g = 0; g < 8; g++) {
            const uint8_t *q = p + g / 4 * 32;
            int shift = g % 4 * 2;
            for (int i = 0; i < 32; i++) {
                y[32 * g + i] = d * (float)(((q[i] >> shift) & 3) - 1);
            }
        }
    }
}

/* clang-format off */
const struct dequant DEQUANT_OF(codes) = {
    .fns = {
        [GGML_IQ4_NL] = deq_iq4_nl, [GGML_IQ4_XS] = deq_iq4_xs,
        [GGML_MXFP4] = deq_mxfp4,   [GGML_TQ1_0] = deq_tq1_0,
        [GGML_TQ2_0] = deq_tq2_0,
    },
};
/* clang-format on */
