/* simd_exp.h - exp of eight floats, for loops that want it inlined (vmath.h
 * has it over arrays, and says how exact it is).
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, the Taylor polynomial of degree 7
 * (relative error 5e-9), times 2^n. n is rounded by adding 1.5 * 2^23, whose
 * low bits then hold it: no conversion, so NaN needs no special case. */
#pragma once

#include "engine/cpu/kernels/simd.h"

#define EXP_MAGIC 12582912.0f /* 1.5 * 2^23 */

static inline v8 v8_exp(v8 x)
{
    /* The operand order lets NaN through. */
    x = v8_min(v8_set(90.0f), x);
    x = v8_max(v8_set(-110.0f), x);
    v8 magic = v8_set(EXP_MAGIC);
    v8 t = v8_fma(x, v8_set(1.44269504088896341f), magic);
    v8 n = v8_sub(t, magic);
    v8 r = v8_fma(n, v8_set(-0.693145751953125f), x);
    r = v8_fma(n, v8_set(-1.42860676533018e-06f), r);
    v8 p = v8_set(1.0f / 5040.0f);
    p = v8_fma(p, r, v8_set(1.0f / 720.0f));
    p = v8_fma(p, r, v8_set(1.0f / 120.0f));
    p = v8_fma(p, r, v8_set(1.0f / 24.0f));
    p = v8_fma(p, r, v8_set(1.0f / 6.0f));
    p = v8_fma(p, r, v8_set(0.5f));
    p = v8_fma(p, r, v8_set(1.0f));
    p = v8_fma(p, r, v8_set(1.0f));
    return v8_scale2(p, t, magic);
}
