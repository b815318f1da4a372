/* answers.h - answers that their clients may ask for again, or go on from by
 * their id (OpenAI's `store`).
 *
 * There are ANSWERS_KEPT_MAX of them at most, of ANSWERS_KEPT_BYTES together;
 * the oldest go first. One is there at once, and durable soon after.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "base/buf.h"
#include "base/list.h"

struct server;
struct store_answer;

struct answer {
    struct list link; /* oldest first */
    char id[48];
    int64_t created_ms;
    struct buf body; /* as it was answered, JSON */
    struct buf talk; /* the conversation with this answer: chat_talk.h */
};

struct answers;

struct answers *answers_new(struct server *s);
void answers_free(struct answers *as); /* NULL is fine */
/* Take those of the store, oldest first. */
void answers_load(struct answers *as, const struct store_answer *v, size_t n);
struct answer *answers_find(struct answers *as, const char *id); /* NULL */
/* Keep an answer of at most ANSWER_KEPT_BYTES; the bufs, which are ok, move
 * into it and are empty afterwards. */
void answers_put(struct answers *as, const char *id, int64_t created_ms,
                 struct buf *body, struct buf *talk);
/* Forget it, also in the store. */
void answers_drop(struct answers *as, struct answer *a);
