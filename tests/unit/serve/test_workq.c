/* test_workq.c - a worker thread: order, the limit, what is taken back, and how
 * much finished work a turn of the loop takes (serve/workq.h). */
#include "../unit.h"
#include "serve/workq.h"

#define LIMIT 12u
#define SLOW  1000000u /* ns that a slow done() takes */
#define TURN  3u       /* slow ones in a turn: 3 ms, see workq.c */
#define GUARD 60000u   /* ms: a test that waits longer has failed */

static struct {
    uv_loop_t loop;
    uv_timer_t guard;
    uv_prepare_t prepare; /* once a turn */
    struct workq *q;
    struct item {
        struct work w;
        int ran, done; /* its turn, from 1 */
    } item[LIMIT + 2];
    uv_sem_t gate; /* the worker waits here in `gated` */
    int n_ran, n_done;
    unsigned in_turn, most_in_turn, turns;
    bool closed;
} t;

static void on_guard(uv_timer_t *h)
{
    (void)h;
    fail_msg("the loop stands still");
}

static void on_prepare(uv_prepare_t *h)
{
    (void)h;
    t.turns += t.in_turn > 0 ? 1 : 0;
    t.in_turn = 0;
}

static struct item *item_of(struct work *w)
{
    return container_of(w, struct item, w);
}

static void run(struct work *w)
{
    item_of(w)->ran = ++t.n_ran;
}

static void gated(struct work *w)
{
    uv_sem_wait(&t.gate);
    run(w);
}

static void posts(struct work *w)
{
    run(w);
    uv_sem_post(&t.gate);
}

static void done(struct work *w)
{
    item_of(w)->done = ++t.n_done;
    t.in_turn++;
    t.most_in_turn = t.in_turn > t.most_in_turn ? t.in_turn : t.most_in_turn;
}

static void slow(struct work *w)
{
    uint64_t from = uv_hrtime();
    while (uv_hrtime() - from < SLOW) {
    }
    done(w);
}

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof(t));
    must(uv_loop_init(&t.loop) == 0 && uv_sem_init(&t.gate, 0) == 0);
    must(uv_timer_init(&t.loop, &t.guard) == 0);
    must(uv_timer_start(&t.guard, on_guard, GUARD, 0) == 0);
    must(uv_prepare_init(&t.loop, &t.prepare) == 0);
    must(uv_prepare_start(&t.prepare, on_prepare) == 0);
    t.q = workq_new(&t.loop, LIMIT);
    return 0;
}

static void on_closed(void *ctx)
{
    (void)ctx;
    t.closed = true;
    uv_close((uv_handle_t *)&t.guard, NULL);
    uv_close((uv_handle_t *)&t.prepare, NULL);
}

static void end(void)
{
    workq_close(t.q, on_closed, NULL);
    assert_false(t.closed); /* never from inside */
    (void)uv_run(&t.loop, UV_RUN_DEFAULT);
    assert_true(t.closed);
}

static int teardown(void **state)
{
    (void)state;
    uv_sem_destroy(&t.gate);
    return uv_loop_close(&t.loop);
}

static void put(size_t i, void (*how)(struct work *),
                void (*then)(struct work *))
{
    t.item[i].w = (struct work){.run = how, .done = then};
    assert_int_equal(workq_put(t.q, &t.item[i].w), 0);
}

/* In order, and done() never from inside a call. Closing finishes what was
 * accepted, and accepts no more. */
static void order_and_close(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        put(i, run, done);
    }
    t.item[5].w = (struct work){.run = run, .done = done};
    assert_int_equal(t.n_done, 0);
    assert_int_equal(workq_depth(t.q), 5);
    workq_close(t.q, on_closed, NULL);
    assert_int_equal(workq_put(t.q, &t.item[5].w), ERR_BUSY);
    assert_int_equal(workq_run(t.q, &t.item[5].w), ERR_BUSY);
    (void)uv_run(&t.loop, UV_RUN_DEFAULT);
    assert_true(t.closed);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(t.item[i].ran, i + 1);
        assert_int_equal(t.item[i].done, i + 1);
    }
    assert_int_equal(t.item[5].ran, 0);
}

/* While the worker is at work: the limit counts what waits, what runs and what
 * has no done() yet; only what has not begun can be taken back. */
static void limit_and_cancel(void **state)
{
    (void)state;
    put(0, gated, done);
    for (size_t i = 1; i < LIMIT; i++) {
        put(i, run, done);
    }
    t.item[LIMIT].w = (struct work){.run = run, .done = done};
    assert_int_equal(workq_put(t.q, &t.item[LIMIT].w), ERR_BUSY);
    assert_true(workq_cancel(t.q, &t.item[4].w));
    assert_int_equal(workq_depth(t.q), LIMIT - 1);
    assert_int_equal(workq_run(t.q, &t.item[LIMIT].w), 0); /* does not queue */
    assert_int_equal(t.item[LIMIT].ran, 1);
    assert_int_equal(t.n_done, 0);
    assert_int_equal(workq_put(t.q, &t.item[4].w), ERR_BUSY);
    while (t.n_done == 0) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    assert_int_equal(t.item[LIMIT].done, 1); /* before the one that is gated */
    uv_sem_post(&t.gate);
    end();
    assert_int_equal(t.item[4].ran, 0);
    assert_int_equal(t.item[4].done, 0);
    assert_int_equal(t.n_done, LIMIT);
}

/* Much that is finished when the loop comes to it: a turn calls done() until
 * 3 ms are over, the rest is for the next ones, in order. */
static void a_turn_takes_some(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIMIT; i++) {
        put(i, i + 1 == LIMIT ? posts : run, slow);
    }
    uv_sem_wait(&t.gate); /* all others are finished, the loop has not looked */
    end();
    assert_int_equal(t.n_done, LIMIT);
    assert_in_range(t.most_in_turn, 1, TURN);
    assert_true(t.turns >= LIMIT / TURN);
    for (int i = 0; i < (int)LIMIT; i++) {
        assert_int_equal(t.item[i].done, i + 1);
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(order_and_close),
        CASE(limit_and_cancel),
        CASE(a_turn_takes_some),
    };
    return cmocka_run_group_tests_name("workq", tests, NULL, NULL);
}
