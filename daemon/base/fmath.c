/* fmath.c - see fmath.h. Each function is a reduction to a short range and a
 * polynomial there.
 *
 *   exp    x = n ln 2 + r, |r| <= ln 2 / 2: Taylor of degree 13, times 2^n
 *   log    x = 2^e m, m in [sqrt 1/2, sqrt 2): 2 atanh((m - 1) / (m + 1)) as a
 *          series, plus e ln 2 in two parts
 *   sin    x = n pi/2 + r: x is an integer times a power of two, so what is
 *          left of x * 2/pi above a multiple of 4 depends on 192 bits of 2/pi
 *          and is computed in integers; Taylor of degree 17 and 16
 *   erf    polynomials fitted at Chebyshev's nodes (mpmath's chebyfit): one in
 *          x^2 below 1, six over halves up to 4; errors below 3e-15
 *
 * n is rounded by adding 1.5 * 2^52, whose low bits then hold it. Nothing is
 * fused: the build forbids it (-ffp-contract=off), and no function of the C
 * library is called. */
#include "base/fmath.h"

#include "base/isa.h"

#define ROUND    0x1.8p52
#define LOG2E    0x1.71547652b82fep0
#define LN2      0x1.62e42fefa39efp-1
#define LN2_HI   0x1.62e42feep-1 /* 32 bits: n * LN2_HI is exact */
#define LN2_LO   0x1.a39ef35793c76p-33
#define PI_2     0x1.921fb54442d18p0
#define PI_4     0x1.921fb54442d18p-1
#define SQRT2    0x1.6a09e667f3bcdp0
#define EXP_MAX  709.79 /* above, exp is infinite */
#define EXP_MIN  (-745.2)
#define POWER    64.0 /* whole powers that are computed as products */

static uint64_t bits_of(double x)
{
    uint64_t u = 0;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static double double_of(uint64_t u)
{
    double x = 0;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static double magnitude(double x)
{
    return double_of(bits_of(x) & ~(UINT64_C(1) << 63));
}

/* c[0] x^(n-1) + ... + c[n-1] */
static double poly(double x, const double *c, size_t n)
{
    double p = c[0];
    for (size_t i = 1; i < n; i++) {
        p = p * x + c[i];
    }
    return p;
}

/* --- exp --- */

/* 1/13!, 1/12!, ... 1/1!, 1/0! */
static const double taylor[] = {
    0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26,
    0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16,
    0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10, 0x1.1111111111111p-7,
    0x1.5555555555555p-5,  0x1.5555555555555p-3,  0.5,
    1.0,                   1.0};

/* exp r, |r| < 0.36 */
static double exp_small(double r)
{
    return poly(r, taylor, countof(taylor));
}

/* p 2^n for p near 1; t holds n (ROUND). In two steps, for the ends. */
static double scale(double p, double t)
{
    int64_t n = (int64_t)(bits_of(t) - bits_of(ROUND));
    int64_t half = n / 2;
    p *= double_of((uint64_t)(half + 1023) << 52);
    return p * double_of((uint64_t)(n - half + 1023) << 52);
}

double fmath_exp(double x)
{
    if (isnan(x)) {
        return (double)NAN;
    }
    if (x > EXP_MAX) {
        return HUGE_VAL;
    }
    if (x < EXP_MIN) {
        return 0;
    }
    double t = x * LOG2E + ROUND;
    double n = t - ROUND;
    return scale(exp_small((x - n * LN2_HI) - n * LN2_LO), t);
}

/* The same steps for LANES numbers at a time. No vector crosses a call that is
 * not inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define INLINE static inline __attribute__((always_inline))
#define LANES  4u
typedef double f64v __attribute__((vector_size(LANES * sizeof(double))));
typedef uint64_t u64v __attribute__((vector_size(LANES * sizeof(uint64_t))));

INLINE f64v pick(u64v where, f64v yes, f64v no)
{
    return (f64v)((where & (u64v)yes) | (~where & (u64v)no));
}

/* 2^n for a whole n within a double's exponents. */
INLINE f64v powers_of_two(f64v n)
{
    return (f64v)(((u64v)(n + ROUND) + 1023) << 52); /* ROUND's last bits: 0 */
}

INLINE void exp_lanes(double *x)
{
    static const f64v zero = {0};
    static const f64v infinite = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL};
    f64v v;
    memcpy(&v, x, sizeof(v));
    u64v low = (u64v)(v < EXP_MIN);
    u64v high = (u64v)(v > EXP_MAX);
    v = pick(low | high, zero, v);
    f64v n = (v * LOG2E + ROUND) - ROUND;
    f64v half = (n * 0.5 + ROUND) - ROUND;
    f64v r = (v - n * LN2_HI) - n * LN2_LO;
    f64v p = r * taylor[0] + taylor[1];
    for (size_t i = 2; i < countof(taylor); i++) {
        p = p * r + taylor[i];
    }
    v = p * powers_of_two(half) * powers_of_two(n - half);
    v = pick(high, infinite, pick(low, zero, v));
    memcpy(x, &v, sizeof(v));
}

INLINE void exps(double *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        exp_lanes(x + i);
    }
    for (; i < n; i++) {
        x[i] = fmath_exp(x[i]);
    }
}

