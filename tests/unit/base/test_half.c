/* Every binary16 there and back, and rounding against arithmetic done in
 * double: the nearest of the two neighbours, ties to the even one. */
#include <math.h>

#include "../unit.h"
#include "base/half.h"

/* Value of a binary16 by its definition. */
static double value(uint16_t h)
{
    int e = (h >> 10) & 31;
    int m = h & 1023;
    double v = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
    return h & 0x8000 ? -v : v;
}

static void every_half_survives(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = half_to_float((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
            assert_true(isnan(half_to_float(half_from_float(f))));
            continue;
        }
        if ((h & 0x7fff) == 0x7c00) {
            assert_true(isinf(f));
        } else {
            assert_true((double)f == value((uint16_t)h));
        }
        assert_int_equal(half_from_float(f), h);
    }
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    uint32_t rng = 1;
    for (int i = 0; i < 400000; i++) {
        rng = rng * 1664525u + 1013904223u;
        uint16_t lo =
            (uint16_t)((rng >> 8) % 0x7bff); /* finite, not the last */
        uint16_t hi = (uint16_t)(lo + 1);
        double a = value(lo);
        double b = value(hi);
        double t = (double)((rng >> 4) & 7) / 8; /* 0, 1/8 .. 7/8: ties too */
        float f = (float)(a + (b - a) * t);
        uint16_t want = t < 0.5 || (t == 0.5 && lo % 2 == 0) ? lo : hi;
        assert_int_equal(half_from_float(f), want);
        assert_int_equal(half_from_float(-f), want | 0x8000);
    }
    assert_int_equal(half_from_float(65519.996F), 0x7bff);
    assert_int_equal(half_from_float(65520.0F), 0x7c00);
    assert_int_equal(half_from_float(1e30F), 0x7c00);
    assert_int_equal(half_from_float(2.9802322e-8F), 0); /* 2^-25: tie to 0 */
    assert_int_equal(half_from_float(2.98024e-8F), 1);
}

static void arrays_equal_scalars(void **state)
{
    (void)state;
    float f[1003];
    float g[1003];
    uint16_t h[1003];
    for (size_t i = 0; i < countof(f); i++) {
        f[i] = g[i] = sinf((float)i) * powf(2.0F, (float)(i % 40) - 25.0F);
    }
    half_from_floats(f, h, countof(f));
    half_round_floats(g, countof(g));
    for (size_t i = 0; i < countof(f); i++) {
        assert_int_equal(h[i], half_from_float(f[i]));
        assert_true(g[i] == half_round(f[i]));
    }
    half_to_floats(h, f, countof(f));
    assert_memory_equal(f, g, sizeof(f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(arrays_equal_scalars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
