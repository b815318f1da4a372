/* openai.h - OpenAI's dialect: two kinds of answers, one for completions and
 * one for chat (call.h). openai_fields.c has what a request may say,
 * openai_read.c its prompt, openai_out.c and openai_usage.c its answer,
 * openai.c the routes. */
#pragma once

#include "api/call.h"

extern const struct fields openai_completion_fields, openai_chat_fields;
extern const struct dialect openai_completion, openai_chat;

static inline bool openai_is_chat(const struct call *c)
{
    return c->d == &openai_chat;
}

/* openai_read.c: dialect.read. */
int openai_read_completion(struct call *c, const struct json *j, struct err *e);
int openai_read_chat(struct call *c, const struct json *j, struct err *e);

/* openai_fields.c: field_fn of service_tier. */
field_fn openai_set_tier;

/* openai_usage.c: members of an answer; the last one as text, its object. */
void openai_put_usage(struct json *o, const struct call *c);
void openai_put_timings(struct json *o, const struct call *c);
void openai_write_timings(struct buf *b, const struct call *c);
