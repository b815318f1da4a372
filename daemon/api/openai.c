/* openai.c - /v1/models, /v1/completions, /v1/chat/completions: requests.
 * Answers are in openai_out.c. Shapes: OpenAI's API reference, with the fields
 * of llama-server that its clients read (context_length, meta, timings). */
#include <string.h>

#include "api/openai_impl.h"
#include "serve/engines/residency.h"
#include "serve/gen/session.h"

/* --- models --- */

static struct json *model_json(const struct model *m)
{
    const struct bundle *b = m->bundle;
    struct json *o = json_object();
    json_add_str(o, "id", m->name);
    json_add_str(o, "object", "model");
    json_add_int(o, "created", m->created_ms / 1000);
    json_add_str(o, "owned_by", "aned");
    struct json *st = json_add_object(o, "status");
    const char *v = model_state_name(m->state);
    bool up = strcmp(v, "loaded") == 0 || strcmp(v, "loading") == 0;
    json_add_str(st, "value", up ? v : "unloaded");
    if (m->state == MODEL_REJECTED || m->state == MODEL_FAILED) {
        json_add_bool(st, "failed", true);
    }
    if (b == NULL) {
        json_add_null(o, "meta");
        return o;
    }
    struct json *meta = json_add_object(o, "meta");
    json_add_int(meta, "n_vocab", (int64_t)b->vocab);
    json_add_int(meta, "n_ctx", (int64_t)b->context);
    json_add_int(meta, "n_ctx_train", (int64_t)b->context_train);
    json_add_int(meta, "n_embd", (int64_t)b->d_model);
    json_add_int(meta, "size", (int64_t)b->total_bytes);
    struct json *arch = json_add_object(o, "architecture");
    json_add_str(json_add_array(arch, "input_modalities"), NULL, "text");
    json_add_str(json_add_array(arch, "output_modalities"), NULL, "text");
    json_add_int(o, "context_length", (int64_t)b->context);
    json_add_int(o, "max_model_len", (int64_t)b->context);
    return o;
}

void api_oai_models(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct buf b;
    (void)a;
    struct json *o = json_object();
    json_add_str(o, "object", "list");
    api_list_begin(&b, "data", o);
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        api_list_add(&b, model_json(m));
    }
    api_list_reply(r, &b);
}

void api_oai_model(struct http_req *r, const struct http_args *a)
{
    struct model *m = NULL;
    if (api_model(r, a->v[0], &m) == 0) {
        api_reply(r, 200, model_json(m));
    }
}

/* --- prompts --- */

static int no_memory(struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "the prompt is over the limit");
}

/* [1, 2, 3], the value of `field`. */
static int read_tokens(struct arena *a, const struct json *v, const char *field,
                       const int32_t **ret, size_t *ret_n, struct err *e)
{
    size_t n = json_count(v), i = 0;
    if (n > TOKENS_MAX) {
        return err_set(e, ERR_TOO_BIG, "%s: more than %u tokens", field,
                       TOKENS_MAX);
    }
    int32_t *t = arena_array(a, n + 1, sizeof(*t));
    if (t == NULL) {
        return no_memory(e);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int64_t id = 0;
        if (!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            return err_set(e, ERR_INVALID,
                           "%s: entry %zu of the array is no token id", field,
                           i);
        }
        t[i++] = (int32_t)id;
    }
    *ret = t;
    *ret_n = n;
    return 0;
}

static int read_text(struct call *c, const char *text, struct err *e)
{
    struct gen_req *q = &c->p.req;
    size_t n = strlen(text);
    q->kind = GEN_TEXT;
    q->text = arena_strn(&c->arena, text, n);
    q->text_n = n;
    if (q->text == NULL) {
        return no_memory(e);
    }
    if (c->p.echo && c->p.stream) {
        buf_put(&c->echo, text, n);
    } else if (c->p.echo) {
        json_put_text(&c->echo, text, n);
    }
    if (!buf_ok(&c->echo) || c->echo.n > ANSWER_BYTES_MAX / q->n) {
        return err_set(e, ERR_TOO_BIG, "echo: the answer is over the limit");
    }
    return 0;
}

