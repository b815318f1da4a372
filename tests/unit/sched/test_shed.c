/* What is given back before anybody needs the room (sched/shed.h). */
#include "../unit.h"
#include "sched/sched.h"
#include "sched/shed.h"

#define SEQS 8

static struct sched s;
static unsigned losses;

static void on_loss(void *ctx, const struct sched_seq *q)
{
    (void)ctx;
    (void)q;
    losses++;
}

static void begin(void)
{
    struct sched_conf c = {.rows_seq = 512,
                           .rows_step = 512,
                           .seqs = SEQS,
                           .running = 1,
                           .queue = 1,
                           .context = 512};
    sched_init(&s, &c);
    s.on_loss = on_loss;
    losses = 0;
}

/* n tokens from `first` on, another text from `turn` on. */
static struct sched_line line(int32_t *t, uint32_t n, uint32_t turn,
                              int32_t first)
{
    for (uint32_t i = 0; i < n; i++) {
        t[i] = (int32_t)(i < turn ? 1000 + i : (uint32_t)first + i);
    }
    return (struct sched_line){t, n};
}

/* A stream of it came and went: a warm sequence. */
static void warm(struct sched_line l)
{
    struct sched_stream x = {.prompt = l.tokens, .n_prompt = l.n};
    assert_int_equal(sched_add(&s, &x, 0), 0);
    for (int i = 0; i < 100 && x.n_new == 0; i++) {
        const struct sched_plan *p = sched_next(&s, 0);
        assert_non_null(p);
        sched_done(&s, 100, 0);
        if (p->n_rows > 0 && p->rows[0].sample) {
            assert_int_equal(sched_push(&s, &x, 7), 0);
            break;
        }
    }
    sched_remove(&s, &x, 0);
}

static unsigned closes(void)
{
    unsigned n = 0;
    const struct sched_plan *p = sched_next(&s, 0);
    for (size_t i = 0; p != NULL && i < p->n_ops; i++) {
        n += p->ops[i].kind == SCHED_OP_CLOSE;
    }
    return n;
}

static void all_warm_sequences_go(void **state)
{
    (void)state;
    int32_t t[3][200];
    begin();
    for (int32_t i = 0; i < 3; i++) {
        warm(line(t[i], 200, 0, 2000 * i));
    }
    assert_int_equal(sched_warm(&s), 3);
    assert_int_equal(sched_shed(&s), 3);
    assert_int_equal(closes(), 3);
    assert_int_equal(losses, 3); /* they are worth a file */
    assert_int_equal(sched_warm(&s), 0);
    assert_int_equal(sched_shed(&s), 0);
    sched_fini(&s);
}

/* Of what begins alike only the text that is gone. */
static void a_text_goes_with_its_sequence(void **state)
{
    (void)state;
    int32_t t[3][200];
    begin();
    struct sched_line a = line(t[0], 200, 40, 2000);
    struct sched_line b = line(t[1], 200, 40, 4000);
    struct sched_line start = line(t[2], 40, 40, 0);
    warm(a);
    warm(b);
    assert_int_equal(sched_warm(&s), 2);
    /* not by a short beginning of it */
    assert_int_equal(sched_forget(&s, start, NULL, 0), 0);
    /* nor by one that is long, and another then */
    int32_t u[200];
    assert_int_equal(sched_forget(&s, line(u, 200, 40, 6000), NULL, 0), 0);
    struct sched_line most = {a.tokens, 150}; /* it was cut */
    assert_int_equal(sched_forget(&s, most, &b, 1), 1);
    assert_int_equal(closes(), 1);
    assert_int_equal(losses, 0); /* nobody wants it back */
    assert_int_equal(sched_warm(&s), 1);
    assert_int_equal(sched_forget(&s, a, NULL, 0), 0);
    assert_int_equal(sched_forget(&s, b, NULL, 0), 1);
    assert_int_equal(closes(), 1);
    sched_fini(&s);
}

static void who_would_go_on_from_it_keeps_it(void **state)
{
    (void)state;
    int32_t t[200];
    int32_t u[250];
    begin();
    struct sched_line a = line(t, 200, 0, 2000);
    warm(a);
    struct sched_line fork = {t, 60};
    struct sched_line longer = line(u, 250, 0, 2000);
    assert_int_equal(sched_forget(&s, a, &fork, 1), 0);
    assert_int_equal(sched_forget(&s, a, &longer, 1), 0);
    struct sched_line few = {t, 3}; /* soon computed again */
    assert_int_equal(sched_forget(&s, a, &few, 1), 1);
    sched_fini(&s);
}

/* A running stream keeps its sequence. */
static void what_runs_stays(void **state)
{
    (void)state;
    int32_t t[200];
    begin();
    struct sched_line a = line(t, 200, 0, 2000);
    struct sched_stream x = {.prompt = a.tokens, .n_prompt = a.n};
    assert_int_equal(sched_add(&s, &x, 0), 0);
    assert_non_null(sched_next(&s, 0));
    assert_int_equal(sched_forget(&s, a, NULL, 0), 0);
    assert_int_equal(sched_shed(&s), 0);
    sched_done(&s, 100, 0);
    sched_remove(&s, &x, 0);
    assert_int_equal(sched_shed(&s), 1);
    sched_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_warm_sequences_go),
        cmocka_unit_test(a_text_goes_with_its_sequence),
        cmocka_unit_test(who_would_go_on_from_it_keeps_it),
        cmocka_unit_test(what_runs_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
