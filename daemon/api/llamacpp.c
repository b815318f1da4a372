/* llamacpp.c - llama-server's routes: /health, /tokenize, /detokenize. */
#include <string.h>

#include "api/api.h"
#include "base/buf.h"

void api_health(struct http_req *r, const struct http_args *a)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    const struct server *s = http_ctx(r);
    (void)a;
    if (s->draining) {
        http_reply_error(r, ERR_UNAVAILABLE, "the daemon is stopping");
        return;
    }
    http_reply(r, 200, NULL, ok, sizeof(ok) - 1);
}

struct ask { /* one request on the text thread */
    struct text_work work;
    struct http_req *r; /* NULL: the client left */
    struct json *body;  /* owns the strings of `work` */
    int32_t *ids;
    bool pieces;
};

static void ask_free(struct ask *k)
{
    text_fini(&k->work);
    json_free(k->body);
    free(k->ids);
    free(k);
}

static void on_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct ask *)user)->r = NULL;
}

static bool is_utf8(const char *p, size_t n)
{
    struct buf b;
    struct json *parsed = NULL;
    buf_init(&b, TOKEN_BYTES_MAX * 8);
    json_put_string(&b, p, n); /* replaces what is not UTF-8 */
    bool same = buf_ok(&b) && json_parse(b.p, b.n, &parsed, NULL) == 0;
    const char *s = same ? json_str(parsed) : NULL;
    same = s != NULL && strlen(s) == n && memcmp(s, p, n) == 0;
    json_free(parsed);
    buf_fini(&b);
    return same;
}

/* {"id", "piece"}: text, or bytes where it is not UTF-8. */
static void put_piece(struct json *list, const struct tokenizer *t, int32_t id)
{
    struct span s = tokenizer_piece(t, id, true);
    struct json *o = json_add_object(list, NULL);
    json_add_int(o, "id", id);
    if (is_utf8(s.p, s.n)) {
        json_add_strn(o, "piece", s.p, s.n);
        return;
    }
    struct json *b = json_add_array(o, "piece");
    for (size_t i = 0; i < s.n; i++) {
        json_add_int(b, NULL, (uint8_t)s.p[i]);
    }
}

static void on_done(struct text_work *w)
{
    struct ask *k = container_of(w, struct ask, work);
    if (k->r == NULL) {
        ask_free(k);
        return;
    }
    struct json *o = json_object();
    if (w->rc != 0) {
        api_put_error(o, w->rc, NULL, w->e.msg);
    } else if (w->kind == TEXT_DECODE) {
        json_add_strn(o, "content", w->out.p != NULL ? w->out.p : "", w->out.n);
    } else {
        struct json *list = json_add_array(o, "tokens");
        for (size_t i = 0; i < w->n_tokens; i++) {
            if (k->pieces) {
                put_piece(list, w->voc->tok, w->tokens[i]);
            } else {
                json_add_int(list, NULL, w->tokens[i]);
            }
        }
    }
    api_reply(k->r, w->rc != 0 ? err_http(w->rc) : 200, o);
    ask_free(k);
}

/* Every key of the body is one of `keys`; the reply was sent otherwise. */
static bool only_keys(struct http_req *r, const struct json *j,
                      const char *const *keys, size_t n)
{
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(json_key(c), keys[i]) == 0;
        }
        if (!known) {
            struct err e = {0};
            int rc = err_set(&e, ERR_UNSUPPORTED, "%.63s: no such field here",
                             json_key(c));
            api_fail(r, rc, json_key(c), e.msg);
            return false;
        }
    }
    return true;
}

static void refuse(struct ask *k, int rc, const struct err *e)
{
    api_fail(k->r, rc, NULL, e->msg);
    ask_free(k);
}

static void submit(struct ask *k, const char *model)
{
    struct server *s = http_ctx(k->r);
    struct model *m = NULL;
    struct err e = {0};
    if (api_model(k->r, model, &m) != 0) {
        ask_free(k);
        return;
    }
    k->work.done = on_done;
    int rc = text_put(s->text, m->voc, &k->work);
    if (rc != 0) {
        s->stats.refused_busy++;
        (void)err_set(&e, rc, "too many texts wait to be tokenised");
        refuse(k, rc, &e);
        return;
    }
    http_on_gone(k->r, on_gone, k);
}

/* The body's fields are all of `keys`: an ask that holds it. NULL: the reply
 * was sent. */
static struct ask *ask_new(struct http_req *r, const char *const *keys,
                           size_t n)
{
    struct json *body = NULL;
    if (api_body(r, &body) != 0) {
        return NULL;
    }
    struct ask *k = calloc(1, sizeof(*k));
    must(k != NULL);
    k->r = r;
    k->body = body;
    if (!only_keys(r, body, keys, n)) {
        ask_free(k);
        return NULL;
    }
    return k;
}

void api_tokenize(struct http_req *r, const struct http_args *a)
{
    static const char *const keys[] = {"content", "add_special", "with_pieces",
                                       "parse_special", "model"};
    const char *text = NULL, *model = NULL;
    bool special = true, bos = false, pieces = false;
    struct err e = {0};
    (void)a;
    struct ask *k = ask_new(r, keys, countof(keys));
    if (k == NULL) {
        return;
    }
    const struct json *j = k->body;
    int rc = json_want_str(j, "content", true, &text, &e);
    if (rc == 0) {
        rc = json_want_bool(j, "add_special", false, &bos, &e);
    }
    if (rc == 0) {
        rc = json_want_bool(j, "parse_special", false, &special, &e);
    }
    if (rc == 0) {
        rc = json_want_bool(j, "with_pieces", false, &pieces, &e);
    }
    if (rc == 0) {
        rc = json_want_str(j, "model", false, &model, &e);
    }
    if (rc != 0) {
        refuse(k, rc, &e);
        return;
    }
    k->pieces = pieces;
    k->work.kind = TEXT_ENCODE;
    k->work.text = text;
    k->work.text_n = strlen(text);
    k->work.special = special;
    k->work.bos = bos;
    submit(k, model);
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

void api_detokenize(struct http_req *r, const struct http_args *a)
{
    static const char *const keys[] = {"tokens", "model"};
    const char *model = NULL;
    struct err e = {0};
    (void)a;
    struct ask *k = ask_new(r, keys, countof(keys));
    if (k == NULL) {
        return;
    }
    int rc = json_want_str(k->body, "model", false, &model, &e);
    if (rc == 0) {
        rc = read_ids(k, json_get(k->body, "tokens"), &e);
    }
    if (rc != 0) {
        refuse(k, rc, &e);
        return;
    }
    k->work.kind = TEXT_DECODE;
    k->work.special = true;
    submit(k, model);
}
