/* Which stream runs: rules 1, 3 and 7 to 9 of sched/sched.h. */
#include "../unit.h"
#include "sched/sched.h"

#define MANY 64

static struct sched s;
static struct sched_stream x[MANY];
static const int32_t prompt[] = {1, 2, 3, 4};

static void begin(uint32_t running, uint32_t queue)
{
    struct sched_conf c = {.rows_seq = 64,
                           .rows_step = 64,
                           .seqs = running + 2,
                           .running = running,
                           .queue = queue,
                           .context = 512,
                           .age_us = 1000};
    memset(x, 0, sizeof(x));
    sched_init(&s, &c);
}

static void end(void)
{
    if (s.in_flight) {
        sched_done(&s, 0, 0);
    }
    for (int i = 0; i < MANY; i++) {
        sched_remove(&s, &x[i], 0);
    }
    sched_fini(&s);
}

static void add(int i, enum sched_class cls, uint64_t peer, uint64_t now)
{
    x[i] = (struct sched_stream){
        .prompt = prompt, .n_prompt = 4, .cls = cls, .peer = peer};
    assert_int_equal(sched_add(&s, &x[i], now), 0);
}

/* One step at `now`; whoever drew a token gets one. */
static void step(uint64_t now)
{
    const struct sched_plan *p = sched_next(&s, now);
    if (p == NULL || p->n_rows == 0) {
        return;
    }
    sched_done(&s, 100, now);
    for (size_t i = 0; i < p->n_rows; i++) {
        struct sched_stream *y = sched_row_stream(&s, i);
        if (y != NULL && p->rows[i].sample) {
            assert_int_equal(sched_push(&s, y, 7), 0);
        }
    }
}

static bool runs(int i)
{
    return x[i].phase == SCHED_RUNNING;
}

static void rule_1_class_first(void **state)
{
    (void)state;
    begin(1, 10);
    add(0, SCHED_CLASS_BATCH, 1, 0);
    add(1, SCHED_CLASS_CHAT, 1, 0);
    add(2, SCHED_CLASS_INTERACTIVE, 1, 0);
    step(1);
    assert_true(runs(2));
    sched_remove(&s, &x[2], 2);
    step(3);
    assert_true(runs(1));
    sched_remove(&s, &x[1], 4);
    step(5);
    assert_true(runs(0));
    end();
}

/* One peer's crowd does not keep another's single request waiting. */
static void rule_1_peers_take_turns(void **state)
{
    (void)state;
    begin(2, 20);
    for (int i = 0; i < 10; i++) {
        add(i, SCHED_CLASS_CHAT, 1, 0);
    }
    step(0);
    assert_true(runs(0) && runs(1));
    add(10, SCHED_CLASS_CHAT, 2, 1);
    add(11, SCHED_CLASS_CHAT, 2, 1);
    step(2);
    sched_remove(&s, &x[0], 3);
    step(4);
    assert_true(runs(10) && !runs(2));
    sched_remove(&s, &x[1], 5);
    step(6); /* one each again: peer 1 has none running now */
    assert_true(runs(2) && !runs(11));
    end();
}

/* With one place, the peer that was served least goes on. */
static void rule_1_least_served(void **state)
{
    (void)state;
    begin(1, 20);
    for (int i = 0; i < 6; i++) {
        add(i, SCHED_CLASS_CHAT, 1, 0);
    }
    add(6, SCHED_CLASS_CHAT, 2, 0);
    step(0);
    assert_true(runs(0));
    step(1);
    sched_remove(&s, &x[0], 2);
    step(3);
    assert_true(runs(6));
    end();
}

static void rule_1_earlier_deadline(void **state)
{
    (void)state;
    begin(1, 20);
    add(0, SCHED_CLASS_CHAT, 1, 0);
    for (int i = 1; i <= 3; i++) {
        x[i] = (struct sched_stream){.prompt = prompt,
                                     .n_prompt = 4,
                                     .cls = SCHED_CLASS_CHAT,
                                     .peer = 1,
                                     .deadline_us =
                                         i == 1 ? 0 : 900 - 100 * (uint64_t)i};
        assert_int_equal(sched_add(&s, &x[i], 0), 0);
    }
    sched_remove(&s, &x[0], 0);
    step(1);
    assert_true(runs(3));
    /* Past it: no row any more, and it is named. */
    assert_null(sched_expired(&s, 599));
    assert_ptr_equal(sched_expired(&s, 600), &x[3]);
    assert_null(sched_next(&s, 600));
    sched_remove(&s, &x[3], 600);
    step(650);
    assert_true(runs(2));
    end();
}

/* A full batch queue is overtaken in the very next step. */
static void rule_7_interactive_overtakes(void **state)
{
    (void)state;
    begin(4, 40);
    for (int i = 0; i < 44; i++) {
        add(i, SCHED_CLASS_BATCH, 1, 0);
    }
    struct sched_stream more = {.prompt = prompt, .n_prompt = 4};
    assert_int_equal(sched_add(&s, &more, 0), ERR_BUSY);
    sched_remove(&s, &x[43], 0);
    for (int i = 0; i < 5; i++) {
        step((uint64_t)i);
    }
    assert_true(runs(3));
    uint32_t n = x[3].n_new;
    add(43, SCHED_CLASS_INTERACTIVE, 2, 5);
    step(6);
    assert_true(runs(43) && !runs(3));
    assert_int_equal(x[3].phase, SCHED_WAITING);
    assert_int_equal(x[43].n_new, 1);
    assert_int_equal(x[43].first_turn, 1);
    assert_int_equal(x[42].first_turn, 0);
    sched_remove(&s, &x[43], 7);
    step(8); /* it goes on where it was, its state still warm */
    assert_true(runs(3));
    assert_int_equal(x[3].n_new, n + 1);
    assert_int_equal(x[3].cached, 0);
    assert_int_equal(x[3].seq->computed, 4 + n);
    assert_int_equal(x[3].seq->n, 4 + n + 1);
    end();
}