#if defined(ISA_FOR_V3)
ISA_FOR_V3 static void exps_v3(double *x, size_t n)
{
    exps(x, n);
}
#endif

void fmath_exps(double *x, size_t n)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        exps_v3(x, n);
        return;
    }
#endif
    exps(x, n);
}

double fmath_exp2(double x)
{
    if (isnan(x)) {
        return (double)NAN;
    }
    if (x >= 1024) {
        return HUGE_VAL;
    }
    if (x < -1076) {
        return 0;
    }
    double t = x + ROUND;
    double n = t - ROUND;
    return scale(exp_small((x - n) * LN2), t);
}

double fmath_expm1(double x)
{
    static const double c[] = { /* 1/15!, ... 1/2! */
        0x1.ae7f3e733b81fp-41, 0x1.93974a8c07c9dp-37, 0x1.6124613a86d09p-33,
        0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22,
        0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-13,
        0x1.6c16c16c16c17p-10, 0x1.1111111111111p-7,  0x1.5555555555555p-5,
        0x1.5555555555555p-3,  0.5};
    if (magnitude(x) < 0.35) {
        return x + poly(x, c, countof(c)) * x * x;
    }
    return fmath_exp(x) - 1;
}

double fmath_tanh(double x)
{
    if (isnan(x)) {
        return (double)NAN;
    }
    double a = magnitude(x);
    if (a > 20) {
        return x > 0 ? 1 : -1;
    }
    double e = fmath_expm1(a + a);
    double t = e / (e + 2);
    return x < 0 ? -t : x > 0 ? t : x;
}

/* --- log --- */

/* log((1 + s) / (1 - s)) for |s| < 0.1716 */
static double log_ratio(double s)
{
    static const double c[] = { /* 2/23, 2/21, ... 2/3 */
        0x1.642c8590b2164p-4, 0x1.8618618618618p-4, 0x1.af286bca1af28p-4,
        0x1.e1e1e1e1e1e1ep-4, 0x1.1111111111111p-3, 0x1.3b13b13b13b14p-3,
        0x1.745d1745d1746p-3, 0x1.c71c71c71c71cp-3, 0x1.2492492492492p-2,
        0x1.999999999999ap-2, 0x1.5555555555555p-1};
    double z = s * s;
    return (s + s) + s * (z * poly(z, c, countof(c)));
}

/* Positive and finite. */
static double log_of(double x)
{
    double e = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e = -54;
    }
    uint64_t u = bits_of(x);
    e += (double)((int64_t)(u >> 52) - 1023);
    double m = double_of((u & ((UINT64_C(1) << 52) - 1)) | bits_of(1.0));
    if (m > SQRT2) {
        m *= 0.5;
        e += 1;
    }
    return e * LN2_HI + (log_ratio((m - 1) / (m + 1)) + e * LN2_LO);
}

