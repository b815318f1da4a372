/* native_reports.c - /aned/v1: where models' operations run, and how far models
 * are from their sources. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

struct reading {        /* waits for the store */
    struct http_req *r; /* NULL: the client left */
    char name[MODEL_NAME_MAX + 1];
};

static void reading_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct reading *)user)->r = NULL;
}

/* The one in memory, as the store has it; NULL. */
static const struct store_residency *whole(const struct store_residency *v,
                                           size_t n,
                                           const struct store_residency *of)
{
    for (size_t i = 0; of != NULL && i < n; i++) {
        if (v[i].measured == of->measured &&
            strcmp(v[i].options, of->options) == 0 &&
            strcmp(v[i].machine, of->machine) == 0) {
            return &v[i];
        }
    }
    return NULL;
}

static void put_record(struct json *o, const char *key,
                       const struct store_residency *v)
{
    if (v != NULL) {
        json_add_tree(o, key, probe_record_json(v));
    } else {
        json_add_null(o, key);
    }
}

static void put_summary(struct json *o, const char *key,
                        const struct store_residency *v)
{
    if (v != NULL) {
        json_add_tree(o, key, probe_summary_json(v));
    } else {
        json_add_null(o, key);
    }
}

/* The gate's word; of models that came without a report it has not run. */
static void put_prediction(struct json *o, const struct store_residency *v)
{
    json_add_str(o, "prediction", v != NULL ? v->verdict : "not run");
}

static struct json *residency_json(const struct model *m,
                                   const struct store_residency *v, size_t n)
{
    const struct store_residency *measured = whole(v, n, probe_verdict(m));
    const struct store_residency *predicted = whole(v, n, probe_prediction(m));
    struct json *o = json_object();
    json_add_str(o, "model", m->name);
    json_add_str(o, "object", "aned.residency");
    json_add_str(o, "fingerprint", m->bundle->fingerprint);
    probe_put(o, m);
    put_record(o, "measured", measured);
    put_record(o, "predicted", predicted);
    put_prediction(o, predicted);
    struct json *list = json_add_array(o, "others");
    for (size_t i = 0; i < n; i++) {
        if (&v[i] != measured && &v[i] != predicted) {
            json_add_tree(list, NULL, probe_summary_json(&v[i]));
        }
    }
    return o;
}

/* The store has answered: the model, or NULL where the client left or was told
 * an error. */
static const struct model *reading_model(struct reading *x, int status)
{
    const struct server *s = x->r != NULL ? http_ctx(x->r) : NULL;
    const struct model *m = s != NULL ? models_find(s->models, x->name) : NULL;
    if (s != NULL && status != 0) {
        http_reply_error(x->r, status, NULL);
        return NULL;
    }
    if (s != NULL && (m == NULL || m->bundle == NULL)) {
        http_reply_error(x->r, ERR_MODEL_NOT_FOUND, NULL);
        return NULL;
    }
    return m;
}

static void on_residency(void *ctx, int status, const struct store_residency *v,
                         size_t n)
{
    struct reading *x = ctx;
    const struct model *m = reading_model(x, status);
    if (m != NULL) {
        api_reply(x->r, 200, residency_json(m, v, n));
    }
    free(x);
}

static struct json *quality_answer(const struct model *m,
                                   const struct store_quality *v)
{
    struct json *o = json_object();
    json_add_str(o, "model", m->name);
    json_add_str(o, "object", "aned.quality");
    json_add_str(o, "fingerprint", m->bundle->fingerprint);
    json_add_str(o, "verdict", v != NULL ? v->verdict : "not run");
    if (v != NULL) { /* the store's, as our own writer made it */
        json_add_int(o, "created_ms", v->created_ms);
        json_add_raw(o, "report", v->report);
    } else {
        json_add_null(o, "created_ms");
        json_add_null(o, "report");
    }
    return o;
}

static void on_quality(void *ctx, int status, const struct store_quality *v,
                       size_t n)
{
    struct reading *x = ctx;
    const struct model *m = reading_model(x, status);
    if (m != NULL) {
        api_reply(x->r, 200, quality_answer(m, n > 0 ? v : NULL));
    }
    free(x);
}

/* Ask the store for what it has of the named model's bundle. */
static void read_reports(struct http_req *r, const char *name, bool quality)
{
    struct server *s = http_ctx(r);
    struct model *m = NULL;
    if (api_model(r, name, &m) != 0) {
        return;
    }
    if (m->bundle == NULL) {
        http_reply_error(r, ERR_BUNDLE, m->reason);
        return;
    }
    struct reading *x = calloc(1, sizeof(*x));
    must(x != NULL);
    x->r = r;
    (void)snprintf(x->name, sizeof(x->name), "%s", m->name);
    const char *of = m->bundle->fingerprint;
    int rc = quality ? store_quality(s->store, of, on_quality, x)
                     : store_residency(s->store, of, on_residency, x);
    if (rc != 0) {
        http_reply_error(r, rc, NULL);
        free(x);
    } else {
        http_on_gone(r, reading_gone, x);
    }
}

void api_model_residency(struct http_req *r, const struct http_args *a)
{
    read_reports(r, a->v[0], false);
}

void api_model_quality(struct http_req *r, const struct http_args *a)
{
    read_reports(r, a->v[0], true);
}

void api_residency(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct buf b;
    (void)a;
    api_list_begin(&b, "models", NULL);
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        struct json *o = json_object();
        json_add_str(o, "model", m->name);
        probe_put(o, m);
        put_summary(o, "measured", probe_verdict(m));
        put_summary(o, "predicted", probe_prediction(m));
        put_prediction(o, probe_prediction(m));
        api_list_add(&b, o);
    }
    api_list_reply(r, &b);
}
