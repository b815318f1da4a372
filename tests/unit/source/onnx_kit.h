/* onnx_kit.h - ONNX models in memory, sound or broken on purpose: messages that
 * a test changes before they are packed, and a whole small decoder. */
#pragma once

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "source/onnx/onnx.h"
#include "source/onnx/onnx.pb-c.h"

struct kit {
    struct arena a;
    Ox__Model *m;
    Ox__Graph *g;
};

static inline void *kit_new(struct kit *k, const ProtobufCMessageDescriptor *d)
{
    void *p = arena_alloc(&k->a, d->sizeof_message);
    must(p != NULL);
    protobuf_c_message_init(d, p);
    return p;
}
#define KIT_NEW(k, type) ((Ox__##type *)kit_new(k, &ox__##type##__desc))
#define ox__Model__desc        ox__model__descriptor
#define ox__Graph__desc        ox__graph__descriptor
#define ox__Node__desc         ox__node__descriptor
#define ox__Tensor__desc       ox__tensor__descriptor
#define ox__Attribute__desc    ox__attribute__descriptor
#define ox__ValueInfo__desc    ox__value_info__descriptor
#define ox__OperatorSet__desc  ox__operator_set__descriptor
#define ox__Entry__desc        ox__entry__descriptor

static inline ProtobufCBinaryData kit_bytes(struct kit *k, const void *p,
                                            size_t n)
{
    uint8_t *to = arena_alloc(&k->a, n + 1);
    must(to != NULL);
    if (n > 0) {
        memcpy(to, p, n);
    }
    return (ProtobufCBinaryData){n, to};
}
static inline ProtobufCBinaryData kit_text(struct kit *k, const char *s)
{
    return kit_bytes(k, s, strlen(s));
}

/* One more pointer in a repeated field. */
static inline void kit_push(struct kit *k, size_t *n, void ***list, void *p)
{
    void **to = arena_array(&k->a, *n + 1, sizeof(*to));
    must(to != NULL);
    if (*n > 0) {
        memcpy(to, *list, *n * sizeof(*to));
    }
    to[(*n)++] = p;
    *list = to;
}
#define KIT_PUSH(k, owner, field, p) \
    kit_push(k, &(owner)->n_##field, (void ***)(void *)&(owner)->field, p)

/* Names with commas between; an empty one is an input that is left out. */
static inline void kit_names(struct kit *k, const char *list, size_t *n,
                             ProtobufCBinaryData **ret)
{
    ProtobufCBinaryData *to = arena_array(&k->a, 80, sizeof(*to));
    must(to != NULL);
    *n = 0;
    while (*list != '\0') {
        size_t len = strcspn(list, ",");
        to[(*n)++] = kit_bytes(k, list, len);
        list += len + (list[len] == ',');
    }
    *ret = to;
}

static inline Ox__Node *kit_node(struct kit *k, Ox__Graph *g, const char *op,
                                 const char *in, const char *out)
{
    Ox__Node *n = KIT_NEW(k, Node);
    static const char *const microsoft[] = {
        "MatMulNBits", "GatherBlockQuantized", "GroupQueryAttention",
        "RotaryEmbedding", "SkipSimplifiedLayerNormalization",
        "CausalConvWithState", "MultiHeadAttention", "QMoE"};
    n->op_type = kit_text(k, op);
    n->name = kit_text(k, out);
    for (size_t i = 0; i < countof(microsoft); i++) {
        if (strcmp(op, microsoft[i]) == 0) {
            n->domain = kit_text(k, "com.microsoft");
        }
    }
    kit_names(k, in, &n->n_input, &n->input);
    kit_names(k, out, &n->n_output, &n->output);
    KIT_PUSH(k, g, node, n);
    return n;
}

static inline Ox__Attribute *kit_attr(struct kit *k, Ox__Node *n,
                                      const char *name, int32_t type)
{
    Ox__Attribute *a = KIT_NEW(k, Attribute);
    a->name = kit_text(k, name);
    a->type = type;
    KIT_PUSH(k, n, attribute, a);
    return a;
}
static inline void kit_int(struct kit *k, Ox__Node *n, const char *name,
                           int64_t v)
{
    kit_attr(k, n, name, ONNX_ATTR_INT)->i = v;
}
static inline void kit_float(struct kit *k, Ox__Node *n, const char *name,
                             float v)
{
    kit_attr(k, n, name, ONNX_ATTR_FLOAT)->f = v;
}

static inline Ox__Tensor *kit_tensor(struct kit *k, const char *name,
                                     int32_t type, const int64_t *dims,
                                     size_t n_dims, const void *raw, size_t n)
{
    Ox__Tensor *t = KIT_NEW(k, Tensor);
    t->name = kit_text(k, name);
    t->data_type = type;
    t->n_dims = n_dims;
    t->dims = arena_array(&k->a, n_dims + 1, sizeof(*t->dims));
    must(t->dims != NULL);
    if (n_dims > 0) { /* dims may be NULL */
        memcpy(t->dims, dims, n_dims * sizeof(*dims));
    }
    t->raw_data = kit_bytes(k, raw, n);
    return t;
}

/* An initialiser of floats that a seed makes; rows 0: a vector. */
static inline Ox__Tensor *kit_floats(struct kit *k, Ox__Graph *g,
                                     const char *name, int64_t rows,
                                     int64_t cols)
{
    const int64_t dims[2] = {rows > 0 ? rows : cols, cols};
    size_t n = (size_t)((rows > 0 ? rows : 1) * cols);
    float *x = arena_array(&k->a, n, sizeof(*x));
    must(x != NULL);
    uint32_t s = (uint32_t)(rows * 31 + cols) + (uint32_t)name[0];
    for (size_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) / 16777216.0f - 0.5f;
    }
    Ox__Tensor *t = kit_tensor(k, name, ONNX_FLOAT, dims, rows > 0 ? 2 : 1, x,
                               n * sizeof(*x));
    KIT_PUSH(k, g, initializer, t);
    return t;
}

