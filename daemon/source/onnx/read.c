/* read.c - a serialized model becomes a graph.
 *
 * protobuf-c unpacks into an arena whose limit is a multiple of the file, so a
 * small hostile file cannot take much memory. The schema has no recursion:
 * graphs inside attributes are unpacked here, level by level. Names are bound
 * when all nodes of a graph are known; every value is made once, in its graph
 * or in one around it.
 */
#include <string.h>

#include "base/utf8.h"
#include "source/onnx/reader.h"

struct onnx_reader {
    struct onnx *m;
    const struct onnx_files *files;
    ProtobufCAllocator alloc;
};

static int no_memory(struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "the model needs too much memory");
}

static void *pb_alloc(void *ctx, size_t n)
{
    return arena_alloc(ctx, n > 0 ? n : 1);
}

static void pb_free(void *ctx, void *p)
{
    (void)ctx;
    (void)p; /* dies with the arena */
}

int onnx_text(struct onnx *m, const uint8_t *p, size_t n, size_t max,
              const char *what, const char **ret, struct err *e)
{
    if (n > max) {
        return err_set(e, ERR_ONNX, "%s has %zu bytes, more than %zu", what, n,
                       max);
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] < 0x20 || p[i] == 0x7f) {
            return err_set(e, ERR_ONNX, "%s has the control character %u", what,
                           p[i]);
        }
    }
    if (n > 0 && !utf8_valid((const char *)p, n)) {
        return err_set(e, ERR_ONNX, "%s is not UTF-8", what);
    }
    *ret = n > 0 ? arena_strn(&m->arena, (const char *)p, n) : "";
    return *ret != NULL ? 0 : no_memory(e);
}

static int read_name(struct onnx_reader *r, ProtobufCBinaryData b,
                     const char *what, const char **ret, struct err *e)
{
    return onnx_text(r->m, b.data, b.len, ONNX_NAME_MAX, what, ret, e);
}

static int new_value(struct onnx_reader *r, struct onnx_graph *g,
                     const char *name, struct onnx_value **ret, struct err *e)
{
    if (++r->m->n_values > ONNX_VALUES_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u values", ONNX_VALUES_MAX);
    }
    struct onnx_value *v = arena_alloc(&r->m->arena, sizeof(*v));
    if (v == NULL) {
        return no_memory(e);
    }
    v->name = name;
    *ret = v;
    return onnx_names_add(r->m, g, v, e);
}

/* --- attributes --- */

static int read_graph(struct onnx_reader *r, const Ox__Graph *in,
                      struct onnx_graph *g, struct err *e);

static int read_inner(struct onnx_reader *r, const struct onnx_graph *outer,
                      ProtobufCBinaryData b, struct onnx_graph **ret,
                      struct err *e)
{
    if (outer->depth >= ONNX_NEST_MAX) {
        return err_set(e, ERR_TOO_BIG, "graphs nested deeper than %u",
                       ONNX_NEST_MAX);
    }
    const Ox__Graph *in = ox__graph__unpack(&r->alloc, b.len, b.data);
    struct onnx_graph *g = arena_alloc(&r->m->arena, sizeof(*g));
    if (in == NULL || g == NULL) {
        return in == NULL ? err_set(e, ERR_ONNX, "its graph is malformed")
                          : no_memory(e);
    }
    g->outer = outer;
    g->depth = outer->depth + 1;
    *ret = g;
    return read_graph(r, in, g, e);
}

static int read_numbers(struct onnx_reader *r, const Ox__Attribute *in,
                        struct onnx_attr *a, struct err *e)
{
    bool ints = a->kind == ONNX_ATTR_INTS;
    a->n = ints ? in->n_ints : in->n_floats;
    if (a->n > ONNX_LIST_MAX) {
        return err_set(e, ERR_TOO_BIG, "%zu numbers, more than %u", a->n,
                       ONNX_LIST_MAX);
    }
    size_t size = ints ? sizeof(int64_t) : sizeof(float);
    void *p = arena_array(&r->m->arena, a->n + 1, size);
    if (p == NULL) {
        return no_memory(e);
    }
    if (a->n > 0) {
        memcpy(p, ints ? (const void *)in->ints : (const void *)in->floats,
               a->n * size);
    }
    a->ints = ints ? p : NULL;
    a->floats = ints ? NULL : p;
    return 0;
}

