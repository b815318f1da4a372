/* native_models.c - /aned/v1: models and status. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "model/tags.h"
#include "serve/engines/residency.h"

static void put_source(struct json *o, const struct bundle *b)
{
    struct json *x = json_add_object(o, "source");
    json_add_str(x, "name", b->source_name != NULL ? b->source_name : "");
    json_add_int(x, "bytes", (int64_t)b->source_bytes);
    json_add_str(x, "sha256", b->source_sha256);
}

/* The classes of its labels, as requests name them. */
static void put_labels(struct json *o, const struct bundle *b)
{
    struct json *list = json_add_array(o, "labels");
    struct tags *t = NULL;
    struct err e = {0};
    if (tags_open(b->labels, b->n_labels, &t, &e) == 0) {
        for (uint32_t i = 0; i < tags_classes(t); i++) {
            json_add_str(list, NULL, tags_class(t, i));
        }
    }
    tags_close(t);
}

static void put_bundle(struct json *o, const struct bundle *b)
{
    json_add_str(o, "architecture", b->architecture);
    json_add_str(o, "kind", b->encoder ? "encoder" : "decoder");
    if (b->n_labels > 0) {
        put_labels(o, b);
    }
    json_add_str(o, "quant", b->quant);
    json_add_str(o, "shape", b->shape);
    json_add_str(o, "kv", b->kv);
    if (bundle_experts(b) != NULL) {
        json_add_str(o, "experts", bundle_experts(b));
    }
    json_add_str(o, "output", b->argmax ? "argmax" : "logits");
    json_add_int(o, "context", (int64_t)b->context);
    json_add_int(o, "context_train", (int64_t)b->context_train);
    json_add_int(o, "layers", (int64_t)b->n_layers);
    json_add_int(o, "d_model", (int64_t)b->d_model);
    json_add_int(o, "vocab", (int64_t)b->vocab);
    json_add_int(o, "shards", (int64_t)b->n_shards);
    json_add_int(o, "heads", (int64_t)b->n_heads_shards);
    json_add_int(o, "bytes", (int64_t)b->total_bytes);
    json_add_str(o, "fingerprint", b->fingerprint);
    json_add_num(o, "residual_scale", (double)b->residual_scale);
    json_add_num(o, "margin", b->margin);
    put_source(o, b);
}

static void put_engine(struct json *o, struct model *m)
{
    if (m->runner == NULL || runner_state(m->runner) == RUNNER_DOWN) {
        json_add_null(o, "engine");
        return;
    }
    struct json *x = json_add_object(o, "engine");
    const struct msg_ready *t = runner_ready(m->runner);
    const struct sched *d = runner_sched(m->runner);
    bool up = runner_state(m->runner) == RUNNER_UP;
    json_add_int(x, "pid", runner_pid(m->runner));
    json_add_num(x, "progress", runner_progress(m->runner));
    json_add_int(x, "bytes", (int64_t)model_bytes(m));
    json_add_int(x, "resident_bytes", (int64_t)model_resident_bytes(m));
    if (!up) {
        return;
    }
    json_add_int(x, "load_ms", (int64_t)t->load_ms);
    json_add_str(x, "arith", t->arith);
    json_add_bool(x, "exact", t->exact);
    struct runner_troubles bad;
    runner_troubles(m->runner, &bad);
    json_add_int(x, "packages_on_cpu", (int64_t)bad.on_cpu);
    json_add_int(x, "packages_reopened", (int64_t)bad.reopened);
    if (bad.why[0] != '\0') {
        json_add_str(x, "last_failure", bad.why);
    }
    json_add_int(x, "weight_bytes", (int64_t)t->weight_bytes);
    json_add_int(x, "state_bytes", (int64_t)t->state_bytes);
    json_add_int(x, "scratch_bytes", (int64_t)m->scratch_bytes);
    json_add_int(x, "t_max", (int64_t)t->t_max);
    json_add_int(x, "batch_max", (int64_t)t->batch_max);
    json_add_int(x, "sequences", (int64_t)d->conf.seqs);
    json_add_int(x, "running", (int64_t)d->n_running);
    json_add_int(x, "waiting", (int64_t)d->n_waiting);
    json_add_int(x, "warm", (int64_t)sched_warm(d));
}

