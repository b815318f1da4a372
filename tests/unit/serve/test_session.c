/* Sessions: a change counts when the store has it. */
#include "home.h"

static struct session *make(int32_t first)
{
    struct session *x = NULL;
    struct err e = {0};
    const int32_t t[] = {first, first + 1};
    unit_ok(session_new(h.s.sessions, models_find(h.s.models, "m"), t, 2, false,
                        on_told, NULL, &x, &e),
            &e);
    assert_null(sessions_find(h.s.sessions, x->row.id)); /* not yet */
    assert_null(session_next(h.s.sessions, NULL));
    assert_int_equal(wait_told(), 0);
    assert_ptr_equal(sessions_find(h.s.sessions, x->row.id), x);
    return x;
}

static void assert_tokens(const struct session *x, const char *want)
{
    char got[256] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < x->row.n; i++) {
        at += (size_t)snprintf(got + at, sizeof(got) - at, "%d ",
                               (int)x->row.tokens[i]);
    }
    assert_string_equal(got, want);
}

static void changes_wait_for_each_other(void **state)
{
    struct err e = {0};
    const int32_t t[] = {30, 31, 32};
    struct session *x = make(10);
    (void)state;
    told.n = 0;
    for (uint32_t i = 0; i < 3; i++) {
        unit_ok(session_append(h.s.sessions, x, t + i, 1, on_told, NULL, &e),
                &e);
    }
    unit_ok(session_pin(h.s.sessions, x, true, on_told, NULL, &e), &e);
    assert_tokens(x, "10 11 "); /* as it was */
    assert_int_equal(session_begin(x, &e), ERR_CONFLICT);
    UNTIL(told.n == 1);
    assert_tokens(x, "10 11 30 ");
    UNTIL(told.n == 4);
    assert_tokens(x, "10 11 30 31 32 ");
    assert_true(x->row.pinned);
    unit_ok(session_truncate(h.s.sessions, x, 1, on_told, NULL, &e), &e);
    assert_int_equal(session_truncate(h.s.sessions, x, 6, on_told, NULL, &e),
                     ERR_INVALID);
    assert_int_equal(wait_told(), 0);
    assert_tokens(x, "10 ");
}

static void a_change_that_waits_may_become_wrong(void **state)
{
    struct err e = {0};
    struct session *x = make(10);
    (void)state;
    told.n = 0;
    unit_ok(session_truncate(h.s.sessions, x, 1, NULL, NULL, &e), &e);
    unit_ok(session_truncate(h.s.sessions, x, 2, on_told, NULL, &e), &e);
    assert_int_equal(wait_told(), ERR_INVALID);
    assert_tokens(x, "10 ");
    unit_ok(session_delete(h.s.sessions, x, NULL, NULL, &e), &e);
    unit_ok(session_pin(h.s.sessions, x, true, on_told, NULL, &e), &e);
    assert_int_equal(wait_told(), ERR_NOT_FOUND);
    assert_int_equal(sessions_count(h.s.sessions), 0);
}

static void a_turn_is_one_of_them(void **state)
{
    struct err e = {0};
    const int32_t t[] = {20, 21};
    struct session *x = make(10);
    char id[40];
    (void)state;
    (void)snprintf(id, sizeof(id), "%s", x->row.id);
    unit_ok(session_begin(x, &e), &e);
    assert_int_equal(session_append(h.s.sessions, x, t, 1, on_told, NULL, &e),
                     ERR_CONFLICT);
    unit_ok(session_pin(h.s.sessions, x, true, NULL, NULL, &e), &e);
    unit_ok(session_turn(h.s.sessions, id, t, 2, on_told, NULL, &e), &e);
    assert_true(x->busy);
    assert_tokens(x, "10 11 ");
    assert_int_equal(wait_told(), 0);
    assert_false(x->busy);
    assert_tokens(x, "10 11 20 21 ");
    unit_ok(session_begin(x, &e), &e);
    session_end(h.s.sessions, id); /* its client left */
    assert_false(x->busy);
    assert_tokens(x, "10 11 20 21 ");
    unit_ok(session_begin(x, &e), &e);
    unit_ok(session_delete(h.s.sessions, x, NULL, NULL, &e), &e);
    unit_ok(session_turn(h.s.sessions, id, t, 2, on_told, NULL, &e), &e);
    assert_int_equal(wait_told(), 0); /* nobody's, and no failure */
    assert_int_equal(session_turn(h.s.sessions, id, t, 2, on_told, NULL, &e),
                     1);
}

static void no_room_changes_nothing(void **state)
{
    struct err e = {0};
    const int32_t t[] = {20, 21};
    struct session *x = make(10), *y = NULL;
    (void)state;
    home_full(true);
    unit_ok(session_append(h.s.sessions, x, t, 2, on_told, NULL, &e), &e);
    assert_true(wait_told() < 0);
    unit_ok(session_truncate(h.s.sessions, x, 0, on_told, NULL, &e), &e);
    assert_true(wait_told() < 0);
    unit_ok(session_pin(h.s.sessions, x, true, on_told, NULL, &e), &e);
    assert_true(wait_told() < 0);
    unit_ok(session_delete(h.s.sessions, x, on_told, NULL, &e), &e);
    assert_true(wait_told() < 0);
    unit_ok(session_new(h.s.sessions, models_find(h.s.models, "m"), t, 2, false,
                        on_told, NULL, &y, &e),
            &e);
    assert_true(wait_told() < 0);
    unit_ok(session_begin(x, &e), &e);
    unit_ok(session_turn(h.s.sessions, x->row.id, t, 2, on_told, NULL, &e), &e);
    assert_true(wait_told() < 0);
    assert_tokens(x, "10 11 ");
    assert_false(x->row.pinned || x->busy);
    assert_int_equal(sessions_count(h.s.sessions), 1);
    home_full(false);
    unit_ok(session_append(h.s.sessions, x, t, 2, on_told, NULL, &e), &e);
    assert_int_equal(wait_told(), 0);
    assert_tokens(x, "10 11 20 21 ");
    home_close();
    home_open();
    assert_tokens(session_next(h.s.sessions, NULL), "10 11 20 21 ");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, home_up, home_down)
    const struct CMUnitTest tests[] = {
        CASE(changes_wait_for_each_other),
        CASE(a_change_that_waits_may_become_wrong),
        CASE(a_turn_is_one_of_them),
        CASE(no_room_changes_nothing),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
