/* A block holds 64 positions of all heads of one state: a count of the tables
 * that hold it, and one plane a head. Keys lie transposed, [dim][64], so that
 * the scores of 64 positions grow side by side in the lanes, dimension by
 * dimension; values lie as they come, [64][dim padded to 16]. Both products
 * of attention are then the same loop (kernel_attend.h).
 *
 * What a table holds of a state ends at `end`: blocks at or behind it are
 * NULL, and what stands behind it inside the last block is stale (the rest of
 * a longer past, or of the sequence it was forked from). It is never shown:
 * kv_flatten stops at `end`, and kv_reserve clears what it jumps over. A NULL
 * block in front of `end` is a stretch nobody wrote.
 *
 * A shared block is copied by the first table that reserves in it; the copy is
 * of the same contents, so a kv_reserve that fails half way needs to take back
 * only what it put behind `end`.
 *
 * Blocks are cut from slabs of a huge page, which a decoding step walks 6%
 * faster than small ones; where a sequence could not fill one, a slab is a
 * block. Freed blocks wait in their state's list, slabs live as long as the
 * pool. Counts are plain integers because all of a pool happens on one
 * thread. */
#include "engine/cpu/kv.h"

#include <string.h>
#include <sys/mman.h>

#include "base/half.h"
#include "proto/limits.h"

#define ALIGN      64u
#define SLAB_BYTES MIB(2)
#define BLOCK_ELEMS                                          \
    ((uint64_t)1 << 28) /* of one block: no shape comes near \
                         */

struct block {
    union {
        uint32_t refs;
        struct block *next; /* in a free list */
    };
    _Alignas(ALIGN) uint16_t data[];
};

struct slab {
    struct slab *next;
};

struct state {
    struct kv_shape shape;
    size_t plane;       /* elements of a head's plane */
    size_t bytes;       /* of a block, its head included */
    uint32_t blocks;    /* for all positions */
    size_t first;       /* of its blocks in a table */
    struct block *idle; /* free list */
};

struct kv_pool {
    size_t n;
    size_t slots; /* of a table */
    size_t tables;
    uint64_t bytes;     /* cut into blocks */
    uint64_t table_max; /* bytes of a full table's blocks */
    struct slab *slabs;
    char *cut; /* the rest of the newest slab */
    size_t cut_bytes;
    uint16_t *zero; /* a plane of any state */
    struct state states[];
};

struct kv_table {
    struct kv_pool *pool;
    uint32_t *end; /* of each state: positions in use */
    struct block *slot[];
};

static uint32_t blocks_of(uint32_t positions)
{
    return positions / KV_BLOCK + (positions % KV_BLOCK != 0 ? 1 : 0);
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "no memory for keys and values");
}

/* --- pool --- */

