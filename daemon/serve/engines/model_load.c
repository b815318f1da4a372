/* model_load.c - models' engines: load, unload, crash policy. See models.h. */
#include <string.h>

#include "base/log.h"
#include "sched/shed.h"
#include "serve/engines/models_impl.h"
#include "serve/engines/residency.h"

static bool is_up(const struct model *m)
{
    return m->runner != NULL && runner_state(m->runner) == RUNNER_UP;
}

static bool is_down(const struct model *m)
{
    return m->runner == NULL || runner_state(m->runner) == RUNNER_DOWN;
}

static void tell(struct list *waiters, int rc, const struct err *e)
{
    struct list mine; /* fn may wait again: those are for the next round */
    list_init(&mine);
    while (!list_empty(waiters)) {
        struct list *l = waiters->next;
        list_del(l);
        list_push(&mine, l);
    }
    while (!list_empty(&mine)) {
        struct model_wait *w = container_of(mine.next, struct model_wait, link);
        model_unwait(w);
        w->fn(w, rc, e);
    }
}

/* Nobody starts its engine again for those that are on it. Requests whose text
 * is still being tokenised find out by model_serves(). */
static void give_up(struct model *m, int rc, const struct err *e)
{
    if (m->runner != NULL) {
        runner_fail_all(m->runner, rc, e->msg);
    }
    tell(&m->waiters, rc, e);
}

static void on_up(void *ctx)
{
    struct model *m = ctx;
    struct err e = {0};
    if (model_going(m)) {
        return; /* told to leave while it came up: on_down looks who waits */
    }
    model_set(m, MODEL_LOADED);
    m->used_us = server_now_us();
    int rc = residency_settle(m, &e);
    if (rc != 0 && sched_idle(runner_sched(m->runner))) {
        model_reason(m, e.msg);
        log_warn("model_too_big", "model=%s %s, continuing", m->name, e.msg);
        model_set(m, MODEL_UNLOADING);
        runner_stop(m->runner);
        give_up(m, rc, &e);
        return;
    }
    model_reason(m, NULL);
    log_info("model_loaded", "model=%s pid=%d ms=%u", m->name,
             runner_pid(m->runner), runner_ready(m->runner)->load_ms);
    model_changed(m);
    const struct sched_conf *c = &runner_sched(m->runner)->conf;
    m->admit.limit = c->queue + c->running; /* fewer may run than was hoped */
    admit_settle(&m->admit);
    tell(&m->waiters, 0, &e);
    residency_changed(m->of);
    verify_loaded(m);
}

static void on_progress(void *ctx)
{
    model_changed(ctx);
}

static unsigned note_crash(struct model *m)
{
    uint64_t now = server_now_us();
    unsigned n = 1;
    for (size_t i = ENGINE_CRASHES_MAX - 1; i > 0; i--) {
        m->crashes_us[i] = m->crashes_us[i - 1];
        if (m->crashes_us[i] != 0 &&
            now - m->crashes_us[i] < ENGINE_CRASH_WINDOW_US) {
            n++;
        }
    }
    m->crashes_us[0] = now;
    return n;
}

void models_maybe_closed(struct models *ms)
{
    if (ms->closed == NULL) {
        return;
    }
    LIST_EACH(l, &ms->all) {
        if (!is_down(model_of(l))) {
            return;
        }
    }
    if (ms->n_leaving > 0 || ms->n_deleting > 0) {
        return;
    }
    void (*fn)(void *) = ms->closed;
    ms->closed = NULL;
    fn(ms->ctx);
}

