/* test_restore.c - sequences from files: no stream takes the place during the
 * load, later prompts find them warm; on_loss is called before a sequence loses
 * much. */
#include "../unit.h"
#include "sched/restore.h"

static int32_t tokens[64];
static uint32_t lost_id, lost_n, n_lost;

static void on_loss(void *ctx, const struct sched_seq *q)
{
    assert_ptr_equal(ctx, tokens);
    assert_memory_equal(q->tokens, tokens, q->computed * sizeof(*tokens));
    lost_id = q->id;
    lost_n = q->computed;
    n_lost++;
}

static void open_sched(struct sched *s, uint32_t seqs)
{
    const struct sched_conf c = {.rows_seq = 64,
                                 .rows_step = 64,
                                 .seqs = seqs,
                                 .running = seqs,
                                 .queue = 4,
                                 .context = 64};
    for (int i = 0; i < 64; i++) {
        tokens[i] = i + 1;
    }
    n_lost = 0;
    sched_init(s, &c);
}

/* Steps until there is nothing to do; no token is drawn. */
static void settle(struct sched *s)
{
    const struct sched_plan *p = NULL;
    while ((p = sched_next(s, 1)) != NULL) {
        if (p->n_rows > 0) {
            sched_done(s, 1000, 2);
        }
    }
}

static void test_found(void **state)
{
    (void)state;
    struct sched s;
    open_sched(&s, 2);
    assert_int_equal(sched_shared(&s, tokens, 50), 0);
    int a = sched_restore_begin(&s, 20);
    assert_true(a >= 0);
    assert_int_equal(s.plan.n_ops, 0);
    assert_int_equal(sched_shared(&s, tokens, 50), 0);
    assert_int_equal(sched_warm(&s), 0);
    int b = sched_restore_begin(&s, 20);
    assert_true(b >= 0 && b != a);
    assert_int_equal(sched_restore_begin(&s, 20), -1); /* no place is left */
    struct sched_stream x = {
        .prompt = tokens, .n_prompt = 50, .reuse = true, .compute_only = true};
    assert_int_equal(sched_add(&s, &x, 1), 0);
    assert_null(sched_next(&s, 1)); /* nor for a stream */
    sched_restore_end(&s, (uint32_t)a, tokens, 40, true, 5);
    sched_restore_end(&s, (uint32_t)b, NULL, 0, true, 5);
    assert_int_equal(sched_shared(&s, tokens, 50), 40);
    assert_int_equal(sched_shared(&s, tokens, 40), 39); /* not the last */
    const struct sched_plan *p = sched_next(&s, 6);
    assert_non_null(p);
    assert_int_equal(p->n_ops, 1); /* the empty one is closed */
    assert_int_equal(p->ops[0].kind, SCHED_OP_CLOSE);
    assert_int_equal(p->ops[0].seq, b);
    assert_int_equal(p->n_rows, 1);
    assert_int_equal(p->rows[0].position, 40);
    assert_int_equal(p->rows[0].n, 10);
    assert_int_equal(x.cached, 40);
    assert_int_equal(sched_restore_begin(&s, 20), -1); /* a step is out */
    sched_done(&s, 1000, 7);
    sched_remove(&s, &x, 8);
    sched_fini(&s);
}

/* What is loaded was computed by the list that the whole prompt is for: rule
 * 12. */
static void test_lists(void **state)
{
    (void)state;
    struct sched s;
    open_sched(&s, 2);
    s.conf.short_max = 45;
    int a = sched_restore_begin(&s, 50);
    sched_restore_end(&s, (uint32_t)a, tokens, 40, true, 5);
    assert_int_equal(sched_shared(&s, tokens, 50), 40);
    assert_int_equal(sched_shared(&s, tokens, 45), 0);
    int b = sched_restore_begin(&s, 45);
    assert_true(b != a);
    sched_restore_end(&s, (uint32_t)b, tokens, 30, true, 6);
    assert_int_equal(sched_shared(&s, tokens, 45), 30);
    assert_int_equal(sched_shared(&s, tokens, 50), 40);
    sched_lost(&s);
    sched_fini(&s);
}

