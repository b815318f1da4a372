/* ollama.h - Ollama's dialect: /api/chat and /api/generate (call.h), and what
 * its clients ask about models. ollama_fields.c has what a request may say,
 * ollama_read.c its prompt, ollama_out.c the answer, ollama_models.c the other
 * routes. */
#pragma once

#include "api/call.h"

extern const struct fields ollama_chat_fields, ollama_generate_fields;
extern const struct field ollama_options[]; /* members of "options" */
extern const struct dialect ollama_chat, ollama_generate;
/* {"error": "text"} */
api_error_fn ollama_error;
/* Append the time as Ollama writes it, "2026-11-25T10:00:00.123Z". */
void ollama_put_time(struct buf *b, int64_t unix_ms);

/* ollama_read.c: dialect.read. */
int ollama_read_chat(struct call *c, const struct json *j, struct err *e);
int ollama_read_generate(struct call *c, const struct json *j, struct err *e);
