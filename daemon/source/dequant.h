/* dequant.h - the dequantisation functions, in tables: one table a file of
 * them, each file built once for each set of instructions. All sets give the
 * same bits; of a NaN only that it is one. */
#pragma once

#include "base/base.h"
#include "base/half.h"
#include "source/gguf_impl.h"

#define DEQUANT_TYPES 40 /* GGML_MXFP4 is the last */

/* nb blocks at p to floats at y. */
typedef void dequant_fn(const uint8_t *p, float *y, size_t nb);

/* The one for this machine; NULL: aned does not read the type. */
dequant_fn *gguf_dequantiser(uint32_t type);

struct dequant {
    dequant_fn *fns[DEQUANT_TYPES]; /* by type of ggml; NULL: not in the file */
};

/* plain: dequant.c; codes: dequant_codes.c; grid: dequant_grid.c */
#define DEQUANT_TABLES(XX, set) \
    XX(plain, set)              \
    XX(codes, set)              \
    XX(grid, set)
#define DEQUANT_DECLARE(table, set) \
    extern const struct dequant dequant_##table##_##set;
#define DEQUANT_POINTER(table, set) &dequant_##table##_##set,

/* base: what every machine has; v3: x86-64-v3 */
DEQUANT_TABLES(DEQUANT_DECLARE, base)
#if defined(__x86_64__)
DEQUANT_TABLES(DEQUANT_DECLARE, v3)
#endif

/* The table's name in the set that is being built (DEQUANT_SET). */
#define DEQUANT_PASTE(table, set) dequant_##table##_##set
#define DEQUANT_NAME(table, set)  DEQUANT_PASTE(table, set)
#define DEQUANT_OF(table)         DEQUANT_NAME(table, DEQUANT_SET)

enum { QK = 256 }; /* elements of a large block */

static inline float f16(const uint8_t *p)
{
    return half_to_float(gguf_u16(p));
}
