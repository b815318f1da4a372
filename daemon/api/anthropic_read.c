/* anthropic_read.c - the conversation of a request in Anthropic's dialect.
 *
 * Blocks of text are lines of one message. A tool's result is a message of its
 * own; those of one message stand before its text. Thinking of earlier turns is
 * for templates that show it. What a block says about caching is
 * a hint: prefixes are kept without it. */
#include <string.h>

#include "api/anthropic.h"
#include "api/tools.h"

/* Claude Code puts a line that varies with every question at the head of its
 * system prompt, which nobody but the service's own accounts needs; kept, no
 * request would share a beginning with another (facts/clients.md). */
#define BILLING "x-anthropic-billing-header:"

static bool is_type(const struct json *v, const char *type)
{
    const char *s = json_str(json_get(v, "type"));
    return s != NULL && strcmp(s, type) == 0;
}

/* message_part_fn: a block of text. */
static int read_block(const struct json *v, const char *where, const char **ret,
                      struct err *e)
{
    static const char *const keys[] = {"type", "text", "cache_control", NULL};
    const char *type = json_str(json_get(v, "type"));
    if (type == NULL) {
        return err_set(e, ERR_INVALID, "%s: a block needs a type", where);
    }
    if (strcmp(type, "text") != 0) {
        return err_set(e, ERR_UNSUPPORTED, "%s: no block of type '%.32s' here",
                       where, type);
    }
    RETERR(message_only(v, where, keys, e));
    *ret = json_str(json_get(v, "text"));
    return *ret != NULL
               ? 0
               : err_set(e, ERR_INVALID, "%s.text: must be a string", where);
}

/* message_part_fn: the text of an assistant's message. */
static int read_said(const struct json *v, const char *where, const char **ret,
                     struct err *e)
{
    bool other = is_type(v, "thinking") || is_type(v, "redacted_thinking") ||
                 is_type(v, "tool_use");
    *ret = NULL;
    return other ? 0 : read_block(v, where, ret, e);
}

/* message_part_fn: the text of a user's message. */
static int read_asked(const struct json *v, const char *where, const char **ret,
                      struct err *e)
{
    *ret = NULL;
    return is_type(v, "tool_result") ? 0 : read_block(v, where, ret, e);
}

/* message_part_fn */
static int read_system_block(const struct json *v, const char *where,
                             const char **ret, struct err *e)
{
    RETERR(read_block(v, where, ret, e));
    if (*ret != NULL && strncmp(*ret, BILLING, strlen(BILLING)) == 0) {
        *ret = NULL;
    }
    return 0;
}

/* A block tool_use: one call. */
static int read_use(struct calls *k, struct arena *a, const struct json *v,
                    const char *where, struct json *list, struct err *e)
{
    static const char *const keys[] = {
        "type", "id", "name", "input", "cache_control", "caller", NULL};
    const char *id = json_str(json_get(v, "id"));
    const struct json *input = json_get(v, "input");
    struct buf b;
    RETERR(message_only(v, where, keys, e));
    if (id == NULL || id[0] == '\0' || strlen(id) > TOOL_NAME_MAX) {
        return err_set(e, ERR_INVALID,
                       "%s.id: must be a string of 1 to %u bytes", where,
                       TOOL_NAME_MAX);
    }
    if (input == NULL || json_type(input) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID, "%s.input: must be an object", where);
    }
    buf_init(&b, TEXT_BYTES_MAX);
    json_write(input, false, &b);
    const struct call_said x = {
        .id = id, .name = json_str(json_get(v, "name")), .arguments = b.p};
    int rc =
        buf_ok(&b) ? calls_add(k, a, list, &x, where, e) : message_too_big(e);
    buf_fini(&b);
    return rc;
}

/* What an assistant's blocks have beside text: thinking, and calls. Of several
 * thoughts the last counts: it is of this answer. */
static int read_assistant(struct calls *k, struct arena *a,
                          const struct json *blocks, const char *where,
                          struct chat_message *m, struct err *e)
{
    struct json *list = json_array();
    int rc = 0;
    for (const struct json *c = json_first(blocks); c != NULL;
         c = json_next(c)) {
        if (is_type(c, "thinking")) {
            CHECK(message_reasoning(a, json_get(c, "thinking"), where, m, e));
        } else if (is_type(c, "tool_use")) {
            k->n = json_first(list) == NULL ? 0 : k->n;
            CHECK(read_use(k, a, c, where, list, e));
        }
    }
    if (json_first(list) != NULL) {
        return calls_done(a, list, m, e);
    }
out:
    json_free(list);
    return rc;
}

