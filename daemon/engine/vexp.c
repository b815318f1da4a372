/* vexp.c - see vexp.h.
 *
 * exp(a) = 2^n * exp(r), n = round(a / ln 2), |r| <= ln(2) / 2, exp(r) by its
 * Taylor series to the 13th power (remainder 4e-18). The rounding to n is an
 * addition of 1.5 * 2^52, which leaves n in the low bits, from where a shift
 * puts it into the exponent. Four lanes by the compiler's vector types; a lane
 * never sees another.
 *
 * A step of the series waits for the one before, and so does each addition to a
 * running sum. Therefore CHAINS vectors go through the series side by side, and
 * a sum takes up the results of one group during the steps of the next: two
 * with each coefficient, which for seven chains comes out even. Seven is also
 * what 16 vector registers hold: powers, arguments, a coefficient and the sum.
 */
#include "engine/vexp.h"

#include <assert.h>
#include <string.h>

#include "base/isa.h"

#define INLINE static inline __attribute__((always_inline))

#define LANES        4
#define CHAINS       7
#define GROUP        ((size_t)(LANES * CHAINS))
#define COEFFICIENTS 14

/* Every function that takes or gives a vector is inlined: none crosses a call,
 * whose way of passing it would depend on the machine. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef double f64v __attribute__((vector_size(LANES * sizeof(double))));
typedef uint64_t u64v __attribute__((vector_size(LANES * sizeof(uint64_t))));

#define ROUND    0x1.8p52
#define LOG2E    0x1.71547652b82fep0
#define LN2_HI   0x1.62e42feep-1 /* 32 bits: n * LN2_HI is exact */
#define LN2_LO   0x1.a39ef35793c76p-33
#define SMALLEST (-700.0) /* the result stays a normal number */

static_assert(GROUP == 2 * COEFFICIENTS, "as many sums as there are results");

INLINE f64v splat(double v)
{
    return (f64v){v, v, v, v};
}

/* exp of GROUP numbers; when `adding`, returns sum + prev[0] + prev[1] ... of
 * the GROUP results before these. All of prev is read before out is written. */
INLINE double exp_group(const float *x, double shift, double scale, double *out,
                        bool adding, const double *prev, double sum)
{
    /* 1/13!, 1/12!, ... 1/1!, 1/0! */
    static const double c[COEFFICIENTS] = {0x1.6124613a86d09p-33,
                                           0x1.1eed8eff8d898p-29,
                                           0x1.ae64567f544e4p-26,
                                           0x1.27e4fb7789f5cp-22,
                                           0x1.71de3a556c734p-19,
                                           0x1.a01a01a01a01ap-16,
                                           0x1.a01a01a01a01ap-13,
                                           0x1.6c16c16c16c17p-10,
                                           0x1.1111111111111p-7,
                                           0x1.5555555555555p-5,
                                           0x1.5555555555555p-3,
                                           0.5,
                                           1.0,
                                           1.0};
    f64v r[CHAINS];
    f64v p[CHAINS];
    u64v bits[CHAINS]; /* n in the exponent */
    u64v keep[CHAINS];
    for (size_t j = 0; j < CHAINS; j++) {
        const float *v = x + j * LANES;
        f64v a = {(double)v[0], (double)v[1], (double)v[2], (double)v[3]};
        a = (a - splat(shift)) * splat(scale);
        f64v t = a * splat(LOG2E) + splat(ROUND);
        f64v n = t - splat(ROUND);
        r[j] = a - n * splat(LN2_HI) - n * splat(LN2_LO);
        p[j] = splat(c[0]);
        bits[j] = (u64v)t << 52;
        keep[j] = (u64v)(a >= splat(SMALLEST));
    }
    if (adding) {
        sum += prev[0];
        sum += prev[1];
    }
#pragma GCC unroll 1 /* unrolled, gcc would put one chain after the other */
    for (size_t i = 1; i < COEFFICIENTS; i++) {
        for (size_t j = 0; j < CHAINS; j++) {
            p[j] = p[j] * r[j] + splat(c[i]);
        }
        if (adding) {
            sum += prev[2 * i];
            sum += prev[2 * i + 1];
        }
    }
    for (size_t j = 0; j < CHAINS; j++) {
        u64v y = ((u64v)p[j] + bits[j]) & keep[j];
        memcpy(out + j * LANES, &y, sizeof(y));
    }
    return sum;
}

INLINE void each(const float *x, size_t n, double shift, double scale,
                 double *out)
{
    for (; n >= GROUP; n -= GROUP, x += GROUP, out += GROUP) {
        (void)exp_group(x, shift, scale, out, false, NULL, 0);
    }
    if (n > 0) {
        float in[GROUP] = {0};
        double y[GROUP];
        memcpy(in, x, n * sizeof(*x));
        (void)exp_group(in, shift, scale, y, false, NULL, 0);
        memcpy(out, y, n * sizeof(*out));
    }
}

INLINE double total(const float *x, size_t n, double shift, double scale,
                    double sum)
{
    double y[GROUP] = {0}; /* of the group before: none, and 0 adds nothing */
    for (; n >= GROUP; n -= GROUP, x += GROUP) {
        sum = exp_group(x, shift, scale, y, true, y, sum);
    }
    for (size_t i = 0; i < GROUP; i++) {
        sum += y[i];
    }
    each(x, n, shift, scale, y);
    for (size_t i = 0; i < n; i++) {
        sum += y[i];
    }
    return sum;
}

/* --- the same for the machine's vectors --- */

#if defined(ISA_FOR_V3)
ISA_FOR_V3 static void each_v3(const float *x, size_t n, double shift,
                               double scale, double *out)
{
    each(x, n, shift, scale, out);
}

ISA_FOR_V3 static double total_v3(const float *x, size_t n, double shift,
                                  double scale, double sum)
{
    return total(x, n, shift, scale, sum);
}
#endif

void vexp(const float *x, size_t n, double shift, double scale, double *out)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        each_v3(x, n, shift, scale, out);
        return;
    }
#endif
    each(x, n, shift, scale, out);
}

double vexp_sum(const float *x, size_t n, double shift, double scale,
                double sum)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        return total_v3(x, n, shift, scale, sum);
    }
#endif
    return total(x, n, shift, scale, sum);
}
