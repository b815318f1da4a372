/* mask.c - a walk over the vocabulary from a configuration.
 *
 * Nodes are visited in order; path[d] is the configuration behind the first d
 * bytes. A node that does not match takes its subtree with it. A subtree whose
 * rest consists of characters that stay in the configuration (match_loop), or
 * that are plain and few enough (match_plain), is accepted whole.
 *
 * In the body of a string nearly all tokens are plain, so a mask then begins as
 * a copy of all plain tokens (or the short ones, or those of as many characters
 * as are left), and the walk passes over subtrees that have no others. */
#include "model/grammar/mask.h"

#include <string.h>

#include "base/list.h"
#include "model/grammar/match_impl.h"
#include "model/grammar/trie_impl.h"

enum {
    ACCEPT_MIN = 4, /* tokens: smaller subtrees are walked */
    AHEAD_MAX = 16, /* characters that are followed to accept a subtree */
    MASKS_MAX = 65536,
};

struct mask {
    struct list lru; /* of masker.lru, the newest last */
    uint64_t serial;
    struct mask *chain;
    bool any;
    uint64_t bits[];
};

struct masker {
    struct matcher *m;
    const struct trie *t;
    match_t *path; /* (TOKEN_BYTES_MAX + 1) */
    uint32_t path_n;
    struct list lru;
    struct mask **table; /* by serial, (table_mask + 1) */
    uint32_t table_mask;
    uint32_t n_masks, max_masks;
    uint64_t made;
};

/* --- the walk --- */

static inline match_t next_of(struct matcher *m, match_t s, uint8_t byte)
{
    match_t to = m->configs[s]->next[m->g->class_of[byte]];
    return to != NOT_KNOWN ? to : match_byte(m, s, byte);
}

static void set_ranks(const struct trie *t, uint64_t *bits, uint32_t from,
                      uint32_t to)
{
    for (uint32_t r = from; r < to; r++) {
        uint32_t id = t->id[r];
        bits[id / 64] |= (uint64_t)1 << id % 64;
    }
}

/* All characters of the set lead on in the same way. */
static bool covers(const struct match_loop *l, const struct trie_set *set)
{
    return l->next != MATCH_DEAD && (set->ascii[0] & ~l->ascii[0]) == 0 &&
           (set->ascii[1] & ~l->ascii[1]) == 0 && (!set->wide || l->wide);
}

/* Everything below the node matches at s: its characters stay there, or lead on
 * in the same way as often as there are some, or are plain. False may be wrong.
 */
static bool accepts(struct matcher *m, match_t s, const struct trie_set *set)
{
    const struct match_loop *l = match_loop(m, s);
    if (!covers(l, set)) {
        return false;
    }
    if (l->next == s || set->chars == 1 ||
        (set->plain && set->chars <= match_plain(m, s))) {
        return true;
    }
    uint32_t left = set->chars <= AHEAD_MAX ? set->chars : 0;
    for (match_t at = s; left > 0 && covers(l, set); left--) {
        if (left == 1 || l->next == at) {
            return true;
        }
        at = l->next;
        l = match_loop(m, at);
    }
    return false;
}

/* have: bits are those of these plain tokens already (PLAIN_*), or 0. */
static void walk(struct masker *k, match_t s, uint64_t *bits, unsigned have)
{
    const struct trie *t = k->t;
    uint32_t i = 1;
    k->path[0] = s;
    while (i < t->n_nodes) {
        const struct trie_node *n = &t->nodes[i];
        if ((n->in_plain & have) != 0) {
            i = n->next;
            continue;
        }
        k->path_n = n->depth;
        match_t at = next_of(k->m, k->path[n->depth - 1], n->byte);
        if (at == MATCH_DEAD) {
            i = n->next;
            continue;
        }
        set_ranks(t, bits, n->rank, n[1].rank);
        i++;
        if (n->next == i) {
            continue;
        }
        k->path[n->depth] = at;
        k->path_n = n->depth + 1u;
        uint32_t last = t->nodes[n->next].rank;
        if (n->below == NO_SET || last - n[1].rank < ACCEPT_MIN) {
            continue;
        }
        const struct trie_set *set = &t->sets[n->below];
        if (accepts(k->m, at, set)) {
            set_ranks(t, bits, n[1].rank, last);
            i = n->next;
        }
    }
}

