/* crew.h - the threads of the kernels.
 *
 * One set of worker threads a process, made when first wanted, shared by all
 * models. crew_run splits `items` into blocks of `grain`, which the caller and
 * up to threads - 1 workers take one by one; it returns when all are done.
 * What runs where never matters to a result: kernels write disjoint outputs.
 *
 * Workers spin for some ten microseconds after their last block, because the
 * next parallel operation usually comes that soon, and then sleep.
 * Thread: any. When another thread is in crew_run, the caller does all blocks
 * itself.
 */
#pragma once

#include "base/base.h"

/* Blocks [begin, end); worker is below the number of threads asked for. */
typedef void crew_fn(void *ctx, size_t begin, size_t end, unsigned worker);

/* Online cores, at least 1, at most ENGINE_THREADS_MAX. */
unsigned crew_cores(void);

/* Count a user of the workers; the last crew_unref ends them. */
void crew_ref(void);
void crew_unref(void);

void crew_run(unsigned threads, size_t items, size_t grain, crew_fn *fn,
              void *ctx);
