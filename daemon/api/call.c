/* call.c - see call.h: from the body to the gen, from its tokens to the end of
 * the answer.
 *
 * In a stream an event is sent as soon as its text is certain. The head is sent
 * with the first event, so that an early error still has its HTTP status. Other
 * answers are collected and sent at once (call_whole.c).
 *
 * Who frees a call: the function after which nothing refers to it. That is
 * answer(), or on_written of a large answer; refuse(), before there is a gen;
 * on_gone(), when the client has left. While a session's turn is being stored
 * only on_turn_stored may free it. */
#include <string.h>

#include "api/call_impl.h"
#include "serve/engines/residency.h"
#include "serve/gen/session.h"

static const struct gen_sink call_sink;
static const struct resume_owner call_resume_owner;
static void on_gone(struct http_req *r, void *user);
static void on_drain(struct http_req *r, void *user);

/* --- from the request to the gen --- */

static struct call *call_new(struct http_req *r, const struct dialect *d)
{
    struct call *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->d = d;
    c->r = r;
    c->srv = http_ctx(r);
    c->created = server_unix_ms() / 1000;
    c->arrived_us = server_now_us();
    arena_init(&c->arena, GEN_ARENA_MAX);
    buf_init(&c->echo, ANSWER_BYTES_MAX);
    buf_init(&c->out, EVENT_BYTES_MAX);
    buf_init(&c->text_head, 512); /* id, names and a number */
    buf_init(&c->drawn, MODEL_CONTEXT_MAX * sizeof(int32_t));
    char id[40];
    store_new_id("x", id);
    (void)snprintf(c->id, sizeof(c->id), "%s%s", d->id_prefix, id + 2);
    for (size_t i = 0; i < CHOICES_MAX; i++) {
        buf_init(&c->choices[i].text, 2 * ANSWER_BYTES_MAX);
        buf_init(&c->choices[i].reasoning, 2 * ANSWER_BYTES_MAX);
        probs_init(&c->choices[i].probs);
    }
    return c;
}

void call_free(struct call *c)
{
    if (c->d->drop != NULL) {
        c->d->drop(c);
    }
    whole_release(c);
    if (c->session[0] != '\0') {
        session_end(c->srv->sessions, c->session);
    }
    arena_fini(&c->arena);
    buf_fini(&c->drawn);
    buf_fini(&c->echo);
    buf_fini(&c->out);
    buf_fini(&c->text_head);
    json_free(c->tools);
    free(c);
}

/* Nothing was sent: the connection is ours again. */
static void drop_resume(struct call *c)
{
    if (c->resume != NULL) {
        resume_drop(c->resume);
        c->resume = NULL;
    }
}

/* Answer an error before anything was sent; c is freed. */
static void refuse(struct call *c, int code, const char *param, const char *msg)
{
    drop_resume(c);
    api_fail(c->r, code, param != NULL && param[0] != '\0' ? param : NULL, msg);
    call_free(c);
}

/* api_read.read: the fields, then what the dialect reads itself. */
static int read_request(struct api_read *x, const struct json *j)
{
    struct call *c = container_of(x, struct call, body);
    struct err *e = &x->e;
    int rc = params_read(j, c->d->fields, &c->arena, &c->p, e);
    c->field = c->p.param;
    if (rc != 0) {
        return rc;
    }
    if (c->p.model != NULL) { /* borrowed from j */
        c->p.model = arena_str(&c->arena, c->p.model);
        if (c->p.model == NULL) {
            return err_set(e, ERR_TOO_BIG, "the prompt is over the limit");
        }
    }
    c->read_rc = c->d->read(c, j, e);
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
        return err_set(e, ERR_TOO_BIG, "the prompt is over the limit");
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
    q->peer = http_peer(c->r);
    if (m->bundle != NULL && m->bundle->argmax) { /* it has no other */
        q->sampling.temperature = c->p.tempered ? q->sampling.temperature : 0;
        q->sampling.repeat_penalty =
            c->p.penalised ? q->sampling.repeat_penalty : 1;
    }
    if (c->srv->conf.speculation_share_tokens > 0) {
        q->share = http_peer_process(c->r);
    }
    q->parts =
        c->d->reasoning != NULL && (q->tools.n > 0 || !c->p.thoughts_in_text);
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
    c->field = c->d->prompt_field;
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
        refuse(c, y->rc, c->field, e->msg);
        return;
    }
    if (c->of_session[0] != '\0') { /* it may be gone since it was asked */
        x = sessions_find(c->srv->sessions, c->of_session);
        if (x == NULL) {
            refuse(c, ERR_NOT_FOUND, NULL, "there is no such session");
            return;
        }
    }
    if (api_model(c->r, x != NULL ? x->row.model : c->p.model, &m) != 0) {
        call_free(c);
        return;
    }
    if (c->read_rc != 0) {
        refuse(c, c->read_rc, c->field, e->msg);
        return;
    }
    if (c->only_load) {
        call_load(c, m);
        return;
    }
    int rc = c->d->resolve != NULL ? c->d->resolve(c, e) : 0;
    if (rc != 0) {
        refuse(c, rc, c->field, e->msg);
        return;
    }
    make_gen(c, m);
    rc = start_gen(c, x, e);
    if (rc != 0) {
        refuse(c, rc, c->field, e->msg);
        return;
    }
    if (c->p.keeps) {
        model_keep(m, c->p.keep_ms);
    }
    if (c->resume == NULL) {
        http_on_gone(c->r, on_gone, c);
    }
    if (c->p.stream && c->d->events) {
        http_stream_expect(c->r, c->d->ping);
    }
}

