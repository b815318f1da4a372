/* ONNX: weights decode to what their definitions say, and a decoder is matched
 * only where every node is explained. */
#include "../unit.h"
#include "base/file.h"
#include "base/half.h"
#include "onnx_kit.h"
#include "onnx_mask.h"
#include "proto/json.h"
#include "source/onnx/make.h"

/* --- weights --- */

/* The graph with one node whose result is `y`; *ret_m is the caller's. */
static struct onnx_node *one_node(struct kit *k, struct onnx *m)
{
    struct err e = {0};
    struct span s = kit_pack(k);
    kit_port(k, k->g, "y", true);
    unit_ok(onnx_read(m, s.p, s.n, NULL, &e), &e);
    return &m->graph.nodes[m->graph.n_nodes - 1];
}

static void decode_all(const struct onnx_rows *r, float *out)
{
    const struct onnx_stack s = {.n = 1, .of = {{.m = *r, .rows = r->rows}}};
    onnx_stack_rows(&s, 0, r->rows, out);
    /* rows one by one are the same */
    float *one = malloc(r->cols * sizeof(*one));
    assert_non_null(one);
    for (uint64_t i = 0; i < r->rows; i++) {
        onnx_stack_rows(&s, i, 1, one);
        assert_memory_equal(one, out + i * r->cols, r->cols * sizeof(*one));
    }
    free(one);
}

struct nbits {
    int64_t n, k, bits, block;
    const uint8_t *b;
    size_t n_b;
    const float *scales;
    size_t n_scales;
    const void *zeros; /* NULL: none */
    size_t n_zeros;
    int32_t zero_type;
};

static Ox__Node *add_nbits(struct kit *k, const struct nbits *x)
{
    int64_t blocks = (x->k + x->block - 1) / x->block;
    const int64_t b[3] = {x->n, blocks, x->block * x->bits / 8};
    const int64_t s[1] = {(int64_t)x->n_scales};
    const int64_t z[1] = {(int64_t)x->n_zeros};
    size_t unit = x->zero_type == ONNX_FLOAT ? 4 : 1;
    kit_init(k);
    kit_port(k, k->g, "x", false);
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, "b", ONNX_UINT8, b, 3, x->b, x->n_b));
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, "s", ONNX_FLOAT, s, 1, x->scales, x->n_scales * 4));
    if (x->zeros != NULL) {
        KIT_PUSH(k, k->g, initializer,
                 kit_tensor(k, "z", x->zero_type, z, 1, x->zeros,
                            x->n_zeros * unit));
    }
    Ox__Node *n = kit_node(k, k->g, "MatMulNBits",
                           x->zeros != NULL ? "x,b,s,z" : "x,b,s", "y");
    kit_int(k, n, "N", x->n);
    kit_int(k, n, "K", x->k);
    kit_int(k, n, "bits", x->bits);
    kit_int(k, n, "block_size", x->block);
    return n;
}

static int linear_of(struct kit *k, struct onnx *m, struct onnx_linear *l,
                     struct err *e)
{
    return onnx_linear(one_node(k, m)->out[0], l, e);
}

/* K = 17 in blocks of 16: the last block of a row has one number. */
static void n_bits_by_hand(void **state)
{
    (void)state;
    static const float scales[4] = {0.5f, 2, -1, 0.25f};
    static const uint8_t packed[2] = {0x93, 0x0f};
    static const float floats[4] = {1.5f, 8, 0, 3};
    static const uint8_t bytes[4] = {130, 0, 255, 128};
    uint8_t b[4 * 16];
    for (size_t i = 0; i < sizeof(b); i++) {
        b[i] = (uint8_t)(i * 37 + 11);
    }
    for (unsigned t = 0; t < 5; t++) {
        bool four = t < 3;
        struct nbits x = {2, 17, four ? 4 : 8, 16, b, four ? 32 : 64, scales, 4,
                          NULL, 0, ONNX_UINT8};
        const void *zeros[5] = {NULL, packed, floats, NULL, bytes};
        x.zeros = zeros[t];
        x.n_zeros = t == 1 ? 2 : 4;
        x.zero_type = t == 2 ? ONNX_FLOAT : ONNX_UINT8;
        struct kit k;
        struct onnx m;
        struct onnx_linear l;
        struct err e = {0};
        float y[2 * 17];
        (void)add_nbits(&k, &x);
        unit_ok(linear_of(&k, &m, &l, &e), &e);
        assert_int_equal(l.w.rows, 2);
        assert_int_equal(l.w.cols, 17);
        decode_all(&l.w, y);
        for (size_t i = 0; i < 34; i++) {
            size_t block = i / 17 * 2 + i % 17 / 16;
            size_t at = block * 16 + i % 17 % 16;
            int q = four ? b[at / 2] >> (at % 2 * 4) & 15 : b[at];
            float z = t == 0   ? 8
                      : t == 3 ? 128
                      : t == 1 ? (float)(packed[block / 2] >> (block % 2 * 4) & 15)
                      : t == 2 ? floats[block]
                               : (float)bytes[block];
            assert_true(y[i] == ((float)q - z) * scales[block]);
        }
        onnx_fini(&m);
        arena_fini(&k.a);
    }
}

