/* anthropic.c - Anthropic's dialect: answers and routes. Shapes: Anthropic's
 * API reference. Events of a stream:
 *
 *   message_start, ping, for each block of thinking, text or tool_use:
 *   content_block_start, content_block_delta ..., content_block_stop;
 *   message_delta, message_stop
 *
 * message_start comes with the first token, when it is known how much of the
 * prompt was warm; before it, and in every silence, there are pings. */
#include "api/anthropic.h"

#include <string.h>

#include "api/ask.h"
#include "api/tools.h"

#define PING "event: ping\ndata: {\"type\":\"ping\"}\n\n"

struct json *anthropic_error(const struct api_error *x)
{
    static const struct {
        int status;
        const char *type;
    } rows[] = {
        {401, "authentication_error"},
        {403, "permission_error"    },
        {404, "not_found_error"     },
        {413, "request_too_large"   },
        {429, "rate_limit_error"    },
        {503, "overloaded_error"    },
    };
    int status = err_http(x->code);
    const char *type = status < 500 ? "invalid_request_error" : "api_error";
    for (size_t i = 0; i < countof(rows); i++) {
        type = rows[i].status == status ? rows[i].type : type;
    }
    struct json *o = json_object();
    json_add_str(o, "type", "error");
    struct json *in = json_add_object(o, "error");
    json_add_str(in, "type", type);
    json_add_str(in, "message",
                 x->msg != NULL && x->msg[0] != '\0' ? x->msg
                                                     : err_text(x->code));
    return o;
}

/* dialect.read */
static int read_chat(struct call *c, const struct json *j, struct err *e)
{
    struct gen_req *q = &c->p.req;
    q->kind = GEN_CHAT;
    c->field = "messages";
    RETERR(anthropic_messages(&c->arena, j, &q->messages, &q->n_messages, e));
    c->field = "tools";
    return tools_kwargs(&c->arena, json_get(j, "tools"), TOOLS_SCHEMAS, &c->p,
                        &q->tools, &q->kwargs, e);
}

static void put_usage(struct json *o, const struct call *c, uint32_t output)
{
    struct gen_usage u;
    call_get_usage(c, &u);
    struct json *x = json_add_object(o, "usage");
    json_add_int(x, "input_tokens", (int64_t)u.n_prompt - u.n_cached);
    json_add_int(x, "cache_creation_input_tokens", 0);
    json_add_int(x, "cache_read_input_tokens", (int64_t)u.n_cached);
    json_add_int(x, "output_tokens", (int64_t)output);
}

static uint32_t drawn(const struct call *c)
{
    struct gen_usage u;
    call_get_usage(c, &u);
    return u.n_output;
}

static void put_stop(struct json *o, const struct call_choice *x)
{
    static const char *const reasons[] = {
        [GEN_STOP] = "stop_sequence",
        [GEN_EOG] = "end_turn",
        [GEN_LENGTH] = "max_tokens",
        [GEN_LATE] = "max_tokens",
    };
    bool calls = x->n_whole > 0 && x->why == GEN_EOG;
    json_add_str(o, "stop_reason", calls ? "tool_use" : reasons[x->why]);
    if (x->why == GEN_STOP && x->stop != NULL) {
        json_add_str(o, "stop_sequence", x->stop);
    } else {
        json_add_null(o, "stop_sequence");
    }
}

/* The members with which a message begins. */
static struct json *message_head(const struct call *c)
{
    struct json *o = json_object();
    json_add_str(o, "id", c->id);
    json_add_str(o, "type", "message");
    json_add_str(o, "role", "assistant");
    json_add_str(o, "model", c->model);
    return o;
}

/* --- streams --- */

/* Append an event; o is freed. */
static void put_event(struct buf *b, const char *type, struct json *o)
{
    buf_puts(b, "event: ");
    buf_puts(b, type);
    buf_puts(b, "\ndata: ");
    json_write(o, false, b);
    buf_puts(b, "\n\n");
    json_free(o);
}

static struct json *event(const char *type)
{
    struct json *o = json_object();
    json_add_str(o, "type", type);
    return o;
}

