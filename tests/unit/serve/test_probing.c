/* Models that are measured before, and while, they are used: the real models
 * and store, the fake engine, and this program itself as the probe's child,
 * which does what the file `probe` in the bundle's folder says: "HOW MACHINE".
 * It leaves a letter for each start in the file `runs`: k when it was told of
 * known machines, m when not. */
#include <poll.h>

#include "home.h"
#include "proto/frame.h"
#include "proto/json.h"
#include "proto/msg.h"
#include "serve/engines/residency.h"
#include "serve/probe/probe_queue.h"

/* --- the child --- */

static void send_text(enum frame_type type, const char *text)
{
    struct err e = {0};
    if (frame_write_fd(3, type, 1, text, strlen(text), &e) != 0) {
        _exit(1);
    }
}

static void note(const char *bundle, const char *letter)
{
    char path[HOME_PATH_MAX];
    assert_true(file_join(path, sizeof(path), bundle, "runs"));
    FILE *f = fopen(path, "ae");
    assert_non_null(f);
    (void)fputs(letter, f);
    (void)fclose(f);
}

static void results(const char *machine, bool sound)
{
    static const char *const kinds[] = {"layers", "head"};
    char text[512];
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof(text),
                       "{\"function\":{\"package\":\"%s\",\"kind\":\"%s\","
                       "\"function\":\"\",\"machine\":\"%s\",\"widths\":[{"
                       "\"width\":2,\"not_finite\":%d,\"repeats\":true,"
                       "\"steady\":true,\"error\":null}]},\"ops\":[]}",
                       kinds[i], kinds[i], machine, sound ? 0 : 3);
        send_text(FRAME_PROBE_RESULT, text);
        (void)snprintf(text, sizeof(text),
                       "{\"package\":{\"package\":\"%s\",\"kind\":\"%s\","
                       "\"classes\":%s}}",
                       kinds[i], kinds[i],
                       !sound   ? "[]"
                       : i == 0 ? "[[2,4]]"
                                : "[[1,2]]");
        send_text(FRAME_PROBE_RESULT, text);
    }
    send_text(FRAME_PROBE_DONE, "{\"known\":null}");
}

static void work(const char *how, const char *machine, const struct json *spec)
{
    const char *bundle = json_str(json_get(spec, "bundle"));
    struct err e = {0};
    struct buf b;
    char path[HOME_PATH_MAX];
    send_text(FRAME_PROGRESS,
              "{\"package\":\"p\",\"function\":\"\",\"width\":2,\"step\":"
              "\"warm\",\"slow\":true,\"fraction\":0.25}");
    assert_true(file_join(path, sizeof(path), bundle, "go"));
    while (strcmp(how, "hold") == 0 && !file_exists(path)) {
        struct pollfd p = {.fd = 3};
        if (poll(&p, 1, 1) != 0) { /* the parent is gone */
            _exit(1);
        }
    }
    for (const struct json *k = json_first(json_get(spec, "known")); k != NULL;
         k = json_next(k)) {
        if (strcmp(json_str(k), machine) == 0) {
            (void)snprintf(path, sizeof(path), "{\"known\":\"%s\"}", machine);
            send_text(FRAME_PROBE_DONE, path);
            return;
        }
    }
    if (strcmp(how, "error") == 0) {
        buf_init(&b, KIB(1));
        (void)err_set(&e, ERR_UNSUPPORTED, "no such backend");
        msg_error_put(&b, &e);
        unit_ok(frame_write_fd(3, FRAME_ERROR, 1, b.p, b.n, &e), &e);
        buf_fini(&b);
        return;
    }
    results(strcmp(how, "shut") == 0 ? "" : machine,
            strcmp(how, "sound") == 0 || strcmp(how, "hold") == 0);
}

static int child(void)
{
    struct frame_in in;
    struct frame f = {.n = 0};
    struct json *j = NULL;
    struct err e = {0};
    struct buf how;
    char path[HOME_PATH_MAX];
    char word[2][64] = {"", ""};
    frame_in_init(&in, FRAME_WORKER_MAX);
    if (frame_read_fd(3, &in, &f, &e) != 1 || f.type != FRAME_PROBE ||
        json_parse((const char *)f.payload, f.n, &j, &e) != 0 ||
        !file_join(path, sizeof(path), json_str(json_get(j, "bundle")),
                   "probe") ||
        file_read(path, 128, &how, &e) != 0 ||
        sscanf(how.p, "%63s %63s", word[0], word[1]) != 2) {
        return 99;
    }
    bool asks = json_first(json_get(j, "known")) != NULL;
    note(json_str(json_get(j, "bundle")), asks ? "k" : "m");
    work(word[0], word[1], j);
    json_free(j);
    buf_fini(&how);
    frame_in_fini(&in);
    return 0;
}

