/* shift.h - how far inputs are from what they should be.
 *
 * x comes from layers that are quantised already, wanted is what the source
 * would have given. A shift is the sum over tokens of (wanted - x) x^T, or W
 * times that for one matrix W: with few rows and many columns that is the
 * smaller sum, and the faster one.
 *
 * Panels are feature-major (gemm.h). Sums have the same bits for every number
 * of threads and on every machine.
 */
#pragma once

#include "base/err.h"

struct shift;

/* W: some rows of a tensor. */
struct shift_rows {
    const float *w; /* rows x cols, borrowed until shift_close */
    uint64_t first; /* number of the first row in its tensor */
    size_t rows;
};

/* of: NULL for the sum over inputs. Memory: 4 bytes * cols^2, or * rows * cols.
 * Errors: UNSUPPORTED (more than QUANT_HESSIAN_MAX columns), NOMEM. */
CHECKED int shift_open(size_t cols, const struct shift_rows *of,
                       struct shift **ret, struct err *e);
void shift_close(struct shift *s); /* NULL is fine */
/* Add two panels of the same shape; threads: crew.h. Errors: NOMEM. */
CHECKED int shift_add(struct shift *s, unsigned threads, const float *wanted,
                      const float *x, size_t stride, size_t tokens,
                      struct err *e);

size_t shift_cols(const struct shift *s);
/* Is it W times the sum? */
bool shift_has_rows(const struct shift *s);
/* cols floats: row i of the sum over inputs, or of W times it, where i counts
 * in W's tensor. */
const float *shift_row(const struct shift *s, uint64_t i);
