/* session.c - /aned/v1/sessions: timelines that clients name
 * (serve/gen/session.h). Text is tokenised on the text thread; every change is
 * answered when it is durable. Generation is call.c's, with the session as its
 * prompt. */
#include "serve/gen/session.h"

#include <string.h>

#include "api/api.h"

/* One request that changes a session. */
struct op {
    struct api_read body;
    struct http_req *r; /* NULL: the client left */
    struct server *srv;
    struct text_work work;
    char *text;   /* of `work`; NULL: */
    int32_t *ids; /* these tokens */
    size_t n_ids;
    char *name;  /* of the model, as the request gives it */
    char id[40]; /* "": a new one */
    char model[MODEL_NAME_MAX + 1];
    bool pinned;
    int status; /* of the answer */
};

static struct json *session_json(const struct session *x)
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
    free(k->text);
    free(k->ids);
    free(k->name);
    free(k);
}

static void on_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct op *)user)->r = NULL;
}

static struct op *op_new(struct http_req *r, const struct session *x)
{
    struct op *k = calloc(1, sizeof(*k));
    must(k != NULL);
    k->r = r;
    k->srv = http_ctx(r);
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
            api_reply(k->r, k->status, session_json(x));
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

/* A new session with these tokens, or they go after the old one's. */
static int change(struct op *k, const int32_t *tokens, size_t n, struct err *e)
{
    struct sessions *ss = k->srv->sessions;
    struct session *x = NULL;
    if (n > MODEL_CONTEXT_MAX) {
        return err_set(e, ERR_CONTEXT, "%zu tokens are too many", n);
    }
    if (k->id[0] != '\0') {
        x = sessions_find(ss, k->id);
        return x == NULL ? err_set(e, ERR_NOT_FOUND, "the session is gone")
                         : session_append(ss, x, tokens, (uint32_t)n, on_stored,
                                          k, e);
    }
    const struct model *m = models_find(k->srv->models, k->model);
    if (m == NULL) {
        return err_set(e, ERR_MODEL_NOT_FOUND, "%s", k->model);
    }
    RETERR(session_new(ss, m, tokens, (uint32_t)n, k->pinned, on_stored, k, &x,
                       e));
    (void)snprintf(k->id, sizeof(k->id), "%s", x->row.id);
    k->status = 201;
    return 0;
}

static void apply(struct op *k, const int32_t *tokens, size_t n)
{
    struct err e = {0};
    int rc = change(k, tokens, n, &e);
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

/* "tokens" of a body, ids. */
static int read_ids(struct op *k, const struct json *v, struct err *e)
{
    size_t n = json_count(v);
    if (json_type(v) != JSON_ARRAY || n > TOKENS_MAX) {
        return err_set(e, ERR_INVALID, "tokens: must be an array of token ids");
    }
    k->ids = malloc((n + 1) * sizeof(*k->ids));
    must(k->ids != NULL); /* a body's size is limited */
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int64_t id = 0;
        if (!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            return err_set(e, ERR_INVALID,
                           "tokens: must be an array of token ids");
        }
        k->ids[k->n_ids++] = (int32_t)id;
    }
    return 0;
}

/* A member of j that is not null. */
static const struct json *present(const struct json *j, const char *key)
{
    const struct json *v = json_get(j, key);
    return v != NULL && json_type(v) != JSON_NULL ? v : NULL;
}

/* "prompt" (text) or "tokens" (ids) of the body; at most one of them. */
static int read_tokens(struct op *k, const struct json *j, struct err *e)
{
    const struct json *text = present(j, "prompt");
    const struct json *ids = present(j, "tokens");
    if (text != NULL && (ids != NULL || json_str(text) == NULL)) {
        return err_set(e, ERR_INVALID,
                       "prompt: must be a string, without tokens");
    }
    if (text != NULL) {
        k->text = strdup(json_str(text));
        must(k->text != NULL);
    }
    return ids != NULL ? read_ids(k, ids, e) : 0;
}

static void take_tokens(struct op *k, const struct model *m, bool first)
{
    struct err e = {0};
    if (k->text == NULL) {
        apply(k, k->ids, k->n_ids);
        return;
    }
    if (m->bundle == NULL) {
        op_fail(k, ERR_MODEL_FAILED, m->reason);
        return;
    }
    k->work.kind = TEXT_ENCODE;
    k->work.done = on_text;
    k->work.text = k->text;
    k->work.text_n = strlen(k->text);
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
    struct buf b;
    api_list_begin(&b, "sessions", NULL);
    for (struct session *x = session_next(s->sessions, NULL); x != NULL;
         x = session_next(s->sessions, x)) {
        api_list_add(&b, session_json(x));
    }
    api_list_reply(r, &b);
}

void api_session_get(struct http_req *r, const struct http_args *a)
{
    const struct session *x = session_of(r, a);
    struct buf b;
    if (x == NULL) {
        return;
    }
    api_list_begin(&b, "tokens", session_json(x));
    for (uint32_t i = 0; i < x->row.n; i++) {
        buf_puts(&b, i > 0 ? "," : "");
        buf_dec(&b, (uint64_t)x->row.tokens[i]);
    }
    api_list_reply(r, &b);
}

/* api_read.read */
static int read_create(struct api_read *x, const struct json *j)
{
    static const char *const names[] = {"model", "prompt", "tokens", "pinned",
                                        NULL};
    struct op *k = container_of(x, struct op, body);
    const char *name = NULL;
    RETERR(known(j, names, &x->e));
    RETERR(json_want_str(j, "model", false, &name, &x->e));
    RETERR(json_want_bool(j, "pinned", false, &k->pinned, &x->e));
    if (name != NULL) {
        k->name = strdup(name);
        must(k->name != NULL); /* a body's size is limited */
    }
    return read_tokens(k, j, &x->e);
}

/* Continue the request after its body was read. False: it has ended. */
static bool op_read(struct op *k)
{
    k->r = k->body.r;
    if (k->r == NULL || k->body.rc != 0) {
        op_fail(k, k->body.rc, k->body.e.msg);
        return false;
    }
    return true;
}

/* api_read.go */
static void create(struct api_read *x)
{
    struct op *k = container_of(x, struct op, body);
    struct model *m = NULL;
    if (!op_read(k)) {
        return;
    }
    if (api_model(k->r, k->name, &m) != 0) {
        op_free(k);
        return;
    }
    (void)snprintf(k->model, sizeof(k->model), "%s", m->name);
    take_tokens(k, m, true);
}

void api_sessions_create(struct http_req *r, const struct http_args *a)
{
    struct op *k = op_new(r, NULL);
    (void)a;
    k->body.read = read_create;
    k->body.go = create;
    api_read_body(r, &k->body);
}

static int read_append(struct api_read *x, const struct json *j)
{
    static const char *const names[] = {"prompt", "tokens", NULL};
    struct op *k = container_of(x, struct op, body);
    RETERR(known(j, names, &x->e));
    if (json_count(j) != 1) {
        return err_set(&x->e, ERR_INVALID, "prompt or tokens: one of them");
    }
    return read_tokens(k, j, &x->e);
}

static void append(struct api_read *y)
{
    struct op *k = container_of(y, struct op, body);
    struct model *m = NULL;
    if (!op_read(k)) {
        return;
    }
    const struct session *x = sessions_find(k->srv->sessions, k->id);
    if (x == NULL) {
        op_fail(k, ERR_NOT_FOUND, "the session is gone");
    } else if (api_model(k->r, x->row.model, &m) != 0) {
        op_free(k);
    } else {
        take_tokens(k, m, x->row.n == 0);
    }
}

void api_session_append(struct http_req *r, const struct http_args *a)
{
    const struct session *x = session_of(r, a);
    if (x != NULL) {
        struct op *k = op_new(r, x);
        k->body.read = read_append;
        k->body.go = append;
        api_read_body(r, &k->body);
    }
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
    struct op *k = op_new(r, x);
    op_wait(k, session_truncate(k->srv->sessions, x, n, on_stored, k, &e), &e);
}

void api_session_fork(struct http_req *r, const struct http_args *a)
{
    const struct session *x = session_of(r, a);
    uint32_t n = 0;
    if (x == NULL || read_n(r, x, false, &n) != 0) {
        return;
    }
    struct op *k = op_new(r, NULL);
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
    struct op *k = op_new(r, x);
    op_wait(k, session_pin(k->srv->sessions, x, pinned, on_stored, k, &e), &e);
}

void api_session_delete(struct http_req *r, const struct http_args *a)
{
    struct session *x = session_of(r, a);
    struct err e = {0};
    if (x != NULL) {
        struct op *k = op_new(r, x);
        op_wait(k, session_delete(k->srv->sessions, x, on_stored, k, &e), &e);
    }
}