/* --- cases --- */

static struct {
    struct model *m;
    struct model_wait wait;
    int rc; /* of the load; 1: not yet */
    struct err e;
    bool read;
    bool idle; /* what waits in the background begins soon; else never */
} t;

static void tell(const char *name, const char *what)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "models/%s/probe", name);
    home_write(path, what);
}

static const char *content(const char *file)
{
    static char text[256];
    char path[HOME_PATH_MAX];
    struct buf b = {0};
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), h.dir, file));
    text[0] = '\0';
    if (file_read(path, sizeof(text) - 1, &b, &e) == 0 && b.p != NULL) {
        (void)snprintf(text, sizeof(text), "%s", b.p);
    }
    buf_fini(&b);
    return text;
}

static const char *runs(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "models/%s/runs", name);
    return content(path);
}

static void on_reports(void *ctx, int status, const struct store_residency *v,
                       size_t n)
{
    (void)ctx;
    assert_int_equal(status, 0);
    probes_load(h.s.models, v, n);
    t.read = true;
}

static void begin(const char *backend)
{
    (void)snprintf(h.s.conf.engine_backend, sizeof(h.s.conf.engine_backend),
                   "%s", backend);
    probes_start(h.s.models);
    h.s.models->prober->idle_ms = t.idle ? 1 : 3600 * 1000;
    t.read = false;
    assert_int_equal(store_residency(h.s.store, NULL, on_reports, NULL), 0);
    UNTIL(t.read);
    t.m = models_find(h.s.models, "m");
    assert_non_null(t.m);
}

static int setup(void **state)
{
    memset(&t, 0, sizeof(t));
    assert_int_equal(home_up(state), 0);
    tell("m", "sound M9");
    home_write("models/m/fake", "tell_load 1\n");
    begin("coreml");
    return 0;
}

/* A restart of the daemon. */
static void again(const char *backend)
{
    home_close();
    home_open();
    begin(backend);
}

static void on_load(struct model_wait *w, int rc, const struct err *e)
{
    (void)w;
    t.rc = rc;
    t.e = *e;
}

static void ask_load(bool explicit_)
{
    struct err e = {0};
    t.rc = 1;
    t.wait = (struct model_wait){.fn = on_load};
    int rc = model_load(t.m, explicit_, &t.wait, &e);
    if (rc != 0) {
        t.rc = rc < 0 ? rc : 0;
        t.e = e;
    }
}

static int load(bool explicit_)
{
    ask_load(explicit_);
    UNTIL(t.rc != 1);
    return t.rc;
}

static const char *state_of(const struct model *m)
{
    static char word[32];
    struct json *o = json_object();
    probe_put(o, m);
    (void)snprintf(word, sizeof(word), "%s",
                   json_str(json_get(json_get(o, "probe"), "state")));
    json_free(o);
    return word;
}

static void unload(void)
{
    struct err e = {0};
    struct model_wait w = {.fn = on_load};
    t.rc = 1;
    if (model_unload(t.m, &w, &e) == 0) {
        UNTIL(t.rc != 1);
    }
}

/* The first load measures; its widths go to the engine; later ones know. */
static void a_first_load(void **state)
{
    double progress = 0;
    (void)state;
    assert_string_equal(state_of(t.m), "unknown");
    ask_load(false);
    assert_int_equal(t.m->state, MODEL_AWAITING);
    assert_string_equal(model_shown(t.m), "loading");
    assert_string_equal(model_stage(t.m, &progress), "probing");
    UNTIL(t.rc != 1);
    assert_int_equal(t.rc, 0);
    assert_int_equal(t.m->state, MODEL_LOADED);
    assert_string_equal(runs("m"), "m");
    assert_string_equal(content("models/m/load"), "layers 2 4, heads 1 2");
    assert_string_equal(state_of(t.m), "passed");
    unload();
    assert_int_equal(load(false), 0);
    assert_string_equal(runs("m"), "m"); /* it is known */
    again("coreml");
    assert_string_equal(state_of(t.m), "passed");
    assert_int_equal(load(false), 0);
    assert_string_equal(runs("m"), "mk"); /* whether the machine is the same */
    assert_string_equal(content("models/m/load"), "layers 2 4, heads 1 2");
}

