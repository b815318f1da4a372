#include "client/watch.h"

struct watching {
    struct client *c;
    const struct watch *w;
    struct json *last; /* owned */
    struct bar bar;
};

/* CANCELLED: the answer is there, the stream may end. */
static int on_event(void *user, const char *event, const char *data, size_t n,
                    struct err *e)
{
    struct watching *x = user;
    struct json *j = NULL;
    (void)event;
    RETERR(json_parse(data, n, &j, e));
    json_free(x->last);
    x->last = j;
    if (x->w->over(j)) {
        return err_set(e, ERR_CANCELLED, "%s", err_text(ERR_CANCELLED));
    }
    if (!x->c->json) {
        bar_draw(&x->bar, &x->c->term, x->w->doing, x->w->progress(j));
    }
    return 0;
}

static int follow(struct watching *x, const char *name, struct err *e)
{
    char path[256];
    RETERR(
        ask_path(path, sizeof(path), "/aned/v1/models/", name, "/events", e));
    int rc = ask_events(x->c, "GET", path, NULL, on_event, x, e);
    bar_wipe(&x->bar);
    if (x->w->over(x->last)) {
        return 0;
    }
    return rc != 0 ? rc
                   : err_set(e, ERR_INTERRUPTED, "the daemon stopped telling");
}

int watch_model(struct client *c, const char *name, const struct watch *w,
                struct json **ret, struct err *e)
{
    struct watching x = {.c = c, .w = w, .bar = {.began = now_seconds()}};
    char path[256];
    int rc = ask_path(path, sizeof(path), "/aned/v1/models/", name, w->verb, e);
    interrupt_catch();
    rc = rc < 0 ? rc : ask(c, "POST", path, NULL, &x.last, e);
    if (rc == 0 && !w->over(x.last)) {
        rc = follow(&x, name, e);
    }
    *ret = x.last;
    return rc;
}
