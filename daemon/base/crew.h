/* crew.h - the threads that share a loop's work: kernels, the converter.
 *
 * One set of worker threads a process, made when first wanted and shared by
 * all users, so that a second model does not bring a second set.
 * crew_run splits `items` into blocks of `grain`, which the caller and up to
 * threads - 1 workers take one by one; it returns when all are done. What runs
 * where must not matter to a result: blocks write disjoint outputs.
 *
 * Workers spin for some ten microseconds after their last block, because the
 * next parallel operation usually comes that soon, and then sleep: an idle
 * crew costs nothing. It never fails: where the system gives no more threads,
 * fewer do the work.
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

/* Have a worker that spins call fn(ctx), and go on meanwhile: for a system call
 * that the caller's core is better spared. False: none took it within some
 * microseconds, nothing happened. One at a time: crew_errand_wait comes before
 * the next. Thread: that of crew_run. */
typedef void crew_errand_fn(void *ctx);
CHECKED bool crew_errand(crew_errand_fn *fn, void *ctx);
void crew_errand_wait(void); /* until it is done; there may be none */

/* grain is at least 1. */
void crew_run(unsigned threads, size_t items, size_t grain, crew_fn *fn,
              void *ctx);
