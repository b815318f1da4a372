/* anthropic.h - Anthropic's dialect: /v1/messages (call.h). anthropic_fields.c
 * has what a request may say, anthropic_read.c its conversation, anthropic.c
 * answers and routes, anthropic_models.c the models. */
#pragma once

#include "api/call.h"

extern const struct fields anthropic_fields, anthropic_count_fields;
extern const struct dialect anthropic_chat;
/* {"type": "error", "error": {"type", "message"}} */
api_error_fn anthropic_error;

/* anthropic_models.c: whether an Anthropic client asks; its /v1/models, and
 * /v1/models/NAME. */
bool anthropic_asks(const struct http_req *r);
void anthropic_models(struct http_req *r);
void anthropic_model(struct http_req *r, const char *name);

/* The conversation of a body: "system", then "messages". Allocated in a. */
CHECKED int anthropic_messages(struct arena *a, const struct json *j,
                               struct chat_message **ret, size_t *ret_n,
                               struct err *e);