/* The plain tokens that may follow s into bits; which subtrees of them need no
 * walk (PLAIN_*). */
static unsigned begin(struct masker *k, match_t s, uint64_t *bits)
{
    const struct trie *t = k->t;
    size_t bytes = trie_words(t) * sizeof(*bits);
    uint32_t plain = match_plain(k->m, s);
    if (plain >= MATCH_PLAIN_MIN) {
        bool all = plain == UINT32_MAX;
        memcpy(bits, t->plain[all], bytes);
        return all ? PLAIN_ALL : PLAIN_SHORT;
    }
    if (plain > 0 && match_plain_ends(k->m, s)) {
        memcpy(bits, trie_plain_upto(t, plain), bytes);
        return PLAIN_ALL;
    }
    if (plain == 0 && match_plain_always(k->m, s)) {
        memcpy(bits, t->plain[1], bytes);
        return PLAIN_ALL;
    }
    memset(bits, 0, bytes);
    return 0;
}

/* The mask of s into bits; any: a token is allowed. */
static bool make(struct masker *k, match_t s, uint64_t *bits)
{
    const struct trie *t = k->t;
    size_t words = trie_words(t);
    uint64_t any = 0;
    if (s == MATCH_DEAD) {
        memset(bits, 0, words * sizeof(*bits));
        return false;
    }
    match_path(k->m, k->path, &k->path_n);
    k->path_n = 0;
    walk(k, s, bits, begin(k, s, bits));
    match_path(k->m, NULL, NULL);
    for (uint32_t i = 0; i < t->n_ends && match_may_end(k->m, s); i++) {
        bits[t->ends[i] / 64] |= (uint64_t)1 << t->ends[i] % 64;
    }
    for (size_t i = 0; i < words; i++) {
        any |= bits[i];
    }
    k->made++;
    return any != 0;
}

/* --- masks that are kept --- */

static struct mask *find(const struct masker *k, uint64_t serial)
{
    struct mask *x = k->table[serial & k->table_mask];
    while (x != NULL && x->serial != serial) {
        x = x->chain;
    }
    return x;
}

static void unlink_mask(struct masker *k, struct mask *x)
{
    struct mask **at = &k->table[x->serial & k->table_mask];
    while (*at != x) {
        at = &(*at)->chain;
    }
    *at = x->chain;
    list_del(&x->lru);
}

/* A place for one more; NULL when memory is out and nothing is kept. */
static struct mask *place(struct masker *k)
{
    struct mask *x = NULL;
    if (k->n_masks < k->max_masks) {
        x = malloc(sizeof(*x) + trie_words(k->t) * sizeof(uint64_t));
        k->n_masks += x != NULL;
    }
    if (x == NULL && !list_empty(&k->lru)) {
        x = container_of(k->lru.next, struct mask, lru);
        unlink_mask(k, x);
    }
    return x;
}

bool mask_fill(struct masker *k, match_t s, uint64_t *bits)
{
    uint64_t serial = match_serial(k->m, s);
    size_t bytes = trie_words(k->t) * sizeof(*bits);
    struct mask *x = s != MATCH_DEAD ? find(k, serial) : NULL;
    if (x != NULL) {
        list_del(&x->lru);
        list_push(&k->lru, &x->lru);
        memcpy(bits, x->bits, bytes);
        return x->any;
    }
    bool any = make(k, s, bits);
    x = s != MATCH_DEAD ? place(k) : NULL;
    if (x != NULL) {
        struct mask **bucket = &k->table[serial & k->table_mask];
        x->serial = serial;
        x->any = any;
        x->chain = *bucket;
        memcpy(x->bits, bits, bytes);
        *bucket = x;
        list_push(&k->lru, &x->lru);
    }
    return any;
}

