/* The rules of sched/sched.h about steps and sequences, one by one; tests/sim
 * has all of them together. */
#include "../unit.h"
#include "sched/restore.h"
#include "sched/sched.h"

#define NONE UINT32_MAX

static struct sched_conf conf(void)
{
    return (struct sched_conf){.rows_seq = 8,
                               .rows_step = 16,
                               .seqs = 4,
                               .running = 3,
                               .queue = 4,
                               .context = 64};
}

static struct sched_stream stream(const int32_t *p, uint32_t n)
{
    return (struct sched_stream){.prompt = p, .n_prompt = n, .reuse = true};
}

/* 1, 2, 3, ... */
static const int32_t *count_up(void)
{
    static int32_t t[128];
    for (int i = 0; i < 128; i++) {
        t[i] = i + 1;
    }
    return t;
}

static const struct sched_row *row_of(const struct sched_plan *p,
                                      const struct sched_stream *x)
{
    for (size_t i = 0; p != NULL && i < p->n_rows; i++) {
        if (x->seq != NULL && p->rows[i].seq == x->seq->id) {
            return &p->rows[i];
        }
    }
    return NULL;
}

static uint32_t rows_of(const struct sched_plan *p,
                        const struct sched_stream *x)
{
    const struct sched_row *r = row_of(p, x);
    return r != NULL ? r->n : 0;
}

/* Steps until x's prompt is computed; then draws `n` tokens for it. */
static void run(struct sched *s, struct sched_stream *x, int n)
{
    for (int i = 0; i < 100; i++) {
        const struct sched_plan *p = sched_next(s, (uint64_t)i);
        if (p == NULL) {
            return;
        }
        if (p->n_rows == 0) {
            continue;
        }
        const struct sched_row *r = row_of(p, x);
        bool drawn = r != NULL && r->sample;
        sched_done(s, 0, (uint64_t)i);
        if (drawn) {
            if (n-- == 0) {
                return;
            }
            assert_int_equal(sched_push(s, x, 1000 + n), 0);
        }
    }
}

/* The same, when it must be there. */
static const struct sched_row *row(const struct sched_plan *p,
                                   const struct sched_stream *x)
{
    const struct sched_row *r = row_of(p, x);
    if (r == NULL) {
        abort();
    }
    return r;
}

static const struct sched_op *find_op(const struct sched_plan *p,
                                      enum sched_op_kind k)
{
    for (size_t i = 0; p != NULL && i < p->n_ops; i++) {
        if (p->ops[i].kind == k) {
            return &p->ops[i];
        }
    }
    return NULL;
}

static const struct sched_op *op(const struct sched_plan *p,
                                 enum sched_op_kind k)
{
    const struct sched_op *o = find_op(p, k);
    if (o == NULL) {
        abort();
    }
    return o;
}

static void rule_1_order_and_limit(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    struct sched_stream x[8];
    sched_init(&s, &c);
    for (int i = 0; i < 7; i++) {
        x[i] = stream(count_up(), 2);
        assert_int_equal(sched_add(&s, &x[i], 0), 0);
    }
    x[7] = stream(count_up(), 2);
    assert_int_equal(sched_add(&s, &x[7], 0), ERR_BUSY);
    assert_int_equal(x[7].phase, SCHED_OUT);
    assert_non_null(sched_next(&s, 1));
    for (int i = 0; i < 7; i++) {
        assert_int_equal(x[i].phase, i < 3 ? SCHED_RUNNING : SCHED_WAITING);
    }
    sched_done(&s, 0, 2);
    sched_remove(&s, &x[1], 3);
    assert_non_null(sched_next(&s, 4));
    assert_int_equal(x[3].phase, SCHED_RUNNING);
    assert_int_equal(x[4].phase, SCHED_WAITING);
    sched_done(&s, 0, 5);
    for (int i = 0; i < 8; i++) {
        sched_remove(&s, &x[i], 6);
    }
    assert_int_equal(s.n_running + s.n_waiting, 0);
    sched_fini(&s);
}

static void bad_prompts_are_refused(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    struct sched_stream none = stream(count_up(), 0);
    struct sched_stream full = stream(count_up(), 64);
    struct sched_stream over = stream(count_up(), 65);
    assert_int_equal(sched_add(&s, &none, 0), ERR_INVALID);
    assert_int_equal(sched_add(&s, &over, 0), ERR_CONTEXT);
    assert_int_equal(sched_add(&s, &full, 0), 0);
    run(&s, &full, 0);
    assert_true(sched_settled(&full));
    assert_int_equal(sched_push(&s, &full, 5), ERR_CONTEXT);
    sched_remove(&s, &full, 0);
    sched_fini(&s);
}