static void n_bits_refused(void **state)
{
    (void)state;
    static const uint8_t b[64] = {0};
    static const float s[8] = {0};
    static const struct {
        struct nbits x;
        int code;
        const char *says;
    } t[] = {
        {{2, 16, 2, 16, b, 8, s, 2, NULL, 0, 0}, ERR_UNSUPPORTED, "2 bits"},
        {{2, 16, 3, 16, b, 12, s, 2, NULL, 0, 0}, ERR_UNSUPPORTED, "3 bits"},
        {{2, 16, 5, 16, b, 20, s, 2, NULL, 0, 0}, ERR_ONNX_GRAPH, "5 bits"},
        {{2, 16, 4, 20, b, 20, s, 2, NULL, 0, 0}, ERR_ONNX_GRAPH, "blocks of 20"},
        {{2, 16, 4, 8, b, 16, s, 4, NULL, 0, 0}, ERR_ONNX_GRAPH, "blocks of 8"},
        {{2, 16, 4, 16, b, 16, s, 3, NULL, 0, 0}, ERR_ONNX_GRAPH, "shape"},
        {{2, 16, 4, 16, b, 16, s, 2, b, 3, ONNX_UINT8}, ERR_ONNX_GRAPH, "zero"},
        {{2, 16, 4, 16, b, 16, s, 2, b, 2, ONNX_INT8}, ERR_ONNX_GRAPH, "zero"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct kit k;
        struct onnx m;
        struct onnx_linear l;
        struct err e = {0};
        (void)add_nbits(&k, &t[i].x);
        int rc = linear_of(&k, &m, &l, &e);
        if (rc != t[i].code || strstr(e.msg, t[i].says) == NULL) {
            fail_msg("%zu: %s: %s", i, err_name(rc), e.msg);
        }
        onnx_fini(&m);
        arena_fini(&k.a);
    }
}

/* DequantizeLinear of a (3, 4) matrix, transposed for MatMul: y = (x - z) s. */
static void dequantise_linear(void **state)
{
    (void)state;
    static const int8_t q[12] = {-128, -1, 0, 127, 5, 6, 7, 8, 9, -10, 11, -12};
    static const float s[6] = {0.5f, 2, 0.1f, 3, 7, 0.25f};
    static const int8_t z[6] = {1, -2, 3, 4, -5, 6};
    static const struct {
        int64_t axis, block;
        int64_t dims[2]; /* of scales; 0: none */
        size_t n;
    } t[] = {{1, 0, {1, 0}, 1},  {0, 0, {3, 0}, 3}, {1, 0, {4, 0}, 4},
             {-2, 0, {3, 0}, 3}, {1, 2, {3, 2}, 6}, {0, 2, {2, 4}, 8}};
    float s8[8];
    int8_t z8[8];
    for (size_t i = 0; i < 8; i++) {
        s8[i] = s[i % 6];
        z8[i] = z[i % 6];
    }
    for (size_t i = 0; i < countof(t); i++) {
        struct kit k;
        struct onnx m;
        struct onnx_linear l;
        struct err e = {0};
        float y[12];
        const int64_t shape[2] = {3, 4};
        size_t rank = t[i].dims[1] > 0 ? 2 : 1;
        kit_init(&k);
        kit_port(&k, k.g, "x", false);
        KIT_PUSH(&k, k.g, initializer,
                 kit_tensor(&k, "q", ONNX_INT8, shape, 2, q, 12));
        KIT_PUSH(&k, k.g, initializer,
                 kit_tensor(&k, "s", ONNX_FLOAT, t[i].dims, rank, s8,
                            t[i].n * 4));
        KIT_PUSH(&k, k.g, initializer,
                 kit_tensor(&k, "z", ONNX_INT8, t[i].dims, rank, z8, t[i].n));
        Ox__Node *n = kit_node(&k, k.g, "DequantizeLinear", "q,s,z", "w");
        kit_int(&k, n, "axis", t[i].axis);
        if (t[i].block > 0) {
            kit_int(&k, n, "block_size", t[i].block);
        }
        (void)kit_node(&k, k.g, "Transpose", "w", "wt");
        (void)kit_node(&k, k.g, "MatMul", "x,wt", "y");
        unit_ok(linear_of(&k, &m, &l, &e), &e);
        assert_int_equal(l.w.rows, 3);
        decode_all(&l.w, y);
        for (size_t at = 0; at < 12; at++) {
            size_t r = at / 4;
            size_t c = at % 4;
            size_t b = i == 0             ? 0
                       : i == 1 || i == 3 ? r
                       : i == 2           ? c
                       : i == 4           ? r * 2 + c / 2
                                          : r / 2 * 4 + c;
            assert_true(y[at] == ((float)q[at] - (float)z8[b]) * s8[b]);
        }
        onnx_fini(&m);
        arena_fini(&k.a);
    }
}

/* Halves as scales: the result is a half. Gemm with transB, a bias of its own. */
static void halves_and_gemm(void **state)
{
    (void)state;
    static const int8_t q[4] = {3, -7, 101, 9};
    const uint16_t s = half_from_float(0.1f);
    const int64_t shape[2] = {2, 2};
    const int64_t one = 1;
    struct kit k;
    struct onnx m;
    struct onnx_linear l;
    struct err e = {0};
    float y[4];
    float b[2];
    kit_init(&k);
    kit_port(&k, k.g, "x", false);
    KIT_PUSH(&k, k.g, initializer,
             kit_tensor(&k, "q", ONNX_INT8, shape, 2, q, 4));
    KIT_PUSH(&k, k.g, initializer,
             kit_tensor(&k, "s", ONNX_FLOAT16, &one, 1, &s, 2));
    (void)kit_floats(&k, k.g, "c", 0, 2);
    (void)kit_node(&k, k.g, "DequantizeLinear", "q,s", "w");
    kit_int(&k, kit_node(&k, k.g, "Gemm", "x,w,c", "y"), "transB", 1);
    unit_ok(linear_of(&k, &m, &l, &e), &e);
    decode_all(&l.w, y);
    for (size_t i = 0; i < 4; i++) {
        assert_true(y[i] == half_round((float)q[i] * half_to_float(s)));
    }
    assert_int_equal(l.bias.cols, 2);
    decode_all(&l.bias, b);
    assert_memory_equal(b, kit_weight(&k, "c")->raw_data.data, 8);
    onnx_fini(&m);
    arena_fini(&k.a);
}

/* --- vectors that others computed --- */

static struct json *shared_json(const char *name)
{
    char path[1024];
    struct buf b;
    struct json *j = NULL;
    struct err e = {0};
    const char *shared = unit_shared();
    if (shared == NULL) {
        skip();
    }
    (void)snprintf(path, sizeof(path), "%s/data/onnx/%s", shared, name);
    buf_init(&b, MIB(1));
    unit_ok(file_read(path, MIB(1), &b, &e), &e);
    unit_ok(json_parse((const char *)b.p, b.n, &j, &e), &e);
    buf_fini(&b);
    return j;
}

static size_t numbers(const struct json *j, double *out, size_t max)
{
    size_t n = 0;
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        must(n < max);
        out[n++] = json_num(c);
    }
    return n;
}

