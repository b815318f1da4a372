/* families.c - the table of families: the one file to touch for another.
 *
 * A row says what all layers of a family have; `fill` reads what only this
 * family writes, and changes the layers that differ. What a row does not
 * mention has the plain form: RMSNorm before each block, neox rotation of whole
 * heads, grouped attention over everything before, a gated feed-forward.
 *
 * Sources: the forward passes of the transformers library, the metadata that
 * llama.cpp's converters write, and each family's tiny model with independent
 * logits in the test suite (tests/oracle/test_families.py).
 */
#include <math.h>
#include <string.h>

#include "convert/arch/arch.h"

#define BIT(slot) SLOT_BIT(SLOT_##slot)
#define ALL(slot) SLOT_GLOBAL_BIT(SLOT_##slot)

#define NEED_BLOCK \
    (BIT(Q) | BIT(K) | BIT(V) | BIT(O) | BIT(GATE) | BIT(UP) | BIT(DOWN))
#define NEED_ALL   (ALL(EMBD) | ALL(OUT_NORM))
#define PRE_NORMS  (BIT(ATTN_NORM) | BIT(FFN_NORM))
#define POST_NORMS (BIT(POST_ATTN) | BIT(POST_FFN))
#define QK_NORMS   (BIT(Q_NORM) | BIT(K_NORM))
#define QKV_BIAS   (BIT(Q_BIAS) | BIT(K_BIAS) | BIT(V_BIAS))
/* of layers that have them */
#define EXPERTS \
    (BIT(ROUTER) | BIT(EXPERT_GATE) | BIT(EXPERT_UP) | BIT(EXPERT_DOWN))
#define EXPERT_BRANCH                                           \
    (BIT(ROUTER_SCALE) | BIT(EXPERT_SCALE) | BIT(EXPERT_NORM) | \
     BIT(POST_DENSE) | BIT(POST_EXPERTS))
#define EXPERT_BIAS \
    (BIT(EXPERT_GATE_BIAS) | BIT(EXPERT_UP_BIAS) | BIT(EXPERT_DOWN_BIAS))
#define FFN_BIAS   (BIT(GATE_BIAS) | BIT(UP_BIAS) | BIT(DOWN_BIAS))

/* --- gemma2 --- */

static const char *const gemma2_keys[] = {"attn_logit_softcapping",
                                          "final_logit_softcapping", NULL};

static int read_caps(struct reading *r, struct err *e)
{
    float cap = 0;
    RETERR(arch_f32(r, "attn_logit_softcapping", 0, 1e4f, &cap, e));
    for (uint32_t l = 0; l < r->d->n_layers; l++) {
        r->d->layers[l].score_cap = cap;
    }
    return arch_f32(r, "final_logit_softcapping", 0, 1e4f, &r->d->logit_cap,
                    e);
}

/* Even layers are windowed (not in the file), all with one rotation. */
static int fill_gemma2(struct reading *r, struct err *e)
{
    struct decoder *d = r->d;
    d->kinds[LAYER_LOCAL].base = d->kinds[LAYER_GLOBAL].base;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        d->layers[l].kind = l % 2 == 0 ? LAYER_LOCAL : LAYER_GLOBAL;
    }
    return read_caps(r, e);
}

/* --- gemma4 (dense; E2B and E4B with per-layer embeddings; 26B with experts) --- */

static const char *const gemma4_keys[] = {
    "final_logit_softcapping",          "attention.shared_kv_layers",
    "attention.key_length_swa",         "attention.value_length_swa",
    "rope.dimension_count_swa",         "embedding_length_per_layer_input",
    NULL,
};

/* The last `shared` layers read the keys and values of the last layer of their
 * kind before them. */
static int share_keys(struct decoder *d, uint32_t shared, struct err *e)
{
    uint32_t own = d->n_layers - shared;
    uint32_t last[LAYER_KINDS] = {UINT32_MAX, UINT32_MAX};
    for (uint32_t l = 0; l < d->n_layers; l++) {
        uint32_t kind = d->layers[l].kind;
        if (l < own) {
            last[kind] = l;
        } else if (last[kind] == UINT32_MAX) {
            return err_set(e, ERR_CONVERT,
                           "layer %u shares keys, and no layer of its kind "
                           "has any",
                           l);
        } else {
            d->layers[l].kv_from = last[kind];
        }
    }
    return 0;
}