/* --- tokens --- */

bool mask_token(struct masker *k, match_t *s, uint32_t id)
{
    const struct trie *t = k->t;
    if (id >= t->n_tokens) {
        return false;
    }
    if (t->kinds[id] == TRIE_END) {
        if (!match_may_end(k->m, *s)) {
            return false;
        }
        match_drop(k->m, *s);
        *s = MATCH_DEAD;
        return true;
    }
    struct span b = t->tokens[id];
    return b.n > 0 && match_bytes(k->m, s, b.p, b.n);
}

/* The longest token that p[0..n) begins with; false: none. */
static bool longest(const struct trie *t, const char *p, size_t n,
                    uint32_t *ret_id, size_t *ret_n)
{
    uint32_t i = 0;
    size_t d = 0;
    *ret_n = 0;
    while (d < n) {
        uint32_t x = i + 1;
        while (x < t->nodes[i].next && t->nodes[x].byte != (uint8_t)p[d]) {
            x = t->nodes[x].next;
        }
        if (x >= t->nodes[i].next) {
            break;
        }
        i = x;
        d++;
        if (t->nodes[i + 1].rank > t->nodes[i].rank) {
            *ret_id = t->id[t->nodes[i].rank];
            *ret_n = d;
        }
    }
    return *ret_n > 0;
}

uint32_t mask_forced(struct masker *k, match_t s, struct buf *bytes,
                     uint32_t *tokens, uint32_t max)
{
    size_t from = bytes->n;
    match_t at = s;
    int byte = 0;
    match_hold(k->m, at);
    while (bytes->n < bytes->max && (byte = match_only_byte(k->m, at)) >= 0) {
        char c = (char)byte;
        buf_put(bytes, &c, 1);
        match_t to = match_byte(k->m, at, (uint8_t)byte);
        match_hold(k->m, to);
        match_drop(k->m, at);
        at = to;
        if (!buf_ok(bytes)) {
            break;
        }
    }
    match_drop(k->m, at);
    uint32_t n = 0;
    size_t len = 0;
    for (; n < max && from < bytes->n; from += len) {
        if (!longest(k->t, bytes->p + from, bytes->n - from, &tokens[n],
                     &len)) {
            break;
        }
        n++;
    }
    return n;
}

uint64_t mask_made(const struct masker *k)
{
    return k->made;
}

int masker_new(struct matcher *m, const struct trie *t, struct masker **ret,
               struct err *e)
{
    struct masker *k = calloc(1, sizeof(*k));
    if (k == NULL) {
        return err_set(e, ERR_NOMEM, "a masker");
    }
    k->m = m;
    k->t = t;
    list_init(&k->lru);
    size_t one = sizeof(struct mask) + trie_words(t) * sizeof(uint64_t);
    size_t max = MASK_CACHE_MAX / one;
    k->max_masks = (uint32_t)(max < MASKS_MAX ? max : MASKS_MAX);
    for (k->table_mask = 63; k->table_mask < k->max_masks;
         k->table_mask = k->table_mask * 2 + 1) {
    }
    k->table = calloc((size_t)k->table_mask + 1, sizeof(*k->table));
    k->path = calloc(TOKEN_BYTES_MAX + 2, sizeof(*k->path));
    if (k->table == NULL || k->path == NULL) {
        masker_free(k);
        return err_set(e, ERR_NOMEM, "a masker");
    }
    *ret = k;
    return 0;
}

void masker_free(struct masker *k)
{
    if (k == NULL) {
        return;
    }
    while (!list_empty(&k->lru)) {
        struct mask *x = container_of(k->lru.next, struct mask, lru);
        list_del(&x->lru);
        free(x);
    }
    free(k->table);
    free(k->path);
    free(k);
}
