/* child.h - a child process of ours: `aned ROLE`, frames over a socketpair on
 * its fd 3.
 *
 * The child is started with posix_spawn's rules (uv_spawn, never fork alone):
 * fd 0 is /dev/null, 1 and 2 are our stderr, 3 the socketpair, 4 an optional
 * file; its environment is LANG=C and what a sanitizer or Core ML needs.
 *
 *   SPAWNED --kill, malformed frame, deadline, EOF--> DYING
 *      |                                                |
 *      +---exit seen and pipe at its end---> on_exit, freed
 *
 * on_exit is called exactly once, from the loop, never from inside
 * child_spawn; after it the pointer is dead.
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "proto/frame.h"

struct child;

struct child_exit {
    int64_t status; /* exit status */
    int signal;     /* 0 when it left by itself */
    int code;       /* why we ended it: FRAME, TIMEOUT, CANCELLED; 0 = it did */
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
/* Send one frame, after those that were put. A child that lets FRAME_QUEUE_MAX
 * bytes pile up is killed. */
void child_send(struct child *c, enum frame_type type, uint32_t request,
                const void *payload, size_t n);
/* The same, but it goes with the next child_send or child_flush. */
void child_put(struct child *c, enum frame_type type, uint32_t request,
               const void *payload, size_t n);
void child_flush(struct child *c);
/* SIGKILL; `code` becomes child_exit.code (the first one wins). */
void child_kill(struct child *c, int code);
/* Kill with TIMEOUT when ms pass before the next child_deadline; 0 disarms. */
void child_deadline(struct child *c, uint64_t ms);
/* Forget ctx: no callback any more; the process is killed and reaped. */
void child_drop(struct child *c); /* NULL is fine */
