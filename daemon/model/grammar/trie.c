/* trie.c - building a trie: tokens are sorted, nodes are made where they
 * differ from the one before, sets from the last node to the first. */
#include <string.h>

#include "base/utf8.h"
#include "model/grammar/trie_impl.h"
#include "proto/limits.h"

struct item {
    struct span s;
    uint32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct item *x = a;
    const struct item *y = b;
    size_t n = x->s.n < y->s.n ? x->s.n : y->s.n;
    int d = memcmp(x->s.p, y->s.p, n);
    if (d != 0) {
        return d;
    }
    if (x->s.n != y->s.n) {
        return x->s.n < y->s.n ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* --- nodes --- */

static void close_nodes(struct trie *t, const uint32_t *open, size_t from,
                        size_t to)
{
    for (size_t d = from; d < to; d++) {
        t->nodes[open[d]].next = t->n_nodes;
    }
}

/* open[d]: the node at depth d on the way to the present token. */
static void make_nodes(struct trie *t, const struct item *items,
                       uint32_t *open)
{
    struct span last = {"", 0};
    t->nodes[0] = (struct trie_node){.below = NO_SET};
    t->n_nodes = 1;
    open[0] = 0;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        struct span s = items[r].s;
        size_t same = 0;
        while (same < last.n && same < s.n && last.p[same] == s.p[same]) {
            same++;
        }
        close_nodes(t, open, same + 1, last.n + 1);
        for (size_t d = same; d < s.n; d++) {
            open[d + 1] = t->n_nodes;
            t->nodes[t->n_nodes++] =
                (struct trie_node){.rank = r,
                                   .below = NO_SET,
                                   .depth = (uint16_t)(d + 1),
                                   .byte = (uint8_t)s.p[d]};
        }
        t->id[r] = items[r].id;
        last = s;
    }
    close_nodes(t, open, 0, last.n + 1);
    t->nodes[t->n_nodes] = (struct trie_node){.rank = t->n_ranks};
    t->nodes[t->n_nodes].next = t->n_nodes;
}

/* --- sets --- */

struct below {
    struct trie_set set;
    bool ok;
};

/* A character of s is followed by what is below node y. */
static void add_char(const struct trie *t, struct below *b, uint32_t y)
{
    const struct trie_node *n = &t->nodes[y];
    uint32_t chars = 1;
    if (n->below != NO_SET) {
        const struct trie_set *o = &t->sets[n->below];
        b->set.ascii[0] |= o->ascii[0];
        b->set.ascii[1] |= o->ascii[1];
        b->set.wide |= o->wide;
        chars += o->chars;
    } else if (n->next > y + 1) {
        b->ok = false;
    }
    b->set.chars = chars > b->set.chars ? chars : b->set.chars;
}

/* Below x a character goes on: its next byte is in lo..hi, then `more`. */
static void go_on(const struct trie *t, struct below *b, uint32_t x,
                  unsigned lo, unsigned hi, unsigned more)
{
    b->set.chars = b->set.chars > 1 ? b->set.chars : 1;
    for (uint32_t y = x + 1; y < t->nodes[x].next && b->ok;
         y = t->nodes[y].next) {
        unsigned c = t->nodes[y].byte;
        if (c < lo || c > hi) {
            b->ok = false;
        } else if (more == 0) {
            add_char(t, b, y);
        } else {
            go_on(t, b, y, 0x80, 0xBF, more - 1);
        }
    }
}

static struct below look_below(const struct trie *t, uint32_t i)
{
    struct below b = {.ok = true};
    for (uint32_t x = i + 1; x < t->nodes[i].next && b.ok;
         x = t->nodes[x].next) {
        unsigned c = t->nodes[x].byte;
        if (c < 0x80) {
            b.set.ascii[c / 64] |= (uint64_t)1 << c % 64;
            add_char(t, &b, x);
            continue;
        }
        b.set.wide = true;
        if (c >= 0xC2 && c <= 0xDF) {
            go_on(t, &b, x, 0x80, 0xBF, 0);
        } else if (c >= 0xE0 && c <= 0xEF) {
            go_on(t, &b, x, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF,
                  1);
        } else if (c >= 0xF0 && c <= 0xF4) {
            go_on(t, &b, x, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF,
                  2);
        } else {
            b.ok = false;
        }
    }
    b.set.plain = set_plain(b.set.ascii[0], b.set.ascii[1]);
    return b;
}

static void make_sets(struct trie *t)
{
    for (uint32_t i = t->n_nodes; i-- > 0;) {
        if (t->nodes[i].next == i + 1) {
            continue;
        }
        struct below b = look_below(t, i);
        if (b.ok) {
            t->nodes[i].below = t->n_sets;
            t->sets[t->n_sets++] = b.set;
        }
    }
}

/* Of a token whose bytes are plain characters, the last one perhaps cut, their
 * number; 0: of another. */
static uint32_t plain_chars(struct span s)
{
    uint32_t chars = 0;
    size_t i = 0;
    while (i < s.n) {
        size_t len = 0;
        unsigned char c = (unsigned char)s.p[i];
        enum utf8_kind k = utf8_seq(s.p + i, s.n - i, &len);
        if (k == UTF8_BAD || c < 0x20 || c == '"' || c == '\\' || c == 0x7F) {
            return 0;
        }
        i += len;
        chars++;
    }
    return chars;
}

static void add_plain(struct trie *t, uint32_t id, uint32_t chars)
{
    uint64_t bit = (uint64_t)1 << id % 64;
    t->plain[1][id / 64] |= bit;
    t->plain[0][id / 64] |= t->tokens[id].n <= MATCH_PLAIN_MIN ? bit : 0;
    if (chars < MATCH_PLAIN_MIN) {
        trie_plain_upto(t, chars)[id / 64] |= bit;
    }
}

/* From the tokens of so many characters to those of at most so many. */
static void sum_plain(struct trie *t)
{
    for (uint32_t n = 1; n < MATCH_PLAIN_MIN; n++) {
        const uint64_t *fewer = trie_plain_upto(t, n - 1);
        uint64_t *these = trie_plain_upto(t, n);
        for (size_t i = 0; i < trie_words(t); i++) {
            these[i] |= fewer[i];
        }
    }
}

/* --- the whole --- */

static int copy_tokens(struct trie *t, const struct span *tokens,
                       const uint8_t *kinds, struct item *items, struct err *e)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        if (tokens[i].n > TOKEN_BYTES_MAX) {
            return err_set(e, ERR_TOO_BIG, "token %u has %zu bytes", i,
                           tokens[i].n);
        }
        bytes += tokens[i].n;
    }
    t->bytes = malloc(bytes + 1);
    if (t->bytes == NULL) {
        return err_set(e, ERR_NOMEM, "a vocabulary's bytes");
    }
    char *at = t->bytes;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        uint8_t kind = kinds != NULL ? kinds[i] : (uint8_t)TRIE_TEXT;
        t->kinds[i] = kind;
        if (kind == TRIE_END) {
            t->ends[t->n_ends++] = i;
        }
        if (kind != TRIE_TEXT || tokens[i].n == 0) {
            continue;
        }
        memcpy(at, tokens[i].p, tokens[i].n);
        t->tokens[i] = (struct span){at, tokens[i].n};
        items[t->n_ranks++] = (struct item){t->tokens[i], i};
        at += tokens[i].n;
        uint32_t chars = plain_chars(t->tokens[i]);
        if (chars > 0) {
            add_plain(t, i, chars);
        }
    }
    sum_plain(t);
    return 0;
}

