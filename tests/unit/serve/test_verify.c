/* What a verify worker's answer, or its end without one, comes to: the real
 * models and store, the fake engine, and this program itself as the worker,
 * which does what the file `verify` in the bundle's folder says. */
#include "home.h"
#include "proto/frame.h"
#include "proto/json.h"
#include "proto/msg.h"

static struct {
    struct model *m;
    struct model_wait wait;
    int rc; /* of the load; 1: not yet */
    struct err e;
} t;

/* --- the worker --- */

static const char stamp[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/* Read one that says `busy`. */
static bool heard(struct frame_in *in, bool busy)
{
    struct frame f = {.n = 0};
    struct json *j = NULL;
    struct err e = {0};
    bool b = !busy;
    if (frame_read_fd(3, in, &f, &e) != 1 || f.type != FRAME_BUSY ||
        json_parse((const char *)f.payload, f.n, &j, &e) != 0 ||
        json_want_bool(j, "busy", true, &b, &e) != 0) {
        return false;
    }
    json_free(j);
    return b == busy;
}

static int work(const char *how, struct frame_in *in, const struct json *spec)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, KIB(4));
    if (strcmp(how, "listen") == 0) {
        if (!json_bool(json_get(spec, "gentle")) ||
            json_bool(json_get(spec, "busy")) || !heard(in, true) ||
            !heard(in, false) || !heard(in, true)) {
            return 98;
        }
        how = "sound";
    }
    if (strcmp(how, "used") == 0) {
        how = json_bool(json_get(spec, "busy")) ? "sound" : "die";
    }
    if (strcmp(how, "die") == 0) {
        return 9;
    }
    if (strcmp(how, "sound") == 0) {
        buf_printf(&b, "{\"stamp\":\"%s\",\"hashed\":true}", stamp);
        return frame_write_fd(3, FRAME_VERIFY_DONE, 1, b.p, b.n, &e);
    }
    (void)err_set(&e, strcmp(how, "other") == 0 ? ERR_BUNDLE : ERR_NOMEM,
                  "weight.bin is another");
    msg_error_put(&b, &e);
    return frame_write_fd(3, FRAME_ERROR, 1, b.p, b.n, &e);
}

static int worker(void)
{
    struct frame_in in;
    struct frame f = {.n = 0};
    struct json *j = NULL;
    struct err e = {0};
    struct buf how;
    char path[256];
    frame_in_init(&in, FRAME_WORKER_MAX);
    if (frame_read_fd(3, &in, &f, &e) != 1 || f.type != FRAME_VERIFY ||
        json_parse((const char *)f.payload, f.n, &j, &e) != 0 ||
        !file_join(path, sizeof(path), json_str(json_get(j, "bundle")),
                   "verify") ||
        file_read(path, 64, &how, &e) != 0) {
        return 99;
    }
    return work(how.p, &in, j);
}

/* --- cases --- */

static void tell_worker(const char *how)
{
    home_write("models/m/verify", how);
}

static int setup(void **state)
{
    memset(&t, 0, sizeof(t));
    assert_int_equal(home_up(state), 0);
    verify_start(h.s.models);
    t.m = models_find(h.s.models, "m");
    assert_non_null(t.m);
    return 0;
}

static void on_load(struct model_wait *w, int rc, const struct err *e)
{
    (void)w;
    t.rc = rc;
    t.e = *e;
}

static void load(void)
{
    struct err e = {0};
    t.rc = 1;
    t.wait = (struct model_wait){.fn = on_load};
    int rc = model_load(t.m, true, &t.wait, &e);
    if (rc == 0) {
        assert_int_equal(t.m->state, MODEL_AWAITING);
        UNTIL(t.rc != 1);
    } else {
        t.rc = rc;
        t.e = e;
    }
}

