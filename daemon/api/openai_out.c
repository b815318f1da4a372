/* openai_out.c - answers of /v1/completions and /v1/chat/completions. Counts
 * and times: openai_usage.c. */
#include <string.h>

#include "api/openai.h"

/* The text of finish_reason. */
static const char *reason_of(const struct call_choice *x)
{
    return x->why == GEN_LENGTH || x->why == GEN_LATE ? "length"
           : x->n_tools > 0                           ? "tool_calls"
                                                      : "stop";
}

/* The members with which all answers begin. */
static struct json *answer_head(const struct call *c, const char *object)
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
    return openai_is_chat(c) ? "chat.completion.chunk" : "text_completion";
}

/* Send o as one event and free it. False: the client is slow. */
static bool event(struct call *c, struct json *o)
{
    if (c->p.include_usage && json_get(o, "usage") == NULL) {
        json_add_null(o, "usage");
    }
    buf_clear(&c->out);
    buf_puts(&c->out, "data: ");
    json_write(o, false, &c->out);
    buf_puts(&c->out, "\n\n");
    json_free(o);
    return call_send(c);
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
    buf_puts(b, openai_is_chat(c) ? ",\"delta\":{" : ",\"text\":");
    if (openai_is_chat(c) && text != NULL) {
        buf_puts(b, "\"content\":");
    }
    if (!openai_is_chat(c) || text != NULL) {
        json_put_string(b, text != NULL ? text : "", n);
    }
    buf_puts(b, openai_is_chat(c) ? "}" : "");
    buf_puts(b, ",\"logprobs\":null,\"finish_reason\":");
    if (reason != NULL) {
        json_put_string(b, reason, strlen(reason));
        buf_puts(b, "}],\"timings\":");
        openai_write_timings(b, c);
    } else {
        buf_puts(b, "null}]");
    }
    buf_puts(b, c->p.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
    return call_send(c);
}

/* The value of "logprobs" of a choice. */
static void put_probs(struct buf *b, const struct call *c, struct probs *p)
{
    bool wrapped = c->p.logprobs && openai_is_chat(c);
    buf_puts(b, !c->p.logprobs ? "null" : wrapped ? "{\"content\":" : "");
    if (c->p.logprobs) {
        probs_write(b, c, p);
    }
    buf_puts(b, wrapped ? "}" : "");
}

/* Member "logprobs" of an event's choice. */
static void add_probs(struct json *ch, struct call *c, struct probs *p)
{
    struct buf b;
    buf_init(&b, EVENT_BYTES_MAX);
    put_probs(&b, c, p);
    if (buf_ok(&b) && probs_ok(p)) {
        json_add_raw(ch, "logprobs", b.p);
    } else {
        json_add_null(ch, "logprobs");
        c->refused = ERR_TOO_BIG;
    }
    buf_fini(&b);
}

/* What an event says in its delta beside text: a member's name, and its value
 * as JSON. */
struct delta {
    const char *name;
    struct buf value;
};

static void delta_init(struct delta *d, const char *name)
{
    d->name = name;
    buf_init(&d->value, EVENT_BYTES_MAX);
}

/* One choice's event with d, which is freed. */
static bool delta_event(struct call *c, uint32_t i, struct delta *d)
{
    struct buf *b = &c->out;
    struct buf probs;
    buf_init(&probs, EVENT_BYTES_MAX);
    put_probs(&probs, c, &c->choices[i].probs);
    if (c->text_head.n == 0) {
        put_text_head(c, &c->text_head);
    }
    buf_clear(b);
    buf_put(b, c->text_head.p, c->text_head.n);
    buf_dec(b, i);
    buf_puts(b, ",\"delta\":{\"");
    buf_puts(b, d->name);
    buf_puts(b, "\":");
    buf_put(b, d->value.p, d->value.n);
    buf_puts(b, "},\"logprobs\":");
    buf_put(b, probs.p, probs.n);
    buf_puts(b, ",\"finish_reason\":null}]");
    buf_puts(b, c->p.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
    if (!buf_ok(&d->value) || !buf_ok(&probs) ||
        !probs_ok(&c->choices[i].probs)) {
        c->refused = ERR_TOO_BIG;
    }
    buf_fini(&probs);
    buf_fini(&d->value);
    return call_send(c);
}

static bool choice_reasoning(struct call *c, uint32_t i, const char *text,
                             size_t n)
{
    struct delta d;
    delta_init(&d, "reasoning_content");
    json_put_string(&d.value, text, n);
    return delta_event(c, i, &d);
}

/* {"index", "id", "type", "function": {"name", "arguments": text}}; without id
 * and name unless it begins, without index unless it is streamed. */
static void put_call(struct buf *b, const struct call_choice *x, uint32_t k,
                     bool begins, const char *args, size_t n)
{
    const struct call_tool *t = &x->tools[k];
    buf_puts(b, "{");
    if (x->call->p.stream) {
        buf_puts(b, "\"index\":");
        buf_dec(b, k);
        buf_puts(b, ",");
    }
    if (begins) {
        buf_puts(b, "\"id\":\"");
        buf_puts(b, t->id);
        buf_puts(b, "\",\"type\":\"function\",\"function\":{\"name\":");
        json_put_string(b, t->name, strlen(t->name));
        buf_puts(b, ",\"arguments\":");
    } else {
        buf_puts(b, "\"function\":{\"arguments\":");
    }
    json_put_string(b, args, n);
    buf_puts(b, "}}");
}

static bool call_event(struct call *c, uint32_t i, uint32_t k, bool begins,
                       const char *args, size_t n)
{
    struct delta d;
    delta_init(&d, "tool_calls");
    buf_puts(&d.value, "[");
    put_call(&d.value, &c->choices[i], k, begins, args, n);
    buf_puts(&d.value, "]");
    return delta_event(c, i, &d);
}

static bool choice_call(struct call *c, uint32_t i, uint32_t k)
{
    return call_event(c, i, k, true, "", 0);
}

static bool choice_arguments(struct call *c, uint32_t i, uint32_t k,
                             const char *json, size_t n)
{
    return call_event(c, i, k, false, json, n);
}

static bool choice_call_end(struct call *c, uint32_t i, uint32_t k)
{
    (void)c, (void)i, (void)k; /* the next index or the end says it */
    return true;
}

/* One choice's event: text (NULL: none), role on the first, or the end. */
static bool choice_event(struct call *c, uint32_t i, const char *text, size_t n,
                         const char *reason)
{
    struct call_choice *x = &c->choices[i];
    if (x->begun && !c->p.logprobs) {
        return plain_event(c, i, text, n, reason);
    }
    struct json *o = answer_head(c, chunk_object(c));
    struct json *ch = json_add_object(json_add_array(o, "choices"), NULL);
    json_add_int(ch, "index", (int64_t)i);
    if (openai_is_chat(c)) {
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
        openai_put_timings(o, c);
    }
    return event(c, o);
}

static bool chat_begin(struct call *c, uint32_t i)
{
    return choice_event(c, i, "", 0, NULL); /* the role */
}

static bool completion_begin(struct call *c, uint32_t i)
{
    struct span echo = call_echo(c, i);
    c->choices[i].begun = true;
    return (echo.n == 0 && !c->p.req.score) ||
           choice_event(c, i, echo.p, echo.n, NULL);
}

static bool choice_text(struct call *c, uint32_t i, const char *text, size_t n)
{
    return choice_event(c, i, text, n, NULL);
}

static void choice_end(struct call *c, uint32_t i)
{
    (void)choice_event(c, i, NULL, 0, reason_of(&c->choices[i]));
}

static void finish(struct call *c)
{
    if (c->p.include_usage) {
        struct json *o = answer_head(c, chunk_object(c));
        (void)json_add_array(o, "choices");
        openai_put_usage(o, c);
        openai_put_timings(o, c);
        (void)event(c, o);
    }
    buf_clear(&c->out);
    buf_puts(&c->out, "data: [DONE]\n\n");
    (void)call_send(c);
}

/* --- whole answers --- */

static void put_head(struct call *c, struct buf *b)
{
    struct json *o = answer_head(c, openai_is_chat(c) ? "chat.completion"
                                                      : "text_completion");
    json_write(o, false, b);
    json_free(o);
    b->n--; /* its brace */
    buf_puts(b, ",\"choices\":[");
}

/* What is in a message beside its text. */
static void put_parts(struct buf *b, const struct call_choice *x)
{
    if (x->reasoning.n > 0) {
        buf_puts(b, ",\"reasoning_content\":\"");
        buf_put(b, x->reasoning.p, x->reasoning.n);
        buf_puts(b, "\"");
    }
    for (uint32_t k = 0; k < x->n_tools; k++) {
        const struct buf *args = &x->tools[k].arguments;
        buf_puts(b, k == 0 ? ",\"tool_calls\":[" : ",");
        put_call(b, x, k, true, args->p != NULL ? args->p : "", args->n);
    }
    buf_puts(b, x->n_tools > 0 ? "]" : "");
}

/* The message of a chat. */
static void put_message(struct buf *b, const struct call_choice *x)
{
    bool none = x->text.n == 0 && x->n_tools > 0;
    buf_puts(b, ",\"message\":{\"role\":\"assistant\",\"content\":");
    buf_puts(b, none ? "null" : "\"");
    if (x->text.n > 0) {
        buf_put(b, x->text.p, x->text.n);
    }
    buf_puts(b, none ? "" : "\"");
    put_parts(b, x);
    buf_puts(b, "}");
}

static void put_text(struct call *c, struct buf *b, uint32_t i)
{
    const struct call_choice *x = &c->choices[i];
    struct span echo = call_echo(c, i);
    buf_puts(b, ",\"text\":\"");
    if (echo.n > 0) {
        buf_put(b, echo.p, echo.n);
    }
    if (x->text.n > 0) {
        buf_put(b, x->text.p, x->text.n);
    }
    buf_puts(b, "\"");
}

static void put_choice(struct call *c, struct buf *b, uint32_t i)
{
    struct call_choice *x = &c->choices[i];
    const char *why = reason_of(x);
    buf_puts(b, i > 0 ? ",{\"index\":" : "{\"index\":");
    buf_dec(b, i);
    if (openai_is_chat(c)) {
        put_message(b, x);
    } else {
        put_text(c, b, i);
    }
    buf_puts(b, ",\"logprobs\":");
    put_probs(b, c, &x->probs);
    buf_puts(b, ",\"finish_reason\":");
    json_put_string(b, why, strlen(why));
    buf_puts(b, "}");
}

static void put_tail(struct call *c, struct buf *b)
{
    struct json *o = json_object();
    openai_put_usage(o, c);
    openai_put_timings(o, c);
    buf_puts(b, "]");
    size_t brace = b->n;
    json_write(o, false, b);
    json_free(o);
    b->p[brace] = ',';
}

#define ANSWERS                                                             \
    .error = api_openai_error, .content_type = "text/event-stream",         \
    .events = true, .error_before = "data: ", .error_after = "\n\n",        \
    .text = choice_text, .end = choice_end, .finish = finish,               \
    .head = put_head, .choice = put_choice, .tail = put_tail

const struct dialect openai_completion = {
    .fields = &openai_completion_fields,
    .prompt_field = "prompt",
    .gap_field = "suffix",
    .id_prefix = "cmpl-",
    .probs = PROBS_ARRAYS,
    .read = openai_read_completion,
    .begin = completion_begin,
    ANSWERS,
};

const struct dialect openai_chat = {
    .fields = &openai_chat_fields,
    .prompt_field = "messages",
    .id_prefix = "chatcmpl-",
    .probs = PROBS_OBJECTS,
    .read = openai_read_chat,
    .begin = chat_begin,
    .reasoning = choice_reasoning,
    .tool_begin = choice_call,
    .tool_arguments = choice_arguments,
    .tool_end = choice_call_end,
    ANSWERS,
};
