/* check.c - what is wrong with a grammar as a whole.
 *
 * Early states are those that their rule can reach without a byte: its start,
 * what empty edges of early states lead to, and what stands behind a call of a
 * rule that can be empty. A rule is left recursive when it comes back to itself
 * by calls from early states: matching would never end.
 *
 * A state is alive when an end of its rule can be reached from it; edges to
 * others are dropped. Both are found by worklists, once over every edge, since
 * a grammar may be as large and as twisted as its author likes. */
#include <string.h>

#include "model/grammar/grammar_impl.h"

/* Edges by something, linked: first[key] and next[edge], 1-based; 0 ends. */
struct index {
    uint32_t *first;
    uint32_t *next;
};

struct check {
    struct builder *b;
    uint32_t *from;    /* (n_edges): the state that an edge leaves */
    uint32_t *work;    /* states to look at */
    uint32_t n_work;
    bool *seen;        /* (n_states) */
    bool *rule_seen;   /* (n_rules) */
    struct index call; /* edges that call a rule */
    struct index into; /* edges by the state they go to */
    struct index left; /* calls from early states, by the rule they are in */
};

static bool make_index(struct builder *b, struct index *x, size_t keys)
{
    x->first = arena_array(&b->arena, keys + 1, sizeof(*x->first));
    x->next = arena_array(&b->arena, b->n_edges, sizeof(*x->next));
    return x->first != NULL && x->next != NULL;
}

static void link_edge(struct index *x, uint32_t key, uint32_t edge)
{
    x->next[edge] = x->first[key];
    x->first[key] = edge;
}

static bool make(struct check *c, struct builder *b)
{
    c->b = b;
    c->from = arena_array(&b->arena, b->n_edges, sizeof(*c->from));
    c->work = arena_array(&b->arena, (size_t)b->n_states + 1, sizeof(*c->work));
    c->seen = arena_array(&b->arena, (size_t)b->n_states + 1, sizeof(bool));
    c->rule_seen = arena_array(&b->arena, (size_t)b->n_rules + 1, sizeof(bool));
    if (c->from == NULL || c->work == NULL || c->seen == NULL ||
        c->rule_seen == NULL || !make_index(b, &c->call, b->n_rules) ||
        !make_index(b, &c->into, b->n_states) ||
        !make_index(b, &c->left, b->n_rules)) {
        return false;
    }
    for (uint32_t s = 0; s < b->n_states; s++) {
        for (uint32_t i = b->states[s].edges; i != 0; i = b->edges[i].next) {
            c->from[i] = s;
            link_edge(&c->into, b->edges[i].to, i);
            if (b->edges[i].kind == EDGE_CALL) {
                link_edge(&c->call, b->edges[i].call, i);
            }
        }
    }
    return true;
}

static void push(struct check *c, uint32_t state)
{
    if (state != NO_STATE && !c->seen[state]) {
        c->seen[state] = true;
        c->work[c->n_work++] = state;
    }
}

/* --- left recursion --- */

static void early_state(struct check *c, uint32_t s)
{
    struct builder *b = c->b;
    uint32_t rule = b->states[s].rule;
    for (uint32_t i = b->states[s].edges; i != 0; i = b->edges[i].next) {
        const struct edge *g = &b->edges[i];
        if (g->kind == EDGE_EMPTY) {
            push(c, g->to);
        } else if (g->kind == EDGE_CALL) {
            link_edge(&c->left, rule, i);
            if (c->rule_seen[g->call]) {
                push(c, g->to);
            }
        }
    }
    if (rule == NO_RULE || b->rules[rule].end != s || c->rule_seen[rule]) {
        return;
    }
    c->rule_seen[rule] = true; /* it can be empty */
    for (uint32_t i = c->call.first[rule]; i != 0; i = c->call.next[i]) {
        if (c->seen[c->from[i]]) {
            push(c, b->edges[i].to);
        }
    }
}

static void find_early(struct check *c)
{
    for (uint32_t r = 0; r < c->b->n_rules; r++) {
        push(c, c->b->rules[r].start);
    }
    while (c->n_work > 0) {
        early_state(c, c->work[--c->n_work]);
    }
}

