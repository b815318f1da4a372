/* search.c - texts in which strings are looked for, or may not occur.
 *
 * The automaton is Aho and Corasick's, over characters: UTF-8 shows where they
 * begin, so a string of whole characters occurs among characters or not at all,
 * and the text stays valid. A node is the longest beginning of a string with
 * which the text so far ends. `fail` is the next shorter one: what has no child
 * of its own for a character asks there. Every other character leads to the
 * root. For one string this is Knuth, Morris and Pratt's automaton. */
#include "base/utf8.h"
#include "model/grammar/grammar_impl.h"

struct node {
    uint32_t code;                 /* the character that leads here */
    uint32_t child, sibling, fail; /* 0: none, or the root */
    uint32_t state;
    bool whole; /* a string ends here */
};

struct finder {
    struct builder *b;
    struct node *nodes; /* (n), in the builder's arena; [0] is the root */
    uint32_t n;
    uint32_t found;
};

static uint32_t child_of(const struct finder *f, uint32_t node, uint32_t code)
{
    uint32_t c = f->nodes[node].child;
    while (c != 0 && f->nodes[c].code != code) {
        c = f->nodes[c].sibling;
    }
    return c;
}

static void add_string(struct finder *f, struct span s)
{
    uint32_t at = 0;
    for (size_t i = 0; i < s.n;) {
        size_t len = utf8_len(s.p + i, s.n - i);
        must(len > 0);
        uint32_t code = utf8_char(s.p + i, len);
        uint32_t c = child_of(f, at, code);
        if (c == 0) {
            c = f->n++;
            f->nodes[c] =
                (struct node){.code = code, .sibling = f->nodes[at].child};
            f->nodes[at].child = c;
        }
        at = c;
        i += len;
    }
    f->nodes[at].whole = true;
}

/* Where the text is that was at `node`, behind one more character; 0 if only
 * the root is left. */
static uint32_t step(const struct finder *f, uint32_t node, uint32_t code)
{
    uint32_t to = child_of(f, node, code);
    while (to == 0 && node != 0) {
        node = f->nodes[node].fail;
        to = child_of(f, node, code);
    }
    return to;
}

/* Nodes by their depth, in `order`; a node's fail is less deep. */
static void find_fails(struct finder *f, uint32_t *order)
{
    uint32_t n = 1;
    order[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = order[i];
        for (uint32_t c = f->nodes[at].child; c != 0; c = f->nodes[c].sibling) {
            struct node *x = &f->nodes[c];
            x->fail = at == 0 ? 0 : step(f, f->nodes[at].fail, x->code);
            x->whole |= f->nodes[x->fail].whole;
            order[n++] = c;
        }
    }
}

/* What leaves one node. */
static void add_edges(struct finder *f, uint32_t node)
{
    struct builder *b = f->b;
    struct chars taken = {0};
    for (uint32_t at = node;; at = f->nodes[at].fail) {
        for (uint32_t c = f->nodes[at].child; c != 0 && b->rc == 0;
             c = f->nodes[c].sibling) {
            const struct node *x = &f->nodes[c];
            struct chars one = {0};
            if (chars_has(&taken, x->code)) {
                continue;
            }
            chars_add(b, &taken, x->code, x->code);
            chars_add(b, &one, x->code, x->code);
            uint32_t to = x->whole ? f->found : x->state;
            if (to != NO_STATE) {
                build_chars(b, f->nodes[node].state, &one, to);
            }
        }
        if (at == 0 || b->rc != 0) {
            break;
        }
    }
    struct chars others = chars_not(b, &taken);
    build_chars(b, f->nodes[node].state, &others, f->nodes[0].state);
}

void build_search(struct builder *b, const struct span *strings, size_t n,
                  uint32_t from, uint32_t found, uint32_t absent)
{
    struct finder f = {.b = b, .n = 1, .found = found};
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += strings[i].n;
        if (bytes > GRAMMAR_FIND_MAX) {
            (void)build_fail(b, ERR_TOO_BIG,
                             "strings to look for of more than %zu bytes",
                             GRAMMAR_FIND_MAX);
            return;
        }
    }
    f.nodes = arena_array(&b->arena, bytes + 1, sizeof(*f.nodes));
    uint32_t *order = arena_array(&b->arena, bytes + 1, sizeof(*order));
    if (f.nodes == NULL || order == NULL) {
        (void)build_fail(b, ERR_NOMEM, "strings to look for");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        add_string(&f, strings[i]);
    }
    find_fails(&f, order);
    for (uint32_t i = 0; i < f.n; i++) {
        f.nodes[i].state = build_state(b);
    }
    build_empty(b, from, f.nodes[0].state);
    for (uint32_t i = 0; i < f.n && b->rc == 0; i++) {
        if (f.nodes[i].whole) {
            continue;
        }
        add_edges(&f, i);
        if (absent != NO_STATE) {
            build_empty(b, f.nodes[i].state, absent);
        }
    }
}