double fmath_log(double x)
{
    if (isnan(x) || x < 0) {
        return (double)NAN;
    }
    if (x == 0) {
        return -HUGE_VAL;
    }
    return isinf(x) ? x : log_of(x);
}

double fmath_log1p(double x)
{
    if (magnitude(x) < 0.25) {
        return x == 0 ? x : log_ratio(x / (2 + x));
    }
    return fmath_log(1 + x);
}

/* --- pow --- */

/* Is y whole, and odd? */
static bool is_whole(double y, bool *odd)
{
    double a = magnitude(y);
    double t = a + 0x1p52; /* rounded to a whole number */
    *odd = false;
    if (a >= 0x1p53) {
        return true; /* even, also infinity */
    }
    if (a >= 0x1p52) {
        *odd = (bits_of(a) & 1) != 0;
        return true;
    }
    *odd = (bits_of(t) & 1) != 0;
    return t - 0x1p52 == a;
}

/* Where x is 0, infinite or negative, or y infinite. */
static double pow_edge(double x, double y)
{
    bool odd = false;
    bool whole = is_whole(y, &odd);
    double a = magnitude(x);
    double r = 0;
    if (isinf(y)) {
        return a == 1 ? 1 : (a > 1) == (y > 0) ? HUGE_VAL : 0;
    }
    if (a == 0 || isinf(a)) {
        r = (a == 0) == (y < 0) ? HUGE_VAL : 0;
    } else if (whole) {
        r = fmath_exp(y * log_of(a));
    } else {
        return (double)NAN;
    }
    return (bits_of(x) >> 63) != 0 && odd ? -r : r;
}

double fmath_pow(double x, double y)
{
    if (y == 0 || x == 1) {
        return 1;
    }
    if (isnan(x) || isnan(y)) {
        return (double)NAN;
    }
    return x > 0 && !isinf(x) && !isinf(y) ? fmath_exp(y * log_of(x))
                                           : pow_edge(x, y);
}

float fmath_powf(float x, float y)
{
    double n = magnitude((double)y);
    bool odd = false;
    if (isnan(x) || isnan(y) || n > POWER || !is_whole(n, &odd)) {
        return (float)fmath_pow((double)x, (double)y);
    }
    double r = 1;
    double b = (double)x;
    for (unsigned k = (unsigned)n; k != 0; k >>= 1) {
        r = (k & 1) != 0 ? r * b : r;
        b *= b;
    }
    return (float)(y < 0 ? 1 / r : r);
}

/* --- sin and cos --- */

/* 2/pi, after 64 zero bits. */
static const uint32_t two_over_pi[] = {
    0,          0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
    0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0,
    0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b,
    0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7,
    0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea,
    0x6bfb5fb1, 0x1f8d5d08, 0x56033046};

#define WINDOW 6 /* words of it that matter for one number */

/* m times w, which is replaced, without what overflows. */
static void multiply(uint32_t w[WINDOW], uint64_t m)
{
    uint32_t low[WINDOW];
    uint64_t carry = 0;
    for (size_t i = WINDOW; i-- > 0;) {
        carry += (uint64_t)w[i] * (uint32_t)m;
        low[i] = (uint32_t)carry;
        carry >>= 32;
    }
    carry = 0;
    for (size_t i = WINDOW; i-- > 1;) {
        carry += (uint64_t)w[i] * (m >> 32) + low[i - 1];
        low[i - 1] = (uint32_t)carry;
        carry >>= 32;
    }
    memcpy(w, low, sizeof(low));
}

/* Finite a >= pi/4 as n pi/2 + *r, |*r| <= pi/4; n modulo 4.
 *
 * a = m 2^e. The window begins at that bit of 2/pi which times 2^e weighs 2:
 * those before it add multiples of 4. So the product has two digits before the
 * point, and what is cut off after it weighs less than 2^(53 - 190). */