/* The engine died by itself: start it again, unless it keeps dying. */
static void on_crash(struct model *m, const struct err *e)
{
    struct stats *st = &m->of->srv->stats;
    struct err why = *e;
    unsigned n = note_crash(m);
    bool needed = m->users > 0;
    log_warn("engine_crashed", "model=%s crash=%u of %u: %s, continuing",
             m->name, n, ENGINE_CRASHES_MAX, e->msg);
    if (n >= ENGINE_CRASHES_MAX) {
        st->engine_failures++;
        model_set(m, MODEL_FAILED);
        (void)err_prefix(&why, ERR_MODEL_FAILED, "%u crashes, the last one", n);
        model_reason(m, why.msg);
        model_save(m);
        give_up(m, ERR_MODEL_FAILED, &why);
        return;
    }
    model_set(m, MODEL_READY);
    if (!needed) {
        return; /* the next use loads it */
    }
    st->engine_restarts++;
    model_set(m, MODEL_LOADING);
    int rc = runner_start(m->runner, &why);
    if (rc != 0) {
        model_set(m, MODEL_READY);
        give_up(m, rc, &why);
    }
}

static int start(struct model *m, struct err *e);

/* Room was made: start those that waited for it. */
static void start_awaiting(struct models *ms)
{
    LIST_EACH(l, &ms->all) {
        struct model *m = model_of(l);
        struct err why = {0};
        int rc = 0;
        if (m->state != MODEL_AWAITING || m->awaits_check ||
            m->awaits_probe) {
            continue;
        }
        model_set(m, MODEL_READY);
        if (ms->stopping) {
            rc = err_set(&why, ERR_INTERRUPTED, "the daemon stops");
        } else if (!list_empty(&m->waiters)) {
            rc = start(m, &why);
        }
        if (rc != 0) {
            give_up(m, rc, &why);
        }
        model_changed(m);
    }
}

/* Somebody asked for the model while its engine was on the way out. */
static void after_unload(struct model *m)
{
    struct err why = {0};
    int rc = 0;
    if (list_empty(&m->waiters)) {
        return;
    }
    if (m->of->stopping) {
        rc = err_set(&why, ERR_INTERRUPTED, "the daemon stops");
    } else {
        rc = start(m, &why);
    }
    if (rc != 0) {
        give_up(m, rc, &why);
    }
}

static void on_down(void *ctx, int rc, const struct err *e)
{
    struct model *m = ctx;
    struct models *ms = m->of;
    static const struct err none;
    if (m->state == MODEL_FAILED) {
        rc = 0; /* condemned: how its engine ended is no matter */
    }
    if (m->leaving) {
        tell(&m->down_waiters, 0, &none);
        ms->n_leaving--;
        ms->n++; /* model_free counts down */
        model_free(m);
        start_awaiting(ms);
        residency_changed(ms);
        models_maybe_closed(ms);
        return;
    }
    if (rc == ERR_ENGINE_LOST && !ms->stopping) {
        on_crash(m, e);
    } else if (rc != 0) { /* it said why it cannot load */
        struct err why = *e;
        model_set(m, MODEL_READY);
        model_reason(m, e->msg);
        log_warn("model_load_failed", "model=%s error=%s: %s, continuing",
                 m->name, err_name(rc), e->msg);
        give_up(m, rc, &why);
        verify_loaded(m); /* its files may be why */
    } else if (m->state == MODEL_FAILED) { /* condemned */
        log_info("model_unloaded", "model=%s", m->name);
    } else {
        model_set(m, MODEL_READY);
        m->keep_ms = residency_keep(ms);
        m->keep_asked = false;
        log_info("model_unloaded", "model=%s", m->name);
        after_unload(m);
    }
    model_changed(m);
    tell(&m->down_waiters, 0, &none);
    start_awaiting(ms);
    residency_changed(ms);
    models_maybe_closed(ms);
}

static void flush(void *ctx)
{
    const struct model *m = ctx;
    server_flush(m->of->srv);
}

