/* Dequantisation of the i-quants, whose blocks name points of a grid (grids.h):
 * see dequant.c for what holds here.
 *
 * IQ2 and IQ3 give a point eight signs, one bit each, where a set bit is minus.
 * Some write seven of them: the eighth makes their number even. IQ1 moves a
 * point up or down by an eighth instead. */
#include "source/dequant.h"
#include "source/grids.h"

/* Seven bits and the eighth that makes the number of set ones even. */
static uint32_t even_signs(uint32_t seven)
{
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

/* q, or -q where bit k of signs is set. */
static float with_sign(int q, uint32_t signs, uint32_t k)
{
    int minus = -(int)(signs >> k & 1);
    return (float)((q ^ minus) - minus);
}

/* A point of IQ2: code 0, 1 or 2 stands for 8, 25 or 43. */
static void point_iq2(uint32_t codes, uint32_t signs, float d, float *y)
{
    for (uint32_t k = 0; k < 8; k++) {
        int v = (int)(codes >> (2 * k) & 3);
        y[k] = d * with_sign(8 + 17 * v + (v >> 1), signs, k);
    }
}

/* f16 d, then a group of 32 elements: 4 indices of a byte, u32 with the signs
 * of its points, 7 bits each, and a scale in the highest four */
static void deq_iq2_xxs(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 66, y += QK) {
        for (uint32_t g = 0; g < 8; g++) {
            const uint8_t *q = p + 2 + 8 * g;
            uint32_t more = gguf_u32(q + 4);
            float d = f16(p) * (0.5f + (float)(more >> 28)) * 0.25f;
            for (uint32_t k = 0; k < 4; k++) {
                uint32_t signs = even_signs(more >> (7 * k) & 127);
                point_iq2(grid_iq2_xxs[q[k]], signs, d, y + 32 * g + 8 * k);
            }
        }
    }
}

/* IQ2_XS and IQ2_S: the scale of points 2 g and 2 g + 1 is nibble g of s. */
static float scale_iq2(float d, const uint8_t *s, uint32_t g)
{
    uint32_t scale = (uint32_t)s[g / 2] >> (g % 2 * 4) & 15;
    return d * (0.5f + (float)scale) * 0.25f;
}

/* f16 d, 32 x u16: index in nine bits, signs in seven; 16 scales of 4 bits */
static void deq_iq2_xs(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 74, y += QK) {
        for (uint32_t k = 0; k < 32; k++) {
            uint32_t q = gguf_u16(p + 2 + 2 * k);
            point_iq2(grid_iq2_xs[q & 511], even_signs(q >> 9),
                      scale_iq2(f16(p), p + 66, k / 2), y + 8 * k);
        }
    }
}

/* f16 d, low bytes of 32 indices, 32 x u8 signs, 8 bytes with two high bits an
 * index, 16 scales of 4 bits */
static void deq_iq2_s(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 82, y += QK) {
        for (uint32_t k = 0; k < 32; k++) {
            uint32_t high = (uint32_t)p[66 + k / 4] >> (k % 4 * 2) & 3;
            point_iq2(grid_iq2_s[p[2 + k] | high << 8], p[34 + k],
                      scale_iq2(f16(p), p + 74, k / 2), y + 8 * k);
        }
    }
}

/* A point of IQ3_XXS: code v stands for 4 + 8 v, the last one for 62. */
static void point_iq3_xxs(uint32_t codes, uint32_t signs, float d, float *y)
{
    for (uint32_t k = 0; k < 4; k++) {
        int v = (int)(codes >> (4 * k) & 7);
        y[k] = d * with_sign(4 + 8 * v + (v == 7 ? 2 : 0), signs, k);
    }
}

/* f16 d, 64 indices of a byte, then a group of 32 elements: u32 as in IQ2_XXS,
 * where seven bits are the signs of two points */
static void deq_iq3_xxs(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 98, y += QK) {
        for (uint32_t g = 0; g < 8; g++) {
            const uint8_t *q = p + 2 + 8 * g;
            uint32_t more = gguf_u32(p + 66 + 4 * g);
            float d = f16(p) * (0.5f + (float)(more >> 28)) * 0.5f;
            for (uint32_t k = 0; k < 8; k++) {
                uint32_t signs = even_signs(more >> (k / 2 * 7) & 127);
                point_iq3_xxs(grid_iq3_xxs[q[k]], signs >> (k % 2 * 4), d,
                              y + 32 * g + 4 * k);
            }
        }
    }
}

