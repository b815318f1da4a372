/* Every function over a grid of all floats: the bits it gave when it was
 * written, on whatever machine and compiler this runs; the nearest float to
 * what libm finds in double; and C's special cases. */
#include <math.h>
#include <string.h>

#include "../unit.h"
#include "base/fmath.h"
#include "base/half.h"
#include "base/hash.h"

/* 2^32 / GRID apart, so every exponent and sign, with its mantissas shifted
 * against each other; infinities, NaN and subnormals lie on it. */
#define GRID 65521u

static float on_grid(uint32_t i)
{
    return half_float(i * 65551u);
}

static const float special[] = {
    0.0f,        -0.0f,       1.0f,        -1.0f,    INFINITY, -INFINITY,
    NAN,         0x1p-149f,   -0x1p-149f,  0x1p-126f, 0x1.fffffep127f,
    -0x1p127f,   0x1.921fb6p0f, 0x1.921fb6p1f, 0x1p24f, 0x1.6a09e6p0f,
    88.72284f,   -103.97208f, 127.99999f,  -149.5f,  4.0f,     3.9192059f,
};

static float f_tanh(float x)
{
    return (float)fmath_tanh((double)x);
}

static float pow_third(float x)
{
    return fmath_powf(x, 1.0f / 3.0f);
}

static float pow_minus(float x)
{
    return fmath_powf(x, -7.0f);
}

static float pow_of(float y)
{
    return fmath_powf(1.0009765625f, y);
}

static double d_pow_third(double x)
{
    return pow(x, (double)(1.0f / 3.0f));
}

static double d_pow_minus(double x)
{
    return pow(x, -7.0);
}

static double d_pow_of(double y)
{
    return pow(1.0009765625, y);
}

static const struct {
    const char *name;
    float (*f)(float);
    double (*libm)(double);
    uint64_t golden; /* of the grid and the special ones */
} functions[] = {
    {"exp",    fmath_expf,   exp,         0x9f550df189923ae3},
    {"exp2",   fmath_exp2f,  exp2,        0x1663402c7a2b63da},
    {"expm1",  fmath_expm1f, expm1,       0xbccdc9a02a9a2608},
    {"log",    fmath_logf,   log,         0xe0b203c72286c321},
    {"log1p",  fmath_log1pf, log1p,       0x599601c922f8603e},
    {"sin",    fmath_sinf,   sin,         0x9a1b3ba4c7dc15d0},
    {"cos",    fmath_cosf,   cos,         0xe78476bd145ccb0c},
    {"tan",    fmath_tanf,   tan,         0x66519af9eb6d14a3},
    {"tanh",   f_tanh,       tanh,        0xcac485bc7de4b175},
    {"erf",    fmath_erff,   erf,         0xdaeb8e35782ac1ec},
    {"pow 1/3", pow_third,   d_pow_third, 0xb365020b4307da89},
    {"pow -7", pow_minus,    d_pow_minus, 0xbfdf7e83ef91f7e0},
    {"pow of", pow_of,       d_pow_of,    0x9b6d77d02ef46942},
};

static void test_bits_are_the_golden_ones(void **state)
{
    (void)state;
    static uint8_t out[(GRID + countof(special)) * 4];
    for (size_t k = 0; k < countof(functions); k++) {
        for (uint32_t i = 0; i < GRID + countof(special); i++) {
            float x = i < GRID ? on_grid(i) : special[i - GRID];
            uint32_t u = half_bits(functions[k].f(x));
            for (unsigned b = 0; b < 4; b++) {
                out[4 * i + b] = (uint8_t)(u >> 8 * b);
            }
        }
        uint64_t h = hash_bytes(out, sizeof(out));
        if (h != functions[k].golden) {
            print_error("%s: 0x%016llx\n", functions[k].name,
                        (unsigned long long)h);
        }
        assert_true(h == functions[k].golden);
    }
}

#define DOUBLES 0xb7524c2b9ba18bd0 /* golden */

/* Doubles, for the sampler and the tables of rope. */
static void test_doubles_are_the_golden_ones(void **state)
{
    (void)state;
    static double out[6 * 4096];
    for (size_t i = 0; i < 4096; i++) {
        double x = (double)i * 1.6180339887498949;
        double *o = out + 6 * i;
        o[0] = fmath_exp(-x);
        o[1] = fmath_log(x + 0.25);
        o[2] = fmath_pow(10000.0, -x / 4096);
        fmath_sincos(x * x * x, &o[3], &o[4]);
        o[5] = fmath_expm1(x / 8192);
    }
    uint64_t h = hash_bytes(out, sizeof(out));
    if (h != DOUBLES) {
        print_error("0x%016llx\n", (unsigned long long)h);
    }
    assert_true(h == DOUBLES);
}

/* libm in double is right to 1 ulp of double: its float is the nearest one, or
 * in a case of many millions the one beside it. */
static void test_floats_are_the_nearest(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(functions); k++) {
        size_t off = 0;
        for (uint32_t i = 0; i < GRID + countof(special); i++) {
            float x = i < GRID ? on_grid(i) : special[i - GRID];
            float got = functions[k].f(x);
            float want = (float)functions[k].libm((double)x);
            if (isnan(want)) {
                assert_int_equal(half_bits(got), 0x7fc00000);
                continue;
            }
            off += half_bits(got) != half_bits(want);
            if (!(got >= nextafterf(want, -INFINITY) &&
                  got <= nextafterf(want, INFINITY))) {
                fail_msg("%s(%a) is %a, not %a", functions[k].name, (double)x,
                         (double)got, (double)want);
            }
        }
        assert_in_range(off, 0, 1);
    }
}

