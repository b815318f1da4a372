/* openai_out.c - answers of /v1/completions and /v1/chat/completions.
 *
 * In a stream an event is sent as soon as its text is certain. The head is sent
 * with the first event, so that an early error still has its HTTP status. Other
 * answers are collected and sent at once (openai_whole.c).
 * Log-probabilities: openai_probs.c; counts and times: openai_usage.c. */
#include <string.h>

#include "api/openai_impl.h"
#include "serve/gen/session.h"

const char *call_reason(enum gen_finish why)
{
    return why == GEN_LENGTH || why == GEN_LATE ? "length" : "stop";
}

/* --- pieces that all answers have --- */

struct json *call_head(const struct call *c, const char *object)
{
    struct json *o = json_object();
    json_add_str(o, "id", c->id);
    json_add_str(o, "object", object);
    json_add_int(o, "created", c->created);
    json_add_str(o, "model", c->model);
    if (c->p.tier != NULL) {
        json_add_str(o, "service_tier", c->p.tier);
    }
    return o;
}

/* --- streams --- */

static const char *chunk_object(const struct call *c)
{
    return c->chat ? "chat.completion.chunk" : "text_completion";
}

static void begin(struct call *c)
{
    if (c->begun) {
        return;
    }
    c->begun = true;
    if (!http_stream_begun(c->r)) { /* not by a comment either */
        http_stream_begin(c->r, 200, "text/event-stream");
    }
    http_stream_on_drain(c->r, call_on_drain);
}