/* Append the event that begins a block; o: its members beside the type. */
static void open_block(struct call *c, const char *type, struct json *o)
{
    struct json *x = event("content_block_start");
    json_add_int(x, "index", (int64_t)c->n_blocks++);
    json_add_tree(x, "content_block", o);
    put_event(&c->out, "content_block_start", x);
    c->block = type;
}

/* Append the event that ends the open block, if there is one. */
static void close_block(struct call *c)
{
    if (c->block != NULL) {
        struct json *o = event("content_block_stop");
        json_add_int(o, "index", (int64_t)c->n_blocks - 1);
        put_event(&c->out, "content_block_stop", o);
    }
    c->block = NULL;
}

static const char type_text[] = "text", type_thinking[] = "thinking",
                  type_tool[] = "tool_use";

/* A block of text or thinking is open, a new one if need be. */
static void want_block(struct call *c, const char *type)
{
    if (c->block == type) {
        return;
    }
    close_block(c);
    struct json *o = json_object();
    json_add_str(o, "type", type);
    json_add_str(o, type, "");
    if (type == type_thinking) {
        json_add_str(o, "signature", "");
    }
    open_block(c, type, o);
}

static bool begin(struct call *c, uint32_t i)
{
    struct json *m = message_head(c);
    (void)json_add_array(m, "content");
    json_add_null(m, "stop_reason");
    json_add_null(m, "stop_sequence");
    put_usage(m, c, 0);
    struct json *o = event("message_start");
    json_add_tree(o, "message", m);
    buf_clear(&c->out);
    put_event(&c->out, "message_start", o);
    if (c->choices[i].reply == NULL) { /* there will be nothing but text */
        want_block(c, type_text);
    }
    buf_puts(&c->out, PING);
    return call_send(c);
}

/* Append a delta of the open block: its type, and its member with this text.
 * For each token: no tree. */
static void put_delta(struct call *c, const char *head, const char *p, size_t n)
{
    buf_puts(&c->out, "event: content_block_delta\ndata: "
                      "{\"type\":\"content_block_delta\",\"index\":");
    buf_dec(&c->out, c->n_blocks - 1);
    buf_puts(&c->out, head);
    json_put_string(&c->out, p, n);
    buf_puts(&c->out, "}}\n\n");
}

/* Before a block of another type: thinking ends with a signature, which is
 * empty, since nothing is encrypted here. */
static void end_thinking(struct call *c)
{
    if (c->block == type_thinking) {
        put_delta(c,
                  ",\"delta\":{\"type\":\"signature_delta\",\"signature\":", "",
                  0);
    }
}

static bool text(struct call *c, uint32_t i, const char *p, size_t n)
{
    (void)i; /* the only choice */
    buf_clear(&c->out);
    end_thinking(c);
    want_block(c, type_text);
    put_delta(c, ",\"delta\":{\"type\":\"text_delta\",\"text\":", p, n);
    return call_send(c);
}

static bool reasoning(struct call *c, uint32_t i, const char *p, size_t n)
{
    (void)i;
    buf_clear(&c->out);
    want_block(c, type_thinking);
    put_delta(c, ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":", p, n);
    return call_send(c);
}

static bool tool_begin(struct call *c, uint32_t i, uint32_t k)
{
    const struct call_tool *t = &c->choices[i].tools[k];
    struct json *o = json_object();
    json_add_str(o, "type", type_tool);
    json_add_str(o, "id", t->id);
    json_add_str(o, "name", t->name);
    (void)json_add_object(o, "input");
    buf_clear(&c->out);
    end_thinking(c);
    close_block(c);
    open_block(c, type_tool, o);
    return call_send(c);
}

static bool tool_arguments(struct call *c, uint32_t i, uint32_t k,
                           const char *json, size_t n)
{
    (void)i, (void)k; /* its block is open */
    buf_clear(&c->out);
    put_delta(c, ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":",
              json, n);
    return call_send(c);
}

static bool tool_end(struct call *c, uint32_t i, uint32_t k)
{
    (void)i, (void)k;
    buf_clear(&c->out);
    close_block(c);
    return call_send(c);
}