static int read_tensor_attr(struct onnx_reader *r, const Ox__Tensor *in,
                            struct onnx_attr *a, struct err *e)
{
    struct onnx_tensor *t = arena_alloc(&r->m->arena, sizeof(*t));
    if (in == NULL || t == NULL) {
        return in == NULL ? err_set(e, ERR_ONNX, "it has no tensor")
                          : no_memory(e);
    }
    a->t = t;
    return onnx_tensor_read(r->m, r->files, in, t, e);
}

static int read_attr_value(struct onnx_reader *r, const struct onnx_graph *g,
                           const Ox__Attribute *in, struct onnx_attr *a,
                           struct err *e)
{
    switch (a->kind) {
    case ONNX_ATTR_FLOAT:
        a->f = in->f;
        return 0;
    case ONNX_ATTR_INT:
        a->i = in->i;
        return 0;
    case ONNX_ATTR_STRING:
        return onnx_text(r->m, in->s.data, in->s.len, ONNX_NAME_MAX, "its text",
                         &a->s, e);
    case ONNX_ATTR_TENSOR:
        return read_tensor_attr(r, in->t, a, e);
    case ONNX_ATTR_GRAPH:
        return read_inner(r, g, in->g, &a->g, e);
    case ONNX_ATTR_FLOATS:
    case ONNX_ATTR_INTS:
        return read_numbers(r, in, a, e);
    case ONNX_ATTR_STRINGS:
        return 0; /* no operation that aned knows has one that is set */
    }
    return err_set(e, ERR_UNSUPPORTED, "its kind is %d, which aned does not read",
                   in->type);
}

static int read_attr(struct onnx_reader *r, const struct onnx_graph *g,
                     const Ox__Attribute *in, struct onnx_attr *a,
                     struct err *e)
{
    int rc = 0;
    RETERR(read_name(r, in->name, "an attribute's name", &a->name, e));
    if (in->base.n_unknown_fields > 0 || in->ref_attr_name.len > 0 ||
        in->sparse_tensor.len > 0 || in->n_sparse_tensors > 0 ||
        in->tp.len > 0 || in->n_type_protos > 0 || in->n_tensors > 0 ||
        in->n_graphs > 0) {
        rc = err_set(e, ERR_UNSUPPORTED,
                     "it has fields that aned does not read");
    } else {
        a->kind = (enum onnx_kind)in->type;
        rc = read_attr_value(r, g, in, a, e);
    }
    return rc < 0 ? err_prefix(e, rc, "attribute '%.60s'", a->name) : 0;
}

/* --- nodes --- */

/* A Constant's value is known as an initialiser's is. */
static void take_constant(struct onnx_node *n)
{
    if (strcmp(n->op, "Constant") == 0 && n->domain[0] == '\0' &&
        n->n_attrs == 1 && n->n_out == 1 && n->out[0] != NULL &&
        n->attrs[0].kind == ONNX_ATTR_TENSOR &&
        strcmp(n->attrs[0].name, "value") == 0) {
        n->out[0]->init = n->attrs[0].t;
        n->seen = true;
    }
}

static int read_outputs(struct onnx_reader *r, struct onnx_graph *g,
                        const Ox__Node *in, struct onnx_node *n, struct err *e)
{
    n->out = arena_array(&r->m->arena, in->n_output + 1, sizeof(*n->out));
    if (n->out == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_output; i++) {
        const char *name = NULL;
        RETERR(read_name(r, in->output[i], "an output's name", &name, e));
        if (name[0] == '\0') {
            continue;
        }
        RETERR(new_value(r, g, name, &n->out[i], e));
        n->out[i]->node = n;
        n->out[i]->out = i;
    }
    n->n_out = in->n_output;
    return 0;
}

/* Its names and results; what it reads is bound when all nodes are known. */
static int read_node(struct onnx_reader *r, struct onnx_graph *g,
                     const Ox__Node *in, struct onnx_node *n, struct err *e)
{
    if (in->n_input > ONNX_ARGS_MAX || in->n_output > ONNX_ARGS_MAX ||
        in->n_attribute > ONNX_ARGS_MAX) {
        return err_set(e, ERR_TOO_BIG,
                       "more than %u inputs, outputs or attributes",
                       ONNX_ARGS_MAX);
    }
    if (in->base.n_unknown_fields > 0 || in->overload.len > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "it has fields that aned does not read");
    }
    RETERR(read_name(r, in->op_type, "an operation's name", &n->op, e));
    RETERR(read_name(r, in->domain, "an operation's domain", &n->domain, e));
    if (n->op[0] == '\0') {
        return err_set(e, ERR_ONNX, "it has no operation");
    }
    if (strcmp(n->domain, "ai.onnx") == 0) {
        n->domain = "";
    }
    return read_outputs(r, g, in, n, e);
}