/* Without a projection of their own, values are that of the keys. */
static void values_of_keys(struct reading *r)
{
    for (uint32_t l = 0; l < r->d->n_layers; l++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "blk.%u.attn_v.weight", l);
        r->d->layers[l].v_is_k =
            r->d->layers[l].kv_from == l && gguf_tensor(r->g, name) == NULL;
    }
}

static int fill_gemma4(struct reading *r, struct err *e)
{
    struct decoder *d = r->d;
    struct arch_kind *local = &d->kinds[LAYER_LOCAL];
    uint32_t head = d->layers[0].d_head;
    uint32_t value = 0;
    uint32_t shared = 0;
    bool windowed[MODEL_LAYERS_MAX] = {false};
    RETERR(arch_u32(r, "attention.key_length_swa", 1, MODEL_DIM_MAX, &head, e));
    value = head;
    RETERR(
        arch_u32(r, "attention.value_length_swa", 1, MODEL_DIM_MAX, &value, e));
    if (value != head) {
        return err_set(e, ERR_UNSUPPORTED, "keys of %u and values of %u", head,
                       value);
    }
    local->rope_dim = head;
    RETERR(arch_u32(r, "rope.dimension_count_swa", 2, head, &local->rope_dim,
                    e));
    RETERR(arch_bools(r, "attention.sliding_window_pattern", windowed, e));
    if (arch_has_key(r, "embedding_length_per_layer_input")) {
        uint32_t zero = 1; /* a model without them writes 0 */
        RETERR(arch_u32(r, "embedding_length_per_layer_input", 0,
                        MODEL_DIM_MAX, &zero, e));
        d->d_ple = zero;
    }
    if (arch_has_key(r, "attention.shared_kv_layers")) {
        shared = 1;
        RETERR(arch_u32(r, "attention.shared_kv_layers", 0, d->n_layers - 1,
                        &shared, e));
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        struct layer *y = &d->layers[l];
        y->kind = windowed[l] ? LAYER_LOCAL : LAYER_GLOBAL;
        y->d_head = windowed[l] ? head : y->d_head;
        y->score_scale = 1;
        y->v_norm = true;
        y->d_ple = d->d_ple;
    }
    RETERR(share_keys(d, shared, e));
    values_of_keys(r);
    RETERR(arch_read_experts(r, 0, ROUTER_SOFTMAX_TOP, true, e));
    return arch_f32(r, "final_logit_softcapping", 0, 1e4f, &d->logit_cap, e);
}

/* --- exaone4 --- */

/* With a window (32B), only the windowed layers turn, by divided frequencies;
 * divisors belong to the global kind here. */
static int fill_exaone4(struct reading *r, struct err *e)
{
    return r->d->kinds[LAYER_GLOBAL].window == 0
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "%s: a window is not converted in this family",
                         arch_key(r, "attention.sliding_window"));
}

/* --- granite --- */

static const char *const granite_keys[] = {
    "attention.scale", "embedding_scale", "residual_scale", "logit_scale", NULL,
};

/* 0 and absent are 1. */
static int read_multiplier(struct reading *r, const char *tail, float *ret,
                           struct err *e)
{
    float v = 0;
    RETERR(arch_f32(r, tail, 0, 1e4f, &v, e));
    *ret = v > 0 ? v : 1;
    return 0;
}

static int fill_granite(struct reading *r, struct err *e)
{
    struct decoder *d = r->d;
    float scores = 0;
    float residual = 1;
    float divisor = 1;
    RETERR(arch_f32(r, "attention.scale", 0, 1e4f, &scores, e));
    RETERR(read_multiplier(r, "embedding_scale", &d->embed_scale, e));
    RETERR(read_multiplier(r, "residual_scale", &residual, e));
    RETERR(read_multiplier(r, "logit_scale", &divisor, e));
    d->logit_scale = 1 / divisor;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        struct layer *y = &d->layers[l];
        y->score_scale = scores > 0 ? scores : y->score_scale;
        y->residual_scale = residual;
    }
    return 0;
}

