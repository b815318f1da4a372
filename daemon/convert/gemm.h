/* gemm.h - rows of weights times a panel of tokens, in fp32.
 *
 * Activations of the reference pass are feature-major: element (feature f,
 * token t) stands at [f * stride + t], with stride a multiple of GEMM_LANES;
 * the columns beyond the last token are computed and never looked at.
 */
#pragma once

#include "base/base.h"

#define GEMM_LANES 16u

/* y[r * stride + t] = sum over k of w[r * cols + k] * x[k * stride + t].
 * w: (rows, cols); x: (cols, stride); y: (rows, stride). y overlaps nothing.
 * The sum runs over k ascending, fused. */
void gemm_rows(const float *w, size_t rows, size_t cols, const float *x,
               size_t stride, float *y);
