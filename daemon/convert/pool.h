/* pool.h - a few threads that share a row of equal pieces of work.
 *
 * pool_run(p, fn, ctx, n) calls fn(ctx, worker, i) once for every i below n,
 * on the calling thread (worker 0) and the pool's, in any order, and returns
 * when all are done. The results must not depend on who did which piece.
 * Thread: pool_run from one thread at a time.
 */
#pragma once

#include "base/base.h"

struct pool;

/* threads: 0 = the number of cores; at most 64. Never fails: a machine that
 * gives no more threads leaves a smaller pool. */
struct pool *pool_new(unsigned threads);
void pool_free(struct pool *p);              /* NULL is fine */
unsigned pool_threads(const struct pool *p); /* the caller included */
void pool_run(struct pool *p, void (*fn)(void *ctx, unsigned worker, size_t i),
              void *ctx, size_t n);
