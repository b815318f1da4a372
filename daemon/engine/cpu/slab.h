/* slab.h - blocks of one size, out of slabs that go back to the system.
 *
 * A slab is a mapping of its own, cut into blocks. Each taker (a kv table) has
 * a slab of its own, so that its blocks are together and are freed together;
 * but its first blocks are in a slab that all takers share, because most
 * conversations are short, and to fill 2 MiB with zeros takes a millisecond and
 * more. A slab that is full, or whose taker has left, has no owner. When a
 * taker's slab is full, it continues with the fullest slab that has no owner,
 * so that the emptier ones become empty. An empty slab goes back to the system
 * when slab_trim says so: sequences that end make room for those that begin,
 * and memory from the system has to be cleared first.
 *
 * Thread: one at a time.
 */
#pragma once

#include "base/list.h"
#include "proto/limits.h"

#define SLAB_ALIGN  64u    /* of a block, and its size is a multiple of it */
#define SLAB_HUGE   MIB(2) /* about a slab, where a taker fills some */
#define SLAB_SPARES 2u     /* empty slabs that stay in any case, */
#define SLAB_SPARE  MIB(5) /* up to so many bytes */

struct slab;

/* A block begins with this. */
struct slab_block {
    struct slab *slab;
    struct slab_block *next; /* while it is free */
};

struct slab_taker { /* zero at first; it must not move */
    struct slab *own;
    uint32_t shared; /* blocks it took from the shared slab, ever */
};

struct slab_heap {
    size_t block;      /* bytes */
    size_t slab_bytes; /* whole pages */
    size_t align;      /* of a slab */
    uint32_t per;      /* blocks of a slab */
    uint32_t first;    /* blocks of a taker that are in the shared slab */
    struct slab *shared;
    uint32_t slabs;    /* mapped now */
    uint32_t spares;
    struct list partial; /* slabs without owner, some blocks taken */
    struct list spare;   /* slabs without a taken block */
};

/* Blocks of `block` bytes, of which a taker takes `n` at most; n > 0. The first
 * `first` of them are in the shared slab, if a slab has room for so many. */
void slab_init(struct slab_heap *h, size_t block, uint32_t n, uint32_t first);
void slab_fini(struct slab_heap *h); /* all blocks must have been given back */

/* The bytes that one taker of n blocks costs at most: the mean over all takers,
 * in any order of slab_take and slab_give. */
uint64_t slab_most(const struct slab_heap *h, uint32_t n);
/* The same by what is taken: while n takers have b blocks in all, one more slab
 * is mapped only up to (n + 1) * slab_base + b * slab_part. */
uint64_t slab_base(const struct slab_heap *h);
uint64_t slab_part(const struct slab_heap *h);
uint64_t slab_mapped(const struct slab_heap *h); /* bytes now */

/* *zero: the block is zero after its slab_block; else its contents are
 * undefined. NULL: no memory. */
struct slab_block *slab_take(struct slab_heap *h, struct slab_taker *t,
                             bool *zero);
void slab_give(struct slab_heap *h, struct slab_block *b);
/* The taker takes no more. */
void slab_leave(struct slab_heap *h, struct slab_taker *t);
/* Return empty slabs: those that outnumber the others, or all; but SLAB_SPARES
 * stay. It makes system calls: call it after many slab_give, not after each. */
void slab_trim(struct slab_heap *h, bool all);
