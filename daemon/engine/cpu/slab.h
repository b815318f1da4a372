/* slab.h - blocks of one size, out of slabs that go back to the system.
 *
 * A slab is a mapping of its own, cut into blocks. Each taker (a kv table) has
 * a slab of its own, so that its blocks are together and are freed together. A
 * slab that is full, or whose taker has left, has no owner. When a taker's slab
 * is full, it continues with the fullest slab that has no owner, so that the
 * emptier ones become empty. An empty slab goes back to the system, except for
 * SLAB_SPARES of them: a step that needs the memory that the last step freed
 * makes no system call.
 *
 * Thread: one at a time.
 */
#pragma once

#include "base/list.h"
#include "proto/limits.h"

#define SLAB_ALIGN  64u    /* of a block, and its size is a multiple of it */
#define SLAB_HUGE   MIB(2) /* about a slab, where a taker fills some */
#define SLAB_SPARES 2u     /* empty slabs that stay */
#define SLAB_SPARE  MIB(5) /* bytes of them at most */

struct slab;

/* A block begins with this. */
struct slab_block {
    struct slab *slab;
    struct slab_block *next; /* while it is free */
};

struct slab_heap {
    size_t block;      /* bytes */
    size_t slab_bytes; /* whole pages */
    size_t align;      /* of a slab */
    uint32_t per;      /* blocks of a slab */
    uint32_t slabs;    /* mapped now */
    uint32_t spares;
    struct list partial; /* slabs without owner, some blocks taken */
    struct list spare;   /* slabs without a taken block */
};

/* Blocks of `block` bytes, of which a taker takes `n` at most; n > 0. */
void slab_init(struct slab_heap *h, size_t block, uint32_t n);
void slab_fini(struct slab_heap *h); /* all blocks must have been given back */

/* The bytes that one taker of n blocks costs at most: the mean over all takers,
 * in any order of slab_take and slab_give. */
uint64_t slab_most(const struct slab_heap *h, uint32_t n);
uint64_t slab_mapped(const struct slab_heap *h); /* bytes now */

/* *own is the taker's slab: NULL at first; then only this module changes it,
 * until slab_leave, and it must not move. *zero: the block is zero after its
 * slab_block; else its contents are undefined. NULL: no memory. */
struct slab_block *slab_take(struct slab_heap *h, struct slab **own,
                             bool *zero);
void slab_give(struct slab_heap *h, struct slab_block *b);
void slab_leave(struct slab_heap *h, struct slab **own);
/* Return empty slabs beyond SLAB_SPARES. It makes system calls: call it after
 * many slab_give, not after each. */
void slab_trim(struct slab_heap *h);
