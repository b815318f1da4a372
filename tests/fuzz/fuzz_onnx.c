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
    "one", "sum",  "head", "",     "sig", "extra", "wk",
};
static const char *const ops[] = {
    "MatMul", "Add", "Mul", "Gather", "Cast", "Shape", "Sub", "ReduceSum",
    "Reshape", "Transpose", "Split", "Sigmoid", "FastGelu", "If", "Constant",
    "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization",
    "GroupQueryAttention", "RotaryEmbedding", "MatMulNBits",
    "GatherBlockQuantized", "DequantizeLinear", "CausalConvWithState", "Gemm",
    "Div", "Tanh", "Greater", "ReduceMax", "MultiHeadAttention", "Tile", "Slice",
    "Gelu", "Identity",
};
static const char *const attrs[] = {
    "num_heads", "kv_num_heads", "scale", "local_window_size", "softcap",
    "do_rotary", "epsilon", "axis", "to", "perm", "bits", "block_size", "K",
    "N", "transB", "interleaved", "quantize_axis", "then_branch", "value",
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

/* Weights in blocks in the place of a plain product. */
static void quantise(struct kit *k, struct draw *d)
{
    static uint8_t zeros[4096];
    Ox__Node *n = any_node(k, d);
    int64_t block = draw_of(d, numbers);
    int64_t rows = draw_of(d, numbers);
    if (block < 1 || block > 64 || rows < 1 || rows > 64) {
        return;
    }
    const int64_t b[3] = {rows, draw_below(d, 4), block / 2};
    const int64_t s[1] = {rows * b[1]};
    size_t bytes = (size_t)(b[0] * b[1] * b[2]) % sizeof(zeros);
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, "qb", ONNX_UINT8, b, 3, zeros, bytes));
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, "qs", ONNX_FLOAT, s, 1, zeros,
                        (size_t)s[0] * 4 % sizeof(zeros)));
    n->op_type = kit_text(k, "MatMulNBits");
    kit_names(k, draw_one_in(d, 2) ? "h1,qb,qs,qb" : "h1,qb,qs", &n->n_input,
              &n->input);
    kit_int(k, n, "K", draw_of(d, numbers));
    kit_int(k, n, "N", rows);
    kit_int(k, n, "bits", draw_one_in(d, 3) ? 8 : 4);
    kit_int(k, n, "block_size", block);
}

static struct span changed(struct kit *k, struct draw *d)
{
    kit_decoder(k);
    for (unsigned i = draw_below(d, 4); i > 0 || d->n > 0; i -= i > 0) {
        switch (draw_below(d, 6)) {
        case 0:
            change_attr(k, d);
            break;
        case 1:
            change_tensor(k, d);
            break;
        case 2:
            quantise(k, d);
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
