/* responses_out.c - answers of /v1/responses and their events. Shapes: OpenAI's
 * API reference.
 *
 *   response.created, response.in_progress
 *   for each item:  output_item.added, [content_part.added], deltas, done,
 *                   [content_part.done], output_item.done
 *   response.completed, .incomplete or .failed
 *
 * Every event has its number. An item is reasoning, a message or a call of a
 * function; one ends where another begins. Text is kept escaped, since events
 * repeat it: of the part, of the item, and of the whole answer. */
#include <string.h>

#include "api/responses.h"

static const struct {
    const char *type, *prefix, *part, *delta;
} kinds[RESPONSES_KINDS] = {
    [RESPONSES_REASONING] = {"reasoning",     "rs_",  "reasoning_text",
                             "reasoning_text"                                        },
    [RESPONSES_MESSAGE] = {"message",       "msg_", "output_text",    "output_text"},
    [RESPONSES_CALL] = {"function_call", "fc_",  NULL,
                             "function_call_arguments"                               },
};

static bool cut_off(const struct call *c)
{
    enum gen_finish why = c->choices[0].why;
    return why == GEN_LENGTH || why == GEN_LATE;
}

const char *responses_status(const struct call *c)
{
    return cut_off(c) ? "incomplete" : "completed";
}

/* --- items --- */

static void put_id(struct buf *b, const struct call *c,
                   enum responses_item kind, uint32_t n)
{
    buf_puts(b, "\"");
    buf_puts(b, kinds[kind].prefix);
    buf_puts(b, c->id + strlen(c->d->id_prefix));
    buf_puts(b, "_");
    buf_dec(b, n);
    buf_puts(b, "\"");
}

/* A part of an item's content with this text, escaped. */
static void put_part(struct buf *b, enum responses_item kind, const char *text,
                     size_t n)
{
    buf_puts(b, "{\"type\":\"");
    buf_puts(b, kinds[kind].part);
    buf_puts(b, kind == RESPONSES_MESSAGE
                    ? "\",\"annotations\":[],\"logprobs\":[],\"text\":\""
                    : "\",\"text\":\"");
    buf_put(b, text, n);
    buf_puts(b, "\"}");
}

static void put_call(struct buf *b, const struct call *c, uint32_t k,
                     const char *text, size_t n)
{
    const struct call_tool *t = &c->choices[0].tools[k];
    const char *space = responses_space(responses_of(c), t->name);
    buf_puts(b, ",\"call_id\":");
    json_put_string(b, t->id, strlen(t->id));
    buf_puts(b, ",\"name\":");
    json_put_string(b, t->name, strlen(t->name));
    if (space != NULL) {
        buf_puts(b, ",\"namespace\":");
        json_put_string(b, space, strlen(space));
    }
    buf_puts(b, ",\"arguments\":\"");
    buf_put(b, text, n);
    buf_puts(b, "\"");
}

/* Item n of the answer with its text, escaped; `begun`: there is none yet. Of a
 * call: of tool k. */