void call_start(struct http_req *r, const struct dialect *d,
                const char *session)
{
    struct call *c = call_new(r, d);
    (void)snprintf(c->of_session, sizeof(c->of_session), "%s", session);
    c->body.read = read_request;
    c->body.go = on_read;
    api_read_body(r, &c->body);
}

void call_get_usage(const struct call *c, struct gen_usage *ret)
{
    if (c->gen != NULL) {
        gen_get_usage(c->gen, ret);
    } else {
        *ret = c->usage;
    }
}

/* --- streams --- */

static void begin(struct call *c)
{
    if (c->begun) {
        return;
    }
    c->begun = true;
    if (!http_stream_begun(c->r)) { /* not by a comment either */
        http_stream_begin(c->r, 200, c->d->content_type);
    }
    http_stream_on_drain(c->r, on_drain);
}

/* A vocabulary of huge tokens could make an event of any size. */
bool call_send(struct call *c)
{
    if (!buf_ok(&c->out)) {
        c->refused = ERR_TOO_BIG;
        return true;
    }
    if (c->resume != NULL) {
        c->begun = true;
        return resume_write(c->resume, c->out.p, c->out.n);
    }
    begin(c);
    return http_stream_write(c->r, c->out.p, c->out.n);
}

static void end_events(struct call *c)
{
    if (c->resume != NULL) {
        resume_end(c->resume);
        c->resume = NULL;
    } else {
        http_stream_end(c->r);
    }
}

static bool begin_choice(struct call *c, uint32_t i)
{
    if (c->choices[i].begun) {
        return true;
    }
    bool fast = c->d->begin(c, i);
    c->choices[i].begun = true;
    return fast;
}

static void end_stream(struct call *c)
{
    if (c->session[0] != '\0') {
        c->d->end(c, 0);
    }
    c->d->finish(c);
    end_events(c);
}

/* --- the sink --- */

/* What is kept of a choice until its end; it never shrinks. */
static size_t kept_bytes(const struct call *c, const struct call_choice *x)
{
    return c->p.stream ? x->tool_bytes
                       : x->text.n + x->reasoning.n + x->tool_bytes +
                             probs_bytes(&x->probs);
}

/* The next text of choice i; last: there is no more. False: the client is slow.
 */
static bool put_text(struct call *c, uint32_t i, const char *text, size_t n,
                     bool last)
{
    bool parts = reply_open(c, i);
    bool fast = !c->p.stream || begin_choice(c, i);
    if (parts) {
        return reply_text(c, i, text, n, last) && fast;
    }
    if (!c->p.stream) {
        json_put_text(&c->choices[i].text, text, n);
        return true;
    }
    return n > 0 ? c->d->text(c, i, text, n) : fast;
}

static enum gen_more on_token(void *ctx, uint32_t i, const struct msg_token *t,
                              const char *text, size_t n)
{
    struct call *c = ctx;
    struct call_choice *x = &c->choices[i];
    bool last =
        !c->p.req.ignore_eos && tokenizer_is_eog(gen_tokenizer(c->gen), t->id);
    size_t before = kept_bytes(c, x);
    enum gen_more more = GEN_GO;
    if (c->refused != 0) {
        return GEN_ENOUGH;
    }
    if (c->session[0] != '\0' && !last) {
        buf_put(&c->drawn, &t->id, sizeof(t->id));
    }
    if (c->p.logprobs && !last) {
        probs_note(c, x, t);
    }
    if (n > 0) {
        probs_confirm(&x->probs);
    }
    bool fast = put_text(c, i, text, n, false);
    if (kept_bytes(c, x) > before) {
        more = whole_hold(c, kept_bytes(c, x) - before);
    }
    if (x->closed || c->refused != 0 || more == GEN_ENOUGH) {
        return GEN_ENOUGH;
    }
    return fast ? GEN_GO : GEN_PAUSE;
}

