/* inspect_onnx.c - what an ONNX graph holds, and how far it was understood.
 *
 * The names are the model's and stand in its memory, so nothing here reads a
 * mapping. Lists of a hostile file are cut: what is left out is counted. */
#include <string.h>

#include "cli/inspect.h"

enum { INITS_MAX = 4096, KINDS_MAX = 512 };

/* The standard operations' domain has no name in most files. */
static const char *domain_name(const char *domain)
{
    return domain[0] != '\0' ? domain : "ai.onnx";
}

static void add_ports(struct json *o, const char *key,
                      struct onnx_value *const *v, size_t n)
{
    struct json *list = json_add_array(o, key);
    for (size_t i = 0; i < n && i < INITS_MAX; i++) {
        json_add_str(list, NULL, v[i]->name);
    }
}

/* Operations, each kind once, in the order of their first node. */
static void add_operations(struct json *o, const struct onnx_graph *g)
{
    struct kind {
        const struct onnx_node *first;
        size_t n, seen;
    } *kinds = calloc(KINDS_MAX, sizeof(*kinds));
    struct json *list = json_add_array(o, "operations");
    size_t n = 0;
    must(kinds != NULL); /* fixed size */
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct onnx_node *x = &g->nodes[i];
        size_t k = 0;
        while (k < n && (strcmp(kinds[k].first->op, x->op) != 0 ||
                         strcmp(kinds[k].first->domain, x->domain) != 0)) {
            k++;
        }
        if (k == KINDS_MAX) {
            continue;
        }
        if (k == n) {
            kinds[n++].first = x;
        }
        kinds[k].n++;
        kinds[k].seen += x->seen;
    }
    for (size_t k = 0; k < n; k++) {
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "operation", kinds[k].first->op);
        json_add_str(x, "domain", domain_name(kinds[k].first->domain));
        json_add_int(x, "nodes", (int64_t)kinds[k].n);
        json_add_int(x, "understood", (int64_t)kinds[k].seen);
    }
    free(kinds);
}

static void add_inits(struct json *o, const struct onnx_graph *g)
{
    struct json *list = json_add_array(o, "initialisers");
    for (size_t i = 0; i < g->n_inits && i < INITS_MAX; i++) {
        const struct onnx_tensor *t = &g->inits[i];
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "name", t->name);
        json_add_str(x, "type", onnx_type_name(t->type));
        struct json *shape = json_add_array(x, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++) {
            json_add_int(shape, NULL, (int64_t)t->dims[d]);
        }
        json_add_int(x, "bytes", (int64_t)t->bytes);
        if (t->location != NULL) {
            json_add_str(x, "file", t->location);
            json_add_int(x, "offset", (int64_t)t->offset);
        }
    }
    if (g->n_inits > INITS_MAX) {
        json_add_int(o, "more_initialisers", (int64_t)(g->n_inits - INITS_MAX));
    }
}

/* Nodes that nothing of the decoder takes, or that were not come to. */
static void add_left(struct json *root, const struct onnx_graph *g)
{
    struct json *list = NULL;
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct onnx_node *x = &g->nodes[i];
        if (x->seen) {
            continue;
        }
        if (list == NULL) {
            list = json_add_array(root, "not_understood");
        }
        if (n++ < ONNX_SHOWN_MAX) {
            struct json *o = json_add_object(list, NULL);
            json_add_str(o, "operation", x->op);
            json_add_str(o, "node", x->name);
            json_add_str(o, "result",
                         x->n_out > 0 && x->out[0] != NULL ? x->out[0]->name
                                                           : "");
        }
    }
    if (n > 0) {
        json_add_int(root, "nodes_not_understood", (int64_t)n);
    }
}

void inspect_graph(const struct onnx_found *f, struct json *root)
{
    const struct onnx *m = &f->m;
    struct json *o = json_add_object(root, "graph");
    struct json *list = NULL;
    json_add_str(o, "file", f->file);
    json_add_str(o, "producer", m->producer);
    json_add_int(o, "ir", m->ir);
    list = json_add_array(o, "operation_sets");
    for (size_t i = 0; i < m->n_opsets; i++) {
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "domain", domain_name(m->opsets[i].domain));
        json_add_int(x, "version", m->opsets[i].version);
    }
    json_add_int(o, "nodes", (int64_t)m->graph.n_nodes);
    add_ports(o, "inputs", m->graph.inputs, m->graph.n_inputs);
    add_ports(o, "outputs", m->graph.outputs, m->graph.n_outputs);
    add_operations(o, &m->graph);
    list = json_add_array(o, "external_files");
    for (size_t i = 0; i < m->n_files; i++) {
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "file", m->files[i].location);
        json_add_int(x, "bytes", (int64_t)m->files[i].bytes.n);
    }
    add_inits(o, &m->graph);
    add_left(root, &m->graph);
}
