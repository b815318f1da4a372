/* compile.c - a grammar that was built, as arrays that match.c reads.
 *
 * States that only lead on without a byte are passed over. A call behind which
 * its rule has nothing to do is a tail call: it leaves nothing on the stack, so
 * that a rule such as `blanks ::= " " blanks | ""` stays in place. */
#include <string.h>

#include "model/grammar/grammar_impl.h"

enum { SKIP_MAX = 64 }; /* empty edges in a row that are passed over */

static bool is_end(const struct builder *b, uint32_t s)
{
    uint32_t rule = b->states[s].rule;
    return rule != NO_RULE && b->rules[rule].end == s;
}

/* The first state from s on that does more than lead to another. */
static uint32_t skip(const struct builder *b, uint32_t s)
{
    for (int i = 0; i < SKIP_MAX && !is_end(b, s); i++) {
        const struct edge *g = &b->edges[b->states[s].edges];
        if (b->states[s].edges == 0 || g->kind != EDGE_EMPTY || g->next != 0) {
            break;
        }
        s = g->to;
    }
    return s;
}

/* Bytes are told apart where a range begins or ends. */
static void find_classes(struct grammar *g, const bool cut[257])
{
    uint32_t n = 0;
    for (unsigned c = 0; c < 256; c++) {
        if (c > 0 && cut[c]) {
            n++;
        }
        if (g->class_size[n] == 0) {
            g->byte_of[n] = (uint8_t)c;
        }
        g->class_of[c] = (uint8_t)n;
        g->class_size[n]++;
    }
    g->n_classes = n + 1;
}

static bool make(struct grammar *g, const struct builder *b)
{
    size_t moves = 0;
    size_t bytes = 0;
    for (uint32_t s = 0; s < b->n_states; s++) {
        for (uint32_t i = b->states[s].edges; i != 0; i = b->edges[i].next) {
            bool byte = b->edges[i].kind == EDGE_BYTES;
            bytes += byte;
            moves += !byte;
        }
    }
    g->states = calloc((size_t)b->n_states + 1, sizeof(*g->states));
    g->ends = calloc((size_t)b->n_states + 1, sizeof(*g->ends));
    g->bytes = calloc(bytes + 1, sizeof(*g->bytes));
    g->moves = calloc(moves + 1, sizeof(*g->moves));
    return g->states != NULL && g->ends != NULL && g->bytes != NULL &&
           g->moves != NULL;
}

static void fill(struct grammar *g, const struct builder *b)
{
    bool cut[257] = {false};
    for (uint32_t s = 0; s < b->n_states; s++) {
        g->states[s] = (struct gram_state){g->n_bytes, g->n_moves};
        g->ends[s] = is_end(b, s);
        for (uint32_t i = b->states[s].edges; i != 0; i = b->edges[i].next) {
            const struct edge *e = &b->edges[i];
            uint32_t to = skip(b, e->to);
            if (e->kind == EDGE_BYTES) {
                g->bytes[g->n_bytes++] = (struct byte_edge){to, e->lo, e->hi};
                cut[e->lo] = true;
                cut[e->hi + 1] = true;
                continue;
            }
            struct move m = {to, NO_STATE};
            if (e->kind == EDGE_CALL) {
                m.call = skip(b, b->rules[e->call].start);
                m.to = is_end(b, to) && b->states[to].edges == 0 ? NO_STATE
                                                                 : to;
            }
            g->moves[g->n_moves++] = m;
        }
    }
    g->states[b->n_states] = (struct gram_state){g->n_bytes, g->n_moves};
    g->n_states = b->n_states;
    find_classes(g, cut);
}

int build_compile(struct builder *b, uint32_t root, struct grammar **ret)
{
    struct grammar *g = b->rc == 0 ? calloc(1, sizeof(*g)) : NULL;
    if (g == NULL || !make(g, b)) {
        grammar_free(g);
        return build_fail(b, ERR_NOMEM, "a grammar of %u states", b->n_states);
    }
    fill(g, b);
    g->start = skip(b, b->rules[root].start);
    *ret = g;
    return 0;
}

int build_finish(struct builder *b, uint32_t root, struct grammar **ret)
{
    int rc = build_check(b, root);
    if (rc == 0) {
        rc = build_compile(b, root, ret);
    }
    build_fini(b);
    return rc;
}

void grammar_free(struct grammar *g)
{
    if (g == NULL) {
        return;
    }
    free(g->states);
    free(g->bytes);
    free(g->moves);
    free(g->ends);
    free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    return sizeof(*g) + g->n_states * (sizeof(*g->states) + sizeof(bool)) +
           g->n_bytes * sizeof(*g->bytes) + g->n_moves * sizeof(*g->moves);
}