static void on_end(void *ctx, uint32_t i, enum gen_finish why, const char *text,
                   size_t n)
{
    struct call *c = ctx;
    struct call_choice *x = &c->choices[i];
    x->ended = true;
    x->why = x->enough && why == GEN_LENGTH ? GEN_EOG : why;
    x->stop = gen_stop(c->gen, i);
    if (why == GEN_STOP) { /* the stop string's own tokens */
        probs_drop(&x->probs);
    } else {
        probs_confirm(&x->probs);
    }
    if (c->refused == 0) {
        (void)put_text(c, i, text, n, true);
    }
    if (c->p.stream && c->session[0] == '\0') { /* else when it is stored */
        c->d->end(c, i);
    }
}

/* The error for the dialect, with the sizes a client needs after an overlong
 * prompt. */
static struct api_error error_of(const struct call *c, int code,
                                 const char *msg)
{
    struct api_error x = {.code = code, .msg = msg};
    if (code == ERR_CONTEXT) {
        x.param = c->d->prompt_field;
    }
    if (code == ERR_UNSUPPORTED && c->p.req.tools.n > 0) {
        x.param = "tools"; /* by the template, which was not read before */
    }
    if (code == ERR_UNSUPPORTED && c->p.req.kind == GEN_FIM) {
        x.param = c->d->gap_field; /* by the vocabulary, likewise */
    }
    if (code == ERR_CONTEXT && c->gen != NULL) {
        struct gen_usage u;
        gen_get_usage(c->gen, &u);
        x.n_prompt = u.n_prompt;
        x.n_ctx = gen_model(c->gen)->bundle->context;
    }
    return x;
}

/* An error as the last event. */
static void end_in_error(struct call *c, int code, const char *msg)
{
    struct api_error x = error_of(c, code, msg);
    buf_clear(&c->out);
    if (c->d->failed != NULL) {
        c->d->failed(c, &x);
    } else {
        struct json *o = c->d->error(&x);
        buf_puts(&c->out, c->d->error_before);
        json_write(o, false, &c->out);
        buf_puts(&c->out, c->d->error_after);
        json_free(o);
    }
    (void)call_send(c);
    end_events(c);
}

static void answer(struct call *c, int rc, const struct err *e)
{
    bool writes = false; /* the answer is still being written afterwards */
    if (rc != 0 && !c->begun && !http_stream_begun(c->r)) {
        drop_resume(c);
        struct api_error x = error_of(c, rc, e->msg);
        api_reply(c->r, err_http(rc), c->d->error(&x));
    } else if (rc != 0) {
        end_in_error(c, rc, e->msg);
    } else if (c->p.stream && c->refused != 0) {
        end_in_error(c, c->refused,
                     c->refused == ERR_BUSY
                         ? "too many large answers are being made"
                         : "an event is over the limit");
    } else if (c->p.stream) {
        end_stream(c);
    } else {
        writes = whole_reply(c);
    }
    c->gen = NULL; /* it goes after this call */
    if (!writes) {
        call_free(c);
    }
}

/* store_done_fn */
static void on_turn_stored(void *ctx, int status, const struct err *e)
{
    struct call *c = ctx;
    c->storing = false;
    if (c->left) {
        call_free(c);
    } else {
        answer(c, status, e);
    }
}

/* The tokens of the answer become the session's; the answer ends when they
 * have. */
static int store_turn(struct call *c, struct err *e)
{
    int rc = session_turn(
        c->srv->sessions, c->session, (const int32_t *)(const void *)c->drawn.p,
        (uint32_t)(c->drawn.n / sizeof(int32_t)), on_turn_stored, c, e);
    c->storing = rc == 0;
    return rc;
}

static void on_done(void *ctx, int rc, const struct err *e)
{
    struct call *c = ctx;
    struct err why = *e;
    gen_get_usage(c->gen, &c->usage);
    if (rc == 0 && c->refused == 0 && c->session[0] != '\0') {
        rc = store_turn(c, &why);
        c->gen = NULL; /* it goes after this call */
        if (rc == 0) {
            return;
        }
        rc = rc > 0 ? 0 : rc; /* the session is gone: so be it */
    }
    answer(c, rc, &why);
}

static const struct gen_sink call_sink = {
    .on_token = on_token,
    .on_end = on_end,
    .on_done = on_done,
};

/* --- the client --- */

static void resume_drained(void *ctx)
{
    struct call *c = ctx;
    if (c->gen != NULL) {
        gen_resume(c->gen);
    }
}

static void on_drain(struct http_req *r, void *user)
{
    (void)r;
    resume_drained(user);
}

static void on_gone(struct http_req *r, void *user)
{
    struct call *c = user;
    (void)r;
    if (c->storing) {
        c->left = true;
        return;
    }
    if (c->gen != NULL) {
        gen_cancel(c->gen);
        c->gen = NULL;
    }
    if (!whole_stop(c)) {
        return;
    }
    call_free(c);
}

static void resume_over(void *ctx)
{
    struct call *c = ctx;
    c->resume = NULL;
    on_gone(NULL, c);
}

static const struct resume_owner call_resume_owner = {
    .on_drain = resume_drained,
    .on_over = resume_over,
};
