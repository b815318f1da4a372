/* quant.h - quantises rows of fp32 weights.
 *
 * Symmetric: value = scale * q. The scale is fp16, and q is rounded against
 * that rounded scale, so the error of an element is at most half of it.
 * Pure: no I/O, no allocation.
 */
#pragma once

#include "base/err.h"

enum quant { QUANT_INT8, QUANT_FP16, QUANT_INT8_TENSOR, QUANT_INT4 };

/* NULL = int8. Errors: UNSUPPORTED, by name. */
CHECKED int quant_parse(const char *name, enum quant *ret, struct err *e);
const char *quant_name(enum quant q);

/* Bits of one stored weight. */
unsigned quant_bits(enum quant q);

/* max |w|; NaN when an element is NaN or infinite. */
float quant_peak(const float *w, size_t n);

/* The fp16 scale for a row with this peak, so that peak / scale <= levels +
 * 1/2. It is never zero, and is rounded up where fp16 is too coarse (subnormal
 * scales). A peak of zero gives 1. Infinity: the peak is too large. */
uint16_t quant_scale(float peak, int levels);

/* q[i] = round(w[i] / scale), ties to even, within -127..127. */
void quant_int8(const float *w, size_t n, uint16_t scale, int8_t *q);
/* The same within -7..7, two to a byte, the first in the low nibble; n even. */
void quant_int4(const float *w, size_t n, uint16_t scale, uint8_t *q);
