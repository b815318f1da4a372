/* fmath.h - elementary functions, the same bits on every machine.
 *
 * libm's differ between systems and versions, and where bits are promised (a
 * seed means the same for ever, a saved state goes on anywhere) none may be
 * called: tests/lint/libm.py. These are plain sums, products and quotients of
 * doubles in a fixed order, which IEEE 754 defines to the last bit.
 *
 * Error against the true value: under 5 ulp of double, pow 250 (what y log x
 * loses at the ends of its range). The float forms round that once more: each
 * was compared with the x87's 64 bits over 20 million arguments spread over all
 * floats, huge ones included, and every result was the correctly rounded one;
 * fewer than one in 10^6 can differ from it, then by one ulp. Infinities,
 * zeros, signs and ranges are those of C's Annex F; NaN is always the quiet one
 * without a payload.
 */
#pragma once

#include <math.h>
#include <string.h>

#include "base/base.h"

double fmath_exp(double x);
double fmath_exp2(double x);
double fmath_expm1(double x);
double fmath_log(double x);
double fmath_log1p(double x);
double fmath_pow(double x, double y);
double fmath_tanh(double x);
/* Any finite angle is reduced exactly. */
void fmath_sincos(double x, double *sin, double *cos);

/* To float, where 1 is 1 from 4 on. */
float fmath_erff(float x);
/* Small whole powers are products, so that exact ones are exact. */
float fmath_powf(float x, float y);

/* a * b + c, rounded once: fmaf, for machines that have no instruction for it.
 *
 * The product is exact in double. The sum is rounded to odd, which keeps what
 * the next rounding must know: 53 bits are two more than twice 24. */
static inline float fmath_fmaf(float a, float b, float c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return fmaf(a, b, c);
#else
    double p = (double)a * (double)b;
    double s = p + (double)c;
    double t = s - p;
    double rest = (p - (s - t)) + ((double)c - t); /* s + rest is exact */
    uint64_t u = 0;
    memcpy(&u, &s, sizeof(u));
    if ((rest < 0 || rest > 0) && (u & 1) == 0) { /* not when infinite */
        u += (rest > 0) == (s > 0) ? 1 : UINT64_MAX;
        memcpy(&s, &u, sizeof(s));
    }
    return (float)s;
#endif
}

static inline float fmath_expf(float x)
{
    return (float)fmath_exp((double)x);
}

static inline float fmath_exp2f(float x)
{
    return (float)fmath_exp2((double)x);
}

static inline float fmath_expm1f(float x)
{
    return (float)fmath_expm1((double)x);
}

static inline float fmath_logf(float x)
{
    return (float)fmath_log((double)x);
}

static inline float fmath_log1pf(float x)
{
    return (float)fmath_log1p((double)x);
}

static inline float fmath_sinf(float x)
{
    double s = 0;
    double c = 0;
    fmath_sincos((double)x, &s, &c);
    return (float)s;
}

static inline float fmath_cosf(float x)
{
    double s = 0;
    double c = 0;
    fmath_sincos((double)x, &s, &c);
    return (float)c;
}

static inline float fmath_tanf(float x)
{
    double s = 0;
    double c = 0;
    fmath_sincos((double)x, &s, &c);
    return (float)(isnan(s) ? s : s / c);
}
