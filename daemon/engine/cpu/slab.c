/* A slab is in one of four places, by whether a taker owns it and by how many
 * of its blocks are taken; the shared slab counts as owned, by a taker that
 * never leaves:
 *
 *   owner, some         its taker's own, or heap.shared
 *   no owner, some      heap.partial
 *   no owner, all       in no list: its blocks point to it
 *   no owner, none      heap.spare
 *
 * A taker leaves its slab when it is full. A slab whose last block is given
 * back becomes a spare: a taker owns no slab without a taken block.
 *
 * A new slab is mapped only when `partial` and `spare` are empty. All slabs are
 * then full, or owned by others with at least one block taken. So T takers of n
 * blocks each, and the shared slab, come to at most (T n - T - 1) / per + T + 1
 * slabs, the fraction rounded down. The fraction is less than T times n / per
 * rounded up, which is a whole number; rounded down it is one less at most. So
 * T takers have at most T (n / per + 1) slabs, n / per rounded up, which is what
 * slab_most gives. Takers that have B blocks in all, each any number of them,
 * come to B / per + T + 1 slabs by the same count: slab_base is a slab,
 * slab_part is one's share in it. Slabs that were mapped may stay when blocks
 * are given back, so this bounds what is mapped by the most that it ever came
 * to.
 *
 * Where a taker fills one, a slab is a huge page and the rest of its last
 * block: a decoding step reads huge pages 6% faster than small ones. Else it is
 * a part of what a taker takes, so that a small model has small slabs. */
#include "engine/cpu/slab.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#define PARTS 8u /* slabs of a small taker */

struct slab {
    struct list link;        /* in partial or spare */
    struct slab **own;       /* what points to it as its owner's; NULL */
    struct slab_block *free; /* given back */
    uint32_t live;           /* taken */
    uint32_t cut;            /* blocks after are free and not in `free` */
    uint32_t used;           /* blocks after were never taken: zero */
};

static_assert(sizeof(struct slab) <= SLAB_ALIGN, "in front of the blocks");

static struct slab *slab_of(struct list *l)
{
    return container_of(l, struct slab, link);
}

static size_t round_up(size_t n, size_t align)
{
    return (n + align - 1) / align * align;
}

void slab_init(struct slab_heap *h, size_t block, uint32_t n, uint32_t first)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    must(n > 0 && block >= sizeof(struct slab_block) &&
         block % SLAB_ALIGN == 0);
    bool huge = (uint64_t)block * n >= SLAB_HUGE;
    size_t per =
        huge ? (SLAB_HUGE + block - 1) / block : (n + PARTS - 1) / PARTS;
    *h = (struct slab_heap){.block = block, .align = huge ? SLAB_HUGE : page};
    h->slab_bytes = round_up(SLAB_ALIGN + block * per, page);
    h->per = (uint32_t)((h->slab_bytes - SLAB_ALIGN) / block);
    h->first = first <= h->per ? first : 0;
    list_init(&h->partial);
    list_init(&h->spare);
}

uint64_t slab_most(const struct slab_heap *h, uint32_t n)
{
    uint64_t slabs = n / h->per + (n % h->per != 0 ? 1 : 0);
    return (slabs + 1) * h->slab_bytes;
}

uint64_t slab_base(const struct slab_heap *h)
{
    return h->slab_bytes;
}

uint64_t slab_part(const struct slab_heap *h)
{
    return (h->slab_bytes + h->per - 1) / h->per;
}

uint64_t slab_mapped(const struct slab_heap *h)
{
    return (uint64_t)h->slabs * h->slab_bytes;
}

/* --- slabs --- */

/* `bytes` at a multiple of `align`: more is mapped, and its ends go back. */
static char *map_aligned(size_t bytes, size_t align)
{
    char *p = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    size_t front = (align - (uintptr_t)p % align) % align;
    if (front > 0) {
        (void)munmap(p, front);
    }
    (void)munmap(p + front + bytes, align - front);
    return p + front;
}

