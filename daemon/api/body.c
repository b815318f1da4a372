/* body.c - JSON bodies: small ones are read at once on the loop thread, large
 * ones on the text thread (a tree costs forty times its text, and other
 * requests wait for the loop).
 *
 *   api_read_body -> [text thread: parse, read, free] -> go, on the loop
 *
 * One connection has one request at a time, so answers keep their order. When a
 * client leaves, its work is taken off the thread's queue; if the thread has
 * begun with it, the result is dropped. */
#include "api/api.h"

/* Errors: JSON. On success *ret is an object. */
static int parse(const char *p, size_t n, struct json **ret, struct err *e)
{
    int rc = json_parse(p != NULL ? p : "", n, ret, e);
    if (rc == 0 && json_type(*ret) != JSON_OBJECT) {
        rc = err_set(e, ERR_JSON, "the body must be a JSON object, not %s",
                     json_type_name(json_type(*ret)));
        json_free(*ret);
    }
    return rc;
}

int api_body(struct http_req *r, struct json **ret)
{
    struct span s = http_body(r);
    struct err e = {0};
    int rc = parse(s.p, s.n, ret, &e);
    if (rc != 0) {
        api_fail(r, rc, NULL, e.msg);
    }
    return rc;
}

static void read_text(struct api_read *x, const char *p, size_t n)
{
    struct json *j = NULL;
    x->rc = parse(p, n, &j, &x->e);
    if (x->rc == 0) {
        x->rc = x->read(x, j);
        json_free(j);
    }
}

static void on_run(struct work *w)
{
    struct api_read *x = container_of(w, struct api_read, work);
    read_text(x, x->body.p, x->body.n);
    buf_fini(&x->body);
}

static void on_done(struct work *w)
{
    struct api_read *x = container_of(w, struct api_read, work);
    if (x->r != NULL) {
        http_on_gone(x->r, NULL, NULL);
    }
    x->go(x);
}

static void on_gone(struct http_req *r, void *user)
{
    struct api_read *x = user;
    (void)r;
    x->r = NULL;
    if (workq_cancel(x->queue, &x->work)) {
        buf_fini(&x->body);
        x->go(x);
    }
}

void api_read_body(struct http_req *r, struct api_read *x)
{
    struct server *s = http_ctx(r);
    struct span body = http_body(r);
    x->r = r;
    if (body.n <= BODY_HERE_MAX) {
        read_text(x, body.p, body.n);
        x->go(x);
        return;
    }
    x->queue = s->text;
    x->work.run = on_run;
    x->work.done = on_done;
    http_take_body(r, &x->body);
    int rc = workq_put(s->text, &x->work); /* x->rc is the thread's now */
    if (rc != 0) {
        s->stats.refused_busy++;
        buf_fini(&x->body);
        x->rc = rc;
        (void)err_set(&x->e, x->rc, "too many bodies wait to be read");
        x->go(x);
        return;
    }
    http_on_gone(r, on_gone, x);
}
