/* resume.h - event streams that outlive their connection.
 *
 *   resume_new -> (first event) -> ATTACHED <--gone, resume_attach--> DETACHED
 *                                     |  over: kept for a while, then freed |
 *                                     +---- resume_s without a reader ------+
 *
 * Each event gets a number (SSE's id, from 1) and is kept, RESUME_KEPT_MAX
 * bytes of them. A client that lost its connection asks for what follows the
 * last number it saw. While nobody reads, the stream goes on until those bytes
 * are full, so that nothing is lost; then it pauses. With a reader the oldest
 * half is dropped instead: more than ever waits in a connection and its socket.
 * Thread: the loop thread.
 */
#pragma once

#include "serve/server.h"

struct resume;

struct resume_owner {
    void *ctx;
    void (*on_drain)(void *ctx); /* go on after a write that said false */
    /* Nobody will read the rest; the resume is dead after it. Not called any
     * more after resume_end or resume_drop. */
    void (*on_over)(void *ctx);
};

/* Takes r over, which has not been answered. id is copied. Errors: BUSY (there
 * are RESUME_MAX that somebody may still want). */
CHECKED int resume_new(struct server *s, const char *id, struct http_req *r,
                       const struct resume_owner *o, struct resume **ret,
                       struct err *e);
/* Before the first event: r is the caller's again, with no on_gone. */
void resume_drop(struct resume *x);
/* One event, "data: ...\n\n". false: pause until on_drain. */
bool resume_write(struct resume *x, const void *p, size_t n);
/* That was the last one. */
void resume_end(struct resume *x);

/* Answer r with what follows event `after` of stream `id`, now and as it comes;
 * whoever read it before is cut off. Errors (r is not answered): NOT_FOUND (no
 * such stream, or those events are gone), INVALID (after its last event). */
CHECKED int resume_attach(struct server *s, const char *id, uint64_t after,
                          struct http_req *r, struct err *e);
/* End it; no such stream: NOT_FOUND. */
CHECKED int resume_cancel(struct server *s, const char *id);

struct resumes *resumes_new(struct server *s);
size_t resumes_running(const struct resumes *t); /* not over */
void resumes_stop(struct resumes *t); /* all are over; freed later; NULL fine */