/* The CPU's loads do not know of any of this. */
static void a_load_on_the_cpu(void **state)
{
    struct err e = {0};
    (void)state;
    again("cpu");
    assert_int_equal(load(false), 0);
    assert_string_equal(runs("m"), "");
    assert_string_equal(content("models/m/load"), "layers, heads");
    tell("m", "failed M9"); /* what is measured by hand changes nothing */
    unit_ok(probe_ask(t.m, &e), &e);
    UNTIL(t.m->probe.state == PROBING_REST);
    assert_string_equal(state_of(t.m), "failed");
    unload();
    assert_int_equal(load(false), 0);
    assert_string_equal(content("models/m/load"), "layers, heads");
    assert_int_equal(h.s.models->prober->current == NULL, true);
}

static void a_model_that_fails(void **state)
{
    (void)state;
    tell("m", "failed M9");
    assert_int_equal(load(false), ERR_REJECTED);
    assert_non_null(strstr(t.e.msg, "not finite"));
    assert_int_equal(t.m->state, MODEL_REJECTED);
    assert_string_equal(model_shown(t.m), "rejected");
    assert_non_null(strstr(t.m->reason, "measured on this machine"));
    assert_non_null(strstr(t.m->reason, "anectl residency m"));
    assert_null(t.m->runner); /* no engine began */
    assert_int_equal(load(false), ERR_REJECTED);
    assert_string_equal(runs("m"), "m");
    again("coreml"); /* it is still so */
    assert_int_equal(t.m->state, MODEL_REJECTED);
    assert_int_equal(load(false), ERR_REJECTED);
    tell("m", "sound M9"); /* a person tries again: measured anew */
    assert_int_equal(load(true), 0);
    assert_int_equal(t.m->state, MODEL_LOADED);
    assert_null(t.m->reason);
    again("coreml");
    assert_int_equal(t.m->state, MODEL_READY);
    assert_int_equal(load(false), 0);
}

/* A twin that is converted later: the first one's files may be damaged. */
static void a_model_converted_later(void **state)
{
    struct bundle *b = NULL;
    struct err e = {0};
    char path[HOME_PATH_MAX];
    (void)state;
    tell("m", "failed M9");
    assert_int_equal(load(false), ERR_REJECTED);
    home_bundle("n");
    tell("n", "sound M9");
    home_write("models/n/fake", "tell_load 1\n");
    assert_true(file_join(path, sizeof(path), h.dir, "models/n"));
    unit_ok(bundle_open(path, &b, &e), &e);
    t.m = model_new(h.s.models, "n", b);
    probe_converted(t.m);
    models_list(t.m);
    assert_int_equal(t.m->state, MODEL_READY);
    assert_int_equal(load(false), 0);
    assert_string_equal(runs("n"), "m");
    assert_int_equal(t.m->state, MODEL_LOADED);
}

/* What one backend does not run, another may: no row says `rejected`. */
static void a_failure_is_the_backends(void **state)
{
    (void)state;
    tell("m", "failed M9");
    assert_int_equal(load(false), ERR_REJECTED);
    model_save(t.m);
    again("cpu");
    assert_int_equal(t.m->state, MODEL_READY);
    assert_null(t.m->reason);
    assert_string_equal(state_of(t.m), "unknown");
    assert_int_equal(load(false), 0);
}

/* Nothing opened, so nobody knows which machine that was. */
static void a_model_that_does_not_open(void **state)
{
    (void)state;
    tell("m", "shut M9");
    assert_int_equal(load(false), ERR_REJECTED);
    assert_int_equal(t.m->state, MODEL_REJECTED);
    assert_int_equal(load(false), ERR_REJECTED);
    assert_string_equal(runs("m"), "m"); /* not once a request */
    tell("m", "sound M9");
    assert_int_equal(load(true), 0);
}

/* The probe cannot measure: the load fails, the model is no worse. */
static void a_probe_that_fails(void **state)
{
    (void)state;
    tell("m", "error M9");
    assert_int_equal(load(false), ERR_UNSUPPORTED);
    assert_non_null(strstr(t.e.msg, "no such backend"));
    assert_int_equal(t.m->state, MODEL_READY);
    assert_string_equal(state_of(t.m), "unknown");
    assert_string_equal(t.m->probe.why, "no such backend");
    tell("m", "sound M9");
    assert_int_equal(load(false), 0);
    assert_null(t.m->probe.why);
}

