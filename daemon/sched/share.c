/* share.c - see share.h. */
#include "sched/share.h"

#include <string.h>

#include "base/num.h"

#define BORDER (-1) /* no token: nothing matches it (draft.h) */

static void empty(const struct share *s, struct share_half *h)
{
    draft_fini(&h->index);
    draft_init(&h->index, s->ngram_min);
    h->n = 0;
}

static void peer_forget(struct share_peer *p)
{
    for (size_t i = 0; i < countof(p->half); i++) {
        draft_fini(&p->half[i].index);
        free(p->half[i].text);
    }
    *p = (struct share_peer){0};
}

void share_init(struct share *s, uint32_t tokens, uint32_t ngram_min)
{
    *s = (struct share){.ngram_min = ngram_min};
    s->room = (uint32_t)num_min(tokens, DRAFT_SHARED_MAX) / 2;
    if (s->room <= DRAFT_LONG) { /* not even an n-gram and what follows it */
        s->room = 0;
    }
}

void share_fini(struct share *s)
{
    share_forget(s);
    *s = (struct share){0};
}

void share_forget(struct share *s)
{
    for (size_t i = 0; i < countof(s->peers); i++) {
        peer_forget(&s->peers[i]);
    }
}

static struct share_peer *find_peer(struct share *s, uint64_t id)
{
    for (size_t i = 0; i < countof(s->peers); i++) {
        if (id != 0 && s->peers[i].id == id) {
            return &s->peers[i];
        }
    }
    return NULL;
}

/* Rule 2. A free place was never used. */
static struct share_peer *new_peer(struct share *s, uint64_t id)
{
    struct share_peer *p = &s->peers[0];
    for (size_t i = 1; i < countof(s->peers); i++) {
        p = s->peers[i].used < p->used ? &s->peers[i] : p;
    }
    peer_forget(p);
    p->id = id;
    for (size_t i = 0; i < countof(p->half); i++) {
        p->half[i].text = malloc(s->room * sizeof(*p->half[i].text));
        must(p->half[i].text != NULL); /* DRAFT_SHARED_MAX bounds it */
        empty(s, &p->half[i]);
    }
    return p;
}

void share_put(struct share *s, uint64_t peer, const int32_t *text,
               uint32_t from, uint32_t n)
{
    if (s->room == 0 || peer == 0 || from >= n) {
        return;
    }
    struct share_peer *p = find_peer(s, peer);
    if (p == NULL) {
        p = new_peer(s, peer);
    }
    p->used = ++s->clock;
    from -= (uint32_t)num_min(from, DRAFT_LONG);
    if (n - from >= s->room) {
        from = n - s->room + 1;
    }
    struct share_half *h = &p->half[p->now];
    if (h->n + 1 + (n - from) > s->room) {
        p->now ^= 1;
        h = &p->half[p->now];
        empty(s, h);
    }
    h->text[h->n++] = BORDER;
    memcpy(h->text + h->n, text + from, (n - from) * sizeof(*text));
    h->n += n - from;
}

uint32_t share_index(struct share *s, uint32_t most)
{
    uint32_t did = 0;
    for (size_t i = 0; i < 2 * countof(s->peers) && did < most; i++) {
        struct share_half *h = &s->peers[i / 2].half[i % 2];
        uint32_t was = h->index.n;
        draft_extend(&h->index, h->text, h->n, most - did);
        did += h->index.n - was;
    }
    return did;
}

uint32_t share_find(struct share *s, uint64_t peer, const int32_t *tail,
                    uint32_t n_tail, uint32_t max, int32_t *ret,
                    uint32_t *ret_match)
{
    struct share_peer *p = find_peer(s, peer);
    const struct share_half *best = NULL;
    uint32_t at = 0;
    uint32_t n = 0;
    *ret_match = 0;
    if (p == NULL) {
        return 0;
    }
    p->used = ++s->clock;
    for (unsigned i = 0; i < countof(p->half); i++) { /* the later half first */
        struct share_half *h = &p->half[p->now ^ i];
        uint32_t found = 0;
        uint32_t k = draft_find(&h->index, h->text, tail, n_tail, &found);
        if (k > *ret_match) {
            best = h;
            at = found;
            *ret_match = k;
        }
    }
    while (best != NULL && n < max && at + n < best->n &&
           best->text[at + n] != BORDER) {
        ret[n] = best->text[at + n];
        n++;
    }
    return n;
}
