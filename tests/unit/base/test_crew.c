/* The shared worker threads: every item runs once, for any number of callers;
 * no CPU time is used when there is nothing to do. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "../unit.h"
#include "base/crew.h"

#define ITEMS 1000u

struct count {
    unsigned threads;
    unsigned seen[ITEMS]; /* plain: two calls for one item are a race */
    atomic_bool busy[CREW_MAX];
    atomic_uint blocks, bad;
    unsigned sleep_us; /* of a worker other than the caller */
};

static void count_block(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct count *c = ctx;
    (void)atomic_fetch_add(&c->blocks, 1);
    if (worker >= c->threads || atomic_exchange(&c->busy[worker], true)) {
        (void)atomic_fetch_add(&c->bad, 1);
        return;
    }
    for (size_t i = begin; i < end; i++) {
        c->seen[i]++;
    }
    if (worker > 0 && c->sleep_us > 0) {
        (void)usleep(c->sleep_us);
    }
    atomic_store(&c->busy[worker], false);
}

/* Run it and hold that each of the first n items was done once. */
static void run_counted(struct count *c, unsigned threads, size_t n,
                        size_t grain)
{
    *c = (struct count){.threads = threads, .sleep_us = c->sleep_us};
    crew_run(threads, n, grain, count_block, c);
    assert_int_equal(atomic_load(&c->bad), 0);
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(c->seen[i], i < n);
    }
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 63, 64, 65, 999, ITEMS};
    static const size_t grains[] = {1, 2, 7, 64, 999, 5000};
    static const unsigned threads[] = {1, 2, 4, 8};
    struct count c = {0};
    crew_ref();
    for (size_t t = 0; t < countof(threads); t++) {
        for (size_t n = 0; n < countof(counts); n++) {
            for (size_t g = 0; g < countof(grains); g++) {
                run_counted(&c, threads[t], counts[n], grains[g]);
            }
        }
    }
    crew_unref();
}

/* Jobs one after the other, far closer than a worker's way in and out. */
static void quick_jobs_do_not_mix(void **state)
{
    (void)state;
    struct count c = {0};
    crew_ref();
    for (unsigned i = 0; i < 2000; i++) {
        run_counted(&c, 2 + i % 3, 2 + i % 7, 1);
    }
    crew_unref();
}

/* The caller finds no block left, spins in vain and sleeps until the last
 * worker is out. */
static void caller_waits_for_slow_workers(void **state)
{
    (void)state;
    struct count c = {.sleep_us = 5000};
    crew_ref();
    for (unsigned i = 0; i < 20; i++) {
        run_counted(&c, 4, 64, 1);
    }
    crew_unref();
}

static void nested_block(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct count *inner = ctx;
    for (size_t i = begin; i < end; i++) {
        inner[i] = (struct count){.threads = 4};
        crew_run(4, ITEMS, 10, count_block, &inner[i]);
    }
}

/* A taken crew: the caller does its work in one block. */
static void nested_run_is_serial(void **state)
{
    (void)state;
    static struct count inner[8];
    crew_ref();
    crew_run(4, countof(inner), 1, nested_block, inner);
    crew_unref();
    for (size_t k = 0; k < countof(inner); k++) {
        assert_int_equal(atomic_load(&inner[k].blocks), 1);
        for (size_t i = 0; i < ITEMS; i++) {
            assert_int_equal(inner[k].seen[i], 1);
        }
    }
}

static void *many_runs(void *arg)
{
    struct count *c = arg;
    crew_ref();
    for (unsigned i = 0; i < 300; i++) {
        *c = (struct count){.threads = 3};
        crew_run(3, ITEMS, 50, count_block, c);
        for (size_t k = 0; k < ITEMS; k++) {
            if (c->seen[k] != 1 || atomic_load(&c->bad) != 0) {
                return c;
            }
        }
    }
    crew_unref();
    return NULL;
}

/* Users that come, run and go at the same time; the last one ends the
 * workers, the next one makes new ones. */
static void threads_share_the_crew(void **state)
{
    (void)state;
    static struct count c[4];
    for (int round = 0; round < 5; round++) {
        pthread_t t[4];
        for (size_t i = 0; i < countof(t); i++) {
            assert_int_equal(pthread_create(&t[i], NULL, many_runs, &c[i]), 0);
        }
        for (size_t i = 0; i < countof(t); i++) {
            void *failed = NULL;
            assert_int_equal(pthread_join(t[i], &failed), 0);
            assert_null(failed);
        }
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void step_aside(void *ctx)
{
    unsigned *n = ctx; /* plain: crew_errand_wait is what makes it visible */
    (*n)++;
}

/* A worker that has just worked takes it, one that sleeps does not; between
 * jobs, once, and before crew_errand_wait ends. */
static void an_errand_is_run_by_a_worker(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    struct count c = {0};
    unsigned done = 0;
    unsigned taken = 0;
    crew_errand_wait(); /* there is none */
    assert_false(crew_errand(step_aside, &done));
    if (crew_threads(0) < 2) {
        skip(); /* a worker does not spin while its caller does */
    }
    crew_ref();
    time_t end = time(NULL) + 40; /* other processes may have its core */
    for (int i = 0; i < ROUNDS || (taken == 0 && time(NULL) < end); i++) {
        if (i >= ROUNDS) {
            (void)usleep(1000);
        }
        run_counted(&c, 2 + 2 * (unsigned)(i % 2), 64, 1);
        if (crew_errand(step_aside, &done)) {
            taken++;
            if (i % 3 == 0) { /* a job meanwhile */
                run_counted(&c, 4, 64, 1);
            }
        }
        crew_errand_wait();
        assert_int_equal(done, taken);
    }
    assert_true(taken > 0);
    do { /* until all sleep: one may have lost its core while it spun */
        (void)usleep(50000);
        if (crew_errand(step_aside, &done)) {
            taken++;
            crew_errand_wait();
        } else {
            break;
        }
    } while (time(NULL) < end);
    assert_false(crew_errand(step_aside, &done));
    crew_unref();
    assert_int_equal(done, taken);
}

static void idle_workers_sleep(void **state)
{
    (void)state;
    struct count c = {0};
    crew_ref();
    run_counted(&c, 8, ITEMS, 1);
    double used = 1; /* in 300 ms, once they are past their spinning */
    for (time_t end = time(NULL) + 30; used >= 0.05 && time(NULL) < end;) {
        double began = cpu_seconds();
        (void)usleep(300000);
        used = cpu_seconds() - began;
    }
    assert_true(used < 0.05);
    run_counted(&c, 8, ITEMS, 1); /* and wake again */
    crew_unref();
}

static void threads_of_a_setting(void **state)
{
    (void)state;
    assert_in_range(crew_threads(0), 1, CREW_MAX);
    assert_int_equal(crew_threads(1), 1);
    assert_int_equal(crew_threads(CREW_MAX), CREW_MAX);
    assert_int_equal(crew_threads(CREW_MAX + 1), CREW_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(quick_jobs_do_not_mix),
        cmocka_unit_test(caller_waits_for_slow_workers),
        cmocka_unit_test(nested_run_is_serial),
        cmocka_unit_test(threads_share_the_crew),
        cmocka_unit_test(an_errand_is_run_by_a_worker),
        cmocka_unit_test(idle_workers_sleep),
        cmocka_unit_test(threads_of_a_setting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