static void rule_2_decode_before_prompt(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    struct sched_stream a = stream(count_up(), 3);
    struct sched_stream b = stream(count_up() + 20, 30);
    sched_init(&s, &c);
    assert_int_equal(sched_add(&s, &a, 0), 0);
    run(&s, &a, 0);
    assert_int_equal(sched_push(&s, &a, 9), 0);
    assert_int_equal(sched_add(&s, &b, 0), 0);
    const struct sched_plan *p = sched_next(&s, 1);
    assert_int_equal(s.plan.n_rows, 1); /* what it costs has to be known */
    sched_done(&s, 1000, 1);
    assert_int_equal(sched_push(&s, &a, 9), 0);
    p = sched_next(&s, 1);
    assert_int_equal(s.plan.n_rows, 2);
    assert_int_equal(s.plan.rows[0].seq, a.seq->id);
    assert_true(s.plan.rows[0].sample);
    assert_int_equal(rows_of(p, &b), 8); /* rows_seq */
    assert_false(row(p, &b)->sample);
    assert_null(sched_next(&s, 1)); /* one step at a time */
    sched_done(&s, 0, 2);
    sched_remove(&s, &a, 3);
    sched_remove(&s, &b, 3);
    sched_fini(&s);
}

static void rule_3_neither_starves(void **state)
{
    (void)state;
    /* One row a step: a decoding stream and a long prompt take turns. */
    struct sched_conf c = conf();
    c.rows_step = 1;
    struct sched s;
    sched_init(&s, &c);
    struct sched_stream a = stream(count_up(), 1);
    struct sched_stream b = stream(count_up() + 20, 10);
    assert_int_equal(sched_add(&s, &a, 0), 0);
    assert_int_equal(sched_add(&s, &b, 0), 0);
    int decoded = 0, prompt = 0;
    for (int i = 0; i < 20 && prompt < 10; i++) {
        const struct sched_plan *p = sched_next(&s, 0);
        assert_non_null(p);
        bool ra = row_of(p, &a) != NULL;
        decoded += ra;
        prompt += (int)rows_of(p, &b);
        sched_done(&s, 0, 0);
        if (ra) {
            assert_int_equal(sched_push(&s, &a, 7), 0);
        }
    }
    assert_int_equal(prompt, 10);
    assert_true(decoded >= 8);
    sched_remove(&s, &a, 0);
    sched_remove(&s, &b, 0);
    sched_fini(&s);
}

static void rule_3_slow_rows_make_small_steps(void **state)
{
    (void)state;
    struct sched_conf c = conf();
    c.rows_step = c.rows_seq = 512;
    c.context = 1100;
    struct sched s;
    static int32_t t[1100];
    sched_init(&s, &c);
    struct sched_stream a = stream(t, 1100);
    assert_int_equal(sched_add(&s, &a, 0), 0);
    const struct sched_plan *p = sched_next(&s, 0);
    assert_int_equal(rows_of(p, &a), SCHED_ROWS_FIRST); /* cost unknown */
    sched_done(&s, SCHED_ROWS_FIRST * 100, 0);          /* 0.1 ms a row */
    p = sched_next(&s, 0);
    assert_int_equal(rows_of(p, &a), 512);
    s.cost = (struct cost){0};
    sched_done(&s, 512 * 10000, 0); /* 10 ms a row */
    p = sched_next(&s, 0);
    assert_int_equal(rows_of(p, &a), SCHED_STEP_US / 10000);
    sched_done(&s, 1000 * 1000000u, 0); /* one slow step is not believed */
    p = sched_next(&s, 0);
    assert_in_range(rows_of(p, &a), SCHED_ROWS_MIN + 1, 24);
    for (int i = 0; i < 30; i++) { /* more of them are; the least is kept */
        sched_done(&s, 1000 * 1000000u, 0);
        p = sched_next(&s, 0);
    }
    assert_int_equal(rows_of(p, &a), SCHED_ROWS_MIN);
    sched_done(&s, 1, 0);
    sched_remove(&s, &a, 0);
    sched_fini(&s);
}

/* Steps until x's prompt is computed, on an engine where a step costs 10 ms and
 * each of its rows 1 ms; the prompt rows of the first and of the widest. */
