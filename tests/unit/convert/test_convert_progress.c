/* How even a conversion's progress is: the arithmetic, by a clock of ours. */
#include <math.h>

#include "../unit.h"
#include "convert/progress.h"

static uint64_t clock_ms; /* only the tests let it go on */

static uint64_t artificial(void)
{
    return clock_ms;
}

struct told {
    unsigned n;
    double fraction;
    const char *stage;
    bool stop;
};

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct told *t = ctx;
    assert_true(fraction >= t->fraction && fraction <= 1);
    t->n++;
    t->fraction = fraction;
    t->stage = stage;
    return !t->stop;
}

static struct progress progress(struct told *t)
{
    *t = (struct told){0};
    clock_ms = 1000;
    return (struct progress){.fn = on_progress, .ctx = t, .now_ms = artificial};
}

static const struct progress_part parts[] = {
    {"reading",    1 },
    {"measuring",  30},
    {"writing",    9 },
    {"writing",    40},
    {"gating",     5 },
    {"publishing", 15},
};

/* Each part takes its cost times `ms`; the fraction is the time's share. */
static void check_even(double ms)
{
    struct told t;
    struct err e = {0};
    struct progress p = progress(&t);
    double elapsed = 0;
    for (size_t i = 0; i < countof(parts); i++) {
        /* parts are counted in units of their own */
        uint64_t units = 7 + 1000 * i;
        unit_ok(progress_stage(&p, parts[i].stage, units, &e), &e);
        if (i == 0) { /* only then are the costs known */
            progress_plan(&p, parts, countof(parts));
        }
        for (int k = 0; k < 50; k++) {
            elapsed += parts[i].cost * ms / 50;
            clock_ms = 1000 + (uint64_t)elapsed;
            uint64_t until = units * (uint64_t)(k + 1) / 50;
            unit_ok(progress_add(&p, until - p.done, &e), &e);
            double share = elapsed / (100 * ms);
            if (i > 0) { /* the first was unknown when it began */
                assert_true(fabs(progress_fraction(&p) - share) < 0.02);
            }
            /* what anyone makes of it: what is left by what is behind */
            if (share >= 0.1) {
                double f = progress_fraction(&p);
                double left = elapsed * (1 - f) / f;
                assert_true(fabs(left - (100 * ms - elapsed)) <
                            0.25 * 100 * ms);
            }
        }
        assert_string_equal(t.stage, parts[i].stage);
    }
    assert_true(progress_fraction(&p) > 0.999);
}

static void a_fraction_is_a_share_of_the_time(void **state)
{
    (void)state;
    check_even(10); /* a second in all */
    check_even(3000);
    check_even(0.5);
}

static void it_never_falls(void **state)
{
    (void)state;
    struct told t;
    struct err e = {0};
    struct progress p = progress(&t);
    static const struct progress_part late[] = {
        {"a", 1},
        {"b", 1}
    };
    progress_plan(&p, late, 2);
    unit_ok(progress_stage(&p, "b", 10, &e), &e); /* the first was left out */
    assert_true(fabs(t.fraction - 0.5) < 1e-9);
    clock_ms += 1000;
    unit_ok(progress_add(&p, 50, &e), &e); /* more than was told */
    assert_true(t.fraction <= 1 && t.fraction > 0.99);
    progress_plan(&p, parts, countof(parts)); /* all is longer than thought */
    clock_ms += 1000;
    unit_ok(progress_add(&p, 0, &e), &e);
    assert_true(t.fraction > 0.99);
    /* a stage that nobody told has no part of the whole */
    unit_ok(progress_stage(&p, "surprise", 5, &e), &e);
    clock_ms += 1000;
    unit_ok(progress_add(&p, 5, &e), &e);
    assert_string_equal(t.stage, "surprise");
    assert_true(t.fraction <= 1);
}

static void it_is_told_twenty_times_a_second(void **state)
{
    (void)state;
    struct told t;
    struct err e = {0};
    struct progress p = progress(&t);
    progress_plan(&p, parts, countof(parts));
    unit_ok(progress_stage(&p, "reading", 1000, &e), &e);
    for (int i = 0; i < 1000; i++) { /* a second */
        clock_ms++;
        unit_ok(progress_add(&p, 1, &e), &e);
    }
    assert_int_equal(t.n, 1 + 20);
    t.stop = true;
    clock_ms += 50;
    assert_int_equal(progress_add(&p, 1, &e), ERR_CANCELLED);
    assert_non_null(strstr(e.msg, "reading"));
}

static void nothing_is_told_without_a_plan(void **state)
{
    (void)state;
    struct told t;
    struct err e = {0};
    struct progress p = progress(&t);
    unit_ok(progress_stage(&p, "reading", 10, &e), &e);
    clock_ms += 60;
    unit_ok(progress_add(&p, 10, &e), &e);
    assert_true(t.fraction <= 0);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(a_fraction_is_a_share_of_the_time),
        cmocka_unit_test(it_never_falls),
        cmocka_unit_test(it_is_told_twenty_times_a_second),
        cmocka_unit_test(nothing_is_told_without_a_plan),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
