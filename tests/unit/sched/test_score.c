/* Rule 14 of sched/sched.h: every row of a prompt but the last one is scored
 * once, whatever happens to its sequence. */
#include "../unit.h"
#include "sched/sched.h"

#define PROMPT 40u   /* tokens of most prompts here */
#define LONG   2000u /* of one */

static int32_t prompt[LONG];

/* What the engine was asked for: scored[i] counts row i. */
static uint32_t scored[LONG];

static struct sched_conf conf(void)
{
    return (struct sched_conf){.rows_seq = 8,
                               .rows_step = 16,
                               .seqs = 4,
                               .running = 2,
                               .queue = 4,
                               .context = 128};
}

static struct sched_stream stream(bool score)
{
    for (uint32_t i = 0; i < LONG; i++) {
        prompt[i] = (int32_t)i + 1;
    }
    return (struct sched_stream){
        .prompt = prompt, .n_prompt = PROMPT, .reuse = true, .score = score};
}

/* One step that takes `us`; pushes what is drawn for x. Returns x's rows. */
static uint32_t step(struct sched *s, struct sched_stream *x, uint64_t us)
{
    static uint64_t now;
    const struct sched_plan *p = sched_next(s, ++now);
    uint32_t rows = 0;
    bool drawn = false;
    for (size_t i = 0; p != NULL && i < p->n_rows; i++) {
        const struct sched_row *r = &p->rows[i];
        bool mine = x->seq != NULL && r->seq == x->seq->id;
        rows += mine ? r->n : 0;
        drawn = drawn || (mine && r->sample);
        for (uint32_t k = 0; r->score && k < r->n; k++) {
            uint32_t at = r->position + k;
            int32_t after = k + 1 < r->n ? r->tokens[k + 1] : r->after;
            assert_int_equal(after,
                             r->sample && k + 1 == r->n ? -1 : prompt[at + 1]);
            scored[at]++;
        }
    }
    if (p != NULL && p->n_rows > 0) {
        sched_done(s, us, now);
    }
    if (drawn) {
        assert_int_equal(sched_push(s, x, 500), 0);
    }
    return rows;
}

/* Steps until x has drawn n tokens. */
static void run(struct sched *s, struct sched_stream *x, uint32_t n)
{
    for (int i = 0; i < 200 && x->n_new < n; i++) {
        (void)step(s, x, 0);
    }
    assert_int_equal(x->n_new, n);
}

/* The last row may be scored with the others: nothing comes of it. */
static void check_scored(void)
{
    for (uint32_t i = 0; i + 1 < PROMPT; i++) {
        assert_int_equal(scored[i], 1);
    }
    assert_true(scored[PROMPT - 1] <= 1);
    for (uint32_t i = PROMPT; i < countof(scored); i++) {
        assert_int_equal(scored[i], 0);
    }
}

static void nothing_warm_is_taken(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    struct sched_stream x = stream(false);
    sched_init(&s, &c);
    assert_int_equal(sched_add(&s, &x, 0), 0);
    run(&s, &x, 3);
    sched_remove(&s, &x, 1);
    assert_int_equal(scored[0], 0);
    struct sched_stream y = stream(true);
    assert_int_equal(sched_add(&s, &y, 0), 0);
    run(&s, &y, 3);
    assert_int_equal(y.cached, 0);
    check_scored();
    struct sched_stream z = stream(false); /* others take what it computed */
    assert_int_equal(sched_add(&s, &z, 0), 0);
    run(&s, &z, 1);
    assert_int_equal(z.cached, PROMPT - 1);
    sched_remove(&s, &y, 2);
    sched_remove(&s, &z, 2);
    sched_fini(&s);
}

/* What was scored is computed again without scores. */
static void an_engine_lost_at_any_step(void **state)
{
    (void)state;
    for (int at = 1; at < 12; at++) {
        struct sched s;
        struct sched_conf c = conf();
        struct sched_stream x = stream(true);
        memset(scored, 0, sizeof(scored));
        sched_init(&s, &c);
        assert_int_equal(sched_add(&s, &x, 0), 0);
        for (int i = 0; i < at; i++) {
            (void)step(&s, &x, 0);
        }
        sched_lost(&s);
        run(&s, &x, 8);
        check_scored();
        sched_remove(&s, &x, 1);
        sched_fini(&s);
    }
}

/* It loses its place to streams of a lower class, one of which has its prompt:
 * only what it scored itself is taken. */
static void a_place_lost_at_any_step(void **state)
{
    (void)state;
    for (int at = 1; at < 8; at++) {
        struct sched s;
        struct sched_conf c = conf();
        struct sched_stream x = stream(true);
        struct sched_stream y[2] = {stream(false), stream(false)};
        c.running = 2;
        memset(scored, 0, sizeof(scored));
        sched_init(&s, &c);
        x.cls = SCHED_CLASS_BATCH;
        assert_int_equal(sched_add(&s, &x, 0), 0);
        for (int i = 0; i < at; i++) {
            (void)step(&s, &x, 0);
        }
        for (size_t i = 0; i < countof(y); i++) {
            assert_int_equal(sched_add(&s, &y[i], 0), 0);
            run(&s, &y[i], i == 0 ? 1 : 2);
        }
        assert_int_equal(x.phase, SCHED_WAITING);
        sched_remove(&s, &y[0], 1);
        sched_remove(&s, &y[1], 1);
        run(&s, &x, 8);
        check_scored();
        sched_remove(&s, &x, 2);
        sched_fini(&s);
    }
}

/* Scored rows are taken at the price of decoding ones. */
static void dear_rows_make_small_steps(void **state)
{
    (void)state;
    struct sched s;
    struct sched_conf c = conf();
    c.rows_seq = 512;
    c.rows_step = 512;
    c.context = 4096;
    sched_init(&s, &c);
    struct sched_stream x = stream(true);
    x.n_prompt = LONG;
    assert_int_equal(sched_add(&s, &x, 0), 0);
    uint32_t n = step(&s, &x, 32 * 5000); /* 5 ms a row */
    assert_int_equal(n, SCHED_ROWS_FIRST);
    for (int i = 0; i < 8; i++) {
        const uint64_t was = n;
        n = step(&s, &x, n * 5000);
        assert_true(n > 0 && was > 0);
        assert_true(i < 4 || (n >= 30 && n <= 60)); /* 250 ms */
    }
    sched_remove(&s, &x, 1);
    sched_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_warm_is_taken),
        cmocka_unit_test(an_engine_lost_at_any_step),
        cmocka_unit_test(a_place_lost_at_any_step),
        cmocka_unit_test(dear_rows_make_small_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
