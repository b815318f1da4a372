/* test_grammars.c - which grammars an engine is told, and which are kept. */
#include "../unit.h"
#include "serve/engines/grammars.h"

/* What was sent of grammars. */
static struct {
    uint32_t told, dropped;
    uint32_t last; /* id */
} sent;

static void on_grammar_frame(void *ctx, enum frame_type type,
                             const struct buf *b)
{
    struct msg_grammar m;
    struct err e = {0};
    (void)ctx;
    unit_ok(msg_grammar_get(b->p, b->n, &m, &e), &e);
    sent.told += type == FRAME_GRAMMAR;
    sent.dropped += type == FRAME_GRAMMAR_DROP;
    sent.last = m.id;
}

static void some_grammars_are_kept_without_streams(void **state)
{
    (void)state;
    enum { N = CONSTRAINTS_IDLE + 5 };
    struct grammars g;
    uint32_t id[N];
    uint32_t again = 0;
    struct err e = {0};
    grammars_init(&g);
    g.send = on_grammar_frame;
    memset(&sent, 0, sizeof(sent));
    for (uint32_t i = 0; i < N; i++) {
        char text = (char)('a' + (int)i);
        unit_ok(grammars_take(&g, &text, 1, &id[i], &e), &e);
        unit_ok(grammars_take(&g, &text, 1, &again, &e), &e);
        assert_int_equal(again, id[i]);
        if (i != 3) { /* no step came to it */
            grammars_tell(&g, id[i]);
            grammars_tell(&g, id[i]);
        }
    }
    assert_int_equal(sent.told, N - 1);
    for (uint32_t i = 0; i < N; i++) {
        grammars_release(&g, id[i]);
    }
    assert_int_equal(g.n_idle, 0);
    for (uint32_t i = 0; i < N; i++) {
        grammars_release(&g, id[i]);
    }
    assert_int_equal(g.n_idle, CONSTRAINTS_IDLE);
    assert_int_equal(sent.dropped, 4); /* the fifth was never told */
    assert_int_equal(sent.last, id[4]);
    /* One that is kept is known still; one that is gone is another. */
    unit_ok(grammars_take(&g, "f", 1, &again, &e), &e);
    assert_int_equal(again, id[5]);
    grammars_tell(&g, again);
    assert_int_equal(sent.told, N - 1);
    grammars_lost(&g);
    grammars_tell(&g, again);
    assert_int_equal(sent.told, N);
    grammars_release(&g, again);
    unit_ok(grammars_take(&g, "a", 1, &again, &e), &e);
    assert_true(again > id[N - 1]);
    grammars_release(&g, again);
    struct buf big;
    buf_init(&big, CONSTRAINT_BYTES_MAX + 1);
    while (big.n <= CONSTRAINT_BYTES_MAX) {
        buf_put(&big, "x", 1);
    }
    assert_int_equal(grammars_take(&g, big.p, big.n, &again, &e), ERR_TOO_BIG);
    buf_fini(&big);
    grammars_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_grammars_are_kept_without_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