static void put_item(struct buf *b, const struct call *c,
                     enum responses_item kind, uint32_t n, uint32_t k,
                     const char *status, bool begun, const char *text,
                     size_t len)
{
    buf_puts(b, "{\"id\":");
    put_id(b, c, kind, n);
    buf_puts(b, ",\"type\":\"");
    buf_puts(b, kinds[kind].type);
    buf_puts(b, "\",\"status\":\"");
    buf_puts(b, status);
    buf_puts(b, "\"");
    if (kind == RESPONSES_CALL) {
        put_call(b, c, k, text, len);
    } else {
        buf_puts(b, kind == RESPONSES_MESSAGE
                        ? ",\"role\":\"assistant\",\"content\":["
                        : ",\"summary\":[],\"content\":[");
        if (!begun) {
            put_part(b, kind, text, len);
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "}");
}

/* An item is complete. */
static void add_item(struct call *c, enum responses_item kind, uint32_t k,
                     const char *status, const char *text, size_t n)
{
    struct responses *x = responses_of(c);
    buf_puts(&x->items, x->n_items > 0 ? "," : "");
    put_item(&x->items, c, kind, x->n_items, k, status, false, text, n);
    x->n_items++;
}

/* --- the answer --- */

static void put_error(struct buf *b, const struct api_error *x)
{
    int status = err_http(x->code);
    const char *msg =
        x->msg != NULL && x->msg[0] != '\0' ? x->msg : err_text(x->code);
    buf_puts(b, "{\"code\":\"");
    buf_puts(b, x->code == ERR_BUSY ? "rate_limit_exceeded"
                : status < 500      ? "invalid_prompt"
                                    : "server_error");
    buf_puts(b, "\",\"message\":");
    json_put_string(b, msg, strlen(msg));
    buf_puts(b, "}");
}

/* Up to the items. */
static void put_front(struct buf *b, const struct call *c, const char *status,
                      const struct api_error *x)
{
    buf_puts(b, "{\"id\":\"");
    buf_puts(b, c->id);
    buf_puts(b, "\",\"object\":\"response\",\"created_at\":");
    buf_dec(b, (uint64_t)c->created);
    buf_puts(b, ",\"status\":\"");
    buf_puts(b, status);
    buf_puts(b, "\",\"error\":");
    if (x != NULL) {
        put_error(b, x);
    } else {
        buf_puts(b, "null");
    }
    buf_puts(b, ",\"incomplete_details\":");
    buf_puts(b, strcmp(status, "incomplete") == 0
                    ? "{\"reason\":\"max_output_tokens\"}"
                    : "null");
    buf_puts(b, ",\"model\":");
    json_put_string(b, c->model, strlen(c->model));
    buf_puts(b, ",\"output\":[");
}

static void put_usage(struct buf *b, const struct call *c)
{
    struct gen_usage u;
    call_get_usage(c, &u);
    buf_puts(b, "{\"input_tokens\":");
    buf_dec(b, u.n_prompt);
    buf_puts(b, ",\"input_tokens_details\":{\"cached_tokens\":");
    buf_dec(b, u.n_cached);
    buf_puts(b, ",\"cache_write_tokens\":0},\"output_tokens\":");
    buf_dec(b, u.n_output);
    buf_puts(b, ",\"output_tokens_details\":{\"reasoning_tokens\":");
    buf_dec(b, c->choices[0].n_thought);
    buf_puts(b, "},\"total_tokens\":");
    buf_dec(b, (uint64_t)u.n_prompt + u.n_output);
    buf_puts(b, "}");
}

/* Behind the items. */
static void put_back(struct buf *b, const struct call *c, bool ended,
                     bool stored)
{
    const struct responses *x = responses_of(c);
    buf_puts(b, "]");
    buf_put(b, x->echo.p, x->echo.n);
    if (c->p.tier != NULL) {
        buf_puts(b, ",\"service_tier\":\"");
        buf_puts(b, c->p.tier);
        buf_puts(b, "\"");
    }
    buf_puts(b, stored ? ",\"store\":true,\"usage\":"
                       : ",\"store\":false,\"usage\":");
    if (ended) {
        put_usage(b, c);
    } else {
        buf_puts(b, "null");
    }
    buf_puts(b, "}");
}

void responses_put(struct buf *b, const struct call *c, const char *status,
                   bool stored, const struct api_error *x)
{
    const struct responses *own = responses_of(c);
    put_front(b, c, status, x);
    buf_put(b, own->items.p, own->items.n);
    put_back(b, c, strcmp(status, "in_progress") != 0, stored);
}

/* --- events --- */

/* "response.output_text" and ".delta": an event's type is two texts. */
static void event(struct call *c, const char *type, const char *more)
{
    struct buf *b = &c->out;
    buf_puts(b, "event: response.");
    buf_puts(b, type);
    buf_puts(b, more);
    buf_puts(b, "\ndata: {\"type\":\"response.");
    buf_puts(b, type);
    buf_puts(b, more);
    buf_puts(b, "\",\"sequence_number\":");
    buf_dec(b, responses_of(c)->n_events++);
}

static void event_end(struct call *c)
{
    buf_puts(&c->out, "}\n\n");
}

/* Which item the event is about, and which part of it. */
static void put_place(struct call *c)
{
    const struct responses *x = responses_of(c);
    buf_puts(&c->out, ",\"item_id\":");
    put_id(&c->out, c, x->open, x->n_items);
    buf_puts(&c->out, ",\"output_index\":");
    buf_dec(&c->out, x->n_items);
    buf_puts(&c->out, x->open == RESPONSES_CALL ? "" : ",\"content_index\":0");
}

static void put_state(struct call *c, const char *event_type,
                      const char *status, bool stored,
                      const struct api_error *x)
{
    event(c, event_type, "");
    buf_puts(&c->out, ",\"response\":");
    responses_put(&c->out, c, status, stored, x);
    event_end(c);
}

static void put_begin(struct call *c)
{
    bool store = responses_of(c)->store;
    put_state(c, "created", "in_progress", store, NULL);
    put_state(c, "in_progress", "in_progress", store, NULL);
}

static void open_item(struct call *c, enum responses_item kind, uint32_t k)
{
    struct responses *x = responses_of(c);
    struct buf *b = &c->out;
    x->open = kind;
    x->tool = k;
    buf_clear(&x->text);
    event(c, "output_item.added", "");
    buf_puts(b, ",\"output_index\":");
    buf_dec(b, x->n_items);
    buf_puts(b, ",\"item\":");
    put_item(b, c, kind, x->n_items, k, "in_progress", true, NULL, 0);
    event_end(c);
    if (kinds[kind].part != NULL) {
        event(c, "content_part.added", "");
        put_place(c);
        buf_puts(b, ",\"part\":");
        put_part(b, kind, NULL, 0);
        event_end(c);
    }
}

/* The text of the open item is complete. */
static void put_done(struct call *c)
{
    const struct responses *x = responses_of(c);
    struct buf *b = &c->out;
    event(c, kinds[x->open].delta, ".done");
    put_place(c);
    if (x->open == RESPONSES_CALL) {
        const char *name = c->choices[0].tools[x->tool].name;
        buf_puts(b, ",\"name\":");
        json_put_string(b, name, strlen(name));
    }
    buf_puts(b, x->open == RESPONSES_CALL      ? ",\"arguments\":\""
                : x->open == RESPONSES_MESSAGE ? ",\"logprobs\":[],\"text\":\""
                                               : ",\"text\":\"");
    buf_put(b, x->text.p, x->text.n);
    buf_puts(b, "\"");
    event_end(c);
    if (kinds[x->open].part != NULL) {
        event(c, "content_part.done", "");
        put_place(c);
        buf_puts(b, ",\"part\":");
        put_part(b, x->open, x->text.p, x->text.n);
        event_end(c);
    }
}

/* The open item, if there is one, is complete. */
static void close_item(struct call *c, const char *status)
{
    struct responses *x = responses_of(c);
    struct buf *b = &c->out;
    if (x->open == RESPONSES_NONE) {
        return;
    }
    put_done(c);
    event(c, "output_item.done", "");
    buf_puts(b, ",\"output_index\":");
    buf_dec(b, x->n_items);
    buf_puts(b, ",\"item\":");
    put_item(b, c, x->open, x->n_items, x->tool, status, false, x->text.p,
             x->text.n);
    event_end(c);
    add_item(c, x->open, x->tool, status, x->text.p, x->text.n);
    x->open = RESPONSES_NONE;
}

/* For each token: no tree. */
static bool delta(struct call *c, enum responses_item kind, uint32_t k,
                  const char *p, size_t n)
{
    struct responses *x = responses_of(c);
    struct buf *b = &c->out;
    buf_clear(b);
    if (x->open != kind || (kind == RESPONSES_CALL && x->tool != k)) {
        close_item(c, "completed");
        open_item(c, kind, k);
    }
    event(c, kinds[kind].delta, ".delta");
    put_place(c);
    buf_puts(b, kind == RESPONSES_MESSAGE ? ",\"logprobs\":[],\"delta\":"
                                          : ",\"delta\":");
    json_put_string(b, p, n);
    event_end(c);
    json_put_text(&x->text, p, n);
    if (!buf_ok(&x->text) || !buf_ok(&x->items)) {
        c->refused = ERR_TOO_BIG;
    }
    return call_send(c);
}

static bool begin(struct call *c, uint32_t i)
{
    (void)i; /* the only choice */
    buf_clear(&c->out);
    put_begin(c);
    return call_send(c);
}

static bool text(struct call *c, uint32_t i, const char *p, size_t n)
{
    (void)i;
    return delta(c, RESPONSES_MESSAGE, 0, p, n);
}

static bool reasoning(struct call *c, uint32_t i, const char *p, size_t n)
{
    (void)i;
    return delta(c, RESPONSES_REASONING, 0, p, n);
}

static bool tool_begin(struct call *c, uint32_t i, uint32_t k)
{
    (void)i;
    buf_clear(&c->out);
    close_item(c, "completed");
    open_item(c, RESPONSES_CALL, k);
    return call_send(c);
}

static bool tool_arguments(struct call *c, uint32_t i, uint32_t k,
                           const char *json, size_t n)
{
    (void)i;
    return delta(c, RESPONSES_CALL, k, json, n);
}

static bool tool_end(struct call *c, uint32_t i, uint32_t k)
{
    (void)i;
    buf_clear(&c->out);
    close_item(c, c->choices[0].tools[k].whole ? "completed" : "incomplete");
    return call_send(c);
}

static void end(struct call *c, uint32_t i)
{
    const struct responses *x = responses_of(c);
    (void)i;
    buf_clear(&c->out);
    if (x->n_items == 0 && x->open == RESPONSES_NONE) {
        open_item(c, RESPONSES_MESSAGE, 0); /* an answer has one */
    }
    close_item(c, responses_status(c));
    (void)call_send(c);
}

/* dialect.failed */
static void failed(struct call *c, const struct api_error *x)
{
    if (responses_of(c)->n_events == 0) {
        put_begin(c);
    }
    put_state(c, "failed", "failed", false, x);
}

static void finish(struct call *c)
{
    bool kept = responses_keep(c);
    const char *status = responses_status(c);
    buf_clear(&c->out);
    put_state(c, status, status, kept, NULL);
    if (!buf_ok(&c->out)) {
        struct api_error x = {.code = ERR_TOO_BIG,
                              .msg = "the answer is over the limit"};
        buf_clear(&responses_of(c)->items);
        buf_clear(&c->out);
        failed(c, &x);
    }
    (void)call_send(c);
}

/* --- whole answers --- */

/* The items of a choice whose text was collected. */
static void put_items(struct call *c)
{
    const struct call_choice *x = &c->choices[0];
    const char *status = responses_status(c);
    if (x->reasoning.n > 0) {
        add_item(c, RESPONSES_REASONING, 0, "completed", x->reasoning.p,
                 x->reasoning.n);
    }
    if (x->text.n > 0 || x->n_tools == 0) {
        add_item(c, RESPONSES_MESSAGE, 0, x->n_tools > 0 ? "completed" : status,
                 x->text.p, x->text.n);
    }
    for (uint32_t k = 0; k < x->n_tools; k++) {
        const struct call_tool *t = &x->tools[k];
        struct buf b;
        buf_init(&b, 2 * ANSWER_BYTES_MAX);
        json_put_text(&b, t->arguments.p, t->arguments.n);
        add_item(c, RESPONSES_CALL, k, t->whole ? "completed" : "incomplete",
                 b.p, b.n);
        buf_fini(&b);
    }
}

static void put_head(struct call *c, struct buf *b)
{
    put_front(b, c, responses_status(c), NULL);
}

/* Large ones are not kept: their items are made where they are written. */
static bool is_small(const struct call *c)
{
    const struct call_choice *x = &c->choices[0];
    return buf_ok(&x->text) && x->text.n + x->reasoning.n <= ANSWER_READ_BYTES;
}

static void put_choice(struct call *c, struct buf *b, uint32_t i)
{
    const struct responses *x = responses_of(c);
    (void)i;
    if (x->n_items == 0) {
        put_items(c);
    }
    buf_put(b, x->items.p, x->items.n);
    if (!buf_ok(&x->items)) {
        c->refused = ERR_TOO_BIG;
    }
}

static void put_tail(struct call *c, struct buf *b)
{
    bool kept = false;
    if (c->refused == 0 && is_small(c)) {
        put_items(c);
        kept = responses_keep(c);
    }
    put_back(b, c, true, kept);
}

const struct dialect responses_dialect = {
    .fields = &responses_fields,
    .prompt_field = "input",
    .id_prefix = "resp_",
    .error = api_openai_error,
    .read = responses_read,
    .resolve = responses_resolve,
    .drop = responses_drop,
    .content_type = "text/event-stream",
    .events = true,
    .failed = failed,
    .begin = begin,
    .text = text,
    .reasoning = reasoning,
    .tool_begin = tool_begin,
    .tool_arguments = tool_arguments,
    .tool_end = tool_end,
    .end = end,
    .finish = finish,
    .head = put_head,
    .choice = put_choice,
    .tail = put_tail,
};
