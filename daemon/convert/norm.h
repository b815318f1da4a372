/* norm.h - the two forms of RMSNorm in fp16 (range.h chooses one).
 *
 *   scale  xs = x / sqrt(d); y = xs * rsqrt(sum(xs^2) + eps) * sqrt(d)
 *          sqrt(d) stands in the weight; the rounding of 1/sqrt(d) cancels
 *   max    m = max(max |x|, 2^-14); y = x / m;
 *          y * rsqrt(mean(y^2) + (sqrt(eps) / m)^2)
 */
#pragma once

#include <math.h>

#include "base/half.h"

enum norm_form { NORM_SCALE, NORM_MAX };

#define NORM_FLOOR 0x1p-14f /* the least normal fp16 number */

/* The constant for epsilon (max: for its root) in a norm whose input is
 * x * alpha. 0 when it vanishes in fp16: then it is left out. */
static inline float norm_epsilon(enum norm_form form, float eps, float alpha)
{
    return form == NORM_SCALE ? half_round(eps * alpha * alpha)
                              : half_round(sqrtf(eps) * alpha);
}

/* What the norm's weight is multiplied by; d elements. */
static inline float norm_gain(enum norm_form form, uint32_t d)
{
    return form == NORM_SCALE ? sqrtf((float)d) : 1.0f;
}