/* An update of the system: all are measured again, when nothing is done. */
static void another_machine(void **state)
{
    (void)state;
    t.idle = true;
    home_bundle_of("n", 256);
    again("coreml");
    struct model *n = models_find(h.s.models, "n");
    assert_non_null(n);
    tell("n", "sound M9");
    assert_int_equal(load(false), 0);
    t.m = n;
    assert_int_equal(load(false), 0);
    assert_string_equal(runs("m"), "m");
    assert_string_equal(runs("n"), "m");
    tell("m", "sound M10");
    tell("n", "failed M10");
    home_close();
    home_open();
    begin("coreml");
    n = models_find(h.s.models, "n");
    UNTIL(strcmp(state_of(n), "failed") == 0 &&
          strcmp(state_of(t.m), "passed") == 0);
    assert_string_equal(h.s.models->prober->machine, "M10");
    assert_int_equal(n->state, MODEL_REJECTED);
    assert_string_equal(runs("m"), "mk");
    assert_string_equal(runs("n"), "mk");
    assert_int_equal(load(false), 0); /* at once */
    assert_string_equal(runs("m"), "mk");
}

/* A generation comes first: the child goes, and comes back later. */
static void background_work_is_put_off(void **state)
{
    (void)state;
    t.idle = true;
    assert_int_equal(load(false), 0);
    tell("m", "hold M10");
    again("coreml");
    UNTIL(strcmp(state_of(t.m), "running") == 0);
    UNTIL(strcmp(runs("m"), "mk") == 0);
    model_use(t.m);
    assert_int_equal(t.m->probe.state, PROBING_QUEUED);
    assert_string_equal(state_of(t.m), "passed"); /* on M9, it is thought */
    assert_null(h.s.models->prober->current);
    assert_int_equal(probe_bytes(h.s.models), 0);
    for (int i = 0; i < 20; i++) { /* and stays away */
        (void)uv_run(&h.s.loop, UV_RUN_NOWAIT);
        (void)usleep(1000);
    }
    assert_int_equal(t.m->probe.state, PROBING_QUEUED);
    home_write("models/m/go", "");
    model_unuse(t.m);
    UNTIL(t.m->probe.state == PROBING_REST);
    assert_string_equal(state_of(t.m), "passed");
    assert_string_equal(h.s.models->prober->machine, "M10");
}

/* A load does not wait for what is done in the background, but takes it over,
 * and comes before it. */
static void a_load_comes_first(void **state)
{
    (void)state;
    t.idle = true;
    home_bundle_of("n", 256);
    again("coreml");
    struct model *m = t.m;
    struct model *n = models_find(h.s.models, "n");
    tell("n", "sound M9");
    assert_int_equal(load(false), 0);
    t.m = n;
    assert_int_equal(load(false), 0);
    tell("m", "hold M10");
    tell("n", "hold M10");
    again("coreml");
    m = t.m;
    n = models_find(h.s.models, "n");
    UNTIL(h.s.models->prober->current != NULL);
    struct model *first = h.s.models->prober->current;
    struct model *other = first == m ? n : m;
    t.m = other;
    ask_load(false);
    UNTIL(h.s.models->prober->current == other);
    assert_int_equal(first->probe.state, PROBING_QUEUED);
    home_write("models/m/go", "");
    home_write("models/n/go", "");
    UNTIL(t.rc != 1);
    assert_int_equal(t.rc, 0);
    UNTIL(first->probe.state == PROBING_REST);
    assert_string_equal(state_of(first), "passed");
}

/* What a probe takes counts: a load waits until it is over, unless nobody waits
 * for the probe. */
static void a_load_waits_for_room(void **state)
{
    double progress = 0;
    struct err e = {0};
    (void)state;
    home_bundle_of("n", 256);
    again("cpu");
    struct model *n = models_find(h.s.models, "n");
    tell("n", "hold M9");
    unit_ok(probe_ask(n, &e), &e);
    UNTIL(strcmp(runs("n"), "m") == 0);
    uint64_t bytes = models_bytes(h.s.models);
    assert_true(bytes == n->bundle->total_bytes);
    h.s.models->budget = bytes + t.m->bundle->total_bytes - 1;
    ask_load(false);
    assert_int_equal(t.m->state, MODEL_AWAITING);
    assert_string_equal(model_stage(t.m, &progress), "room");
    home_write("models/n/go", "");
    UNTIL(t.rc != 1);
    assert_true(models_bytes(h.s.models) > 0); /* m's; it may be too big now */
    assert_string_equal(state_of(n), "passed");
}

