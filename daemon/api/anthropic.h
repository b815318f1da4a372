/* anthropic.h - Anthropic's dialect: /v1/messages (call.h). anthropic_fields.c
 * has what a request may say, anthropic_read.c its conversation, anthropic.c
 * answers and routes. */
#pragma once

#include "api/call.h"

extern const struct fields anthropic_fields, anthropic_count_fields;
extern const struct dialect anthropic_chat;
/* {"type": "error", "error": {"type", "message"}} */
api_error_fn anthropic_error;

/* The conversation of a body: "system", then "messages". Allocated in a. */
CHECKED int anthropic_messages(struct arena *a, const struct json *j,
                               struct chat_message **ret, size_t *ret_n,
                               struct err *e);