/* One that the engine does not have gets no CLOSE. */
static void test_failed(void **state)
{
    (void)state;
    struct sched s;
    open_sched(&s, 1);
    int a = sched_restore_begin(&s, 20);
    assert_int_equal(a, 0);
    sched_restore_end(&s, 0, tokens, 40, false, 5);
    assert_null(sched_next(&s, 6));
    assert_int_equal(sched_restore_begin(&s, 20), 0); /* the place is free */
    sched_restore_end(&s, 0, NULL, 0, false, 5);
    sched_lost(&s);
    sched_fini(&s);
}

static void test_loss(void **state)
{
    (void)state;
    struct sched s;
    open_sched(&s, 1);
    s.on_loss = on_loss;
    s.on_loss_ctx = tokens;
    struct sched_stream x = {
        .prompt = tokens, .n_prompt = 50, .reuse = true, .compute_only = true};
    assert_int_equal(sched_add(&s, &x, 1), 0);
    settle(&s);
    sched_remove(&s, &x, 3);
    /* a few tokens less: nobody minds */
    struct sched_stream y = {
        .prompt = tokens, .n_prompt = 48, .reuse = true, .compute_only = true};
    assert_int_equal(sched_add(&s, &y, 4), 0);
    settle(&s);
    sched_remove(&s, &y, 5);
    assert_int_equal(n_lost, 0);
    /* the place is taken: 48 tokens go */
    assert_int_equal(sched_restore_begin(&s, 20), 0);
    assert_int_equal(s.plan.n_ops, 1);
    assert_int_equal(s.plan.ops[0].kind, SCHED_OP_CLOSE);
    assert_int_equal(n_lost, 1);
    assert_int_equal(lost_n, 48);
    assert_int_equal(lost_id, 0);
    sched_restore_end(&s, 0, tokens, 60, true, 6);
    /* cut to 20 in place, as there is no other: 40 go */
    struct sched_stream z = {
        .prompt = tokens, .n_prompt = 21, .reuse = true, .compute_only = true};
    assert_int_equal(sched_add(&s, &z, 7), 0);
    settle(&s);
    assert_int_equal(n_lost, 2);
    assert_int_equal(lost_n, 60);
    assert_int_equal(z.cached, 20);
    sched_remove(&s, &z, 8);
    sched_lost(&s); /* they are lost already */
    assert_int_equal(n_lost, 2);
    sched_fini(&s);
}

/* After an engine died, a stream's sequence is loaded and the rest computed;
 * when the stream leaves during the load, the sequence is warm. */
static void test_held(void **state)
{
    (void)state;
    struct sched s;
    open_sched(&s, 2);
    struct sched_stream x = {.prompt = tokens, .n_prompt = 50, .reuse = true};
    struct sched_stream y = {.prompt = tokens + 1, .n_prompt = 30};
    assert_int_equal(sched_add(&s, &x, 1), 0);
    assert_int_equal(sched_add(&s, &y, 1), 0);
    assert_non_null(sched_next(&s, 1));
    for (int leaves = 0; leaves < 2; leaves++) {
        sched_lost(&s);
        uint32_t seq = x.seq->id;
        sched_restore_hold(&s, seq);
        sched_restore_held(&s, seq);
        const struct sched_plan *p = sched_next(&s, 2); /* y goes on at once */
        assert_int_equal(p->n_ops, 1);
        assert_int_equal(p->ops[0].seq, y.seq->id);
        assert_int_equal(p->n_rows, 1);
        assert_int_equal(p->rows[0].seq, y.seq->id);
        sched_done(&s, 1000, 3);
        assert_int_equal(sched_push(&s, &y, 7), 0);
        if (leaves) {
            sched_remove(&s, &x, 4);
            assert_int_equal(sched_warm(&s), 0); /* nobody's yet */
        }
        sched_restore_end(&s, seq, tokens, 40, true, 5);
        const struct sched_row *r = NULL;
        for (int i = 0; !leaves && r == NULL && i < 3; i++) {
            p = sched_next(&s, 6); /* the first may be y's, to be measured */
            assert_int_equal(p->n_ops, 0);
            for (size_t k = 0; k < p->n_rows; k++) {
                r = p->rows[k].seq == seq ? &p->rows[k] : r;
            }
            if (r == NULL) {
                sched_done(&s, 1000, 7);
                assert_int_equal(sched_push(&s, &y, 7), 0);
            }
        }
        if (!leaves) {
            assert_non_null(r);
            assert_int_equal(r->position, 40);
            assert_int_equal(r->n, 10);
        }
    }
    assert_int_equal(sched_warm(&s), 1);
    assert_int_equal(sched_shared(&s, tokens, 50), 40);
    /* the engine refused it: computed from nothing */
    sched_lost(&s);
    sched_restore_hold(&s, y.seq->id);
    sched_restore_held(&s, y.seq->id);
    sched_restore_end(&s, y.seq->id, NULL, 0, false, 8);
    const struct sched_plan *p = sched_next(&s, 9);
    assert_int_equal(p->ops[0].kind, SCHED_OP_OPEN);
    assert_int_equal(p->rows[0].position, 0);
    sched_remove(&s, &y, 10);
    sched_lost(&s);
    sched_fini(&s);
}

