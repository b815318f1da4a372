/* server.c - see server.h.
 *
 * Parts are closed in an order in which each can still use the later ones:
 *   listeners and connections -> jobs, engines -> worker threads -> store.
 */
#include "serve/server.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "convert/work.h"
#include "serve/engines/cache.h"
#include "serve/engines/runner.h"
#include "serve/gen/resume.h"
#include "serve/gen/session.h"
#include "serve/jobs/jobs.h"
#include "serve/listeners.h"
#include "serve/notify.h"

#define FILE_WORK_MAX 1024u
#define DRAIN_POLL_MS 20u
#define TCP_CONNS     (HTTP_TCP_MAX * HTTP_TCP_CONNS_MAX)

uint64_t server_now_us(void)
{
    return uv_hrtime() / 1000;
}

int64_t server_unix_ms(void)
{
    struct timespec ts = {0};
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void server_flush(struct server *s)
{
    for (size_t i = 0; i < s->n_http && !s->closing; i++) {
        http_flush(s->http[i]);
    }
}

/* --- start --- */

/* Room for every connection; no core files: they would hold prompts. */
static void set_limits(void)
{
    struct rlimit r;
    rlim_t want = HTTP_CONNS_MAX + TCP_CONNS + SERVE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < want) {
        r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
        if (setrlimit(RLIMIT_NOFILE, &r) != 0) {
            log_warn("nofile", "limit stays low, continuing");
        }
    }
    r.rlim_cur = 0;
    if (getrlimit(RLIMIT_CORE, &r) == 0) {
        r.rlim_cur = 0;
        (void)setrlimit(RLIMIT_CORE, &r);
    }
}

void server_set_times(struct server *s)
{
    for (size_t i = 0; i < s->n_http; i++) {
        http_set_times(s->http[i], (unsigned)s->conf.http_stall_ms,
                       (unsigned)s->conf.http_keepalive_ms);
    }
}

/* --- end --- */

static void on_store_closed(void *ctx)
{
    struct server *s = ctx;
    s->store = NULL;
}

static void on_worker_closed(void *ctx)
{
    struct server *s = ctx;
    if (--s->open > 0) {
        return;
    }
    if (s->store != NULL) {
        store_close(s->store, on_store_closed, s);
    }
}

static void on_part_closed(void *ctx)
{
    struct server *s = ctx;
    if (--s->open > 0) {
        return;
    }
    s->open = 2;
    workq_close(s->text, on_worker_closed, s);
    workq_close(s->files, on_worker_closed, s);
}

static void on_http_closed(void *ctx)
{
    struct server *s = ctx;
    if (--s->open > 0) {
        return;
    }
    s->n_http = 0;
    s->open = 2;
    resumes_stop(s->resumes); /* they still generate */
    s->resumes = NULL;
    if (s->jobs == NULL || s->models == NULL) { /* a start that failed */
        s->open = 1;
        on_part_closed(s);
        return;
    }
    jobs_stop(s->jobs, on_part_closed, s);
    models_stop(s->models, on_part_closed, s);
}

static void close_signal(uv_signal_t *h)
{
    if (!uv_is_closing((uv_handle_t *)h)) {
        uv_close((uv_handle_t *)h, NULL);
    }
}

static void close_all(struct server *s)
{
    if (s->closing) {
        return;
    }
    s->closing = true;
    close_signal(&s->sigterm);
    close_signal(&s->sigint);
    reload_stop(s);
    notify("STOPPING=1");
    uv_close((uv_handle_t *)&s->drain, NULL);
    uv_close((uv_handle_t *)&s->turn, NULL);
    meter_stop(&s->meter);
    s->open = (unsigned)s->n_http + 1;
    for (size_t i = 0; i < s->n_http; i++) {
        http_close(s->http[i], on_http_closed, s);
    }
    on_http_closed(s); /* also when there was no listener */
}

static void on_drain(uv_timer_t *t)
{
    struct server *s = container_of(t, struct server, drain);
    size_t open = 0;
    for (size_t i = 0; i < s->n_http; i++) {
        open += http_open_requests(s->http[i]);
    }
    open += resumes_running(s->resumes);
    if (open == 0 || server_now_us() >= s->drain_until_us) {
        if (open > 0) {
            log_warn("drain_over", "requests=%zu are cut off", open);
        }
        close_all(s);
    }
}

