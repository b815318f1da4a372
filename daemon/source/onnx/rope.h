/* rope.h - from tables of cosines and sines back to a rotation: base, divisors
 * of the frequencies, magnitude. */
#pragma once

#include "source/onnx/decoder.h"

/* What a model's configuration says of it. */
struct onnx_rope_hint {
    double base;     /* 0: it does not say */
    bool scaled;     /* frequencies may be divided */
    size_t n_short;  /* divisors; 0: none */
    const double *shorts;
    size_t n_long;
    const double *longs;
};

struct onnx_rope {
    uint32_t dim; /* rotated numbers of a head */
    float base;
    float factor;    /* of positions: they are divided by it; 1: none */
    float magnitude; /* of cosines and sines */
    float *shorts;   /* dim / 2 divisors; NULL: none */
    float *longs;    /* the same, for sequences longer than `original` */
    uint64_t original;
    uint64_t positions; /* of the longest table */
};

/* Every number of the tables is compared with what *ret says. Memory is m's.
 * Errors: ONNX_GRAPH (no rotation, or not the configuration's), TOO_BIG. */
CHECKED int onnx_rope_read(struct onnx *m, const struct onnx_rotation *r,
                           const struct onnx_rope_hint *hint,
                           struct onnx_rope *ret, struct err *e);