/* No end in order was seen, so no engine comes before the answer. */
static void a_damaged_model_gets_no_engine(void **state)
{
    (void)state;
    tell_worker("other");
    load();
    assert_int_equal(t.rc, ERR_MODEL_FAILED);
    assert_non_null(strstr(t.e.msg, "weight.bin is another"));
    assert_int_equal(t.m->state, MODEL_FAILED);
    assert_int_equal(t.m->verify.state, VERIFY_DAMAGED);
    assert_non_null(strstr(t.m->reason, "anectl convert "));
    assert_null(t.m->runner);
    tell_worker("sound"); /* somebody mended it, and a person tries again */
    load();
    assert_int_equal(t.rc, 0);
    assert_int_equal(t.m->state, MODEL_LOADED);
}

/* A worker that dies, or has no memory, says nothing of the model. */
static void a_lost_worker(void **state)
{
    static const char *const how[] = {"die", "memory"};
    static const int code[] = {ERR_WORKER_LOST, ERR_NOMEM};
    (void)state;
    for (size_t i = 0; i < countof(how); i++) {
        tell_worker(how[i]);
        load();
        assert_int_equal(t.rc, code[i]);
        assert_int_equal(t.m->state, MODEL_READY);
        assert_int_equal(t.m->verify.state, VERIFY_UNKNOWN);
        assert_null(t.m->runner);
    }
    tell_worker("sound");
    load();
    assert_int_equal(t.rc, 0);
}

/* While the model serves: asked for, found damaged, unloaded. */
static void a_loaded_model_that_is_damaged(void **state)
{
    struct err e = {0};
    (void)state;
    tell_worker("sound");
    load();
    assert_int_equal(t.rc, 0);
    UNTIL(t.m->verify.state == VERIFY_SOUND);
    assert_string_equal(t.m->verify.stamp, stamp);
    tell_worker("other");
    unit_ok(verify_ask(t.m, &e), &e);
    unit_ok(verify_ask(t.m, &e), &e); /* twice is once */
    UNTIL(t.m->state == MODEL_FAILED);
    UNTIL(runner_state(t.m->runner) == RUNNER_DOWN);
    assert_int_equal(t.m->state, MODEL_FAILED);
    assert_string_equal(t.m->verify.stamp, "");
}

/* The worker hears when the first generation begins and the last one ends. */
static void a_generation_while_files_are_hashed(void **state)
{
    (void)state;
    tell_worker("sound");
    load();
    assert_int_equal(t.rc, 0);
    UNTIL(t.m->verify.state == VERIFY_SOUND);
    tell_worker("listen");
    verify_loaded(t.m);
    assert_int_equal(t.m->verify.state, VERIFY_RUNNING);
    model_use(t.m);
    model_use(t.m);
    model_unuse(t.m);
    model_unuse(t.m);
    model_use(t.m);
    UNTIL(t.m->verify.state != VERIFY_RUNNING);
    assert_int_equal(t.m->verify.state, VERIFY_SOUND);
    tell_worker("used"); /* it begins meanwhile */
    verify_loaded(t.m);
    UNTIL(t.m->verify.state != VERIFY_RUNNING);
    assert_int_equal(t.m->verify.state, VERIFY_SOUND);
    model_unuse(t.m);
}

/* The stop of the daemon ends a load that waits for a worker. */
static void a_stop_meanwhile(void **state)
{
    struct err e = {0};
    (void)state;
    tell_worker("sound");
    t.rc = 1;
    t.wait = (struct model_wait){.fn = on_load};
    assert_int_equal(model_load(t.m, true, &t.wait, &e), 0);
    models_stop(h.s.models, home_on_closed, NULL);
    assert_int_equal(t.rc, ERR_INTERRUPTED);
    UNTIL(h.closed == 1);
    h.closed = 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "verify-worker") == 0) {
        return worker();
    }
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, home_down)
    const struct CMUnitTest tests[] = {
        CASE(a_damaged_model_gets_no_engine),
        CASE(a_lost_worker),
        CASE(a_loaded_model_that_is_damaged),
        CASE(a_generation_while_files_are_hashed),
        CASE(a_stop_meanwhile),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
