/* session.c - /aned/v1/sessions: timelines that clients name (serve/gen/session.h).
 * Text is tokenised on the text thread; every change is answered when it is
 * durable. Generation is openai.c's, with the session as its prompt. */
#include "serve/gen/session.h"

#include <string.h>

#include "api/api.h"

/* One request that changes a session. */
struct op {
    struct http_req *r; /* NULL: the client left */
    struct server *srv;
    struct json *body; /* owns the text of `work` */
    struct text_work work;
    char id[40]; /* "": a new one */
    char model[MODEL_NAME_MAX + 1];
    bool pinned;
    int status; /* of the answer */
};

static struct json *session_json(const struct session *x, bool tokens)
{
    const struct store_session *v = &x->row;
    struct json *o = json_object();
    json_add_str(o, "id", v->id);
    json_add_str(o, "object", "session");
    json_add_str(o, "model", v->model);
    json_add_int(o, "n_tokens", (int64_t)v->n);
    json_add_bool(o, "pinned", v->pinned);
    json_add_bool(o, "busy", x->busy);
    json_add_int(o, "created_ms", v->created_ms);
    json_add_int(o, "used_ms", v->used_ms);
    if (tokens) {
        struct json *t = json_add_array(o, "tokens");
        for (uint32_t i = 0; i < v->n; i++) {
            json_add_int(t, NULL, v->tokens[i]);
        }
    }
    return o;
}

/* The session of the path; else 404 was sent. */
static struct session *session_of(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct session *x = sessions_find(s->sessions, a->v[0]);
    if (x == NULL) {
        api_fail(r, ERR_NOT_FOUND, NULL, "there is no such session");
    }
    return x;
}

/* The names of a body are among these, NULL at the end. */
static int known(const struct json *j, const char *const *names, struct err *e)
{
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        const char *const *n = names;
        while (*n != NULL && strcmp(*n, json_key(c)) != 0) {
            n++;
        }
        if (*n == NULL) {
            return err_set(e, ERR_UNSUPPORTED, "%.32s: no such field here",
                           json_key(c));
        }
    }
    return 0;
}

/* --- one operation --- */

static void op_free(struct op *k)
{
    text_fini(&k->work);
    json_free(k->body);
    free(k);
}

static void on_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct op *)user)->r = NULL;
}

static struct op *op_new(struct http_req *r, struct json *body,
                         const struct session *x)
{
    struct op *k = calloc(1, sizeof(*k));
    must(k != NULL);
    k->r = r;
    k->srv = http_ctx(r);
    k->body = body;
    k->status = 200;
    if (x != NULL) {
        (void)snprintf(k->id, sizeof(k->id), "%s", x->row.id);
    }
    return k;
}

static void op_fail(struct op *k, int code, const char *msg)
{
    if (k->r != NULL) {
        api_fail(k->r, code, NULL, msg);
    }
    op_free(k);
}

/* store_done_fn */
static void on_stored(void *ctx, int status, const struct err *e)
{
    struct op *k = ctx;
    struct session *x = sessions_find(k->srv->sessions, k->id);
    if (status != 0) {
        op_fail(k, status, e->msg);
    } else if (k->r == NULL) {
        op_free(k);
    } else {
        if (x != NULL) {
            api_reply(k->r, k->status, session_json(x, false));
        } else { /* it was deleted, by this request or the next */
            struct json *o = json_object();
            json_add_str(o, "id", k->id);
            json_add_bool(o, "deleted", true);
            api_reply(k->r, 200, o);
        }
        op_free(k);
    }
}

/* rc and e of the call that took on_stored and k. */
static void op_wait(struct op *k, int rc, const struct err *e)
{
    if (rc != 0) {
        op_fail(k, rc, e->msg);
    } else if (k->r != NULL) {
        http_on_gone(k->r, on_gone, k);
    }
}

/* --- tokens --- */

