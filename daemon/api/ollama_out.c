/* ollama_out.c - answers of /api/chat and /api/generate: lines of JSON, or one
 * object. Shapes: Ollama's API reference. Durations are nanoseconds: waiting
 * for the model and a place is load_duration. */
#include <string.h>
#include <time.h>

#include "api/ollama.h"

struct json *ollama_error(const struct api_error *x)
{
    struct json *o = json_object();
    json_add_str(o, "error",
                 x->msg != NULL && x->msg[0] != '\0' ? x->msg
                                                     : err_text(x->code));
    return o;
}

/* n digits. */
static void put_digits(struct buf *b, unsigned v, unsigned n)
{
    unsigned unit = 1;
    for (unsigned i = 1; i < n; i++) {
        unit *= 10;
    }
    for (; unit > 0; unit /= 10) {
        buf_u8(b, (uint8_t)('0' + v / unit % 10));
    }
}

/* For each token: no printf. */
void ollama_put_time(struct buf *b, int64_t unix_ms)
{
    time_t s = (time_t)(unix_ms / 1000);
    struct tm t = {0};
    must(gmtime_r(&s, &t) != NULL); /* the clock's own */
    put_digits(b, (unsigned)t.tm_year + 1900, 4);
    buf_puts(b, "-");
    put_digits(b, (unsigned)t.tm_mon + 1, 2);
    buf_puts(b, "-");
    put_digits(b, (unsigned)t.tm_mday, 2);
    buf_puts(b, "T");
    put_digits(b, (unsigned)t.tm_hour, 2);
    buf_puts(b, ":");
    put_digits(b, (unsigned)t.tm_min, 2);
    buf_puts(b, ":");
    put_digits(b, (unsigned)t.tm_sec, 2);
    buf_puts(b, ".");
    put_digits(b, (unsigned)(unix_ms % 1000), 3);
    buf_puts(b, "Z");
}

static bool is_chat(const struct call *c)
{
    return c->d == &ollama_chat;
}

/* An object up to where its text begins. A model's name needs no escapes. */
static void put_head(struct call *c, struct buf *b)
{
    buf_puts(b, "{\"model\":\"");
    buf_puts(b, c->model);
    buf_puts(b, "\",\"created_at\":\"");
    ollama_put_time(b, server_unix_ms());
    buf_puts(b, is_chat(c) ? "\",\"message\":{\"role\":\"assistant\","
                             "\"content\":\""
                           : "\",\"response\":\"");
}

/* A call in a list. One whose arguments broke off
 * is none: they are an object here. */
static void put_call(struct buf *b, const struct call_choice *x, uint32_t k,
                     bool first)
{
    const struct call_tool *t = &x->tools[k];
    buf_puts(b, first ? "{\"id\":\"" : ",{\"id\":\"");
    buf_puts(b, t->id);
    buf_puts(b, "\",\"function\":{\"index\":");
    buf_dec(b, k);
    buf_puts(b, ",\"name\":");
    json_put_string(b, t->name, strlen(t->name));
    buf_puts(b, ",\"arguments\":");
    buf_put(b, t->arguments.p, t->arguments.n);
    buf_puts(b, "}}");
}

/* What an object has beside its text, of a choice: calls of tools from `from`
 * on, and what the model thought (escaped). The text ended before it. */
static void put_parts(struct buf *b, const struct call_choice *x, uint32_t from)
{
    bool first = true;
    if (x->reasoning.n > 0) {
        buf_puts(b, ",\"thinking\":\"");
        buf_put(b, x->reasoning.p, x->reasoning.n);
        buf_puts(b, "\"");
    }
    for (uint32_t k = from; k < x->n_tools; k++) {
        if (x->tools[k].whole) {
            buf_puts(b, first ? ",\"tool_calls\":[" : "");
            put_call(b, x, k, first);
            first = false;
        }
    }
    buf_puts(b, first ? "" : "]");
}

/* What follows the message or the response. */
static void put_text_end(struct call *c, struct buf *b, struct probs *p)
{
    buf_puts(b, is_chat(c) ? "}" : "");
    if (c->p.logprobs) {
        buf_puts(b, ",\"logprobs\":");
        probs_write(b, c, p);
    }
}

static void put_ns(struct buf *b, const char *key, uint64_t from, uint64_t to)
{
    buf_puts(b, key);
    buf_dec(b, from != 0 && to > from ? (to - from) * 1000 : 0);
}