/* A Constant of whole numbers. */
static inline void kit_ints(struct kit *k, Ox__Graph *g, const char *name,
                            const int64_t *v, size_t n)
{
    const int64_t dims[1] = {(int64_t)n};
    Ox__Node *c = kit_node(k, g, "Constant", "", name);
    kit_attr(k, c, "value", ONNX_ATTR_TENSOR)->t =
        kit_tensor(k, "", ONNX_INT64, dims, 1, v, n * 8);
}

static inline void kit_port(struct kit *k, Ox__Graph *g, const char *name,
                            bool out)
{
    Ox__ValueInfo *v = KIT_NEW(k, ValueInfo);
    v->name = kit_text(k, name);
    if (out) {
        KIT_PUSH(k, g, output, v);
    } else {
        KIT_PUSH(k, g, input, v);
    }
}

static inline void kit_entry(struct kit *k, Ox__Tensor *t, const char *key,
                             const char *value)
{
    Ox__Entry *x = KIT_NEW(k, Entry);
    x->key = kit_text(k, key);
    x->value = kit_text(k, value);
    KIT_PUSH(k, t, external_data, x);
    t->data_location = 1;
    t->raw_data = (ProtobufCBinaryData){0, NULL};
}

static inline void kit_init(struct kit *k)
{
    *k = (struct kit){.m = NULL};
    arena_init(&k->a, MIB(64));
    k->m = KIT_NEW(k, Model);
    k->g = KIT_NEW(k, Graph);
    k->m->graph = k->g;
    k->m->ir_version = 10;
    Ox__OperatorSet *o = KIT_NEW(k, OperatorSet);
    o->version = 21;
    KIT_PUSH(k, k->m, opset_import, o);
}

static inline struct span kit_pack(struct kit *k)
{
    size_t n = ox__model__get_packed_size(k->m);
    uint8_t *p = arena_alloc(&k->a, n + 1);
    must(p != NULL);
    must(ox__model__pack(k->m, p) == n);
    return (struct span){(const char *)p, n};
}

/* --- a decoder: one layer, width 32, two heads of 16, 40 tokens --- */

enum { KIT_WIDTH = 32, KIT_HEAD = 16, KIT_VOCAB = 40, KIT_FF = 48, KIT_TURNS = 64 };

static inline void kit_tables(struct kit *k, Ox__Graph *g)
{
    const int64_t dims[2] = {KIT_TURNS, KIT_HEAD / 2};
    size_t n = KIT_TURNS * KIT_HEAD / 2;
    float *c = arena_array(&k->a, n, sizeof(*c));
    float *s = arena_array(&k->a, n, sizeof(*s));
    must(c != NULL && s != NULL);
    for (size_t i = 0; i < n; i++) {
        double t = pow(10000, -(double)(i % (KIT_HEAD / 2)) / (KIT_HEAD / 2)) *
                   (double)(i / (KIT_HEAD / 2));
        c[i] = (float)cos(t);
        s[i] = (float)sin(t);
    }
    KIT_PUSH(k, g, initializer,
             kit_tensor(k, "cos", ONNX_FLOAT, dims, 2, c, n * 4));
    KIT_PUSH(k, g, initializer,
             kit_tensor(k, "sin", ONNX_FLOAT, dims, 2, s, n * 4));
}

static inline void kit_lengths(struct kit *k, Ox__Graph *g)
{
    const int64_t one = 1;
    kit_ints(k, g, "one", &one, 1);
    kit_int(k, kit_node(k, g, "ReduceSum", "mask,one", "sum"), "keepdims", 0);
    (void)kit_node(k, g, "Sub", "sum,one", "less64");
    kit_int(k, kit_node(k, g, "Cast", "less64", "less"), "to", ONNX_INT32);
    (void)kit_node(k, g, "Shape", "mask", "shape");
    (void)kit_node(k, g, "Gather", "shape,one", "total64");
    kit_int(k, kit_node(k, g, "Cast", "total64", "total"), "to", ONNX_INT32);
}