static void prefill(struct sched *s, struct sched_stream *x, uint32_t *first,
                    uint32_t *widest)
{
    *first = 0;
    *widest = 0;
    do {
        const struct sched_plan *p = sched_next(s, 0);
        assert_non_null(p);
        uint32_t n = rows_of(p, x);
        uint32_t all = 0;
        for (size_t i = 0; i < p->n_rows; i++) {
            all += p->rows[i].n;
        }
        *first = *first == 0 ? n : *first;
        *widest = n > *widest ? n : *widest;
        assert_true(all == 0 || 10000 + all * 1000 < 2 * SCHED_STEP_US);
        sched_done(s, 10000 + all * 1000, 0);
    } while (!sched_settled(x));
}

/* Prompts of a row or two, as each turn of a chat has them, must not make the
 * next long one crawl; nor does a step's own cost. */
static void rule_3_short_prompts_hide_no_cost(void **state)
{
    (void)state;
    struct sched_conf c = conf();
    c.rows_step = c.rows_seq = 512;
    c.context = 4096;
    struct sched s;
    static int32_t t[4096];
    uint32_t first = 0;
    uint32_t widest = 0;
    sched_init(&s, &c);
    struct sched_stream a = stream(t, 1000);
    assert_int_equal(sched_add(&s, &a, 0), 0);
    prefill(&s, &a, &first, &widest);
    assert_int_equal(first, SCHED_ROWS_FIRST);
    assert_in_range(widest, 190, 250);
    for (int i = 0; i < 50; i++) { /* a decodes all the while */
        assert_int_equal(sched_push(&s, &a, 7), 0);
        assert_non_null(sched_next(&s, 0));
        sched_done(&s, 11000, 0);
        assert_int_equal(sched_push(&s, &a, 7), 0);
        struct sched_stream b = stream(t, 2);
        b.reuse = false;
        assert_int_equal(sched_add(&s, &b, 0), 0);
        prefill(&s, &b, &first, &widest);
        sched_remove(&s, &b, 0);
    }
    struct sched_stream b = stream(t, 2000);
    b.reuse = false;
    assert_int_equal(sched_add(&s, &b, 0), 0);
    prefill(&s, &b, &first, &widest);
    assert_in_range(first, 180, 250);
    assert_in_range(widest, 220, 250);
    sched_remove(&s, &a, 0);
    sched_remove(&s, &b, 0);
    sched_fini(&s);
}

static void rule_4_continuation_is_taken_in_place(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    struct sched_stream a = stream(count_up(), 20);
    assert_int_equal(sched_add(&s, &a, 0), 0);
    run(&s, &a, 0);
    uint32_t id = a.seq->id;
    sched_remove(&s, &a, 0);
    assert_int_equal(sched_warm(&s), 1);
    struct sched_stream b = stream(count_up(), 30);
    assert_int_equal(sched_add(&s, &b, 0), 0);
    const struct sched_plan *p = sched_next(&s, 0);
    assert_int_equal(b.cached, 20);
    assert_int_equal(b.seq->id, id);
    assert_int_equal(s.plan.n_ops, 0);
    assert_int_equal(row(p, &b)->position, 20);
    sched_done(&s, 0, 0);
    sched_remove(&s, &b, 0);

    /* The same prompt again: all but the last token is warm. */
    struct sched_stream d = stream(count_up(), 20);
    assert_int_equal(sched_add(&s, &d, 0), 0);
    p = sched_next(&s, 0);
    assert_int_equal(d.cached, 19);
    assert_int_equal(op(p, SCHED_OP_TRUNCATE)->n, 19);
    sched_done(&s, 0, 0);
    sched_remove(&s, &d, 0);

    struct sched_stream fresh = stream(count_up(), 20);
    fresh.reuse = false;
    assert_int_equal(sched_add(&s, &fresh, 0), 0);
    p = sched_next(&s, 0);
    assert_int_equal(fresh.cached, 0);
    assert_non_null(find_op(p, SCHED_OP_OPEN));
    sched_done(&s, 0, 0);
    sched_remove(&s, &fresh, 0);
    sched_fini(&s);
}

static void rule_4_long_tail_is_forked(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    struct sched_stream a = stream(count_up(), 60);
    assert_int_equal(sched_add(&s, &a, 0), 0);
    run(&s, &a, 0);
    uint32_t id = a.seq->id;
    sched_remove(&s, &a, 0);
    int32_t other[30];
    memcpy(other, count_up(), sizeof(other));
    other[20] = 99;
    struct sched_stream b = stream(other, 30);
    assert_int_equal(sched_add(&s, &b, 0), 0);
    const struct sched_plan *p = sched_next(&s, 0);
    assert_int_equal(op(p, SCHED_OP_FORK)->from, id);
    assert_int_equal(op(p, SCHED_OP_FORK)->n, 20);
    assert_int_equal(b.cached, 20);
    assert_int_not_equal(b.seq->id, id);
    sched_done(&s, 0, 0);
    sched_remove(&s, &b, 0);
    assert_int_equal(sched_warm(&s), 2);
    sched_fini(&s);
}

