/* kernel_impl.h - the table of inner loops of one instruction set.
 *
 * kernel_NAME.c is compiled with the flags of its set (meson.build) and fills
 * one table; nothing else is compiled with them, so nothing else can run an
 * instruction the machine lacks. A kernel_NAME.c includes the loops of each
 * topic as a template (linear_int.h, linear_real.h, ...) after the few vector
 * operations these are written in; float helpers of every set are simd.h's
 * (the scalar set is built with SIMD_FORCE_SCALAR, the same bits).
 */
#pragma once

#include "engine/cpu/kernel.h"

struct linear_job;

struct kernels {
    const char *name;

    /* --- products (linear_impl.h) --- */

    /* Round n values to integers: q[k] (and lo[k] of a wide row) in the order
     * in which this set's products read them, zeros up to k_pad. */
    size_t k_step; /* k_pad is a multiple of it */
    void (*round_row)(const float *x, size_t k, size_t k_pad, int16_t *q,
                      int16_t *lo, bool *wide, float *scale);
    /* Rows [begin, end) of the weight with every column: integer weights for
     * few and for many columns, and the canonical fp32 reduction. */
    void (*int_few)(const struct linear_job *j, size_t begin, size_t end);
    void (*int_many)(const struct linear_job *j, size_t begin, size_t end,
                     void *scratch);
    void (*real)(const struct linear_job *j, size_t begin, size_t end,
                 void *scratch);

    /* --- attention (attend.c) --- */
};

#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
#elif defined(__aarch64__)
extern const struct kernels kernels_neon;
#endif
extern const struct kernels kernels_scalar;
