/* call.c - see call.h: from the body to the gens (call_gens.c), from their
 * tokens to the end of the answer.
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
    free(c->gens);
    free(c->choices);
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
    rc = gens_start(c, m, x, e);
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

/* Whose callback it is; ret_i: the number of its choice i in the answer. */
static struct call *call_of(const struct call_gen *g, uint32_t i,
                            uint32_t *ret_i)
{
    g->call->gen = g->gen;
    *ret_i = g->first + i;
    return g->call;
}

static enum gen_more on_token(void *ctx, uint32_t choice,
                              const struct msg_token *t, const char *text,
                              size_t n)
{
    uint32_t i = 0;
    struct call *c = call_of(ctx, choice, &i);
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

static void on_end(void *ctx, uint32_t choice, enum gen_finish why,
                   const char *text, size_t n)
{
    uint32_t i = 0;
    struct call *c = call_of(ctx, choice, &i);
    struct call_choice *x = &c->choices[i];
    x->ended = true;
    x->why = x->enough && why == GEN_LENGTH ? GEN_EOG : why;
    x->stop = gen_stop(c->gen, choice);
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
    if (c->gen != NULL && gen_blamed(c->gen) != NULL) {
        x.param = gen_blamed(c->gen);
        return x;
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
    struct gen *g = c->gen;
    gens_cancel(c); /* the other prompts', after an error */
    c->gen = g;     /* it goes after this call */
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
    c->gen = NULL;
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

/* Of several prompts, which one is wrong. */
static int blame_prompt(const struct call_gen *g, int rc, struct err *e)
{
    static const char field[] = "prompt: ";
    const struct err was = *e;
    bool named = strncmp(was.msg, field, strlen(field)) == 0;
    bool its = rc == ERR_INVALID || rc == ERR_CONTEXT;
    return its && g->call->n_gens > 1
               ? err_set(e, rc, "prompt[%u]: %s", g->first / g->call->p.req.n,
                         was.msg + (named ? strlen(field) : 0))
               : rc;
}

static void on_done(void *ctx, int rc, const struct err *e)
{
    struct call_gen *g = ctx;
    uint32_t i = 0;
    struct call *c = call_of(g, 0, &i);
    struct err why = *e;
    bool last = gens_ended(g);
    if (rc == 0 && !last) {
        return;
    }
    rc = blame_prompt(g, rc, &why);
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

const struct gen_sink call_sink = {
    .on_token = on_token,
    .on_end = on_end,
    .on_done = on_done,
};

/* --- the client --- */

static void resume_drained(void *ctx)
{
    gens_resume(ctx);
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
    gens_cancel(c);
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

const struct resume_owner call_resume_owner = {
    .on_drain = resume_drained,
    .on_over = resume_over,
};