static unsigned reduce(double a, double *r)
{
    uint64_t u = bits_of(a);
    uint64_t m = (u & ((UINT64_C(1) << 52) - 1)) | (UINT64_C(1) << 52);
    size_t first = (size_t)((u >> 52) - 1075 + 62); /* e + 62 */
    uint32_t w[WINDOW];
    for (size_t i = 0; i < WINDOW; i++) {
        const uint32_t *p = &two_over_pi[first / 32 + i];
        uint64_t two = (uint64_t)p[0] << 32 | p[1];
        w[i] = (uint32_t)(two << first % 32 >> 32);
    }
    multiply(w, m);
    uint64_t high = (uint64_t)w[0] << 32 | w[1];
    uint64_t mid = (uint64_t)w[2] << 32 | w[3];
    unsigned n = (unsigned)(high >> 62);
    high = high << 2 | mid >> 62; /* of the fraction: 2^-64 each */
    mid = mid << 2 | w[4] >> 30;
    bool over = high >> 63 != 0; /* a half or more: count from above */
    high = over ? ~high : high;
    mid = over ? ~mid : mid;
    double f = (double)(int64_t)high * 0x1p-64 +
               (double)(int64_t)(mid >> 1) * 0x1p-127;
    *r = (over ? -f : f) * PI_2;
    return (n + over) & 3u;
}

void fmath_sincos(double x, double *sin, double *cos)
{
    static const double s[] = { /* 1/17!, -1/15!, ... 1/5!, -1/3! */
        0x1.952c77030ad4ap-49, -0x1.ae7f3e733b81fp-41, 0x1.6124613a86d09p-33,
        -0x1.ae64567f544e4p-26, 0x1.71de3a556c734p-19, -0x1.a01a01a01a01ap-13,
        0x1.1111111111111p-7,   -0x1.5555555555555p-3};
    static const double c[] = { /* 1/16!, -1/14!, ... 1/4!, -1/2! */
        0x1.ae7f3e733b81fp-45, -0x1.93974a8c07c9dp-37, 0x1.1eed8eff8d898p-29,
        -0x1.27e4fb7789f5cp-22, 0x1.a01a01a01a01ap-16, -0x1.6c16c16c16c17p-10,
        0x1.5555555555555p-5,   -0.5};
    double a = magnitude(x);
    double r = a;
    unsigned n = 0;
    if (!isfinite(x)) {
        *sin = (double)NAN;
        *cos = (double)NAN;
        return;
    }
    if (a >= PI_4) {
        n = reduce(a, &r);
    }
    double z = r * r;
    double one = r + r * (z * poly(z, s, countof(s)));
    double other = 1 + z * poly(z, c, countof(c));
    double sine = (n & 1) != 0 ? other : one;
    double cosine = (n & 1) != 0 ? one : other;
    sine = (n & 2) != 0 ? -sine : sine;
    *sin = (bits_of(x) >> 63) != 0 ? -sine : sine;
    *cos = n == 1 || n == 2 ? -cosine : cosine;
}

/* --- erf --- */

#define ERF_TERMS 12

/* erf x / x over x^2 */
static const double erf_near[ERF_TERMS] = {
    -0x1.ac9585a44fe29p-31, 0x1.d76af6ca49787p-27, -0x1.5c131500d3f88p-23,
    0x1.b981d78881a5dp-20, -0x1.f4ca838adb73bp-17, 0x1.f9a2be4f731a1p-14,
    -0x1.c02db0665e53dp-11, 0x1.565bccfa44156p-8, -0x1.b82ce31203772p-6,
    0x1.ce2f21a040f66p-4, -0x1.812746b0379c1p-2, 0x1.20dd750429b6dp+0};

