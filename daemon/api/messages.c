/* messages.c - see messages.h. */
#include "api/messages.h"

#include <string.h>

#include "proto/limits.h"

int message_too_big(struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "the prompt is over the limit");
}

static int put_parts(struct buf *b, const struct json *v, const char *where,
                     message_part_fn *part, bool lines, struct err *e)
{
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        const char *text = NULL;
        RETERR(part(c, where, &text, e));
        if (text == NULL) {
            continue;
        }
        if (lines && b->n > 0 && b->p[b->n - 1] != '\n') {
            buf_puts(b, "\n");
        }
        buf_puts(b, text);
    }
    return 0;
}

int message_content(struct arena *a, const struct json *v, const char *where,
                    message_part_fn *part, bool lines, struct chat_message *m,
                    struct err *e)
{
    struct buf b;
    const char *s = json_str(v);
    int rc = 0;
    if (s == NULL && (v == NULL || json_type(v) != JSON_ARRAY)) {
        return err_set(e, ERR_INVALID,
                       "%s: must be a string or an array of text parts", where);
    }
    buf_init(&b, TEXT_BYTES_MAX);
    if (s != NULL) {
        buf_puts(&b, s);
    } else {
        rc = put_parts(&b, v, where, part, lines, e);
    }
    if (rc == 0) {
        m->content_n = b.n;
        m->content = arena_strn(a, b.p != NULL ? b.p : "", b.n);
        rc = buf_ok(&b) && m->content != NULL ? 0 : message_too_big(e);
    }
    buf_fini(&b);
    return rc;
}

int messages_room(struct arena *a, const struct json *v, size_t more,
                  struct chat_message **ret, size_t *ret_n, struct err *e)
{
    size_t n = json_count(v);
    if (v == NULL || json_type(v) != JSON_ARRAY || n == 0) {
        return err_set(e, ERR_INVALID,
                       "messages: must be an array with a message");
    }
    if (n > CHAT_MESSAGES_MAX) {
        return err_set(e, ERR_INVALID, "messages: at most %u",
                       CHAT_MESSAGES_MAX);
    }
    *ret_n = n;
    *ret = arena_array(a, n + more, sizeof(**ret));
    return *ret != NULL ? 0 : message_too_big(e);
}

int message_role(const struct json *v, const char *where,
                 const char *const *roles, const char **ret, struct err *e)
{
    char list[128] = "";
    size_t n = 0;
    const char *role = json_str(json_get(v, "role"));
    if (json_type(v) != JSON_OBJECT || role == NULL) {
        return err_set(e, ERR_INVALID, "%s.role: must be a string", where);
    }
    for (size_t k = 0; roles[k] != NULL; k++) {
        if (strcmp(role, roles[k]) == 0) {
            *ret = roles[k];
            return 0;
        }
        int len = snprintf(list + n, sizeof(list) - n, "%s%s",
                           k > 0 ? ", " : "", roles[k]);
        must(len > 0 && n + (size_t)len < sizeof(list)); /* ours and few */
        n += (size_t)len;
    }
    return err_set(e, ERR_UNSUPPORTED, "%s.role: '%.32s' is not one of %s",
                   where, role, list);
}

int message_only(const struct json *v, const char *where,
                 const char *const *keys, struct err *e)
{
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        size_t k = 0;
        while (keys[k] != NULL && strcmp(keys[k], json_key(c)) != 0) {
            k++;
        }
        bool none = json_type(c) == JSON_NULL ||
                    (json_type(c) == JSON_ARRAY && json_first(c) == NULL);
        if (keys[k] == NULL && !none) {
            return err_set(e, ERR_UNSUPPORTED, "%s.%.32s: no such field here",
                           where, json_key(c));
        }
    }
    return 0;
}

int message_name(struct arena *a, const struct json *v, const char *where,
                 struct chat_message *m, struct err *e)
{
    const char *name = NULL;
    int rc = json_want_str(v, "name", false, &name, e);
    if (rc != 0 || name == NULL || name[0] == '\0') {
        return rc == 0 ? 0 : err_prefix(e, rc, "%s", where);
    }
    struct buf b;
    buf_init(&b, TEXT_BYTES_MAX);
    buf_puts(&b, "{\"name\":\"");
    json_put_text(&b, name, strlen(name));
    buf_puts(&b, "\"");
    if (m->fields.n > 0) { /* an object that is not empty */
        buf_puts(&b, ",");
        buf_put(&b, m->fields.p + 1, m->fields.n - 1);
    } else {
        buf_puts(&b, "}");
    }
    m->fields = (struct span){buf_ok(&b) ? arena_strn(a, b.p, b.n) : NULL, b.n};
    buf_fini(&b);
    return m->fields.p != NULL ? 0 : message_too_big(e);
}

int message_reasoning(struct arena *a, const struct json *v, const char *where,
                      struct chat_message *m, struct err *e)
{
    const char *s = json_str(v);
    if (v == NULL || json_type(v) == JSON_NULL || (s != NULL && s[0] == '\0')) {
        return 0;
    }
    if (s == NULL) {
        return err_set(e, ERR_INVALID, "%s.%.32s: must be a string", where,
                       json_key(v));
    }
    m->reasoning_n = strlen(s);
    m->reasoning = arena_strn(a, s, m->reasoning_n);
    return m->reasoning != NULL ? 0 : message_too_big(e);
}
