/* hessian.h - what the inputs of a matrix have in common, summed over tokens.
 *
 * For a product y = W x the error of W costs (W - Q) H (W - Q)^T, H = sum of
 * x x^T.
 *
 * Panels are feature-major (gemm.h): element (feature f, token t) stands at
 * [f * stride + t]. Sums have the same bits for every number of threads and on
 * every machine.
 */
#pragma once

#include "base/err.h"

struct hessian;

/* Can rows of so many weights have one? Errors: UNSUPPORTED (more than
 * QUANT_HESSIAN_MAX). */
CHECKED int hessian_check(size_t cols, struct err *e);
/* cols: of the matrix. Memory: 4 bytes * cols^2. Errors: those of
 * hessian_check, NOMEM. */
CHECKED int hessian_open(size_t cols, struct hessian **ret, struct err *e);
void hessian_close(struct hessian *h); /* NULL is fine */

/* Add `tokens` tokens of a panel; threads: crew.h. Errors: NOMEM. */
CHECKED int hessian_add(struct hessian *h, unsigned threads, const float *x,
                        size_t stride, size_t tokens, struct err *e);

/* h += by * of, which has as many columns. */
void hessian_blend(struct hessian *h, const struct hessian *of, double by);
/* What two inputs have in common counts `keep` of what it is, 0 to 1; their own
 * squares stay. */
void hessian_soften(struct hessian *h, double keep);

size_t hessian_cols(const struct hessian *h);
/* Element (i, j) of the sum. */
double hessian_get(const struct hessian *h, size_t i, size_t j);

/* quant_input.importance for this matrix: the mean square of each input, and a
 * hundredth of their mean, so that no column counts for nothing. out: cols. */
void hessian_importance(const struct hessian *h, float *out);
