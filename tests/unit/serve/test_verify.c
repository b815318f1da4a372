/* What a verify worker's answer, or its end without one, comes to: the real
 * models and store, the fake engine, and this program itself as the worker,
 * which does what the file `verify` in the bundle's folder says. */
#include <string.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "proto/frame.h"
#include "proto/json.h"
#include "proto/msg.h"
#include "serve/engines/models_impl.h"

static char dir[64];

static struct {
    struct server s;
    uv_prepare_t turn;
    struct model *m;
    struct model_wait wait;
    int rc; /* of the load; 1: not yet */
    struct err e;
    int closed; /* parts of the server */
} t;

/* --- the worker --- */

static const char stamp[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static int work(const char *how)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, KIB(4));
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
    return work(how.p);
}

/* --- a server without its listeners --- */

static void on_turn(uv_prepare_t *h)
{
    (void)h;
    runner_turn(&t.s.runners);
}

static void tell_worker(const char *how)
{
    char path[128];
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), dir, "models/fake/verify"));
    unit_ok(file_write(path, how, strlen(how), &e), &e);
}

static int setup(void **state)
{
    struct server *s = &t.s;
    struct err e = {0};
    char path[128];
    (void)state;
    memset(&t, 0, sizeof(t));
    conf_init(&s->conf);
    (void)snprintf(s->conf.engine_program, sizeof(s->conf.engine_program),
                   "%s/tests/unit/serve/fake_engine", getenv("ANED_BUILD"));
    (void)snprintf(s->home.dir, sizeof(s->home.dir), "%s", dir);
    assert_true(file_join(s->home.models, HOME_PATH_MAX, dir, "models"));
    assert_true(file_join(s->home.db, HOME_PATH_MAX, dir, "db"));
    assert_true(file_join(path, sizeof(path), dir, "models/fake/fake"));
    unit_ok(file_write(path, "", 0, &e), &e);
    list_init(&s->runners);
    assert_int_equal(uv_loop_init(&s->loop), 0);
    assert_int_equal(uv_prepare_init(&s->loop, &t.turn), 0);
    assert_int_equal(uv_prepare_start(&t.turn, on_turn), 0);
    uv_unref((uv_handle_t *)&t.turn);
    unit_ok(store_open(&s->loop, s->home.db, &s->store, &e), &e);
    unit_ok(models_open(s, &s->models, &e), &e);
    verify_start(s->models);
    t.m = models_find(s->models, "fake");
    assert_non_null(t.m);
    return 0;
}

static void on_closed(void *ctx)
{
    (void)ctx;
    t.closed++;
}

#define UNTIL(condition)                      \
    while (!(condition)) {                    \
        (void)uv_run(&t.s.loop, UV_RUN_ONCE); \
    }

static int teardown(void **state)
{
    (void)state;
    models_stop(t.s.models, on_closed, NULL);
    UNTIL(t.closed == 1);
    store_close(t.s.store, on_closed, NULL);
    uv_close((uv_handle_t *)&t.turn, NULL);
    assert_int_equal(uv_run(&t.s.loop, UV_RUN_DEFAULT), 0);
    models_free(t.s.models);
    return uv_loop_close(&t.s.loop);
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

/* The stop of the daemon ends a load that waits for a worker. */
static void a_stop_meanwhile(void **state)
{
    struct err e = {0};
    (void)state;
    tell_worker("sound");
    t.rc = 1;
    t.wait = (struct model_wait){.fn = on_load};
    assert_int_equal(model_load(t.m, true, &t.wait, &e), 0);
    models_stop(t.s.models, on_closed, NULL);
    assert_int_equal(t.rc, ERR_INTERRUPTED);
    UNTIL(t.closed == 1);
    t.closed = 0;
}

static int make_bundle(void **state)
{
    char command[1200];
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/aned-verify-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(command, sizeof(command),
                   "mkdir -p %s/models/fake && "
                   "'%s/tests/unit/serve/fake_bundle' %s/models/fake 512",
                   dir, getenv("ANED_BUILD"), dir);
    return system(command);
}

static int remove_bundle(void **state)
{
    struct err e = {0};
    (void)state;
    return file_rmtree(dir, &e);
}

static int forget(void **state)
{
    char path[128];
    assert_true(file_join(path, sizeof(path), dir, "verified.json"));
    (void)unlink(path);
    assert_true(file_join(path, sizeof(path), dir, "db"));
    (void)unlink(path);
    return setup(state);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "verify-worker") == 0) {
        return worker();
    }
#define CASE(f) cmocka_unit_test_setup_teardown(f, forget, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_damaged_model_gets_no_engine),
        CASE(a_lost_worker),
        CASE(a_loaded_model_that_is_damaged),
        CASE(a_stop_meanwhile),
    };
    return cmocka_run_group_tests(tests, make_bundle, remove_bundle);
}
