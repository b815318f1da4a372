/* Models: one state, changed by one setter, and what a deletion leaves. */
#include "home.h"

static char seen[256];

static void on_change(struct model_watch *w, struct model *m, bool last)
{
    static const char *const names[] = {
        [MODEL_READY] = "R",  [MODEL_AWAITING] = "A",  [MODEL_LOADING] = "L",
        [MODEL_LOADED] = "U", [MODEL_UNLOADING] = "D", [MODEL_REJECTED] = "X",
        [MODEL_FAILED] = "F"};
    size_t n = strlen(seen);
    (void)w;
    if (!last && (n == 0 || seen[n - 1] != names[m->state][0])) {
        (void)snprintf(seen + n, sizeof(seen) - n, "%s", names[m->state]);
    }
}

static void on_wait(struct model_wait *w, int rc, const struct err *e)
{
    (void)w;
    on_told(NULL, rc, e);
}

static void the_way_of_a_state(void **state)
{
    struct model *m = models_find(h.s.models, "m");
    struct model_watch watch = {.fn = on_change};
    struct model_wait w = {.fn = on_wait};
    struct err e = {0};
    (void)state;
    seen[0] = '\0';
    model_watch(m, &watch);
    assert_string_equal(model_state_name(m->state), "ready");
    assert_int_equal(model_load(m, true, &w, &e), 0);
    assert_string_equal(model_state_name(m->state), "loading");
    assert_int_equal(wait_told(), 0);
    assert_string_equal(model_state_name(m->state), "loaded");
    assert_int_equal(model_load(m, true, &w, &e), 1);
    assert_int_equal(model_unload(m, &w, &e), 0);
    assert_int_equal(m->state, MODEL_UNLOADING);
    assert_string_equal(model_state_name(m->state), "loaded");
    assert_int_equal(wait_told(), 0);
    assert_int_equal(m->state, MODEL_READY);
    assert_string_equal(seen, "LUR");
    model_unwatch(&watch);
}

/* Told to leave while it comes up: who asked for it meanwhile gets it. */
static void unloaded_before_it_was_up(void **state)
{
    struct model *m = models_find(h.s.models, "m");
    struct model_wait w = {.fn = on_wait}, down = {.fn = on_wait};
    struct err e = {0};
    (void)state;
    assert_int_equal(model_load(m, true, &w, &e), 0);
    model_unwait(&w); /* its client left */
    assert_int_equal(model_unload(m, &down, &e), 0);
    assert_int_equal(model_load(m, true, &w, &e), 0);
    assert_int_equal(m->state, MODEL_UNLOADING);
    told.n = 0;
    UNTIL(told.n == 2);
    assert_int_equal(told.rc, 0);
    assert_int_equal(m->state, MODEL_LOADED);
}

static void what_its_job_says(void **state)
{
    struct model_wait w = {.fn = on_wait};
    struct bundle *b = NULL;
    struct err e = {0};
    struct store_model row;
    char dir[HOME_PATH_MAX];
    (void)state;
    home_bundle("n");
    assert_true(file_join(dir, sizeof(dir), h.s.home.models, "n"));
    unit_ok(bundle_open(dir, &b, &e), &e);
    struct model *m = model_new(h.s.models, "n", b);
    assert_false(model_listed(m));
    assert_null(models_find(h.s.models, "n"));
    model_judge(m, true, "a gate failed", "[1]", "job_x");
    models_list(m);
    assert_ptr_equal(models_find(h.s.models, "n"), m);
    assert_int_equal(models_count(h.s.models), 2);
    assert_int_equal(model_load(m, true, &w, &e), ERR_REJECTED);
    model_row(m, &row);
    assert_string_equal(row.state, "rejected");
    assert_string_equal(row.gates, "[1]");
    assert_string_equal(row.job, "job_x");
}

static void a_deletion_that_finds_no_room(void **state)
{
    struct model *m = models_find(h.s.models, "m");
    struct model_wait w = {.fn = on_wait};
    struct session *x = NULL;
    struct err e = {0};
    (void)state;
    unit_ok(session_new(h.s.sessions, m, NULL, 0, false, on_told, NULL, &x, &e),
            &e);
    assert_int_equal(wait_told(), 0);
    assert_int_equal(model_load(m, true, &w, &e), 0);
    assert_int_equal(wait_told(), 0);
    home_full(true);
    unit_ok(model_delete(m, on_told, NULL, &e), &e);
    UNTIL(!home_has("models/m"));
    assert_int_equal(model_load(m, true, &w, &e), ERR_UNAVAILABLE);
    assert_int_equal(session_pin(h.s.sessions, x, true, NULL, NULL, &e),
                     ERR_MODEL_NOT_FOUND);
    assert_int_equal(model_delete(m, on_told, NULL, &e), ERR_CONFLICT);
    assert_true(wait_told() < 0);
    assert_true(home_has("models/m"));
    assert_int_equal(model_load(m, true, &w, &e), 1); /* it never left */
    home_full(false);
    unit_ok(model_delete(m, on_told, NULL, &e), &e);
    assert_int_equal(wait_told(), 0);
    assert_int_equal(models_count(h.s.models), 0);
    assert_int_equal(sessions_count(h.s.sessions), 0);
    home_close();
    home_open();
    assert_int_equal(models_count(h.s.models), 0);
    assert_int_equal(sessions_count(h.s.sessions), 0);
}

/* The daemon stops while a deletion goes on: it ends first. */
static void a_deletion_at_the_end(void **state)
{
    struct model *m = models_find(h.s.models, "m");
    struct err e = {0};
    (void)state;
    told.n = 0;
    unit_ok(model_delete(m, on_told, NULL, &e), &e);
    home_close();
    assert_int_equal(told.n, 1);
    assert_int_equal(told.rc, 0);
    assert_false(home_has("models/m"));
    home_open();
    assert_int_equal(models_count(h.s.models), 0);
}

/* After a crash a model is not ready before its files were hashed. */
static void unverified_after_a_crash(void **state)
{
    struct model *m = models_find(h.s.models, "m");
    (void)state;
    m->verify.first = true;
    assert_string_equal(model_shown(m), "unverified");
    m->verify.first = false;
    assert_string_equal(model_shown(m), "ready");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, home_up, home_down)
    const struct CMUnitTest tests[] = {
        CASE(the_way_of_a_state),    CASE(unloaded_before_it_was_up),
        CASE(what_its_job_says),     CASE(a_deletion_that_finds_no_room),
        CASE(a_deletion_at_the_end), CASE(unverified_after_a_crash),
    };
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
