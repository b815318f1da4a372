/* search.c - texts in which strings are looked for, or may not occur.
 *
 * The automaton is Aho and Corasick's, over characters: UTF-8 shows where they
 * begin, so a string of whole characters occurs among characters or not at all,
 * and the text stays valid. A node is the longest beginning of a string with
 * which the text so far ends. `fail` is the next shorter one: what has no child
 * of its own for a character asks there. Every other character leads to the
 * root. For one string this is Knuth, Morris and Pratt's automaton.
 *
 * Where the text begins it is at the node of CODE_BEGIN, a character that no
 * text has: strings that count only there begin with it. White space does not
 * leave that node. */
#include "base/utf8.h"
#include "model/grammar/grammar_impl.h"

#define CODE_BEGIN (CHAR_MAX_CODE + 1)

/* What the strings say that end at a node; the larger one counts. */
enum verdict { NO_STRING, ENDS_TEXT, MAY_NOT_OCCUR };

struct node {
    uint32_t code;                 /* the character that leads here */
    uint32_t child, sibling, fail; /* 0: none, or the root */
    uint32_t state;
    enum verdict verdict;
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

static uint32_t make_child(struct finder *f, uint32_t at, uint32_t code)
{
    uint32_t c = child_of(f, at, code);
    if (c == 0) {
        c = f->n++;
        f->nodes[c] =
            (struct node){.code = code, .sibling = f->nodes[at].child};
        f->nodes[at].child = c;
    }
    return c;
}

static void add_string(struct finder *f, const struct search_string *x)
{
    struct span s = x->s;
    uint32_t at = x->first ? make_child(f, 0, CODE_BEGIN) : 0;
    for (size_t i = 0; i < s.n;) {
        size_t len = utf8_len(s.p + i, s.n - i);
        must(len > 0);
        at = make_child(f, at, utf8_char(s.p + i, len));
        i += len;
    }
    enum verdict v = x->ends ? ENDS_TEXT : MAY_NOT_OCCUR;
    if (f->nodes[at].verdict < v) {
        f->nodes[at].verdict = v;
    }
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
            if (x->verdict < f->nodes[x->fail].verdict) {
                x->verdict = f->nodes[x->fail].verdict;
            }
            order[n++] = c;
        }
    }
}

/* The edges of a child's character: *taken grows by it. */
static void add_child(struct finder *f, uint32_t from, const struct node *x,
                      struct chars *taken)
{
    struct chars one = {0};
    if (x->code == CODE_BEGIN || chars_has(taken, x->code)) {
        return;
    }
    chars_add(f->b, taken, x->code, x->code);
    chars_add(f->b, &one, x->code, x->code);
    uint32_t to = x->verdict == NO_STRING   ? x->state
                  : x->verdict == ENDS_TEXT ? f->found
                                            : NO_STATE;
    if (to != NO_STATE) {
        build_chars(f->b, from, &one, to);
    }
}

static void add_blanks(struct finder *f, uint32_t from, struct chars *taken)
{
    struct chars stay = {0};
    for (const char *c = " \t\n\r"; *c != '\0'; c++) {
        if (!chars_has(taken, (uint32_t)*c)) {
            chars_add(f->b, &stay, (uint32_t)*c, (uint32_t)*c);
        }
    }
    for (size_t i = 0; i < stay.n; i++) {
        chars_add(f->b, taken, stay.r[i].lo, stay.r[i].hi);
    }
    build_chars(f->b, from, &stay, from);
}

/* What leaves one node. */
static void add_edges(struct finder *f, uint32_t node)
{
    struct builder *b = f->b;
    struct chars taken = {0};
    uint32_t from = f->nodes[node].state;
    for (uint32_t at = node; b->rc == 0; at = f->nodes[at].fail) {
        for (uint32_t c = f->nodes[at].child; c != 0; c = f->nodes[c].sibling) {
            add_child(f, from, &f->nodes[c], &taken);
        }
        if (at == 0) {
            break;
        }
    }
    if (f->nodes[node].code == CODE_BEGIN) {
        add_blanks(f, from, &taken);
    }
    struct chars others = chars_not(b, &taken);
    build_chars(b, from, &others, f->nodes[0].state);
}

/* Room for the nodes of all strings; false after an error. */
static bool make_finder(struct finder *f, const struct search_string *strings,
                        size_t n, uint32_t **order)
{
    struct builder *b = f->b;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += strings[i].s.n;
        if (bytes > GRAMMAR_FIND_MAX) {
            (void)build_fail(b, ERR_TOO_BIG,
                             "strings to look for of more than %zu bytes",
                             GRAMMAR_FIND_MAX);
            return false;
        }
    }
    f->nodes = arena_array(&b->arena, bytes + 2, sizeof(*f->nodes));
    *order = arena_array(&b->arena, bytes + 2, sizeof(**order));
    if (f->nodes == NULL || *order == NULL) {
        (void)build_fail(b, ERR_NOMEM, "strings to look for");
        return false;
    }
    return true;
}

void build_search(struct builder *b, const struct search_string *strings,
                  size_t n, uint32_t from, uint32_t found, uint32_t absent)
{
    struct finder f = {.b = b, .n = 1, .found = found};
    uint32_t *order = NULL;
    if (!make_finder(&f, strings, n, &order)) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        add_string(&f, &strings[i]);
    }
    find_fails(&f, order);
    for (uint32_t i = 0; i < f.n; i++) {
        f.nodes[i].state = build_state(b);
    }
    uint32_t begin = child_of(&f, 0, CODE_BEGIN);
    build_empty(b, from, f.nodes[begin].state);
    for (uint32_t i = 0; i < f.n && b->rc == 0; i++) {
        if (f.nodes[i].verdict != NO_STRING) {
            continue;
        }
        add_edges(&f, i);
        if (absent != NO_STATE) {
            build_empty(b, f.nodes[i].state, absent);
        }
    }
}