/* MIGraphX's: a product of inputs with B, against its own results. */
static void migraphx_n_bits(void **state)
{
    (void)state;
    struct json *all = shared_json("migraphx-ops/vectors/matmulnbits_tests.json");
    static const struct {
        int64_t n, k;
    } shapes[] = {{4, 16}, {2, 33}};
    size_t i = 0;
    for (const struct json *t = json_first(all); t != NULL;
         t = json_next(t), i++) {
        const struct json *in = json_get(t, "inputs");
        double a[128];
        double v[128];
        float w[128];
        uint8_t b[64];
        uint8_t z[8];
        float s[8];
        size_t n_a = numbers(json_get(json_get(in, "a"), "data"), a, 128);
        size_t n_b = numbers(json_get(json_get(in, "b"), "data"), v, 128);
        for (size_t x = 0; x < n_b; x++) {
            b[x] = (uint8_t)v[x];
        }
        size_t n_s = numbers(json_get(json_get(in, "scales"), "data"), v, 8);
        for (size_t x = 0; x < n_s; x++) {
            s[x] = (float)v[x];
        }
        size_t n_z = numbers(json_get(json_get(in, "zp"), "data"), v, 8);
        for (size_t x = 0; x < n_z; x++) {
            z[x] = (uint8_t)v[x];
        }
        const struct nbits x = {shapes[i].n, shapes[i].k, 4, 16, b, n_b, s, n_s,
                                n_z > 0 ? z : NULL, n_z, ONNX_UINT8};
        struct kit k;
        struct onnx m;
        struct onnx_linear l;
        struct err e = {0};
        (void)add_nbits(&k, &x);
        unit_ok(linear_of(&k, &m, &l, &e), &e);
        decode_all(&l.w, w);
        size_t n_y = numbers(
            json_get(json_first(json_get(t, "expected")), "data"), v, 128);
        size_t cols = (size_t)x.k;
        assert_int_equal(n_y, n_a / cols * (size_t)x.n);
        for (size_t at = 0; at < n_y; at++) {
            double sum = 0;
            for (size_t c = 0; c < cols; c++) {
                sum += a[at / (size_t)x.n * cols + c] *
                       (double)w[at % (size_t)x.n * cols + c];
            }
            assert_true(fabs(sum - v[at]) <= 1e-4 * (1 + fabs(v[at])));
        }
        onnx_fini(&m);
        arena_fini(&k.a);
    }
    assert_int_equal(i, 2);
    json_free(all);
}