static int state_init(struct state *s, const struct kv_shape *shape,
                      struct err *e)
{
    uint64_t wide = kv_pad(shape->dim);
    if (shape->heads == 0 || shape->dim == 0 || shape->positions == 0 ||
        shape->positions > MODEL_CONTEXT_MAX || shape->dim > MODEL_DIM_MAX ||
        shape->heads > MODEL_DIM_MAX ||
        wide * KV_BLOCK * shape->heads > BLOCK_ELEMS) {
        return err_set(e, ERR_INVALID,
                       "a state of %u heads, %u positions, %u dimensions",
                       shape->heads, shape->positions, shape->dim);
    }
    s->shape = *shape;
    s->plane = (shape->key ? shape->dim : (size_t)wide) * KV_BLOCK;
    s->bytes = sizeof(struct block) + s->plane * shape->heads * 2;
    s->bytes = (s->bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    s->blocks = blocks_of(shape->positions);
    return 0;
}

int kv_pool_new(size_t n_states, const struct kv_shape *shapes,
                struct kv_pool **ret, struct err *e)
{
    struct kv_pool *p = calloc(1, sizeof(*p) + n_states * sizeof(p->states[0]));
    if (p == NULL) {
        return no_memory(e);
    }
    int rc = 0;
    size_t plane = 1;
    p->n = n_states;
    for (size_t i = 0; i < n_states; i++) {
        struct state *s = &p->states[i];
        rc = state_init(s, &shapes[i], e);
        if (rc < 0) {
            goto out;
        }
        s->first = p->slots;
        p->slots += s->blocks;
        p->table_max += (uint64_t)s->bytes * s->blocks;
        plane = s->plane > plane ? s->plane : plane;
    }
    p->zero = calloc(plane, sizeof(*p->zero));
    if (p->zero == NULL) {
        rc = no_memory(e);
        goto out;
    }
    *ret = p;
    p = NULL;
out:
    kv_pool_free(p);
    return rc;
}

void kv_pool_free(struct kv_pool *p)
{
    if (p == NULL) {
        return;
    }
    must(p->tables == 0);
    while (p->slabs != NULL) {
        struct slab *next = p->slabs->next;
        free(p->slabs);
        p->slabs = next;
    }
    free(p->zero);
    free(p);
}

uint64_t kv_pool_bytes(const struct kv_pool *p)
{
    return p->bytes;
}

/* --- blocks --- */

/* A new slab with room for a block of n bytes becomes the one that is cut. */
static bool slab_new(struct kv_pool *p, size_t n)
{
    bool huge = p->table_max >= SLAB_BYTES;
    size_t align = huge ? SLAB_BYTES : ALIGN;
    size_t bytes = (n + ALIGN + align - 1) & ~(align - 1);
    struct slab *s = aligned_alloc(align, bytes);
    if (s == NULL) {
        return false;
    }
#if defined(MADV_HUGEPAGE)
    if (huge) {
        (void)madvise(s, bytes, MADV_HUGEPAGE); /* a wish */
    }
#endif
    s->next = p->slabs;
    p->slabs = s;
    p->cut = (char *)s + ALIGN;
    p->cut_bytes = bytes - ALIGN;
    return true;
}

/* With one reference; its contents are whatever they were. NULL: no memory. */
static struct block *block_new(struct kv_pool *p, size_t state)
{
    struct state *s = &p->states[state];
    struct block *b = s->idle;
    if (b != NULL) {
        s->idle = b->next;
    } else {
        if (p->cut_bytes < s->bytes && !slab_new(p, s->bytes)) {
            return NULL;
        }
        b = (struct block *)(void *)p->cut;
        p->cut += s->bytes;
        p->cut_bytes -= s->bytes;
        p->bytes += s->bytes;
    }
    b->refs = 1;
    return b;
}

static void block_drop(struct kv_pool *p, size_t state, struct block *b)
{
    if (b != NULL && --b->refs == 0) {
        b->next = p->states[state].idle;
        p->states[state].idle = b;
    }
}

static size_t data_bytes(const struct state *s)
{
    return s->plane * s->shape.heads * sizeof(uint16_t);
}

/* The block in *slot becomes this table's alone. */
static int block_own(struct kv_pool *p, size_t state, struct block **slot,
                     struct err *e)
{
    struct block *old = *slot;
    if (old != NULL && old->refs == 1) {
        return 0;
    }
    struct block *b = block_new(p, state);
    if (b == NULL) {
        return no_memory(e);
    }
    if (old != NULL) {
        memcpy(b->data, old->data, data_bytes(&p->states[state]));
        old->refs--;
    } else {
        memset(b->data, 0, data_bytes(&p->states[state]));
    }
    *slot = b;
    return 0;
}

/* Zeros at positions [from, to) of a block, counted inside it. */
static void block_clear(const struct state *s, struct block *b, uint32_t from,
                        uint32_t to)
{
    size_t wide = kv_pad(s->shape.dim);
    for (size_t h = 0; h < s->shape.heads; h++) {
        uint16_t *plane = b->data + h * s->plane;
        if (!s->shape.key) {
            memset(plane + from * wide, 0, (to - from) * wide * 2);
            continue;
        }
        for (size_t d = 0; d < s->shape.dim; d++) {
            memset(plane + d * KV_BLOCK + from, 0,
                   (to - from) * sizeof(*plane));
        }
    }
}

/* --- tables --- */

int kv_table_new(struct kv_pool *p, struct kv_table **ret, struct err *e)
{
    struct kv_table *t = calloc(1, sizeof(*t) + p->slots * sizeof(t->slot[0]));
    uint32_t *end = calloc(p->n > 0 ? p->n : 1, sizeof(*end));
    if (t == NULL || end == NULL) {
        free(t);
        free(end);
        return no_memory(e);
    }
    t->pool = p;
    t->end = end;
    p->tables++;
    *ret = t;
    return 0;
}

/* Drop the blocks of a state that begin at or behind `n`. */
static void drop_behind(struct kv_table *t, size_t state, uint32_t n)
{
    const struct state *s = &t->pool->states[state];
    for (uint32_t i = blocks_of(n); i < s->blocks; i++) {
        block_drop(t->pool, state, t->slot[s->first + i]);
        t->slot[s->first + i] = NULL;
    }
}

void kv_table_free(struct kv_table *t)
{
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < t->pool->n; i++) {
        drop_behind(t, i, 0);
    }
    t->pool->tables--;
    free(t->end);
    free(t);
}

