/* Keep-alive as people write it, and signs of memory pressure from a file. */
#include <math.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "serve/engines/pressure.h"
#include "serve/engines/residency.h"

static void durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -2: refused */
    } rows[] = {
        {"10m",                                  600000      },
        {"1h30m",                                5400000     },
        {"1.5h",                                 5400000     },
        {"90",                                   90000       },
        {"0",                                    0           },
        {"0s",                                   0           },
        {"250ms",                                250         },
        {"2m0.5s",                               120500      },
        {"+5s",                                  5000        },
        {"1us",                                  0           },
        {"-1",                                   KEEP_FOREVER},
        {"-1m",                                  KEEP_FOREVER},
        {"-0",                                   0           },
        {"9999999h",                             KEEP_FOREVER},
        {"8760h",                                31536000000 },
        {"",                                     -2          },
        {"-",                                    -2          },
        {"m",                                    -2          },
        {"5x",                                   -2          },
        {"5m3",                                  -2          },
        {"5 m",                                  -2          },
        {"1..5s",                                -2          },
        {"1e9",                                  -2          },
        {"nan",                                  -2          },
        {"inf",                                  -2          },
        {"5m ",                                  -2          },
        {"--1",                                  -2          },
        {"10mm",                                 -2          },
        {"00000000000000000000000000000000001s", -2          },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        int64_t ms = 77;
        struct err e = {0};
        int rc = keep_alive_text(rows[i].text, &ms, &e);
        int64_t want = rows[i].ms == -2 ? 77 : rows[i].ms;
        if (ms != want || (rc != 0) != (rows[i].ms == -2)) {
            fail_msg("\"%s\": %lld ms, rc %d", rows[i].text, (long long)ms, rc);
        }
    }
    int64_t ms = 77;
    struct err e = {0};
    assert_int_equal(keep_alive_seconds((double)NAN, &ms, &e), ERR_INVALID);
    assert_int_equal(keep_alive_seconds(1.5, &ms, &e), 0);
    assert_int_equal(ms, 1500);
}

static void totals(void **state)
{
    (void)state;
    uint64_t us = 7;
    static const char real[] =
        "some avg10=0.12 avg60=0.00 avg300=0.00 total=1234567\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=89\n";
    assert_int_equal(pressure_total(real, &us), 0);
    assert_int_equal(us, 1234567);
    static const char *const bad[] = {
        "",
        "some",
        "some avg10=0\nfull total=5\n",
        "full total=5\n",
        "some total=",
        "some total=x",
        "some total=99999999999999999999",
    };
    for (size_t i = 0; i < countof(bad); i++) {
        us = 7;
        assert_int_equal(pressure_total(bad[i], &us), ERR_INVALID);
        assert_int_equal(us, 7);
    }
}

static struct {
    uv_loop_t loop;
    char path[64];
    uint64_t total;
    int signs, ticks;
    struct pressure *p;
    uv_timer_t timer;
} t;

static void write_total(void)
{
    char text[128];
    struct err e = {0};
    int n = snprintf(text, sizeof(text), "some avg10=0.00 total=%llu\n",
                     (unsigned long long)t.total);
    unit_ok(file_write(t.path, text, (size_t)n, &e), &e);
}

static void on_sign(void *ctx)
{
    assert_ptr_equal(ctx, &t);
    t.signs++;
}

/* Ten ticks of 100 ms: nothing, then half of the time waited, then off. */
static void on_tick(uv_timer_t *h)
{
    (void)h;
    t.ticks++;
    if (t.ticks == 4) {
        assert_int_equal(t.signs, 0);
        t.total += 100000000;
        write_total();
    } else if (t.ticks == 7) {
        assert_int_equal(t.signs, 1); /* it counts what is new */
        pressure_watch(t.p, false);
        t.total += 100000000;
        write_total();
    } else if (t.ticks == 10) {
        assert_int_equal(t.signs, 1);
        pressure_close(t.p);
        uv_close((uv_handle_t *)&t.timer, NULL);
    }
}

static void signs_from_a_file(void **state)
{
    (void)state;
    (void)snprintf(t.path, sizeof(t.path), "/tmp/aned-psi-%d", (int)getpid());
    t.total = 5000000000; /* what happened before does not count */
    write_total();
    assert_int_equal(uv_loop_init(&t.loop), 0);
    t.p = pressure_new(&t.loop, t.path, on_sign, &t);
    pressure_watch(t.p, true);
    assert_int_equal(uv_timer_init(&t.loop, &t.timer), 0);
    assert_int_equal(uv_timer_start(&t.timer, on_tick, 100, 100), 0);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(t.ticks, 10);
    assert_int_equal(uv_loop_close(&t.loop), 0);
    assert_int_equal(unlink(t.path), 0);
}

static void the_systems_own_can_be_asked(void **state)
{
    (void)state;
    assert_int_equal(uv_loop_init(&t.loop), 0);
    struct pressure *p = pressure_new(&t.loop, "", on_sign, &t);
    pressure_watch(p, true);
    pressure_watch(p, false);
    pressure_close(p);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&t.loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),
        cmocka_unit_test(totals),
        cmocka_unit_test(signs_from_a_file),
        cmocka_unit_test(the_systems_own_can_be_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
