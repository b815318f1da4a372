/* Which request gets into a full queue, and which makes way: sched/admit.h. */
#include "../unit.h"
#include "sched/admit.h"

enum { MANY = 16 };

static struct admit a;
static struct admit_req r[MANY];
static int gone[MANY]; /* in their order */
static int n_gone;

static void make_way(struct admit_req *x)
{
    gone[n_gone++] = (int)(x - r);
    admit_leave(&a, x);
}

static void begin(uint32_t limit)
{
    admit_init(&a, limit);
    n_gone = 0;
}

static int add(int i, enum sched_class cls, uint32_t n)
{
    r[i] = (struct admit_req){.cls = cls, .n = n, .make_way = make_way};
    int rc = admit_add(&a, &r[i]);
    if (rc == 0) {
        admit_settle(&a);
        assert_true(a.n <= a.limit);
    }
    return rc;
}

static const enum sched_class NOW = SCHED_CLASS_INTERACTIVE;
static const enum sched_class CHAT = SCHED_CLASS_CHAT;
static const enum sched_class BATCH = SCHED_CLASS_BATCH;

static void the_youngest_of_the_last_class_goes(void **state)
{
    (void)state;
    begin(4);
    assert_int_equal(add(0, BATCH, 1), 0);
    assert_int_equal(add(1, CHAT, 1), 0);
    assert_int_equal(add(2, BATCH, 1), 0);
    assert_int_equal(add(3, CHAT, 1), 0);
    assert_int_equal(n_gone, 0);
    assert_int_equal(add(4, BATCH, 1), ERR_BUSY); /* among equals: refused */
    assert_int_equal(add(4, NOW, 1), 0);
    assert_int_equal(add(5, CHAT, 1), 0);
    assert_int_equal(add(6, CHAT, 1), ERR_BUSY);
    assert_int_equal(add(6, NOW, 1), 0);
    const int want[] = {2, 0, 5};
    assert_int_equal(n_gone, 3);
    assert_memory_equal(gone, want, sizeof(want));
    assert_int_equal(a.n, 4);
}

static void who_has_begun_stays(void **state)
{
    (void)state;
    begin(2);
    assert_int_equal(add(0, BATCH, 1), 0);
    assert_int_equal(add(1, BATCH, 1), 0);
    r[1].stays = true;
    assert_int_equal(add(2, NOW, 1), 0);
    assert_int_equal(gone[0], 0);
    assert_int_equal(add(3, NOW, 1), ERR_BUSY);
    assert_int_equal(n_gone, 1);
    admit_leave(&a, &r[1]);
    assert_int_equal(add(3, NOW, 1), 0);
    assert_int_equal(n_gone, 1);
}

/* Choices count; no request is refused when that would not make enough room. */
static void only_as_many_as_are_needed(void **state)
{
    (void)state;
    begin(8);
    assert_int_equal(add(0, BATCH, 2), 0);
    assert_int_equal(add(1, NOW, 3), 0);
    assert_int_equal(add(2, BATCH, 2), 0);
    assert_int_equal(add(3, CHAT, 1), 0);
    assert_int_equal(add(4, NOW, 6), ERR_BUSY);
    assert_int_equal(n_gone, 0);
    assert_int_equal(add(4, NOW, 9), ERR_BUSY);
    assert_int_equal(add(4, NOW, UINT32_MAX), ERR_BUSY);
    assert_int_equal(add(4, NOW, 3), 0); /* takes both, and not the chat's */
    const int want[] = {2, 0};
    assert_int_equal(n_gone, 2);
    assert_memory_equal(gone, want, sizeof(want));
    assert_int_equal(a.n, 7);
    assert_int_equal(add(5, NOW, 1), 0);
    assert_int_equal(n_gone, 2);
}

static void a_smaller_limit_is_kept(void **state)
{
    (void)state;
    begin(6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(add(i, i == 1 ? BATCH : NOW, 1), 0);
    }
    r[5].stays = true;
    a.limit = 3;
    admit_settle(&a);
    const int want[] = {1, 4, 3};
    assert_int_equal(n_gone, 3);
    assert_memory_equal(gone, want, sizeof(want));
    a.limit = 0; /* who stays, stays */
    admit_settle(&a);
    assert_int_equal(a.n, 1);
    assert_int_equal(add(7, NOW, 1), ERR_BUSY);
}

static void a_place_is_a_beginning(void **state)
{
    (void)state;
    static const int32_t prompt[] = {1, 2, 3};
    struct sched_conf c = {.rows_seq = 8,
                           .rows_step = 8,
                           .seqs = 1,
                           .running = 1,
                           .queue = 2,
                           .context = 64};
    struct sched s;
    struct sched_stream x[2];
    sched_init(&s, &c);
    for (int i = 0; i < 2; i++) {
        r[i] = (struct admit_req){.cls = BATCH, .n = 1};
        x[i] = (struct sched_stream){.prompt = prompt,
                                     .n_prompt = 3,
                                     .cls = i == 0 ? BATCH : NOW,
                                     .request = &r[i]};
    }
    assert_int_equal(sched_add(&s, &x[0], 0), 0);
    assert_false(r[0].stays);
    assert_non_null(sched_next(&s, 0));
    assert_true(r[0].stays);
    sched_done(&s, 100, 0);
    assert_int_equal(sched_add(&s, &x[1], 0), 0);
    assert_non_null(sched_next(&s, 0)); /* takes the place */
    assert_int_equal(x[0].phase, SCHED_WAITING);
    assert_true(r[0].stays && r[1].stays);
    sched_done(&s, 100, 0);
    sched_remove(&s, &x[0], 0);
    sched_remove(&s, &x[1], 0);
    sched_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_youngest_of_the_last_class_goes),
        cmocka_unit_test(who_has_begun_stays),
        cmocka_unit_test(only_as_many_as_are_needed),
        cmocka_unit_test(a_smaller_limit_is_kept),
        cmocka_unit_test(a_place_is_a_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
