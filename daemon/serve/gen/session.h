/* session.h - timelines that clients name: durable lists of tokens.
 *
 * A session is tokens and a name for them; its warm state is found like any
 * prompt's, by the tokens (sched rule 4, cache.h). So a session costs nothing
 * while nobody uses it, survives whatever happens to engines, and two that
 * share a beginning share its state. Pinned: its saved state goes last. With a
 * session goes the warm state that holds it and little else, if no other
 * session would go on from it.
 *
 * A change is made when the store has it: until then, and when the store says
 * no, the session is as it was. The changes of one session wait for each other,
 * in the order they came. A turn (what a generation drew) is one of them; its
 * text streams while it is drawn, and what ends the stream, the event with the
 * finish_reason, follows when the turn is durable.
 * Thread: the loop thread.
 */
#pragma once

#include "serve/engines/models.h"

struct session {
    struct list link; /* newest first */
    struct store_session row;
    bool busy;           /* a generation goes on after its tokens */
    bool durable;        /* the store has it: it is listed */
    struct list changes; /* the first is with the store, the others wait */
};

struct sessions;

struct sessions *sessions_new(struct server *s);
void sessions_free(struct sessions *ss); /* NULL is fine */
/* What the store knew; those of models that are gone are dropped. */
void sessions_load(struct sessions *ss, const struct store_session *v,
                   size_t n);
/* Of a model that was deleted, and its rows with it. */
void sessions_forget(struct sessions *ss, const char *model);

struct session *sessions_find(struct sessions *ss, const char *id); /* NULL */
/* for (x = session_next(ss, NULL); x != NULL; x = session_next(ss, x)) */
struct session *session_next(struct sessions *ss, struct session *x);
size_t sessions_count(const struct sessions *ss);

/* Each of these: done (may be NULL) when it is durable, or when it could not be
 * made: then nothing has changed, as on failure of the call, after which done
 * does not come. Errors: BUSY (the store's queue; new: SESSIONS_KEPT_MAX),
 * CONTEXT (longer than the model's), INVALID (a token that the model does not
 * have; n past the end), CONFLICT (a generation goes on), MODEL_NOT_FOUND.
 * done's: these, NO_SPACE, STORE, NOT_FOUND (deleted meanwhile). */
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

/* A generation after x begins: nobody else changes its tokens. Errors: CONFLICT
 * (another goes on, or a change waits). */
CHECKED int session_begin(struct session *x, struct err *e);
/* It is over, and drew these: they are the session's when done says so, and it
 * is not busy any more. 1: it was deleted meanwhile, done does not come. */
CHECKED int session_turn(struct sessions *ss, const char *id,
                         const int32_t *tokens, uint32_t n, store_done_fn *done,
                         void *ctx, struct err *e);
/* It is over, and what it drew does not count. */
void session_end(struct sessions *ss, const char *id);
