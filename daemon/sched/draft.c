/* draft.c - see draft.h.
 *
 * Position p stands for the n-gram that ends before token p. It is indexed when
 * token p is known, so that every candidate has a token to draft. Positions are
 * added in order and removed in the opposite order: the head of a hash is
 * always its latest position, and removing it makes the one before the head.
 */
#include "sched/draft.h"

#include <string.h>

#define CAP_FIRST 256u

void draft_init(struct draft *d, uint32_t ngram_min)
{
    uint32_t n = ngram_min < 1 ? 1 : ngram_min;
    *d = (struct draft){.tries = DRAFT_TRIES};
    d->chains[0].gram = DRAFT_LONG;
    d->chains[1].gram = n > DRAFT_LONG ? DRAFT_LONG : n;
}

void draft_fini(struct draft *d)
{
    for (size_t i = 0; i < countof(d->chains); i++) {
        free(d->chains[i].head);
        free(d->chains[i].prev);
    }
    *d = (struct draft){0};
}

/* Where in the table the n-gram before `end` belongs. */
static uint32_t slot(const struct draft_chain *c, const int32_t *end,
                     uint32_t cap)
{
    uint32_t h = 0;
    for (uint32_t i = 1; i <= c->gram; i++) {
        h = (h ^ (uint32_t)end[-(int32_t)i]) * 0x9e3779b1u;
        h ^= h >> 15;
    }
    return h & (cap - 1);
}

static void insert(struct draft *d, const int32_t *text, uint32_t p)
{
    for (size_t i = 0; i < countof(d->chains); i++) {
        struct draft_chain *c = &d->chains[i];
        if (p >= c->gram) {
            uint32_t *head = &c->head[slot(c, text + p, d->cap)];
            c->prev[p & (d->cap - 1)] = *head;
            *head = p;
        }
    }
    if (p >= d->low + d->cap) {
        d->low = p - d->cap + 1; /* it took that one's place */
    }
    d->ops++;
}

/* Twice the room, with all positions in it. */
static void grow(struct draft *d, const int32_t *text)
{
    uint32_t n = d->n;
    d->cap = d->cap == 0 ? CAP_FIRST : 2 * d->cap;
    for (size_t i = 0; i < countof(d->chains); i++) {
        struct draft_chain *c = &d->chains[i];
        free(c->head);
        free(c->prev);
        c->head = calloc(d->cap, sizeof(*c->head));
        c->prev = calloc(d->cap, sizeof(*c->prev));
        must(c->head != NULL && c->prev != NULL); /* DRAFT_WINDOW bounds it */
    }
    for (uint32_t p = 0; p < n; p++) {
        insert(d, text, p);
    }
}

void draft_extend(struct draft *d, const int32_t *text, uint32_t n,
                  uint32_t most)
{
    for (; d->n < n && most > 0; d->n++, most--) {
        if (d->n >= d->cap && d->cap < DRAFT_WINDOW) {
            grow(d, text);
        }
        insert(d, text, d->n);
    }
}

void draft_truncate(struct draft *d, const int32_t *text, uint32_t n)
{
    if (n < d->low) { /* what is left was forgotten: begin again */
        for (size_t i = 0; i < countof(d->chains); i++) {
            memset(d->chains[i].head, 0, d->cap * sizeof(*d->chains[i].head));
        }
        d->low = n > d->cap ? n - d->cap : 0;
        d->n = d->low;
        return;
    }
    for (; d->n > n; d->n--) {
        uint32_t p = d->n - 1;
        for (size_t i = 0; i < countof(d->chains); i++) {
            struct draft_chain *c = &d->chains[i];
            if (p >= c->gram && p >= d->low) {
                uint32_t *head = &c->head[slot(c, text + p, d->cap)];
                must(*head == p); /* else the text was not the same */
                *head = c->prev[p & (d->cap - 1)];
            }
        }
        d->ops++;
    }
}

/* How far the tokens before position p are those at the end of tail. */
static uint32_t match(const int32_t *text, uint32_t p, const int32_t *tail,
                      uint32_t n_tail)
{
    uint32_t max = p < n_tail ? p : n_tail;
    uint32_t n = 0;
    max = max < DRAFT_MATCH ? max : DRAFT_MATCH;
    while (n < max && text[p - 1 - n] == tail[n_tail - 1 - n]) {
        n++;
    }
    return n;
}

uint32_t draft_find(struct draft *d, const int32_t *text, const int32_t *tail,
                    uint32_t n_tail, uint32_t *ret_at)
{
    uint32_t best = 0;
    for (size_t i = 0; i < countof(d->chains) && best == 0 && d->n > 0; i++) {
        const struct draft_chain *c = &d->chains[i];
        if (n_tail < c->gram) {
            continue;
        }
        uint32_t p = c->head[slot(c, tail + n_tail, d->cap)];
        for (uint32_t k = 0; k < d->tries && p >= d->low && p > 0; k++) {
            uint32_t n = match(text, p, tail, n_tail);
            d->ops += 1 + n;
            if (n >= c->gram && n > best && text[p] >= 0) {
                best = n;
                *ret_at = p;
            }
            if (best == DRAFT_MATCH) {
                break;
            }
            p = c->prev[p & (d->cap - 1)];
        }
    }
    return best;
}

uint32_t draft_copy(const int32_t *text, uint32_t n, uint32_t at, uint32_t max,
                    int32_t *ret)
{
    must(at < n);
    for (uint32_t i = 0; i < max; i++) {
        ret[i] = at + i < n ? text[at + i] : ret[at + i - n];
    }
    return max;
}
