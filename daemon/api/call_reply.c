/* call_reply.c - answers that consist of parts: what the model thought, text,
 * and calls of tools (model/reply/reply.h takes them apart).
 *
 *   reply_text ... -> the parser -> sink -> [stream] the dialect's events
 *                                        -> [whole]  kept in the choice
 *
 * Only for chats with tools and for models that write down what they think; the
 * text of all others goes to the dialect as it is. */
#include <string.h>

#include "api/call_impl.h"

static void reply_fast(struct call_choice *x, bool fast)
{
    x->slow = x->slow || !fast;
}

/* --- reply_sink --- */

static void on_text(void *ctx, const char *p, size_t n)
{
    struct call_choice *x = ctx;
    struct call *c = x->call;
    if (x->closed) {
        return;
    }
    if (!c->p.stream) {
        json_put_text(&x->text, p, n);
        return;
    }
    reply_fast(x, c->d->text(c, x->i, p, n));
}

static void on_reasoning(void *ctx, const char *p, size_t n)
{
    struct call_choice *x = ctx;
    struct call *c = x->call;
    x->thinks = true;
    if (x->closed || c->d->reasoning == NULL) {
        return;
    }
    if (!c->p.stream) {
        json_put_text(&x->reasoning, p, n);
        return;
    }
    reply_fast(x, c->d->reasoning(c, x->i, p, n));
}

/* Mistral's templates take ids of 9 letters and digits only. */
static void make_id(const struct call *c, char *out, size_t size)
{
    char id[40];
    const char *prefix = c->d->tool_prefix;
    store_new_id("x", id);
    if (gen_forms(c->gen)->tools == REPLY_MISTRAL) {
        (void)snprintf(out, size, "%s", id + strlen(id) - 9);
    } else {
        (void)snprintf(out, size, "%s%s", prefix != NULL ? prefix : "call_",
                       id + 2);
    }
}

static void on_call(void *ctx, const char *name, size_t n)
{
    struct call_choice *x = ctx;
    struct call *c = x->call;
    if (x->n_tools == CALLS_MAX) {
        x->closed = true;
        return;
    }
    if (x->closed) {
        return;
    }
    if (x->tools == NULL) {
        x->tools = calloc(CALLS_MAX, sizeof(*x->tools));
        must(x->tools != NULL);
    }
    struct call_tool *t = &x->tools[x->n_tools];
    t->name = strndup(name, n);
    must(t->name != NULL);
    make_id(c, t->id, sizeof(t->id));
    buf_init(&t->arguments, ANSWER_BYTES_MAX);
    x->tool_bytes += sizeof(*t) + n;
    x->n_tools++;
    x->in_call = true;
    if (c->p.stream) {
        reply_fast(x, c->d->tool_begin(c, x->i, x->n_tools - 1));
    }
}

static void on_arguments(void *ctx, const char *json, size_t n)
{
    struct call_choice *x = ctx;
    struct call *c = x->call;
    if (!x->in_call) {
        return;
    }
    if (!c->p.stream || c->d->keeps_arguments) {
        buf_put(&x->tools[x->n_tools - 1].arguments, json, n);
        x->tool_bytes += n;
    }
    if (c->p.stream && c->d->tool_arguments != NULL) {
        reply_fast(x, c->d->tool_arguments(c, x->i, x->n_tools - 1, json, n));
    }
}

static void on_call_end(void *ctx, bool whole)
{
    struct call_choice *x = ctx;
    struct call *c = x->call;
    if (!x->in_call) {
        return;
    }
    x->in_call = false;
    x->tools[x->n_tools - 1].whole = whole;
    x->n_whole += whole ? 1 : 0;
    if (c->p.stream) {
        reply_fast(x, c->d->tool_end(c, x->i, x->n_tools - 1));
    }
    if (c->p.one_call && whole) {
        x->closed = true;
        x->enough = true;
    }
}

static const struct reply_sink reply_to_call = {
    .text = on_text,
    .reasoning = on_reasoning,
    .call = on_call,
    .arguments = on_arguments,
    .call_end = on_call_end,
};

/* --- tools' schemas --- */

/* The parameters of tool `name` in the request; NULL: it has none. */
static const struct json *properties(struct call *c, struct span name)
{
    const struct span text = gen_request(c->gen)->tools;
    if (c->tools == NULL && json_parse(text.p, text.n, &c->tools, NULL) != 0) {
        return NULL;
    }
    for (const struct json *t = json_first(c->tools); t != NULL;
         t = json_next(t)) {
        const struct json *f = json_get(t, "function");
        const char *s = json_str(json_get(f, "name"));
        if (s != NULL && strlen(s) == name.n &&
            memcmp(s, name.p, name.n) == 0) {
            return json_get(json_get(f, "parameters"), "properties");
        }
    }
    return NULL;
}

/* reply_string_fn */
static bool is_string(void *ctx, const char *name, size_t n, const char *key,
                      size_t key_n)
{
    struct call_choice *x = ctx;
    const struct json *p = properties(x->call, (struct span){name, n});
    for (const struct json *v = json_first(p); v != NULL; v = json_next(v)) {
        const char *type = json_str(json_get(v, "type"));
        if (strlen(json_key(v)) == key_n &&
            memcmp(json_key(v), key, key_n) == 0) {
            return type != NULL && strcmp(type, "string") == 0;
        }
    }
    return false;
}

/* --- for call.c --- */

#define TAIL_BYTES 256 /* of a prompt: it may have opened a thought */

bool reply_open(struct call *c, uint32_t i)
{
    struct call_choice *x = &c->choices[i];
    if (x->reply != NULL || c->gen == NULL || !gen_has_parts(c->gen)) {
        return x->reply != NULL;
    }
    struct span prompt = gen_prompt(c->gen);
    size_t n = prompt.n < TAIL_BYTES ? prompt.n : TAIL_BYTES;
    c->forms = *gen_forms(c->gen);
    if (c->p.thoughts_in_text) {
        c->forms.thoughts = REPLY_NO_THOUGHTS;
    }
    x->call = c;
    x->i = i;
    x->reply =
        reply_new(&c->forms, gen_request(c->gen)->tools.n > 0,
                  n > 0 ? prompt.p + prompt.n - n : "", n, &reply_to_call, x);
    reply_strings(x->reply, is_string, x);
    return true;
}

bool reply_text(struct call *c, uint32_t i, const char *p, size_t n, bool last)
{
    struct call_choice *x = &c->choices[i];
    x->slow = false;
    x->thinks = false;
    if (n > 0) {
        reply_put(x->reply, p, n);
    }
    x->n_thought += x->thinks ? 1 : 0;
    if (last) {
        reply_end(x->reply);
    }
    return !x->slow;
}

bool reply_ok(const struct call_choice *x)
{
    bool ok = buf_ok(&x->reasoning);
    for (uint32_t k = 0; k < x->n_tools; k++) {
        ok = ok && buf_ok(&x->tools[k].arguments);
    }
    return ok;
}

void reply_release(struct call_choice *x)
{
    reply_free(x->reply);
    x->reply = NULL;
    buf_fini(&x->reasoning);
    for (uint32_t k = 0; k < x->n_tools; k++) {
        free(x->tools[k].name);
        buf_fini(&x->tools[k].arguments);
    }
    free(x->tools);
    x->tools = NULL;
    x->n_tools = 0;
}
