/* reply_events.h - the events of one answer as one text, however they were cut:
 * T<text>R<reasoning>C<name>A<arguments> and + for a whole call, - for a broken
 * one. */
#pragma once

#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "model/reply/reply.h"
#include "proto/limits.h"

struct reply_events {
    struct buf b;
    char last;       /* the kind that is open: 'T', 'R', 'A', or 0 */
    bool characters; /* the pieces that go in end with a character */
    size_t given[256]; /* how often each byte came as text or reasoning */
};

static inline void events_close(struct reply_events *v)
{
    if (v->last != '\0') {
        buf_puts(&v->b, ">");
    }
    v->last = '\0';
}

static inline void events_add(struct reply_events *v, char kind, const char *p,
                              size_t n)
{
    must(n > 0);
    must(!v->characters || utf8_valid(p, n));
    for (size_t i = 0; kind != 'A' && i < n; i++) {
        v->given[(unsigned char)p[i]]++;
    }
    if (v->last != kind) {
        events_close(v);
        buf_printf(&v->b, "%c<", kind);
        v->last = kind;
    }
    buf_put(&v->b, p, n);
}

static inline void events_text(void *ctx, const char *p, size_t n)
{
    events_add(ctx, 'T', p, n);
}

static inline void events_reasoning(void *ctx, const char *p, size_t n)
{
    events_add(ctx, 'R', p, n);
}

static inline void events_arguments(void *ctx, const char *p, size_t n)
{
    events_add(ctx, 'A', p, n);
}

static inline void events_call(void *ctx, const char *name, size_t n)
{
    struct reply_events *v = ctx;
    must(n > 0 && n <= REPLY_NAME_MAX && utf8_valid(name, n) &&
         memchr(name, '\0', n) == NULL);
    events_close(v);
    buf_puts(&v->b, "C<");
    buf_put(&v->b, name, n);
    buf_puts(&v->b, ">");
}

static inline void events_call_end(void *ctx, bool whole)
{
    struct reply_events *v = ctx;
    events_close(v);
    buf_puts(&v->b, whole ? "+" : "-");
}

static const struct reply_sink events_sink = {
    .text = events_text,
    .reasoning = events_reasoning,
    .call = events_call,
    .arguments = events_arguments,
    .call_end = events_call_end,
};