/* Milliseconds, or null where there is no limit. */
static void put_ms(struct json *o, const char *key, int64_t ms)
{
    if (ms < 0) {
        json_add_null(o, key);
    } else {
        json_add_int(o, key, ms);
    }
}

static void put_residency(struct json *o, struct model *m)
{
    json_add_bool(o, "pinned", m->pinned);
    put_ms(o, "keep_alive_ms", m->pinned ? KEEP_FOREVER : m->keep_ms);
    put_ms(o, "leaves_ms", model_leaves_ms(m));
    json_add_int(o, "users", (int64_t)m->users);
    put_engine(o, m);
}

/* What a load is at. */
static void put_stage(struct json *o, const struct model *m)
{
    double progress = -1;
    const char *stage = model_stage(m, &progress);
    if (stage != NULL) {
        json_add_str(o, "stage", stage);
    } else {
        json_add_null(o, "stage");
    }
    if (progress >= 0) {
        json_add_num(o, "progress", progress);
    } else {
        json_add_null(o, "progress");
    }
}

/* Names of the gates that failed and whose failure its job accepted. */
static void put_accepted(struct json *o, const struct model *m)
{
    struct json *gates = NULL;
    struct json *list = json_add_array(o, "accepted");
    if (m->gates != NULL &&
        json_parse(m->gates, strlen(m->gates), &gates, NULL) != 0) {
        gates = NULL;
    }
    for (const struct json *g = json_first(gates); g != NULL;
         g = json_next(g)) {
        const char *name = json_str(json_get(g, "name"));
        if (name != NULL && json_bool(json_get(g, "accepted"))) {
            json_add_str(list, NULL, name);
        }
    }
    json_free(gates);
}

static struct json *model_json(struct model *m)
{
    struct json *o = json_object();
    json_add_str(o, "name", m->name);
    json_add_str(o, "object", "aned.model");
    json_add_str(o, "state", model_shown(m));
    put_stage(o, m);
    if (m->reason != NULL) {
        json_add_str(o, "reason", m->reason);
    } else {
        json_add_null(o, "reason");
    }
    if (m->bundle != NULL) {
        put_bundle(o, m->bundle);
    }
    if (m->gates != NULL) { /* the store's, as our own writer made it */
        json_add_raw(o, "gates", m->gates);
    } else {
        json_add_null(o, "gates");
    }
    put_accepted(o, m);
    if (m->job[0] != '\0') {
        json_add_str(o, "job", m->job);
    } else {
        json_add_null(o, "job");
    }
    verify_put(o, m);
    probe_put(o, m);
    put_residency(o, m);
    json_add_int(o, "created_ms", m->created_ms);
    if (m->used_ms != 0) {
        json_add_int(o, "used_ms", m->used_ms);
    } else {
        json_add_null(o, "used_ms");
    }
    return o;
}

void api_models_list(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct buf b;
    (void)a;
    api_list_begin(&b, "models", NULL);
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        api_list_add(&b, model_json(m));
    }
    api_list_reply(r, &b);
}

void api_model_get(struct http_req *r, const struct http_args *a)
{
    struct model *m = NULL;
    if (api_model(r, a->v[0], &m) == 0) {
        api_reply(r, 200, model_json(m));
    }
}

struct viewer { /* one event stream about a model */
    struct model_watch watch;
    struct http_req *r;
    bool slow; /* skip until it has read: only the newest state counts */
};

static bool send_model(struct viewer *v, struct model *m)
{
    struct buf b;
    struct json *o = model_json(m);
    buf_init(&b, MIB(4));
    buf_puts(&b, "data: ");
    json_write(o, false, &b);
    buf_puts(&b, "\n\n");
    json_free(o);
    bool fast = !buf_ok(&b) || http_stream_write(v->r, b.p, b.n);
    buf_fini(&b);
    return fast;
}

