/* models.c - see models.h: the list and its records. Engines: model_load.c. */
#include "serve/engines/models.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "serve/engines/models_impl.h"
#include "serve/gen/session.h"
#include "serve/engines/residency.h"

#define TO(state) (1u << MODEL_##state)

/* What each state is called, here and by the API, and what may follow it. */
static const struct {
    const char *name, *api;
    unsigned next;
} states[] = {
    [MODEL_READY] = {"ready", "ready",
                     TO(AWAITING) | TO(LOADING) | TO(REJECTED) | TO(FAILED)},
    [MODEL_AWAITING] = {"awaiting", "loading", TO(READY) | TO(FAILED)},
    [MODEL_LOADING] = {"loading", "loading",
                       TO(LOADED) | TO(UNLOADING) | TO(READY) | TO(FAILED)},
    [MODEL_LOADED] = {"loaded", "loaded",
                      TO(UNLOADING) | TO(READY) | TO(FAILED)},
    [MODEL_UNLOADING] = {"unloading", "loaded", TO(READY) | TO(FAILED)},
    [MODEL_REJECTED] = {"rejected", "rejected", TO(READY) | TO(FAILED)},
    [MODEL_FAILED] = {"failed", "failed", TO(READY) | TO(UNLOADING)},
};

const char *model_state_name(enum model_state s)
{
    return states[s].api;
}

static bool warms(const struct model *m)
{
    return m->state == MODEL_LOADING && runner_warms(m->runner);
}

const char *model_shown(const struct model *m)
{
    return m->state == MODEL_READY && m->verify.first ? "unverified"
           : warms(m)                                 ? "warming"
                                      : model_state_name(m->state);
}

const char *model_stage(const struct model *m, double *ret)
{
    *ret = -1;
    if (m->state == MODEL_LOADING) {
        *ret = runner_progress(m->runner);
        return warms(m) ? "warming" : "opening";
    }
    if (m->state != MODEL_AWAITING) {
        return NULL;
    }
    if (m->awaits_check) {
        *ret = m->verify.progress;
        return "verifying";
    }
    if (m->awaits_probe) {
        *ret = m->probe.run != NULL ? probe_run_progress(m->probe.run) : -1;
        return "probing";
    }
    return "room";
}

void model_set(struct model *m, enum model_state s)
{
    must((states[m->state].next & (1u << s)) != 0);
    log_debug("model_state", "model=%s %s -> %s", m->name,
              states[m->state].name, states[s].name);
    m->state = s;
}

struct model *model_of(struct list *l)
{
    return container_of(l, struct model, link);
}

char *model_strdup(const char *s)
{
    if (s == NULL) {
        return NULL;
    }
    char *p = strdup(s);
    must(p != NULL);
    return p;
}

void model_reason(struct model *m, const char *reason)
{
    char *p = model_strdup(reason);
    free(m->reason);
    m->reason = p;
}

void model_watch(struct model *m, struct model_watch *w)
{
    list_push(&m->watchers, &w->link);
}

void model_unwatch(struct model_watch *w)
{
    list_del(&w->link);
}

static void tell_watchers(struct model *m, bool last)
{
    LIST_EACH_SAFE(l, &m->watchers) { /* fn may take its own off */
        struct model_watch *w = container_of(l, struct model_watch, link);
        if (last) {
            list_del(l);
        }
        w->fn(w, m, last);
    }
}

void models_quiet(struct models *ms)
{
    LIST_EACH(l, &ms->all) {
        tell_watchers(model_of(l), true);
    }
}

void model_changed(struct model *m)
{
    tell_watchers(m, false);
}

bool model_listed(const struct model *m)
{
    return !list_empty(&m->link);
}

void model_free(struct model *m)
{
    if (m == NULL) {
        return;
    }
    must(list_empty(&m->waiters) && list_empty(&m->down_waiters));
    tell_watchers(m, true);
    verify_forget(m);
    probe_forget(m);
    m->of->n -= model_listed(m) ? 1 : 0;
    list_del(&m->link);
    runner_free(m->runner);
    voc_unref(m->voc);
    bundle_close(m->bundle);
    free(m->reason);
    free(m->gates);
    free(m);
}

