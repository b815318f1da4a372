/* native_residency.c - /aned/v1: where models' operations run. */
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

static void on_read(void *ctx, int status, const struct store_residency *v,
                    size_t n)
{
    struct reading *x = ctx;
    const struct server *s = x->r != NULL ? http_ctx(x->r) : NULL;
    const struct model *m = s != NULL ? models_find(s->models, x->name) : NULL;
    if (s != NULL && status != 0) {
        http_reply_error(x->r, status, NULL);
    } else if (s != NULL && (m == NULL || m->bundle == NULL)) {
        http_reply_error(x->r, ERR_MODEL_NOT_FOUND, NULL);
    } else if (s != NULL) {
        api_reply(x->r, 200, residency_json(m, v, n));
    }
    free(x);
}

void api_model_residency(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct model *m = NULL;
    if (api_model(r, a->v[0], &m) != 0) {
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
    int rc = store_residency(s->store, m->bundle->fingerprint, on_read, x);
    if (rc != 0) {
        http_reply_error(r, rc, NULL);
        free(x);
    } else {
        http_on_gone(r, reading_gone, x);
    }
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