/* Nodes that sorted tokens make, but for the root. */
static size_t count_nodes(const struct item *items, uint32_t n)
{
    size_t nodes = 0;
    for (uint32_t r = 0; r < n; r++) {
        size_t same = 0;
        while (r > 0 && same < items[r - 1].s.n && same < items[r].s.n &&
               items[r - 1].s.p[same] == items[r].s.p[same]) {
            same++;
        }
        nodes += items[r].s.n - same;
    }
    return nodes;
}

/* Which subtrees have only tokens of one kind of plain: from counts by rank. */
static void mark_plain(struct trie *t, int k, uint32_t *count)
{
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        uint32_t id = t->id[r];
        bool plain = (t->plain[k][id / 64] >> id % 64 & 1) != 0;
        count[r + 1] = count[r] + plain;
    }
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        uint32_t from = t->nodes[i].rank;
        uint32_t to = t->nodes[t->nodes[i].next].rank;
        if (count[to] - count[from] == to - from) {
            t->nodes[i].in_plain |= (uint8_t)(k == 0 ? PLAIN_SHORT : PLAIN_ALL);
        }
    }
}

static int build(struct trie *t, struct item *items, struct err *e)
{
    uint32_t *open = NULL;
    uint32_t *count = NULL;
    qsort(items, t->n_ranks, sizeof(*items), by_bytes);
    size_t nodes = count_nodes(items, t->n_ranks);
    if (nodes >= UINT32_MAX / 2) {
        return err_set(e, ERR_TOO_BIG, "a vocabulary's bytes");
    }
    t->nodes = calloc(nodes + 2, sizeof(*t->nodes));
    t->sets = calloc(nodes + 1, sizeof(*t->sets));
    open = calloc(TOKEN_BYTES_MAX + 2, sizeof(*open));
    count = calloc((size_t)t->n_ranks + 1, sizeof(*count));
    if (t->nodes == NULL || t->sets == NULL || open == NULL || count == NULL) {
        free(open);
        free(count);
        return err_set(e, ERR_NOMEM, "a vocabulary's trie");
    }
    make_nodes(t, items, open);
    free(open);
    make_sets(t);
    mark_plain(t, 0, count);
    mark_plain(t, 1, count);
    free(count);
    struct trie_set *fit =
        realloc(t->sets, ((size_t)t->n_sets + 1) * sizeof(*t->sets));
    t->sets = fit != NULL ? fit : t->sets;
    return 0;
}