void models_list(struct model *m)
{
    struct list *at = &m->of->all; /* in name order */
    LIST_EACH(l, &m->of->all) {
        if (strcmp(model_of(l)->name, m->name) > 0) {
            at = l;
            break;
        }
    }
    list_push(at, &m->link); /* before `at` */
    m->of->n++;
}

/* The record of a folder; without its bundle. */
static struct model *make(struct models *ms, const char *name)
{
    struct model *m = calloc(1, sizeof(*m));
    must(m != NULL);
    m->of = ms;
    list_init(&m->link);
    list_init(&m->waiters);
    list_init(&m->down_waiters);
    list_init(&m->watchers);
    m->keep_ms = residency_keep(ms);
    const struct conf *c = &ms->srv->conf;
    admit_init(&m->admit, (uint32_t)(c->limits_queue + c->limits_streams));
    (void)snprintf(m->name, sizeof(m->name), "%s", name);
    must(file_join(m->dir, sizeof(m->dir), ms->srv->home.models, name) &&
         file_join(m->prepared, sizeof(m->prepared), ms->srv->home.prepared,
                   name));
    m->voc = voc_new(m->dir);
    m->created_ms = server_unix_ms();
    return m;
}

/* A folder that was there at the start. */
static struct model *found(struct models *ms, const char *name)
{
    struct model *m = make(ms, name);
    struct err e = {0};
    m->adopted = true; /* until a row says otherwise */
    if (bundle_open(m->dir, &m->bundle, &e) != 0) {
        m->bundle = NULL;
        model_set(m, MODEL_FAILED);
        model_reason(m, e.msg);
        log_warn("model_unreadable", "model=%s error=%s, continuing", name,
                 e.msg);
    }
    return m;
}

int models_open(struct server *s, struct models **ret, struct err *e)
{
    struct models *ms = calloc(1, sizeof(*ms));
    must(ms != NULL);
    ms->srv = s;
    ms->budget = residency_budget(&s->conf);
    list_init(&ms->all);
    list_init(&ms->leaving);
    DIR *d = opendir(s->home.models);
    if (d == NULL) {
        free(ms);
        return err_errno(e, errno, s->home.models);
    }
    for (struct dirent *x = readdir(d); x != NULL; x = readdir(d)) {
        char path[HOME_PATH_MAX];
        if (!file_name_ok(x->d_name) ||
            !file_join(path, sizeof(path), s->home.models, x->d_name) ||
            !file_is_dir(path)) {
            continue;
        }
        if (ms->n >= MODELS_MAX) {
            log_warn("models_full", "more than %u models, continuing",
                     MODELS_MAX);
            break;
        }
        models_list(found(ms, x->d_name));
    }
    (void)closedir(d);
    *ret = ms;
    return 0;
}

void models_merge(struct models *ms, const struct store_model *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct model *m = models_find(ms, v[i].name);
        if (m == NULL) { /* its folder went before the row did */
            if (store_model_delete(ms->srv->store, v[i].name, NULL, NULL) !=
                0) {
                log_warn("store_busy", "model=%s row stays, continuing",
                         v[i].name);
            }
            continue;
        }
        m->adopted = false;
        m->created_ms = v[i].created_ms;
        m->used_ms = v[i].used_ms;
        free(m->gates);
        m->gates = model_strdup(v[i].gates);
        (void)snprintf(m->job, sizeof(m->job), "%s", v[i].job);
        if (m->bundle == NULL) {
            continue;
        }
        model_reason(m, v[i].reason);
        if (strcmp(v[i].state, "rejected") == 0) {
            model_set(m, MODEL_REJECTED);
        } else if (strcmp(v[i].state, "failed") == 0) {
            model_set(m, MODEL_FAILED);
        }
    }
}

