/* fuzz_onnx_drawn.c - a whole ONNX decoder, drawn (draw_onnx.h), and then a few
 * places of it changed, about messages before they are packed. One that has
 * nothing odd must be taken: a generator that no longer fits its reader is
 * seen. */
#include "draw_onnx.h"
#include "onnx_any.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* --- changes --- */

static const char *const op_names[] = {
    "MatMul", "Add", "Mul", "Gather", "Cast", "Shape", "Sub", "ReduceSum",
    "Reshape", "Transpose", "Split", "Sigmoid", "FastGelu", "If", "Constant",
    "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization",
    "GroupQueryAttention", "RotaryEmbedding", "MatMulNBits",
    "GatherBlockQuantized", "DequantizeLinear", "CausalConvWithState", "Gemm",
    "Div", "Tanh", "Greater", "ReduceMax", "MultiHeadAttention", "Tile", "Slice",
    "Gelu", "Identity", "RMSNormalization", "QMoE", "Concat", "Unsqueeze",
    "TopK", "GatherElements", "ScatterElements", "Clip", "Log", "Reciprocal",
};
static const char *const attrs[] = {
    "num_heads", "kv_num_heads", "scale", "local_window_size", "softcap",
    "do_rotary", "epsilon", "axis", "to", "perm", "bits", "block_size", "K",
    "N", "transB", "interleaved", "quantize_axis", "then_branch", "value",
    "activation", "allowzero", "alpha", "approximate", "axes", "beta",
    "else_branch", "gather_axis", "is_packed_batching", "keepdims", "ndim",
    "noop_with_empty_axes", "num_outputs", "qk_norm_epsilon", "qk_output",
    "rotary_embedding_dim", "rotary_interleaved", "saturate", "smooth_softmax",
    "stash_type", "state_window", "transA", "weight_prepacked",
    "accuracy_level", "sliding_window_cache", "k", "expert_weight_bits",
    "swiglu_fusion", "normalize_routing_weights", "largest",
};
static const int64_t numbers[] = {
    0, 1, 2, -1, 3, 4, 8, 16, 31, 32, 33, 40, 48, 64, 1280, 255, 65536,
    INT32_MAX, INT64_MAX, INT64_MIN,
};
static const int32_t types[] = {1, 2, 3, 6, 7, 9, 10, 16, 21, 22, 8, 11, 0};
static const char *const locations[] = {"w.data", "gone.data", "../w", "/etc/x",
                                        "", "a/b"};

static Ox__Node *any_node(struct kit *k, struct draw *d)
{
    return k->g->node[draw_below(d, (unsigned)k->g->n_node)];
}
static Ox__Tensor *any_tensor(struct kit *k, struct draw *d)
{
    return k->g->initializer[draw_below(d, (unsigned)k->g->n_initializer)];
}

/* Of a value that is there. */
static ProtobufCBinaryData any_name(struct kit *k, struct draw *d)
{
    const Ox__Node *n = any_node(k, d);
    switch (draw_below(d, 4)) {
    case 0:
        return any_tensor(k, d)->name;
    case 1:
        return k->g->input[draw_below(d, (unsigned)k->g->n_input)]->name;
    default:
        return n->n_output > 0 ? n->output[draw_below(d, (unsigned)n->n_output)]
                               : kit_text(k, "");
    }
}

static void change_node(struct kit *k, struct draw *d)
{
    Ox__Node *n = any_node(k, d);
    switch (draw_below(d, 5)) {
    case 0:
        n->op_type = kit_text(k, draw_of(d, op_names));
        break;
    case 1:
        if (n->n_input > 0) {
            n->input[draw_below(d, (unsigned)n->n_input)] =
                any_name(k, d);
        }
        break;
    case 2:
        if (n->n_output > 0) {
            n->output[draw_below(d, (unsigned)n->n_output)] =
                any_name(k, d);
        }
        break;
    case 3:
        n->n_input = draw_below(d, (unsigned)n->n_input + 1);
        break;
    default:
        kit_int(k, n, draw_of(d, attrs), draw_of(d, numbers));
    }
}

