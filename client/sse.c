#include "client/sse.h"

#include <string.h>

void sse_init(struct sse *s, sse_fn *fn, void *user)
{
    *s = (struct sse){.fn = fn, .user = user};
    buf_init(&s->line, SSE_EVENT_MAX);
    buf_init(&s->data, SSE_EVENT_MAX);
}

void sse_fini(struct sse *s)
{
    buf_fini(&s->line);
    buf_fini(&s->data);
}

static int dispatch(struct sse *s, struct err *e)
{
    int rc = 0;
    if (s->has_data) {
        rc = s->fn(s->user, s->event[0] != '\0' ? s->event : "message",
                   s->data.n > 0 ? s->data.p : "", s->data.n, e);
    }
    s->has_data = false;
    s->event[0] = '\0';
    buf_clear(&s->data);
    return rc;
}

static int end_line(struct sse *s, struct err *e)
{
    const char *line = s->line.n > 0 ? s->line.p : "";
    const char *colon = memchr(line, ':', s->line.n);
    size_t name = colon != NULL ? (size_t)(colon - line) : s->line.n;
    size_t at = name + (colon != NULL);
    at += at < s->line.n && line[at] == ' ';
    const char *value = line + at;
    size_t n = s->line.n - at;
    int rc = 0;

    if (s->line.n == 0) {
        rc = dispatch(s, e);
    } else if (name == 4 && memcmp(line, "data", 4) == 0) {
        if (s->has_data) {
            buf_u8(&s->data, '\n');
        }
        buf_put(&s->data, value, n);
        s->has_data = true;
    } else if (name == 5 && memcmp(line, "event", 5) == 0) {
        n = n < sizeof(s->event) ? n : sizeof(s->event) - 1;
        memcpy(s->event, value, n);
        s->event[n] = '\0';
    } /* a comment (name is empty), id, retry: nothing for us */
    buf_clear(&s->line);
    if (rc == 0 && !buf_ok(&s->data)) {
        rc = err_set(e, ERR_TOO_BIG, "an event of more than %zu bytes",
                     SSE_EVENT_MAX);
    }
    return rc;
}

int sse_feed(struct sse *s, const char *p, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        bool again = s->after_cr && c == '\n';
        s->after_cr = c == '\r';
        if (again) {
            continue;
        }
        if (c != '\n' && c != '\r') {
            buf_u8(&s->line, (uint8_t)c);
            if (!s->begun && s->line.n == 3) {
                s->begun = true;
                if (memcmp(s->line.p, "\xef\xbb\xbf", 3) == 0) {
                    buf_clear(&s->line);
                }
            }
            continue;
        }
        s->begun = true;
        if (!buf_ok(&s->line)) {
            return err_set(e, ERR_TOO_BIG, "a line of more than %zu bytes",
                           SSE_EVENT_MAX);
        }
        int rc = end_line(s, e);
        if (rc != 0) {
            return rc;
        }
    }
    return buf_ok(&s->line)
               ? 0
               : err_set(e, ERR_TOO_BIG, "a line of more than %zu bytes",
                         SSE_EVENT_MAX);
}
