/* order.c - a graph is one that can be computed: no value depends on itself.
 *
 * Exporters should write nodes in order, and not all do, so they are sorted
 * here: nodes whose inputs are all made come first (Kahn). What is left over
 * has a cycle. What a graph inside a node reads from around it is not counted:
 * aned takes such graphs only when they are constants.
 */
#include "source/onnx/onnx.h"

struct order {
    uint32_t *waits; /* of each node: inputs that are not made */
    uint32_t *first; /* of each node: its readers in `readers` */
    uint32_t *readers;
    uint32_t *ready;
};

/* The node of g that makes v, or n_nodes. */
static size_t maker(const struct onnx_graph *g, const struct onnx_value *v)
{
    if (v == NULL || v->node == NULL || v->node < g->nodes ||
        v->node >= g->nodes + g->n_nodes) {
        return g->n_nodes;
    }
    return (size_t)(v->node - g->nodes);
}

static void count(const struct onnx_graph *g, struct order *o)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        for (size_t k = 0; k < g->nodes[i].n_in; k++) {
            size_t from = maker(g, g->nodes[i].in[k]);
            if (from < g->n_nodes) {
                o->waits[i]++;
                o->first[from + 1]++;
            }
        }
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        o->first[i + 1] += o->first[i];
    }
}

static size_t sort(const struct onnx_graph *g, struct order *o)
{
    size_t done = 0;
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (o->waits[i] == 0) {
            o->ready[n++] = (uint32_t)i;
        }
    }
    for (; done < n; done++) {
        uint32_t from = o->ready[done];
        for (uint32_t r = o->first[from]; r < o->first[from + 1]; r++) {
            if (--o->waits[o->readers[r]] == 0) {
                o->ready[n++] = o->readers[r];
            }
        }
    }
    return done;
}

static void fill(const struct onnx_graph *g, struct order *o, uint32_t *at)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        at[i] = o->first[i];
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        for (size_t k = 0; k < g->nodes[i].n_in; k++) {
            size_t from = maker(g, g->nodes[i].in[k]);
            if (from < g->n_nodes) {
                o->readers[at[from]++] = (uint32_t)i;
            }
        }
    }
}

int onnx_check_order(struct onnx *m, const struct onnx_graph *g, struct err *e)
{
    size_t n = g->n_nodes;
    size_t edges = 0;
    for (size_t i = 0; i < n; i++) {
        edges += g->nodes[i].n_in;
    }
    struct order o = {
        .waits = arena_array(&m->arena, n + 1, sizeof(uint32_t)),
        .first = arena_array(&m->arena, n + 2, sizeof(uint32_t)),
        .readers = arena_array(&m->arena, edges + 1, sizeof(uint32_t)),
        .ready = arena_array(&m->arena, n + 1, sizeof(uint32_t)),
    };
    uint32_t *at = arena_array(&m->arena, n + 1, sizeof(uint32_t));
    if (o.waits == NULL || o.first == NULL || o.readers == NULL ||
        o.ready == NULL || at == NULL) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    count(g, &o);
    fill(g, &o, at);
    if (sort(g, &o) == n) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (o.waits[i] > 0) {
            return err_set(e, ERR_ONNX,
                           "node '%.100s' (%.60s) needs its own result: the "
                           "graph has a cycle",
                           g->nodes[i].name, g->nodes[i].op);
        }
    }
    return err_set(e, ERR_INTERNAL, "a graph that cannot be sorted");
}