/* Which are worth a save next: warm, in the engine, the one used last first. */
static void test_warmest(void **state)
{
    (void)state;
    struct sched s;
    bool tried[3] = {false};
    open_sched(&s, 3);
    assert_null(sched_warmest(&s, tried));
    int id[3];
    for (int i = 0; i < 3; i++) {
        id[i] = sched_restore_begin(&s, 20);
    }
    assert_null(sched_warmest(&s, tried)); /* loading is not warm */
    sched_restore_end(&s, (uint32_t)id[0], tokens, 40, true, 5);
    sched_restore_end(&s, (uint32_t)id[1], tokens, 50, true, 9);
    sched_restore_end(&s, (uint32_t)id[2], tokens, 60, false, 20); /* failed */
    assert_int_equal(sched_warmest(&s, tried)->id, id[1]);
    tried[id[1]] = true;
    assert_int_equal(sched_warmest(&s, tried)->id, id[0]);
    tried[id[0]] = true;
    assert_null(sched_warmest(&s, tried));
    /* one that a stream owns is not warm either */
    struct sched_stream x = {
        .prompt = tokens, .n_prompt = 55, .reuse = true, .compute_only = true};
    tried[id[0]] = tried[id[1]] = false;
    assert_int_equal(sched_add(&s, &x, 10), 0);
    const struct sched_plan *p = sched_next(&s, 10);
    assert_non_null(p);
    assert_int_equal(x.seq->id, id[1]);
    assert_int_equal(sched_warmest(&s, tried)->id, id[0]);
    sched_done(&s, 1000, 11);
    sched_remove(&s, &x, 12);
    sched_fini(&s);
}

/* Those of a dead engine that streams still own, one after the other. */
static void test_lost_ones(void **state)
{
    (void)state;
    struct sched s;
    open_sched(&s, 3);
    struct sched_stream x = {.prompt = tokens, .n_prompt = 50};
    struct sched_stream y = {.prompt = tokens + 9, .n_prompt = 30};
    assert_int_equal(sched_add(&s, &x, 1), 0);
    assert_int_equal(sched_add(&s, &y, 1), 0);
    assert_non_null(sched_next(&s, 1));
    assert_null(sched_restore_lost(&s, 0)); /* the engine has them */
    sched_lost(&s);
    const struct sched_seq *a = sched_restore_lost(&s, 0);
    assert_non_null(a);
    const struct sched_seq *b = sched_restore_lost(&s, a->id + 1);
    assert_non_null(b);
    assert_true(a->owner != b->owner);
    assert_null(sched_restore_lost(&s, b->id + 1));
    assert_null(sched_restore_waiting(&s));
    sched_restore_hold(&s, b->id);
    assert_ptr_equal(sched_restore_waiting(&s), b);
    sched_restore_let_go(&s, b->id);
    assert_null(sched_restore_waiting(&s));
    for (int i = 0; i < 8 && (a->computed == 0 || b->computed == 0); i++) {
        assert_non_null(sched_next(&s, 2)); /* both are computed */
        sched_done(&s, 1000, 3);
    }
    assert_true(a->opened && a->computed > 0);
    assert_true(b->opened && b->computed > 0);
    sched_remove(&s, &x, 4);
    sched_remove(&s, &y, 4);
    sched_lost(&s);
    sched_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),     cmocka_unit_test(test_lists),
        cmocka_unit_test(test_failed),    cmocka_unit_test(test_loss),
        cmocka_unit_test(test_held),      cmocka_unit_test(test_warmest),
        cmocka_unit_test(test_lost_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
