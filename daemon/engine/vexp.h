/* vexp.h - exp over arrays, the same bits on every machine.
 *
 * libm's exp differs between systems and versions, but a seed must give the
 * same text for ever. This exp uses only IEEE sums and products in a fixed
 * order.
 */
#pragma once

#include "base/base.h"

/* out[i] = exp((x[i] - shift) * scale) for arguments <= 0; 0 below -700 (also
 * for minus infinity). Relative error under 4e-16. */
void vexp(const float *x, size_t n, double shift, double scale, double *out);

/* Returns `sum` plus all the results of vexp, added in the order of x: the same
 * bits as adding them afterwards. It is faster, because the processor computes
 * the products of later elements while it waits for the sums. */
double vexp_sum(const float *x, size_t n, double shift, double scale,
                double sum);