static struct runner_conf conf_of(const struct model *m)
{
    const struct conf *c = &m->of->srv->conf;
    return (struct runner_conf){
        .loop = &m->of->srv->loop,
        .turn = &m->of->srv->runners,
        .stats = &m->of->srv->stats,
        .program = c->engine_program[0] != '\0' ? c->engine_program : NULL,
        .backend = c->engine_backend,
        .prepared = m->prepared,
        .margin = (float)c->engine_margin / 1000,
        .threads = (uint32_t)c->engine_threads,
        .chunk = (uint32_t)c->engine_prefill_chunk,
        .streams = (uint32_t)c->limits_streams,
        .queue = (uint32_t)c->limits_queue,
        .sessions = (uint32_t)c->cache_sessions,
        .max_draft = (uint32_t)c->speculation_max_draft,
        .ngram_min = (uint32_t)c->speculation_ngram_min,
        .share_tokens = (uint32_t)c->speculation_share_tokens,
        .step_ms = (uint32_t)c->engine_step_ms,
        .state_bytes = m->grant_bytes,
        .cache = m->of->srv->cache,
        .fingerprint = m->bundle->fingerprint,
        .cache_tokens = (uint32_t)c->cache_disk_tokens,
    };
}

static void make_runner(struct model *m)
{
    struct runner_owner o = {.ctx = m,
                             .on_up = on_up,
                             .on_down = on_down,
                             .on_progress = on_progress,
                             .flush = flush};
    m->grant_bytes = residency_grant(m);
    struct runner_conf rc = conf_of(m);
    m->runner = runner_new(&rc, m->dir, &o);
    m->conf_seen = m->of->srv->reload.n_load;
}

/* Options have changed since it was made. While it has streams it stays as it
 * is. */
static void renew_runner(struct model *m)
{
    uint64_t had = m->grant_bytes;
    m->grant_bytes = residency_grant(m);
    struct runner_conf rc = conf_of(m);
    if (!runner_renew(m->runner, &rc)) {
        m->grant_bytes = had;
        return;
    }
    m->admit.limit = rc.queue + rc.streams;
    admit_settle(&m->admit);
    m->conf_seen = m->of->srv->reload.n_load;
}

void model_set_conf(struct model *m)
{
    struct runner_conf rc = conf_of(m);
    if (m->runner != NULL) {
        runner_set_conf(m->runner, &rc);
    }
    if (!m->keep_asked) {
        m->keep_ms = residency_keep(m->of);
    }
}

void models_retry(struct models *ms)
{
    start_awaiting(ms);
}

/* What its load waited for is over. */
static void go_on(struct model *m, const struct err *e)
{
    struct err why = {0};
    int rc = 0;
    model_set(m, MODEL_READY);
    if (e != NULL) {
        why = *e;
        rc = why.code;
    } else { /* also when those who asked have left, as any load goes on */
        rc = start(m, &why);
    }
    if (rc != 0) {
        give_up(m, rc, &why);
    }
    model_changed(m);
}

void model_checked(struct model *m, const struct err *e)
{
    if (m->awaits_check) {
        m->awaits_check = false;
        go_on(m, e);
    } else {
        model_changed(m);
    }
}

void model_probed(struct model *m, const struct err *e)
{
    if (m->awaits_probe) {
        m->awaits_probe = false;
        go_on(m, e);
    }
}

void model_condemn(struct model *m, const struct err *e, const char *reason)
{
    m->awaits_check = false;
    m->awaits_probe = false;
    m->probe.rejected = false;
    if (m->state != MODEL_FAILED) {
        model_set(m, MODEL_FAILED);
    }
    model_reason(m, reason);
    model_save(m);
    if (!is_down(m)) {
        runner_stop(m->runner); /* on_down comes later */
    }
    give_up(m, ERR_MODEL_FAILED, e);
    model_changed(m);
}

static int start(struct model *m, struct err *e)
{
    probe_yield(m);
    int rc = residency_room(m, e);
    if (rc == 0) { /* start_awaiting() comes back */
        model_set(m, MODEL_AWAITING);
        model_changed(m);
        return 0;
    }
    if (rc < 0) {
        return rc;
    }
    if (verify_holds(m)) { /* model_checked() comes back */
        model_set(m, MODEL_AWAITING);
        model_changed(m);
        return 0;
    }
    rc = probe_holds(m, e);
    if (rc > 0) { /* model_probed() comes back */
        model_set(m, MODEL_AWAITING);
        model_changed(m);
        return 0;
    }
    if (rc < 0) {
        return rc;
    }
    if (m->runner == NULL) {
        make_runner(m);
    } else if (m->conf_seen != m->of->srv->reload.n_load) {
        renew_runner(m);
    }
    struct msg_widths layers;
    struct msg_widths heads;
    probe_widths_of(m, &layers, &heads);
    runner_set_widths(m->runner, &layers, &heads);
    rc = runner_start(m->runner, e);
    if (rc == 0) {
        model_set(m, MODEL_LOADING);
        log_info("model_loading", "model=%s pid=%d", m->name,
                 runner_pid(m->runner));
        model_changed(m);
        residency_changed(m->of);
    }
    return rc;
}

