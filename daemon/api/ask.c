/* ask.c - see ask.h. */
#include "api/ask.h"

#include <string.h>

static void ask_free(struct ask *k)
{
    text_fini(&k->work);
    arena_fini(&k->arena);
    buf_fini(&k->out);
    json_free(k->known);
    free(k);
}

static void on_gone(struct http_req *r, void *user)
{
    struct ask *k = user;
    (void)r;
    k->r = NULL;
    if (text_cancel(k->body.queue, &k->work)) {
        ask_free(k);
    }
}

/* text_work.then: a megabyte of tokens is not written on the loop. */
static void write_answer(struct text_work *w)
{
    struct ask *k = container_of(w, struct ask, work);
    if (w->rc == 0) {
        (void)buf_grow(&k->out, HTTP_HEAD_ROOM);
        k->write(k);
    }
}

static void on_done(struct text_work *w)
{
    struct ask *k = container_of(w, struct ask, work);
    if (k->r != NULL && w->rc != 0) {
        http_reply_error(k->r, w->rc, w->e.msg);
    } else if (k->r != NULL && !buf_ok(&k->out)) {
        http_reply_error(k->r, ERR_TOO_BIG, "the answer is over the limit");
    } else if (k->r != NULL) {
        http_reply_take(k->r, 200, NULL, &k->out);
    }
    ask_free(k);
}

static void put(struct ask *k, struct model *m)
{
    struct server *s = http_ctx(k->r);
    k->work.then = write_answer;
    k->work.done = on_done;
    k->body.queue = s->text;
    int rc = text_put(s->text, m->voc, &k->work);
    if (rc != 0) {
        s->stats.refused_busy++;
        api_fail(k->r, rc, NULL, "too many texts wait to be tokenised");
        ask_free(k);
        return;
    }
    http_on_gone(k->r, on_gone, k);
}

/* api_read.go: read, it is given to the text thread. */
static void submit(struct api_read *x)
{
    struct ask *k = container_of(x, struct ask, body);
    struct model *m = NULL;
    k->r = x->r;
    if (k->r == NULL) {
        ask_free(k);
        return;
    }
    int rc = x->rc;
    if (rc != 0) {
        api_fail(k->r, rc, k->param[0] != '\0' ? k->param : NULL, x->e.msg);
        ask_free(k);
        return;
    }
    if (api_model(k->r, k->model, &m) != 0) {
        ask_free(k);
        return;
    }
    put(k, m);
}

static struct ask *ask_new(void (*write)(struct ask *k))
{
    struct ask *k = calloc(1, sizeof(*k));
    must(k != NULL);
    k->write = write;
    arena_init(&k->arena, GEN_ARENA_MAX);
    buf_init(&k->out, HTTP_REPLY_MAX - KIB(4));
    return k;
}

void ask_vocabulary(struct http_req *r, struct model *m, struct json *known,
                    void (*write)(struct ask *k))
{
    struct ask *k = ask_new(write);
    k->r = r;
    k->known = known;
    k->work.kind = TEXT_OPEN;
    put(k, m);
}

void ask_start(struct http_req *r,
               int (*read)(struct api_read *x, const struct json *j),
               void (*write)(struct ask *k))
{
    struct ask *k = ask_new(write);
    k->body.read = read;
    k->body.go = submit;
    api_read_body(r, &k->body);
}

struct ask *ask_of(struct api_read *x)
{
    return container_of(x, struct ask, body);
}

int ask_only(struct ask *k, const struct json *j, const char *const *keys,
             size_t n, struct err *e)
{
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(json_key(c), keys[i]) == 0;
        }
        if (!known) {
            (void)snprintf(k->param, sizeof(k->param), "%s", json_key(c));
            return err_set(e, ERR_UNSUPPORTED, "%.63s: no such field here",
                           json_key(c));
        }
    }
    return 0;
}

int ask_copy(struct ask *k, const char *s, const char **ret, struct err *e)
{
    *ret = s != NULL ? arena_str(&k->arena, s) : NULL;
    return s == NULL || *ret != NULL
               ? 0
               : err_set(e, ERR_TOO_BIG, "the text is over the limit");
}
