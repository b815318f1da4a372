/* vexp.c - see vexp.h.
 *
 * exp(a) = 2^n * exp(r), n = round(a / ln 2), |r| <= ln(2) / 2, exp(r) by its
 * Taylor series to the 13th power (remainder 4e-18). The rounding to n is an
 * addition of 1.5 * 2^52, which leaves n in the low bits, from where a shift
 * puts it into the exponent. Four lanes by the compiler's vector types; a lane
 * never sees another.
 */
#include "engine/vexp.h"

#include <string.h>

#define LANES 4

typedef double f64v __attribute__((vector_size(LANES * sizeof(double))));
typedef float f32v __attribute__((vector_size(LANES * sizeof(float))));
typedef uint64_t u64v __attribute__((vector_size(LANES * sizeof(uint64_t))));

#define ROUND    0x1.8p52
#define LOG2E    0x1.71547652b82fep0
#define LN2_HI   0x1.62e42feep-1 /* 32 bits: n * LN2_HI is exact */
#define LN2_LO   0x1.a39ef35793c76p-33
#define SMALLEST (-700.0) /* the result stays a normal number */

static f64v splat(double v)
{
    return (f64v){v, v, v, v};
}

static f64v exp4(f64v a)
{
    /* 1/13!, 1/12!, ... 1/1!, 1/0! */
    static const double c[] = {0x1.6124613a86d09p-33,
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
    f64v t = a * splat(LOG2E) + splat(ROUND);
    f64v n = t - splat(ROUND);
    f64v r = a - n * splat(LN2_HI) - n * splat(LN2_LO);
    f64v p = splat(c[0]);
    for (size_t i = 1; i < countof(c); i++) {
        p = p * r + splat(c[i]);
    }
    u64v keep = (u64v)(a >= splat(SMALLEST));
    return (f64v)(((u64v)p + ((u64v)t << 52)) & keep);
}

void vexp(const float *x, size_t n, double shift, double scale, double *out)
{
    for (size_t i = 0; i < n; i += LANES) {
        float in[LANES] = {0};
        size_t k = n - i < LANES ? n - i : LANES;
        f32v v;
        if (k == LANES) {
            memcpy(&v, x + i, sizeof(v));
        } else {
            memcpy(in, x + i, k * sizeof(*x));
            memcpy(&v, in, sizeof(v));
        }
        f64v a =
            (__builtin_convertvector(v, f64v) - splat(shift)) * splat(scale);
        f64v y = exp4(a);
        memcpy(out + i, &y, k * sizeof(*out));
    }
}
