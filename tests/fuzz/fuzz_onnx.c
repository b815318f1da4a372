/* fuzz_onnx.c - any bytes as an ONNX model, or a sound decoder that is changed:
 * then bytes are decisions (draw.h), about messages before they are packed. What
 * is understood as a decoder is read to the last row. */
#include "../unit/source/onnx_kit.h"
#include "draw.h"
#include "source/onnx/make.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* What is read must not be optimised away. */
volatile float sink;

enum { FILE_BYTES = 20000, ROWS_MAX = 1 << 18 };

static int find(void *ctx, const char *location, struct span *ret,
                struct err *e)
{
    must(onnx_location_ok(location));
    if (location[0] == 'g') {
        return err_set(e, ERR_NOT_FOUND, "%s: not there", location);
    }
    *ret = (struct span){ctx, FILE_BYTES};
    return 0;
}

/* --- a decoder in other forms --- */

static const char *const names[] = {
    "x0", "h1",    "q",    "k",    "v",   "pk",    "pv",  "less", "total",
    "att", "o",    "h2",   "x1",   "gate", "up",   "act", "both", "down",
    "h3", "embed", "ids",  "mask", "cos", "sin",   "n1",  "wq",   "wo",
    "one", "sum",  "head", "",     "sig", "extra", "wk",  "scores", "chosen",
    "picked", "shares", "moe", "scale", "fc1", "fc1.s", "fc2", "rb", "r0",
};
static const char *const ops[] = {
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

static void change_node(struct kit *k, struct draw *d)
{
    Ox__Node *n = any_node(k, d);
    switch (draw_below(d, 5)) {
    case 0:
        n->op_type = kit_text(k, draw_of(d, ops));
        break;
    case 1:
        if (n->n_input > 0) {
            n->input[draw_below(d, (unsigned)n->n_input)] =
                kit_text(k, draw_of(d, names));
        }
        break;
    case 2:
        if (n->n_output > 0) {
            n->output[draw_below(d, (unsigned)n->n_output)] =
                kit_text(k, draw_of(d, names));
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
                  draw_one_in(d, 2) ? "128" : "19999");
        break;
    default:
        if (t->raw_data.len > 0) {
            t->raw_data.data[draw_below(d, 65536) % t->raw_data.len] ^=
                (uint8_t)draw_byte(d);
        }
    }
}

/* --- weights in other forms, which fit unless something is changed --- */

static Ox__Tensor *put_numbers(struct kit *k, struct draw *d, const char *name,
                               int32_t type, const int64_t *dims, size_t n_dims,
                               size_t bytes)
{
    uint8_t *p = arena_alloc(&k->a, bytes + 1);
    must(p != NULL);
    memset(p, (int)draw_byte(d), bytes);
    Ox__Tensor *t = kit_tensor(k, name, type, dims, n_dims, p, bytes);
    KIT_PUSH(k, k->g, initializer, t);
    return t;
}

static size_t type_bytes(int32_t type, size_t n)
{
    return type == ONNX_FLOAT                             ? 4 * n
           : type == ONNX_FLOAT16 || type == ONNX_BFLOAT16 ? 2 * n
           : type == ONNX_UINT4 || type == ONNX_INT4       ? (n + 1) / 2
                                                           : n;
}

static const int32_t floats[] = {ONNX_FLOAT, ONNX_FLOAT16, ONNX_BFLOAT16};

/* A product in the kit's graph, and what its matrix is: (in, out). */
static const struct {
    const char *out, *in;
    int64_t n_in, n_out;
} products[] = {
    {"q", "h1", KIT_WIDTH, KIT_WIDTH},    {"k", "h1", KIT_WIDTH, KIT_HEAD},
    {"v", "h1", KIT_WIDTH, KIT_HEAD},     {"o", "att", KIT_WIDTH, KIT_WIDTH},
    {"gate", "h2", KIT_WIDTH, KIT_FF},    {"up", "h2", KIT_WIDTH, KIT_FF},
    {"down", "both", KIT_FF, KIT_WIDTH},  {"logits", "h3", KIT_WIDTH, KIT_VOCAB},
};

static Ox__Node *product(struct kit *k, const char *out)
{
    for (size_t i = 0; i < k->g->n_node; i++) {
        Ox__Node *n = k->g->node[i];
        if (n->n_output > 0 && n->output[0].len == strlen(out) &&
            memcmp(n->output[0].data, out, strlen(out)) == 0) {
            return n;
        }
    }
    return NULL; /* renamed by a change before */
}

static const char *named(struct kit *k, const char *what, const char *of)
{
    size_t n = strlen(what) + strlen(of);
    char *p = arena_alloc(&k->a, n + 1);
    must(p != NULL);
    (void)snprintf(p, n + 1, "%s%s", what, of);
    return p;
}

static void into_blocks(struct kit *k, struct draw *d, size_t i)
{
    static const int64_t sizes[] = {32, 16, 64, 128, 8, 24};
    Ox__Node *n = product(k, products[i].out);
    const int64_t block = draw_of(d, sizes);
    const int64_t bits = draw_one_in(d, 3) ? 8 : draw_one_in(d, 20) ? 2 : 4;
    const int64_t blocks = (products[i].n_in - 1) / block + 1;
    const int64_t b[3] = {products[i].n_out, blocks, block * bits / 8};
    const int64_t s[2] = {products[i].n_out, blocks};
    const int64_t z[2] = {products[i].n_out, (blocks * bits + 7) / 8};
    const int32_t type = draw_of(d, floats);
    const size_t n_s = (size_t)(s[0] * s[1]);
    char in[96];
    if (n == NULL) {
        return;
    }
    const char *const name[3] = {named(k, "B", products[i].out),
                                 named(k, "S", products[i].out),
                                 named(k, "Z", products[i].out)};
    (void)put_numbers(k, d, name[0], ONNX_UINT8, b, 3,
                      (size_t)(b[0] * b[1] * b[2]));
    (void)put_numbers(k, d, name[1], type, s, 2, type_bytes(type, n_s));
    (void)snprintf(in, sizeof(in), "%s,%s,%s", products[i].in, name[0], name[1]);
    unsigned zeros = draw_below(d, 3);
    if (zeros == 1) {
        (void)put_numbers(k, d, name[2], ONNX_UINT8, z, 2,
                          (size_t)(z[0] * z[1]));
    } else if (zeros == 2) {
        (void)put_numbers(k, d, name[2], type, s, 2, type_bytes(type, n_s));
    }
    n->op_type = kit_text(k, "MatMulNBits");
    n->domain = kit_text(k, "com.microsoft");
    kit_names(k, zeros > 0 ? named(k, named(k, in, ","), name[2]) : in,
              &n->n_input, &n->input);
    n->n_attribute = 0;
    kit_int(k, n, "K", products[i].n_in);
    kit_int(k, n, "N", products[i].n_out);
    kit_int(k, n, "bits", bits);
    kit_int(k, n, "block_size", block);
}

/* Whole numbers, scales and zero points in front of the product. */
static void dequantised(struct kit *k, struct draw *d, size_t i)
{
    static const int32_t whole[] = {ONNX_INT8, ONNX_UINT8, ONNX_INT4,
                                    ONNX_UINT4, ONNX_INT32};
    Ox__Node *n = product(k, products[i].out);
    const int32_t type = draw_of(d, whole);
    const int32_t scale = draw_of(d, floats);
    const int64_t x[2] = {products[i].n_in, products[i].n_out};
    const unsigned form = draw_below(d, 4); /* one, by column, row, block */
    const int64_t blocks[2] = {(x[0] - 1) / 16 + 1, x[1]};
    const int64_t one[2] = {form == 0 ? 1 : form == 1 ? x[1] : x[0], 1};
    const int64_t *s = form == 3 ? blocks : one;
    const size_t n_dims = form == 3 ? 2 : form == 0 ? draw_below(d, 2) : 1;
    const size_t n_s = (size_t)(s[0] * (form == 3 ? s[1] : 1));
    if (n == NULL) {
        return;
    }
    const char *const name[4] = {named(k, "X", products[i].out),
                                 named(k, "S", products[i].out),
                                 named(k, "Z", products[i].out),
                                 named(k, "D", products[i].out)};
    (void)put_numbers(k, d, name[0], type, x, 2,
                      type_bytes(type, (size_t)(x[0] * x[1])));
    (void)put_numbers(k, d, name[1], scale, s, n_dims, type_bytes(scale, n_s));
    const char *in = named(k, named(k, name[0], ","), name[1]);
    if (draw_one_in(d, 2)) {
        (void)put_numbers(k, d, name[2], type, s, n_dims,
                          type_bytes(type, n_s));
        in = named(k, named(k, in, ","), name[2]);
    }
    Ox__Node *q = kit_node(k, k->g, "DequantizeLinear", in, name[3]);
    kit_int(k, q, "axis", form == 1 ? 1 : 0);
    if (form == 3) {
        kit_int(k, q, "block_size", 16);
    }
    kit_names(k, named(k, named(k, products[i].in, ","), name[3]), &n->n_input,
              &n->input);
}

/* Halves, the other way round, by Gemm, in the file beside; what stands in
 * front of the matrix is a node of its own. */
static void plain(struct kit *k, struct draw *d, size_t i)
{
    Ox__Node *n = product(k, products[i].out);
    const int32_t type = draw_of(d, floats);
    const bool flip = draw_one_in(d, 2);
    const bool gemm = draw_one_in(d, 3);
    const int64_t x[2] = {flip ? products[i].n_out : products[i].n_in,
                          flip ? products[i].n_in : products[i].n_out};
    if (n == NULL) {
        return;
    }
    const char *name = named(k, "W", products[i].out);
    Ox__Tensor *t = put_numbers(k, d, name, type, x, 2,
                                type_bytes(type, (size_t)(x[0] * x[1])));
    if (draw_one_in(d, 3)) {
        kit_entry(k, t, "location", draw_one_in(d, 6) ? draw_of(d, locations)
                                                      : "w.data");
        kit_entry(k, t, "offset", draw_one_in(d, 8) ? "8192" : "0");
    }
    if (draw_one_in(d, 3)) {
        const char *as = named(k, "C", products[i].out);
        kit_int(k, kit_node(k, k->g, "Cast", name, as), "to", draw_of(d, floats));
        name = as;
    }
    if (flip && !gemm) {
        const char *as = named(k, "T", products[i].out);
        (void)kit_node(k, k->g, "Transpose", name, as);
        name = as;
    }
    kit_names(k, named(k, named(k, products[i].in, ","), name), &n->n_input,
              &n->input);
    if (gemm) {
        n->op_type = kit_text(k, "Gemm");
        kit_int(k, n, "transB", flip);
    }
}

/* The embedding's table. */
static void table(struct kit *k, struct draw *d)
{
    static const int32_t whole[] = {ONNX_UINT8, ONNX_UINT4, ONNX_INT4};
    Ox__Node *n = product(k, "x0");
    const int32_t type = draw_of(d, whole);
    const int64_t bits = type == ONNX_UINT8 && draw_one_in(d, 2) ? 8 : 4;
    const int64_t x[2] = {KIT_VOCAB, type == ONNX_UINT8 && bits == 4
                                         ? KIT_WIDTH / 2
                                         : KIT_WIDTH};
    const int64_t s[2] = {KIT_VOCAB, KIT_WIDTH / 16};
    const int64_t z[2] = {KIT_VOCAB, bits == 4 ? 1 : 2};
    if (n == NULL) {
        return;
    }
    (void)put_numbers(k, d, "Bx", type, x, 2,
                      type_bytes(type, (size_t)(x[0] * x[1])));
    (void)put_numbers(k, d, "Sx", ONNX_FLOAT, s, 2, (size_t)(s[0] * s[1]) * 4);
    (void)put_numbers(k, d, "Zx", ONNX_UINT8, z, 2, (size_t)(z[0] * z[1]));
    n->op_type = kit_text(k, "GatherBlockQuantized");
    n->domain = kit_text(k, "com.microsoft");
    kit_names(k, draw_one_in(d, 2) ? "Bx,ids,Sx,Zx" : "Bx,ids,Sx", &n->n_input,
              &n->input);
    kit_int(k, n, "block_size", 16);
    kit_int(k, n, "bits", bits);
    kit_int(k, n, "quantize_axis", 1);
}

static void other_form(struct kit *k, struct draw *d)
{
    size_t i = draw_below(d, (unsigned)countof(products) + 1);
    if (i == countof(products)) {
        table(k, d);
        return;
    }
    switch (draw_below(d, 3)) {
    case 0:
        into_blocks(k, d, i);
        break;
    case 1:
        dequantised(k, d, i);
        break;
    default:
        plain(k, d, i);
    }
}

static struct span changed(struct kit *k, struct draw *d)
{
    kit_decoder(k);
    if (draw_one_in(d, 3)) {
        kit_mixture(k);
    }
    for (unsigned i = draw_below(d, 4); i > 0 || d->n > 0; i -= i > 0) {
        switch (draw_below(d, 7)) {
        case 0:
            change_attr(k, d);
            break;
        case 1:
            change_tensor(k, d);
            break;
        case 2:
            other_form(k, d);
            break;
        case 3: { /* two nodes change places: order means nothing */
            Ox__Node **a = &k->g->node[draw_below(d, (unsigned)k->g->n_node)];
            Ox__Node **b = &k->g->node[draw_below(d, (unsigned)k->g->n_node)];
            Ox__Node *t = *a;
            *a = *b;
            *b = t;
            break;
        }
        case 4:
            (void)kit_node(k, k->g, draw_of(d, ops), draw_of(d, names),
                           draw_of(d, names));
            break;
        case 5:
            other_form(k, d);
            break;
        default:
            change_node(k, d);
        }
        if (i == 0 && draw_one_in(d, 3)) {
            break;
        }
    }
    return kit_pack(k);
}

/* --- reading --- */

static void read_rows(const struct gguf *g)
{
    struct err e = {0};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->rows > ROWS_MAX / t->cols) {
            continue;
        }
        float *y = malloc(t->rows * t->cols * sizeof(*y));
        must(y != NULL && gguf_rows(t, 0, t->rows, y, &e) == 0);
        sink += y[t->rows * t->cols - 1];
        free(y);
    }
}

