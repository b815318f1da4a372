/* A ZAYA model in the form of the transformers library: which rows its tables
 * have, that the converter takes it, and what is refused by name. */
#include "../unit.h"
#include "convert/arch/arch.h"
#include "hf_make.h"

/* Two layers of width 4, 4 heads of 4 with 2 of keys, 2 experts of 3, a router
 * of 5; kernels of 2 and 3. */
enum { LAYERS = 2, D = 4, Q = 16, KV = 8, QKV = Q + KV, R = 5, CLASSES = 3 };
#define NUMBERS                                                               \
    "\"architectures\":[\"ZayaForCausalLM\"],\"model_type\":\"zaya\","       \
    "\"hidden_size\":4,\"num_hidden_layers\":2,\"num_attention_heads\":4,"   \
    "\"num_key_value_heads\":2,\"head_dim\":4,\"hidden_act\":\"silu\","       \
    "\"max_position_embeddings\":64,\"vocab_size\":3,"                       \
    "\"rope_parameters\":{\"hybrid\":{\"partial_rotary_factor\":0.5,"        \
    "\"rope_theta\":5000,\"rope_type\":\"default\"}}"
#define SIZES                                                              \
    ",\"cca_time0\":2,\"cca_time1\":3,\"router_hidden_size\":5,"          \
    "\"num_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":3"
#define PLAIN NUMBERS SIZES ",\"rms_norm_eps\":1e-5"

static const struct hf_tensor globals[] = {
    {"model.embed_tokens.weight",       3, D, 0},
    {"model.input_hidden_states_bias",  0, D, 0},
    {"model.input_hidden_states_scale", 0, D, 0},
    {"model.norm.weight",               0, D, 0},
};

#define JOIN "post_attention_residual_scale."
#define JOIN_FFN "post_mlp_residual_scale."
#define PROJ "self_attn.qkv_proj."
#define GATE "mlp.gate."
static const struct hf_tensor layered[] = {
    {"input_layernorm.weight",               0,       D,   0},
    {"post_attention_layernorm.weight",      0,       D,   0},
    {JOIN "residual_scale",                  0,       D,   0},
    {JOIN "hidden_states_bias",              0,       D,   0},
    {JOIN "residual_bias",                   0,       D,   0},
    {JOIN "hidden_states_scale",             0,       D,   0},
    {JOIN_FFN "hidden_states_bias",          0,       D,   0},
    {JOIN_FFN "hidden_states_scale",         0,       D,   0},
    {JOIN_FFN "residual_bias",               0,       D,   0},
    {JOIN_FFN "residual_scale",              0,       D,   0},
    {PROJ "q_proj.weight",                   Q,       D,   0},
    {PROJ "k_proj.weight",                   KV,      D,   0},
    {PROJ "v_proj_current.weight",           KV / 2,  D,   0},
    {PROJ "v_proj_delayed.weight",           KV / 2,  D,   0},
    {PROJ "conv_qk_depthwise.weight",        QKV,     1,   2},
    {PROJ "conv_qk_depthwise.bias",          0,       QKV, 0},
    {PROJ "conv_qk_grouped.weight",          QKV,     4,   3},
    {PROJ "conv_qk_grouped.bias",            0,       QKV, 0},
    {"self_attn.qk_norm.temp",               0,       2,   0},
    {"self_attn.o_proj.weight",              D,       Q,   0},
    {GATE "down_proj.weight",                R,       D,   0},
    {GATE "down_proj.bias",                  0,       R,   0},
    {GATE "router_mlp.norm.weight",          0,       R,   0},
    {GATE "router_mlp.fc1.weight",           R,       R,   0},
    {GATE "router_mlp.fc1.bias",             0,       R,   0},
    {GATE "router_mlp.fc2.weight",           R,       R,   0},
    {GATE "router_mlp.fc2.bias",             0,       R,   0},
    {GATE "router_mlp.out_proj.weight",      CLASSES, R,   0},
    {GATE "balancing_biases",                0,       CLASSES, 0},
    {"mlp.experts.gate_up_proj",             2,       6,   D},
    {"mlp.experts.down_proj",                2,       D,   3},
    {GATE "router_states_scale",             0,       R,   0}, /* not of layer 0 */
};
enum { ALL = countof(globals) + LAYERS * countof(layered) - 1 };