/* OpenVINO's tables: 4-bit numbers, and bytes of two with zero points. */
static void openvino_tables(void **state)
{
    (void)state;
    static const char *const names[] = {"gather_block_quantized_uint4",
                                        "gather_block_quantized_uint8_bits4_zp"};
    for (size_t i = 0; i < countof(names); i++) {
        char path[1024];
        struct buf b;
        struct err e = {0};
        struct onnx m;
        struct onnx_rows r;
        struct onnx_value *index = NULL;
        double want[32];
        float got[64];
        (void)snprintf(path, sizeof(path), "openvino-ops/%s.json", names[i]);
        struct json *j = shared_json(path);
        (void)snprintf(path, sizeof(path), "%s/data/onnx/openvino-ops/%s.onnx",
                       unit_shared(), names[i]);
        buf_init(&b, MIB(1));
        unit_ok(file_read(path, MIB(1), &b, &e), &e);
        unit_ok(onnx_read(&m, b.p, b.n, NULL, &e), &e);
        unit_ok(onnx_table(&m.graph.nodes[0], &r, &index, &e), &e);
        assert_true(index->input);
        assert_int_equal(r.rows, 2);
        assert_int_equal(r.cols, 32);
        decode_all(&r, got);
        size_t row = 0;
        for (const struct json *c = json_first(json_get(j, "dequantised_rows"));
             c != NULL; c = json_next(c), row++) {
            assert_int_equal(numbers(c, want, 32), 32);
            for (size_t x = 0; x < 32; x++) {
                assert_true((double)got[row * 32 + x] == want[x]);
            }
        }
        assert_int_equal(row, 2);
        onnx_fini(&m);
        buf_fini(&b);
        json_free(j);
    }
}