void models_tidy(struct models *ms)
{
    const char *all = ms->srv->home.prepared;
    DIR *d = opendir(all);
    for (struct dirent *x = NULL; d != NULL && (x = readdir(d)) != NULL;) {
        char path[HOME_PATH_MAX];
        if (x->d_name[0] != '.' && models_find(ms, x->d_name) == NULL &&
            file_join(path, sizeof(path), all, x->d_name)) {
            models_remove_tree(ms->srv, path);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
}

void models_free(struct models *ms)
{
    if (ms == NULL) {
        return;
    }
    verify_end(ms);
    while (!list_empty(&ms->all)) {
        model_free(model_of(ms->all.next));
    }
    probes_free(ms);
    free(ms);
}

struct model *models_find(struct models *ms, const char *name)
{
    LIST_EACH(l, &ms->all) {
        if (strcmp(model_of(l)->name, name) == 0) {
            return model_of(l);
        }
    }
    return NULL;
}

struct model *models_only(struct models *ms)
{
    return ms->n == 1 ? model_of(ms->all.next) : NULL;
}

struct model *models_first(struct models *ms)
{
    return list_empty(&ms->all) ? NULL : model_of(ms->all.next);
}

struct model *models_next(struct model *m)
{
    return m->link.next == &m->of->all ? NULL : model_of(m->link.next);
}

size_t models_count(const struct models *ms)
{
    return ms->n;
}

struct model *model_new(struct models *ms, const char *name, struct bundle *b)
{
    struct model *m = make(ms, name);
    m->bundle = b;
    return m;
}

void model_judge(struct model *m, bool rejected, const char *reason,
                 const char *gates, const char *job)
{
    if (rejected) {
        model_set(m, MODEL_REJECTED);
    }
    model_reason(m, reason);
    free(m->gates);
    m->gates = model_strdup(gates);
    (void)snprintf(m->job, sizeof(m->job), "%s", job);
}

void model_row(const struct model *m, struct store_model *ret)
{
    /* what a probe rejects, another machine or backend may run */
    bool bad = (m->state == MODEL_REJECTED && !m->probe.rejected) ||
               m->state == MODEL_FAILED;
    enum model_state s = bad ? m->state : MODEL_READY;
    *ret = (struct store_model){
        .reason = m->probe.rejected ? NULL : m->reason,
        .gates = m->gates,
        .bytes = m->bundle != NULL ? m->bundle->total_bytes : 0,
        .created_ms = m->created_ms,
        .used_ms = m->used_ms,
    };
    (void)snprintf(ret->name, sizeof(ret->name), "%s", m->name);
    (void)snprintf(ret->state, sizeof(ret->state), "%s", model_state_name(s));
    (void)snprintf(ret->job, sizeof(ret->job), "%s", m->job);
    (void)snprintf(ret->fingerprint, sizeof(ret->fingerprint), "%s",
                   m->bundle != NULL ? m->bundle->fingerprint : "");
}

void model_saved(void *ctx, int status, const struct err *e)
{
    (void)ctx;
    if (status != 0) {
        log_error("model_not_saved", "error=%s: %s", err_name(status),
                  e != NULL ? e->msg : "");
    }
}

void model_save(struct model *m)
{
    struct store_model row;
    model_row(m, &row);
    if (m->deleting) {
        return;
    }
    if (store_model_put(m->of->srv->store, &row, NULL, 0, model_saved, NULL) !=
        0) {
        log_warn("store_busy", "model=%s state not saved, continuing", m->name);
    }
}

void model_use(struct model *m)
{
    m->users++;
    if (m->of->n_used++ == 0) {
        verify_busy(m->of);
        probe_busy(m->of);
    }
    m->of->untrimmed = true;
    m->used_us = server_now_us();
    m->used_ms = server_unix_ms();
}

void model_unuse(struct model *m)
{
    must(m->users > 0);
    m->users--;
    if (--m->of->n_used == 0) {
        verify_busy(m->of);
        probe_busy(m->of);
    }
    m->used_us = server_now_us();
    residency_changed(m->of);
}