static int bind_inputs(struct onnx_reader *r, const struct onnx_graph *g,
                       const Ox__Node *in, struct onnx_node *n, struct err *e)
{
    n->in = arena_array(&r->m->arena, in->n_input + 1, sizeof(*n->in));
    if (n->in == NULL) {
        return no_memory(e);
    }
    n->n_in = in->n_input;
    for (size_t i = 0; i < in->n_input; i++) {
        const char *name = NULL;
        RETERR(read_name(r, in->input[i], "an input's name", &name, e));
        if (name[0] == '\0') {
            continue;
        }
        n->in[i] = onnx_names_find(g, name);
        if (n->in[i] == NULL) {
            return err_set(e, ERR_ONNX, "nothing makes its input '%.120s'",
                           name);
        }
    }
    return 0;
}

static int read_attrs(struct onnx_reader *r, const struct onnx_graph *g,
                      const Ox__Node *in, struct onnx_node *n, struct err *e)
{
    n->attrs =
        arena_array(&r->m->arena, in->n_attribute + 1, sizeof(*n->attrs));
    if (n->attrs == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_attribute; i++) {
        RETERR(read_attr(r, g, in->attribute[i], &n->attrs[i], e));
        for (size_t k = 0; k < i; k++) {
            if (strcmp(n->attrs[k].name, n->attrs[i].name) == 0) {
                return err_set(e, ERR_ONNX, "attribute '%.60s' stands twice",
                               n->attrs[i].name);
            }
        }
        n->n_attrs = i + 1;
    }
    take_constant(n);
    return 0;
}

static int node_error(struct err *e, int rc, const struct onnx_node *n,
                      size_t i)
{
    return err_prefix(e, rc, "node %zu '%.100s' (%.60s)", i,
                      n->name != NULL ? n->name : "",
                      n->op != NULL ? n->op : "");
}

static int read_nodes(struct onnx_reader *r, const Ox__Graph *in,
                      struct onnx_graph *g, struct err *e)
{
    r->m->n_nodes += in->n_node;
    if (r->m->n_nodes > ONNX_NODES_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u nodes", ONNX_NODES_MAX);
    }
    g->nodes = arena_array(&r->m->arena, in->n_node + 1, sizeof(*g->nodes));
    if (g->nodes == NULL) {
        return no_memory(e);
    }
    g->n_nodes = in->n_node;
    for (size_t i = 0; i < in->n_node; i++) {
        struct onnx_node *n = &g->nodes[i];
        int rc = read_name(r, in->node[i]->name, "a node's name", &n->name, e);
        rc = rc < 0 ? rc : read_node(r, g, in->node[i], n, e);
        if (rc < 0) {
            return node_error(e, rc, n, i);
        }
    }
    for (size_t i = 0; i < in->n_node; i++) {
        int rc = bind_inputs(r, g, in->node[i], &g->nodes[i], e);
        rc = rc < 0 ? rc : read_attrs(r, g, in->node[i], &g->nodes[i], e);
        if (rc < 0) {
            return node_error(e, rc, &g->nodes[i], i);
        }
    }
    return 0;
}

/* --- graphs --- */

static int read_inits(struct onnx_reader *r, const Ox__Graph *in,
                      struct onnx_graph *g, struct err *e)
{
    g->inits =
        arena_array(&r->m->arena, in->n_initializer + 1, sizeof(*g->inits));
    if (g->inits == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_initializer; i++) {
        struct onnx_tensor *t = &g->inits[i];
        struct onnx_value *v = NULL;
        RETERR(onnx_tensor_read(r->m, r->files, in->initializer[i], t, e));
        if (t->name[0] == '\0') {
            return err_set(e, ERR_ONNX, "initialiser %zu has no name", i);
        }
        RETERR(new_value(r, g, t->name, &v, e));
        v->init = t;
        g->n_inits = i + 1;
    }
    return 0;
}

/* An input of an initialiser's name is that initialiser (IR 3 and before). */
static int read_inputs(struct onnx_reader *r, const Ox__Graph *in,
                       struct onnx_graph *g, struct err *e)
{
    g->inputs = arena_array(&r->m->arena, in->n_input + 1, sizeof(*g->inputs));
    if (g->inputs == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_input; i++) {
        const char *name = NULL;
        RETERR(read_name(r, in->input[i]->name, "an input's name", &name, e));
        struct onnx_value *v = onnx_names_find(g, name);
        if (v != NULL && v->init != NULL && !v->input) {
            continue;
        }
        RETERR(new_value(r, g, name, &v, e));
        v->input = true;
        g->inputs[g->n_inputs++] = v;
    }
    return 0;
}

