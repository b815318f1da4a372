/* sse.h - server-sent events, as they come (HTML standard 9.2.6). */
#pragma once

#include "base/buf.h"

#define SSE_EVENT_MAX ((size_t)8 << 20) /* bytes of one event */

/* One event: its data lines joined by LF, NUL terminated. Non-zero stops. */
typedef int sse_fn(void *user, const char *event, const char *data, size_t n,
                   struct err *e);

struct sse {
    sse_fn *fn;
    void *user;
    struct buf line, data;
    char event[64]; /* "" means "message" */
    bool has_data;
    bool after_cr; /* a LF now belongs to the CR before */
    bool begun;    /* past a BOM */
};

void sse_init(struct sse *s, sse_fn *fn, void *user);
void sse_fini(struct sse *s);
/* Errors: TOO_BIG, and what fn returns. An event without an empty line after it
 * is dropped, as the standard says. */
CHECKED int sse_feed(struct sse *s, const char *p, size_t n, struct err *e);
