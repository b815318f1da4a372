/* vexp.h - exp over arrays, the same bits on every machine.
 *
 * libm's exp differs between systems and versions, and a seed must mean the
 * same for ever (design 9): this one uses only IEEE sums and products in a
 * fixed order.
 */
#pragma once

#include "base/base.h"

/* out[i] = exp((x[i] - shift) * scale) for arguments <= 0; 0 below -700 (also
 * for minus infinity). Relative error under 4e-16. */
void vexp(const float *x, size_t n, double shift, double scale, double *out);

/* `sum` plus all these, one after the other in the order of x: the same bits as
 * adding up what vexp gives, while the sums' latency hides behind the products
 * of the elements to come. */
double vexp_sum(const float *x, size_t n, double shift, double scale,
                double sum);