static void change_attr(struct kit *k, struct draw *d)
{
    Ox__Node *n = any_node(k, d);
    if (n->n_attribute == 0) {
        return;
    }
    if (draw_one_in(d, 4)) {
        n->n_attribute--;
        return;
    }
    Ox__Attribute *a = n->attribute[draw_below(d, (unsigned)n->n_attribute)];
    a->i = draw_of(d, numbers);
    a->f = (float)draw_of(d, numbers) / 16;
    if (draw_one_in(d, 4)) {
        a->type = (int32_t)draw_below(d, 12);
    }
    if (draw_one_in(d, 4)) {
        a->name = kit_text(k, draw_of(d, attrs));
    }
    if (a->t != NULL && a->t->n_dims > 0) {
        a->t->dims[0] = draw_of(d, numbers);
    }
}

static void change_tensor(struct kit *k, struct draw *d)
{
    Ox__Tensor *t = any_tensor(k, d);
    switch (draw_below(d, 6)) {
    case 0:
        t->data_type = draw_of(d, types);
        break;
    case 1:
        if (t->n_dims > 0) {
            t->dims[draw_below(d, (unsigned)t->n_dims)] = draw_of(d, numbers);
        }
        break;
    case 2:
        t->n_dims = draw_below(d, (unsigned)t->n_dims + 1);
        break;
    case 3:
        kit_entry(k, t, "location", draw_of(d, locations));
        break;
    case 4:
        kit_entry(k, t, draw_one_in(d, 2) ? "offset" : "length",
                  draw_one_in(d, 2) ? "128" : "65535");
        break;
    default:
        if (t->raw_data.len > 0) {
            t->raw_data.data[draw_below(d, 65536) % t->raw_data.len] ^=
                (uint8_t)draw_byte(d);
        }
    }
}

/* Nodes in another order, which means nothing. */
static void shuffle(struct kit *k, uint32_t seed)
{
    for (size_t i = k->g->n_node; i > 1; i--) {
        seed = seed * 1664525u + 1013904223u;
        Ox__Node **a = &k->g->node[i - 1];
        Ox__Node **b = &k->g->node[(seed >> 8) % i];
        Ox__Node *t = *a;
        *a = *b;
        *b = t;
    }
}

static void change_lists(struct kit *k, struct draw *d)
{
    Ox__Graph *g = k->g;
    switch (draw_below(d, 6)) {
    case 0: /* an initialiser twice, or one too few */
        KIT_PUSH(k, g, initializer, any_tensor(k, d));
        break;
    case 1:
        g->initializer[draw_below(d, (unsigned)g->n_initializer)] =
            g->initializer[g->n_initializer - 1];
        g->n_initializer -= g->n_initializer > 1;
        break;
    case 2:
        KIT_PUSH(k, g, node, any_node(k, d));
        break;
    case 3:
        g->node[draw_below(d, (unsigned)g->n_node)] = g->node[g->n_node - 1];
        g->n_node -= g->n_node > 1;
        break;
    case 4:
        g->input[draw_below(d, (unsigned)g->n_input)]->name = any_name(k, d);
        break;
    default:
        g->output[draw_below(d, (unsigned)g->n_output)]->name = any_name(k, d);
    }
}

static void change(struct kit *k, struct draw *d)
{
    switch (draw_below(d, 6)) {
    case 0:
        change_attr(k, d);
        break;
    case 1:
        change_tensor(k, d);
        break;
    case 2:
        change_lists(k, d);
        break;
    case 3: { /* one more, which reads and makes what is there */
        Ox__Node *n = kit_node(k, k->g, draw_of(d, op_names), "a,b", "new");
        n->input[0] = any_name(k, d);
        n->input[1] = any_name(k, d);
        change_node(k, d);
        break;
    }
    default:
        change_node(k, d);
    }
}

/* Errors: those of the readers. *sound: nothing is odd about it. */
static int run(struct draw *d, bool *sound, struct err *e)
{
    struct drawn w;
    const unsigned n = draw_one_in(d, 2) ? 1 + draw_below(d, 4) : 0;
    const unsigned order = draw_byte(d);
    draw_decoder(&w, d);
    *sound = n == 0 && w.drawn_odd == 0;
    for (unsigned i = 0; i < n; i++) {
        change(&w.k, d);
    }
    if (order % 4 == 3) {
        shuffle(&w.k, order);
    }
    int rc = read_model(kit_pack(&w.k), &w.c, e);
    arena_fini(&w.k.a);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct draw d = {p, n};
    struct err e = {0};
    bool sound = false;
    int rc = run(&d, &sound, &e);
    if (rc < 0 && sound) {
        (void)fprintf(stderr, "refused: %s\n", e.msg);
    }
    must(rc == 0 || !sound);
    return 0;
}
