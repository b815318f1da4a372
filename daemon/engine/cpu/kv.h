/* kv.h - keys and values of sequences, in blocks of 64 positions.
 *
 * A pool belongs to one open model. It knows the shape of each of the model's
 * states, [1, heads, positions, dim] fp16. Memory that its tables free goes
 * back to the system, except for a few slabs that later tables use (slab.h).
 *
 * A table holds the states of one sequence: for each state a list of blocks.
 * kv_reserve allocates the blocks of the positions that it makes writable.
 * Blocks are reference-counted: a fork shares them, and kv_reserve copies a
 * shared block before it is written.
 *
 * What kv_flatten reads: zero at a position that was never reserved, and zero
 * at one that kv_truncate cut off. A reserved position has no defined value
 * until kv_store writes it.
 *
 * Only kv.c and attend.c know the order of elements inside a block.
 *
 * Thread: the tables of one pool belong to one thread at a time. Two
 * exceptions: several threads may call kv_store at once for different
 * positions, and the workers of attend_run read.
 */
#pragma once

#include "base/err.h"

#define KV_BLOCK 64u /* positions */

struct kv_shape {
    uint32_t heads, dim,
        positions; /* of the state [1, heads, positions, dim] */
    bool key;      /* true: keys (q k^T); false: values */
};

struct kv_pool;
struct kv_table;

/* Whether a pool can hold a state of these dimensions, [1, heads, positions,
 * dim]. dims[0] is not looked at. */
bool kv_dims_fit(const int64_t *dims);
/* Errors: INVALID (a shape with a zero, or blocks too large), NOMEM. */
CHECKED int kv_pool_new(size_t n_states, const struct kv_shape *shapes,
                        struct kv_pool **ret, struct err *e);
void kv_pool_free(
    struct kv_pool *p); /* its tables must be gone; NULL is fine */
uint64_t kv_pool_used(const struct kv_pool *p); /* bytes of blocks in tables */
uint64_t kv_pool_mapped(const struct kv_pool *p); /* bytes from the system */
/* Give memory without blocks back to the system, as slab_trim. Tables that are
 * freed or cut do it with `all` false. */
void kv_pool_trim(struct kv_pool *p, bool all);
/* The bytes that a table can cost at most, for admission: with n tables,
 * kv_pool_mapped is never above n times this, whatever the order of calls.
 * kv_unflatten is an exception: while it runs, it holds its state twice. */
uint64_t kv_table_most(const struct kv_pool *p);
/* The same for tables that are not full: if n tables with c columns in all (of
 * KV_BLOCK positions in every state; a shared one counts in each) never came to
 * more than (n + 1) * kv_table_base + c * kv_column_most, kv_pool_mapped never
 * did. */
uint64_t kv_table_base(const struct kv_pool *p);
uint64_t kv_column_most(const struct kv_pool *p);

CHECKED int kv_table_new(struct kv_pool *p, struct kv_table **ret,
                         struct err *e);
void kv_table_free(struct kv_table *t); /* NULL is fine */
/* A table that shares the first n positions of t. */
CHECKED int kv_fork(const struct kv_table *t, uint32_t n, struct kv_table **ret,
                    struct err *e);
/* Cut off positions n and later, and free the blocks that hold no others. */
void kv_truncate(struct kv_table *t, uint32_t n);

/* Make positions [first, first + n) of all states writable. Errors: NOMEM,
 * CONTEXT (a state has fewer positions). After an error the table reads as
 * before. */
CHECKED int kv_reserve(struct kv_table *t, uint32_t first, uint32_t n,
                       struct err *e);
/* Store one row at a reserved position. x is [heads][dim] fp32; it is rounded
 * to fp16. */
void kv_store(struct kv_table *t, size_t state, uint32_t pos, const float *x);

/* Copy a state to and from a flat array [heads][positions][dim]. unflatten
 * replaces the whole state. It allocates no block for 64 positions that are all
 * zero. After an error (NOMEM) the state is unchanged. */
void kv_flatten(const struct kv_table *t, size_t state, uint16_t *out);
CHECKED int kv_unflatten(struct kv_table *t, size_t state, const uint16_t *in,
                         struct err *e);

/* Copy block `b` of one state, KV_BLOCK positions, as it lies in memory: for
 * files. get gives zeros for a block that does not exist; positions that were
 * cut off may still have their old values. put needs all positions of the
 * block reserved. */
size_t kv_block_bytes(const struct kv_table *t, size_t state);
void kv_block_get(const struct kv_table *t, size_t state, uint32_t b,
                  void *out);
void kv_block_put(struct kv_table *t, size_t state, uint32_t b, const void *in);

/* --- for attend.c --- */

/* The elements of one head in block `b`. Keys are [dim][KV_BLOCK]; values are
 * [KV_BLOCK][kv_pad(dim)] with zeros after dim. A block that does not exist
 * reads as zeros; positions that were cut off may still have their old values.
 * The pointer is valid until the next call that changes a table of the pool. */
const uint16_t *kv_plane(const struct kv_table *t, size_t state, uint32_t b,
                         uint32_t head);
const struct kv_shape *kv_table_shape(const struct kv_table *t, size_t state);

/* Elements from one position's values to the next. */
static inline size_t kv_pad(size_t dim)
{
    return (dim + 15) & ~(size_t)15;
}
