/* linear_round.h - rows of floats to integers, a template like linear_int.h.
 * Included after the set has defined VB and, each for VB elements at x,
 *   rb_peak, rb_peak_new, rb_peak_more(m, x), rb_peak_of(m)
 *                       the largest bits of |x|
 *   struct rb_count, rb_count_some, rb_count_small
 *   rb_round(x, f, q, n)       q in column order; counts the values that are
 *                              not 0 and those of them that came out small
 *   rb_split(x, f, hi, lo)     the two columns of a wide row
 */
#pragma once

#include "engine/cpu/kernels/products/linear_impl.h"

/* The last elements of a row, with zeros after them. */
INLINE const float *rb_tail(const float *x, size_t n, float buf[VB])
{
    memset(buf, 0, VB * sizeof(*buf));
    memcpy(buf, x, n * sizeof(*x));
    return buf;
}

static uint32_t row_peak(const float *x, size_t k)
{
    UNSET float buf[VB];
    rb_peak m = rb_peak_new();
    size_t i = 0;
    for (; i + VB <= k; i += VB) {
        m = rb_peak_more(m, x + i);
    }
    if (i < k) {
        m = rb_peak_more(m, rb_tail(x + i, k - i, buf));
    }
    return rb_peak_of(m);
}

static bool round_row(const float *x, size_t k, size_t k_pad, int16_t *q,
                      float *scale)
{
    UNSET float buf[VB];
    struct linear_round f;
    if (!linear_rounding(row_peak(x, k), &f)) {
        memset(q, 0, k_pad * sizeof(*q));
        *scale = NAN;
        return false;
    }
    struct rb_count n = {0};
    size_t i = 0;
    for (; i + VB <= k; i += VB) {
        rb_round(x + i, &f, q + i, &n);
    }
    if (i < k) {
        rb_round(rb_tail(x + i, k - i, buf), &f, q + i, &n);
    }
    bool coarse = rb_count_small(&n) > rb_count_some(&n) / 2;
    *scale = coarse ? f.wide_scale : f.scale;
    return coarse;
}

static void split_row(const float *x, size_t k, size_t k_pad, int16_t *hi,
                      int16_t *lo)
{
    (void)k_pad; /* whole groups are written */
    UNSET float buf[VB];
    struct linear_round f;
    must(linear_rounding(row_peak(x, k), &f));
    size_t i = 0;
    for (; i + VB <= k; i += VB) {
        rb_split(x + i, &f, hi + i, lo + i);
    }
    if (i < k) {
        rb_split(rb_tail(x + i, k - i, buf), &f, hi + i, lo + i);
    }
}