void server_stop(struct server *s)
{
    /* asked twice, or nothing runs that could end */
    if (s->draining || s->reload.trouble.code != 0) {
        close_all(s);
        return;
    }
    s->draining = true;
    notify("STOPPING=1\nSTATUS=open requests may end");
    http_hold_refuse(&s->hold, ERR_UNAVAILABLE, "the daemon is stopping");
    log_info("draining", "ms=%d", (int)s->conf.server_drain_ms);
    for (size_t i = 0; i < s->n_http; i++) {
        http_drain(s->http[i]);
    }
    jobs_quiet(s->jobs);
    models_quiet(s->models);
    s->drain_until_us =
        server_now_us() + (uint64_t)s->conf.server_drain_ms * 1000;
    must(uv_timer_start(&s->drain, on_drain, 0, DRAIN_POLL_MS) == 0);
}

static void on_signal(uv_signal_t *h, int signum)
{
    log_info("signal", "number=%d", signum);
    server_stop(uv_handle_get_data((uv_handle_t *)h));
}

/* --- what the store knows --- */

static void set_ready(struct server *s)
{
    if (s->draining || s->closing) {
        return;
    }
    s->ready = true;
    notify("READY=1\nSTATUS=");
    log_info("ready", "version=%s models=%zu home=%s", ANED_VERSION,
             models_count(s->models), s->home.dir);
    models_preload(s->models);
    http_hold_end(&s->hold);
}

/* A read came back. true: use it. */
static bool is_read(struct server *s, const char *what, int status)
{
    if (status != 0 && !s->closing) {
        log_error("store_unread", "what=%s error=%s", what, err_name(status));
        (void)err_set(&s->why, status, "%s could not be read", s->home.db);
        close_all(s);
    }
    return !s->closing;
}

static void count_read(struct server *s)
{
    if (--s->reads == 0) {
        set_ready(s);
    }
}

static void on_models(void *ctx, int status, const struct store_model *v,
                      size_t n)
{
    struct server *s = ctx;
    if (is_read(s, "models", status)) {
        models_merge(s->models, v, n);
        models_tidy(s->models);
        count_read(s);
    }
}

static void on_jobs(void *ctx, int status, const struct store_job *v, size_t n)
{
    struct server *s = ctx;
    if (is_read(s, "jobs", status)) {
        jobs_load(s->jobs, v, n);
        count_read(s);
    }
}

static void on_residency(void *ctx, int status,
                         const struct store_residency *v, size_t n)
{
    struct server *s = ctx;
    if (is_read(s, "reports", status)) {
        probes_load(s->models, v, n);
        count_read(s);
    }
}

static void on_sessions(void *ctx, int status, const struct store_session *v,
                        size_t n)
{
    struct server *s = ctx;
    if (is_read(s, "sessions", status)) {
        sessions_load(s->sessions, v, n);
        count_read(s);
    }
}

/* Answered in this order: models, then the jobs that made them, then what was
 * measured of them. */
static int read_store(struct server *s)
{
    s->reads = 4;
    RETERR(store_models(s->store, on_models, s));
    RETERR(store_jobs(s->store, JOBS_LISTED_MAX, on_jobs, s));
    RETERR(store_residency(s->store, NULL, on_residency, s));
    return store_sessions(s->store, on_sessions, s);
}

struct sweep {
    struct work work;
    char staging[HOME_PATH_MAX];
};

static void sweep_run(struct work *w) /* file thread */
{
    work_sweep_homes(container_of(w, struct sweep, work)->staging);
}

static void sweep_done(struct work *w)
{
    free(container_of(w, struct sweep, work));
}

/* Works that a conversion may go on with stay, within limits. */
static void sweep_works(struct server *s)
{
    struct sweep *w = calloc(1, sizeof(*w));
    must(w != NULL);
    w->work = (struct work){.run = sweep_run, .done = sweep_done};
    memcpy(w->staging, s->home.staging, sizeof(w->staging));
    if (workq_put(s->files, &w->work) != 0) {
        free(w); /* the next start does it */
    }
}

/* What the daemon's last run left in staging, unfinished bundles and deleted
 * models, goes; works stay. They are moved at once, before anything is put
 * there, and removed later. A second crash finds them again. */
