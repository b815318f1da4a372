/* mask.c - attention masks that are computed as a tensor.
 *
 * Exporters build them of some sixty nodes about shapes. What such a graph means
 * is not worked out here: its canonical form (operations, attributes,
 * constants, and how they hang together, without any name) must be one that is
 * known. The form is a digest over the digests of what a node reads, so equal
 * forms have equal digests and no others do. The first input that a walk comes
 * to is input 0, and so on; a known form says what these are.
 */
#include <string.h>

#include "base/hash.h"
#include "source/onnx/decoder.h"

enum { MASK_NODES = 256, MASK_DEPTH = 96, MASK_INPUTS = 4 };

struct mask_walk {
    size_t n_nodes, n_inputs;
    struct {
        struct onnx_node *node;
        uint8_t digest[SHA256_BYTES];
    } nodes[MASK_NODES];
    const struct onnx_value *inputs[MASK_INPUTS];
};

enum mask_role { ROLE_IDS, ROLE_MASK, ROLE_PAST };

static const struct {
    const char *digest;
    enum mask_role roles[3]; /* of the inputs, as the walk meets them */
} known[] = {
    /* Causal, and nothing that the mask leaves out: 0, else the least half.
     * onnxruntime-genai's builder before 0.5, for MultiHeadAttention. */
    {"bc006e8c151b50898f25b2cad758781d"
     "bd3322bb89570258f4461d44462eec74",
     {ROLE_MASK, ROLE_IDS, ROLE_PAST}},
};

static int walk(struct mask_walk *w, const struct onnx_value *v, unsigned depth,
                uint8_t out[SHA256_BYTES], struct err *e);

static void add_text(struct sha256 *s, const char *text)
{
    sha256_add(s, text, strlen(text) + 1);
}

static void add_tensor(struct sha256 *s, const struct onnx_tensor *t)
{
    uint32_t head[2] = {(uint32_t)t->type, t->n_dims};
    add_text(s, "constant");
    sha256_add(s, head, sizeof(head));
    sha256_add(s, t->dims, t->n_dims * sizeof(t->dims[0]));
    sha256_add(s, t->data, (size_t)t->bytes);
}

static int add_attr(struct sha256 *s, const struct onnx_node *n,
                    const struct onnx_attr *a, struct err *e)
{
    add_text(s, a->name);
    if (a->kind == ONNX_ATTR_INT) {
        sha256_add(s, &a->i, sizeof(a->i));
    } else if (a->kind == ONNX_ATTR_INTS) {
        sha256_add(s, a->ints, a->n * sizeof(*a->ints));
    } else if (a->kind == ONNX_ATTR_TENSOR) {
        add_tensor(s, a->t);
    } else {
        return onnx_not(n, e, "no part of a mask that aned knows");
    }
    return 0;
}

/* Attributes in the order of their names. */
static int add_attrs(struct sha256 *s, const struct onnx_node *n, struct err *e)
{
    const struct onnx_attr *last = NULL;
    for (size_t done = 0; done < n->n_attrs; done++) {
        const struct onnx_attr *next = NULL;
        for (size_t i = 0; i < n->n_attrs; i++) {
            const struct onnx_attr *a = &n->attrs[i];
            bool after = last == NULL || strcmp(a->name, last->name) > 0;
            if (after && (next == NULL || strcmp(a->name, next->name) < 0)) {
                next = a;
            }
        }
        must(next != NULL); /* names differ */
        RETERR(add_attr(s, n, next, e));
        last = next;
    }
    return 0;
}

static int add_input(struct mask_walk *w, struct sha256 *s,
                     const struct onnx_value *v, struct err *e)
{
    uint8_t at = 0;
    while (at < w->n_inputs && w->inputs[at] != v) {
        at++;
    }
    if (at == MASK_INPUTS) {
        return err_set(e, ERR_ONNX_GRAPH, "a mask of more than %d inputs",
                       MASK_INPUTS);
    }
    w->inputs[at] = v;
    w->n_inputs += at == w->n_inputs;
    add_text(s, "input");
    sha256_add(s, &at, 1);
    return 0;
}