static void a_load_needs_the_room(void **state)
{
    (void)state;
    t.idle = true;
    home_bundle_of("n", 256);
    again("coreml");
    assert_int_equal(load(false), 0);
    tell("m", "hold M10");
    tell("n", "sound M10");
    again("coreml");
    UNTIL(strcmp(runs("m"), "mk") == 0); /* in the background */
    struct model *m = t.m;
    t.m = models_find(h.s.models, "n");
    h.s.models->budget = 64 << 20;
    ask_load(false);
    UNTIL(m->probe.state == PROBING_QUEUED);
    UNTIL(t.rc != 1);
    assert_int_equal(t.rc, 0);
    home_write("models/m/go", "");
    UNTIL(m->probe.state == PROBING_REST);
}

static void a_client_asks(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(load(false), 0);
    unit_ok(probe_ask(t.m, &e), &e);
    unit_ok(probe_ask(t.m, &e), &e); /* twice is once */
    assert_string_equal(state_of(t.m), "queued");
    UNTIL(t.m->probe.state == PROBING_REST);
    assert_string_equal(runs("m"), "mm"); /* measured, whatever is known */
    assert_string_equal(state_of(t.m), "passed");
    tell("m", "failed M9"); /* while it is loaded */
    unit_ok(probe_ask(t.m, &e), &e);
    UNTIL(t.m->probe.state == PROBING_REST);
    assert_int_equal(t.m->state, MODEL_LOADED);
    assert_non_null(strstr(t.m->reason, "not finite"));
    unload();
    assert_int_equal(load(false), ERR_REJECTED);
    h.s.models->budget = 1;
    assert_int_equal(probe_ask(t.m, &e), ERR_NOMEM);
    assert_non_null(strstr(e.msg, "unload a model"));
}

/* The disk is full: the verdict counts as long as the daemon runs. */
static void a_report_that_is_not_stored(void **state)
{
    (void)state;
    home_write("models/m/fake", ""); /* its engine writes nothing either */
    home_full(true);
    assert_int_equal(load(false), 0);
    home_full(false);
    assert_string_equal(state_of(t.m), "passed");
    assert_non_null(t.m->probe.why);
    unload();
    assert_int_equal(load(false), 0);
    assert_string_equal(runs("m"), "m");
    again("coreml");
    assert_string_equal(state_of(t.m), "unknown");
    assert_int_equal(load(false), 0);
    assert_string_equal(runs("m"), "mm");
}

static void the_model_goes_meanwhile(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(load(false), 0); /* its engine is still there then */
    tell("m", "hold M9");
    unit_ok(probe_ask(t.m, &e), &e);
    UNTIL(strcmp(runs("m"), "mm") == 0);
    unit_ok(model_delete(t.m, on_told, NULL, &e), &e);
    assert_int_equal(wait_told(), 0);
    assert_null(models_find(h.s.models, "m"));
    assert_null(h.s.models->prober->current);
    assert_true(list_empty(&h.s.models->prober->known)); /* and its reports */
}

static void the_daemon_stops_meanwhile(void **state)
{
    (void)state;
    tell("m", "hold M9");
    ask_load(false);
    UNTIL(strcmp(runs("m"), "m") == 0);
    models_stop(h.s.models, home_on_closed, NULL);
    assert_int_equal(t.rc, ERR_INTERRUPTED);
    UNTIL(h.closed == 1);
    h.closed = 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "probe-worker") == 0) {
        return child();
    }
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, home_down)
    const struct CMUnitTest tests[] = {
        CASE(a_first_load),
        CASE(a_load_on_the_cpu),
        CASE(a_model_that_fails),
        CASE(a_model_converted_later),
        CASE(a_failure_is_the_backends),
        CASE(a_model_that_does_not_open),
        CASE(a_probe_that_fails),
        CASE(another_machine),
        CASE(background_work_is_put_off),
        CASE(a_load_comes_first),
        CASE(a_load_waits_for_room),
        CASE(a_load_needs_the_room),
        CASE(a_client_asks),
        CASE(a_report_that_is_not_stored),
        CASE(the_model_goes_meanwhile),
        CASE(the_daemon_stops_meanwhile),
    };
    return cmocka_run_group_tests_name("probing", tests, NULL, NULL);
}