int kv_fork(const struct kv_table *t, uint32_t n, struct kv_table **ret,
            struct err *e)
{
    struct kv_table *f = NULL;
    int rc = kv_table_new(t->pool, &f, e);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < t->pool->n; i++) {
        const struct state *s = &t->pool->states[i];
        f->end[i] = n < t->end[i] ? n : t->end[i];
        for (size_t k = s->first; k < s->first + blocks_of(f->end[i]); k++) {
            f->slot[k] = t->slot[k];
            if (f->slot[k] != NULL) {
                f->slot[k]->refs++;
            }
        }
    }
    *ret = f;
    return 0;
}

void kv_truncate(struct kv_table *t, uint32_t n)
{
    for (size_t i = 0; i < t->pool->n; i++) {
        if (n < t->end[i]) {
            t->end[i] = n;
            drop_behind(t, i, n);
        }
    }
}

/* Own the blocks of [first, behind) of a state, and the one that `end` cuts
 * when the stretch begins behind it. */
static int reserve_state(struct kv_table *t, size_t state, uint32_t first,
                         uint32_t behind, struct err *e)
{
    const struct state *s = &t->pool->states[state];
    struct block **slot = t->slot + s->first;
    uint32_t cut = t->end[state];
    if (first > cut && cut % KV_BLOCK != 0 && slot[cut / KV_BLOCK] != NULL) {
        int rc = block_own(t->pool, state, &slot[cut / KV_BLOCK], e);
        if (rc < 0) {
            return rc;
        }
    }
    for (uint32_t i = first / KV_BLOCK; i < blocks_of(behind); i++) {
        int rc = block_own(t->pool, state, &slot[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* `end` moves to `behind`; stale positions in front of `first` become zero. */
static void advance(struct kv_table *t, size_t state, uint32_t first,
                    uint32_t behind)
{
    const struct state *s = &t->pool->states[state];
    uint32_t cut = t->end[state];
    if (first > cut && cut % KV_BLOCK != 0) {
        struct block *b = t->slot[s->first + cut / KV_BLOCK];
        bool same = first / KV_BLOCK == cut / KV_BLOCK;
        if (b != NULL) {
            block_clear(s, b, cut % KV_BLOCK,
                        same ? first % KV_BLOCK : KV_BLOCK);
        }
    }
    t->end[state] = behind > cut ? behind : cut;
}

int kv_reserve(struct kv_table *t, uint32_t first, uint32_t n, struct err *e)
{
    if (n == 0) {
        return 0;
    }
    int rc = 0;
    for (size_t i = 0; i < t->pool->n; i++) {
        uint32_t all = t->pool->states[i].shape.positions;
        if (first >= all || n > all - first) {
            return err_set(e, ERR_CONTEXT, "position %u of %u", first + n - 1,
                           all);
        }
    }
    for (size_t i = 0; i < t->pool->n && rc == 0; i++) {
        rc = reserve_state(t, i, first, first + n, e);
    }
    for (size_t i = 0; i < t->pool->n; i++) {
        if (rc == 0) {
            advance(t, i, first, first + n);
        } else {
            drop_behind(t, i, t->end[i]);
        }
    }
    return rc;
}

void kv_store(struct kv_table *t, size_t state, uint32_t pos, const float *x)
{
    const struct state *s = &t->pool->states[state];
    must(state < t->pool->n && pos < t->end[state]);
    struct block *b = t->slot[s->first + pos / KV_BLOCK];
    must(b != NULL && b->refs == 1);
    size_t at = pos % KV_BLOCK;
    size_t dim = s->shape.dim;
    for (size_t h = 0; h < s->shape.heads; h++, x += dim) {
        uint16_t *plane = b->data + h * s->plane;
        if (!s->shape.key) {
            half_from_floats(x, plane + at * kv_pad(dim), dim);
            continue;
        }
        for (size_t d = 0; d < dim; d++) {
            plane[d * KV_BLOCK + at] = half_from_float(x[d]);
        }
    }
}

/* --- flat arrays --- */

void kv_flatten(const struct kv_table *t, size_t state, uint16_t *out)
{
    must(state < t->pool->n);
    const struct state *s = &t->pool->states[state];
    size_t dim = s->shape.dim;
    size_t all = s->shape.positions;
    memset(out, 0, s->shape.heads * all * dim * sizeof(*out));
    for (uint32_t pos = 0; pos < t->end[state]; pos++) {
        const struct block *b = t->slot[s->first + pos / KV_BLOCK];
        size_t at = pos % KV_BLOCK;
        for (size_t h = 0; b != NULL && h < s->shape.heads; h++) {
            const uint16_t *plane = b->data + h * s->plane;
            uint16_t *o = out + (h * all + pos) * dim;
            if (!s->shape.key) {
                memcpy(o, plane + at * kv_pad(dim), dim * sizeof(*o));
                continue;
            }
            for (size_t d = 0; d < dim; d++) {
                o[d] = plane[d * KV_BLOCK + at];
            }
        }
    }
}

/* Fill a cleared block from positions [first, first + n) of `in`; returns
 * whether anything is not zero. */
static bool block_fill(const struct state *s, uint32_t first, uint32_t n,
                       const uint16_t *in, struct block *b)
{
    size_t dim = s->shape.dim;
    uint32_t any = 0;
    for (size_t h = 0; h < s->shape.heads; h++) {
        uint16_t *plane = b->data + h * s->plane;
        const uint16_t *x = in + (h * s->shape.positions + first) * dim;
        for (size_t at = 0; at < n; at++, x += dim) {
            for (size_t d = 0; d < dim; d++) {
                size_t i =
                    s->shape.key ? d * KV_BLOCK + at : at * kv_pad(dim) + d;
                plane[i] = x[d];
                any |= x[d];
            }
        }
    }
    return any != 0;
}

int kv_unflatten(struct kv_table *t, size_t state, const uint16_t *in,
                 struct err *e)
{
    must(state < t->pool->n);
    struct kv_pool *p = t->pool;
    const struct state *s = &p->states[state];
    struct block **made = calloc(s->blocks, sizeof(struct block *));
    uint32_t end = 0;
    int rc = made != NULL ? 0 : no_memory(e);
    for (uint32_t i = 0; i < s->blocks && rc == 0; i++) {
        uint32_t first = i * KV_BLOCK;
        uint32_t left = s->shape.positions - first;
        uint32_t n = left < KV_BLOCK ? left : KV_BLOCK;
        rc = block_own(p, state, &made[i], e);
        if (rc == 0 && block_fill(s, first, n, in, made[i])) {
            end = first + n;
        } else if (rc == 0) {
            block_drop(p, state, made[i]);
            made[i] = NULL;
        }
    }
    for (uint32_t i = 0; i < s->blocks && made != NULL; i++) {
        struct block **slot = &t->slot[s->first + i];
        block_drop(p, state, rc == 0 ? *slot : made[i]);
        *slot = rc == 0 ? made[i] : *slot;
    }
    if (rc == 0) {
        t->end[state] = end;
    }
    free(made);
    return rc;
}

/* --- whole blocks --- */

size_t kv_block_bytes(const struct kv_table *t, size_t state)
{
    must(state < t->pool->n);
    return data_bytes(&t->pool->states[state]);
}

void kv_block_get(const struct kv_table *t, size_t state, uint32_t b, void *out)
{
    const struct state *s = &t->pool->states[state];
    must(state < t->pool->n && b < s->blocks);
    const struct block *k = t->slot[s->first + b];
    if (k != NULL) {
        memcpy(out, k->data, data_bytes(s));
    } else {
        memset(out, 0, data_bytes(s));
    }
}

void kv_block_put(struct kv_table *t, size_t state, uint32_t b, const void *in)
{
    const struct state *s = &t->pool->states[state];
    must(state < t->pool->n && (b + 1) * KV_BLOCK <= t->end[state]);
    struct block *k = t->slot[s->first + b];
    must(k != NULL && k->refs == 1);
    memcpy(k->data, in, data_bytes(s));
}

/* --- for attend.c --- */

const uint16_t *kv_plane(const struct kv_table *t, size_t state, uint32_t b,
                         uint32_t head)
{
    const struct state *s = &t->pool->states[state];
    const struct block *k = t->slot[s->first + b];
    return k != NULL ? k->data + head * s->plane : t->pool->zero;
}

const struct kv_shape *kv_table_shape(const struct kv_table *t, size_t state)
{
    must(state < t->pool->n);
    return &t->pool->states[state].shape;
}