static int bind_outputs(struct onnx_reader *r, const Ox__Graph *in,
                        struct onnx_graph *g, struct err *e)
{
    g->outputs =
        arena_array(&r->m->arena, in->n_output + 1, sizeof(*g->outputs));
    if (g->outputs == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_output; i++) {
        const char *name = NULL;
        RETERR(read_name(r, in->output[i]->name, "an output's name", &name, e));
        g->outputs[i] = onnx_names_find(g, name);
        if (g->outputs[i] == NULL) {
            return err_set(e, ERR_ONNX, "nothing makes the output '%.120s'",
                           name);
        }
    }
    g->n_outputs = in->n_output;
    return 0;
}

static int read_graph(struct onnx_reader *r, const Ox__Graph *in,
                      struct onnx_graph *g, struct err *e)
{
    if (in->base.n_unknown_fields > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "the graph has fields that aned does not read");
    }
    if (in->n_sparse_initializer > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "sparse initialisers are not converted");
    }
    RETERR(read_inits(r, in, g, e));
    RETERR(read_inputs(r, in, g, e));
    RETERR(read_nodes(r, in, g, e));
    RETERR(bind_outputs(r, in, g, e));
    return onnx_check_order(r->m, g, e);
}

/* --- the model --- */

static int read_opsets(struct onnx_reader *r, const Ox__Model *in,
                       struct err *e)
{
    struct onnx *m = r->m;
    bool standard = false;
    if (in->n_opset_import > ONNX_OPSETS_MAX) {
        return err_set(e, ERR_TOO_BIG, "%zu sets of operations",
                       in->n_opset_import);
    }
    m->opsets =
        arena_array(&m->arena, in->n_opset_import + 1, sizeof(*m->opsets));
    if (m->opsets == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_opset_import; i++) {
        struct onnx_opset *o = &m->opsets[i];
        RETERR(read_name(r, in->opset_import[i]->domain, "a domain's name",
                         &o->domain, e));
        o->version = in->opset_import[i]->version;
        bool own = o->domain[0] == '\0' || strcmp(o->domain, "ai.onnx") == 0;
        standard = standard || own;
        m->n_opsets = i + 1;
    }
    return standard ? 0
                    : err_set(e, ERR_ONNX,
                              "no version of the operations is given: not an "
                              "ONNX model");
}

static int read_model(struct onnx_reader *r, const Ox__Model *in,
                      struct err *e)
{
    if (in->graph == NULL) {
        return err_set(e, ERR_ONNX, "it has no graph: not an ONNX model");
    }
    if (in->base.n_unknown_fields > 0 || in->n_functions > 0 ||
        in->n_training_info > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       in->n_functions > 0
                           ? "functions of a model's own are not converted"
                           : "the model has fields that aned does not read");
    }
    r->m->ir = in->ir_version;
    RETERR(read_name(r, in->producer_name, "the producer's name",
                     &r->m->producer, e));
    RETERR(read_opsets(r, in, e));
    RETERR(read_graph(r, in->graph, &r->m->graph, e));
    return onnx_check_overlap(r->m, e);
}

int onnx_read(struct onnx *ret, const void *p, size_t n,
              const struct onnx_files *files, struct err *e)
{
    struct onnx_reader r = {.m = ret, .files = files};
    int rc = 0;
    *ret = (struct onnx){.producer = ""};
    if (n > ONNX_MODEL_BYTES_MAX) {
        return err_set(e, ERR_TOO_BIG,
                       "the model's file has %zu bytes; its weights must lie "
                       "in files beside it when they pass %zu",
                       n, ONNX_MODEL_BYTES_MAX);
    }
    size_t limit = ONNX_MEMORY_BASE + ONNX_MEMORY_FACTOR * n;
    arena_init(&ret->arena, limit);
    arena_init(&ret->scratch, limit);
    r.alloc = (ProtobufCAllocator){pb_alloc, pb_free, &ret->scratch};
    const Ox__Model *in = ox__model__unpack(&r.alloc, n, p);
    rc = in == NULL
             ? err_set(e, ERR_ONNX,
                       "not an ONNX model: the file is malformed or cut off")
             : read_model(&r, in, e);
    arena_fini(&ret->scratch);
    if (rc < 0) {
        onnx_fini(ret);
    }
    return rc;
}

void onnx_fini(struct onnx *m)
{
    arena_fini(&m->arena);
    arena_fini(&m->scratch);
    *m = (struct onnx){0};
}
