/* session.h - timelines that clients name: durable lists of tokens.
 *
 * A session is tokens and a name for them; its warm state is found like any
 * prompt's, by the tokens (sched rule 4, cache.h). So a session costs nothing
 * while nobody uses it, survives whatever happens to engines, and two that
 * share a beginning share its state. Pinned: its saved state goes last.
 *
 * Changes are made here at once and given to the store in their order; `done`
 * comes when they are durable.
 * Thread: the loop thread.
 */
#pragma once

#include "serve/engines/models.h"

struct session {
    struct list link; /* newest first */
    struct store_session row;
    bool busy; /* a generation goes on behind its tokens */
};

struct sessions;

struct sessions *sessions_new(struct server *s);
void sessions_free(struct sessions *ss); /* NULL is fine */
/* What the store knew; those of models that are gone are dropped. */
void sessions_load(struct sessions *ss, const struct store_session *v,
                   size_t n);
/* Of a model that is deleted. */
void sessions_forget(struct sessions *ss, const char *model);

struct session *sessions_find(struct sessions *ss, const char *id); /* NULL */
/* for (x = session_next(ss, NULL); x != NULL; x = session_next(ss, x)) */
struct session *session_next(struct sessions *ss, struct session *x);
size_t sessions_count(const struct sessions *ss);

/* Each of these: done (may be NULL) when it is durable; on failure of the call
 * nothing has changed and done does not come. Errors: BUSY (the store's queue;
 * new: SESSIONS_KEPT_MAX), CONTEXT (longer than the model's), INVALID (a token
 * that the model does not have; n behind the end), CONFLICT (busy). */
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

/* A generation behind x begins: nobody else changes it. Errors: CONFLICT. */
CHECKED int session_begin(struct session *x, struct err *e);
/* It is over; what it drew (may be none) belongs to x now, if x is there. */
void session_end(struct sessions *ss, const char *id, const int32_t *tokens,
                 uint32_t n);