/* --- decoders --- */

static int make(struct kit *k, const char **arch, struct gguf **ret,
                struct err *e)
{
    struct onnx m;
    struct onnx_decoder d;
    struct made *made = NULL;
    static const struct onnx_config nothing;
    struct span s = kit_pack(k);
    unit_ok(made_new(&made, e), e);
    int rc = onnx_read(&m, s.p, s.n, NULL, e);
    rc = rc < 0 ? rc : onnx_recover(&m, &d, e);
    rc = rc < 0 ? rc : onnx_make(&d, &nothing, made, arch, e);
    onnx_fini(&m);
    if (rc == 0 && ret != NULL) {
        return made_done(made, "onnx", ret, e);
    }
    made_free(made);
    return rc;
}

/* The graph is gone when the source is read: keys, and rows in GGUF's order. */
static void finds_a_decoder(void **state)
{
    (void)state;
    struct kit k;
    struct err e = {0};
    struct gguf *g = NULL;
    const char *arch = NULL;
    float base = 0;
    uint32_t n = 0;
    float q[KIT_WIDTH * KIT_WIDTH];
    kit_decoder(&k);
    unit_ok(make(&k, &arch, &g, &e), &e);
    assert_string_equal(arch, "llama");
    assert_true(gguf_get_f32(g, "llama.rope.freq_base", &base));
    assert_true(base == 10000.0f); /* no configuration says so */
    assert_true(gguf_get_u32(g, "llama.attention.head_count_kv", &n));
    assert_int_equal(n, 1);
    unit_ok(gguf_rows(gguf_tensor(g, "blk.0.attn_q.weight"), 0, KIT_WIDTH, q,
                      &e),
            &e);
    const float *w = (const void *)kit_weight(&k, "wq")->raw_data.data;
    for (size_t r = 0; r < KIT_WIDTH; r++) {
        size_t in = r % KIT_HEAD;
        size_t from = r - in + in % 2 * (KIT_HEAD / 2) + in / 2;
        for (size_t c = 0; c < KIT_WIDTH; c++) {
            assert_true(q[r * KIT_WIDTH + c] == w[c * KIT_WIDTH + from]);
        }
    }
    gguf_close(g);
    arena_fini(&k.a);
}

typedef void change_fn(struct kit *k);