/* A point of IQ3_S: code v stands for 1 + 2 v. */
static void point_iq3_s(uint32_t codes, uint32_t signs, float d, float *y)
{
    for (uint32_t k = 0; k < 4; k++) {
        int v = (int)(codes >> (4 * k) & 7);
        y[k] = d * with_sign(1 + 2 * v, signs, k);
    }
}

/* f16 d, low bytes of 64 indices, 8 bytes with their ninth bits, 32 x u8 signs
 * of two points, 8 scales of 4 bits, one for 32 elements */
static void deq_iq3_s(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 110, y += QK) {
        for (uint32_t k = 0; k < 64; k++) {
            uint32_t g = k / 8;
            uint32_t scale = (uint32_t)p[106 + g / 2] >> (g % 2 * 4) & 15;
            uint32_t ninth = (uint32_t)p[66 + g] >> (k % 8) & 1;
            point_iq3_s(grid_iq3_s[p[2 + k] | ninth << 8],
                        (uint32_t)p[74 + k / 2] >> (k % 2 * 4),
                        f16(p) * (float)(1 + 2 * scale), y + 4 * k);
        }
    }
}

/* A point of IQ1: code 0, 1 or 2 stands for -1, 0 or 1; then all move. */
static void point_iq1(uint32_t codes, bool down, float d, float *y)
{
    float move = down ? -0.125f : 0.125f;
    for (uint32_t k = 0; k < 8; k++) {
        y[k] = d * ((float)((int)(codes >> (2 * k) & 3) - 1) + move);
    }
}

/* f16 d, low bytes of 32 indices, then a group of 32 elements: u16 with three
 * high bits an index, a scale of three bits, and whether its points go down */
static void deq_iq1_s(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 50, y += QK) {
        for (uint32_t k = 0; k < 32; k++) {
            uint32_t more = gguf_u16(p + 34 + k / 4 * 2);
            uint32_t high = more >> (k % 4 * 3) & 7;
            float d = f16(p) * (float)(2 * (more >> 12 & 7) + 1);
            point_iq1(grid_iq1[p[2 + k] | high << 8], (more & 0x8000) != 0, d,
                      y + 8 * k);
        }
    }
}

/* low bytes of 32 indices, a nibble an index with three high bits and whether
 * its point goes down, 4 x u16 with four 3-bit scales of 16 elements each. The
 * highest nibbles of the four are those of f16 d, the lowest first. */
static void deq_iq1_m(const uint8_t *p, float *y, size_t nb)
{
    for (size_t b = 0; b < nb; b++, p += 56, y += QK) {
        const uint8_t *s = p + 48;
        uint32_t half = 0;
        for (uint32_t i = 0; i < 4; i++) {
            half |= (uint32_t)(gguf_u16(s + 2 * i) >> 12) << (4 * i);
        }
        float d = half_to_float((uint16_t)half);
        for (uint32_t k = 0; k < 32; k++) {
            uint32_t more = (uint32_t)p[32 + k / 2] >> (k % 2 * 4) & 15;
            uint32_t scale = (uint32_t)gguf_u16(s + k / 8 * 2);
            scale = scale >> (k / 2 % 4 * 3) & 7;
            point_iq1(grid_iq1[p[k] | (more & 7) << 8], (more & 8) != 0,
                      d * (float)(2 * scale + 1), y + 8 * k);
        }
    }
}

/* clang-format off */
const struct dequant DEQUANT_OF(grid) = {
    .fns = {
        [GGML_IQ2_XXS] = deq_iq2_xxs, [GGML_IQ2_XS] = deq_iq2_xs,
        [GGML_IQ2_S] = deq_iq2_s,     [GGML_IQ3_XXS] = deq_iq3_xxs,
        [GGML_IQ3_S] = deq_iq3_s,     [GGML_IQ1_S] = deq_iq1_s,
        [GGML_IQ1_M] = deq_iq1_m,
    },
};
/* clang-format on */