static inline void kit_weights(struct kit *k, Ox__Graph *g)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
    } w[] = {
        {"embed",  KIT_VOCAB, KIT_WIDTH}, {"n1",   0,         KIT_WIDTH},
        {"wq",     KIT_WIDTH, KIT_WIDTH}, {"wk",   KIT_WIDTH, KIT_HEAD },
        {"wv",     KIT_WIDTH, KIT_HEAD }, {"wo",   KIT_WIDTH, KIT_WIDTH},
        {"n2",     0,         KIT_WIDTH}, {"wg",   KIT_WIDTH, KIT_FF   },
        {"wu",     KIT_WIDTH, KIT_FF   }, {"wd",   KIT_FF,    KIT_WIDTH},
        {"n3",     0,         KIT_WIDTH}, {"head", KIT_WIDTH, KIT_VOCAB},
    };
    for (size_t i = 0; i < countof(w); i++) {
        (void)kit_floats(k, g, w[i].name, w[i].rows, w[i].cols);
    }
    kit_tables(k, g);
}

/* The plain one (llama), as onnxruntime-genai's builder writes it. */
static inline void kit_decoder(struct kit *k)
{
    static const char *const in[] = {"ids", "mask", "pk", "pv"};
    static const char *const out[] = {"logits", "ok", "ov"};
    kit_init(k);
    Ox__Graph *g = k->g;
    kit_weights(k, g);
    for (size_t i = 0; i < countof(in); i++) {
        kit_port(k, g, in[i], false);
    }
    for (size_t i = 0; i < countof(out); i++) {
        kit_port(k, g, out[i], true);
    }
    kit_lengths(k, g);
    (void)kit_node(k, g, "Gather", "embed,ids", "x0");
    kit_float(k, kit_node(k, g, "SimplifiedLayerNormalization", "x0,n1", "h1"),
              "epsilon", 1e-6f);
    (void)kit_node(k, g, "MatMul", "h1,wq", "q");
    (void)kit_node(k, g, "MatMul", "h1,wk", "k");
    (void)kit_node(k, g, "MatMul", "h1,wv", "v");
    Ox__Node *a = kit_node(k, g, "GroupQueryAttention",
                           "q,k,v,pk,pv,less,total,cos,sin", "att,ok,ov");
    kit_int(k, a, "num_heads", 2);
    kit_int(k, a, "kv_num_heads", 1);
    kit_int(k, a, "do_rotary", 1);
    (void)kit_node(k, g, "MatMul", "att,wo", "o");
    kit_float(k,
              kit_node(k, g, "SkipSimplifiedLayerNormalization", "x0,o,n2",
                       "h2,,,x1"),
              "epsilon", 1e-6f);
    (void)kit_node(k, g, "MatMul", "h2,wg", "gate");
    (void)kit_node(k, g, "MatMul", "h2,wu", "up");
    (void)kit_node(k, g, "Sigmoid", "gate", "sig");
    (void)kit_node(k, g, "Mul", "gate,sig", "act");
    (void)kit_node(k, g, "Mul", "act,up", "both");
    (void)kit_node(k, g, "MatMul", "both,wd", "down");
    kit_float(k,
              kit_node(k, g, "SkipSimplifiedLayerNormalization",
                       "x1,down,n3", "h3"),
              "epsilon", 1e-6f);
    (void)kit_node(k, g, "MatMul", "h3,head", "logits");
}

/* Without the nodes whose first results have these names. */
static inline void kit_drop(struct kit *k, const char *const *names, size_t n)
{
    Ox__Graph *g = k->g;
    size_t kept = 0;
    for (size_t i = 0; i < g->n_node; i++) {
        const ProtobufCBinaryData *out = &g->node[i]->output[0];
        bool drop = false;
        for (size_t j = 0; j < n; j++) {
            drop = drop || (out->len == strlen(names[j]) &&
                            memcmp(out->data, names[j], out->len) == 0);
        }
        g->node[kept] = g->node[i];
        kept += !drop;
    }
    g->n_node = kept;
}

/* A node of the kit's graph by the name of its first result. */
static inline Ox__Node *kit_find(const struct kit *k, const char *name)
{
    for (size_t i = 0; i < k->g->n_node; i++) {
        const Ox__Node *n = k->g->node[i];
        if (n->n_output > 0 && n->output[0].len == strlen(name) &&
            memcmp(n->output[0].data, name, strlen(name)) == 0) {
            return k->g->node[i];
        }
    }
    must(false); /* no such node */
    return NULL;
}
static inline Ox__Tensor *kit_weight(const struct kit *k, const char *name)
{
    for (size_t i = 0; i < k->g->n_initializer; i++) {
        Ox__Tensor *t = k->g->initializer[i];
        if (t->name.len == strlen(name) &&
            memcmp(t->name.data, name, t->name.len) == 0) {
            return t;
        }
    }
    must(false); /* no such initialiser */
    return NULL;
}
