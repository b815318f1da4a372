/* llamacpp_events.c - /models/sse: the state of every model, and each change of
 * it, as a llama-server with several models has it.
 *
 * A stream watches the models that there are when it begins. A client that
 * reads slowly misses what happens meanwhile; it gets the newest state of all
 * of them when it has caught up. */
#include <string.h>

#include "api/api.h"
#include "serve/engines/models.h"

struct feed;
struct feed_model {
    struct model_watch watch;
    struct model *m; /* NULL: it is gone */
    struct feed *of;
};

struct feed {
    struct http_req *r;
    bool slow;
    size_t n, left; /* models watched at first, and still */
    struct feed_model *models;
};

static void feed_free(struct feed *f)
{
    free(f->models);
    free(f);
}

static void put_progress(struct json *o, double progress)
{
    struct json *x = json_add_object(o, "progress");
    json_add_str(json_add_array(x, "stages"), NULL, "text_model");
    json_add_str(x, "current", "text_model");
    json_add_num(x, "value", progress);
}

static void put_state(struct json *o, const struct model *m)
{
    double progress = -1;
    bool loads = model_stage(m, &progress) != NULL;
    struct json *d = json_add_object(o, "data");
    json_add_str(d, "status",
                 loads                      ? "loading"
                 : m->state == MODEL_LOADED ? "loaded"
                                            : "unloaded");
    if (m->state == MODEL_FAILED || m->state == MODEL_REJECTED) {
        json_add_bool(d, "failed", true);
    }
    if (loads && progress >= 0) {
        put_progress(d, progress);
    }
}

/* gone: the model is deleted. */
static void send_event(struct feed *f, const struct model *m, bool gone)
{
    struct buf b;
    struct json *o = json_object();
    json_add_str(o, "model", m->name);
    json_add_str(o, "event", gone ? "model_remove" : "model_status");
    if (!gone) {
        put_state(o, m);
    }
    buf_init(&b, KIB(16));
    buf_puts(&b, "data: ");
    json_write(o, false, &b);
    buf_puts(&b, "\n\n");
    must(buf_ok(&b)); /* a name and some words */
    json_free(o);
    f->slow = !http_stream_write(f->r, b.p, b.n) || f->slow;
    buf_fini(&b);
}

static void send_all(struct feed *f)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->models[i].m != NULL) {
            send_event(f, f->models[i].m, false);
        }
    }
}

/* model_watch.fn. The last one of a model: it is deleted, or the daemon stops,
 * which ends the stream. */
static void on_model(struct model_watch *w, struct model *m, bool last)
{
    struct feed_model *x = container_of(w, struct feed_model, watch);
    struct feed *f = x->of;
    const struct server *s = http_ctx(f->r);
    if (!last) {
        if (!f->slow) {
            send_event(f, m, false);
        }
        return;
    }
    x->m = NULL;
    f->left--;
    if (!s->draining) {
        send_event(f, m, true);
    } else if (f->left == 0) {
        http_stream_end(f->r);
        feed_free(f);
    }
}

static void on_gone(struct http_req *r, void *user)
{
    struct feed *f = user;
    (void)r;
    for (size_t i = 0; i < f->n; i++) {
        if (f->models[i].m != NULL) {
            model_unwatch(&f->models[i].watch);
        }
    }
    feed_free(f);
}

static void on_drain(struct http_req *r, void *user)
{
    struct feed *f = user;
    (void)r;
    f->slow = false;
    send_all(f);
}

void api_models_sse(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct feed *f = calloc(1, sizeof(*f));
    must(f != NULL);
    (void)a;
    f->r = r;
    f->n = models_count(s->models);
    f->models = calloc(f->n + 1, sizeof(*f->models));
    must(f->models != NULL);
    for (struct model *m = models_first(s->models); m != NULL && f->left < f->n;
         m = models_next(m)) {
        struct feed_model *x = &f->models[f->left++];
        *x = (struct feed_model){.m = m, .of = f, .watch.fn = on_model};
    }
    f->n = f->left;
    http_stream_begin(r, 200, "text/event-stream");
    send_all(f);
    if (s->draining || f->n == 0) { /* nothing will change */
        http_stream_end(r);
        feed_free(f);
        return;
    }
    http_on_gone(r, on_gone, f);
    http_stream_on_drain(r, on_drain);
    for (size_t i = 0; i < f->n; i++) {
        model_watch(f->models[i].m, &f->models[i].watch);
    }
}
