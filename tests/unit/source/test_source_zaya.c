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
        {"{" NUMBERS SIZES ",\"norm_epsilon\":1e-5}",         "beside keys of"     },
        {"{" PLAIN ",\"scale_residual_merge\":true}",         "beside keys of"     },
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

/* --- the form of the first release --- */

#define FIRST_NUMBERS                                                          \
    "\"architectures\":[\"ZayaForCausalLM\"],\"model_type\":\"zaya\","        \
    "\"hidden_size\":4,\"num_attention_heads\":4,\"head_dim\":4,"             \
    "\"activation_func\":\"swiglu\",\"normalization\":\"RMSNorm\","          \
    "\"cca\":true,\"gated_linear_unit\":true,\"clamp_temp\":false,"          \
    "\"residual_in_fp32\":true,\"mamba_cache_dtype\":\"float32\","           \
    "\"scale_residual_merge\":true,\"zaya_use_eda\":true,"                   \
    "\"rope_scaling\":false,\"sliding_window\":null,\"vocab_size\":3,"       \
    "\"max_position_embeddings\":64,\"cca_time0\":2,\"cca_time1\":3,"        \
    "\"num_experts\":2,\"zaya_mlp_expansion\":5,\"moe_router_topk\":1,"      \
    "\"norm_epsilon\":1e-5,\"num_query_groups\":2,\"kv_channels\":4"
#define FIRST                                                                  \
    FIRST_NUMBERS ",\"num_hidden_layers\":4,\"ffn_hidden_size\":6,"          \
                  "\"rope_theta\":5000,\"zaya_use_mod\":true"

#define QKV_1 "self_attn.qkv."
#define ROUTER "zaya_block.router."
#define EXPERT "zaya_block.experts.local_experts."
static const struct hf_tensor first_attention[] = {
    {"input_norm.weight",               0,   D,   0},
    {"self_attn.o_proj.weight",         D,   Q,   0},
    {QKV_1 "linear_q.weight",           Q,   D,   0},
    {QKV_1 "linear_k.weight",           KV,  D,   0},
    {QKV_1 "val_proj1.weight",          KV / 2, D, 0},
    {QKV_1 "val_proj2.weight",          KV / 2, D, 0},
    {QKV_1 "conv_qk.0.weight",          QKV, 1,   2},
    {QKV_1 "conv_qk.0.bias",            0,   QKV, 0},
    {QKV_1 "conv_qk.1.weight",          QKV, 4,   3},
    {QKV_1 "conv_qk.1.bias",            0,   QKV, 0},
    {QKV_1 "temp",                      0,   2,   0},
    {"res_scale.hidden_states_bias",    0,   D,   0},
    {"res_scale.hidden_states_scale",   0,   D,   0},
    {"res_scale.residual_bias",         0,   D,   0}, /* not of the first */
    {"res_scale.residual_scale",        0,   D,   0},
};
static const struct hf_tensor first_experts[] = {
    {"input_norm.weight",               0,       D,   0},
    {ROUTER "down_proj.weight",         R,       D,   0},
    {ROUTER "down_proj.bias",           0,       R,   0},
    {ROUTER "rmsnorm_eda.weight",       0,       R,   0},
    {ROUTER "router_mlp.0.weight",      R,       R,   0},
    {ROUTER "router_mlp.0.bias",        0,       R,   0},
    {ROUTER "router_mlp.2.weight",      R,       R,   0},
    {ROUTER "router_mlp.2.bias",        0,       R,   0},
    {ROUTER "router_mlp.4.weight",      CLASSES, R,   0},
    {ROUTER "balancing_biases",         0,       CLASSES, 0},
    {EXPERT "0.linear_fc1.weight",      6,       D,   0},
    {EXPERT "0.linear_fc2.weight",      D,       3,   0},
    {EXPERT "1.linear_fc1.weight",      6,       D,   0},
    {EXPERT "1.linear_fc2.weight",      D,       3,   0},
    {"res_scale.hidden_states_bias",    0,       D,   0},
    {"res_scale.hidden_states_scale",   0,       D,   0},
    {"res_scale.residual_bias",         0,       D,   0},
    {"res_scale.residual_scale",        0,       D,   0},
    {ROUTER "router_states_scale",      0,       R,   0}, /* not of the first */
};
static const struct hf_tensor first_globals[] = {
    {"model.embed_tokens.weight",            3, D, 0},
    {"model.final_norm.weight",              0, D, 0},
    {"model.res_scale.hidden_states_bias",   0, D, 0},
    {"model.res_scale.hidden_states_scale",  0, D, 0},
    {"model.res_scale.residual_bias",        0, D, 0},
    {"model.res_scale.residual_scale",       0, D, 0},
};
enum { FIRST_ALL = countof(first_globals) + LAYERS * (countof(first_attention) +
                                                      countof(first_experts)) };

