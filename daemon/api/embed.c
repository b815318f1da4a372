/* embed.c - requests for embeddings, of every dialect.
 *
 *   body -> fields and texts -> embeds (serve/gen/embeds.h) -> the answer's
 *   JSON (text thread) -> sent
 */
#include "api/embed.h"

#include <string.h>

#include "serve/engines/residency.h"

static void call_end(struct embed_call *c)
{
    embeds_fini(&c->x);
    text_fini(&c->work);
    arena_fini(&c->arena);
    buf_fini(&c->out);
    free(c);
}

static void fail(struct embed_call *c, int rc, const char *msg)
{
    if (c->r != NULL) {
        const char *param = c->param != NULL && c->param[0] != '\0' ? c->param
                                                                    : NULL;
        api_fail(c->r, rc, param, msg);
    }
    call_end(c);
}

/* --- the request --- */

static int bad_input(const struct embed_call *c, struct err *e)
{
    const char *want = c->form->one   ? "a text"
                       : c->form->ids ? "a text, an array of texts, token ids, "
                                        "or an array of arrays of token ids"
                                      : "a text, or an array of texts";
    return err_set(e, ERR_INVALID, "%s: must be %s", c->param, want);
}

static int read_text(struct embed_call *c, const struct json *v,
                     struct embed_text *t, struct err *e)
{
    if (json_str(v) == NULL) {
        return bad_input(c, e);
    }
    t->text_n = strlen(json_str(v));
    t->text = arena_strn(&c->arena, json_str(v), t->text_n);
    return t->text != NULL
               ? 0
               : err_set(e, ERR_TOO_BIG, "%s: over the limit", c->param);
}

static int read_ids(struct embed_call *c, const struct json *v,
                    struct embed_text *t, struct err *e)
{
    size_t n = json_count(v);
    size_t i = 0;
    int32_t *ids = arena_array(&c->arena, n, sizeof(*ids));
    if (n == 0) {
        return bad_input(c, e);
    }
    if (ids == NULL) {
        return err_set(e, ERR_TOO_BIG, "%s: over the limit", c->param);
    }
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        int64_t id = 0;
        if (!json_int(x, 0, MODEL_VOCAB_MAX - 1, &id)) {
            return bad_input(c, e);
        }
        ids[i++] = (int32_t)id;
    }
    t->ids = ids;
    t->n_ids = n;
    return 0;
}

static int room(struct embed_call *c, size_t n, struct err *e)
{
    if (n > EMBED_INPUTS_MAX) {
        return err_set(e, ERR_TOO_BIG,
                       "%s: %zu texts, at most %u go in one request", c->param,
                       n, EMBED_INPUTS_MAX);
    }
    c->x.texts = arena_array(&c->arena, n + 1, sizeof(*c->x.texts));
    if (c->x.texts == NULL) {
        return err_set(e, ERR_TOO_BIG, "%s: over the limit", c->param);
    }
    memset(c->x.texts, 0, (n + 1) * sizeof(*c->x.texts));
    c->x.n_texts = n;
    return 0;
}

static bool is_ids(const struct embed_call *c, const struct json *v)
{
    const struct json *x = json_type(v) == JSON_ARRAY ? json_first(v) : NULL;
    return c->form->ids && x != NULL && json_type(x) == JSON_NUMBER;
}

static int read_list(struct embed_call *c, const struct json *v, struct err *e)
{
    size_t i = 0;
    if (json_type(v) != JSON_ARRAY || c->form->one ||
        (json_first(v) == NULL && !c->form->may_be_empty)) {
        return bad_input(c, e);
    }
    RETERR(room(c, json_count(v), e));
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        struct embed_text *t = &c->x.texts[i++];
        RETERR(is_ids(c, x) ? read_ids(c, x, t, e) : read_text(c, x, t, e));
    }
    return 0;
}

