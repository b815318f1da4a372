/* llamacpp.h - llama-server's dialect: /completion and /infill (call.h), and
 * what its clients ask beside them. llamacpp_fields.c has what a request may
 * say, llamacpp_read.c its prompt, llamacpp_out.c the answer, llamacpp.c
 * tokens, health and what is not here, llamacpp_props.c what the server is. */
#pragma once

#include "api/call.h"

extern const struct fields llamacpp_completion_fields, llamacpp_infill_fields;
extern const struct dialect llamacpp_completion, llamacpp_infill;

/* llamacpp_read.c: dialect.read. */
int llamacpp_read_completion(struct call *c, const struct json *j,
                             struct err *e);
int llamacpp_read_infill(struct call *c, const struct json *j, struct err *e);

/* llamacpp_out.c: the members of "generation_settings" that say how p draws. */
void llamacpp_put_settings(struct json *o, const struct params *p);
