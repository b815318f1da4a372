/* messages.h - the messages of a conversation, read from any dialect's JSON.
 *
 * Thread: any; they use only their arguments.
 */
#pragma once

#include "base/arena.h"
#include "model/chat.h"
#include "proto/json.h"

/* The text of one part of a message's content. *ret NULL: it has none, and is
 * left out. `where` is "messages[3].content", for the error. */
typedef int message_part_fn(const struct json *part, const char *where,
                            const char **ret, struct err *e);

/* Fill m's content, allocated in a, from v: a text, or an array of parts. Their
 * texts are joined, with a line's end between two of them when `lines` and the
 * first has none. Errors: INVALID, TOO_BIG, the part's. */
CHECKED int message_content(struct arena *a, const struct json *v,
                            const char *where, message_part_fn *part,
                            bool lines, struct chat_message *m, struct err *e);

/* Room in a for the entries of "messages" and `more`; *ret_n is how many
 * entries there are. Errors: INVALID (no array, empty, too many), TOO_BIG. */
CHECKED int messages_room(struct arena *a, const struct json *v, size_t more,
                          struct chat_message **ret, size_t *ret_n,
                          struct err *e);
/* The role of message v is one of `roles` (NULL at the end). Errors: INVALID,
 * UNSUPPORTED, with `where` "messages[3]". */
CHECKED int message_role(const struct json *v, const char *where,
                         const char *const *roles, const char **ret,
                         struct err *e);
/* Members of message v beside these (NULL at the end) are null or []. Errors:
 * UNSUPPORTED. */
CHECKED int message_only(const struct json *v, const char *where,
                         const char *const *keys, struct err *e);
/* Who speaks, beside the role, for m: a text, or null, absent or empty. The
 * template gets it with what m has. Errors: INVALID, TOO_BIG. */
CHECKED int message_name(struct arena *a, const struct json *v,
                         const char *where, struct chat_message *m,
                         struct err *e);
/* What the assistant thought, for m: a text, or null or absent. Errors:
 * INVALID, TOO_BIG. */
CHECKED int message_reasoning(struct arena *a, const struct json *v,
                              const char *where, struct chat_message *m,
                              struct err *e);
int message_too_big(struct err *e);