static int read_input(struct embed_call *c, const struct json *j, struct err *e)
{
    const struct json *v = NULL;
    for (size_t i = 0; i < countof(c->form->input) && v == NULL; i++) {
        if (c->form->input[i] != NULL) {
            v = json_get(j, c->form->input[i]);
            c->param = v != NULL ? c->form->input[i] : c->form->input[0];
        }
    }
    bool none = v == NULL || json_type(v) == JSON_NULL ||
                (json_str(v) != NULL && json_str(v)[0] == '\0');
    if (none && c->form->may_be_empty) {
        return room(c, 0, e);
    }
    if (v == NULL) {
        return bad_input(c, e);
    }
    if (json_type(v) == JSON_STRING) {
        RETERR(room(c, 1, e));
        return read_text(c, v, &c->x.texts[0], e);
    }
    if (is_ids(c, v)) {
        RETERR(room(c, 1, e));
        return read_ids(c, v, &c->x.texts[0], e);
    }
    return read_list(c, v, e);
}

static int read_request(struct api_read *y, const struct json *j)
{
    struct embed_call *c = container_of(y, struct embed_call, body);
    c->param = c->p.param;
    RETERR(params_read(j, c->form->fields, &c->arena, &c->p, &y->e));
    if (c->p.model != NULL) { /* borrowed from j */
        c->p.model = arena_str(&c->arena, c->p.model);
        if (c->p.model == NULL) {
            return err_set(&y->e, ERR_TOO_BIG, "the request is over the limit");
        }
    }
    RETERR(read_input(c, j, &y->e));
    return 0;
}

/* --- the answer --- */

/* text_work.then */
static void write_answer(struct text_work *w)
{
    struct embed_call *c = container_of(w, struct embed_call, work);
    if (w->rc == 0) {
        (void)buf_grow(&c->out, HTTP_HEAD_ROOM);
        c->form->put(c);
    }
}

static void on_written(struct text_work *w)
{
    struct embed_call *c = container_of(w, struct embed_call, work);
    c->param = NULL;
    if (w->rc != 0) {
        fail(c, w->rc, w->e.msg);
    } else if (!buf_ok(&c->out)) {
        fail(c, ERR_TOO_BIG, "the answer is over the limit");
    } else {
        if (c->r != NULL) {
            http_reply_take(c->r, 200, NULL, &c->out);
        }
        call_end(c);
    }
}

static void answer(struct embed_call *c)
{
    c->work = (struct text_work){
        .kind = TEXT_OPEN, .then = write_answer, .done = on_written};
    c->writing = true;
    int rc = text_put(c->srv->text, c->x.m->voc, &c->work);
    if (rc != 0) {
        c->writing = false;
        c->srv->stats.refused_busy++;
        fail(c, rc, "too many answers wait to be written");
    }
}

/* embeds.done */
static void on_vectors(struct embeds *x, int rc, const char *msg)
{
    struct embed_call *c = container_of(x, struct embed_call, x);
    c->started = false;
    if (c->r == NULL) {
        call_end(c);
    } else if (rc != 0) {
        c->param = rc == ERR_UNSUPPORTED ? "model" : c->param;
        fail(c, rc, msg);
    } else {
        answer(c);
    }
}

/* --- the stages --- */

static void on_gone(struct http_req *r, void *user)
{
    struct embed_call *c = user;
    (void)r;
    c->r = NULL;
    if (c->started) {
        if (embeds_cancel(&c->x)) {
            call_end(c);
        } /* else on_vectors is called */
    } else if (c->writing) {
        if (text_cancel(c->srv->text, &c->work)) {
            call_end(c);
        } /* else on_written is called */
    } else {
        model_unwait(&c->wait);
        call_end(c);
    }
}

/* What the answer will be is known before anything is computed. */
static int check_size(const struct embed_call *c, struct err *e)
{
    enum { DIGITS = 11, CHARS = 6 }; /* of a number, about */
    size_t each = c->p.embed.base64 ? CHARS : DIGITS;
    uint32_t all = c->x.m->bundle->d_model;
    if (c->p.embed.dimensions > all) {
        return err_set(e, ERR_INVALID,
                       "dimensions: %u, and the vectors of %s have %u numbers",
                       c->p.embed.dimensions, c->x.m->name, all);
    }
    size_t width = embed_width(c);
    if (c->x.n_texts > HTTP_REPLY_MAX / (width * each)) {
        return err_set(e, ERR_TOO_BIG,
                       "%zu vectors of %zu numbers are over the limit of an "
                       "answer; send fewer texts at once%s",
                       c->x.n_texts, width,
                       c->p.embed.base64 ? "" : ", or take base64");
    }
    return 0;
}

