/* feedback.h - each weight's rounding error is made good by those that follow.
 *
 * GPTQ fixes the weights of a row one by one, columns by falling diagonal of
 * the Hessian, and moves the rest so that the product changes least. Here the
 * same result comes from one factor instead of an inverse and its own: with the
 * columns in that order from the last to the first, H + damping = L D L^T (L:
 * lower, ones on its diagonal), a weight's target is
 *
 *     w_r + sum over s > r of (w_s - q_s) L[s][r]
 *
 * (QuIP shows that both are equal). With a shift the weights themselves move
 * first, by `part` of what makes the product on the quantised inputs nearest to
 * the wanted one: part * W * shift * (H + damping)^-1.
 */
#pragma once

#include "convert/quant/grid.h"
#include "convert/quant/hessian.h"
#include "convert/quant/shift.h"

#define FEEDBACK_DAMPING 0.01 /* of the mean diagonal */

struct feedback; /* for all matrices that read the same inputs */

/* shift: NULL, or borrowed until feedback_close, of h's columns; part: of it,
 * 0 to 1. h is not needed afterwards. Memory: 4 bytes * cols^2 beside it.
 * Errors: CONVERT (inputs that are not finite), NOMEM, INVALID. */
CHECKED int feedback_open(const struct hessian *h, const struct shift *shift,
                          double part, unsigned threads, struct feedback **ret,
                          struct err *e);
void feedback_close(struct feedback *f); /* NULL is fine */

/* Codes of n rows, each on its own grid. rows: n x cols, finite; first: the
 * number of the first, as a shift with rows knows it; codes: the shape of rows.
 * Thread: any, on the caller's alone; rows are independent, and
 * a multiple of 48 of them in one call is the fastest. Errors: NOMEM. */
CHECKED int feedback_codes(const struct feedback *f, const float *rows,
                           size_t first, size_t n, const struct grid *grid,
                           uint8_t *codes, struct err *e);
