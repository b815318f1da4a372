/* hessian.h - what the inputs of a matrix have in common, summed over tokens.
 *
 * For a product y = W x the error of W costs (W - Q) H (W - Q)^T, H = sum of
 * x x^T. A shift is the sum of (wanted - x) x^T, where x comes from layers that
 * are quantised already, and wanted is what the source would have given.
 *
 * Panels are feature-major (gemm.h): element (feature f, token t) stands at
 * [f * stride + t]. Sums have the same bits for every number of threads and on
 * every machine.
 */
#pragma once

#include "base/err.h"

struct hessian;

/* cols: of the matrix. Memory: 4 bytes * cols^2. Errors: UNSUPPORTED (more than
 * QUANT_HESSIAN_MAX columns), NOMEM. */
CHECKED int hessian_open(size_t cols, struct hessian **ret, struct err *e);
void hessian_close(struct hessian *h); /* NULL is fine */

/* Add `tokens` tokens of a panel; threads: crew.h. Errors: NOMEM. */
CHECKED int hessian_add(struct hessian *h, unsigned threads, const float *x,
                        size_t stride, size_t tokens, struct err *e);

size_t hessian_cols(const struct hessian *h);
/* Element (i, j) of the sum. */
double hessian_get(const struct hessian *h, size_t i, size_t j);

/* quant_input.importance for this matrix: the mean square of each input, and a
 * hundredth of their mean, so that no column counts for nothing. out: cols. */
void hessian_importance(const struct hessian *h, float *out);

struct shift;

/* Memory: 4 bytes * cols^2. Errors: as hessian_open. */
CHECKED int shift_open(size_t cols, struct shift **ret, struct err *e);
void shift_close(struct shift *s); /* NULL is fine */
/* Add (wanted - x) x^T of two panels of the same shape. Errors: NOMEM. */
CHECKED int shift_add(struct shift *s, unsigned threads, const float *wanted,
                      const float *x, size_t stride, size_t tokens,
                      struct err *e);
size_t shift_cols(const struct shift *s);
/* Row i of the sum: cols floats. */
const float *shift_row(const struct shift *s, size_t i);
