/* anthropic.c - Anthropic's dialect: answers and routes. Shapes: Anthropic's
 * API reference. Events of a stream:
 *
 *   message_start, content_block_start, ping, content_block_delta ...,
 *   content_block_stop, message_delta, message_stop
 *
 * message_start comes with the first token, when it is known how much of the
 * prompt was warm; before it, and in every silence, there are pings. */
#include "api/anthropic.h"

#include <string.h>

#include "api/ask.h"

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
    return anthropic_messages(&c->arena, j, &q->messages, &q->n_messages, e);
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
    json_add_str(o, "stop_reason", reasons[x->why]);
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

static bool begin(struct call *c, uint32_t i)
{
    struct json *m = message_head(c);
    (void)i; /* the only choice */
    (void)json_add_array(m, "content");
    json_add_null(m, "stop_reason");
    json_add_null(m, "stop_sequence");
    put_usage(m, c, 0);
    struct json *o = event("message_start");
    json_add_tree(o, "message", m);
    buf_clear(&c->out);
    put_event(&c->out, "message_start", o);
    o = event("content_block_start");
    json_add_int(o, "index", 0);
    struct json *block = json_add_object(o, "content_block");
    json_add_str(block, "type", "text");
    json_add_str(block, "text", "");
    put_event(&c->out, "content_block_start", o);
    buf_puts(&c->out, PING);
    return call_send(c);
}

/* For each token: no tree. */
static bool text(struct call *c, uint32_t i, const char *p, size_t n)
{
    static const char head[] = "event: content_block_delta\ndata: "
                               "{\"type\":\"content_block_delta\",\"index\":0,"
                               "\"delta\":{\"type\":\"text_delta\",\"text\":";
    (void)i;
    buf_clear(&c->out);
    buf_put(&c->out, head, sizeof(head) - 1);
    json_put_string(&c->out, p, n);
    buf_puts(&c->out, "}}\n\n");
    return call_send(c);
}

static void end(struct call *c, uint32_t i)
{
    struct json *o = event("content_block_stop");
    json_add_int(o, "index", (int64_t)i);
    buf_clear(&c->out);
    put_event(&c->out, "content_block_stop", o);
    (void)call_send(c);
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
    buf_puts(b, ",\"content\":[{\"type\":\"text\",\"text\":\"");
}

static void put_choice(struct call *c, struct buf *b, uint32_t i)
{
    const struct buf *s = &c->choices[i].text;
    if (s->n > 0) {
        buf_put(b, s->p, s->n);
    }
}

static void put_tail(struct call *c, struct buf *b)
{
    struct json *o = json_object();
    put_stop(o, &c->choices[0]);
    put_usage(o, c, drawn(c));
    buf_puts(b, "\"}]");
    size_t brace = b->n;
    json_write(o, false, b);
    json_free(o);
    b->p[brace] = ',';
}

const struct dialect anthropic_chat = {
    .fields = &anthropic_fields,
    .prompt_field = "messages",
    .id_prefix = "msg_",
    .error = anthropic_error,
    .read = read_chat,
    .content_type = "text/event-stream",
    .events = true,
    .ping = PING,
    .error_before = "event: error\ndata: ",
    .error_after = "\n\n",
    .begin = begin,
    .text = text,
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