/* erf over the distance from 1.25, 1.75, ... 3.75 */
static const double erf_far[6][ERF_TERMS] = {
    {-0x1.48dd11e73f15dp-12, 0x1.9acf9870e9d1cp-11, 0x1.cbc14a9e4167ap-11,
     -0x1.755b697da7093p-8, 0x1.db44924e89c43p-9, 0x1.5cffeb43ae4fcp-6,
     -0x1.8281ce3a3ba58p-5, -0x1.93a9a64d010a7p-8, 0x1.571d01c5d5895p-3,
     -0x1.2ebf3dcca6fdep-2, 0x1.e4652fadcb679p-3, 0x1.d8865d98abe0ep-1},
    {-0x1.23d158b88683fp-17, -0x1.c2dcf338018b8p-12, 0x1.d4ed82693e5f7p-11,
     0x1.7e4994d579d82p-11, -0x1.8d111ae9194b9p-8, 0x1.25b3b70e4814ep-7,
     0x1.b2225852e382dp-8, -0x1.8a0da57d5d5aap-5, 0x1.7148c3d57218ap-4,
     -0x1.7a4a8a2bb4e30p-4, 0x1.b05530322105dp-5, 0x1.f92d077f8d55bp-1},
    {0x1.1011eae92ea0fp-14, -0x1.067e3e29785c2p-16, -0x1.834d9f3947cf7p-12,
     0x1.06167e66199ddp-10, -0x1.5f83296a9217ep-11, -0x1.7cae5e614feebp-9,
     0x1.5d3b17c0fde1fp-7, -0x1.38a9830191fcep-6, 0x1.63ef61e820be7p-6,
     -0x1.074b60f9133c6p-6, 0x1.d4143a9dfe997p-8, 0x1.ff404760319bap-1},
    {-0x1.015c60b757443p-16, 0x1.cb7f29a2f8312p-15, -0x1.2ae14781660d3p-14,
     -0x1.75464cfa62e38p-14, 0x1.52b64db2585a2p-11, -0x1.b27564ff60b19p-10,
     0x1.693595e168dd4p-9, -0x1.ab0c2729c1759p-9, 0x1.69cf466d00aebp-9,
     -0x1.a6a519a143a14p-10, 0x1.3360ccd23d869p-11, 0x1.fff2cfb0453dap-1},
    {-0x1.8e0a39bd34f18p-19, -0x1.08a5e3d7330e7p-19, 0x1.b2e19516ab4edp-16,
     -0x1.568f6f3d6200ep-14, 0x1.647f52982c31ep-13, -0x1.14542d002d680p-12,
     0x1.490a4d5e14751p-12, -0x1.2c7d5fc200f64p-12, 0x1.9aa489e329055p-13,
     -0x1.8de3cd248c444p-14, 0x1.e9b5e8d00e070p-16, 0x1.ffff6f9f67e55p-1},
    {0x1.9a52f2733ba8ep-21, -0x1.5f8d88851f40cp-19, 0x1.9a034086f84b7p-18,
     -0x1.755d49a9de4e0p-17, 0x1.110dc887e65eap-16, -0x1.4357dc34a4e51p-16,
     0x1.3436bd094ad9ep-16, -0x1.d06f573e69cb1p-17, 0x1.0b6a7b0df999bp-17,
     -0x1.bba3ac532c50ap-19, 0x1.d9371e2ffbc9cp-21, 0x1.fffffc2f171e3p-1}
};

float fmath_erff(float x)
{
    if (isnan(x)) {
        return NAN;
    }
    double a = magnitude((double)x);
    double r = 1;
    if (a < 1) {
        r = a * poly(a * a, erf_near, ERF_TERMS);
    } else if (a < 4) {
        size_t i = (size_t)(a + a) - 2; /* halves from 1 on */
        double mid = 1.25 + 0.5 * (double)i;
        r = poly(a - mid, erf_far[i], ERF_TERMS);
    }
    return (float)((bits_of((double)x) >> 63) != 0 ? -r : r);
}