static void reread(struct kit *k, const char *node, const char *in)
{
    Ox__Node *n = kit_find(k, node);
    kit_names(k, in, &n->n_input, &n->input);
}
static void renamed(struct kit *k, const char *node, const char *op)
{
    kit_find(k, node)->op_type = kit_text(k, op);
}
static void table_entry(struct kit *k)
{
    kit_weight(k, "cos")->raw_data.data[100 * 4 + 2] ^= 0x10;
}
static void table_last(struct kit *k)
{
    size_t at = kit_weight(k, "sin")->raw_data.len - 2;
    kit_weight(k, "sin")->raw_data.data[at] ^= 0x40;
}
static void tables_swapped(struct kit *k)
{
    reread(k, "att", "q,k,v,pk,pv,less,total,sin,cos");
}
static void dead_node(struct kit *k)
{
    (void)kit_node(k, k->g, "MatMul", "h1,wq", "dead");
}
static void less_two(struct kit *k)
{
    const int64_t two = 2;
    kit_ints(k, k->g, "two", &two, 1);
    reread(k, "less64", "sum,two");
}
static void mask_of_ids(struct kit *k)
{
    reread(k, "sum", "ids,one");
}
static void other_eps(struct kit *k)
{
    kit_find(k, "h2")->attribute[0]->f = 1e-5f;
}
static void other_stream(struct kit *k)
{
    reread(k, "h3", "x0,down,n3");
}
static void sigmoid_of_up(struct kit *k)
{
    reread(k, "sig", "up");
}
static void relu(struct kit *k)
{
    renamed(k, "sig", "Relu");
}
static void gelu_erf(struct kit *k)
{
    renamed(k, "sig", "Tanh");
    renamed(k, "act", "Gelu");
    reread(k, "act", "gate");
}
static void values_as_keys(struct kit *k)
{
    reread(k, "att", "q,k,v,pk,pk,less,total,cos,sin");
}
static void no_states(struct kit *k)
{
    reread(k, "att", "q,k,v,,,less,total,cos,sin");
}
static void attention_bias(struct kit *k)
{
    reread(k, "att", "q,k,v,pk,pv,less,total,cos,sin,,mask");
}
static void smooth(struct kit *k)
{
    kit_int(k, kit_find(k, "att"), "smooth_softmax", 1);
}
static void interleaved(struct kit *k)
{
    kit_int(k, kit_find(k, "att"), "rotary_interleaved", 1);
}
static void new_attribute(struct kit *k)
{
    kit_int(k, kit_find(k, "att"), "new_in_2027", 1);
}
static void other_scale(struct kit *k)
{
    kit_float(k, kit_find(k, "att"), "scale", 0.3f);
}
static void no_rotary(struct kit *k)
{
    kit_find(k, "att")->attribute[2]->i = 0;
    reread(k, "att", "q,k,v,pk,pv,less,total");
}
static void three_heads(struct kit *k)
{
    kit_find(k, "att")->attribute[0]->i = 3;
}
static void other_output(struct kit *k)
{
    kit_port(k, k->g, "h3", true);
}
static void scaled_embedding(struct kit *k)
{
    (void)kit_floats(k, k->g, "c", 0, 1);
    Ox__Node *n = kit_find(k, "x0");
    n->output[0] = kit_text(k, "raw");
    (void)kit_node(k, k->g, "Mul", "raw,c", "x0");
}
static void axis_one(struct kit *k)
{
    kit_int(k, kit_find(k, "x0"), "axis", 1);
}
static void another_domain(struct kit *k)
{
    kit_find(k, "act")->domain = kit_text(k, "org.example");
}
static void q_of_stream(struct kit *k)
{
    reread(k, "q", "x0,wq");
}
static void head_bias(struct kit *k)
{
    (void)kit_floats(k, k->g, "c", 0, KIT_VOCAB);
    kit_find(k, "logits")->output[0] = kit_text(k, "raw");
    (void)kit_node(k, k->g, "Add", "raw,c", "logits");
}
/* A norm between a block and its sum, of nothing. */
static void norm_of_nothing(struct kit *k)
{
    Ox__Node *n = kit_find(k, "down");
    n->op_type = kit_text(k, "RMSNormalization");
    kit_float(k, n, "epsilon", 1e-6f);
    reread(k, "down", ",n1");
}
static void ffn_bias(struct kit *k)
{
    (void)kit_floats(k, k->g, "c", 0, KIT_FF);
    kit_find(k, "up")->output[0] = kit_text(k, "raw");
    (void)kit_node(k, k->g, "Add", "raw,c", "up");
}

static void inner_norms(struct kit *k)
{
    (void)kit_floats(k, k->g, "qn", 0, KIT_HEAD);
    (void)kit_floats(k, k->g, "kn", 0, KIT_HEAD);
    reread(k, "att", "q,k,v,pk,pv,less,total,cos,sin,,,,,,qn,kn");
}
static void inner_norms_eps(struct kit *k)
{
    inner_norms(k);
    kit_float(k, kit_find(k, "att"), "qk_norm_epsilon", 1e-5f);
}
static void inner_norm_of_keys(struct kit *k)
{
    inner_norms(k);
    reread(k, "att", "q,k,v,pk,pv,less,total,cos,sin,,,,,,,kn");
}
/* gate and up as the halves of one product, in the wrong order */
static void halves_swapped(struct kit *k)
{
    (void)kit_floats(k, k->g, "wgu", KIT_WIDTH, 2 * KIT_FF);
    kit_find(k, "gate")->output[0] = kit_text(k, "both_of");
    reread(k, "both_of", "h2,wgu");
    Ox__Node *n = kit_find(k, "up");
    n->op_type = kit_text(k, "Split");
    kit_names(k, "both_of", &n->n_input, &n->input);
    kit_names(k, "up,gate", &n->n_output, &n->output);
    kit_int(k, n, "axis", -1);
}
static void halves(struct kit *k)
{
    halves_swapped(k);
    Ox__Node *n = kit_find(k, "up");
    kit_names(k, "gate,up", &n->n_output, &n->output);
}