/* --- lfm2 --- */

static const char *const lfm2_keys[] = {"shortconv.l_cache", NULL};

static const struct arch_name lfm2_names[] = {
    {SLOT_OUT_NORM, "token_embd_norm.weight"},
    {SLOT_COUNT, NULL},
};

/* Layers without keys are short convolutions. */
static int fill_lfm2(struct reading *r, struct err *e)
{
    uint32_t taps = 0;
    RETERR(arch_u32(r, "shortconv.l_cache", 2, MODEL_CONV_MAX, &taps, e));
    for (uint32_t l = 0; l < r->d->n_layers; l++) {
        struct layer *y = &r->d->layers[l];
        if (y->n_kv > 0) {
            continue;
        }
        y->mixer = MIXER_CONV;
        y->conv_len = taps;
        y->rotates = false;
        y->qk_norm = QK_NORM_NONE;
        y->n_heads = 0;
        y->d_head = 0;
        y->score_scale = 0;
    }
    return 0;
}

/* --- lfm2moe --- */

static const char *const lfm2moe_keys[] = {
    "shortconv.l_cache", "leading_dense_block_count", "expert_gating_func",
    NULL};

#define GATING_SIGMOID 2u /* expert_gating_func */

/* The first layers are dense. */
static int fill_lfm2moe(struct reading *r, struct err *e)
{
    uint32_t dense = 0;
    uint32_t gating = GATING_SIGMOID;
    RETERR(fill_lfm2(r, e));
    if (arch_has_key(r, "leading_dense_block_count")) {
        RETERR(arch_u32(r, "leading_dense_block_count", 0, r->d->n_layers,
                        &dense, e));
    }
    RETERR(arch_u32(r, "expert_gating_func", 0, UINT32_MAX, &gating, e));
    if (gating != GATING_SIGMOID) {
        return err_set(e, ERR_UNSUPPORTED, "%s is %u; aned converts %u",
                       r->text, gating, GATING_SIGMOID);
    }
    return arch_read_experts(r, dense, ROUTER_SIGMOID_BIAS, false, e);
}

/* --- zaya ---
 * No exporter writes GGUFs of it: the keys and tensors are named here, and made
 * of safetensors. token_embd is what enters the first layer, (embedding + bias)
 * * scale; output the embedding itself. */

static const char *const zaya_keys[] = {"cca.time0", "cca.time1",
                                        "router_length", NULL};

static int fill_zaya(struct reading *r, struct err *e)
{
    struct decoder *d = r->d;
    uint32_t taps[2] = {0, 0};
    uint32_t router = 0;
    RETERR(arch_u32(r, "cca.time0", 2, MODEL_CONV_MAX / 2, &taps[0], e));
    RETERR(arch_u32(r, "cca.time1", 2, MODEL_CONV_MAX / 2, &taps[1], e));
    RETERR(arch_u32(r, "router_length", 1, MODEL_DIM_MAX, &router, e));
    RETERR(arch_read_experts(r, 0, ROUTER_NETWORK, false, e));
    for (uint32_t l = 0; l < d->n_layers; l++) {
        struct layer *y = &d->layers[l];
        if (y->n_experts == 0 || y->n_top != 1 || y->n_kv % 2 != 0) {
            return err_set(e, ERR_UNSUPPORTED,
                           "layer %u: %u of %u experts, %u key heads; one "
                           "expert and pairs of key heads are converted",
                           l, y->n_top, y->n_experts, y->n_kv);
        }
        y->mixer = MIXER_CCA;
        y->conv_len = taps[0];
        y->mix_len = taps[1];
        y->d_router = router;
        y->affine_join = true;
    }
    return 0;
}

/* --- openai-privacy-filter --- */

static const char *const privacy_filter_keys[] = {
    "attention.causal", "classifier.output_labels", "embedding_length_out",
    "rope.scaling.yarn_truncate", NULL};

static const struct arch_name privacy_filter_names[] = {
    {SLOT_OUTPUT, "cls.output.weight"},
    {SLOT_OUT_BIAS, "cls.output.bias"},
    {SLOT_FFN_NORM, "post_attention_norm.weight"},
    {SLOT_COUNT, NULL},
};