int trie_new(const struct span *tokens, const uint8_t *kinds, uint32_t n,
             struct trie **ret, struct err *e)
{
    int rc = 0;
    struct item *items = NULL;
    struct trie *t = NULL;
    if (n == 0 || n > MODEL_VOCAB_MAX) {
        return err_set(e, ERR_TOO_BIG, "a vocabulary of %u tokens", n);
    }
    t = calloc(1, sizeof(*t));
    items = calloc(n, sizeof(*items));
    if (t == NULL || items == NULL) {
        rc = err_set(e, ERR_NOMEM, "a vocabulary");
        goto out;
    }
    t->n_tokens = n;
    t->id = calloc(n, sizeof(*t->id));
    t->ends = calloc(n, sizeof(*t->ends));
    t->kinds = calloc(n, 1);
    t->tokens = calloc(n, sizeof(*t->tokens));
    t->plain[0] = calloc(trie_words(t), sizeof(uint64_t));
    t->plain[1] = calloc(trie_words(t), sizeof(uint64_t));
    t->plain_upto = calloc(MATCH_PLAIN_MIN * trie_words(t), sizeof(uint64_t));
    if (t->id == NULL || t->ends == NULL || t->kinds == NULL ||
        t->tokens == NULL || t->plain[0] == NULL || t->plain[1] == NULL ||
        t->plain_upto == NULL) {
        rc = err_set(e, ERR_NOMEM, "a vocabulary");
        goto out;
    }
    CHECK(copy_tokens(t, tokens, kinds, items, e));
    CHECK(build(t, items, e));
    *ret = t;
    t = NULL;
out:
    free(items);
    trie_free(t);
    return rc;
}

void trie_free(struct trie *t)
{
    if (t == NULL) {
        return;
    }
    free(t->nodes);
    free(t->sets);
    free(t->id);
    free(t->plain[0]);
    free(t->plain[1]);
    free(t->plain_upto);
    free(t->ends);
    free(t->tokens);
    free(t->kinds);
    free(t->bytes);
    free(t);
}

uint32_t trie_tokens(const struct trie *t)
{
    return t->n_tokens;
}

size_t trie_bytes(const struct trie *t)
{
    return sizeof(*t) + ((size_t)t->n_nodes + 1) * sizeof(*t->nodes) +
           ((size_t)t->n_sets + 1) * sizeof(*t->sets) +
           (size_t)t->n_tokens * (sizeof(*t->tokens) + 9) +
           trie_words(t) * 8 * (2 + MATCH_PLAIN_MIN);
}
