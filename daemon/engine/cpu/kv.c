/* A block is 64 positions of all heads of one state: a count of the tables that
 * share it, and one plane for each head. Keys are transposed, [dim][64], so
 * that the lanes of a vector sum the scores of neighbouring positions, one
 * dimension after another; values are [64][dim padded to 16]. Both products of
 * attention are then the same loop (kernels/attention/attend_impl.h).
 *
 * Positions of a table in a state end at `end`: blocks at or after it are NULL,
 * and positions after it inside the last block are stale (the rest of a longer
 * timeline, or of the sequence it was forked from). They are never used:
 * kv_flatten stops at `end`, attention ends before it, and kv_reserve clears
 * those that it skips. A NULL block before `end` was never written.
 *
 * The first table that reserves positions in a shared block copies it. The copy
 * has the same contents, so after a failure kv_reserve only frees the blocks
 * after `end`.
 *
 * Blocks of one size come from one heap (slab.h), in which each table is a
 * taker: blocks that it does not share, but for those of its first KV_BLOCK
 * positions, are in its own slabs, which become empty when it is cut or freed
 * (kv_pool_trim). Counts are plain integers because one thread at a time uses a
 * pool. */
#include "engine/cpu/kv.h"

#include <string.h>

#include "base/half.h"
#include "engine/cpu/slab.h"
#include "proto/limits.h"

#define PIECE 64u /* elements that are converted at a time */
#define BLOCK_ELEMS                                          \
    ((uint64_t)1 << 28) /* of one block: no shape comes near \
                         */

struct block {
    struct slab_block in;
    uint32_t refs;
    _Alignas(SLAB_ALIGN) uint16_t data[];
};

struct state {
    struct kv_shape shape;
    size_t plane;    /* elements of a head's plane */
    size_t bytes;    /* of a block, its head included */
    uint32_t blocks; /* for all positions */
    size_t first;    /* of its blocks in a table */
    size_t heap;     /* where its blocks come from */
};

/* Blocks of all states that have them of one size. */
struct heap {
    struct slab_heap slabs;
    size_t bytes;    /* of a block */
    uint32_t blocks; /* of a full table */
    uint32_t states; /* as many blocks has a table of KV_BLOCK positions */
};

struct kv_pool {
    size_t n;
    size_t slots; /* of a table */
    size_t tables;
    uint64_t used; /* bytes of blocks in tables */
    size_t n_heaps;
    struct heap *heaps;
    uint16_t *zero; /* a plane of any state */
    struct state states[];
};

struct kv_table {
    struct kv_pool *pool;
    uint32_t *end;            /* of each state: positions in use */
    struct slab_taker *taker; /* from each heap */
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

bool kv_dims_fit(const int64_t *dims)
{
    return dims[1] > 0 && dims[1] <= (int64_t)MODEL_DIM_MAX && dims[2] > 0 &&
           dims[2] <= (int64_t)MODEL_CONTEXT_MAX && dims[3] > 0 &&
           dims[3] <= (int64_t)MODEL_DIM_MAX &&
           kv_pad((size_t)dims[3]) * KV_BLOCK * (size_t)dims[1] <= BLOCK_ELEMS;
}

static int state_init(struct state *s, const struct kv_shape *shape,
                      struct err *e)
{
    size_t wide = kv_pad(shape->dim);
    const int64_t dims[4] = {1, shape->heads, shape->positions, shape->dim};
    if (!kv_dims_fit(dims)) {
        return err_set(e, ERR_INVALID,
                       "a state of %u heads, %u positions, %u dimensions",
                       shape->heads, shape->positions, shape->dim);
    }
    s->shape = *shape;
    s->plane = (shape->key ? shape->dim : wide) * KV_BLOCK;
    s->bytes = sizeof(struct block) + s->plane * shape->heads * 2;
    s->bytes = (s->bytes + SLAB_ALIGN - 1) & ~(size_t)(SLAB_ALIGN - 1);
    s->blocks = blocks_of(shape->positions);
    return 0;
}

/* The heap of its size, a new one at need. */
static void heap_join(struct kv_pool *p, struct state *s)
{
    size_t i = 0;
    while (i < p->n_heaps && p->heaps[i].bytes != s->bytes) {
        i++;
    }
    p->n_heaps = i < p->n_heaps ? p->n_heaps : i + 1;
    p->heaps[i].bytes = s->bytes;
    p->heaps[i].blocks += s->blocks;
    p->heaps[i].states++;
    s->heap = i;
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
    p->heaps = calloc(n_states > 0 ? n_states : 1, sizeof(*p->heaps));
    if (p->heaps == NULL) {
        rc = no_memory(e);
        goto out;
    }
    p->n = n_states;
    for (size_t i = 0; i < n_states; i++) {
        struct state *s = &p->states[i];
        rc = state_init(s, &shapes[i], e);
        if (rc < 0) {
            goto out;
        }
        s->first = p->slots;
        p->slots += s->blocks;
        heap_join(p, s);
        plane = s->plane > plane ? s->plane : plane;
    }
    for (size_t i = 0; i < p->n_heaps; i++) {
        slab_init(&p->heaps[i].slabs, p->heaps[i].bytes, p->heaps[i].blocks,
                  p->heaps[i].states);
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
    for (size_t i = 0; i < p->n_heaps && p->heaps[i].slabs.block > 0; i++) {
        slab_fini(&p->heaps[i].slabs);
    }
    free(p->heaps);
    free(p->zero);
    free(p);
}

uint64_t kv_pool_used(const struct kv_pool *p)
{
    return p->used;
}

uint64_t kv_pool_mapped(const struct kv_pool *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n_heaps; i++) {
        n += slab_mapped(&p->heaps[i].slabs);
    }
    return n;
}

uint64_t kv_table_most(const struct kv_pool *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n_heaps; i++) {
        n += slab_most(&p->heaps[i].slabs, p->heaps[i].blocks);
    }
    return n;
}