/* A string, [string], [int] or [[int]]: one prompt a request. */
static int read_prompt(struct call *c, const struct json *j, struct err *e)
{
    const struct json *v = json_get(j, "prompt");
    const char *text = json_str(v);
    if (text != NULL) {
        return read_text(c, text, e);
    }
    const struct json *first = json_first(v);
    if (v == NULL || json_type(v) != JSON_ARRAY || first == NULL) {
        return err_set(e, ERR_INVALID,
                       "prompt: must be a string or an array of token ids");
    }
    enum json_type t = json_type(first);
    if (t != JSON_NUMBER && json_count(v) != 1) {
        return err_set(e, ERR_UNSUPPORTED,
                       "prompt: one prompt a request, not %zu", json_count(v));
    }
    if (t == JSON_STRING) {
        return read_text(c, json_str(first), e);
    }
    if (c->p.echo) {
        return err_set(e, ERR_UNSUPPORTED, "echo: only with a text prompt");
    }
    if (t == JSON_ARRAY) {
        v = first;
    } else if (t != JSON_NUMBER) {
        return err_set(e, ERR_INVALID,
                       "prompt: must be a string or an array of token ids");
    }
    struct gen_req *q = &c->p.req;
    q->kind = GEN_TOKENS;
    return read_tokens(&c->arena, v, "prompt", &q->tokens, &q->n_tokens, e);
}

/* A string, or parts {"type": "text", "text": ...} that are joined. */
static int read_content(struct arena *a, const struct json *v, size_t i,
                        struct chat_message *m, struct err *e)
{
    struct buf b;
    int rc = 0;
    const char *s = json_str(v);
    if (s == NULL && (v == NULL || json_type(v) != JSON_ARRAY)) {
        return err_set(e, ERR_INVALID,
                       "messages[%zu].content: must be a string or an array of "
                       "text parts",
                       i);
    }
    buf_init(&b, TEXT_BYTES_MAX);
    if (s != NULL) {
        buf_puts(&b, s);
    }
    for (const struct json *c = s == NULL ? json_first(v) : NULL; c != NULL;
         c = json_next(c)) {
        const char *type = json_str(json_get(c, "type"));
        const char *text = json_str(json_get(c, "text"));
        if (type == NULL || strcmp(type, "text") != 0 || text == NULL ||
            json_count(c) != 2) {
            rc = err_set(e, ERR_UNSUPPORTED,
                         "messages[%zu].content: only parts of type text", i);
            break;
        }
        buf_puts(&b, text);
    }
    if (rc == 0) {
        m->content_n = b.n;
        m->content = arena_strn(a, b.p != NULL ? b.p : "", b.n);
        rc = buf_ok(&b) && m->content != NULL ? 0 : no_memory(e);
    }
    buf_fini(&b);
    return rc;
}

static int read_message(struct arena *a, const struct json *v, size_t i,
                        struct chat_message *m, struct err *e)
{
    static const char *const roles[] = {"system", "developer", "user",
                                        "assistant"};
    const char *role = json_str(json_get(v, "role"));
    if (json_type(v) != JSON_OBJECT || role == NULL) {
        return err_set(e, ERR_INVALID, "messages[%zu].role: must be a string",
                       i);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        const char *k = json_key(c);
        if (strcmp(k, "role") != 0 && strcmp(k, "content") != 0 &&
            json_type(c) != JSON_NULL &&
            !(json_type(c) == JSON_ARRAY && json_first(c) == NULL)) {
            return err_set(e, ERR_UNSUPPORTED,
                           "messages[%zu].%.32s: no such "
                           "field here",
                           i, k);
        }
    }
    for (size_t k = 0; k < countof(roles); k++) {
        if (strcmp(role, roles[k]) == 0) {
            m->role = roles[k];
            return read_content(a, json_get(v, "content"), i, m, e);
        }
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "messages[%zu].role: '%.32s' is not one "
                   "of system, developer, user, assistant",
                   i, role);
}