static int walk_node(struct mask_walk *w, struct onnx_node *n, unsigned depth,
                     struct sha256 *s, struct err *e)
{
    uint8_t part[SHA256_BYTES];
    add_text(s, n->domain);
    add_text(s, n->op);
    RETERR(add_attrs(s, n, e));
    for (size_t i = 0; i < n->n_in; i++) {
        RETERR(walk(w, n->in[i], depth + 1, part, e));
        sha256_add(s, part, sizeof(part));
    }
    return 0;
}

static int walk(struct mask_walk *w, const struct onnx_value *v, unsigned depth,
                uint8_t out[SHA256_BYTES], struct err *e)
{
    struct sha256 s;
    sha256_init(&s);
    if (v == NULL || depth > MASK_DEPTH) {
        return err_set(e, ERR_ONNX_GRAPH, "a mask deeper than %d nodes",
                       MASK_DEPTH);
    }
    for (size_t i = 0; i < w->n_nodes; i++) {
        if (v->node != NULL && w->nodes[i].node == v->node && v->out == 0) {
            memcpy(out, w->nodes[i].digest, SHA256_BYTES);
            return 0;
        }
    }
    if (v->init != NULL) {
        add_tensor(&s, v->init);
    } else if (v->input) {
        RETERR(add_input(w, &s, v, e));
    } else if (v->out > 0 || v->node == NULL) {
        return onnx_not(v->node, e, "no part of a mask that aned knows");
    } else {
        RETERR(walk_node(w, v->node, depth, &s, e));
    }
    sha256_end(&s, out);
    if (v->node != NULL && v->init == NULL) {
        if (w->n_nodes == MASK_NODES) {
            return onnx_not(v->node, e, "a mask of more than %d nodes",
                            MASK_NODES);
        }
        w->nodes[w->n_nodes].node = v->node;
        memcpy(w->nodes[w->n_nodes++].digest, out, SHA256_BYTES);
    }
    return 0;
}

static int take_roles(struct onnx_decoder *d, const struct mask_walk *w,
                      const enum mask_role *roles, struct err *e)
{
    for (size_t i = 0; i < w->n_inputs; i++) {
        const struct onnx_value **at = roles[i] == ROLE_IDS    ? &d->ids
                                       : roles[i] == ROLE_MASK ? &d->mask
                                                               : &d->mask_past;
        RETERR(onnx_same_input(at, w->inputs[i], NULL, e));
    }
    for (size_t i = 0; i < w->n_nodes; i++) {
        w->nodes[i].node->seen = true;
    }
    return 0;
}

/* Repeated for each head, which changes nothing. */
static int take_tile(struct onnx_value *v, struct onnx_value **ret,
                     struct err *e)
{
    struct onnx_node *n = onnx_made_by(v, "Tile");
    int64_t to[4] = {0, 0, 0, 0};
    *ret = v;
    if (n == NULL) {
        return 0;
    }
    if (onnx_const_ints(onnx_in(n, 1), to, 4) != 4 || to[0] != 1 || to[2] != 1 ||
        to[3] != 1) {
        return onnx_not(n, e, "a mask that is repeated other than for heads");
    }
    *ret = onnx_in(n, 0);
    return onnx_take(n, "", 2, e);
}

int onnx_match_mask(struct onnx_decoder *d, struct onnx_value *v,
                    struct err *e)
{
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    if (v != NULL && v == d->mask_tensor) {
        return 0;
    }
    d->mask_tensor = v;
    RETERR(take_tile(v, &v, e));
    struct mask_walk *w = arena_alloc(&d->m->arena, sizeof(*w));
    if (w == NULL) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    RETERR(walk(w, v, 0, digest, e));
    sha256_hex(digest, hex);
    for (size_t i = 0; i < countof(known); i++) {
        if (strcmp(hex, known[i].digest) == 0) {
            return take_roles(d, w, known[i].roles, e);
        }
    }
    return onnx_not(v->node, e, "a mask of %zu nodes that aned does not know (form "
                    "%.16s)",
                    w->n_nodes, hex);
}
