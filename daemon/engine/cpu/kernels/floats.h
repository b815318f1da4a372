/* floats.h - the loops over floats that need a vector unit, compiled once for
 * the plainest machine and once for each better one.
 *
 * Only the files in sets/ are compiled with instructions that not every machine
 * has; all else reaches them through this table or the one of kernel.h. Every
 * table gives the same bits: an operation of simd.h is one IEEE operation a
 * lane, and where no fused multiply-add is to be had, fmath_fmaf rounds once.
 *
 * The process has one table, which is chosen at first use.
 */
#pragma once

#include "base/base.h"

struct gemm;
struct chain;

struct floats {
    const char *name;

    /* vmath.h */
    void (*exp)(float *o, const float *x, size_t n);
    void (*sigmoid)(float *o, const float *x, size_t n);
    void (*silu)(float *o, const float *x, size_t n);
    void (*tanh)(float *o, const float *x, size_t n);
    void (*gelu_tanh)(float *o, const float *x, size_t n);
    void (*gelu_sigmoid)(float *o, const float *x, size_t n);
    void (*softmax)(float *o, const float *x, size_t n);
    float (*sum)(const float *x, size_t n);
    float (*sum_square)(const float *x, size_t n);
    float (*max)(const float *x, size_t n);

    /* gemm.h: rows [begin, end) by worker `worker`; blocks of 32 columns */
    void (*gemm)(const struct gemm *g, size_t begin, size_t end,
                 unsigned worker);
    void (*chain)(const struct chain *c, size_t begin, size_t end);

    /* o[i] += a * x[i], rounded once */
    void (*add_scaled)(float *o, float a, const float *x, size_t n);
    /* o[i] *= x[i] */
    void (*multiply)(float *o, const float *x, size_t n);
    /* o[i] = x[i] * s, times w[i] unless w is NULL; o may be x */
    void (*scale)(float *o, const float *x, float s, const float *w, size_t n);
    /* to[i] = x[i] c[i] - x[half + i] s[i], to[half + i] = x[half + i] c[i] +
     * x[i] s[i]; to may be x */
    void (*rotate)(float *to, const float *x, const float *c, const float *s,
                   size_t half);
    /* n indices of four bits, two a byte, the low one first, through a table */
    void (*look_up)(float *o, const uint8_t *index, const float table[16],
                    size_t n);
};

/* The best this machine runs, or what was chosen. Any thread. */
const struct floats *floats(void);
/* The i-th that this machine runs, best first; NULL after the last. */
const struct floats *floats_each(size_t i);
/* By the name of a set of kernel.h, for the whole process: the plain table for
 * "scalar", else the best. What runs meanwhile gets the same bits from either.
 */
void floats_choose(const char *isa);