static int read_messages(struct call *c, const struct json *j, struct err *e)
{
    struct gen_req *q = &c->p.req;
    const struct json *v = json_get(j, "messages");
    size_t n = json_count(v), i = 0;
    if (v == NULL || json_type(v) != JSON_ARRAY || n == 0) {
        return err_set(e, ERR_INVALID,
                       "messages: must be an array with a message");
    }
    if (n > CHAT_MESSAGES_MAX) {
        return err_set(e, ERR_INVALID, "messages: at most %u",
                       CHAT_MESSAGES_MAX);
    }
    q->kind = GEN_CHAT;
    q->n_messages = n;
    q->messages = arena_array(&c->arena, n, sizeof(*q->messages));
    if (q->messages == NULL) {
        return no_memory(e);
    }
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        RETERR(read_message(&c->arena, x, i, &q->messages[i], e));
        i++;
    }
    return 0;
}

/* What the answer may look like: checked by params.c. */
static int read_prediction(struct call *c, struct err *e)
{
    struct gen_req *q = &c->p.req;
    const struct json *v = c->p.prediction;
    struct buf b;
    if (v == NULL) {
        return 0;
    }
    c->p.prediction = NULL; /* borrowed from the request's tree */
    if (json_type(json_first(v)) == JSON_NUMBER) {
        return read_tokens(&c->arena, v, "prediction", &q->guess_tokens,
                           &q->n_guess_tokens, e);
    }
    buf_init(&b, TEXT_BYTES_MAX);
    if (json_str(v) != NULL) {
        buf_puts(&b, json_str(v));
    }
    for (const struct json *part = json_first(v); part != NULL;
         part = json_next(part)) {
        buf_puts(&b, json_str(json_get(part, "text")));
    }
    q->guess = arena_strn(&c->arena, b.p != NULL ? b.p : "", b.n);
    q->guess_n = b.n;
    int rc = buf_ok(&b) && q->guess != NULL ? 0 : no_memory(e);
    buf_fini(&b);
    return rc;
}

/* --- start --- */

static struct call *call_new(struct http_req *r, bool chat)
{
    struct call *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->r = r;
    c->srv = http_ctx(r);
    c->chat = chat;
    c->prompt_field = chat ? "messages" : "prompt";
    c->created = server_unix_ms() / 1000;
    c->arrived_us = server_now_us();
    arena_init(&c->arena, GEN_ARENA_MAX);
    buf_init(&c->echo, ANSWER_BYTES_MAX);
    buf_init(&c->out, EVENT_BYTES_MAX);
    buf_init(&c->text_head, 512); /* id, names and a number */
    buf_init(&c->drawn, MODEL_CONTEXT_MAX * sizeof(int32_t));
    char id[40];
    store_new_id("x", id);
    (void)snprintf(c->id, sizeof(c->id), "%s-%s", chat ? "chatcmpl" : "cmpl",
                   id + 2);
    for (size_t i = 0; i < CHOICES_MAX; i++) {
        buf_init(&c->choices[i].text, 2 * ANSWER_BYTES_MAX);
        probs_init(&c->choices[i].probs);
    }
    return c;
}

/* api_read.read: the fields, then what they are about. */
static int read_request(struct api_read *x, const struct json *j)
{
    struct call *c = container_of(x, struct call, body);
    struct err *e = &x->e;
    int rc = params_read(j, c->chat ? PARAMS_CHAT : PARAMS_COMPLETION,
                         &c->arena, &c->p, e);
    c->field = c->p.param;
    if (rc != 0) {
        return rc;
    }
    if (c->p.model != NULL) { /* borrowed from j */
        c->p.model = arena_str(&c->arena, c->p.model);
        if (c->p.model == NULL) {
            return no_memory(e);
        }
    }
    c->field = c->prompt_field;
    if (c->of_session[0] == '\0') {
        c->read_rc = c->chat ? read_messages(c, j, e) : read_prompt(c, j, e);
    } else if (json_get(j, "prompt") != NULL || json_get(j, "model") != NULL ||
               c->p.echo || c->p.req.n != 1) {
        c->read_rc = err_set(e, ERR_UNSUPPORTED,
                             "prompt, model, echo, n: not with a session");
    }
    if (c->read_rc == 0) {
        c->field = "prediction";
        c->read_rc = read_prediction(c, e);
    }
    return 0; /* the model's name comes first */
}

/* The session's tokens are the prompt; no other request may change them until
 * the end. */