static bool put_event(struct call *c, const void *p, size_t n)
{
    if (c->resume != NULL) {
        c->begun = true;
        return resume_write(c->resume, p, n);
    }
    begin(c);
    return http_stream_write(c->r, p, n);
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

/* A vocabulary of huge tokens could make an event of any size. */
static bool send_out(struct call *c)
{
    if (!buf_ok(&c->out)) {
        c->refused = ERR_TOO_BIG;
        return true;
    }
    return put_event(c, c->out.p, c->out.n);
}

/* Send o as one event and free it. false: the client is slow. */
static bool event(struct call *c, struct json *o)
{
    if (c->p.include_usage && json_get(o, "usage") == NULL &&
        json_get(o, "error") == NULL) {
        json_add_null(o, "usage");
    }
    buf_clear(&c->out);
    buf_puts(&c->out, "data: ");
    json_write(o, false, &c->out);
    buf_puts(&c->out, "\n\n");
    json_free(o);
    return send_out(c);
}

/* What the events of text have in common, up to the choice's number. id and
 * model need no escapes. */
static void put_text_head(const struct call *c, struct buf *b)
{
    buf_puts(b, "data: {\"id\":\"");
    buf_puts(b, c->id);
    buf_puts(b, "\",\"object\":\"");
    buf_puts(b, chunk_object(c));
    buf_puts(b, "\",\"created\":");
    buf_dec(b, (uint64_t)c->created);
    buf_puts(b, ",\"model\":\"");
    buf_puts(b, c->model);
    if (c->p.tier != NULL) {
        buf_puts(b, "\",\"service_tier\":\"");
        buf_puts(b, c->p.tier);
    }
    buf_puts(b, "\",\"choices\":[{\"index\":");
}

/* The events that nearly all are: some text, or the end (`reason`, text NULL),
 * and no log-probabilities. Written without a tree and without printf; what
 * choice_event() would write. */
static bool plain_event(struct call *c, uint32_t i, const char *text, size_t n,
                        const char *reason)
{
    struct buf *b = &c->out;
    if (c->text_head.n == 0) {
        put_text_head(c, &c->text_head);
    }
    buf_clear(b);
    buf_put(b, c->text_head.p, c->text_head.n);
    buf_dec(b, i);
    buf_puts(b, c->chat ? ",\"delta\":{" : ",\"text\":");
    if (c->chat && text != NULL) {
        buf_puts(b, "\"content\":");
    }
    if (!c->chat || text != NULL) {
        json_put_string(b, text != NULL ? text : "", n);
    }
    buf_puts(b, c->chat ? "}" : "");
    buf_puts(b, ",\"logprobs\":null,\"finish_reason\":");
    if (reason != NULL) {
        json_put_string(b, reason, strlen(reason));
        buf_puts(b, "}],\"timings\":");
        call_write_timings(b, c);
    } else {
        buf_puts(b, "null}]");
    }
    buf_puts(b, c->p.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
    return send_out(c);
}

/* Member "logprobs" of an event's choice. */
static void add_probs(struct json *ch, struct call *c, struct probs *p)
{
    struct buf b;
    buf_init(&b, EVENT_BYTES_MAX);
    probs_write(&b, c, p);
    if (buf_ok(&b) && probs_ok(p)) {
        json_add_raw(ch, "logprobs", b.p);
    } else {
        json_add_null(ch, "logprobs");
        c->refused = ERR_TOO_BIG;
    }
    buf_fini(&b);
}

/* One choice's event: text (NULL: none), role on the first, or the end. */
static bool choice_event(struct call *c, uint32_t i, const char *text, size_t n,
                         const char *reason)
{
    struct call_choice *x = &c->choices[i];
    if (x->begun && !c->p.logprobs) {
        return plain_event(c, i, text, n, reason);
    }
    struct json *o = call_head(c, chunk_object(c));
    struct json *ch = json_add_object(json_add_array(o, "choices"), NULL);
    json_add_int(ch, "index", (int64_t)i);
    if (c->chat) {
        struct json *d = json_add_object(ch, "delta");
        if (!x->begun) {
            json_add_str(d, "role", "assistant");
        }
        if (text != NULL) {
            json_add_strn(d, "content", text, n);
        }
    } else {
        json_add_strn(ch, "text", text != NULL ? text : "", n);
    }
    x->begun = true;
    add_probs(ch, c, &x->probs);
    if (reason != NULL) {
        json_add_str(ch, "finish_reason", reason);
    } else {
        json_add_null(ch, "finish_reason");
    }
    if (reason != NULL) {
        call_put_timings(o, c);
    }
    return event(c, o);
}

/* What comes before a choice's first token: the role, or the echo. */
static bool choice_begin(struct call *c, uint32_t i)
{
    struct call_choice *x = &c->choices[i];
    if (x->begun) {
        return true;
    }
    if (c->chat) {
        return choice_event(c, i, "", 0, NULL);
    }
    x->begun = true;
    return c->echo.n == 0 || choice_event(c, i, c->echo.p, c->echo.n, NULL);
}

/* --- the sink --- */

static enum gen_more on_token(void *ctx, uint32_t i, const struct msg_token *t,
                              const char *text, size_t n)
{
    struct call *c = ctx;
    struct call_choice *x = &c->choices[i];
    bool last =
        !c->p.req.ignore_eos && tokenizer_is_eog(gen_tokenizer(c->gen), t->id);
    size_t before = x->text.n + probs_bytes(&x->probs);
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
    if (!c->p.stream) {
        json_put_text(&x->text, text, n);
        return whole_hold(c, x->text.n + probs_bytes(&x->probs) - before);
    }
    bool fast = choice_begin(c, i);
    if (n > 0) {
        fast = choice_event(c, i, text, n, NULL);
    }
    return c->refused != 0 ? GEN_ENOUGH : fast ? GEN_GO : GEN_PAUSE;
}

static void on_end(void *ctx, uint32_t i, enum gen_finish why, const char *text,
                   size_t n)
{
    struct call *c = ctx;
    struct call_choice *x = &c->choices[i];
    x->ended = true;
    x->why = why;
    if (why == GEN_STOP) { /* the stop string's own tokens */
        probs_drop(&x->probs);
    } else {
        probs_confirm(&x->probs);
    }
    if (!c->p.stream) {
        json_put_text(&x->text, text, n);
        return;
    }
    (void)choice_begin(c, i);
    if (n > 0) {
        (void)choice_event(c, i, text, n, NULL);
    }
    if (c->session[0] == '\0') { /* else when the turn is stored */
        (void)choice_event(c, i, NULL, 0, call_reason(why));
    }
}

static void end_stream(struct call *c)
{
    static const char done[] = "data: [DONE]\n\n";
    if (c->session[0] != '\0') {
        (void)choice_event(c, 0, NULL, 0, call_reason(c->choices[0].why));
    }
    if (c->p.include_usage) {
        struct json *o = call_head(c, chunk_object(c));
        (void)json_add_array(o, "choices");
        call_put_usage(o, c);
        call_put_timings(o, c);
        (void)event(c, o);
    }
    (void)put_event(c, done, sizeof(done) - 1);
    end_events(c);
}

/* The error object, with the sizes a client needs after an overlong prompt. */
static struct json *error_json(const struct call *c, int code,
                               const char *param, const char *msg)
{
    struct json *o = json_object();
    if (code == ERR_CONTEXT) {
        param = c->prompt_field;
    }
    api_put_error(o, code, param, msg);
    if (code == ERR_CONTEXT && c->gen != NULL) {
        struct gen_usage u;
        struct json *copy = json_copy(json_get(o, "error"));
        gen_get_usage(c->gen, &u);
        json_add_int(copy, "n_prompt_tokens", (int64_t)u.n_prompt);
        json_add_int(copy, "n_ctx",
                     (int64_t)gen_model(c->gen)->bundle->context);
        json_free(o);
        o = json_object();
        json_add_tree(o, "error", copy);
    }
    return o;
}

/* Nothing was sent: the connection is ours again. */
static void drop_resume(struct call *c)
{
    if (c->resume != NULL) {
        resume_drop(c->resume);
        c->resume = NULL;
    }
}

static void answer(struct call *c, int rc, const struct err *e)
{
    bool writes = false; /* the answer is still being written afterwards */
    if (rc != 0 && !c->begun && !http_stream_begun(c->r)) {
        drop_resume(c);
        api_reply(c->r, err_http(rc), error_json(c, rc, NULL, e->msg));
    } else if (rc != 0) {
        (void)event(c, error_json(c, rc, NULL, e->msg));
        end_events(c);
    } else if (c->p.stream && c->refused != 0) {
        (void)event(c, error_json(c, c->refused, NULL,
                                  "an event is over the limit"));
        end_events(c);
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
    int rc = session_turn(c->srv->sessions, c->session,
                          (const int32_t *)(const void *)c->drawn.p,
                          (uint32_t)(c->drawn.n / sizeof(int32_t)),
                          on_turn_stored, c, e);
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

const struct gen_sink call_sink = {
    .on_token = on_token,
    .on_end = on_end,
    .on_done = on_done,
};

static void resume_drained(void *ctx)
{
    struct call *c = ctx;
    if (c->gen != NULL) {
        gen_resume(c->gen);
    }
}

void call_on_drain(struct http_req *r, void *user)
{
    (void)r;
    resume_drained(user);
}

static void resume_over(void *ctx)
{
    struct call *c = ctx;
    c->resume = NULL;
    call_on_gone(NULL, c);
}

const struct resume_owner call_resume_owner = {
    .on_drain = resume_drained,
    .on_over = resume_over,
};

void call_on_gone(struct http_req *r, void *user)
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

void call_refuse(struct call *c, int code, const char *param, const char *msg)
{
    drop_resume(c);
    api_fail(c->r, code, param != NULL && param[0] != '\0' ? param : NULL, msg);
    call_free(c);
}

void call_free(struct call *c)
{
    whole_release(c);
    if (c->session[0] != '\0') {
        session_end(c->srv->sessions, c->session);
    }
    arena_fini(&c->arena);
    buf_fini(&c->drawn);
    buf_fini(&c->echo);
    buf_fini(&c->out);
    buf_fini(&c->text_head);
    free(c);
}
