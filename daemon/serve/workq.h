/* workq.h - a worker thread with a bounded queue.
 *
 * The daemon has two: one for text (tokenise, render), one for files (publish,
 * remove trees). libuv's own pool is not used for either: all of a process
 * shares it.
 *
 * Thread: call all functions on the loop thread. `run` is called on the worker
 * thread, for one piece of work at a time, in order (workq_run: on the loop).
 * `done` is called on the loop, exactly once for each piece that was accepted,
 * never from inside a function of this file.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "base/list.h"

struct work {
    struct list link;
    bool begun; /* the worker has taken it from the queue */
    void (*run)(struct work *w);  /* worker thread */
    void (*done)(struct work *w); /* loop thread; w is the caller's again */
};

struct workq;

struct workq *workq_new(uv_loop_t *loop, size_t max);
/* Queue w (embedded, alive until done). Errors: BUSY when max wait. */
CHECKED int workq_put(struct workq *q, struct work *w);
/* Run w at once on the loop thread: for work that takes less time than to wake
 * the worker. done() is called before the loop waits again. Errors: as
 * workq_put. */
CHECKED int workq_run(struct workq *q, struct work *w);
/* Take w back before the worker begins with it; then done() is not called.
 * False: it runs, or has run. */
bool workq_cancel(struct workq *q, struct work *w);
size_t workq_depth(const struct workq *q); /* accepted, done not yet called */
/* Finish what was accepted, then join and free; then call `closed` on the loop.
 * When q is NULL, closed is called at once. */
void workq_close(struct workq *q, void (*closed)(void *ctx), void *ctx);