static void end(struct call *c, uint32_t i)
{
    (void)i;
    buf_clear(&c->out);
    end_thinking(c);
    if (c->n_blocks == 0) { /* the model said nothing */
        want_block(c, type_text);
    }
    close_block(c);
    if (c->out.n > 0) {
        (void)call_send(c);
    }
}

static void finish(struct call *c)
{
    struct json *o = event("message_delta");
    put_stop(json_add_object(o, "delta"), &c->choices[0]);
    put_usage(o, c, drawn(c));
    buf_clear(&c->out);
    put_event(&c->out, "message_delta", o);
    put_event(&c->out, "message_stop", event("message_stop"));
    (void)call_send(c);
}

/* --- whole answers --- */

static void put_head(struct call *c, struct buf *b)
{
    struct json *o = message_head(c);
    json_write(o, false, b);
    json_free(o);
    b->n--; /* its brace */
    buf_puts(b, ",\"content\":[");
}

/* A call whose arguments broke off is no call: input is an object. */
static void put_calls(struct buf *b, const struct call_choice *x, bool first)
{
    for (uint32_t k = 0; k < x->n_tools; k++) {
        const struct call_tool *t = &x->tools[k];
        if (!t->whole) {
            continue;
        }
        buf_puts(b, first ? "" : ",");
        buf_puts(b, "{\"type\":\"tool_use\",\"id\":\"");
        buf_puts(b, t->id);
        buf_puts(b, "\",\"name\":");
        json_put_string(b, t->name, strlen(t->name));
        buf_puts(b, ",\"input\":");
        buf_put(b, t->arguments.p, t->arguments.n);
        buf_puts(b, "}");
        first = false;
    }
}

static void put_choice(struct call *c, struct buf *b, uint32_t i)
{
    const struct call_choice *x = &c->choices[i];
    bool thought = x->reasoning.n > 0;
    bool said = x->text.n > 0 || (!thought && x->n_whole == 0);
    if (thought) {
        buf_puts(b, "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":"
                    "\"");
        buf_put(b, x->reasoning.p, x->reasoning.n);
        buf_puts(b, said ? "\"}," : "\"}");
    }
    if (said) {
        buf_puts(b, "{\"type\":\"text\",\"text\":\"");
        buf_put(b, x->text.p != NULL ? x->text.p : "", x->text.n);
        buf_puts(b, "\"}");
    }
    put_calls(b, x, !thought && !said);
}

static void put_tail(struct call *c, struct buf *b)
{
    struct json *o = json_object();
    put_stop(o, &c->choices[0]);
    put_usage(o, c, drawn(c));
    buf_puts(b, "]");
    size_t brace = b->n;
    json_write(o, false, b);
    json_free(o);
    b->p[brace] = ',';
}

const struct dialect anthropic_chat = {
    .fields = &anthropic_fields,
    .prompt_field = "messages",
    .id_prefix = "msg_",
    .tool_prefix = "toolu_",
    .error = anthropic_error,
    .read = read_chat,
    .content_type = "text/event-stream",
    .events = true,
    .ping = PING,
    .error_before = "event: error\ndata: ",
    .error_after = "\n\n",
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

/* --- routes --- */

void api_messages(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &anthropic_chat, "");
}

/* api_read.read */
static int read_count(struct api_read *x, const struct json *j)
{
    struct ask *k = ask_of(x);
    struct chat_message *m = NULL;
    struct params p;
    RETERR(params_read(j, &anthropic_count_fields, &k->arena, &p, &x->e));
    RETERR(ask_copy(k, p.model, &k->model, &x->e));
    RETERR(anthropic_messages(&k->arena, j, &m, &k->work.n_messages, &x->e));
    RETERR(tools_kwargs(&k->arena, json_get(j, "tools"), TOOLS_SCHEMAS, &p,
                        &k->work.tools, &k->work.kwargs, &x->e));
    k->work.kind = TEXT_CHAT;
    k->work.messages = m;
    k->work.add_generation = true;
    return 0;
}

static void write_count(struct ask *k)
{
    buf_puts(&k->out, "{\"input_tokens\":");
    buf_dec(&k->out, k->work.n_tokens);
    buf_puts(&k->out, "}");
}

void api_count_tokens(struct http_req *r, const struct http_args *a)
{
    (void)a;
    ask_start(r, read_count, write_count);
}
