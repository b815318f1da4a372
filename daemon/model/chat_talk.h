/* chat_talk.h - messages as bytes, to be kept: what an answer goes on from.
 *
 * For each message: the lengths of role, content (UINT32_MAX: none), fields and
 * reasoning, u32 each, then their bytes, each with a NUL behind it.
 *
 * Thread: any.
 */
#pragma once

#include "base/arena.h"
#include "model/chat.h"

void talk_put(struct buf *b, const struct chat_message *m, size_t n);
/* The messages of p[0..n), in a; `before` and `behind` are how many more stand
 * in front of them and after them, zeroed. *ret_n counts those of p. Errors:
 * TOO_BIG (a is full, or they are over CHAT_MESSAGES_MAX together), STORE (no
 * such bytes). */
CHECKED int talk_get(struct arena *a, const char *p, size_t n, size_t before,
                     size_t behind, struct chat_message **ret, size_t *ret_n,
                     struct err *e);
