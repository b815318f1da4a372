/* anthropic_read.c - the conversation of a request in Anthropic's dialect.
 *
 * Blocks of text are lines of one message. Thinking of earlier turns is
 * dropped, as Anthropic's own service does. What a block says about caching is
 * a hint: prefixes are kept without it. */
#include <string.h>

#include "api/anthropic.h"
#include "api/messages.h"

/* Claude Code puts a line that varies with every question at the head of its
 * system prompt, which nobody but the service's own accounts needs; kept, no
 * request would share a beginning with another (facts/clients.md). */
#define BILLING "x-anthropic-billing-header:"

/* message_part_fn */
static int read_block(const struct json *v, const char *where, const char **ret,
                      struct err *e)
{
    static const char *const keys[] = {"type", "text", "cache_control", NULL};
    const char *type = json_str(json_get(v, "type"));
    if (type == NULL) {
        return err_set(e, ERR_INVALID, "%s: a block needs a type", where);
    }
    if (strcmp(type, "thinking") == 0 ||
        strcmp(type, "redacted_thinking") == 0) {
        *ret = NULL;
        return 0;
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

static int read_message(struct arena *a, const struct json *v, size_t i,
                        struct chat_message *m, struct err *e)
{
    static const char *const roles[] = {"user", "assistant", "system", NULL};
    static const char *const keys[] = {"role", "content", NULL};
    char where[48], content[64];
    (void)snprintf(where, sizeof(where), "messages[%zu]", i);
    (void)snprintf(content, sizeof(content), "%s.content", where);
    RETERR(message_role(v, where, roles, &m->role, e));
    RETERR(message_only(v, where, keys, e));
    return message_content(a, json_get(v, "content"), content, read_block, true,
                           m, e);
}

int anthropic_messages(struct arena *a, const struct json *j,
                       struct chat_message **ret, size_t *ret_n, struct err *e)
{
    const struct json *system = json_get(j, "system");
    const struct json *v = json_get(j, "messages");
    struct chat_message *m = NULL;
    size_t n = 0, i = 0;
    RETERR(messages_room(a, v, 1, &m, &n, e));
    *ret = m;
    if (system != NULL && json_type(system) != JSON_NULL) {
        m->role = "system";
        RETERR(message_content(a, system, "system", read_system_block, true, m,
                               e));
        m += m->content_n > 0 ? 1 : 0;
    }
    *ret_n = n + (size_t)(m - *ret);
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        RETERR(read_message(a, x, i, &m[i], e));
        i++;
    }
    return 0;
}
