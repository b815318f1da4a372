/* resume.h - event streams that outlive their connection.
 *
 *   resume_new -> (first event) -> ATTACHED <--gone, resume_attach--> DETACHED
 *                                     |  ended: kept for a while, then freed|
 *                                     +---- resume_s without a reader ------+
 *
 * Each event gets a number (SSE's id, from 1). Events are kept, up to
 * RESUME_KEPT_MAX bytes of them. A client that lost its connection requests the
 * events after the last number that it saw. While no client reads, the stream
 * continues until those bytes are full and then pauses, so no event is lost.
 * While a client reads, the oldest half is dropped instead; the other half is
 * more than a connection and its socket ever hold.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "serve/server.h"

struct resume;

struct resume_owner {
    void *ctx;
    void (*on_drain)(void *ctx); /* continue after a write returned false */
    /* No client will read the rest; the resume is freed after this call. Not
     * called after resume_end or resume_drop. */
    void (*on_over)(void *ctx);
};

/* Take over r, which has not been answered. id is copied. Errors: BUSY (there
 * are RESUME_MAX, and none of them can be freed). */
CHECKED int resume_new(struct server *s, const char *id, struct http_req *r,
                       const struct resume_owner *o, struct resume **ret,
                       struct err *e);
/* Before the first event: free x; r belongs to the caller again and has no
 * on_gone. */
void resume_drop(struct resume *x);
/* Write one event, "data: ...\n\n". False: pause until on_drain. */
bool resume_write(struct resume *x, const void *p, size_t n);
/* Call after the last event. */
void resume_end(struct resume *x);

/* Answer r with the events after number `after` of stream `id`: those that are
 * there and those to come. A client that still reads the stream is cut off.
 * Errors (r is not answered): NOT_FOUND (no such stream, or those events are
 * gone), INVALID (`after` is greater than its last event). */
CHECKED int resume_attach(struct server *s, const char *id, uint64_t after,
                          struct http_req *r, struct err *e);
/* End stream `id`. Errors: NOT_FOUND (no such stream). */
CHECKED int resume_cancel(struct server *s, const char *id);

struct resumes *resumes_new(struct server *s);
size_t resumes_running(const struct resumes *t); /* streams not ended */
void resumes_stop(struct resumes *t); /* end all; freed later; NULL is fine */
