/* call_load.c - a request without a prompt, in dialects that have it: the model
 * is loaded, or unloaded with a keep_alive of 0, and the answer says so. */
#include "api/call_impl.h"
#include "serve/engines/residency.h"

static bool unloads(const struct call *c)
{
    return c->p.keeps && c->p.keep_ms == 0;
}

/* A line is a whole answer, too. */
static void answer(struct call *c)
{
    buf_clear(&c->out);
    c->d->loaded(c, &c->out, unloads(c));
    must(buf_ok(&c->out)); /* ours and small */
    http_reply(c->r, 200, c->p.stream ? c->d->content_type : NULL, c->out.p,
               c->out.n);
    call_free(c);
}

static void on_model(struct model_wait *w, int rc, const struct err *e)
{
    struct call *c = container_of(w, struct call, wait);
    if (rc == 0) {
        answer(c);
    } else {
        api_fail(c->r, rc, NULL, e->msg);
        call_free(c);
    }
}

static void on_gone(struct http_req *r, void *user)
{
    struct call *c = user;
    (void)r;
    model_unwait(&c->wait); /* the load itself continues */
    call_free(c);
}

void call_load(struct call *c, struct model *m)
{
    struct err e = {0};
    (void)snprintf(c->model, sizeof(c->model), "%s", m->name);
    c->wait.fn = on_model;
    int rc = unloads(c) ? model_unload(m, &c->wait, &e)
                        : model_load(m, false, &c->wait, &e);
    if (rc == ERR_CONFLICT && unloads(c)) { /* it goes after its last user */
        model_keep(m, 0);
        rc = 1;
    } else if (rc >= 0 && c->p.keeps && !unloads(c)) {
        model_keep(m, c->p.keep_ms);
    }
    if (rc == 0) {
        http_on_gone(c->r, on_gone, c);
    } else if (rc > 0) {
        answer(c);
    } else {
        api_fail(c->r, rc, NULL, e.msg);
        call_free(c);
    }
}
