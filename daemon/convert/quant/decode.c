/* decode.c - rows of a form as the numbers that they stand for. */
#include <string.h>

#include "base/half.h"
#include "convert/quant.h"
#include "convert/quant/palette.h"

/* Code i of a packed row. */
static unsigned code_at(const uint8_t *row, unsigned bits, size_t i)
{
    if (bits == 8) {
        return row[i];
    }
    if (bits == 4) {
        return (row[i / 2] >> (i % 2 * 4)) & 15u;
    }
    size_t at = i / 4 * 3; /* 6 bits: four codes in three bytes */
    uint32_t v =
        row[at] | (uint32_t)row[at + 1] << 8 | (uint32_t)row[at + 2] << 16;
    return (v >> (i % 4 * 6)) & 63u;
}

static void from_palette(const uint8_t *row, const uint16_t *entries,
                         unsigned n, unsigned bits, size_t cols, float *out)
{
    float value[PALETTE_MAX];
    for (unsigned i = 0; i < n; i++) {
        value[i] = half_to_float(entries[i]);
    }
    for (size_t i = 0; i < cols; i++) {
        out[i] = value[code_at(row, bits, i)];
    }
}

static void from_scale(const uint8_t *row, float scale, unsigned bits,
                       size_t cols, float *out)
{
    for (size_t i = 0; i < cols; i++) {
        unsigned c = code_at(row, bits, i);
        int q = bits == 8 ? (int8_t)(uint8_t)c : (int)(c ^ 8u) - 8;
        out[i] = scale * (float)q;
    }
}

void quant_decode(struct quant_spec spec, const struct quant_rows *from,
                  uint64_t row, float *out)
{
    unsigned bits = quant_bits(spec.kind);
    unsigned entries = quant_entries(spec.kind);
    size_t cols = (size_t)from->cols;
    const uint8_t *codes = from->codes + row * (from->cols * bits / 8);
    if (spec.kind == QUANT_FP16) {
        for (size_t i = 0; i < cols; i++) {
            uint16_t h = 0;
            memcpy(&h, codes + i * sizeof(h), sizeof(h));
            out[i] = half_to_float(h);
        }
    } else if (entries > 0) {
        from_palette(codes, from->params + row / spec.group * entries, entries,
                     bits, cols, out);
    } else {
        size_t at = spec.kind == QUANT_INT8_TENSOR ? 0 : (size_t)row;
        from_scale(codes, half_to_float(from->params[at]), bits, cols, out);
    }
}
