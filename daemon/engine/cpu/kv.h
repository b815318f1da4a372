/* kv.h - keys and values of sequences, in blocks of 64 positions.
 *
 * A pool belongs to one open model: it knows the shape of each of its states
 * ([1, heads, S, dim] fp16), and gives the system back what its tables gave
 * up, but for a little that the next one finds (slab.h). A table is one
 * sequence: for each state the blocks of its positions, allocated when first
 * written. Blocks are counted references: a fork shares them, and a block
 * that is shared is copied before it is written. Positions never written read
 * as zero, and so do those that were cut off, until they are reserved again;
 * a reserved position holds nothing certain until it is stored.
 *
 * The order of elements inside a block is private to kv.c and attend.c.
 * Thread: tables of one pool from one thread at a time; attend_run's workers
 * only read. Different rows may be stored by different threads.
 */
#pragma once

#include "base/err.h"

#define KV_BLOCK 64u /* positions */

struct kv_shape {
    uint32_t heads, dim,
        positions; /* of the state [1, heads, positions, dim] */
    bool key;      /* read as keys (q k^T); else as values */
};

struct kv_pool;
struct kv_table;

/* Can blocks hold it? Of a type's dimensions, before they are cut to 32 bits:
 * [1, heads, positions, dim]. */
bool kv_dims_fit(const int64_t *dims);
/* Errors: INVALID (a shape with a zero, or blocks too large), NOMEM. */
CHECKED int kv_pool_new(size_t n_states, const struct kv_shape *shapes,
                        struct kv_pool **ret, struct err *e);
void kv_pool_free(
    struct kv_pool *p); /* its tables must be gone; NULL is fine */
uint64_t kv_pool_used(const struct kv_pool *p); /* bytes of blocks in tables */
uint64_t kv_pool_mapped(const struct kv_pool *p); /* bytes from the system */
/* Bytes that n tables cost at most, divided by n, whatever was done to them:
 * n times this is never below kv_pool_mapped. A kv_unflatten takes once more
 * what its state holds while it runs. */
uint64_t kv_table_most(const struct kv_pool *p);

CHECKED int kv_table_new(struct kv_pool *p, struct kv_table **ret,
                         struct err *e);
void kv_table_free(struct kv_table *t); /* NULL is fine */
/* A table that shares the first n positions of t. */
CHECKED int kv_fork(const struct kv_table *t, uint32_t n, struct kv_table **ret,
                    struct err *e);
/* Give back blocks that hold only positions >= n. */
void kv_truncate(struct kv_table *t, uint32_t n);

/* Make positions [first, first + n) of all states writable. Errors: NOMEM,
 * CONTEXT (a state has fewer positions); then nothing readable has changed. */
CHECKED int kv_reserve(struct kv_table *t, uint32_t first, uint32_t n,
                       struct err *e);
/* Store one row at a reserved position: x is [heads][dim] fp32, rounded to
 * fp16. */
void kv_store(struct kv_table *t, size_t state, uint32_t pos, const float *x);

/* The state as a flat array [heads][positions][dim], both ways. unflatten
 * allocates what it needs and drops blocks that are zero throughout; on
 * failure (NOMEM) nothing has changed. */
void kv_flatten(const struct kv_table *t, size_t state, uint16_t *out);
CHECKED int kv_unflatten(struct kv_table *t, size_t state, const uint16_t *in,
                         struct err *e);

/* A block as it lies in memory, for a file: KV_BLOCK positions of one state.
 * What nobody wrote is zero. put needs the positions reserved. */
size_t kv_block_bytes(const struct kv_table *t, size_t state);
void kv_block_get(const struct kv_table *t, size_t state, uint32_t b,
                  void *out);
void kv_block_put(struct kv_table *t, size_t state, uint32_t b, const void *in);

/* --- for attend.c --- */

/* The plane of a head in block `b`: of keys [dim][KV_BLOCK], of values
 * [KV_BLOCK][kv_pad(dim)], zeros after dim. Of zeros where nothing was
 * written. Stands until the next call that changes a table of the pool. */
const uint16_t *kv_plane(const struct kv_table *t, size_t state, uint32_t b,
                         uint32_t head);
const struct kv_shape *kv_table_shape(const struct kv_table *t, size_t state);

static inline size_t kv_pad(size_t dim)
{
    return (dim + 15) & ~(size_t)15;
}
