/* child.h - a child process `aned ROLE`. It exchanges frames with serve over a
 * socketpair, which is its fd 3.
 *
 * uv_spawn starts the child. Its fd 0 is /dev/null, 1 and 2 are serve's stderr,
 * 3 is the socketpair, 4 an optional file. Its environment is LANG=C and what a
 * sanitizer or Core ML needs.
 *
 *   SPAWNED --kill, malformed frame, deadline, EOF--> DYING
 *      |                                                |
 *      +---exit seen and pipe at its end---> on_exit, freed
 *
 * on_exit is called exactly once, from the loop, never from inside
 * child_spawn; after it the child is freed.
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "proto/frame.h"
#include "proto/json.h"

struct child;

struct child_exit {
    int64_t status; /* exit status */
    int signal;     /* 0 when no signal ended it */
    int code;       /* why serve killed it, say TIMEOUT; 0: it did not */
};

struct child_conf {
    const char *program; /* NULL: this very executable */
    const char *role;    /* argv[1] */
    int fd;              /* becomes fd 4; -1 none; borrowed for the call */
    size_t frame_max;    /* of one payload, both directions */
    void *ctx;
    void (*on_frame)(void *ctx, const struct frame *f);
    void (*on_exit)(void *ctx, const struct child_exit *x);
};

/* conf is copied. Errors: UNAVAILABLE (cannot start). */
CHECKED int child_spawn(uv_loop_t *loop, const struct child_conf *conf,
                        struct child **ret, struct err *e);
int child_pid(const struct child *c);
/* Send one frame, after those of child_put. When FRAME_QUEUE_MAX bytes wait
 * because the child does not read, it is killed. */
void child_send(struct child *c, enum frame_type type, uint32_t request,
                const void *payload, size_t n);
/* The same, but the frame is sent with the next child_send or child_flush. */
void child_put(struct child *c, enum frame_type type, uint32_t request,
               const void *payload, size_t n);
void child_flush(struct child *c);
/* Send j, of at most FRAME_WORKER_MAX bytes, with child_send; if it is longer,
 * the child is killed (TOO_BIG). */
void child_send_json(struct child *c, enum frame_type type, uint32_t request,
                     const struct json *j);
/* SIGKILL; `code` becomes child_exit.code (the first one wins). */
void child_kill(struct child *c, int code);
/* Kill with TIMEOUT when ms pass before the next child_deadline; 0 disarms. */
void child_deadline(struct child *c, uint64_t ms);
/* Kill and reap the process; no callback is called any more. */
void child_drop(struct child *c); /* NULL is fine */
