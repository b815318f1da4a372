/* crew.h - the worker threads of a process: kernels and the converter use them.
 *
 * All users share one set of threads, which is made at the first need. So a
 * second model in a process does not bring a second set.
 *
 * crew_run splits `items` into blocks of `grain`. The caller and up to
 * threads - 1 workers take them one by one; crew_run returns when all are done.
 * A result must not depend on which thread takes a block: blocks write disjoint
 * outputs. crew_run never fails: when the system gives no more threads, fewer
 * do the work.
 *
 * After the last block workers spin for 100 microseconds, because the next
 * parallel operation usually comes that soon. After the first ten they yield
 * their core to any thread that waits for one. Then they sleep: an idle crew
 * costs nothing.
 *
 * Thread: any. While another thread is in crew_run, or the caller is inside a
 * block of one, crew_run does all items on the caller's thread.
 */
#pragma once

#include "base/base.h"

#define CREW_MAX 64u /* threads, the caller included */

/* Do the items [begin, end): one block, or all items when the caller works
 * alone. `worker` is below crew_run's `threads`; no two calls that run at the
 * same time in one crew_run have the same. */
typedef void crew_fn(void *ctx, size_t begin, size_t end, unsigned worker);

/* How many threads a setting means: 0 is one for each online core, on a Mac for
 * each performance core. Returns 1 .. CREW_MAX. */
unsigned crew_threads(unsigned asked);

/* Count a user of the workers; the last crew_unref ends them. */
void crew_ref(void);
void crew_unref(void);

/* Have a spinning worker call fn(ctx) while the caller continues: for a system
 * call that should not take the caller's core. False: no worker took it within
 * a few microseconds, and fn is not called. Call crew_errand_wait before the
 * next errand. Thread: the one that calls crew_run. */
typedef void crew_errand_fn(void *ctx);
CHECKED bool crew_errand(crew_errand_fn *fn, void *ctx);
/* Wait until the errand is done; returns at once when there is none. */
void crew_errand_wait(void);

/* grain is at least 1. A worker has the urgency (base/qos.h) of the thread that
 * was the first to need it. */
void crew_run(unsigned threads, size_t items, size_t grain, crew_fn *fn,
              void *ctx);