static void rule_7_paused_streams_make_way(void **state)
{
    (void)state;
    begin(2, 10);
    add(0, SCHED_CLASS_INTERACTIVE, 1, 0);
    add(1, SCHED_CLASS_INTERACTIVE, 1, 0);
    add(2, SCHED_CLASS_BATCH, 2, 0);
    step(1);
    assert_true(!runs(2));
    sched_pause(&x[0], true, 2);
    step(3);
    assert_true(runs(2) && !runs(0));
    sched_pause(&x[0], false, 4); /* and back over the batch stream */
    step(5);
    assert_true(runs(0) && !runs(2));
    end();
}

static void rule_8_the_aged_keep_a_place(void **state)
{
    (void)state;
    begin(4, 40);
    add(0, SCHED_CLASS_BATCH, 1, 0);
    add(1, SCHED_CLASS_BATCH, 1, 0);
    for (int i = 2; i < 12; i++) {
        add(i, SCHED_CLASS_INTERACTIVE, 2, 0);
    }
    step(1);
    assert_true(!runs(0) && runs(2) && runs(5));
    sched_remove(&s, &x[2], 900);
    step(999); /* one short of its age */
    assert_true(!runs(0) && runs(6));
    sched_remove(&s, &x[3], 1000);
    step(1000);
    assert_true(runs(0) && x[0].kept);
    /* One of four places, no more; and nobody takes it. */
    sched_remove(&s, &x[4], 1001);
    step(1002);
    assert_true(runs(0) && runs(7) && !runs(1));
    sched_remove(&s, &x[0], 1003);
    step(1004);
    assert_true(runs(1));
    end();
}

/* rule_1_order_and_limit of test_sched.c has the queue without classes. */
static void rule_9_lost_places_count(void **state)
{
    (void)state;
    begin(2, 1);
    add(0, SCHED_CLASS_BATCH, 1, 0);
    add(1, SCHED_CLASS_BATCH, 1, 0);
    step(0);
    add(2, SCHED_CLASS_INTERACTIVE, 1, 0);
    step(1);
    assert_true(runs(2) && s.n_running == 2 && s.n_waiting == 1);
    x[3] = (struct sched_stream){.prompt = prompt, .n_prompt = 4};
    assert_int_equal(sched_add(&s, &x[3], 0), ERR_BUSY);
    end();
}

/* Eight decode, a long prompt comes: by the cost of a row (0.2 ms) and of a
 * step (10 ms) no step takes more than SCHED_SLOWER plain ones, once known. */
static void rule_3_others_wait_little(void **state)
{
    (void)state;
    static int32_t text[4000];
    struct sched_conf c = {.rows_seq = 512,
                           .rows_step = 512,
                           .seqs = 16,
                           .running = 16,
                           .queue = 16,
                           .context = 4096};
    memset(x, 0, sizeof(x));
    sched_init(&s, &c);
    for (int i = 0; i < 8; i++) {
        add(i, SCHED_CLASS_CHAT, (uint64_t)i, 0);
    }
    x[8] = (struct sched_stream){
        .prompt = text, .n_prompt = 4000, .cls = SCHED_CLASS_CHAT, .peer = 9};
    uint64_t plain = 10000 + 8 * 200;
    int steps = 0;
    for (int i = 0; x[8].n_new == 0; i++) {
        assert_true(i < 1000);
        if (i == 20) {
            assert_int_equal(sched_add(&s, &x[8], 0), 0);
        }
        const struct sched_plan *p = sched_next(&s, 0);
        assert_non_null(p);
        uint64_t us = 10000;
        uint64_t decoding = 0;
        for (size_t k = 0; k < p->n_rows; k++) {
            us += 200 * p->rows[k].n;
            decoding += p->rows[k].n == 1;
        }
        if (i >= 20) {
            assert_true(decoding >= 8);
            steps++;
            assert_true(us * 10 <= plain * 22);
        }
        sched_done(&s, us, 0);
        for (size_t k = 0; k < p->n_rows; k++) {
            if (p->rows[k].sample) {
                assert_int_equal(sched_push(&s, sched_row_stream(&s, k), 7), 0);
            }
        }
    }
    assert_in_range(steps, 70, 110); /* 58 rows a step fit */
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_1_class_first),
        cmocka_unit_test(rule_1_peers_take_turns),
        cmocka_unit_test(rule_1_least_served),
        cmocka_unit_test(rule_1_earlier_deadline),
        cmocka_unit_test(rule_3_others_wait_little),
        cmocka_unit_test(rule_7_interactive_overtakes),
        cmocka_unit_test(rule_7_paused_streams_make_way),
        cmocka_unit_test(rule_8_the_aged_keep_a_place),
        cmocka_unit_test(rule_9_lost_places_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