/* A new session with these tokens, or they go behind the old one's. */
static void apply(struct op *k, const int32_t *tokens, size_t n)
{
    struct sessions *ss = k->srv->sessions;
    struct err e = {0};
    struct session *x = NULL;
    int rc = n <= MODEL_CONTEXT_MAX
                 ? 0
                 : err_set(&e, ERR_CONTEXT, "%zu tokens are too many", n);
    if (rc == 0 && k->id[0] == '\0') {
        const struct model *m = models_find(k->srv->models, k->model);
        rc = m == NULL ? err_set(&e, ERR_MODEL_NOT_FOUND, "%s", k->model)
                       : session_new(ss, m, tokens, (uint32_t)n, k->pinned,
                                     on_stored, k, &x, &e);
        if (rc == 0) {
            (void)snprintf(k->id, sizeof(k->id), "%s", x->row.id);
            k->status = 201;
        }
    } else if (rc == 0) {
        x = sessions_find(ss, k->id);
        rc = x == NULL
                 ? err_set(&e, ERR_NOT_FOUND, "the session is gone")
                 : session_append(ss, x, tokens, (uint32_t)n, on_stored, k, &e);
    }
    op_wait(k, rc, &e);
}

static void on_text(struct text_work *w)
{
    struct op *k = container_of(w, struct op, work);
    if (w->rc != 0) {
        op_fail(k, w->rc, w->e.msg);
    } else {
        apply(k, w->tokens, w->n_tokens);
    }
}

static void take_ids(struct op *k, const struct json *v)
{
    size_t n = json_count(v);
    size_t i = 0;
    if (json_type(v) != JSON_ARRAY || n > TOKENS_MAX) {
        op_fail(k, ERR_INVALID, "tokens: must be an array of token ids");
        return;
    }
    int32_t *t = malloc((n + 1) * sizeof(*t));
    must(t != NULL); /* a body's size is limited */
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int64_t id = 0;
        if (!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            free(t);
            op_fail(k, ERR_INVALID, "tokens: must be an array of token ids");
            return;
        }
        t[i++] = (int32_t)id;
    }
    apply(k, t, n);
    free(t);
}

/* "prompt" (text) or "tokens" (ids) of the body; at most one of them. */
static void take_tokens(struct op *k, const struct model *m, bool first)
{
    const struct json *text = json_get(k->body, "prompt");
    const struct json *ids = json_get(k->body, "tokens");
    struct err e = {0};
    if (text != NULL && (ids != NULL || json_str(text) == NULL)) {
        op_fail(k, ERR_INVALID, "prompt: must be a string, without tokens");
        return;
    }
    if (text == NULL && ids == NULL) {
        apply(k, NULL, 0);
        return;
    }
    if (ids != NULL) {
        take_ids(k, ids);
        return;
    }
    if (m->bundle == NULL) {
        op_fail(k, ERR_MODEL_FAILED, m->reason);
        return;
    }
    k->work.kind = TEXT_ENCODE;
    k->work.done = on_text;
    k->work.text = json_str(text);
    k->work.text_n = strlen(k->work.text);
    k->work.special = true;
    k->work.bos = first;
    int rc = text_put(k->srv->text, m->voc, &k->work);
    if (rc != 0) {
        (void)err_set(&e, rc, "too many texts wait to be tokenised");
    }
    op_wait(k, rc, &e);
}

/* --- routes --- */

void api_sessions_list(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    (void)a;
    struct json *o = json_object();
    struct json *list = json_add_array(o, "sessions");
    for (struct session *x = session_next(s->sessions, NULL); x != NULL;
         x = session_next(s->sessions, x)) {
        json_add_tree(list, NULL, session_json(x, false));
    }
    api_reply(r, 200, o);
}

void api_session_get(struct http_req *r, const struct http_args *a)
{
    const struct session *x = session_of(r, a);
    if (x != NULL) {
        api_reply(r, 200, session_json(x, true));
    }
}

void api_sessions_create(struct http_req *r, const struct http_args *a)
{
    static const char *const names[] = {"model", "prompt", "tokens", "pinned",
                                        NULL};
    struct json *j = NULL;
    struct model *m = NULL;
    struct err e = {0};
    (void)a;
    if (api_body(r, &j) != 0) {
        return;
    }
    const struct json *pinned = json_get(j, "pinned");
    int rc = known(j, names, &e);
    if (rc == 0 && pinned != NULL && json_type(pinned) != JSON_BOOL) {
        rc = err_set(&e, ERR_INVALID, "pinned: must be true or false");
    }
    if (rc != 0) {
        api_fail(r, rc, NULL, e.msg);
    } else if (api_model(r, json_str(json_get(j, "model")), &m) == 0) {
        struct op *k = op_new(r, j, NULL);
        k->pinned = json_bool(pinned);
        (void)snprintf(k->model, sizeof(k->model), "%s", m->name);
        take_tokens(k, m, true);
        return;
    }
    json_free(j);
}

