/* Rule 16 of sched/sched.h: texts that are pooled leave nothing, take nothing and
 * begin anew when they were interrupted. */
#include "../unit.h"
#include "sched/sched_impl.h"

enum { TEXT = 40, STREAMS = 6 };

static struct sched s;
static struct sched_stream x[STREAMS];
static int32_t prompt[TEXT];
static unsigned losses;

static void on_loss(void *ctx, const struct sched_seq *q)
{
    (void)ctx;
    (void)q;
    losses++;
}

static void begin(uint32_t running)
{
    const struct sched_conf c = {.rows_seq = 16,
                                 .rows_step = 16,
                                 .seqs = 2,
                                 .running = running,
                                 .queue = 8,
                                 .context = 128};
    for (int i = 0; i < TEXT; i++) {
        prompt[i] = i + 1;
    }
    memset(x, 0, sizeof(x));
    losses = 0;
    sched_init(&s, &c);
    s.on_loss = on_loss;
}

static void end(void)
{
    for (size_t i = 0; i < countof(x); i++) {
        sched_remove(&s, &x[i], 0);
    }
    sched_fini(&s);
}

static void add(size_t i, bool pool, enum sched_class cls)
{
    x[i] = (struct sched_stream){.prompt = prompt,
                                 .n_prompt = TEXT,
                                 .reuse = true,
                                 .compute_only = pool,
                                 .pool = pool,
                                 .cls = cls};
    assert_int_equal(sched_add(&s, &x[i], 0), 0);
}

/* One step. Of x[i]: the position of its row, or -1; whether it is the last. */
static int step(size_t i, bool *ret_give)
{
    static uint64_t now;
    int at = -1;
    const struct sched_plan *p = sched_next(&s, ++now);
    *ret_give = false;
    for (size_t k = 0; p != NULL && k < p->n_rows; k++) {
        const struct sched_row *r = &p->rows[k];
        const struct sched_stream *y = s.seqs[r->seq].owner;
        assert_true(y->pool ? !r->sample && !r->score && !r->keep : !r->give);
        if (y->pool) {
            assert_int_equal(r->give, r->position + r->n == TEXT);
        }
        if (y == &x[i]) {
            at = (int)r->position;
            *ret_give = r->give;
        }
    }
    bool rows = p != NULL && p->n_rows > 0;
    if (rows) {
        sched_done(&s, 100, now);
    }
    for (size_t k = 0; rows && k < p->n_rows; k++) {
        struct sched_stream *y = sched_row_stream(&s, k);
        if (p->rows[k].sample) {
            assert_int_equal(sched_push(&s, y, 500), 0);
        }
    }
    return at;
}

static unsigned count(enum sched_op_kind kind)
{
    unsigned n = 0;
    for (size_t i = 0; i < s.plan.n_ops; i++) {
        n += s.plan.ops[i].kind == kind;
    }
    return n;
}

/* A text of x[i] from its first row to its last. */
static void whole(size_t i)
{
    bool give = false;
    int at = step(i, &give);
    assert_int_equal(at, 0);
    assert_int_equal(count(SCHED_OP_OPEN), 1);
    assert_int_equal(count(SCHED_OP_FORK), 0);
    while (!give) {
        int next = step(i, &give);
        assert_true(next > at);
        at = next;
    }
    assert_true(sched_settled(&x[i]));
    sched_remove(&s, &x[i], 0);
}

/* A conversation is warm, and stays so while many texts are pooled, which begin
 * as it does. */
static void test_nothing_is_taken_or_left(void **state)
{
    (void)state;
    bool give = false;
    begin(2);
    add(0, false, SCHED_CLASS_CHAT);
    while (x[0].n_new < 3) {
        (void)step(0, &give);
    }
    sched_remove(&s, &x[0], 0);
    for (int k = 0; k < 5; k++) {
        add(1, true, SCHED_CLASS_CHAT);
        whole(1);
        assert_int_equal(sched_warm(&s), 2); /* its own is closed next */
    }
    assert_int_equal(losses, 0);
    add(2, false, SCHED_CLASS_CHAT);
    while (x[2].n_new < 1) {
        (void)step(2, &give);
    }
    assert_int_equal(x[2].cached, TEXT - 1);
    end();
}

/* Its place goes to another, and its engine dies: all rows are computed again. */
static void test_begins_anew(void **state)
{
    (void)state;
    bool give = false;
    begin(1);
    add(1, true, SCHED_CLASS_BATCH);
    assert_int_equal(step(1, &give), 0);
    assert_true(step(1, &give) > 0);
    add(0, false, SCHED_CLASS_CHAT);
    assert_int_equal(step(1, &give), -1);
    assert_int_equal(x[1].phase, SCHED_WAITING);
    while (x[0].n_new < 2) {
        (void)step(0, &give);
    }
    sched_remove(&s, &x[0], 0);
    assert_int_equal(step(1, &give), 0);
    assert_true(step(1, &give) > 0);
    sched_lost(&s);
    whole(1);
    assert_int_equal(losses, 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_taken_or_left),
        cmocka_unit_test(test_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