static int take_session(struct call *c, struct session *x, struct err *e)
{
    struct gen_req *q = gen_request(c->gen);
    const struct store_session *v = &x->row;
    int32_t *t = arena_array(gen_arena(c->gen), (size_t)v->n + 1, sizeof(*t));
    if (t == NULL) {
        return no_memory(e);
    }
    if (v->n > 0) {
        memcpy(t, v->tokens, v->n * sizeof(*t));
    }
    q->kind = GEN_TOKENS;
    q->tokens = t;
    q->n_tokens = v->n;
    int rc = session_begin(x, e);
    if (rc == 0) {
        (void)snprintf(c->session, sizeof(c->session), "%s", v->id);
    }
    return rc;
}

static void make_gen(struct call *c, struct model *m)
{
    struct gen_req *q = &c->p.req;
    (void)snprintf(c->model, sizeof(c->model), "%s", m->name);
    q->arrived_us = c->arrived_us;
    q->peer = (uint64_t)http_peer_pid(c->r);
    if (m->bundle != NULL && m->bundle->argmax && !c->p.tempered) {
        q->sampling.temperature = 0; /* the only one that it has */
    }
    if (c->srv->conf.speculation_share_tokens > 0) {
        q->share = http_peer_process(c->r);
    }
    c->gen = gen_new(c->srv, m, &call_sink, c, &c->arena);
    *gen_request(c->gen) = *q;
    c->p.model = NULL; /* the arena is the gen's */
}

/* What it holds until its end: a stream that can be resumed, a session. */
static int hold(struct call *c, struct session *x, struct err *e)
{
    if (c->p.resumable) {
        struct resume_owner o = call_resume_owner;
        o.ctx = c;
        RETERR(resume_new(c->srv, c->id, c->r, &o, &c->resume, e));
    }
    return x != NULL ? take_session(c, x, e) : 0;
}

/* gen_start, once there is a gen. Errors: c->gen is gone. */
static int start_gen(struct call *c, struct session *x, struct err *e)
{
    c->field = c->prompt_field;
    int rc = hold(c, x, e);
    if (rc != 0) {
        gen_cancel(c->gen);
    } else {
        c->field = NULL;
        rc = gen_start(c->gen, e);
    }
    c->gen = rc == 0 ? c->gen : NULL;
    return rc;
}

/* api_read.go */
static void on_read(struct api_read *y)
{
    struct call *c = container_of(y, struct call, body);
    struct model *m = NULL;
    struct session *x = NULL;
    struct err *e = &y->e;
    if (y->r == NULL) {
        call_free(c);
        return;
    }
    if (y->rc != 0) {
        call_refuse(c, y->rc, c->field, e->msg);
        return;
    }
    if (c->of_session[0] != '\0') { /* it may be gone since it was asked */
        x = sessions_find(c->srv->sessions, c->of_session);
        if (x == NULL) {
            call_refuse(c, ERR_NOT_FOUND, NULL, "there is no such session");
            return;
        }
    }
    if (api_model(c->r, x != NULL ? x->row.model : c->p.model, &m) != 0) {
        call_free(c);
        return;
    }
    if (c->read_rc != 0) {
        call_refuse(c, c->read_rc, c->field, e->msg);
        return;
    }
    make_gen(c, m);
    int rc = start_gen(c, x, e);
    if (rc != 0) {
        call_refuse(c, rc, c->field, e->msg);
        return;
    }
    if (c->p.keeps) {
        model_keep(m, c->p.keep_ms);
    }
    if (c->resume == NULL) {
        http_on_gone(c->r, call_on_gone, c);
    }
    if (c->p.stream) {
        http_stream_expect(c->r);
    }
}

/* session "": none. */
static void start(struct http_req *r, bool chat, const char *session)
{
    struct call *c = call_new(r, chat);
    (void)snprintf(c->of_session, sizeof(c->of_session), "%s", session);
    c->body.read = read_request;
    c->body.go = on_read;
    api_read_body(r, &c->body);
}

void api_completions(struct http_req *r, const struct http_args *a)
{
    (void)a;
    start(r, false, "");
}

void api_chat(struct http_req *r, const struct http_args *a)
{
    (void)a;
    start(r, true, "");
}

void api_session_generate(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct session *x = sessions_find(s->sessions, a->v[0]);
    if (x == NULL) {
        api_fail(r, ERR_NOT_FOUND, NULL, "there is no such session");
        return;
    }
    start(r, false, x->row.id);
}