uint64_t kv_table_base(const struct kv_pool *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n_heaps; i++) {
        n += slab_base(&p->heaps[i].slabs);
    }
    return n;
}

uint64_t kv_column_most(const struct kv_pool *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n_heaps; i++) {
        n += p->heaps[i].states * slab_part(&p->heaps[i].slabs);
    }
    return n;
}

/* --- blocks --- */

/* With one reference; *zero: of zeros, else of anything. NULL: no memory. */
static struct block *block_new(struct kv_table *t, size_t state, bool *zero)
{
    struct kv_pool *p = t->pool;
    size_t heap = p->states[state].heap;
    struct slab_block *in =
        slab_take(&p->heaps[heap].slabs, &t->taker[heap], zero);
    if (in == NULL) {
        return NULL;
    }
    struct block *b = container_of(in, struct block, in);
    p->used += p->heaps[heap].bytes;
    b->refs = 1;
    return b;
}

static void block_drop(struct kv_pool *p, size_t state, struct block *b)
{
    if (b != NULL && --b->refs == 0) {
        struct heap *h = &p->heaps[p->states[state].heap];
        slab_give(&h->slabs, &b->in);
        p->used -= h->bytes;
    }
}

void kv_pool_trim(struct kv_pool *p, bool all)
{
    for (size_t i = 0; i < p->n_heaps; i++) {
        slab_trim(&p->heaps[i].slabs, all);
    }
}

static size_t data_bytes(const struct state *s)
{
    return s->plane * s->shape.heads * sizeof(uint16_t);
}

/* The block in *slot becomes this table's alone. */
static int block_own(struct kv_table *t, size_t state, struct block **slot,
                     struct err *e)
{
    const struct state *s = &t->pool->states[state];
    struct block *old = *slot;
    bool zero = false;
    if (old != NULL && old->refs == 1) {
        return 0;
    }
    struct block *b = block_new(t, state, &zero);
    if (b == NULL) {
        return no_memory(e);
    }
    if (old != NULL) {
        memcpy(b->data, old->data, data_bytes(s));
        old->refs--;
    } else if (!zero) {
        memset(b->data, 0, data_bytes(s));
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
    uint32_t *end = calloc(p->n + 1, sizeof(*end));
    struct slab_taker *taker = calloc(p->n_heaps + 1, sizeof(*taker));
    if (t == NULL || end == NULL || taker == NULL) {
        free(t);
        free(end);
        free(taker);
        return no_memory(e);
    }
    t->pool = p;
    t->end = end;
    t->taker = taker;
    p->tables++;
    *ret = t;
    return 0;
}

/* Drop the blocks of a state that begin at or after `n`. */
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
    for (size_t i = 0; i < t->pool->n_heaps; i++) {
        slab_leave(&t->pool->heaps[i].slabs, &t->taker[i]);
    }
    kv_pool_trim(t->pool, false);
    t->pool->tables--;
    free(t->end);
    free(t->taker);
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
    kv_pool_trim(t->pool, false);
}

/* Own the blocks of [first, to) of a state, and the one that `end` cuts
 * when the stretch begins after it. */
static int reserve_state(struct kv_table *t, size_t state, uint32_t first,
                         uint32_t to, struct err *e)
{
    const struct state *s = &t->pool->states[state];
    struct block **slot = t->slot + s->first;
    uint32_t cut = t->end[state];
    if (first > cut && cut % KV_BLOCK != 0 && slot[cut / KV_BLOCK] != NULL) {
        int rc = block_own(t, state, &slot[cut / KV_BLOCK], e);
        if (rc < 0) {
            return rc;
        }
    }
    for (uint32_t i = first / KV_BLOCK; i < blocks_of(to); i++) {
        int rc = block_own(t, state, &slot[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* `end` moves to `to`; stale positions in front of `first` become zero. */
static void advance(struct kv_table *t, size_t state, uint32_t first,
                    uint32_t to)
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
    t->end[state] = to > cut ? to : cut;
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
        for (size_t d = 0; d < dim; d += PIECE) {
            uint16_t piece[PIECE];
            size_t n = dim - d < PIECE ? dim - d : PIECE;
            half_from_floats(x + d, piece, n);
            for (size_t i = 0; i < n; i++) {
                plane[(d + i) * KV_BLOCK + at] = piece[i];
            }
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
        rc = block_own(t, state, &made[i], e);
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
    kv_pool_trim(p, false);
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
