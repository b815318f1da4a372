/* responses_read.c - items of a request of /v1/responses as messages.
 *
 * A message is a message. Calls of functions that stand together, and a text of
 * the assistant before them, are one message with tool_calls; what the model
 * thought before (reasoning) is that message's, and the template shows it or
 * leaves it out. Summaries and encrypted content of others are left out. */
#include <string.h>

#include "api/messages.h"
#include "api/responses.h"

struct reader {
    struct arena *a;
    const struct json *first; /* of the items */
    struct chat_message *m;   /* the first of the request */
    size_t n;
    struct chat_message *open; /* the assistant's last one; NULL */
    struct buf calls;          /* its tool_calls, JSON between commas */
    const char *thought; /* what is thought before its text or calls; NULL */
    size_t thought_n;
};

/* message_part_fn */
static int read_part(const struct json *v, const char *where, const char **ret,
                     struct err *e)
{
    static const struct {
        const char *type, *key;
    } rows[] = {
        {"input_text",     "text"   },
        {"output_text",    "text"   },
        {"text",           "text"   },
        {"refusal",        "refusal"},
        {"reasoning_text", "text"   },
    };
    const char *type = json_str(json_get(v, "type"));
    for (size_t i = 0; type != NULL && i < countof(rows); i++) {
        if (strcmp(type, rows[i].type) == 0) {
            *ret = json_str(json_get(v, rows[i].key));
            return *ret != NULL
                       ? 0
                       : err_set(e, ERR_INVALID, "%s.%s: must be a string",
                                 where, rows[i].key);
        }
    }
    return type != NULL
               ? err_set(e, ERR_UNSUPPORTED, "%s: no part of type '%.32s' here",
                         where, type)
               : err_set(e, ERR_INVALID, "%s: a part needs a type", where);
}

/* --- the assistant's message --- */

/* The open message is complete: it gets its calls. */
static int close_message(struct reader *r, struct err *e)
{
    struct chat_message *m = r->open;
    struct buf b;
    r->open = NULL;
    if (m == NULL || r->calls.n == 0) {
        return buf_ok(&r->calls) ? 0 : message_too_big(e);
    }
    buf_init(&b, 2 * TEXT_BYTES_MAX);
    buf_puts(&b, "{\"tool_calls\":[");
    buf_put(&b, r->calls.p, r->calls.n);
    buf_puts(&b, "]}");
    m->fields = (struct span){arena_strn(r->a, b.p, b.n), b.n};
    bool ok = buf_ok(&r->calls) && buf_ok(&b) && m->fields.p != NULL;
    buf_fini(&b);
    buf_clear(&r->calls);
    return ok ? 0 : message_too_big(e);
}

/* What was thought is the assistant's next message's, or nobody's. */
static struct chat_message *add(struct reader *r, const char *role)
{
    struct chat_message *m = &r->m[r->n++];
    m->role = role;
    if (strcmp(role, "assistant") == 0) {
        m->reasoning = r->thought;
        m->reasoning_n = r->thought_n;
        r->open = m;
    }
    r->thought = NULL;
    r->thought_n = 0;
    return m;
}

/* --- items --- */

static int read_message(struct reader *r, const struct json *v,
                        const char *where, struct err *e)
{
    static const char *const roles[] = {"user", "assistant", "system",
                                        "developer", NULL};
    static const char *const keys[] = {"type",   "id",    "role", "content",
                                       "status", "phase", NULL};
    char content[64];
    const char *role = NULL;
    (void)snprintf(content, sizeof(content), "%s.content", where);
    RETERR(message_role(v, where, roles, &role, e));
    RETERR(message_only(v, where, keys, e));
    RETERR(close_message(r, e));
    struct chat_message *m = add(r, role);
    return message_content(r->a, json_get(v, "content"), content, read_part,
                           false, m, e);
}

static int want_text(const struct json *v, const char *key, const char *where,
                     const char **ret, struct err *e)
{
    *ret = json_str(json_get(v, key));
    return *ret != NULL
               ? 0
               : err_set(e, ERR_INVALID, "%s.%s: must be a string", where, key);
}

static int read_call(struct reader *r, const struct json *v, const char *where,
                     struct err *e)
{
    static const char *const keys[] = {"type",      "id",     "call_id",
                                       "name",      "status", "namespace",
                                       "arguments", NULL};
    const char *id = NULL, *name = NULL, *arguments = NULL;
    struct buf *b = &r->calls;
    RETERR(message_only(v, where, keys, e));
    RETERR(want_text(v, "call_id", where, &id, e));
    RETERR(want_text(v, "name", where, &name, e));
    RETERR(want_text(v, "arguments", where, &arguments, e));
    if (r->open == NULL) {
        add(r, "assistant")->content = "";
    }
    buf_puts(b, b->n > 0 ? ",{\"id\":" : "{\"id\":");
    json_put_string(b, id, strlen(id));
    buf_puts(b, ",\"type\":\"function\",\"function\":{\"name\":");
    json_put_string(b, name, strlen(name));
    buf_puts(b, ",\"arguments\":");
    json_put_string(b, arguments, strlen(arguments));
    buf_puts(b, "}}");
    return buf_ok(b) ? 0 : message_too_big(e);
}