/* Annex F, and ties: 4097^2 lies half way between two floats. */
static void test_powers_of_special_numbers(void **state)
{
    (void)state;
    static const float v[] = {0.0f,      -0.0f,     1.0f,      -1.0f,
                              2.0f,      -2.0f,     3.0f,      -3.0f,
                              0.5f,      -0.5f,     1.5f,      -2.5f,
                              INFINITY,  -INFINITY, NAN,       0x1p-149f,
                              -0x1p-149f, 0x1p127f, -0x1p127f, 65.0f,
                              -65.0f,    66.0f,     8388607.5f, 16777216.0f,
                              -8388609.0f};
    for (size_t i = 0; i < countof(v); i++) {
        for (size_t j = 0; j < countof(v); j++) {
            float got = fmath_powf(v[i], v[j]);
            float want = (float)pow((double)v[i], (double)v[j]);
            if (isnan(want) ? !isnan(got)
                            : half_bits(got) != half_bits(want)) {
                fail_msg("%g ^ %g is %a, not %a", (double)v[i], (double)v[j],
                         (double)got, (double)want);
            }
        }
    }
    assert_true(fmath_powf(4097.0f, 2.0f) == 4097.0f * 4097.0f);
    assert_true(fmath_powf(257.0f, 3.0f) == (float)(257.0 * 257.0 * 257.0));
}

/* The portable form, as this file is built for the plainest machine, against
 * libm's: numbers of all sizes, and sums that nearly cancel or tie. */
static void test_fused_products_round_once(void **state)
{
    (void)state;
    uint64_t r = 1;
    size_t once = 0; /* where two roundings are not one */
    for (uint32_t i = 0; i < 2000000; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        float a = half_float((uint32_t)(r >> 32));
        r = r * 6364136223846793005u + 1442695040888963407u;
        float b = half_float((uint32_t)(r >> 32));
        uint32_t low = (uint32_t)r >> 8;
        float c = half_float((low << 9) ^ low);
        if (i % 2 == 0) { /* the same sizes */
            a = half_float((half_bits(a) & 0x807fffffu) | 0x3f800000u);
            b = half_float((half_bits(b) & 0x807fffffu) | 0x3f800000u);
            c = i % 4 == 0
                    ? -(a * b)
                    : ldexpf(1 + 0x1p-23f, (int)(low % 60) - 50);
        } else if (i % 3 == 0) { /* near the smallest numbers */
            a = half_float((half_bits(a) & 0x807fffffu) | 0x20000000u);
            b = half_float((half_bits(b) & 0x807fffffu) | 0x1f000000u);
            c = half_float(low % 4096);
        } else if (i % 5 == 0) { /* a trifle below the middle of two floats */
            float d = ldexpf(1, -15 - (int)(low % 8));
            a = 0x1p-12f + 0x1p-12f * d;
            b = 0x1p-12f - 0x1p-12f * d;
            c = half_float(0x3f800001u + 2 * (low % 4096));
        }
        float got = fmath_fmaf(a, b, c);
        float want = fmaf(a, b, c);
        float twice = (float)((double)a * (double)b + (double)c);
        once += !isnan(want) && half_bits(twice) != half_bits(want);
        if (isnan(want) ? !isnan(got) : half_bits(got) != half_bits(want)) {
            fail_msg("%a * %a + %a is %a, not %a", (double)a, (double)b,
                     (double)c, (double)got, (double)want);
        }
    }
    assert_true(once > 0); /* the test reaches what it is for */
}

/* fmath_exps against fmath_exp: every length, and the ends of the range. */
static void test_many_are_as_one(void **state)
{
    (void)state;
    static const double ends[] = {
        709.79,    709.78,  709.7827128933841, 709.7827128933840, 710,
        -745.2,    -745.13, -745.1332191019412, -708.4,           -1e300,
        -HUGE_VAL, HUGE_VAL, (double)NAN,      0.0,              -0.0,
        1e300,     0x1p-1074, -708.3964185322642};
    double x[64];
    double want[64];
    for (uint32_t i = 0, n = 0; i < GRID; i += n) {
        n = i % 61 + 1;
        for (uint32_t k = 0; k < n; k++) {
            x[k] = i % 3 == 0 ? (double)on_grid(i + k)
                              : -(double)((i + k) % 7600) / 10.1;
        }
        x[i % n] = ends[i % countof(ends)];
        for (uint32_t k = 0; k < n; k++) {
            want[k] = fmath_exp(x[k]);
        }
        fmath_exps(x, n);
        for (uint32_t k = 0; k < n; k++) {
            assert_true(isnan(want[k]) ? isnan(x[k])
                                       : memcmp(&x[k], &want[k], 8) == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_are_as_one),
        cmocka_unit_test(test_bits_are_the_golden_ones),
        cmocka_unit_test(test_doubles_are_the_golden_ones),
        cmocka_unit_test(test_floats_are_the_nearest),
        cmocka_unit_test(test_powers_of_special_numbers),
        cmocka_unit_test(test_fused_products_round_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
