/* test_meter.c - what a turn of the loop used, and how often its clock is read
 * (serve/meter.h). CPU time is asked of this thread, so that other load does
 * not change what is expected. */
#include <time.h>

#include "../unit.h"
#include "base/num.h"
#include "serve/meter.h"

#define MS       1000000u /* ns */
#define MANY     40       /* short turns, */
#define SHORT    MS       /* each of so much: together twice LOOP_CPU_MS */
#define NOTHING  60       /* turns without work, */
#define APART_MS 3        /* and what is between two of them */
#define LONG     (2 * LOOP_CPU_MS * (uint64_t)MS)

static struct {
    uv_loop_t loop;
    uv_timer_t timer;
    struct meter meter;
    int left;
    uint64_t cpu, slept; /* of a turn, ns */
    uint64_t cpu_most;   /* that one really used */
    uint64_t read_ns;
    int readings;
} t;

static uint64_t cpu_now(void)
{
    struct timespec now = {0};
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void on_timer(uv_timer_t *h)
{
    uint64_t from = cpu_now();
    if (--t.left == 0) {
        (void)uv_timer_stop(h);
        return;
    }
    t.readings += t.meter.read_ns != t.read_ns;
    t.read_ns = t.meter.read_ns;
    while (t.cpu > 0 && cpu_now() < from + t.cpu) {
    }
    const struct timespec pause = {0, (long)t.slept};
    (void)nanosleep(&pause, NULL);
    t.cpu_most = num_max(t.cpu_most, cpu_now() - from);
}

/* `turns` of them, each with so much of both. */
static void turn(int turns, uint64_t cpu, uint64_t slept)
{
    memset(&t, 0, sizeof(t));
    t.left = turns + 1; /* the last one only measures those before */
    t.cpu = cpu;
    t.slept = slept;
    assert_int_equal(uv_loop_init(&t.loop), 0);
    meter_start(&t.meter, &t.loop);
    t.read_ns = t.meter.read_ns;
    assert_int_equal(uv_timer_init(&t.loop, &t.timer), 0);
    assert_int_equal(uv_timer_start(&t.timer, on_timer, 1, APART_MS), 0);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    meter_stop(&t.meter);
    uv_close((uv_handle_t *)&t.timer, NULL);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&t.loop), 0);
}

/* Not more than was used, the slack and the loop's own work apart. A hypervisor
 * may charge a short turn for time that it took. */
static void assert_near(uint64_t measured)
{
    uint64_t most = t.cpu_most + METER_SLACK_NS + 5 * MS;
    assert_in_range(measured, 0, most);
    assert_true(t.meter.n_over == 0 || most > LOOP_CPU_MS * (uint64_t)MS);
}

static void a_long_turn_is_measured(void **state)
{
    (void)state;
    turn(1, LONG, 0);
    assert_true(t.meter.cpu_max_ns >= LONG);
    assert_near(t.meter.cpu_max_ns);
    assert_int_equal(t.meter.n_over, 1);
}

/* It stands still, but uses nothing. */
static void sleep_is_no_work(void **state)
{
    (void)state;
    turn(1, 0, LONG);
    assert_near(t.meter.cpu_max_ns);
    assert_true(t.meter.lag.sum * 1e9 >= (double)(LONG - 3 * MS));
}

static void short_turns_are_not_one_long(void **state)
{
    (void)state;
    turn(MANY, SHORT, 0);
    assert_near(t.meter.cpu_max_ns);
    assert_true(t.readings >= MANY / 4);
}

/* The clock costs more than such a turn. */
static void turns_without_work_are_not_read(void **state)
{
    (void)state;
    turn(NOTHING, 0, 0);
    assert_true(t.readings <= NOTHING * 3 / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_turn_is_measured),
        cmocka_unit_test(sleep_is_no_work),
        cmocka_unit_test(short_turns_are_not_one_long),
        cmocka_unit_test(turns_without_work_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