static void read_model(struct span s, uint8_t *file)
{
    static const struct onnx_config nothing;
    const struct onnx_files files = {find, file};
    struct onnx m;
    struct onnx_decoder d;
    struct made *made = NULL;
    struct gguf *g = NULL;
    struct err e = {0};
    const char *arch = NULL;
    must(made_new(&made, &e) == 0);
    int rc = onnx_read(&m, s.p, s.n, &files, &e);
    rc = rc < 0 ? rc : onnx_recover(&m, &d, &e);
    rc = rc < 0 ? rc : onnx_make(&d, &nothing, made, &arch, &e);
    if (rc < 0) {
        must(e.code == rc && e.msg[0] != '\0');
        made_free(made);
    } else if (made_done(made, "onnx", &g, &e) == 0) {
        onnx_fini(&m); /* a source does not need it */
        read_rows(g);
        gguf_close(g);
    }
    onnx_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    uint8_t *file = calloc(1, FILE_BYTES);
    must(file != NULL);
    if (n > 0 && p[0] != 'd') {
        read_model((struct span){(const char *)p, n}, file);
    } else if (n > 0) {
        struct kit k;
        struct draw d = {p + 1, n - 1};
        read_model(changed(&k, &d), file);
        arena_fini(&k.a);
    }
    free(file);
    return 0;
}
