/* vmath.h - elementary functions over arrays. A value's bits never depend on
 * the machine's libm, on its place in the array or on the array's length. In
 * and out may be the same array. Error below 3 ulp of fp32 where
 * the result is normal; exp(x) is exactly 0 for x < -104. */
#pragma once

#include "base/base.h"

void vmath_exp(float *o, const float *x, size_t n);
void vmath_sigmoid(float *o, const float *x, size_t n);
void vmath_silu(float *o, const float *x, size_t n);
void vmath_tanh(float *o, const float *x, size_t n);
void vmath_gelu_tanh(float *o, const float *x, size_t n);
void vmath_gelu_sigmoid(float *o, const float *x, size_t n);

/* Canonical 16-lane sums, and the largest element: NaNs are skipped, and the
 * result is -infinity when there is nothing else. */
float vmath_sum(const float *x, size_t n);
float vmath_sum_square(const float *x, size_t n);
float vmath_max(const float *x, size_t n);

/* Softmax of a row of n > 0: x - max, exp, divided by the canonical sum. */
void vmath_softmax(float *o, const float *x, size_t n);