/* A mask as a tensor is one that is known, or none. */
static void own_mask(struct kit *k)
{
    Ox__Node *n = kit_find(k, "att");
    n->op_type = kit_text(k, "MultiHeadAttention");
    n->n_attribute = 1; /* num_heads */
    kit_int(k, kit_node(k, k->g, "Cast", "mask", "bias"), "to", ONNX_FLOAT);
    reread(k, "att", "q,k,v,,,bias,pk,pv");
}
static void deep_mask(struct kit *k)
{
    char from[16] = "bias";
    char to[16];
    own_mask(k);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(to, sizeof(to), "b%d", i);
        (void)kit_node(k, k->g, "Identity", from, to);
        (void)snprintf(from, sizeof(from), "%s", to);
    }
    reread(k, "att", "q,k,v,,,b999,pk,pv");
}
static void wide_mask(struct kit *k)
{
    char list[64];
    own_mask(k);
    for (int i = 0; i < 6; i++) {
        (void)snprintf(list, sizeof(list), "i%d", i);
        kit_port(k, k->g, list, false);
    }
    (void)kit_node(k, k->g, "Sum", "i0,i1,i2,i3,i4,i5", "sum6");
    reread(k, "att", "q,k,v,,,sum6,pk,pv");
}

/* The mask of the builder before 0.5, the rotation before attention, as many
 * heads of keys as of queries. */
static void known_mask(struct kit *k)
{
    static const char *const lengths[] = {"sum",   "less64",  "less",
                                          "shape", "total64", "total"};
    Ox__Node *n = kit_find(k, "att");
    n->op_type = kit_text(k, "MultiHeadAttention");
    n->n_attribute = 1; /* num_heads */
    n->attribute[0]->i = 1;
    kit_port(k, k->g, "positions", false);
    kit_mask(k, "pk");
    for (size_t i = 0; i < 2; i++) {
        kit_find(k, i == 0 ? "q" : "k")->output[0] =
            kit_text(k, i == 0 ? "q0" : "k0");
        (void)kit_node(k, k->g, "RotaryEmbedding",
                       i == 0 ? "q0,positions,cos,sin" : "k0,positions,cos,sin",
                       i == 0 ? "q" : "k");
    }
    kit_weight(k, "wq")->dims[1] = KIT_HEAD;
    kit_weight(k, "wq")->raw_data.len /= 2;
    kit_weight(k, "wo")->dims[0] = KIT_HEAD;
    kit_weight(k, "wo")->raw_data.len /= 2;
    reread(k, "att", "q,k,v,,,m70,pk,pv");
    kit_drop(k, lengths, countof(lengths));
}

/* Norms of q and k by the standard's name. */
static void outer_norms(struct kit *k)
{
    static const int64_t heads[3] = {0, -1, KIT_HEAD};
    static const int64_t back[2][3] = {{0, -1, KIT_WIDTH}, {0, -1, KIT_HEAD}};
    (void)kit_floats(k, k->g, "nq", 0, KIT_HEAD);
    kit_ints(k, k->g, "heads", heads, 3);
    for (size_t i = 0; i < 2; i++) {
        const char *const names[2][5] = {{"q", "q0", "q1", "q2", "q.back"},
                                         {"k", "k0", "k1", "k2", "k.back"}};
        const char *const *n = names[i];
        char in[64];
        kit_find(k, n[0])->output[0] = kit_text(k, n[1]);
        kit_ints(k, k->g, n[4], back[i], 3);
        (void)snprintf(in, sizeof(in), "%s,heads", n[1]);
        (void)kit_node(k, k->g, "Reshape", in, n[2]);
        (void)snprintf(in, sizeof(in), "%s,nq", n[2]);
        kit_float(k, kit_node(k, k->g, "RMSNormalization", in, n[3]), "epsilon",
                  1e-6f);
        (void)snprintf(in, sizeof(in), "%s,%s", n[3], n[4]);
        (void)kit_node(k, k->g, "Reshape", in, n[0]);
    }
}

/* Forms that other exports have: norms inside attention, one product for gate
 * and up. */