static struct slab *slab_map(struct slab_heap *h)
{
    char *p = map_aligned(h->slab_bytes, h->align);
    if (p == NULL) {
        return NULL;
    }
#if defined(MADV_HUGEPAGE)
    if (h->align == SLAB_HUGE) {
        (void)madvise(p, h->slab_bytes, MADV_HUGEPAGE); /* a wish */
    }
#endif
    struct slab *s = (struct slab *)(void *)p;
    list_init(&s->link);
    h->slabs++;
    return s;
}

static struct slab *fullest(struct slab_heap *h)
{
    struct slab *best = NULL;
    LIST_EACH(l, &h->partial) {
        struct slab *s = slab_of(l);
        best = best == NULL || s->live > best->live ? s : best;
    }
    return best;
}

/* A slab with a free block and without an owner. NULL: no memory. */
static struct slab *slab_next(struct slab_heap *h)
{
    struct slab *s = fullest(h);
    if (s == NULL && h->spares > 0) {
        s = slab_of(h->spare.prev); /* the warmest */
        h->spares--;
    }
    if (s == NULL) {
        return slab_map(h);
    }
    list_del(&s->link);
    return s;
}

void slab_trim(struct slab_heap *h, bool all)
{
    uint32_t keep = all ? 0 : h->slabs - h->spares;
    LIST_EACH_SAFE(l, &h->spare) {
        if (h->spares <= keep || (h->spares <= SLAB_SPARES &&
                                  h->spares * h->slab_bytes <= SLAB_SPARE)) {
            break;
        }
        list_del(l);
        if (munmap(l, h->slab_bytes) != 0) { /* it would split a mapping */
            list_push(&h->spare, l);
            break;
        }
        h->spares--;
        h->slabs--;
    }
}

void slab_fini(struct slab_heap *h)
{
    must(h->slabs == h->spares);
    LIST_EACH_SAFE(l, &h->spare) {
        (void)munmap(l, h->slab_bytes);
    }
}

/* --- blocks --- */

static struct slab_block *cut(struct slab_heap *h, struct slab *s, bool *zero)
{
    struct slab_block *b = s->free;
    *zero = false;
    if (b != NULL) {
        s->free = b->next;
    } else {
        b = (struct slab_block *)(void *)((char *)s + SLAB_ALIGN +
                                          s->cut * h->block);
        *zero = s->cut >= s->used;
        s->cut++;
        s->used = s->cut > s->used ? s->cut : s->used;
    }
    b->slab = s;
    b->next = NULL;
    s->live++;
    return b;
}

struct slab_block *slab_take(struct slab_heap *h, struct slab_taker *t,
                             bool *zero)
{
    bool shares = t->shared < h->first;
    struct slab **own = shares ? &h->shared : &t->own;
    if (*own == NULL) {
        struct slab *s = slab_next(h);
        if (s == NULL) {
            return NULL;
        }
        s->own = own;
        *own = s;
    }
    struct slab *s = *own;
    struct slab_block *b = cut(h, s, zero);
    t->shared += shares ? 1 : 0;
    if (s->live == h->per) {
        s->own = NULL;
        *own = NULL;
    }
    return b;
}

void slab_give(struct slab_heap *h, struct slab_block *b)
{
    struct slab *s = b->slab;
    b->next = s->free;
    s->free = b;
    s->live--;
    if (s->live == 0) {
        if (s->own != NULL) {
            *s->own = NULL;
            s->own = NULL;
        }
        list_del(&s->link);
        list_push(&h->spare, &s->link);
        h->spares++;
        s->free = NULL;
        s->cut = 0;
    } else if (s->live + 1 == h->per) { /* it was full, so without owner */
        list_push(&h->partial, &s->link);
    }
}

void slab_leave(struct slab_heap *h, struct slab_taker *t)
{
    struct slab *s = t->own;
    if (s != NULL) {
        s->own = NULL;
        t->own = NULL;
        list_push(&h->partial, &s->link);
    }
}