struct model {
    char names[ALL + 1][96];
    struct hf_tensor tensors[ALL + 1];
    size_t n;
};

static void all_tensors(struct model *m)
{
    m->n = countof(globals);
    memcpy(m->tensors, globals, sizeof(globals));
    for (unsigned l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i + (l == 0) < countof(layered); i++) {
            char *name = m->names[m->n];
            (void)snprintf(name, sizeof(m->names[0]), "model.layers.%u.%s", l,
                           layered[i].name);
            m->tensors[m->n] = layered[i];
            m->tensors[m->n++].name = name;
        }
    }
    assert_int_equal(m->n, ALL);
}

static void put_model(struct hf_folder *f, const struct model *m,
                      const char *other, const char *dtype)
{
    struct buf b;
    hf_file(&b, m->tensors, m->n, other, dtype);
    hf_folder_put(f, "model.safetensors", b.p, b.n);
    buf_fini(&b);
}

static void make(struct hf_folder *f)
{
    struct model m;
    hf_folder_make(f);
    hf_folder_text(f, "config.json", "{" PLAIN "}");
    all_tensors(&m);
    put_model(f, &m, NULL, NULL);
}

static void row(const struct gguf *g, const char *name, uint64_t at,
                uint64_t cols, float *out)
{
    struct err e = {0};
    const struct gguf_tensor *t = gguf_tensor(g, name);
    assert_non_null(t);
    assert_int_equal(t->cols, cols);
    unit_ok(gguf_rows(t, at, 1, out, &e), &e);
}

/* Values count up, so of a vector element c is c / 2, and of an embedding
 * element c of row r (4 r + c) / 2. */
static void makes_tables(void **state)
{
    (void)state;
    struct hf_folder f;
    struct err e = {0};
    struct gguf *g = NULL;
    float y[QKV];
    make(&f);
    unit_ok(source_open(f.dir, &g, &e), &e);
    for (uint64_t r = 0; r < 3; r++) {
        row(g, "token_embd.weight", r, D, y);
        for (unsigned c = 0; c < D; c++) {
            float v = 0.5F * (float)c;
            assert_true(y[c] == (0.5F * (float)(r * D + c) + v) * v);
        }
        row(g, "output.weight", r, D, y);
        assert_true(y[1] == 0.5F * (float)(r * D + 1));
    }
    row(g, "blk.0.cca_mix.weight", 23, 12, y);
    assert_true(y[11] == 0.5F * (23 * 12 + 11));
    row(g, "blk.1.shortconv.conv.weight", 3, 2, y);
    assert_true(y[1] == 3.5F);
    for (unsigned l = 0; l < LAYERS; l++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "blk.%u.ffn_gate_inp_vectors.weight",
                       l);
        for (unsigned r = 0; r < R; r++) {
            row(g, name, r, R, y);
            assert_true(y[4] == (l == 0 && r == 1 ? 0 : 2));
        }
    }
    gguf_close(g);
    hf_folder_drop(&f);
}

/* Rows of tables stand in their order, whatever the files' is. */
static void orders_rows(void **state)
{
    (void)state;
    static const char *const join[] = {"hidden_states_bias",
                                       "hidden_states_scale", "residual_bias",
                                       "residual_scale"};
    for (unsigned i = 0; i < 4; i++) {
        struct hf_folder f;
        struct err e = {0};
        struct gguf *g = NULL;
        struct model m;
        char name[96];
        float y[QKV];
        make(&f);
        all_tensors(&m);
        /* codes of F8 are told from numbers: 2^-9, 2^-8, ... */
        (void)snprintf(name, sizeof(name), "model.layers.1." JOIN "%s",
                       join[i]);
        put_model(&f, &m, name, "F8_E4M3");
        unit_ok(source_open(f.dir, &g, &e), &e);
        for (unsigned r = 0; r < 4; r++) {
            row(g, "blk.1.join_attn.weight", r, D, y);
            assert_true(y[1] == (r == i ? 0.001953125F : 0.5F));
        }
        gguf_close(g);
        hf_folder_drop(&f);
    }
}

