/* workq.h - a worker thread of our own with a bounded queue.
 *
 * Two of them exist: one for text (tokenise, render), one for files (publish,
 * remove trees). libuv's default pool is never used for either: it also serves
 * name lookups and is shared.
 *
 * Thread: all functions are called on the loop thread; `run` is called on the
 * worker, one piece at a time in order (by workq_run: on the loop); `done` on
 * the loop, exactly once for every piece that was accepted, and never from
 * inside of a function of this file.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "base/list.h"

struct work {
    struct list link;
    bool begun; /* the worker has it, or had */
    void (*run)(struct work *w);  /* worker thread */
    void (*done)(struct work *w); /* loop thread; w is the caller's again */
};

struct workq;

struct workq *workq_new(uv_loop_t *loop, size_t max);
/* Queue w (embedded, alive until done). Errors: BUSY when max wait. */
CHECKED int workq_put(struct workq *q, struct work *w);
/* Run w here and now, for what takes less time than waking the worker: done()
 * comes before the loop waits again. Errors: as workq_put. */
CHECKED int workq_run(struct workq *q, struct work *w);
/* Take w back before the worker begins with it; then done() does not come.
 * False: it runs, or has run. */
bool workq_cancel(struct workq *q, struct work *w);
size_t workq_depth(const struct workq *q); /* accepted, done not yet called */
/* Work off what was accepted, then join and free; `closed` on the loop. NULL
 * calls closed at once. */
void workq_close(struct workq *q, void (*closed)(void *ctx), void *ctx);
