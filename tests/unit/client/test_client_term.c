#include "../unit.h"
#include "client/term.h"

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0,          "0 B"    },
        {999,        "999 B"  },
        {1000,       "1.0 kB" },
        {99949,      "99.9 kB"},
        {99951,      "100 kB" },
        {999499,     "999 kB" },
        {999600,     "1.0 MB" },
        {1234567890, "1.2 GB" },
        {UINT64_MAX, "18.4 EB"},
    };
    static const struct {
        double s;
        const char *text;
    } times[] = {
        {-1,     "0.0s"       },
        {0.04,   "0.0s"       },
        {9.94,   "9.9s"       },
        {9.96,   "10s"        },
        {59.4,   "59s"        },
        {59.6,   "1m 00s"     },
        {65,     "1m 05s"     },
        {3599.4, "59m 59s"    },
        {3600,   "1h 00m"     },
        {7325,   "2h 02m"     },
        {1e300,  "972222h 13m"},
    };
    char out[16];
    for (size_t i = 0; i < countof(sizes); i++) {
        fmt_bytes(sizes[i].bytes, out);
        assert_string_equal(out, sizes[i].text);
    }
    for (size_t i = 0; i < countof(times); i++) {
        fmt_seconds(times[i].s, out);
        assert_string_equal(out, times[i].text);
    }
}

static void test_eta_steady(void **state)
{
    (void)state;
    struct eta t = {0};
    assert_true(eta_update(&t, 0, 0) < 0);
    assert_true(eta_update(&t, 0.05, 0.5) < 0); /* too early to say */
    double left = -1;
    for (int i = 1; i <= 50; i++) {
        left = eta_update(&t, i / 100.0, i); /* 1 % a second */
    }
    assert_true(left > 49 && left < 51);
    /* nothing new: it counts down */
    assert_true(eta_update(&t, 0.5, 55) < left - 4);
    assert_true(eta_update(&t, 0.5, 500) >= 0); /* and never below zero */
}

static void test_eta_follows_speed(void **state)
{
    (void)state;
    struct eta t = {0};
    double left = -1;
    double f = 0;
    int s = 0;
    for (; f < 0.5; f += 0.05) { /* fast */
        left = eta_update(&t, f, s++);
    }
    assert_true(left < 20);
    for (int i = 0; i < 60; i++) { /* then slow: 400 s to go */
        f += 0.001;
        left = eta_update(&t, f, s++);
    }
    assert_true(left > 300);
    assert_true(eta_update(&t, 0.1, s) < 0); /* another attempt: unknown */
}

static void test_eta_begins_with_the_work(void **state)
{
    (void)state;
    struct eta queued = {0};
    struct eta resumed = {0};
    double a = -1;
    double b = -1;
    assert_true(eta_update(&queued, 0, 0) < 0);
    assert_true(eta_update(&queued, 0.01, 300) < 0);
    assert_true(eta_update(&resumed, 0.6, 0.5) < 0);
    for (int i = 1; i <= 3; i++) { /* 1 % a second */
        a = eta_update(&queued, 0.01 + i / 100.0, 300 + i);
        b = eta_update(&resumed, 0.6 + i / 100.0, 0.5 + i);
    }
    assert_true(a > 95 && a < 97);
    assert_true(b > 36 && b < 38);
}

static void test_bar(void **state)
{
    (void)state;
    char out[256];
    bar_render(out, sizeof(out), 79, "layers", 0.5, 12, 12);
    assert_string_equal(out, "layers       [####################"
                             "....................]  50%  12s, 12s left");
    bar_render(out, sizeof(out), 79, "writing", 0, 0, -1);
    assert_null(strchr(out, '#'));
    assert_null(strstr(out, "left"));
    bar_render(out, sizeof(out), 79, "writing", 1, 3, 0);
    assert_non_null(strstr(out, "100%"));
    assert_null(strstr(out, "."
                            ".]"));
    bar_render(out, sizeof(out), 79, "writing", 0.9999, 3, 0);
    assert_non_null(strstr(out, " 99%"));
    for (unsigned width = 10; width < 200; width++) {
        bar_render(out, sizeof(out), width, "a stage with a long name", 0.3,
                   4000, 90000);
        assert_true(strlen(out) <= width);
    }
    bar_render(out, sizeof(out), 80, "x", 7, 1, 1); /* out of range */
    assert_non_null(strstr(out, "100%"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_eta_steady),
        cmocka_unit_test(test_eta_follows_speed),
        cmocka_unit_test(test_eta_begins_with_the_work),
        cmocka_unit_test(test_bar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
