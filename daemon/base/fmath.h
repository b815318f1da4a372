/* fmath.h - elementary functions, the same bits on every machine.
 *
 * libm's functions differ between systems and versions. Where results must have
 * the same bits everywhere (a seed gives the same text for ever, a saved state
 * works on any machine), none of them may be called; tests/lint/libm.py checks
 * that. The functions here are sums, products and quotients of doubles in a
 * fixed order, which IEEE 754 defines to the last bit.
 *
 * Error against the true value: under 5 ulp of double; under 250 for pow, which
 * y log x loses at the ends of its range. The float forms round that result
 * once more. Each was compared with the x87's 64 bits over 20 million arguments
 * from the whole range of float: every result was correctly rounded. Fewer than
 * one in 10^6 can differ, then by one ulp. Infinities, zeros, signs and ranges
 * follow C's Annex F; a NaN is always quiet and has no payload.
 */
#pragma once

#include <math.h>
#include <string.h>

#include "base/base.h"

double fmath_exp(double x);
/* Each of n numbers in place: fmath_exp's bits, but for a NaN's payload. */
void fmath_exps(double *x, size_t n);
double fmath_exp2(double x);
double fmath_expm1(double x);
double fmath_log(double x);
double fmath_log1p(double x);
double fmath_pow(double x, double y);
double fmath_tanh(double x);
/* Any finite angle is reduced exactly. */
void fmath_sincos(double x, double *sin, double *cos);

/* erf. From |x| = 4 on the result is 1 or -1, as it is in float. */
float fmath_erff(float x);
/* Small whole powers are products, so results that a float can hold are exact.
 */
float fmath_powf(float x, float y);

/* a * b + c, rounded once: fmaf, also on machines without such an instruction.
 *
 * The product is exact in double. The sum is rounded to odd, so that the second
 * rounding, to float, gives the correct result: double has more than the two
 * bits beyond float's that this needs. */
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

/* The same of doubles. C says what fma gives, to the last bit, and every system
 * has it; without the instruction it is slow (some tens of ns). */
static inline double fmath_fma(double a, double b, double c)
{
    return fma(a, b, c);
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