/* A block tool_result: a message of its own. */
static int read_result(struct calls *k, struct arena *a, const struct json *v,
                       const char *where, struct chat_message *m, struct err *e)
{
    static const char *const keys[] = {"type",     "tool_use_id",   "content",
                                       "is_error", "cache_control", NULL};
    const char *id = json_str(json_get(v, "tool_use_id"));
    const struct json *text = json_get(v, "content");
    const struct json *failed = json_get(v, "is_error");
    RETERR(message_only(v, where, keys, e));
    if (id == NULL) {
        return err_set(e, ERR_INVALID, "%s.tool_use_id: must be a string",
                       where);
    }
    m->role = "tool";
    m->content = "";
    if (text != NULL && json_type(text) != JSON_NULL) {
        RETERR(message_content(a, text, where, read_block, true, m, e));
    }
    if (failed != NULL && json_bool(failed)) { /* templates know no field */
        m->content = arena_printf(a, "Error: %s", m->content);
        if (m->content == NULL) {
            return message_too_big(e);
        }
        m->content_n = strlen(m->content);
    }
    return calls_answer(k, a, id, NULL, m, e);
}

/* Results first, then what is said: *n messages at m. */
static int read_user(struct calls *k, struct arena *a, const struct json *text,
                     const char *where, struct chat_message *m, size_t *n,
                     struct err *e)
{
    size_t results = 0;
    for (const struct json *c = json_first(text); c != NULL; c = json_next(c)) {
        if (is_type(c, "tool_result")) {
            RETERR(read_result(k, a, c, where, &m[results++], e));
        }
    }
    struct chat_message *said = &m[results];
    said->role = "user";
    RETERR(message_content(a, text, where, read_asked, true, said, e));
    *n = results + (said->content_n > 0 || results == 0 ? 1 : 0);
    return 0;
}

/* Message i: *n messages at m, one or, with results of tools, several. */
static int read_message(struct calls *k, struct arena *a, const struct json *v,
                        size_t i, struct chat_message *m, size_t *n,
                        struct err *e)
{
    static const char *const roles[] = {"user", "assistant", "system", NULL};
    static const char *const keys[] = {"role", "content", NULL};
    const struct json *text = json_get(v, "content");
    char where[48], content[64];
    (void)snprintf(where, sizeof(where), "messages[%zu]", i);
    (void)snprintf(content, sizeof(content), "%s.content", where);
    RETERR(message_role(v, where, roles, &m->role, e));
    RETERR(message_only(v, where, keys, e));
    *n = 1;
    switch (m->role[0]) {
    case 'u':
        return read_user(k, a, text, content, m, n, e);
    case 'a':
        RETERR(message_content(a, text, content, read_said, true, m, e));
        return read_assistant(k, a, text, content, m, e);
    default:
        return message_content(a, text, content, read_block, true, m, e);
    }
}

/* Messages that blocks of results become, beside one a message. */
static size_t count_results(const struct json *v)
{
    size_t n = 0;
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        const struct json *c = json_first(json_get(x, "content"));
        for (; c != NULL; c = json_next(c)) {
            n += is_type(c, "tool_result") ? 1 : 0;
        }
    }
    return n;
}

int anthropic_messages(struct arena *a, const struct json *j,
                       struct chat_message **ret, size_t *ret_n, struct err *e)
{
    const struct json *system = json_get(j, "system");
    const struct json *v = json_get(j, "messages");
    struct chat_message *m = NULL;
    struct calls k = {0};
    size_t n = 0, i = 0;
    size_t results = count_results(v);
    if (results > CHAT_MESSAGES_MAX) {
        return err_set(e, ERR_INVALID, "messages: at most %u results of tools",
                       CHAT_MESSAGES_MAX);
    }
    RETERR(messages_room(a, v, 1 + results, &m, &n, e));
    *ret = m;
    if (system != NULL && json_type(system) != JSON_NULL) {
        m->role = "system";
        RETERR(message_content(a, system, "system", read_system_block, true, m,
                               e));
        m += m->content_n > 0 ? 1 : 0;
    }
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        RETERR(read_message(&k, a, x, i++, m, &n, e));
        m += n;
    }
    *ret_n = (size_t)(m - *ret);
    return *ret_n <= CHAT_MESSAGES_MAX
               ? 0
               : err_set(e, ERR_INVALID,
                         "messages: at most %u, with results "
                         "of tools",
                         CHAT_MESSAGES_MAX);
}