static void followers_fork_their_leader(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    struct sched_stream a = stream(count_up(), 30);
    struct sched_stream b = stream(count_up(), 30);
    b.after = &a;
    assert_int_equal(sched_add(&s, &a, 0), 0);
    assert_int_equal(sched_add(&s, &b, 0), 0);
    (void)sched_next(&s, 0);
    assert_int_equal(b.phase, SCHED_WAITING);
    sched_done(&s, 0, 0);
    run(&s, &a, 1);
    assert_int_equal(b.phase, SCHED_RUNNING);
    assert_int_equal(b.cached, 29);
    /* A leader that leaves early sets its followers free. */
    struct sched_stream d = stream(count_up() + 50, 30);
    d.after = &a;
    assert_int_equal(sched_add(&s, &d, 0), 0);
    sched_remove(&s, &a, 0);
    assert_null(d.after);
    if (s.in_flight) {
        sched_done(&s, 0, 0);
    }
    (void)sched_next(&s, 0);
    assert_int_equal(d.phase, SCHED_RUNNING);
    sched_done(&s, 0, 0);
    sched_remove(&s, &b, 0);
    sched_remove(&s, &d, 0);
    sched_fini(&s);
}

static void rule_5_least_recent_goes(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    uint32_t ids[4];
    for (int i = 0; i < 4; i++) {
        struct sched_stream x = stream(count_up() + 20 * i, 5);
        assert_int_equal(sched_add(&s, &x, 0), 0);
        run(&s, &x, 0);
        ids[i] = x.seq->id;
        sched_remove(&s, &x, (uint64_t)(i == 0 ? 100 : i));
    }
    assert_int_equal(sched_warm(&s), 4);
    struct sched_stream x = stream(count_up() + 100, 5);
    assert_int_equal(sched_add(&s, &x, 0), 0);
    const struct sched_plan *p = sched_next(&s, 200);
    assert_int_equal(op(p, SCHED_OP_CLOSE)->seq, ids[1]);
    assert_int_equal(x.seq->id, ids[1]);
    sched_done(&s, 0, 201);
    sched_remove(&s, &x, 202);
    sched_fini(&s);
}

static void rule_6_removed_in_every_phase(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    struct sched_stream x = stream(count_up(), 20);
    sched_remove(&s, &x, 0); /* OUT: nothing */
    assert_int_equal(sched_add(&s, &x, 0), 0);
    sched_remove(&s, &x, 0); /* WAITING */
    assert_null(sched_next(&s, 0));

    x = stream(count_up(), 20);
    assert_int_equal(sched_add(&s, &x, 0), 0);
    const struct sched_plan *p = sched_next(&s, 0);
    assert_int_equal(s.plan.n_rows, 1);
    sched_remove(&s, &x, 0); /* its step is out */
    sched_done(&s, 0, 0);
    assert_null(sched_row_stream(&s, 0));
    assert_int_equal(sched_warm(&s), 1); /* what was computed stays warm */
    assert_null(sched_next(&s, 0));
    struct sched_stream y = stream(count_up(), 20);
    assert_int_equal(sched_add(&s, &y, 0), 0);
    (void)sched_next(&s, 0);
    assert_int_equal(y.cached, 8);

    sched_row_failed(&s, 0);
    sched_done(&s, 0, 0);
    assert_ptr_equal(sched_row_stream(&s, 0), &y);
    sched_remove(&s, &y, 0);
    p = sched_next(&s, 0);
    assert_non_null(find_op(p, SCHED_OP_CLOSE)); /* failed: not warm */
    assert_int_equal(sched_warm(&s), 0);
    sched_fini(&s);
}

static void paused_streams_get_no_rows(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    struct sched_stream x = stream(count_up(), 5);
    assert_int_equal(sched_add(&s, &x, 0), 0);
    run(&s, &x, 0);
    assert_int_equal(sched_push(&s, &x, 5), 0);
    sched_pause(&x, true, 0);
    assert_null(sched_next(&s, 0));
    sched_pause(&x, false, 0);
    assert_non_null(sched_next(&s, 0));
    assert_int_equal(s.plan.n_rows, 1);
    sched_done(&s, 0, 0);
    sched_remove(&s, &x, 0);
    sched_fini(&s);
}

