/* slab.h - blocks of one size, out of slabs that go back to the system.
 *
 * A slab is memory of its own from the system, cut into blocks. Each taker
 * fills a slab that nobody else takes from, so that its blocks stand together
 * and leave together; a slab that is full, or whose taker has left, belongs to
 * nobody. When its own slab is full, a taker goes on with the fullest one that
 * belongs to nobody, so that the others empty. A slab without blocks is
 * returned, but for SLAB_SPARES of them: a step that takes back what the last
 * one gave up calls nobody.
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
    struct list partial; /* some blocks taken, nobody's */
    struct list spare;   /* none taken */
};

/* Blocks of `block` bytes, of which a taker takes `n` at most; n > 0. */
void slab_init(struct slab_heap *h, size_t block, uint32_t n);
void slab_fini(struct slab_heap *h); /* all blocks must have been given back */

/* What takers of n blocks each cost at most, one with the other and whatever
 * the order in which they take and give: bytes of each. */
uint64_t slab_most(const struct slab_heap *h, uint32_t n);
uint64_t slab_mapped(const struct slab_heap *h); /* bytes now */

/* *own is the taker's slab: NULL at first, then this module's until
 * slab_leave; it must stay where it is. *zero: the block is zero after its
 * slab_block; else it holds anything. NULL: no memory. */
struct slab_block *slab_take(struct slab_heap *h, struct slab **own,
                             bool *zero);
void slab_give(struct slab_heap *h, struct slab_block *b);
void slab_leave(struct slab_heap *h, struct slab **own);
/* Empty slabs that are too many go back. Calls the system: for after many
 * slab_give, not after each. */
void slab_trim(struct slab_heap *h);
