/* Rule 15 of sched/sched.h: sequences that cannot be cut anywhere. */
#include "../unit.h"
#include "sched/sched_impl.h"

#define CUT 64u

static struct sched s;
static struct sched_stream x[3];
static int32_t prompt[400];

static void begin(uint32_t cut_at)
{
    struct sched_conf c = {.rows_seq = 64,
                           .rows_step = 64,
                           .seqs = 4,
                           .running = 3,
                           .queue = 3,
                           .context = 512,
                           .cut_at = cut_at};
    for (size_t i = 0; i < countof(prompt); i++) {
        prompt[i] = (int32_t)(i * 7 % 50);
    }
    memset(x, 0, sizeof(x));
    sched_init(&s, &c);
}

static void end(void)
{
    for (size_t i = 0; i < countof(x); i++) {
        sched_remove(&s, &x[i], 0);
    }
    sched_fini(&s);
}

static void add(size_t i, const int32_t *line, uint32_t n)
{
    x[i] = (struct sched_stream){.prompt = line, .n_prompt = n, .reuse = true};
    assert_int_equal(sched_add(&s, &x[i], 0), 0);
}

/* Steps until `tokens` are drawn for x[i]; what `ops` of the first one were. */
static struct sched_op run(size_t i, uint32_t tokens)
{
    struct sched_op first = {.n = UINT32_MAX};
    while (x[i].n_new < tokens) {
        const struct sched_plan *p = sched_next(&s, 1);
        assert_non_null(p);
        if (first.n == UINT32_MAX && p->n_ops > 0) {
            first = p->ops[p->n_ops - 1];
        }
        sched_done(&s, 100, 1);
        for (size_t k = 0; k < p->n_rows; k++) {
            struct sched_stream *y = sched_row_stream(&s, k);
            if (y != NULL && p->rows[k].sample) {
                assert_int_equal(sched_push(&s, y, 7), 0);
            }
        }
    }
    return first;
}

/* How much of another prompt, equal up to `same`, is taken from a sequence that
 * has computed 200 and drawn some. */
static uint32_t taken(uint32_t cut_at, uint32_t same)
{
    int32_t other[400];
    begin(cut_at);
    add(0, prompt, 200);
    run(0, 20);
    sched_remove(&s, &x[0], 1);
    memcpy(other, prompt, sizeof(other));
    other[same] = 51;
    add(1, other, same + 30);
    struct sched_op op = run(1, 1);
    uint32_t n = x[1].cached;
    assert_true(op.kind == SCHED_OP_OPEN ? n == 0 : op.n == n);
    end();
    return n;
}

static void test_places(void **state)
{
    (void)state;
    assert_int_equal(taken(0, 150), 150);
    assert_int_equal(taken(CUT, 150), 128);
    assert_int_equal(taken(CUT, 128), 128);
    assert_int_equal(taken(CUT, 127), 64);
    assert_int_equal(taken(CUT, 63), 0);
    /* in front of the prompt's last token */
    assert_int_equal(taken(CUT, 199), 199);
    assert_int_equal(taken(CUT, 198), 192);
}

/* All of a sequence can be taken, wherever it ends. */
static void test_end(void **state)
{
    (void)state;
    int32_t line[400];
    begin(CUT);
    add(0, prompt, 200);
    run(0, 20);
    uint32_t n = x[0].seq->computed;
    memcpy(line, x[0].seq->tokens, x[0].seq->n * sizeof(*line));
    sched_remove(&s, &x[0], 1);
    line[n] = 49;
    add(1, line, n + 2);
    run(1, 1);
    assert_int_equal(x[1].cached, n);
    end();
}

/* The row that completes a prompt keeps the place, no other does. */
static void test_keep(void **state)
{
    (void)state;
    begin(CUT);
    add(0, prompt, 100);
    uint32_t kept = 0;
    for (int i = 0; i < 10; i++) {
        const struct sched_plan *p = sched_next(&s, 1);
        assert_int_equal(p->n_rows, 1);
        bool completes = p->rows[0].position + p->rows[0].n == 100;
        assert_int_equal(p->rows[0].keep, completes);
        kept += p->rows[0].keep;
        bool drawn = p->rows[0].sample;
        sched_done(&s, 100, 1);
        assert_int_equal(drawn ? sched_push(&s, &x[0], 7) : 0, 0);
    }
    assert_int_equal(kept, 1);
    assert_int_equal(x[0].seq->n_marks, 1);
    assert_int_equal(x[0].seq->marks[0], 99);
    sched_lost(&s); /* the engine is gone, and its marks */
    assert_int_equal(x[0].seq->n_marks, 0);
    end();
    begin(0);
    add(0, prompt, 50);
    assert_false(sched_next(&s, 1)->rows[0].keep);
    sched_done(&s, 100, 1);
    end();
}

/* The oldest of many marks goes, and those after a cut. */
static void test_marks(void **state)
{
    (void)state;
    int32_t line[400];
    uint32_t n = 70;
    begin(CUT);
    memcpy(line, prompt, sizeof(line));
    for (uint32_t turn = 0; turn < ENGINE_MARKS_MAX + 2; turn++) {
        add(0, line, n);
        run(0, 1);
        struct sched_seq *q = x[0].seq;
        assert_int_equal(q->marks[0], n - 1);
        assert_int_equal(q->n_marks, turn < ENGINE_MARKS_MAX ? turn + 1
                                                              : ENGINE_MARKS_MAX);
        memcpy(line, q->tokens, q->n * sizeof(*line));
        n = q->n + 20;
        sched_remove(&s, &x[0], 1);
    }
    struct sched_seq *q = &s.seqs[0];
    uint32_t second = q->marks[1];
    seq_cut(q, second);
    assert_int_equal(q->n_marks, ENGINE_MARKS_MAX - 1);
    assert_int_equal(q->marks[0], second);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
