/* feedback_impl.h - shared by feedback.c (targets and codes) and factor.c. */
#pragma once

#include "convert/quant/feedback.h"
#include "convert/quant/tile.h"

struct feedback {
    size_t cols, strips;
    uint32_t *order; /* column at each place; the last place is coded first */
    double *tiles;   /* L */
    double *pivot;   /* D: strips * TILE; 1 beyond cols */
    const struct shift *shift;
    double part;
};

/* f->tiles and f->pivot from h, in f->order. scratch: strips + 1
 * tiles. False: a pivot is not positive. */
CHECKED bool factor(struct feedback *f, const struct hessian *h, double damping,
                    unsigned threads, double *scratch);
