/* session.h - timelines that clients name: durable lists of tokens.
 *
 * A session is a name and a list of tokens. Its warm state is found by the
 * tokens, as for any prompt (sched.h, rule 4; cache.h). So a session costs
 * nothing while it is not used, is not lost with an engine, and shares its
 * state with sessions that have the same beginning. The saved state of a pinned
 * session is removed last. When a session is deleted, warm state that holds it
 * and little else is closed too, unless another session can continue from it.
 *
 * A change takes effect when the store has made it durable. Until then, and
 * when the store fails, the session keeps its old value. The changes of one
 * session are made one after another, in the order of the calls. A turn (what a
 * generation drew) is such a change. Its text is streamed while it is drawn;
 * the event with the finish_reason, which ends the stream, is sent when the
 * turn is durable.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "serve/engines/models.h"

struct session {
    struct list link; /* newest first */
    struct store_session row;
    bool busy;           /* a generation is running for it */
    bool durable;        /* the store has it: it is listed */
    struct list changes; /* the store works on the first; the rest wait */
};

struct sessions;

struct sessions *sessions_new(struct server *s);
void sessions_free(struct sessions *ss); /* NULL is fine */
/* Add the sessions of the store; those of models that are gone are dropped. */
void sessions_load(struct sessions *ss, const struct store_session *v,
                   size_t n);
/* Drop the sessions of a model that was deleted; the store has deleted their
 * rows. */
void sessions_forget(struct sessions *ss, const char *model);

struct session *sessions_find(struct sessions *ss, const char *id); /* NULL */
/* for (x = session_next(ss, NULL); x != NULL; x = session_next(ss, x)) */
struct session *session_next(struct sessions *ss, struct session *x);
size_t sessions_count(const struct sessions *ss);

/* The changes. done (may be NULL) is called when the change is durable, or with
 * an error when it could not be made; then the session has not changed. When
 * the call itself fails, the session has not changed and done is not called.
 * Errors of the call: BUSY (the store's queue is full; session_new: there are
 * SESSIONS_KEPT_MAX), CONTEXT (longer than the model's), INVALID (a token that
 * the model does not have; n past the end), CONFLICT (a generation is running),
 * MODEL_NOT_FOUND. Errors of done: these, NO_SPACE, STORE, NOT_FOUND (it was
 * deleted meanwhile). */
CHECKED int session_new(struct sessions *ss, const struct model *m,
                        const int32_t *tokens, uint32_t n, bool pinned,
                        store_done_fn *done, void *ctx, struct session **ret,
                        struct err *e);
CHECKED int session_append(struct sessions *ss, struct session *x,
                           const int32_t *tokens, uint32_t n,
                           store_done_fn *done, void *ctx, struct err *e);
CHECKED int session_truncate(struct sessions *ss, struct session *x, uint32_t n,
                             store_done_fn *done, void *ctx, struct err *e);
CHECKED int session_pin(struct sessions *ss, struct session *x, bool pinned,
                        store_done_fn *done, void *ctx, struct err *e);
CHECKED int session_delete(struct sessions *ss, struct session *x,
                           store_done_fn *done, void *ctx, struct err *e);

/* A generation that continues x begins: until it ends, no other request changes
 * x's tokens. Errors: CONFLICT (another is running, or a change waits). */
CHECKED int session_begin(struct session *x, struct err *e);
/* The generation has ended and drew these tokens. They are added to the
 * session, which is not busy any more when done is called. 1: the session was
 * deleted meanwhile, and done is not called. */
CHECKED int session_turn(struct sessions *ss, const char *id,
                         const int32_t *tokens, uint32_t n, store_done_fn *done,
                         void *ctx, struct err *e);
/* The generation has ended, and the tokens that it drew are not added. */
void session_end(struct sessions *ss, const char *id);
