/* Sequences are admitted by what they use: rule 13 of sched/sched.h. */
#include "../unit.h"
#include "sched/restore.h"

#define MANY    4
#define CONTEXT 1024u /* the least budget: one full sequence */
#define AGE     1000u

static struct sched s;
static struct sched_stream x[MANY];
static int32_t prompt[MANY][CONTEXT];
static unsigned closed; /* operations so far */
static uint32_t closed_seq;

static void begin(uint64_t positions)
{
    struct sched_conf c = {.rows_seq = 1024,
                           .rows_step = 1024,
                           .seqs = 8,
                           .running = MANY,
                           .queue = MANY,
                           .context = CONTEXT,
                           .age_us = AGE,
                           .positions = positions};
    memset(x, 0, sizeof(x));
    closed = 0;
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

/* Number i with n tokens of its own; max_new 0: it may draw any number. */
static void add(int i, enum sched_class cls, uint32_t n, uint32_t max_new,
                uint64_t now)
{
    for (uint32_t k = 0; k < n; k++) {
        prompt[i][k] = (int32_t)(i * 10000) + (int32_t)k;
    }
    x[i] = (struct sched_stream){.prompt = prompt[i],
                                 .n_prompt = n,
                                 .reuse = true,
                                 .cls = cls,
                                 .max_new = max_new};
    assert_int_equal(sched_add(&s, &x[i], now), 0);
}

static void chat(int i, uint32_t n, uint32_t max_new)
{
    add(i, SCHED_CLASS_CHAT, n, max_new, 0);
}

static bool runs(int i)
{
    return x[i].phase == SCHED_RUNNING;
}

static bool full(int i)
{
    return runs(i) && x[i].seq->n == CONTEXT;
}

/* One step; whoever drew a token gets one, until its context is full. */
static void step(uint64_t now)
{
    const struct sched_plan *p = sched_next(&s, now);
    for (size_t i = 0; p != NULL && i < p->n_ops; i++) {
        if (p->ops[i].kind == SCHED_OP_CLOSE) {
            closed++;
            closed_seq = p->ops[i].seq;
        }
    }
    assert_true(s.conf.positions == 0 ||
                sched_positions(&s) <= s.conf.positions);
    if (p == NULL || p->n_rows == 0) {
        return;
    }
    sched_done(&s, 100, now);
    for (size_t i = 0; i < p->n_rows; i++) {
        struct sched_stream *y = sched_row_stream(&s, i);
        if (y != NULL && p->rows[i].sample && y->seq->n < CONTEXT) {
            assert_int_equal(sched_push(&s, y, 7), 0);
        }
    }
}

/* Number i comes and goes: its prompt stays warm. Returns its sequence. */
static uint32_t warm(int i, uint32_t n, uint64_t now)
{
    add(i, SCHED_CLASS_CHAT, n, 1, now);
    step(now);
    assert_true(runs(i));
    for (uint32_t k = 0; k < CONTEXT && x[i].seq->computed < n; k++) {
        step(now);
    }
    uint32_t seq = x[i].seq->id;
    sched_remove(&s, &x[i], now);
    return seq;
}

static void one_always_fits(void **state)
{
    (void)state;
    begin(1);
    assert_int_equal(s.conf.positions, CONTEXT);
    chat(0, 100, 0);
    for (uint32_t i = 0; i < CONTEXT && !full(0); i++) {
        step(0);
    }
    assert_true(full(0));
    end();
}

static void without_a_budget_places_count(void **state)
{
    (void)state;
    begin(0);
    for (int i = 0; i < MANY; i++) {
        chat(i, 900, 0);
    }
    step(0);
    assert_int_equal(s.n_running, MANY);
    end();
}

/* 320 positions each: three fit. */
static void warm_ones_go_least_used_first(void **state)
{
    (void)state;
    begin(CONTEXT);
    uint32_t a = warm(0, 300, 1);
    uint32_t b = warm(1, 300, 2);
    uint32_t c = warm(2, 300, 3);
    assert_int_equal(sched_warm(&s), 3);
    assert_int_equal(closed, 0);
    (void)warm(3, 300, 4);
    assert_int_equal(closed, 1);
    assert_int_equal(closed_seq, a);
    assert_int_equal(sched_warm(&s), 3);
    /* b is the oldest now, but it is the one that goes on */
    add(1, SCHED_CLASS_CHAT, 600, 1, 5);
    step(5);
    assert_true(runs(1));
    assert_int_equal(x[1].seq->id, b);
    assert_int_equal(x[1].cached, 300);
    assert_int_equal(closed, 2);
    assert_int_equal(closed_seq, c);
    end();
}

/* The longest prefix is in a warm sequence that loses much: a copy would be
 * made, but it has no room beside the other. */
static void without_room_for_a_copy_it_is_taken(void **state)
{
    (void)state;
    begin(CONTEXT);
    uint32_t a = warm(0, 600, 1);
    memcpy(prompt[1], prompt[0], 100 * sizeof(prompt[0][0]));
    x[1] = (struct sched_stream){
        .prompt = prompt[1], .n_prompt = 500, .reuse = true, .max_new = 1};
    for (int k = 100; k < 500; k++) {
        prompt[1][k] = 5000 + k;
    }
    assert_int_equal(sched_add(&s, &x[1], 2), 0);
    step(2);
    assert_true(runs(1));
    assert_int_equal(x[1].seq->id, a);
    assert_int_equal(x[1].cached, 100);
    assert_int_equal(closed, 0);
    end();
}

static void a_start_waits_for_room(void **state)
{
    (void)state;
    begin(CONTEXT);
    chat(0, 600, 1);
    chat(1, 600, 1);
    chat(2, 10, 1); /* would fit, but its turn is later */
    step(0);
    assert_true(runs(0) && !runs(1) && !runs(2));
    step(1);
    assert_true(runs(0) && !runs(1) && !runs(2));
    sched_remove(&s, &x[0], 2);
    step(2);
    assert_true(runs(1) && runs(2));
    assert_int_equal(closed, 1); /* what number 0 left */
    end();
}

static void rule_7_gives_room(void **state)
{
    (void)state;
    begin(CONTEXT);
    add(0, SCHED_CLASS_BATCH, 600, 1, 0);
    step(0);
    add(1, SCHED_CLASS_INTERACTIVE, 600, 1, 0);
    step(0);
    assert_true(!runs(0) && runs(1));
    sched_pause(&x[1], true, 0);
    step(0); /* a paused one gives way to any */
    assert_true(runs(0) && !runs(1));
    sched_pause(&x[1], false, 0);
    step(0);
    assert_true(!runs(0) && runs(1));
    end();
}

/* None is parked for one that would not fit all the same. */
static void nobody_goes_in_vain(void **state)
{
    (void)state;
    begin(CONTEXT);
    chat(0, 600, 1);
    add(1, SCHED_CLASS_BATCH, 100, 1, 0);
    step(0);
    assert_true(runs(0) && runs(1));
    chat(2, 600, 1);
    step(0);
    assert_true(runs(0) && runs(1) && !runs(2));
    end();
}

/* Both have room for 512 tokens; then one has to go. */
static void growth_takes_a_place(void **state)
{
    (void)state;
    begin(CONTEXT);
    chat(0, 200, 0);
    chat(1, 200, 0);
    uint32_t most = 0;
    for (uint32_t i = 0; i < CONTEXT && !full(0); i++) {
        step(0);
        assert_true(runs(0));
        most = runs(1) ? x[1].seq->n : most;
        assert_true(runs(1) || most >= 512);
    }
    assert_true(full(0) && !runs(1));
    assert_int_equal(closed, 1);
    sched_remove(&s, &x[0], 0);
    step(0); /* all it had is computed again */
    assert_true(runs(1) && x[1].seq->computed >= most - 1);
    assert_memory_equal(x[1].seq->tokens, prompt[1], 200 * 4);
    for (uint32_t i = 0; i < CONTEXT && !full(1); i++) {
        step(0);
    }
    assert_true(full(1));
    for (uint32_t i = 200; i < CONTEXT; i++) {
        assert_int_equal(x[1].seq->tokens[i], 7);
    }
    end();
}

/* Whoever grows: the first that started goes on to its end. */
static void the_first_keeps_its_place(void **state)
{
    (void)state;
    begin(CONTEXT);
    for (int i = 0; i < MANY; i++) {
        chat(i, 60, 0);
    }
    for (int first = 0; first < MANY; first++) {
        for (uint32_t i = 0; i < CONTEXT && !full(first); i++) {
            step(0);
            assert_true(runs(first));
        }
        assert_true(full(first));
        sched_remove(&s, &x[first], 0);
    }
    end();
}

/* A chat is before a batch, and who is paused is after both. */
static void others_grow_after_a_lower_class(void **state)
{
    (void)state;
    begin(CONTEXT);
    add(0, SCHED_CLASS_BATCH, 200, 0, 0);
    step(0);
    chat(1, 200, 0);
    for (uint32_t i = 0; i < CONTEXT && runs(0); i++) {
        step(0);
        assert_true(runs(1));
    }
    assert_false(runs(0));
    sched_pause(&x[1], true, 0);
    step(0);
    assert_true(runs(0) && !runs(1));
    end();
}

/* Rule 8, of room: what is free is kept for the aged one. */
static void the_aged_gets_the_next_room(void **state)
{
    (void)state;
    begin(CONTEXT);
    chat(0, 600, 1);
    step(0);
    add(1, SCHED_CLASS_BATCH, 600, 1, 0);
    step(2 * AGE);
    add(2, SCHED_CLASS_CHAT, 10, 1, 2 * AGE);
    step(2 * AGE);
    assert_true(runs(0) && !runs(1) && !runs(2));
    sched_remove(&s, &x[0], 2 * AGE);
    step(2 * AGE);
    assert_true(runs(1) && x[1].kept && runs(2));
    end();
}

static void a_load_takes_room(void **state)
{
    (void)state;
    begin(CONTEXT);
    chat(0, 600, 1);
    step(0);
    assert_int_equal(sched_restore_begin(&s, 600), -1);
    int seq = sched_restore_begin(&s, 300);
    assert_true(seq >= 0);
    chat(1, 100, 1); /* 640 + 320 + 128 */
    step(0);
    assert_false(runs(1));
    sched_restore_end(&s, (uint32_t)seq, prompt[2], 100, true, 1);
    step(1);
    assert_true(runs(1));
    assert_int_equal(sched_warm(&s), 1);
    end();
}

/* Each open sequence takes 200 beside its room. */
static void the_overhead_counts(void **state)
{
    (void)state;
    struct sched_conf c = {.rows_seq = 64,
                           .rows_step = 64,
                           .seqs = 8,
                           .running = MANY,
                           .queue = MANY,
                           .context = CONTEXT,
                           .positions = 1,
                           .overhead = 200};
    memset(x, 0, sizeof(x));
    sched_init(&s, &c);
    assert_int_equal(s.conf.positions, CONTEXT + 200);
    for (int i = 0; i < MANY; i++) {
        chat(i, 60, 2);
    }
    step(0); /* 4 * 264 */
    assert_int_equal(s.n_running, MANY);
    assert_int_equal(sched_positions(&s), MANY * 264);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_always_fits),
        cmocka_unit_test(without_a_budget_places_count),
        cmocka_unit_test(warm_ones_go_least_used_first),
        cmocka_unit_test(without_room_for_a_copy_it_is_taken),
        cmocka_unit_test(a_start_waits_for_room),
        cmocka_unit_test(rule_7_gives_room),
        cmocka_unit_test(nobody_goes_in_vain),
        cmocka_unit_test(growth_takes_a_place),
        cmocka_unit_test(the_first_keeps_its_place),
        cmocka_unit_test(others_grow_after_a_lower_class),
        cmocka_unit_test(the_aged_gets_the_next_room),
        cmocka_unit_test(a_load_takes_room),
        cmocka_unit_test(the_overhead_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
