/* crew.h - the threads that share a loop's work: kernels, the converter.
 *
 * One set of worker threads a process, made when first wanted and shared by
 * all users, so that a second model does not bring a second set.
 * crew_run splits `items` into blocks of `grain`, which the caller and up to
 * threads - 1 workers take one by one; it returns when all are done. What runs
 * where must not matter to a result: blocks write disjoint outputs.
 *
 * After their last block workers spin for 100 microseconds, because the next
 * parallel operation usually comes that soon (after the first ten they yield
 * their core to whoever waits for it), and then sleep: an idle crew costs
 * nothing. It never fails: where the system gives no more threads, fewer do
 * the work.
 * Thread: any. When the crew is taken (another thread's crew_run, or one
 * further up this stack), the caller does everything itself.
 */
#pragma once

#include "base/base.h"

#define CREW_MAX 64u /* threads, the caller included */

/* Do the items [begin, end): one block, or all of them at once when nobody
 * helps. worker is below the number of threads asked for; no two calls of one
 * crew_run have the same one at the same time. */
typedef void crew_fn(void *ctx, size_t begin, size_t end, unsigned worker);

/* What a setting means: 0 is one thread for each online core; 1 .. CREW_MAX. */
unsigned crew_threads(unsigned asked);

/* Count a user of the workers; the last crew_unref ends them. */
void crew_ref(void);
void crew_unref(void);

/* Have a spinning worker call fn(ctx) while the caller goes on: for a system
 * call that should not take the caller's core. False: no worker took it within
 * a few microseconds, and fn is not called. One at a time: call
 * crew_errand_wait before the next. Thread: that of crew_run. */
typedef void crew_errand_fn(void *ctx);
CHECKED bool crew_errand(crew_errand_fn *fn, void *ctx);
/* Wait until the errand is done; returns at once when there is none. */
void crew_errand_wait(void);

/* grain is at least 1. */
void crew_run(unsigned threads, size_t items, size_t grain, crew_fn *fn,
              void *ctx);
