/* dequant.h - the dequantisation functions as built for one kind of machine.
 * All give the same bits. */
#pragma once

#include "base/base.h"

#define DEQUANT_TYPES 31 /* GGML_BF16 is the last */

/* nb blocks at p to floats at y. */
typedef void dequant_fn(const uint8_t *p, float *y, size_t nb);

struct dequant {
    dequant_fn *fns[DEQUANT_TYPES]; /* by type of ggml; NULL: not readable */
};

extern const struct dequant dequant_plain;
#if defined(__x86_64__)
extern const struct dequant dequant_v3; /* x86-64-v3 */
#endif