static void wait_on(struct model *m, struct model_wait *w, struct list *l,
                    bool uses)
{
    w->model = m;
    w->uses = uses;
    m->users += uses ? 1 : 0;
    list_push(l, &w->link);
}

int model_load(struct model *m, bool explicit_, struct model_wait *w,
               struct err *e)
{
    int rc = 0;
    if (m->deleting || m->of->stopping) {
        return err_set(e, ERR_UNAVAILABLE, "%s is going away", m->name);
    }
    if (m->probe.rejected && explicit_) {
        m->probe.rejected = false;
        m->probe.again = true;
        model_set(m, MODEL_READY);
        model_reason(m, NULL);
    }
    if (m->state == MODEL_REJECTED) {
        return err_set(e, ERR_REJECTED, "%s: %s", m->name,
                       m->reason != NULL ? m->reason : "a gate failed");
    }
    if (m->state == MODEL_FAILED && (!explicit_ || m->bundle == NULL)) {
        return err_set(e, ERR_MODEL_FAILED, "%s: %s", m->name,
                       m->reason != NULL ? m->reason : "its engine failed");
    }
    if (m->state == MODEL_FAILED) {
        memset(m->crashes_us, 0, sizeof(m->crashes_us));
        m->verify.first = true; /* damage kills engines too */
        model_set(m, is_down(m) ? MODEL_READY : MODEL_UNLOADING);
        model_reason(m, NULL);
        model_save(m);
    }
    if (is_up(m) && !model_going(m)) {
        return 1;
    }
    if (is_down(m) && m->state != MODEL_AWAITING) {
        rc = start(m, e);
    }
    if (rc == 0) {
        wait_on(m, w, &m->waiters, true);
    }
    return rc;
}

int model_serves(const struct model *m, struct err *e)
{
    if (!is_down(m) && !model_going(m)) {
        return 0;
    }
    int rc = m->state == MODEL_FAILED ? ERR_MODEL_FAILED : ERR_ENGINE_LOST;
    return err_set(e, rc, "%s: %s", m->name,
                   m->reason != NULL ? m->reason : "its engine is gone");
}

void model_unwait(struct model_wait *w)
{
    if (w->model != NULL) {
        w->model->users -= w->uses ? 1 : 0;
        w->model = NULL;
        list_del(&w->link);
    }
}

int model_unload(struct model *m, struct model_wait *w, struct err *e)
{
    if (m->users > 0) {
        return err_set(e, ERR_CONFLICT, "%s is in use by %u requests", m->name,
                       m->users);
    }
    if (is_down(m)) { /* also when it awaits room for nobody any more */
        return 1;
    }
    if (!model_going(m)) {
        model_set(m, MODEL_UNLOADING);
        runner_stop(m->runner);
    }
    wait_on(m, w, &m->down_waiters, false);
    return 0;
}

void models_stop(struct models *ms, void (*closed)(void *ctx), void *ctx)
{
    const struct err stops = {.code = ERR_INTERRUPTED,
                              .msg = "the daemon stops"};
    ms->stopping = true;
    ms->closed = closed;
    ms->ctx = ctx;
    verify_stop(ms);
    probes_stop(ms);
    LIST_EACH(l, &ms->all) {
        struct model *m = model_of(l);
        if (!is_down(m)) {
            runner_stop(m->runner);
        }
        if (m->awaits_check) {
            model_checked(m, &stops);
        }
        model_probed(m, &stops);
    }
    residency_stop(ms);
    start_awaiting(ms);
    models_maybe_closed(ms);
}