static void sweep_staging(struct server *s)
{
    char away[HOME_PATH_MAX];
    char id[40];
    struct err e = {0};
    store_new_id("old", id);
    DIR *d = opendir(s->home.staging);
    if (d == NULL || !file_join(away, sizeof(away), s->home.staging, id) ||
        file_mkdirs(away, 0700, &e) != 0) {
        log_warn("staging", "cannot be emptied, continuing");
        away[0] = '\0';
    }
    for (struct dirent *it = NULL;
         d != NULL && away[0] != '\0' && (it = readdir(d)) != NULL;) {
        char from[HOME_PATH_MAX];
        char to[HOME_PATH_MAX];
        const char *n = it->d_name;
        if (strcmp(n, ".") != 0 && strcmp(n, "..") != 0 && strcmp(n, id) != 0 &&
            !work_is_home(n) &&
            file_join(from, sizeof(from), s->home.staging, n) &&
            file_join(to, sizeof(to), away, n) && rename(from, to) != 0) {
            log_warn("staging", "%s stays, continuing", n);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    if (away[0] != '\0') {
        models_remove_tree(s, away);
    }
    sweep_works(s);
}

struct cache_conf server_cache_conf(const struct server *s)
{
    return (struct cache_conf){
        .dir = s->home.states,
        .bytes_max = (uint64_t)s->conf.cache_disk_mib << 20,
        .write_max = (uint64_t)s->conf.cache_write_mib_per_hour << 20,
        .tokens_min = (uint32_t)s->conf.cache_disk_tokens,
        .files = s->files,
    };
}

/* Saved states are a convenience: without them the daemon serves as well. */
static void open_cache(struct server *s)
{
    struct err e = {0};
    const struct cache_conf c = server_cache_conf(s);
    if (cache_open(&c, server_unix_ms(), &s->cache, &e) != 0) {
        log_warn("states", "error=%s: %s, continuing without", err_name(e.code),
                 e.msg);
    }
}

/* The folders are there. */
static int open_parts(struct server *s, struct err *e)
{
    RETERR(store_open(&s->loop, s->home.db, &s->store, e));
    s->resumes = resumes_new(s);
    sweep_staging(s);
    open_cache(s);
    s->sessions = sessions_new(s);
    RETERR(models_open(s, &s->models, e));
    verify_start(s->models);
    probes_start(s->models);
    RETERR(jobs_new(s, &s->jobs));
    models_start(s->models);
    RETERR(read_store(s));
    return listeners_open(s, e);
}

static int open_all(struct server *s, struct err *e)
{
    const struct server_conf *c = s->given;
    struct err why = c->trouble;
    RETERR(listeners_find(s, e));
    if (why.code == 0 && home_make(&s->home, &why) == 0 &&
        listeners_open_tcp(s, &s->conf, &s->home, &why) == 0) {
        return open_parts(s, e);
    }
    if (!c->service) {
        *e = why;
        return why.code;
    }
    RETERR(listeners_open(s, e));
    reload_trouble(s, &why);
    return 0;
}

void server_mended(struct server *s, const struct conf *c, const struct home *h)
{
    bool moved = s->own != NULL && strcmp(h->socket, s->home.socket) != 0;
    s->conf = *c;
    s->home = *h;
    http_hold_begin(&s->hold, HTTP_HELD_MAX, "/health");
    server_set_times(s);
    if (moved) {
        listeners_drop_own(s);
    }
    if (open_parts(s, &s->why) != 0) {
        close_all(s);
    }
}

static void on_turn(uv_prepare_t *h)
{
    runner_turn(&container_of(h, struct server, turn)->runners);
}

static void start_handles(struct server *s)
{
    list_init(&s->runners);
    meter_start(&s->meter, &s->loop);
    must(uv_timer_init(&s->loop, &s->drain) == 0);
    must(uv_prepare_init(&s->loop, &s->turn) == 0);
    must(uv_prepare_start(&s->turn, on_turn) == 0);
    uv_unref((uv_handle_t *)&s->turn);
    uv_signal_t *h[] = {&s->sigterm, &s->sigint};
    const int number[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < countof(h); i++) {
        must(uv_signal_init(&s->loop, h[i]) == 0);
        uv_handle_set_data((uv_handle_t *)h[i], s);
        must(uv_signal_start(h[i], on_signal, number[i]) == 0);
    }
}

int server_run(const struct server_conf *c, struct err *e)
{
    struct server *s = calloc(1, sizeof(*s));
    must(s != NULL);
    s->given = c;
    s->conf = c->read.conf;
    s->home = c->read.home;
    s->reload.source = c->source;
    (void)snprintf(s->reload.file, sizeof(s->reload.file), "%s", c->read.file);
    s->stats.started_us = server_now_us();
    s->stats.started_unix_ms = server_unix_ms();
    set_limits();
    http_hold_begin(&s->hold, HTTP_HELD_MAX, "/health");
    must(uv_loop_init(&s->loop) == 0);
    start_handles(s);
    s->text = workq_new(&s->loop, TEXT_QUEUE_MAX);
    s->files = workq_new(&s->loop, FILE_WORK_MAX);
    reload_start(s);
    if (open_all(s, &s->why) != 0) {
        close_all(s);
    }
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    int rc = s->why.code;
    if (rc != 0) {
        *e = s->why;
    }
    jobs_free(s->jobs);
    sessions_free(s->sessions);
    models_free(s->models);
    cache_free(s->cache);
    must(uv_loop_close(&s->loop) == 0); /* else a handle leaked */
    free(s);
    log_info("stopped", "rc=%s", rc == 0 ? "ok" : err_name(rc));
    return rc;
}