static void on_model(struct model_watch *w, struct model *m, bool last)
{
    struct viewer *v = container_of(w, struct viewer, watch);
    if (last) {
        http_stream_end(v->r);
        free(v);
    } else if (!v->slow) {
        v->slow = !send_model(v, m);
    }
}

static void viewer_gone(struct http_req *r, void *user)
{
    struct viewer *v = user;
    (void)r;
    model_unwatch(&v->watch);
    free(v);
}

static void viewer_drained(struct http_req *r, void *user)
{
    (void)r;
    ((struct viewer *)user)->slow = false;
}

void api_model_events(struct http_req *r, const struct http_args *a)
{
    struct model *m = NULL;
    if (api_model(r, a->v[0], &m) != 0) {
        return;
    }
    struct viewer *v = calloc(1, sizeof(*v));
    must(v != NULL);
    v->r = r;
    v->watch.fn = on_model;
    http_stream_begin(r, 200, "text/event-stream");
    (void)send_model(v, m);
    if (((struct server *)http_ctx(r))->draining) {
        http_stream_end(r);
        free(v);
        return;
    }
    http_on_gone(r, viewer_gone, v);
    http_stream_on_drain(r, viewer_drained);
    model_watch(m, &v->watch);
}

struct loading { /* or unloading */
    struct model_wait wait;
    struct http_req *r;
    char name[MODEL_NAME_MAX + 1];
};

/* Up, or gone: the model as it is now. */
static void on_loaded(struct model_wait *w, int rc, const struct err *e)
{
    struct loading *l = container_of(w, struct loading, wait);
    struct server *s = http_ctx(l->r);
    struct model *m = models_find(s->models, l->name);
    if (rc == 0 && m != NULL) {
        api_reply(l->r, 200, model_json(m));
    } else {
        http_reply_error(l->r, rc != 0 ? rc : ERR_MODEL_NOT_FOUND,
                         rc != 0 ? e->msg : NULL);
    }
    free(l);
}

static void loading_gone(struct http_req *r, void *user)
{
    struct loading *l = user;
    (void)r;
    model_unwait(&l->wait); /* the load itself continues */
    free(l);
}

/* What a load may say: {"keep_alive", "pinned"}; no body is fine. */
struct load_wish {
    bool keeps, pins;
    int64_t keep_ms;
    bool pinned;
};

static int read_wish(struct http_req *r, struct load_wish *w)
{
    struct json *j = NULL;
    const char *param = NULL;
    struct err e = {0};
    int rc = 0;
    if (http_body(r).n == 0) {
        return 0;
    }
    rc = api_body(r, &j);
    if (rc != 0) {
        return rc;
    }
    for (const struct json *c = json_first(j); c != NULL && rc == 0;
         c = json_next(c)) {
        param = json_key(c);
        if (json_type(c) == JSON_NULL) {
            continue;
        }
        if (strcmp(param, "keep_alive") == 0) {
            w->keeps = true;
            rc = api_keep_alive(c, &w->keep_ms, &e);
        } else if (strcmp(param, "pinned") == 0) {
            w->pins = true;
            rc = json_want_bool(j, "pinned", true, &w->pinned, &e);
        } else {
            rc = err_set(&e, ERR_UNSUPPORTED, "%.63s: no such field here",
                         param);
        }
    }
    if (rc != 0) {
        api_fail(r, rc, param, e.msg);
    }
    json_free(j);
    return rc;
}

