/* tokenizer_table.c - the three tables of a vocabulary.
 *
 * All are open addressing with linear probing, at most half full, sized to a
 * power of two, never shrunk and read-only after loading. The vocabulary comes
 * from a file that may be made so that all entries fall on one slot: so each
 * table has a random key on which its hash depends.
 */
#include <string.h>

#include "base/random.h"
#include "model/tokenizer_impl.h"

__extension__ typedef unsigned __int128 u128;

/* Both halves of the product: what one bit of either does to it depends on all
 * of the other. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    u128 m = (u128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static uint64_t load(const char *p, size_t n)
{
    uint64_t w = 0;
    memcpy(&w, p, n);
    return w;
}

/* Words of eight bytes, each folded in under the key. */
uint32_t text_hash(const struct text_key *k, const char *p, size_t n)
{
    uint64_t h = k->a ^ n;
    for (; n >= 8; p += 8, n -= 8) {
        h = mix(load(p, 8) ^ k->b, h ^ k->c);
    }
    uint64_t w = n >= 4  ? load(p, 4) << 32 | load(p + n - 4, 4)
                 : n > 0 ? (uint64_t)(uint8_t)p[0] << 16 |
                               (uint64_t)(uint8_t)p[n >> 1] << 8 |
                               (uint8_t)p[n - 1]
                         : 0;
    h = mix(w ^ k->b, h ^ k->c);
    return (uint32_t)(h ^ h >> 32);
}

static uint64_t new_key(void)
{
    uint64_t k = 0;
    random_bytes(&k, sizeof(k));
    return k;
}

/* splitmix64's last steps: neighbouring keys land far apart. */
static size_t key_hash(uint64_t k, uint64_t seed)
{
    k ^= seed;
    k = (k ^ (k >> 30)) * 0xBF58476D1CE4E5B9U;
    k = (k ^ (k >> 27)) * 0x94D049BB133111EBU;
    return (size_t)(k ^ (k >> 31));
}

/* Slots for n entries. */
static size_t slots_for(size_t n)
{
    size_t slots = 64;
    while (slots < 2 * n) {
        slots *= 2;
    }
    return slots;
}

static void text_map_insert(struct text_map *m, const struct tokenizer *t,
                            uint32_t hash, int32_t id)
{
    struct span text = token_text(t, id);
    size_t i = hash & m->mask;
    for (; m->slots[i].id != TOKEN_NONE; i = (i + 1) & m->mask) {
        if (m->slots[i].hash == hash) {
            struct span other = token_text(t, m->slots[i].id);
            if (other.n == text.n && memcmp(other.p, text.p, text.n) == 0) {
                m->slots[i].id = id;
                return;
            }
        }
    }
    m->slots[i] = (struct text_slot){hash, id};
    m->n++;
}

static bool text_map_grow(struct tokenizer *t, size_t n)
{
    size_t slots = slots_for(n);
    struct text_map m = {.mask = slots - 1, .key = t->texts.key};
    m.slots = malloc(slots * sizeof(*m.slots));
    if (m.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < slots; i++) {
        m.slots[i].id = TOKEN_NONE;
    }
    for (size_t i = 0; t->texts.slots != NULL && i <= t->texts.mask; i++) {
        const struct text_slot *s = &t->texts.slots[i];
        if (s->id != TOKEN_NONE) {
            text_map_insert(&m, t, s->hash, s->id);
        }
    }
    free(t->texts.slots);
    t->texts = m;
    return true;
}

bool text_map_put(struct tokenizer *t, int32_t id)
{
    if (t->texts.slots == NULL) {
        random_bytes(&t->texts.key, sizeof(t->texts.key));
    }
    if (t->texts.slots == NULL || t->texts.n * 2 > t->texts.mask) {
        size_t want = t->texts.n * 2;
        if (want < (size_t)t->n_vocab) {
            want = (size_t)t->n_vocab;
        }
        if (!text_map_grow(t, want + 1)) {
            return false;
        }
    }
    struct span text = token_text(t, id);
    text_map_insert(&t->texts, t,
                    text_hash(&t->texts.key, text.p, text.n), id);
    return true;
}

int32_t text_map_get(const struct tokenizer *t, const char *p, size_t n)
{
    if (t->texts.slots == NULL) {
        return TOKEN_NONE;
    }
    uint32_t hash = text_hash(&t->texts.key, p, n);
    const struct text_slot *slots = t->texts.slots;
    for (size_t i = hash & t->texts.mask; slots[i].id != TOKEN_NONE;
         i = (i + 1) & t->texts.mask) {
        if (slots[i].hash == hash) {
            struct span text = token_text(t, slots[i].id);
            if (text.n == n && memcmp(text.p, p, n) == 0) {
                return slots[i].id;
            }
        }
    }
    return TOKEN_NONE;
}