/* The function whose call that was, of the items before v; NULL. */
static const char *name_of_call(const struct reader *r, const struct json *v,
                                const char *id)
{
    const char *name = NULL;
    for (const struct json *x = r->first; x != v; x = json_next(x)) {
        const char *its = json_str(json_get(x, "call_id"));
        if (its != NULL && strcmp(its, id) == 0) {
            name = json_str(json_get(x, "name"));
        }
    }
    return name;
}

static int read_result(struct reader *r, const struct json *v,
                       const char *where, struct err *e)
{
    static const char *const keys[] = {"type",   "id",     "call_id",
                                       "output", "status", NULL};
    const char *id = NULL;
    char output[64];
    struct buf b;
    (void)snprintf(output, sizeof(output), "%s.output", where);
    RETERR(message_only(v, where, keys, e));
    RETERR(want_text(v, "call_id", where, &id, e));
    RETERR(close_message(r, e));
    const char *name = name_of_call(r, v, id);
    struct chat_message *m = add(r, "tool");
    buf_init(&b, TEXT_BYTES_MAX);
    buf_puts(&b, "{\"tool_call_id\":");
    json_put_string(&b, id, strlen(id));
    if (name != NULL) {
        buf_puts(&b, ",\"name\":");
        json_put_string(&b, name, strlen(name));
    }
    buf_puts(&b, "}");
    m->fields = (struct span){arena_strn(r->a, b.p, b.n), b.n};
    bool ok = buf_ok(&b) && m->fields.p != NULL;
    buf_fini(&b);
    return ok ? message_content(r->a, json_get(v, "output"), output, read_part,
                                false, m, e)
              : message_too_big(e);
}

static int read_reasoning(struct reader *r, const struct json *v,
                          const char *where, struct err *e)
{
    static const char *const keys[] = {
        "type",   "id", "summary", "content", "encrypted_content",
        "status", NULL};
    char content[64];
    struct chat_message x = {0};
    const struct json *text = json_get(v, "content");
    RETERR(message_only(v, where, keys, e));
    RETERR(close_message(r, e)); /* a thought begins a message */
    if (text == NULL || json_type(text) == JSON_NULL) {
        return 0;
    }
    (void)snprintf(content, sizeof(content), "%s.content", where);
    RETERR(message_content(r->a, text, content, read_part, true, &x, e));
    r->thought = x.content;
    r->thought_n = x.content_n;
    return 0;
}

static int read_item(struct reader *r, const struct json *v, size_t i,
                     struct err *e)
{
    static const struct {
        const char *type;
        int (*read)(struct reader *r, const struct json *v, const char *where,
                    struct err *e);
    } rows[] = {
        {"message",              read_message  },
        {"function_call",        read_call     },
        {"function_call_output", read_result   },
        {"reasoning",            read_reasoning},
    };
    char where[48];
    const struct json *t = json_get(v, "type");
    const char *type = t == NULL ? "message" : json_str(t);
    (void)snprintf(where, sizeof(where), "input[%zu]", i);
    if (json_type(v) != JSON_OBJECT || type == NULL) {
        return err_set(e, ERR_INVALID, "%s: must be an item with a type",
                       where);
    }
    for (size_t k = 0; k < countof(rows); k++) {
        if (strcmp(rows[k].type, type) == 0) {
            return rows[k].read(r, v, where, e);
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "%s: no item of type '%.32s' here",
                   where, type);
}

static int read_items(struct reader *r, const struct json *input, struct err *e)
{
    size_t i = 0;
    for (const struct json *v = json_first(input); v != NULL;
         v = json_next(v)) {
        RETERR(read_item(r, v, i, e));
        i++;
    }
    return close_message(r, e);
}

int responses_messages(struct arena *a, const struct json *input, size_t before,
                       struct chat_message **ret, size_t *ret_n,
                       const char **field, struct err *e)
{
    const char *text = json_str(input);
    bool list = input != NULL && json_type(input) == JSON_ARRAY;
    size_t n = text != NULL ? 1 : json_count(input);
    *field = "input";
    if ((text == NULL && !list) || n == 0) {
        return err_set(e, ERR_INVALID,
                       "input: must be a string or an array with an item");
    }
    if (before + n > CHAT_MESSAGES_MAX) {
        return err_set(e, ERR_INVALID, "input: at most %zu items",
                       CHAT_MESSAGES_MAX - before);
    }
    struct reader r = {.a = a, .first = json_first(input), .n = before};
    r.m = arena_array(a, before + n, sizeof(*r.m));
    if (r.m == NULL) {
        return message_too_big(e);
    }
    int rc = 0;
    if (text != NULL) {
        struct chat_message *m = add(&r, "user");
        m->content_n = strlen(text);
        m->content = arena_strn(a, text, m->content_n);
        rc = m->content != NULL ? 0 : message_too_big(e);
    } else {
        buf_init(&r.calls, TEXT_BYTES_MAX);
        rc = read_items(&r, input, e);
        buf_fini(&r.calls);
    }
    if (rc == 0 && r.n == before) {
        rc = err_set(e, ERR_INVALID, "input: there is no message in it");
    }
    *ret = r.m;
    *ret_n = r.n;
    return rc;
}
