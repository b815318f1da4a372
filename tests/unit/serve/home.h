/* home.h - a server without its listeners in a home of its own, with the fake
 * engine: models, jobs and sessions on a real store. A full disk is a limit on
 * the size of files. */
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "serve/engines/models_impl.h"
#include "serve/gen/session.h"
#include "serve/jobs/jobs_impl.h"

static struct {
    char dir[64];
    struct server s;
    int closed;
    bool read;
} h;

#define UNTIL(condition)                      \
    while (!(condition)) {                    \
        (void)uv_run(&h.s.loop, UV_RUN_ONCE); \
    }

/* Bundles of the same context are twins. */
static inline void home_bundle_of(const char *name, unsigned context)
{
    char command[1200];
    (void)snprintf(command, sizeof(command),
                   "mkdir -p %s/models/%s && "
                   "'%s/tests/unit/serve/fake_bundle' %s/models/%s %u",
                   h.dir, name, getenv("ANED_BUILD"), h.dir, name, context);
    assert_int_equal(system(command), 0);
}

static inline void home_bundle(const char *name)
{
    home_bundle_of(name, 512);
}

static inline bool home_has(const char *path)
{
    char full[HOME_PATH_MAX];
    assert_true(file_join(full, sizeof(full), h.dir, path));
    return file_exists(full);
}

static inline void home_write(const char *path, const char *text)
{
    char full[HOME_PATH_MAX];
    struct err e = {0};
    assert_true(file_join(full, sizeof(full), h.dir, path));
    unit_ok(file_write(full, text, strlen(text), &e), &e);
}

static inline void home_full(bool full)
{
    struct rlimit r;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = full ? 1 : r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static inline void home_on_models(void *ctx, int status,
                                  const struct store_model *v, size_t n)
{
    (void)ctx;
    assert_int_equal(status, 0);
    models_merge(h.s.models, v, n);
}

static inline void home_on_jobs(void *ctx, int status,
                                const struct store_job *v, size_t n)
{
    (void)ctx;
    assert_int_equal(status, 0);
    jobs_load(h.s.jobs, v, n);
}

static inline void home_on_sessions(void *ctx, int status,
                                    const struct store_session *v, size_t n)
{
    (void)ctx;
    assert_int_equal(status, 0);
    sessions_load(h.s.sessions, v, n);
    h.read = true;
}

static inline void home_on_turn(uv_prepare_t *p)
{
    (void)p;
    runner_turn(&h.s.runners);
}

/* A start; what the last one left is read. */
static inline void home_open(void)
{
    struct server *s = &h.s;
    struct err e = {0};
    memset(s, 0, sizeof(*s));
    h.closed = 0;
    h.read = false;
    conf_init(&s->conf);
    (void)snprintf(s->conf.engine_program, sizeof(s->conf.engine_program),
                   "%s/tests/unit/serve/fake_engine", getenv("ANED_BUILD"));
    (void)snprintf(s->home.dir, sizeof(s->home.dir), "%s", h.dir);
    assert_true(file_join(s->home.models, HOME_PATH_MAX, h.dir, "models"));
    assert_true(file_join(s->home.staging, HOME_PATH_MAX, h.dir, "staging"));
    assert_true(file_join(s->home.db, HOME_PATH_MAX, h.dir, "db"));
    unit_ok(file_mkdirs(s->home.models, 0700, &e), &e);
    unit_ok(file_mkdirs(s->home.staging, 0700, &e), &e);
    list_init(&s->runners);
    assert_int_equal(uv_loop_init(&s->loop), 0);
    assert_int_equal(uv_prepare_init(&s->loop, &s->turn), 0);
    assert_int_equal(uv_prepare_start(&s->turn, home_on_turn), 0);
    uv_unref((uv_handle_t *)&s->turn);
    unit_ok(store_open(&s->loop, s->home.db, &s->store, &e), &e);
    s->files = workq_new(&s->loop, 8);
    s->text = workq_new(&s->loop, 8);
    unit_ok(models_open(s, &s->models, &e), &e);
    unit_ok(jobs_new(s, &s->jobs), &e);
    s->sessions = sessions_new(s);
    assert_int_equal(store_models(s->store, home_on_models, NULL), 0);
    assert_int_equal(store_jobs(s->store, 100, home_on_jobs, NULL), 0);
    assert_int_equal(store_sessions(s->store, home_on_sessions, NULL), 0);
    UNTIL(h.read);
}

static inline void home_on_closed(void *ctx)
{
    (void)ctx;
    h.closed++;
}

static inline void home_close(void)
{
    home_full(false);
    jobs_stop(h.s.jobs, home_on_closed, NULL);
    models_stop(h.s.models, home_on_closed, NULL);
    UNTIL(h.closed == 2);
    workq_close(h.s.files, home_on_closed, NULL);
    workq_close(h.s.text, home_on_closed, NULL);
    UNTIL(h.closed == 4);
    store_close(h.s.store, home_on_closed, NULL);
    uv_close((uv_handle_t *)&h.s.turn, NULL);
    assert_int_equal(uv_run(&h.s.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(h.closed, 5);
    jobs_free(h.s.jobs);
    sessions_free(h.s.sessions);
    models_free(h.s.models);
    assert_int_equal(uv_loop_close(&h.s.loop), 0);
}

static inline int home_up(void **state)
{
    (void)state;
    memset(&h, 0, sizeof(h));
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemon does */
    (void)snprintf(h.dir, sizeof(h.dir), "/tmp/aned-serve-XXXXXX");
    assert_non_null(mkdtemp(h.dir));
    home_bundle("m");
    home_open();
    return 0;
}

static inline int home_down(void **state)
{
    struct err e = {0};
    (void)state;
    home_close();
    return file_rmtree(h.dir, &e);
}

/* A store_done_fn's last answer. */
static struct {
    int n, rc;
    struct err e;
} told;

static inline void on_told(void *ctx, int rc, const struct err *e)
{
    (void)ctx;
    told.n++;
    told.rc = rc;
    told.e = *e;
}

static inline int wait_told(void)
{
    int n = told.n;
    UNTIL(told.n > n);
    return told.rc;
}