static void on_model(struct model_wait *w, int rc, const struct err *e)
{
    struct embed_call *c = container_of(w, struct embed_call, wait);
    if (rc != 0) {
        fail(c, rc, e->msg);
    } else {
        answer(c);
    }
}

/* A request without a text: the model is loaded. */
static void load(struct embed_call *c)
{
    struct err e = {0};
    c->wait.fn = on_model;
    int rc = model_load(c->x.m, false, &c->wait, &e);
    if (rc < 0) {
        fail(c, rc, e.msg);
    } else if (rc > 0) {
        answer(c);
    }
}

static int begin(struct embed_call *c, struct err *e)
{
    const char *input = c->param;
    c->param = "model";
    RETERR(embeds_check(c->x.m, e));
    c->param = c->p.embed.dimensions != 0 ? "dimensions" : input;
    RETERR(check_size(c, e));
    c->param = input;
    c->x.srv = c->srv;
    c->x.truncate = c->p.embed.truncate;
    c->x.cls = c->p.req.cls;
    c->x.peer = http_peer(c->r);
    c->x.done = on_vectors;
    if (c->x.n_texts > 0) {
        RETERR(embeds_start(&c->x, e));
        c->started = true;
    }
    return 0;
}

/* api_read.go */
static void on_read(struct api_read *y)
{
    struct embed_call *c = container_of(y, struct embed_call, body);
    struct err e = {0};
    c->r = y->r;
    if (c->r == NULL) {
        call_end(c);
        return;
    }
    c->srv = http_ctx(c->r);
    if (y->rc != 0) {
        fail(c, y->rc, y->e.msg);
        return;
    }
    if (api_model(c->r, c->p.model, &c->x.m) != 0) {
        call_end(c);
        return;
    }
    int rc = begin(c, &e);
    if (rc != 0) {
        fail(c, rc, e.msg);
        return;
    }
    if (c->p.keeps) {
        model_keep(c->x.m, c->p.keep_ms);
    }
    http_on_gone(c->r, on_gone, c);
    if (!c->started) {
        load(c);
    }
}

static void start(struct http_req *r, const struct embed_form *f)
{
    struct embed_call *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->form = f;
    c->arrived_us = server_now_us();
    c->loaded_us = c->arrived_us;
    arena_init(&c->arena, GEN_ARENA_MAX);
    buf_init(&c->out, HTTP_REPLY_MAX - KIB(4));
    c->body.read = read_request;
    c->body.go = on_read;
    api_read_body(r, &c->body);
}

void api_embeddings(struct http_req *r, const struct http_args *a)
{
    static const struct embed_form form = {.fields = &embed_openai_fields,
                                           .input = {"input"},
                                           .ids = true,
                                           .put = embed_put_openai};
    (void)a;
    start(r, &form);
}

void api_llama_embedding(struct http_req *r, const struct http_args *a)
{
    static const struct embed_form form = {.fields = &embed_llamacpp_fields,
                                           .input = {"content", "input"},
                                           .ids = true,
                                           .put = embed_put_llamacpp};
    (void)a;
    start(r, &form);
}

void api_ollama_embed(struct http_req *r, const struct http_args *a)
{
    static const struct embed_form form = {.fields = &embed_ollama_fields,
                                           .input = {"input"},
                                           .may_be_empty = true,
                                           .put = embed_put_ollama};
    (void)a;
    start(r, &form);
}

void api_ollama_embeddings(struct http_req *r, const struct http_args *a)
{
    static const struct embed_form form = {.fields = &embed_ollama_old_fields,
                                           .input = {"prompt"},
                                           .one = true,
                                           .may_be_empty = true,
                                           .put = embed_put_ollama_old};
    (void)a;
    start(r, &form);
}