#define POOLING_NONE 0u
#define POOLING_TAGS 5u /* a row of labels for each token */

static int check_encoder_keys(struct reading *r, struct err *e)
{
    uint32_t pooling = POOLING_TAGS;
    uint32_t out = r->d->n_labels;
    bool causal = false;
    const char *name = arch_key(r, "attention.causal");
    if (gguf_find(r->g, name) != NULL &&
        (!gguf_get_bool(r->g, name, &causal) || causal)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: an encoder that sees one side only is not converted",
                       name);
    }
    name = arch_key(r, "pooling_type");
    if (gguf_find(r->g, name) != NULL &&
        (!gguf_get_u32(r->g, name, &pooling) ||
         (pooling != POOLING_NONE && pooling != POOLING_TAGS))) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: only %u, labels for each token, is converted", name,
                       POOLING_TAGS);
    }
    RETERR(arch_u32(r, "embedding_length_out", 1, MODEL_LABELS_MAX, &out, e));
    return out == r->d->n_labels
               ? 0
               : err_set(e, ERR_CONVERT, "%s is %u, and there are %u labels",
                         r->text, out, r->d->n_labels);
}

static int read_labels(struct reading *r, struct err *e)
{
    const char *name = arch_key(r, "classifier.output_labels");
    const struct gguf_kv *a = gguf_get_arr(r->g, name, GGUF_STRING);
    uint64_t at = 0;
    if (a == NULL) {
        return err_set(e, ERR_GGUF_MISSING, "key %s is absent", name);
    }
    if (a->count == 0 || a->count > MODEL_LABELS_MAX) {
        return err_set(e, ERR_CONVERT, "%s has %llu labels; aned takes 1 to %u",
                       name, (unsigned long long)a->count, MODEL_LABELS_MAX);
    }
    for (uint64_t i = 0; i < a->count; i++) {
        struct span s = gguf_arr_str(a, &at);
        if (s.n == 0 || s.n > MODEL_LABEL_BYTES_MAX ||
            memchr(s.p, '\0', s.n) != NULL) {
            return err_set(e, ERR_CONVERT, "%s: label %llu is no name", name,
                           (unsigned long long)i);
        }
    }
    r->d->n_labels = (uint32_t)a->count;
    return 0;
}

static int fill_privacy_filter(struct reading *r, struct err *e)
{
    uint32_t window = r->d->kinds[LAYER_GLOBAL].window;
    RETERR(read_labels(r, e));
    RETERR(check_encoder_keys(r, e));
    RETERR(arch_read_experts(r, 0, ROUTER_SOFTMAX_TOP, false, e));
    if (window == 0 || layer_block(window) > ENCODER_ROWS_MAX / 4) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is %u: aned takes 1 to %u keys on each side",
                       arch_key(r, "attention.sliding_window"), window,
                       ENCODER_ROWS_MAX / 4);
    }
    for (uint32_t l = 0; l < r->d->n_layers; l++) {
        r->d->layers[l].both_sides = true;
        r->d->layers[l].sinks = true;
        if (r->d->layers[l].n_experts == 0) {
            return err_set(e, ERR_GGUF_MISSING, "key %s is absent or 0",
                           arch_key(r, "expert_count"));
        }
    }
    return 0;
}

/* --- bert, nomic-bert: encoders.c --- */

static const char *const bert_keys[] = {
    "attention.causal", "attention.layer_norm_epsilon", "max_seq_length", NULL};

static const struct arch_name bert_names[] = {
    {SLOT_POST_ATTN, "attn_output_norm.weight"},
    {SLOT_POST_ATTN_BIAS, "attn_output_norm.bias"},
    {SLOT_POST_FFN, "layer_output_norm.weight"},
    {SLOT_POST_FFN_BIAS, "layer_output_norm.bias"},
    {SLOT_COUNT, NULL},
};

#define SUM_NORMS (POST_NORMS | BIT(POST_ATTN_BIAS) | BIT(POST_FFN_BIAS))
#define EMBD_NORMS (ALL(EMBD) | ALL(EMBD_NORM) | ALL(EMBD_NORM_BIAS))

/* --- phi3 --- */

