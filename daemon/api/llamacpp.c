/* llamacpp.c - llama-server's routes: /health, /tokenize, /detokenize. */
#include <string.h>

#include "api/api.h"
#include "base/utf8.h"

/* Models whose first predictions run, which may take minutes; NULL: none. */
static struct json *warming(const struct server *s)
{
    struct json *o = NULL;
    struct json *list = NULL;
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        double progress = -1;
        const char *stage = model_stage(m, &progress);
        if (stage == NULL || strcmp(stage, "warming") != 0) {
            continue;
        }
        if (o == NULL) {
            o = json_object();
            json_add_str(o, "status", "ok");
            list = json_add_array(o, "warming");
        }
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "model", m->name);
        json_add_num(x, "progress", progress);
    }
    return o;
}

void api_health(struct http_req *r, const struct http_args *a)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    const struct server *s = http_ctx(r);
    (void)a;
    if (s->draining) {
        http_reply_error(r, ERR_UNAVAILABLE, "the daemon is stopping");
        return;
    }
    if (s->reload.trouble.code != 0) {
        http_reply_error(r, s->reload.trouble.code, s->reload.trouble.msg);
        return;
    }
    if (!s->ready) {
        http_reply_error(r, ERR_STARTING, NULL);
        return;
    }
    struct json *o = warming(s);
    if (o != NULL) {
        api_reply(r, 200, o);
    } else {
        http_reply(r, 200, NULL, ok, sizeof(ok) - 1);
    }
}

struct ask { /* one request on the text thread */
    struct api_read body;
    struct text_work work;
    struct http_req *r; /* NULL: the client left */
    char *text;         /* of `work` */
    int32_t *ids;
    char *model; /* NULL: not named */
    bool pieces;
    char param[64]; /* the field an error is about; "": none */
    struct buf out; /* the answer, after room for its head */
};

static void ask_free(struct ask *k)
{
    text_fini(&k->work);
    free(k->text);
    free(k->model);
    free(k->ids);
    buf_fini(&k->out);
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

static bool is_text(struct span s)
{
    size_t i = 0, len = 1;
    for (; i < s.n && len > 0; i += len) {
        len = s.p[i] != '\0' ? utf8_len(s.p + i, s.n - i) : 0;
    }
    return len > 0;
}

/* {"id", "piece"}: text, or bytes where it is not UTF-8. */
static void put_piece(struct buf *b, const struct tokenizer *t, int32_t id)
{
    struct span s = tokenizer_piece(t, id, true);
    buf_puts(b, "{\"id\":");
    buf_dec(b, (uint64_t)id);
    buf_puts(b, ",\"piece\":");
    if (is_text(s)) {
        json_put_string(b, s.p, s.n);
    } else {
        for (size_t i = 0; i < s.n; i++) {
            buf_puts(b, i > 0 ? "," : "[");
            buf_dec(b, (uint8_t)s.p[i]);
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "}");
}

/* text_work.then: a megabyte of tokens is not written on the loop. */
static void write_answer(struct text_work *w)
{
    struct ask *k = container_of(w, struct ask, work);
    struct buf *b = &k->out;
    if (w->rc != 0) {
        return;
    }
    (void)buf_grow(b, HTTP_HEAD_ROOM);
    if (w->kind == TEXT_DECODE) {
        buf_puts(b, "{\"content\":");
        json_put_string(b, w->out.p != NULL ? w->out.p : "", w->out.n);
        buf_puts(b, "}");
        return;
    }
    buf_puts(b, "{\"tokens\":[");
    for (size_t i = 0; i < w->n_tokens && buf_ok(b); i++) {
        buf_puts(b, i > 0 ? "," : "");
        if (k->pieces) {
            put_piece(b, w->voc->tok, w->tokens[i]);
        } else {
            buf_dec(b, (uint64_t)w->tokens[i]);
        }
    }
    buf_puts(b, "]}");
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

/* Every key of the body is one of `keys`. */
static int only_keys(struct ask *k, const struct json *j,
                     const char *const *keys, size_t n, struct err *e)
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
    struct server *s = http_ctx(k->r);
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
    k->work.then = write_answer;
    k->work.done = on_done;
    k->body.queue = s->text;
    rc = text_put(s->text, m->voc, &k->work);
    if (rc != 0) {
        s->stats.refused_busy++;
        api_fail(k->r, rc, NULL, "too many texts wait to be tokenised");
        ask_free(k);
        return;
    }
    http_on_gone(k->r, on_gone, k);
}

static void ask(struct http_req *r,
                int (*read)(struct api_read *x, const struct json *j))
{
    struct ask *k = calloc(1, sizeof(*k));
    must(k != NULL);
    buf_init(&k->out, HTTP_REPLY_MAX - KIB(4));
    k->body.read = read;
    k->body.go = submit;
    api_read_body(r, &k->body);
}

/* Copy of a string that is in the body, whose size is limited. */
static char *copy(const char *s)
{
    char *p = s != NULL ? strdup(s) : NULL;
    must(s == NULL || p != NULL);
    return p;
}

static int read_tokenize(struct api_read *x, const struct json *j)
{
    static const char *const keys[] = {"content", "add_special", "with_pieces",
                                       "parse_special", "model"};
    struct ask *k = container_of(x, struct ask, body);
    const char *text = NULL, *model = NULL;
    bool special = true, bos = false;
    struct err *e = &x->e;
    RETERR(only_keys(k, j, keys, countof(keys), e));
    RETERR(json_want_str(j, "content", true, &text, e));
    RETERR(json_want_bool(j, "add_special", false, &bos, e));
    RETERR(json_want_bool(j, "parse_special", false, &special, e));
    RETERR(json_want_bool(j, "with_pieces", false, &k->pieces, e));
    RETERR(json_want_str(j, "model", false, &model, e));
    k->text = copy(text);
    k->model = copy(model);
    k->work.kind = TEXT_ENCODE;
    k->work.text = k->text;
    k->work.text_n = strlen(k->text);
    k->work.special = special;
    k->work.bos = bos;
    return 0;
}

void api_tokenize(struct http_req *r, const struct http_args *a)
{
    (void)a;
    ask(r, read_tokenize);
}

static int read_ids(struct ask *k, const struct json *v, struct err *e)
{
    size_t n = json_count(v), i = 0;
    if (v == NULL || json_type(v) != JSON_ARRAY || n > TOKENS_MAX) {
        return err_set(e, ERR_INVALID, "tokens: must be an array of token ids");
    }
    k->ids = calloc(n + 1, sizeof(*k->ids));
    if (k->ids == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tokens", n);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int64_t id = 0;
        if (!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            return err_set(e, ERR_INVALID, "tokens: entry %zu is no token id",
                           i);
        }
        k->ids[i++] = (int32_t)id;
    }
    k->work.ids = k->ids;
    k->work.n_ids = n;
    return 0;
}

static int read_detokenize(struct api_read *x, const struct json *j)
{
    static const char *const keys[] = {"tokens", "model"};
    struct ask *k = container_of(x, struct ask, body);
    const char *model = NULL;
    k->work.kind = TEXT_DECODE;
    k->work.special = true;
    RETERR(only_keys(k, j, keys, countof(keys), &x->e));
    RETERR(json_want_str(j, "model", false, &model, &x->e));
    k->model = copy(model);
    return read_ids(k, json_get(j, "tokens"), &x->e);
}

void api_detokenize(struct http_req *r, const struct http_args *a)
{
    (void)a;
    ask(r, read_detokenize);
}