static void put_tail(struct call *c, struct buf *b)
{
    struct gen_usage u;
    enum gen_finish why = c->choices[0].why;
    call_get_usage(c, &u);
    buf_puts(b, ",\"done\":true,\"done_reason\":");
    buf_puts(b,
             why == GEN_LENGTH || why == GEN_LATE ? "\"length\"" : "\"stop\"");
    put_ns(b, ",\"total_duration\":", u.created_us, server_now_us());
    put_ns(b, ",\"load_duration\":", u.created_us, u.started_us);
    buf_puts(b, ",\"prompt_eval_count\":");
    buf_dec(b, u.n_prompt);
    put_ns(b, ",\"prompt_eval_duration\":", u.started_us, u.first_us);
    buf_puts(b, ",\"eval_count\":");
    buf_dec(b, u.n_output);
    put_ns(b, ",\"eval_duration\":", u.first_us, u.last_us);
    buf_puts(b, "}");
}

/* --- streams --- */

static bool begin(struct call *c, uint32_t i)
{
    (void)c, (void)i; /* nothing comes before the text */
    return true;
}

/* A line whose message is complete. */
static bool send_line(struct call *c, uint32_t i)
{
    put_text_end(c, &c->out, &c->choices[i].probs);
    buf_puts(&c->out, ",\"done\":false}\n");
    if (!probs_ok(&c->choices[i].probs)) {
        c->refused = ERR_TOO_BIG;
    }
    return call_send(c);
}

static bool text(struct call *c, uint32_t i, const char *p, size_t n)
{
    buf_clear(&c->out);
    put_head(c, &c->out);
    json_put_text(&c->out, p, n);
    buf_puts(&c->out, "\"");
    return send_line(c, i);
}

static bool reasoning(struct call *c, uint32_t i, const char *p, size_t n)
{
    buf_clear(&c->out);
    put_head(c, &c->out);
    buf_puts(&c->out, "\",\"thinking\":");
    json_put_string(&c->out, p, n);
    return send_line(c, i);
}

static bool tool_begin(struct call *c, uint32_t i, uint32_t k)
{
    (void)c, (void)i, (void)k; /* a call is told as a whole */
    return true;
}

static bool tool_end(struct call *c, uint32_t i, uint32_t k)
{
    const struct call_choice *x = &c->choices[i];
    if (!x->tools[k].whole) {
        return true;
    }
    buf_clear(&c->out);
    put_head(c, &c->out);
    buf_puts(&c->out, "\"");
    put_parts(&c->out, x, k);
    return send_line(c, i);
}

static void end(struct call *c, uint32_t i)
{
    (void)c, (void)i; /* the last line says it, with the counts of all */
}

static void finish(struct call *c)
{
    buf_clear(&c->out);
    put_head(c, &c->out);
    buf_puts(&c->out, "\"");
    put_text_end(c, &c->out, &c->choices[0].probs);
    put_tail(c, &c->out);
    buf_puts(&c->out, "\n");
    (void)call_send(c);
}

/* --- whole answers --- */

static void put_choice(struct call *c, struct buf *b, uint32_t i)
{
    struct call_choice *x = &c->choices[i];
    if (x->text.n > 0) {
        buf_put(b, x->text.p, x->text.n);
    }
    buf_puts(b, "\"");
    put_parts(b, x, 0);
    put_text_end(c, b, &x->probs);
}

/* A model was loaded, or unloaded, and that was all. */
static void put_loaded(struct call *c, struct buf *b, bool unloaded)
{
    put_head(c, b);
    buf_puts(b, is_chat(c) ? "\"}" : "\"");
    buf_puts(b, ",\"done\":true,\"done_reason\":");
    buf_puts(b, unloaded ? "\"unload\"}" : "\"load\"}");
    buf_puts(b, c->p.stream ? "\n" : "");
}

#define ANSWERS                                                     \
    .id_prefix = "", .probs = PROBS_OBJECTS, .error = ollama_error, \
    .content_type = "application/x-ndjson", .error_before = "",     \
    .error_after = "\n", .begin = begin, .text = text, .end = end,  \
    .reasoning = reasoning, .finish = finish, .head = put_head,     \
    .choice = put_choice, .tail = put_tail, .loaded = put_loaded

const struct dialect ollama_chat = {
    .fields = &ollama_chat_fields,
    .prompt_field = "messages",
    .read = ollama_read_chat,
    .keeps_arguments = true,
    .tool_begin = tool_begin,
    .tool_end = tool_end,
    ANSWERS,
};

const struct dialect ollama_generate = {
    .fields = &ollama_generate_fields,
    .prompt_field = "prompt",
    .read = ollama_read_generate,
    ANSWERS,
};

void api_ollama_chat(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &ollama_chat, "");
}

void api_ollama_generate(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &ollama_generate, "");
}