static const char *const phi3_keys[] = {"rope.scaling.attn_factor", NULL};

static int fill_phi3(struct reading *r, struct err *e)
{
    struct arch_kind *k = &r->d->kinds[LAYER_GLOBAL];
    RETERR(arch_f32(r, "rope.scaling.attn_factor", 1e-3f, 1e3f, &k->magnitude,
                    e));
    k->original = r->d->context_train;
    return arch_u32(r, "rope.scaling.original_context_length", 1, UINT32_MAX,
                    &k->original, e);
}

/* --- smollm3 --- */

/* Every fourth layer has no rotation (not in the file). */
static int fill_smollm3(struct reading *r, struct err *e)
{
    (void)e;
    for (uint32_t l = 3; l < r->d->n_layers; l += 4) {
        r->d->layers[l].rotates = false;
    }
    return 0;
}

/* --- the table --- */

static const struct arch_row rows[] = {
    {.name = "llama", /* mistral too */
     .need = NEED_BLOCK | PRE_NORMS,
     .need_all = NEED_ALL,
     .may = QKV_BIAS | BIT(O_BIAS),
     .may_all = ALL(OUTPUT) | ALL(ROPE_FREQS),
     .pairs = true},
    {.name = "qwen2",
     .need = NEED_BLOCK | PRE_NORMS | QKV_BIAS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT)},
    {.name = "qwen3",
     .need = NEED_BLOCK | PRE_NORMS | QK_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT)},
    {.name = "phi3",
     .need = NEED_BLOCK | PRE_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT) | ALL(ROPE_SHORT) | ALL(ROPE_LONG),
     .keys = phi3_keys,
     .fused_up = true,
     .fill = fill_phi3},
    {.name = "hunyuan-dense",
     .need = NEED_BLOCK | PRE_NORMS | QK_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT),
     .qk_norm_last = true},
    {.name = "gemma",
     .need = NEED_BLOCK | PRE_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT),
     .act = ACT_GELU_TANH,
     .embed_sqrt = true},
    {.name = "gemma2",
     .need = NEED_BLOCK | PRE_NORMS | POST_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT),
     .keys = gemma2_keys,
     .act = ACT_GELU_TANH,
     .embed_sqrt = true,
     .local_every = 2,
     .local_base = 10000.0f,
     .wide_layers = 46, /* 27B; no key of the file tells */
     .fill = fill_gemma2},
    {.name = "gemma3",
     .need = NEED_BLOCK | PRE_NORMS | POST_NORMS | QK_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT),
     .act = ACT_GELU_TANH,
     .embed_sqrt = true,
     .local_every = 6,
     .local_base = 10000.0f,
     .wide_layers = 62}, /* 27B; no key of the file tells */
    {.name = "gemma4",
     .need = NEED_BLOCK | PRE_NORMS | POST_NORMS | QK_NORMS | BIT(PLE_PROJ) |
             BIT(PLE_GATE) | BIT(PLE_OUT) | BIT(PLE_NORM),
     .need_all = NEED_ALL | ALL(PLE_EMBD) | ALL(PLE_NORM_IN),
     .may = BIT(OUT_SCALE) | EXPERTS | EXPERT_BRANCH,
     .may_all = ALL(OUTPUT) | ALL(ROPE_FREQS),
     .experts = true,
     .keys = gemma4_keys,
     .act = ACT_GELU_TANH,
     .embed_sqrt = true,
     .local_every = 6, /* the pattern stands in the file */
     .local_base = 10000.0f,
     .fill = fill_gemma4},
    {.name = "granite",
     .need = NEED_BLOCK | PRE_NORMS,
     .need_all = NEED_ALL,
     .may = QKV_BIAS | BIT(O_BIAS) | FFN_BIAS,
     .may_all = ALL(OUTPUT) | ALL(ROPE_FREQS),
     .keys = granite_keys,
     .pairs = true,
     .fill = fill_granite},
    {.name = "olmo2",
     .need = NEED_BLOCK | POST_NORMS | QK_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT),
     .no_pre_norm = true,
     .qk_norm_full = true},
    {.name = "smollm3",
     .need = NEED_BLOCK | PRE_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT),
     .pairs = true,
     .fill = fill_smollm3},
    {.name = "glm4", /* text models; the others' rotation has sections */
     .need = NEED_BLOCK | PRE_NORMS | POST_NORMS,
     .need_all = NEED_ALL,
     .may = QKV_BIAS,
     .may_all = ALL(OUTPUT),
     .pairs = true,
     .fused_up = true},
    {.name = "lfm2",
     .need = NEED_BLOCK | PRE_NORMS | QK_NORMS | BIT(CONV_IN) | BIT(CONV) |
             BIT(CONV_OUT),
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT),
     .keys = lfm2_keys,
     .names = lfm2_names,
     .some_heads = true,
     .fill = fill_lfm2},
    {.name = "lfm2moe",
     .need = NEED_BLOCK | PRE_NORMS | QK_NORMS | BIT(CONV_IN) | BIT(CONV) |
             BIT(CONV_OUT),
     .need_all = NEED_ALL,
     .may = EXPERTS | BIT(ROUTER_BIAS),
     .may_all = ALL(OUTPUT),
     .experts = true,
     .keys = lfm2moe_keys,
     .names = lfm2_names,
     .some_heads = true,
     .fill = fill_lfm2moe},
    {.name = "zaya",
     .need = PRE_NORMS | BIT(Q) | BIT(K) | BIT(V) | BIT(V_BEFORE) | BIT(O) |
             BIT(CONV) | BIT(MIX) | BIT(MIX_BIAS) | BIT(K_SCALE) |
             BIT(JOIN_ATTN) | BIT(JOIN_FFN),
     .need_all = NEED_ALL | ALL(OUTPUT),
     .may = EXPERTS | BIT(ROUTER_BIAS) | BIT(ROUTER_DOWN) | BIT(ROUTER_1) |
            BIT(ROUTER_2) | BIT(ROUTER_VECTORS),
     .experts = true,
     .keys = zaya_keys,
     .fill = fill_zaya},
    {.name = "openai-privacy-filter", /* an encoder: 33 labels a token */
     .need = PRE_NORMS | BIT(Q) | BIT(K) | BIT(V) | BIT(O) | BIT(SINKS),
     .need_all = NEED_ALL | ALL(OUTPUT),
     .may = QKV_BIAS | BIT(O_BIAS) | EXPERTS | BIT(ROUTER_ADD) | EXPERT_BIAS,
     .may_all = ALL(OUT_BIAS),
     .experts = true,
     .keys = privacy_filter_keys,
     .names = privacy_filter_names,
     .encoder = true,
     .act = ACT_CLAMPED,
     .pairs = true,
     .fill = fill_privacy_filter},
    {.name = "bert", /* an encoder: embeddings */
     .need = BIT(Q) | BIT(K) | BIT(V) | BIT(O) | BIT(UP) | BIT(DOWN) | SUM_NORMS,
     .need_all = EMBD_NORMS | ALL(POSITIONS),
     .may = QKV_BIAS | BIT(O_BIAS) | BIT(UP_BIAS) | BIT(DOWN_BIAS),
     .may_all = ALL(TYPES),
     .keys = bert_keys,
     .names = bert_names,
     .encoder = true,
     .no_pre_norm = true,
     .act = ACT_GELU_ERF,
     .fill = arch_fill_bert},
    {.name = "nomic-bert", /* the same, turned and gated */
     .need = (NEED_BLOCK) | SUM_NORMS,
     .need_all = EMBD_NORMS,
     .may = QKV_BIAS | BIT(O_BIAS) | FFN_BIAS,
     .may_all = ALL(TYPES),
     .keys = bert_keys,
     .names = bert_names,
     .encoder = true,
     .no_pre_norm = true,
     .fill = arch_fill_nomic},
    {.name = "exaone4",
     .need = NEED_BLOCK | POST_NORMS | QK_NORMS,
     .need_all = NEED_ALL,
     .may_all = ALL(OUTPUT) | ALL(ROPE_FREQS),
     .no_pre_norm = true,
     .fill = fill_exaone4},
};

const struct arch_row *const arch_rows = rows;
const size_t arch_n_rows = sizeof(rows) / sizeof(*rows);