static void change(struct http_req *r, const struct http_args *a, bool up)
{
    struct model *m = NULL;
    struct err e = {0};
    struct load_wish wish = {0};
    if (api_model(r, a->v[0], &m) != 0 || (up && read_wish(r, &wish) != 0)) {
        return;
    }
    struct loading *l = calloc(1, sizeof(*l));
    must(l != NULL);
    l->r = r;
    l->wait.fn = on_loaded;
    (void)snprintf(l->name, sizeof(l->name), "%s", m->name);
    int rc =
        up ? model_load(m, true, &l->wait, &e) : model_unload(m, &l->wait, &e);
    if (rc >= 0 && wish.keeps) {
        model_keep(m, wish.keep_ms);
    }
    if (rc >= 0 && wish.pins) {
        model_pin(m, wish.pinned);
    }
    if (rc == 0) {
        http_on_gone(r, loading_gone, l);
        return;
    }
    free(l);
    if (rc < 0) {
        http_reply_error(r, rc, e.msg);
    } else {
        api_reply(r, 200, model_json(m));
    }
}

void api_model_load(struct http_req *r, const struct http_args *a)
{
    change(r, a, true);
}

void api_model_unload(struct http_req *r, const struct http_args *a)
{
    change(r, a, false);
}

/* Begin something about a model; /events tells how it goes. */
static void begin(struct http_req *r, const struct http_args *a,
                  int (*ask)(struct model *m, struct err *e))
{
    struct model *m = NULL;
    struct err e = {0};
    if (api_model(r, a->v[0], &m) != 0) {
        return;
    }
    int rc = ask(m, &e);
    if (rc != 0) {
        http_reply_error(r, rc, e.msg);
    } else {
        api_reply(r, 202, model_json(m));
    }
}

void api_model_verify(struct http_req *r, const struct http_args *a)
{
    begin(r, a, verify_ask);
}

void api_model_probe(struct http_req *r, const struct http_args *a)
{
    begin(r, a, probe_ask);
}

struct deletion {       /* waits for the store */
    struct http_req *r; /* NULL: the client left */
    void (*done)(struct http_req *r, const char *name);
    char name[MODEL_NAME_MAX + 1];
};

static void deletion_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct deletion *)user)->r = NULL;
}

static void on_deleted(void *ctx, int status, const struct err *e)
{
    struct deletion *d = ctx;
    if (d->r != NULL && status == 0) {
        d->done(d->r, d->name);
    } else if (d->r != NULL) {
        http_reply_error(d->r, status, e != NULL ? e->msg : NULL);
    }
    free(d);
}

void api_delete(struct http_req *r, struct model *m,
                void (*done)(struct http_req *r, const char *name))
{
    struct err e = {0};
    struct deletion *d = calloc(1, sizeof(*d));
    must(d != NULL);
    d->r = r;
    d->done = done;
    (void)snprintf(d->name, sizeof(d->name), "%s", m->name);
    int rc = model_delete(m, on_deleted, d, &e);
    if (rc != 0) {
        http_reply_error(r, rc, e.msg);
        free(d);
    } else {
        http_on_gone(r, deletion_gone, d);
    }
}

static void say_deleted(struct http_req *r, const char *name)
{
    struct json *o = json_object();
    json_add_str(o, "name", name);
    json_add_str(o, "object", "aned.model");
    json_add_bool(o, "deleted", true);
    api_reply(r, 200, o);
}

void api_model_delete(struct http_req *r, const struct http_args *a)
{
    struct model *m = NULL;
    if (api_own_model(r, a->v[0], &m) == 0) {
        api_delete(r, m, say_deleted);
    }
}

/* --- status --- */

static void put_counters(struct json *o, const struct stats *t)
{
    struct json *x = json_add_object(o, "counters");
    json_add_int(x, "generations", (int64_t)t->generations);
    json_add_int(x, "refused_busy", (int64_t)t->refused_busy);
    json_add_int(x, "prompt_tokens", (int64_t)t->prompt_tokens);
    json_add_int(x, "cached_tokens", (int64_t)t->cached_tokens);
    json_add_int(x, "output_tokens", (int64_t)t->output_tokens);
    json_add_int(x, "drafted_tokens", (int64_t)t->drafted_tokens);
    json_add_int(x, "accepted_tokens", (int64_t)t->accepted_tokens);
    json_add_int(x, "steps", (int64_t)t->steps);
    json_add_int(x, "step_us", (int64_t)(t->step.sum * 1e6));
}