struct first_model {
    char names[FIRST_ALL + 1][96];
    struct hf_tensor tensors[FIRST_ALL + 1];
    size_t n;
};

static void first_half(struct first_model *m, unsigned half,
                       const struct hf_tensor *of, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *name = m->names[m->n];
        (void)snprintf(name, sizeof(m->names[0]), "model.layers.%u.%s", half,
                       of[i].name);
        m->tensors[m->n] = of[i];
        m->tensors[m->n++].name = name;
    }
}

static void first_tensors(struct first_model *m)
{
    m->n = countof(first_globals);
    memcpy(m->tensors, first_globals, sizeof(first_globals));
    for (unsigned l = 0; l < LAYERS; l++) {
        first_half(m, 2 * l, first_attention,
                   countof(first_attention) - (l == 0 ? 2 : 0));
        first_half(m, 2 * l + 1, first_experts,
                   countof(first_experts) - (l == 0 ? 1 : 0));
    }
}

static void first_put(struct hf_folder *f, const struct first_model *m,
                      const char *other, const char *dtype)
{
    struct buf b;
    hf_file(&b, m->tensors, m->n, other, dtype);
    hf_folder_put(f, "model.safetensors", b.p, b.n);
    buf_fini(&b);
}

/* Every key and every row is that of the later form; experts count from 0 each.
 */
static void reads_the_first_form(void **state)
{
    (void)state;
    struct hf_folder a;
    struct hf_folder b;
    struct first_model m;
    struct err e = {0};
    struct gguf *x = NULL;
    struct gguf *y = NULL;
    float rows[2][QKV];
    make(&a);
    hf_folder_make(&b);
    hf_folder_text(&b, "config.json", "{" FIRST "}");
    first_tensors(&m);
    first_put(&b, &m, NULL, NULL);
    unit_ok(source_open(a.dir, &x, &e), &e);
    unit_ok(source_open(b.dir, &y, &e), &e);
    assert_int_equal(gguf_n_tensors(x), gguf_n_tensors(y));
    for (size_t i = 0; i < gguf_n_tensors(x); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x, i);
        const struct gguf_tensor *u = gguf_tensor(y, t->name);
        bool experts = strstr(t->name, "_exps") != NULL;
        if (u == NULL || u->rows != t->rows || u->cols != t->cols) {
            fail_msg("%s is not there, or has another shape", t->name);
        }
        for (uint64_t r = 0; r < t->rows; r++) {
            unit_ok(gguf_rows(t, experts ? r % (t->rows / 2) : r, 1, rows[0], &e),
                    &e);
            unit_ok(gguf_rows(u, r, 1, rows[1], &e), &e);
            assert_memory_equal(rows[0], rows[1], t->cols * sizeof(float));
        }
    }
    static const char *const keys[] = {
        "block_count", "embedding_length", "attention.head_count_kv",
        "attention.key_length", "router_length", "expert_count",
        "expert_used_count", "expert_feed_forward_length",
        "rope.dimension_count", "cca.time1"};
    for (size_t i = 0; i < countof(keys); i++) {
        char key[64];
        uint32_t v[2] = {0, 1};
        (void)snprintf(key, sizeof(key), "zaya.%s", keys[i]);
        assert_true(gguf_get_u32(x, key, &v[0]) && gguf_get_u32(y, key, &v[1]));
        assert_int_equal(v[0], v[1]);
    }
    struct decoder d = {0};
    unit_ok(arch_read(y, &d, &e), &e);
    assert_true(d.kinds[LAYER_GLOBAL].base == 5000);
    arch_fini(&d);
    gguf_close(x);
    gguf_close(y);
    hf_folder_drop(&a);
    hf_folder_drop(&b);
}

/* Each res_scale stands where the later form has it: one at a time is told by
 * its codes. */
static void moves_each_join(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        uint64_t at; /* which row of the table */
    } t[] = {
        {"model.layers.1.res_scale.residual_bias", "blk.0.join_attn.weight", 2},
        {"model.layers.2.res_scale.residual_scale", "blk.0.join_ffn.weight", 3},
        {"model.layers.3.res_scale.hidden_states_bias", "blk.1.join_attn.weight",
         0},
        {"model.res_scale.hidden_states_scale", "blk.1.join_ffn.weight", 1},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        struct first_model m;
        struct err e = {0};
        struct gguf *g = NULL;
        float y[QKV];
        hf_folder_make(&f);
        hf_folder_text(&f, "config.json", "{" FIRST "}");
        first_tensors(&m);
        first_put(&f, &m, t[i].from, "F8_E4M3");
        unit_ok(source_open(f.dir, &g, &e), &e);
        for (uint64_t r = 0; r < 4; r++) {
            row(g, t[i].to, r, D, y);
            assert_true(y[1] == (r == t[i].at ? 0.001953125F : 0.5F));
        }
        gguf_close(g);
        hf_folder_drop(&f);
    }
}