/* Depth first over rules; a rule on the path that is met again is left
 * recursive. at[r]: its next edge; 0 and `done`: left for ever. */
static int find_cycle(struct check *c)
{
    enum { NEW, OPEN, DONE };
    struct builder *b = c->b;
    uint8_t *mark = arena_alloc(&b->arena, (size_t)b->n_rules + 1);
    uint32_t *at = arena_array(&b->arena, (size_t)b->n_rules + 1, sizeof(*at));
    uint32_t *path = arena_array(&b->arena, (size_t)b->n_rules + 1,
                                 sizeof(*path));
    if (mark == NULL || at == NULL || path == NULL) {
        return build_fail(b, ERR_NOMEM, "the grammar's rules");
    }
    for (uint32_t root = 0; root < b->n_rules; root++) {
        uint32_t n = 0;
        if (mark[root] == NEW) {
            mark[root] = OPEN;
            at[root] = c->left.first[root];
            path[n++] = root;
        }
        while (n > 0) {
            uint32_t r = path[n - 1];
            uint32_t edge = at[r];
            if (edge == 0) {
                mark[r] = DONE;
                n--;
                continue;
            }
            at[r] = c->left.next[edge];
            uint32_t to = b->edges[edge].call;
            if (mark[to] == OPEN) {
                const struct build_rule *x = &b->rules[to];
                return x->line == 0
                           ? build_fail(b, ERR_INVALID,
                                        "%s refers to itself before any text",
                                        x->name)
                           : build_fail(
                                 b, ERR_INVALID,
                                 "line %u: the rule '%s' is left recursive",
                                 x->line, x->name);
            }
            if (mark[to] == NEW) {
                mark[to] = OPEN;
                at[to] = c->left.first[to];
                path[n++] = to;
            }
        }
    }
    return 0;
}

/* --- states that never end --- */

/* s is alive: so is what leads to it. */
static void alive_state(struct check *c, uint32_t s)
{
    struct builder *b = c->b;
    uint32_t rule = b->states[s].rule;
    for (uint32_t i = c->into.first[s]; i != 0; i = c->into.next[i]) {
        const struct edge *g = &b->edges[i];
        if (g->kind != EDGE_CALL || c->rule_seen[g->call]) {
            push(c, c->from[i]);
        }
    }
    if (rule == NO_RULE || b->rules[rule].start != s || c->rule_seen[rule]) {
        return;
    }
    c->rule_seen[rule] = true; /* it can be passed */
    for (uint32_t i = c->call.first[rule]; i != 0; i = c->call.next[i]) {
        if (c->seen[b->edges[i].to]) {
            push(c, c->from[i]);
        }
    }
}

static void drop_dead(struct check *c)
{
    struct builder *b = c->b;
    memset(c->seen, 0, b->n_states);
    memset(c->rule_seen, 0, b->n_rules);
    for (uint32_t r = 0; r < b->n_rules; r++) {
        push(c, b->rules[r].end);
    }
    while (c->n_work > 0) {
        alive_state(c, c->work[--c->n_work]);
    }
    for (uint32_t s = 0; s < b->n_states; s++) {
        uint32_t *at = &b->states[s].edges;
        while (*at != 0) {
            const struct edge *g = &b->edges[*at];
            bool dead = !c->seen[g->to] ||
                        (g->kind == EDGE_CALL && !c->rule_seen[g->call]);
            if (dead) {
                *at = g->next;
            } else {
                at = &b->edges[*at].next;
            }
        }
    }
}

int build_check(struct builder *b, uint32_t root)
{
    struct check c = {0};
    if (b->rc != 0) {
        return b->rc;
    }
    if (!make(&c, b)) {
        return build_fail(b, ERR_TOO_BIG, "a grammar of %u states",
                          b->n_states);
    }
    find_early(&c);
    if (find_cycle(&c) != 0) {
        return b->rc;
    }
    drop_dead(&c);
    if (!c.rule_seen[root]) {
        return build_fail(b, ERR_INVALID, "nothing can match the grammar");
    }
    return 0;
}