void api_session_append(struct http_req *r, const struct http_args *a)
{
    static const char *const names[] = {"prompt", "tokens", NULL};
    const struct session *x = session_of(r, a);
    struct json *j = NULL;
    struct model *m = NULL;
    struct err e = {0};
    if (x == NULL || api_body(r, &j) != 0) {
        return;
    }
    int rc = known(j, names, &e);
    if (rc == 0 && json_count(j) != 1) {
        rc = err_set(&e, ERR_INVALID, "prompt or tokens: one of them");
    }
    if (rc != 0) {
        api_fail(r, rc, NULL, e.msg);
    } else if (api_model(r, x->row.model, &m) == 0) {
        take_tokens(op_new(r, j, x), m, x->row.n == 0);
        return;
    }
    json_free(j);
}

/* {"n": N}, 0..the length; absent: the length, where that makes sense. */
static int read_n(struct http_req *r, const struct session *x, bool needed,
                  uint32_t *ret)
{
    static const char *const names[] = {"n", NULL};
    struct json *j = NULL;
    struct err e = {0};
    int64_t n = x->row.n;
    if (!needed && http_body(r).n == 0) {
        *ret = x->row.n;
        return 0;
    }
    int rc = api_body(r, &j);
    if (rc != 0) {
        return rc;
    }
    const struct json *v = json_get(j, "n");
    rc = known(j, names, &e);
    if (rc == 0 && (v != NULL || needed) && !json_int(v, 0, x->row.n, &n)) {
        rc = err_set(&e, ERR_INVALID, "n: must be a number from 0 to %u",
                     x->row.n);
    }
    json_free(j);
    if (rc != 0) {
        api_fail(r, rc, "n", e.msg);
        return rc;
    }
    *ret = (uint32_t)n;
    return 0;
}

void api_session_truncate(struct http_req *r, const struct http_args *a)
{
    struct session *x = session_of(r, a);
    struct err e = {0};
    uint32_t n = 0;
    if (x == NULL || read_n(r, x, true, &n) != 0) {
        return;
    }
    struct op *k = op_new(r, NULL, x);
    op_wait(k, session_truncate(k->srv->sessions, x, n, on_stored, k, &e), &e);
}

void api_session_fork(struct http_req *r, const struct http_args *a)
{
    const struct session *x = session_of(r, a);
    uint32_t n = 0;
    if (x == NULL || read_n(r, x, false, &n) != 0) {
        return;
    }
    struct op *k = op_new(r, NULL, NULL);
    (void)snprintf(k->model, sizeof(k->model), "%s", x->row.model);
    apply(k, x->row.tokens, n);
}

void api_session_pin(struct http_req *r, const struct http_args *a)
{
    static const char *const names[] = {"pinned", NULL};
    struct session *x = session_of(r, a);
    struct json *j = NULL;
    struct err e = {0};
    if (x == NULL || api_body(r, &j) != 0) {
        return;
    }
    const struct json *v = json_get(j, "pinned");
    bool pinned = json_bool(v);
    int rc = known(j, names, &e);
    if (rc == 0 && (v == NULL || json_type(v) != JSON_BOOL)) {
        rc = err_set(&e, ERR_INVALID, "pinned: must be true or false");
    }
    json_free(j);
    if (rc != 0) {
        api_fail(r, rc, "pinned", e.msg);
        return;
    }
    struct op *k = op_new(r, NULL, x);
    op_wait(k, session_pin(k->srv->sessions, x, pinned, on_stored, k, &e), &e);
}

void api_session_delete(struct http_req *r, const struct http_args *a)
{
    struct session *x = session_of(r, a);
    struct err e = {0};
    if (x != NULL) {
        struct op *k = op_new(r, NULL, x);
        op_wait(k, session_delete(k->srv->sessions, x, on_stored, k, &e), &e);
    }
}