static void other_forms(void **state)
{
    (void)state;
    static const struct {
        change_fn *change;
        const char *arch, *tensor;
        uint64_t rows;
    } t[] = {{inner_norms, "qwen3", "blk.0.attn_k_norm.weight", 1},
             {halves, "llama", "blk.0.ffn_up.weight", KIT_FF},
             {outer_norms, "qwen3", "blk.0.attn_q_norm.weight", 1},
             {known_mask, "llama", "blk.0.attn_q.weight", KIT_HEAD}};
    for (size_t i = 0; i < countof(t); i++) {
        struct kit k;
        struct err e = {0};
        struct gguf *g = NULL;
        const char *arch = NULL;
        float row[KIT_WIDTH];
        kit_decoder(&k);
        t[i].change(&k);
        unit_ok(make(&k, &arch, &g, &e), &e);
        assert_string_equal(arch, t[i].arch);
        const struct gguf_tensor *x = gguf_tensor(g, t[i].tensor);
        assert_int_equal(x->rows, t[i].rows);
        if (i == 1) { /* (inputs, gate and up): row r of up is column FF + r */
            unit_ok(gguf_rows(x, 5, 1, row, &e), &e);
            const float *w = (const void *)kit_weight(&k, "wgu")->raw_data.data;
            for (size_t c = 0; c < KIT_WIDTH; c++) {
                assert_true(row[c] == w[c * 2 * KIT_FF + KIT_FF + 5]);
            }
        }
        gguf_close(g);
        arena_fini(&k.a);
    }
}

static void explains_every_node(void **state)
{
    (void)state;
    static const struct {
        change_fn *change;
        const char *says; /* the node, or what is wrong */
    } t[] = {
        {table_entry, "'cos' is no rotation"},
        {table_last, "is no rotation"},
        {tables_swapped, "'sin' is no rotation"},
        {dead_node, "'dead' (MatMul)"},
        {less_two, "'less64' (Sub)"},
        {mask_of_ids, "(Shape)"},
        {other_eps, "epsilon"},
        {other_stream, "another stream"},
        {sigmoid_of_up, "'both' (Mul)"},
        {relu, "'both' (Mul)"},
        {gelu_erf, "exact form of GELU"},
        {values_as_keys, "share a state"},
        {no_states, "states"},
        {attention_bias, "input 10 'mask'"},
        {smooth, "form of attention"},
        {interleaved, "form of attention"},
        {new_attribute, "'new_in_2027'"},
        {other_scale, "scores times 0.3"},
        {no_rotary, "no rotation"},
        {three_heads, "3 heads in a width of 32"},
        {other_output, "two outputs"},
        {scaled_embedding, "embeddings times"},
        {axis_one, "another axis"},
        {another_domain, "'both' (Mul)"},
        {q_of_stream, "do not fit together"},
        {head_bias, "bias of the logits"},
        {ffn_bias, "biases of a feed-forward"},
        {norm_of_nothing, "'down' (RMSNormalization): it reads nothing"},
        {inner_norms_eps, "norms of q and k are not converted"},
        {inner_norm_of_keys, "no vector"},
        {halves_swapped, "not gate and up"},
        {own_mask, "a mask of 1 nodes that aned does not know"},
        {deep_mask, "a mask deeper than"},
        {wide_mask, "a mask of more than 4 inputs"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct kit k;
        struct err e = {0};
        const char *arch = NULL;
        kit_decoder(&k);
        t[i].change(&k);
        int rc = make(&k, &arch, NULL, &e);
        if ((rc != ERR_ONNX_GRAPH && rc != ERR_UNSUPPORTED) ||
            strstr(e.msg, t[i].says) == NULL) {
            fail_msg("%zu: %s: %s", i, err_name(rc), e.msg);
        }
        arena_fini(&k.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(n_bits_by_hand),  cmocka_unit_test(n_bits_refused),
        cmocka_unit_test(dequantise_linear), cmocka_unit_test(halves_and_gemm),
        cmocka_unit_test(migraphx_n_bits), cmocka_unit_test(openvino_tables),
        cmocka_unit_test(finds_a_decoder), cmocka_unit_test(other_forms),
        cmocka_unit_test(explains_every_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