static void is_taken_by_the_converter(void **state)
{
    (void)state;
    struct hf_folder f;
    struct err e = {0};
    struct gguf *g = NULL;
    struct decoder d = {0};
    make(&f);
    unit_ok(source_open(f.dir, &g, &e), &e);
    unit_ok(arch_read(g, &d, &e), &e);
    const struct layer *y = &d.layers[1];
    assert_int_equal(y->mixer, MIXER_CCA);
    assert_int_equal(y->conv_len, 2);
    assert_int_equal(y->mix_len, 3);
    assert_int_equal(y->d_router, R);
    assert_int_equal(y->n_experts, 2);
    assert_int_equal(d.kinds[LAYER_GLOBAL].rope_dim, 2);
    assert_true(d.kinds[LAYER_GLOBAL].base == 5000);
    assert_true(y->affine_join && y->router == ROUTER_NETWORK);
    arch_fini(&d);
    gguf_close(g);
    hf_folder_drop(&f);
}

/* What is refused says why; of arch too, which looks at shapes. */
static void refuse(struct hf_folder *f, const char *what, const char *says)
{
    struct err e = {0};
    struct gguf *g = NULL;
    struct decoder d = {0};
    int rc = source_open(f->dir, &g, &e);
    if (rc == 0) {
        rc = arch_read(g, &d, &e);
        arch_fini(&d);
    }
    gguf_close(g);
    if (rc == 0 || strstr(e.msg, says) == NULL) {
        fail_msg("%s: %d, %s", what, rc, e.msg);
    }
}

static void refuses_configs_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } t[] = {
        {"{" NUMBERS SIZES ",\"norm_epsilon\":1e-5}",         "first release"      },
        {"{" PLAIN ",\"scale_residual_merge\":true}",         "first release"      },
        {"{" NUMBERS ",\"rms_norm_eps\":1e-5}",               "cca_time0"          },
        {"{" NUMBERS SIZES "}",                               "rms_norm_eps"       },
        {"{" PLAIN ",\"sliding_window\":16}",                 "sliding_window"     },
        {"{" PLAIN ",\"layer_types\":[\"hybrid\",\"other\"]}", "'other'"           },
        {"{" PLAIN ",\"layer_types\":[\"hybrid\"]}",          "1 entries"          },
        {"{" PLAIN ",\"lm_head_bias\":true}",                 "lm_head_bias"       },
        {"{" PLAIN ",\"new\":1}",                             "'new'"              },
        {"{" NUMBERS ",\"rms_norm_eps\":1e-5,\"cca_time0\":1}", "cca_time0"        },
        {"{" NUMBERS ",\"rms_norm_eps\":1e-5,\"cca_time0\":2,"
         "\"cca_time1\":99999}",                              "cca_time1"          },
        {"{" NUMBERS ",\"rms_norm_eps\":1e-5,\"cca_time0\":2,\"cca_time1\":2,"
         "\"router_hidden_size\":5,\"num_experts\":2,"
         "\"num_experts_per_tok\":2,\"moe_intermediate_size\":3}",
                                                              "2 of 2 experts"     },
    };
    struct hf_folder f;
    make(&f);
    for (size_t i = 0; i < countof(t); i++) {
        hf_folder_text(&f, "config.json", t[i].json);
        refuse(&f, t[i].json, t[i].says);
    }
    hf_folder_drop(&f);
}