static void lost_engine_replays_timelines(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    sched_init(&s, &c);
    struct sched_stream w = stream(count_up() + 60, 5);
    struct sched_stream x = stream(count_up(), 5);
    assert_int_equal(sched_add(&s, &w, 0), 0);
    run(&s, &w, 0);
    sched_remove(&s, &w, 0);
    assert_int_equal(sched_add(&s, &x, 0), 0);
    run(&s, &x, 2);
    assert_int_equal(sched_push(&s, &x, 77), 0);
    (void)sched_next(&s, 0);
    sched_lost(&s); /* with a step out */
    assert_int_equal(sched_warm(&s), 0);
    const struct sched_plan *p = sched_next(&s, 0);
    assert_int_equal(op(p, SCHED_OP_OPEN)->seq, x.seq->id);
    assert_int_equal(row(p, &x)->position, 0);
    assert_int_equal(row(p, &x)->n, 8);
    assert_true(row(p, &x)->sample); /* 5 + 2 + 1 tokens: all of them */
    assert_int_equal(row(p, &x)->tokens[7], 77);
    sched_done(&s, 0, 0);
    sched_remove(&s, &x, 0);
    sched_fini(&s);
}

/* The timeline of a stream that grows past the border is opened anew, as one of
 * so many tokens, and all of it is computed again. */
static void rule_12_grows_past(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    c.short_max = 20;
    struct sched_stream x = stream(count_up(), 18);
    sched_init(&s, &c);
    assert_int_equal(sched_add(&s, &x, 0), 0);
    run(&s, &x, 2); /* 20 tokens, and the one after them is drawn */
    assert_int_equal(x.seq->computed, 20);
    assert_false(x.seq->long_list);
    assert_int_equal(x.n_again, 0);
    assert_int_equal(sched_push(&s, &x, 7), 0);
    const struct sched_plan *p = sched_next(&s, 0);
    assert_non_null(p);
    assert_int_equal(p->n_ops, 2);
    assert_int_equal(p->ops[0].kind, SCHED_OP_CLOSE);
    assert_int_equal(p->ops[1].kind, SCHED_OP_OPEN);
    assert_int_equal(p->ops[1].n, 21);
    assert_int_equal(row(p, &x)->position, 0);
    assert_int_equal(rows_of(p, &x), 8);
    assert_false(row(p, &x)->sample);
    assert_int_equal(x.n_again, 20);
    sched_done(&s, 0, 0);
    run(&s, &x, 5); /* and it stays with that list */
    assert_true(x.seq->long_list && x.seq->n == 26);
    assert_int_equal(x.n_again, 20);
    sched_lost(&s); /* the engine of its replay is told, too */
    p = sched_next(&s, 0);
    assert_int_equal(op(p, SCHED_OP_OPEN)->n, 26);
    assert_int_equal(x.n_again, 20);
    sched_done(&s, 0, 0);
    sched_remove(&s, &x, 0);
    sched_fini(&s);
}

/* Long and short timelines share no prefix; each kind shares its own. */
static void rule_12_shares_nothing(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, cached;
    } t[] = {
        {30, 0 }, /* long */
        {20, 0 }, /* the longest short one */
        {21, 20}, /* the shortest long one: in place of the first */
        {18, 17}, /* of the second */
        {40, 21},
    };
    struct sched s;
    struct sched_conf c = conf();
    c.short_max = 20;
    sched_init(&s, &c);
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        struct sched_stream x = stream(count_up(), t[i].n);
        assert_int_equal(sched_shared(&s, x.prompt, x.n_prompt), t[i].cached);
        assert_int_equal(sched_add(&s, &x, i), 0);
        run(&s, &x, 0);
        assert_int_equal(x.cached, t[i].cached);
        assert_true(x.seq->long_list == (t[i].n > 20));
        sched_remove(&s, &x, i);
    }
    sched_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_1_order_and_limit),
        cmocka_unit_test(bad_prompts_are_refused),
        cmocka_unit_test(rule_2_decode_before_prompt),
        cmocka_unit_test(rule_3_neither_starves),
        cmocka_unit_test(rule_3_slow_rows_make_small_steps),
        cmocka_unit_test(rule_3_short_prompts_hide_no_cost),
        cmocka_unit_test(rule_4_continuation_is_taken_in_place),
        cmocka_unit_test(rule_4_long_tail_is_forked),
        cmocka_unit_test(followers_fork_their_leader),
        cmocka_unit_test(rule_5_least_recent_goes),
        cmocka_unit_test(rule_6_removed_in_every_phase),
        cmocka_unit_test(paused_streams_get_no_rows),
        cmocka_unit_test(lost_engine_replays_timelines),
        cmocka_unit_test(rule_12_grows_past),
        cmocka_unit_test(rule_12_shares_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