static int64_t connections(const struct server *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n_http; i++) {
        struct http_stats t = {0};
        http_get_stats(s->http[i], &t);
        n += (int64_t)t.conns_open;
    }
    return n;
}

/* Where it listens. The key itself is never told. */
static void put_listeners(struct json *o, const struct server *s)
{
    struct json *list = json_add_array(o, "listeners");
    for (size_t i = 0; i < s->n_http; i++) {
        const char *tcp = http_tcp_name(s->http[i]);
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "transport", tcp != NULL ? "tcp" : "unix");
        if (tcp != NULL) {
            json_add_str(x, "address", tcp);
            json_add_bool(x, "key_needed", !s->guard.open);
        }
    }
    json_add_str(o, "key_file", s->home.key);
}

static void put_text(struct json *o, const char *key, const char *v)
{
    if (v[0] != '\0') {
        json_add_str(o, key, v);
    } else {
        json_add_null(o, key);
    }
}

static void put_config(struct json *o, const struct server *s)
{
    const struct reload *x = &s->reload;
    struct json *c = json_add_object(o, "config");
    put_text(c, "file", x->file);
    json_add_int(c, "reloads", (int64_t)x->n);
    if (x->at_ms > 0) {
        json_add_int(c, "reloaded_ms", x->at_ms);
    } else {
        json_add_null(c, "reloaded_ms");
    }
    put_text(c, "error", x->last.msg);
    struct json *list = json_add_array(c, "restart_needed");
    for (size_t i = 0; i < x->n_waits; i++) {
        json_add_str(list, NULL, x->waits[i]);
    }
    json_add_bool(o, "service", s->given != NULL && s->given->service);
    json_add_bool(o, "activated", s->handed);
}

void api_status(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct json *o = json_object();
    (void)a;
    json_add_str(o, "status", s->draining ? "draining" : "ok");
    json_add_str(o, "version", ANED_VERSION);
    json_add_int(o, "pid", (int64_t)getpid());
    api_put_process(o);
    json_add_int(o, "started_ms", s->stats.started_unix_ms);
    json_add_int(o, "uptime_ms",
                 (int64_t)((server_now_us() - s->stats.started_us) / 1000));
    json_add_str(o, "home", s->home.dir);
    json_add_str(o, "socket", s->home.socket);
    put_listeners(o, s);
    json_add_str(o, "backend", s->conf.engine_backend);
    put_config(o, s);
    struct json *list = json_add_array(o, "models");
    int64_t queued = 0, running = 0;
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "name", m->name);
        json_add_str(x, "state", model_shown(m));
        put_stage(x, m);
        put_residency(x, m);
        if (m->runner != NULL) {
            queued += runner_sched(m->runner)->n_waiting;
            running += runner_sched(m->runner)->n_running;
        }
    }
    json_add_int(o, "running", running);
    json_add_int(o, "queued", queued + (int64_t)workq_depth(s->text));
    json_add_int(o, "connections", connections(s));
    json_add_int(o, "queue_limit", s->conf.limits_queue);
    put_counters(o, &s->stats);
    struct json *mem = json_add_object(o, "memory");
    json_add_int(mem, "budget_bytes", (int64_t)models_budget(s->models));
    json_add_int(mem, "used_bytes", (int64_t)models_bytes(s->models));
    json_add_int(mem, "pressure_signs", (int64_t)s->stats.memory_signs);
    struct json *j = json_add_object(o, "jobs");
    json_add_int(j, "waiting", (int64_t)jobs_waiting(s->jobs));
    json_add_bool(j, "running", jobs_running(s->jobs));
    json_add_int(j, "limit", s->conf.limits_jobs_queued);
    api_reply(r, 200, o);
}