bool merge_map_reserve(struct merge_map *m, size_t n)
{
    size_t slots = slots_for(n + 1);
    must(m->slots == NULL);
    m->slots = malloc(slots * sizeof(*m->slots));
    if (m->slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < slots; i++) {
        m->slots[i].key = UINT64_MAX;
    }
    m->mask = slots - 1;
    m->seed = new_key();
    return true;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

void merge_map_put(struct merge_map *m, int32_t left, int32_t right,
                   uint32_t rank, int32_t id)
{
    uint64_t key = pair_key(left, right);
    size_t i = key_hash(key, m->seed) & m->mask;
    must(m->n * 2 <= m->mask);
    for (; m->slots[i].key != UINT64_MAX; i = (i + 1) & m->mask) {
        if (m->slots[i].key == key) {
            return;
        }
    }
    m->slots[i] = (struct merge_slot){key, rank, id};
    m->n++;
}

const struct merge_slot *merge_map_get(const struct merge_map *m, int32_t left,
                                       int32_t right)
{
    uint64_t key = pair_key(left, right);
    for (size_t i = key_hash(key, m->seed) & m->mask;
         m->slots[i].key != UINT64_MAX; i = (i + 1) & m->mask) {
        if (m->slots[i].key == key) {
            return &m->slots[i];
        }
    }
    return NULL;
}

static const struct trie_slot *trie_step(const struct trie *r, uint32_t node,
                                         uint8_t byte)
{
    uint64_t key = (uint64_t)node << 8 | byte;
    for (size_t i = key_hash(key, r->seed) & r->mask;
         r->slots[i].key != UINT64_MAX; i = (i + 1) & r->mask) {
        if (r->slots[i].key == key) {
            return &r->slots[i];
        }
    }
    return NULL;
}

static void trie_insert(struct trie *r, uint64_t key, uint32_t node)
{
    size_t i = key_hash(key, r->seed) & r->mask;
    while (r->slots[i].key != UINT64_MAX) {
        i = (i + 1) & r->mask;
    }
    r->slots[i] = (struct trie_slot){key, node};
    r->n++;
}

static bool trie_grow(struct trie *r)
{
    struct trie old = *r;
    size_t slots = slots_for(2 * (old.n + 1));
    r->slots = malloc(slots * sizeof(*r->slots));
    if (r->slots == NULL) {
        r->slots = old.slots;
        return false;
    }
    for (size_t i = 0; i < slots; i++) {
        r->slots[i].key = UINT64_MAX;
    }
    r->mask = slots - 1;
    r->seed = old.slots != NULL ? old.seed : new_key();
    r->n = 0;
    for (size_t i = 0; old.slots != NULL && i <= old.mask; i++) {
        if (old.slots[i].key != UINT64_MAX) {
            trie_insert(r, old.slots[i].key, old.slots[i].node);
        }
    }
    free(old.slots);
    return true;
}

/* A new node's number, 0 when memory is out (0 is the root). */
static uint32_t trie_node(struct trie *r)
{
    if (r->n_nodes == r->nodes_cap) {
        size_t cap = r->nodes_cap == 0 ? 256 : r->nodes_cap * 2;
        int32_t *ends = realloc(r->ends, cap * sizeof(*ends));
        if (ends == NULL) {
            return 0;
        }
        r->ends = ends;
        r->nodes_cap = cap;
    }
    if (r->n_nodes == 0) {
        r->ends[r->n_nodes++] = TOKEN_NONE; /* the root */
    }
    r->ends[r->n_nodes] = TOKEN_NONE;
    return (uint32_t)r->n_nodes++;
}

bool trie_put(struct trie *r, struct span text, int32_t id)
{
    uint32_t node = 0;
    must(text.n > 0);
    for (size_t i = 0; i < text.n; i++) {
        uint8_t byte = (uint8_t)text.p[i];
        if ((r->slots == NULL || r->n * 2 >= r->mask) && !trie_grow(r)) {
            return false;
        }
        const struct trie_slot *s = trie_step(r, node, byte);
        if (s == NULL) {
            uint32_t next = trie_node(r);
            if (next == 0) {
                return false;
            }
            trie_insert(r, (uint64_t)node << 8 | byte, next);
            node = next;
        } else {
            node = s->node;
        }
    }
    r->ends[node] = id;
    r->first[(uint8_t)text.p[0]] = true;
    return true;
}

void trie_fini(struct trie *r)
{
    free(r->slots);
    free(r->ends);
}

int32_t special_at(const struct tokenizer *t, const char *p, size_t n,
                   bool special)
{
    const struct trie *r = &t->special;
    int32_t best = TOKEN_NONE;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const struct trie_slot *s = trie_step(r, node, (uint8_t)p[i]);
        if (s == NULL) {
            break;
        }
        node = s->node;
        int32_t id = r->ends[node];
        if (id != TOKEN_NONE && (special || t->tokens[id].type == TOKEN_USER)) {
            best = id;
        }
    }
    return best;
}