static void refuses_tensors_by_name(void **state)
{
    (void)state;
    /* one tensor becomes another; NULL: it is left out, or one is added */
    static const struct {
        const char *name;
        struct hf_tensor as;
        const char *dtype, *says;
    } t[] = {
        {"model.embed_tokens.weight", {0}, NULL, "embed_tokens"},
        {"model.embed_tokens.weight", {"model.embed_tokens.weight", 0, 12, 0},
         NULL, "1 dimensions"},
        {"model.input_hidden_states_bias", {0}, NULL,
         "input_hidden_states_bias is missing"},
        {"model.input_hidden_states_scale",
         {"model.input_hidden_states_scale", 0, 5, 0}, NULL,
         "input_hidden_states"},
        {"model.layers.1." JOIN "residual_bias", {0}, NULL,
         "model.layers.1." JOIN "residual_bias is missing"},
        {"model.layers.0." JOIN_FFN "hidden_states_bias", {0}, NULL,
         "hidden_states_bias is missing"},
        {"model.layers.1." GATE "router_states_scale", {0}, NULL,
         "router_states_scale is missing"},
        {"model.layers.1." GATE "router_states_scale",
         {"model.layers.1." GATE "router_states_scale", 0, 4, 0}, NULL,
         "has 4 elements"},
        {"model.layers.1." GATE "router_states_scale",
         {"model.layers.1." GATE "router_states_scale", 1, R, 0}, NULL,
         "2 dimensions"},
        {"model.layers.0." PROJ "conv_qk_grouped.bias",
         {"model.layers.0." PROJ "conv_qk_grouped.bias", 0, 23, 0}, NULL,
         "has 23 elements"},
        {"model.layers.0." PROJ "conv_qk_grouped.weight",
         {"model.layers.0." PROJ "conv_qk_grouped.weight", QKV, 12, 0}, NULL,
         "not 3"},
        {"model.layers.0." PROJ "conv_qk_grouped.weight",
         {"model.layers.0." PROJ "conv_qk_grouped.weight", QKV, 4, 2}, NULL,
         "cca_mix.weight is 24 x 8"},
        {"model.layers.0." PROJ "conv_qk_depthwise.weight",
         {"model.layers.0." PROJ "conv_qk_depthwise.weight", QKV, 2, 1}, NULL,
         "not one filter a channel"},
        {"model.layers.0." GATE "balancing_biases",
         {"model.layers.0." GATE "balancing_biases", 0, 2, 0}, NULL,
         "exp_probs_b.bias"},
        {"model.layers.1.mlp.experts.gate_up_proj",
         {"model.layers.1.mlp.experts.gate_up_proj", 3, 6, D}, NULL,
         "ffn_gate_up_exps"},
        {NULL, {"model.layers.0." GATE "router_states_scale", 0, R, 0}, NULL,
         "has no place"},
        {NULL, {"model.layers.2." JOIN "residual_scale", 0, D, 0}, NULL,
         "has no place"},
        {NULL, {"language_model.model.layers.1." JOIN "residual_bias", 0, D, 0},
         NULL, "is there twice"},
        {NULL, {"model.layers.0.self_attn.qkv.linear_q.weight", 2, 2, 0}, NULL,
         "first release"},
        {NULL, {"model.layers.1.zaya_block.experts.local_experts.0.linear_fc1."
                "weight", 2, 2, 0}, NULL, "first release"},
        {NULL, {"model.res_scale.residual_bias", 0, D, 0}, NULL,
         "first release"},
        {"model.layers.1." JOIN "residual_bias",
         {"model.layers.1." JOIN "residual_bias", 0, D, 0}, "I8", "dtype I8"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        struct model m;
        size_t at = 0;
        make(&f);
        all_tensors(&m);
        while (t[i].name != NULL && at < m.n &&
               strcmp(m.tensors[at].name, t[i].name) != 0) {
            at++;
        }
        at = t[i].name != NULL ? at : m.n++;
        assert_true(at < m.n);
        if (t[i].as.name != NULL) {
            m.tensors[at] = t[i].as;
        } else {
            m.tensors[at] = m.tensors[--m.n];
        }
        put_model(&f, &m, t[i].dtype != NULL ? t[i].name : NULL, t[i].dtype);
        refuse(&f, t[i].as.name != NULL ? t[i].as.name : t[i].name, t[i].says);
        hf_folder_drop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_tables),
        cmocka_unit_test(orders_rows),
        cmocka_unit_test(is_taken_by_the_converter),
        cmocka_unit_test(refuses_configs_by_name),
        cmocka_unit_test(refuses_tensors_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
