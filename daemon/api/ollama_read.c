/* ollama_read.c - the prompt of a request in Ollama's dialect. */
#include <string.h>

#include "api/fill.h"
#include "api/messages.h"
#include "api/ollama.h"
#include "api/tools.h"

/* message_part_fn: Ollama's content is a text. */
static int no_parts(const struct json *v, const char *where, const char **ret,
                    struct err *e)
{
    (void)v, (void)ret;
    return err_set(e, ERR_INVALID, "%s: must be a string", where);
}

/* What roles have beside content. */
static int read_more(struct calls *k, struct arena *a, const struct json *v,
                     const char *where, struct chat_message *m, struct err *e)
{
    const char *id = NULL, *name = NULL;
    if (strcmp(m->role, "assistant") == 0) {
        RETERR(message_reasoning(a, json_get(v, "thinking"), where, m, e));
        return calls_read(k, a, json_get(v, "tool_calls"), where, m, e);
    }
    if (strcmp(m->role, "tool") != 0) {
        return 0;
    }
    int rc = json_want_str(v, "tool_call_id", false, &id, e);
    if (rc == 0) {
        rc = json_want_str(v, "tool_name", false, &name, e);
    }
    return rc == 0 ? calls_answer(k, a, id, name, m, e)
                   : err_prefix(e, rc, "%s", where);
}

static int read_message(struct calls *k, struct arena *a, const struct json *v,
                        size_t i, struct chat_message *m, struct err *e)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool",
                                        NULL};
    static const char *const keys[] = {"role", "content", "thinking", NULL};
    static const char *const own[] = {"role", "content", "thinking",
                                      "tool_calls", NULL};
    static const char *const result[] = {
        "role", "content", "thinking", "tool_name", "tool_call_id", NULL};
    char where[48], content[64];
    const struct json *text = json_get(v, "content");
    (void)snprintf(where, sizeof(where), "messages[%zu]", i);
    (void)snprintf(content, sizeof(content), "%s.content", where);
    RETERR(message_role(v, where, roles, &m->role, e));
    RETERR(message_only(v, where,
                        m->role[0] == 'a'   ? own
                        : m->role[0] == 't' ? result
                                            : keys,
                        e));
    RETERR(read_more(k, a, v, where, m, e));
    if (text == NULL || json_type(text) == JSON_NULL) {
        m->content = "";
        return 0;
    }
    return message_content(a, text, content, no_parts, false, m, e);
}

int ollama_read_chat(struct call *c, const struct json *j, struct err *e)
{
    struct gen_req *q = &c->p.req;
    const struct json *v = json_get(j, "messages");
    struct calls k = {0};
    size_t i = 0;
    c->field = "messages";
    q->kind = GEN_CHAT;
    if (v == NULL || json_type(v) == JSON_NULL ||
        (json_type(v) == JSON_ARRAY && json_first(v) == NULL)) {
        c->only_load = true;
        return 0;
    }
    RETERR(messages_room(&c->arena, v, 0, &q->messages, &q->n_messages, e));
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        RETERR(read_message(&k, &c->arena, x, i, &q->messages[i], e));
        i++;
    }
    c->field = "tools";
    return tools_kwargs(&c->arena, json_get(j, "tools"), TOOLS_FUNCTIONS, &c->p,
                        &q->tools, &q->kwargs, e);
}

/* A message in the request's arena. NULL: there is no memory for it. */
static const char *put_message(struct call *c, const char *role,
                               const char *text)
{
    struct chat_message *m = &c->p.req.messages[c->p.req.n_messages++];
    m->role = role;
    m->content_n = strlen(text);
    m->content = arena_strn(&c->arena, text, m->content_n);
    return m->content;
}

static bool is_empty(const char *s)
{
    return s == NULL || s[0] == '\0';
}

/* What is between prompt and suffix. */
static int read_gap(struct call *c, const char *text, const char *suffix,
                    const char *system, struct err *e)
{
    struct fim_text *f = NULL;
    c->field = "suffix";
    if (c->p.raw || !is_empty(system)) {
        return err_set(e, ERR_UNSUPPORTED, "suffix: not with raw or system");
    }
    return fill_request(&c->arena, text, NULL, suffix, &c->p.req, &f, e);
}

int ollama_read_generate(struct call *c, const struct json *j, struct err *e)
{
    struct gen_req *q = &c->p.req;
    const char *text = json_str(json_get(j, "prompt"));
    const char *system = json_str(json_get(j, "system"));
    const char *suffix = json_str(json_get(j, "suffix"));
    c->field = "prompt";
    if (is_empty(text)) {
        c->only_load = true;
        return 0;
    }
    if (!is_empty(suffix)) {
        return read_gap(c, text, suffix, system, e);
    }
    if (c->p.raw) {
        q->kind = GEN_TEXT;
        q->text_n = strlen(text);
        q->text = arena_strn(&c->arena, text, q->text_n);
        return q->text != NULL ? 0 : message_too_big(e);
    }
    q->kind = GEN_CHAT;
    q->messages = arena_array(&c->arena, 2, sizeof(*q->messages));
    bool ok = q->messages != NULL &&
              (is_empty(system) || put_message(c, "system", system) != NULL) &&
              put_message(c, "user", text) != NULL;
    return ok ? tools_kwargs(&c->arena, NULL, TOOLS_FUNCTIONS, &c->p, &q->tools,
                             &q->kwargs, e)
              : message_too_big(e);
}