static void refuses_first_configs_by_name(void **state)
{
    (void)state;
#define SIZES_1 ",\"num_hidden_layers\":4,\"ffn_hidden_size\":6,\"rope_theta\":5000"
    static const struct {
        const char *json, *says;
    } t[] = {
        {"{" FIRST ",\"swa_layers\":[0,0,128,0]}",      "swa_layers"},
        {"{" FIRST ",\"add_bias_linear\":true}",        "add_bias_linear"},
        {"{" FIRST_NUMBERS SIZES_1 ",\"zaya_use_mod\":false}", "zaya_use_mod"},
        {"{" FIRST_NUMBERS SIZES_1 ",\"rms_norm_eps\":1e-5}", "both forms"},
        {"{" FIRST_NUMBERS SIZES_1 ",\"num_key_value_heads\":4}",
         "num_query_groups 2"},
        {"{" FIRST_NUMBERS SIZES_1 ",\"rope_parameters\":{}}", "beside keys"},
        {"{" FIRST_NUMBERS SIZES_1 ",\"sliding_window\":8}", "sliding_window"},
        {"{" FIRST_NUMBERS SIZES_1 ",\"new\":1}",       "'new'"},
        {"{" FIRST_NUMBERS ",\"num_hidden_layers\":3,\"ffn_hidden_size\":6,"
         "\"rope_theta\":5000}",                         "even, not 3"},
        {"{" FIRST_NUMBERS ",\"num_hidden_layers\":4,\"ffn_hidden_size\":7,"
         "\"rope_theta\":5000}",                         "even, not 7"},
        {"{" FIRST_NUMBERS ",\"num_hidden_layers\":4,\"ffn_hidden_size\":6}",
         "'rope_theta' is missing"},
    };
    struct hf_folder f;
    struct first_model m;
    hf_folder_make(&f);
    first_tensors(&m);
    first_put(&f, &m, NULL, NULL);
    for (size_t i = 0; i < countof(t); i++) {
        hf_folder_text(&f, "config.json", t[i].json);
        refuse(&f, t[i].json, t[i].says);
    }
    hf_folder_drop(&f);
}

static void refuses_first_tensors_by_name(void **state)
{
    (void)state;
    /* one is left out, or becomes another */
    static const struct {
        const char *name, *as, *says;
    } t[] = {
        {"model.layers.3." EXPERT "1.linear_fc2.weight", NULL,
         "model.layers.3." EXPERT "1.linear_fc2.weight is missing"},
        {"model.layers.3." EXPERT "1.linear_fc2.weight",
         "model.layers.3." EXPERT "2.linear_fc2.weight", "has no place"},
        {"model.layers.3." EXPERT "1.linear_fc2.weight",
         "model.layers.2." EXPERT "1.linear_fc2.weight", "has no place"},
        {"model.layers.3." EXPERT "1.linear_fc2.weight",
         "model.layers.5." EXPERT "1.linear_fc2.weight", "has no place"},
        {"model.layers.2." QKV_1 "temp", "model.layers.3." QKV_1 "temp",
         "has no place"},
        {"model.layers.2.res_scale.residual_bias",
         "model.layers.0.res_scale.residual_bias", "has no place"},
        {"model.res_scale.residual_bias", NULL, "residual_bias is missing"},
        {"model.final_norm.weight", "model.norm.weight", "has no place"},
        {"model.layers.0." QKV_1 "linear_q.weight",
         "model.layers.0." PROJ "q_proj.weight", "has no place"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        struct first_model m;
        size_t at = 0;
        hf_folder_make(&f);
        hf_folder_text(&f, "config.json", "{" FIRST "}");
        first_tensors(&m);
        while (at < m.n && strcmp(m.tensors[at].name, t[i].name) != 0) {
            at++;
        }
        assert_true(at < m.n);
        if (t[i].as != NULL) {
            m.tensors[at].name = t[i].as;
        } else {
            m.tensors[at] = m.tensors[--m.n];
        }
        first_put(&f, &m, NULL, NULL);
        refuse(&f, t[i].name, t[i].says);
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
        cmocka_unit_test(reads_the_first_form),
        cmocka_unit_test(moves_each_join),
        cmocka_unit_test(refuses_first_configs_by_name),
        cmocka_unit_test(refuses_first_tensors_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
