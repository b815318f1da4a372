/* families.c - the table of model_types: the one file to touch for another.
 *
 * `fill` checks what only this family has, and writes what GGUF has for it.
 * What GGUF does not say but a family's row of convert/arch assumes (a scale of
 * scores, a pattern of layers) is held against that assumption here, so that a
 * config that means something else is refused by name.
 *
 * Sources: the configuration classes of the transformers library, llama.cpp's
 * converter, and each family's tiny model (tests/oracle/test_safetensors.py).
 */
#include <string.h>

#include "base/fmath.h"
#include "source/hf/fill.h"

#define WHERE "config.json: "

static const char *const silu[] = {"silu", "swish", NULL};
/* Gemma's first files say "gelu" and mean the tanh form. */
static const char *const gelu_any[] = {"gelu_pytorch_tanh", "gelu", NULL};
static const char *const gelu_tanh[] = {"gelu_pytorch_tanh", NULL};
static const char *const gelu_erf[] = {"gelu", NULL};

/* --- what many share --- */

int hf_put_plain_rope(struct hf *h, double theta, struct err *e)
{
    struct hf_rope r = {.theta = theta};
    RETERR(hf_rope_of(h, NULL, &r, e));
    if (r.partial < 1) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "a partial rotation is not converted in this "
                             "family");
    }
    return hf_put_rope(h, &r, e);
}

int hf_check_layers(const struct hf *h, const char *a, const char *b,
                    uint32_t every, struct err *e)
{
    const struct json *list = hf_get(h->text, "layer_types");
    uint32_t l = 0;
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        const char *want = every > 0 && (l + 1) % every != 0 ? a : b;
        if (json_str(c) == NULL || strcmp(json_str(c), want) != 0) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "layer_types: layer %u is '%.32s'; only "
                                 "'%s' is converted there",
                           l, json_str(c) != NULL ? json_str(c) : "", want);
        }
        l++;
    }
    return list == NULL || l == h->n_layers
               ? 0
               : err_set(e, ERR_MODEL_CONFIG,
                         WHERE "layer_types has %u entries for %u layers", l,
                         h->n_layers);
}

/* A window on every layer, of families that have one for all. */
static int put_window(struct hf *h, bool of_mask, struct err *e)
{
    uint32_t window = 0;
    bool use = true;
    RETERR(hf_bool(h->text, "use_sliding_window", &use, e));
    RETERR(hf_u32(h->text, "sliding_window", false, 0, UINT32_MAX, &window, e));
    RETERR(hf_check_layers(h, "", of_mask && use && window > 0
                                   ? "sliding_attention"
                                   : "full_attention",
                        0, e));
    if (!use || window == 0) {
        return 0;
    }
    return of_mask ? hf_put_u32(h, "attention.sliding_window", window, e)
                   : err_set(e, ERR_UNSUPPORTED,
                             WHERE "sliding_window is not converted in this "
                                   "family");
}

/* Families whose config class has use_sliding_window: off when absent. */
static int no_window(struct hf *h, struct err *e)
{
    bool use = false;
    RETERR(hf_bool(h->text, "use_sliding_window", &use, e));
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    return use ? err_set(e, ERR_UNSUPPORTED,
                         WHERE "use_sliding_window is not converted")
               : 0;
}

/* --- llama, mistral, qwen --- */

static const char *const llama_keys[] = {"mlp_bias", NULL};

static int fill_llama(struct hf *h, struct err *e)
{
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    return hf_put_plain_rope(h, 10000, e);
}

static int fill_mistral(struct hf *h, struct err *e)
{
    RETERR(put_window(h, true, e));
    return hf_put_plain_rope(h, 10000, e);
}

static int fill_qwen(struct hf *h, struct err *e)
{
    RETERR(no_window(h, e));
    return hf_put_plain_rope(h, 10000, e);
}

/* --- phi3 --- */

static int fill_phi3(struct hf *h, struct err *e)
{
    struct hf_rope r = {.theta = 10000};
    RETERR(hf_rope_of(h, NULL, &r, e));
    RETERR(put_window(h, true, e));
    RETERR(hf_put_u32(h, "rope.dimension_count",
                      (uint32_t)(r.partial * h->d_head), e));
    return hf_put_rope(h, &r, e);
}

/* --- hunyuan_v1_dense --- */

static const char *const hunyuan_keys[] = {
    "use_qk_norm", "use_rotary_pos_emb", "attention_head_dim",
    "norm_type",   "cla_share_factor",   NULL};

/* What the model's own code reads, and the library does not. */
static int check_hunyuan(const struct hf *h, struct err *e)
{
    bool norm = true;
    bool turns = true;
    const char *type = "rms";
    uint32_t head = h->d_head;
    RETERR(hf_bool(h->text, "use_qk_norm", &norm, e));
    RETERR(hf_bool(h->text, "use_rotary_pos_emb", &turns, e));
    RETERR(hf_str(h->text, "norm_type", &type, e));
    RETERR(hf_u32(h->text, "attention_head_dim", false, 1, MODEL_DIM_MAX,
                  &head, e));
    return norm && turns && strcmp(type, "rms") == 0 && head == h->d_head
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         WHERE "use_qk_norm, use_rotary_pos_emb, norm_type or "
                               "attention_head_dim is not as converted");
}

/* "dynamic" with alpha is one base for all lengths. */
static int fill_hunyuan(struct hf *h, struct err *e)
{
    static const char *const known[] = {
        "alpha",     "factor", "rope_theta", "rope_type", "type",
        "beta_fast", "beta_slow", "mscale", "mscale_all_dim"};
    struct hf_rope r = {.theta = 10000};
    double alpha = 0;
    double factor = 1;
    RETERR(check_hunyuan(h, e));
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    RETERR(hf_rope_of(h, NULL, &r, e));
    if (strcmp(r.type, "dynamic") != 0) {
        return hf_put_plain_rope(h, 10000, e);
    }
    for (const struct json *c = json_first(r.j); c != NULL; c = json_next(c)) {
        bool ok = json_type(c) == JSON_NULL;
        for (size_t i = 0; i < countof(known); i++) {
            ok = ok || strcmp(json_key(c), known[i]) == 0;
        }
        if (!ok) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "'%.64s' of a dynamic rotation is not "
                                 "converted",
                           json_key(c));
        }
    }
    RETERR(hf_num(r.j, "alpha", true, 1, 1e9, &alpha, e));
    RETERR(hf_num(r.j, "factor", false, 0, 1e6, &factor, e));
    if (factor != 1 || h->d_head < 4 || r.partial < 1) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "a dynamic rotation with factor %g is not "
                             "converted",
                       factor);
    }
    double power = (double)h->d_head / (h->d_head - 2.0);
    RETERR(hf_put_f32(h, "rope.freq_base", r.theta * fmath_pow(alpha, power),
                      e));
    RETERR(made_str(h->m, hf_key(h, "rope.scaling.type"), "none", e));
    RETERR(hf_put_f32(h, "rope.scaling.factor", 1, e));
    return hf_put_u32(h, "rope.scaling.original_context_length", h->context,
                      e);
}

/* --- granite --- */

static const char *const granite_keys[] = {
    "attention_multiplier", "embedding_multiplier", "residual_multiplier",
    "logits_scaling", NULL};

static int fill_granite(struct hf *h, struct err *e)
{
    static const struct {
        const char *key, *tail;
    } rows[] = {
        {"attention_multiplier", "attention.scale"},
        {"embedding_multiplier", "embedding_scale"},
        {"residual_multiplier",  "residual_scale" },
        {"logits_scaling",       "logit_scale"    },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        double v = 1; /* of the class */
        RETERR(hf_num(h->text, rows[i].key, false, 1e-9, 1e4, &v, e));
        RETERR(hf_put_f32(h, rows[i].tail, v, e));
    }
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    return hf_put_plain_rope(h, 10000, e);
}

/* --- smollm3 --- */

static const char *const smollm3_keys[] = {"no_rope_layers",
                                           "no_rope_layer_interval", NULL};

/* Every fourth layer does not turn: convert/arch knows no other pattern. */
static int fill_smollm3(struct hf *h, struct err *e)
{
    const struct json *list = hf_get(h->text, "no_rope_layers");
    uint32_t every = 4;
    uint32_t l = 0;
    RETERR(hf_u32(h->text, "no_rope_layer_interval", false, 1, 1u << 20,
                  &every, e));
    if (list == NULL && every != 4) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "no_rope_layer_interval %u: only 4 is converted",
                       every);
    }
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        double want = (l + 1) % 4 == 0 ? 0 : 1;
        if (json_type(c) != JSON_NUMBER || json_num(c) != want) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "no_rope_layers: only every fourth layer "
                                 "without rotation is converted");
        }
        l++;
    }
    if (list != NULL && l != h->n_layers) {
        return err_set(e, ERR_MODEL_CONFIG,
                       WHERE "no_rope_layers has %u entries for %u layers", l,
                       h->n_layers);
    }
    RETERR(no_window(h, e));
    return hf_put_plain_rope(h, 2000000, e);
}

/* --- glm4, exaone4, olmo2 --- */

/* Half of each head turns; the file's rows are pairs already. */
static int fill_glm4(struct hf *h, struct err *e)
{
    struct hf_rope r = {.theta = 10000};
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    RETERR(hf_rope_of(h, NULL, &r, e));
    RETERR(hf_put_u32(h, "rope.dimension_count",
                      (uint32_t)(r.partial * h->d_head), e));
    return hf_put_rope(h, &r, e);
}

static const char *const exaone4_keys[] = {"sliding_window_pattern", NULL};

static int fill_exaone4(struct hf *h, struct err *e)
{
    uint32_t window = 0;
    RETERR(hf_u32(h->text, "sliding_window", false, 0, UINT32_MAX, &window, e));
    if (window > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "sliding_window is not converted in this family");
    }
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    return hf_put_plain_rope(h, 1000000, e);
}

static int fill_olmo2(struct hf *h, struct err *e)
{
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    return hf_put_plain_rope(h, 500000, e);
}

/* --- lfm2 --- */

static const char *const lfm2_keys[] = {
    "norm_eps",          "layer_types",
    "full_attn_idxs",    "conv_L_cache",
    "conv_bias",         "block_auto_adjust_ff_dim",
    "block_ff_dim",      "block_ffn_dim_multiplier",
    "block_multiple_of", "theta",
    "use_pos_enc",       "block_use_swiglu",
    /* said twice, or of training */
    "block_dim",         "block_norm_eps",
    "conv_dim",          "conv_dim_out",
    "num_heads",         "block_mlp_init_scale",
    "block_out_init_scale", "block_use_xavier_init",
    "conv_use_xavier_init", NULL,
};

/* The file says a width from which the true one is computed. */
static int lfm2_width(struct hf *h, struct err *e)
{
    double width = 0;
    double times = 1;
    uint32_t of = 256;
    bool adjust = true;
    RETERR(hf_num(h->text, "intermediate_size", false, 1, 1e6, &width, e));
    RETERR(hf_num(h->text, "block_ff_dim", !(width > 0), 1, 1e6, &width, e));
    RETERR(hf_bool(h->text, "block_auto_adjust_ff_dim", &adjust, e));
    RETERR(hf_num(h->text, "block_ffn_dim_multiplier", false, 0.01, 100, &times,
                  e));
    RETERR(hf_u32(h->text, "block_multiple_of", false, 1, MODEL_DIM_MAX, &of,
                  e));
    if (adjust) {
        uint64_t ff = (uint64_t)(times * (double)((uint64_t)width * 2 / 3));
        width = (double)((ff + of - 1) / of * of);
    }
    return hf_put_u32(h, "feed_forward_length", (uint32_t)width, e);
}

/* A layer without keys is a short convolution. */
static int lfm2_layers(const struct hf *h, int32_t *kv, struct err *e)
{
    const struct json *types = hf_get(h->text, "layer_types");
    const struct json *full = hf_get(h->text, "full_attn_idxs");
    uint32_t l = 0;
    for (const struct json *c = json_first(types);
         c != NULL && l < h->n_layers; c = json_next(c)) {
        const char *kind = json_str(c);
        bool conv = kind != NULL && strcmp(kind, "conv") == 0;
        if (!conv && (kind == NULL || strcmp(kind, "full_attention") != 0)) {
            return err_set(e, ERR_UNSUPPORTED, WHERE "layer_types: '%.32s'",
                           kind != NULL ? kind : "");
        }
        kv[l++] = conv ? 0 : (int32_t)h->n_kv;
    }
    for (const struct json *c = json_first(full); types == NULL && c != NULL;
         c = json_next(c)) {
        int64_t i = 0;
        if (!json_int(c, 0, h->n_layers - 1, &i)) {
            return err_set(e, ERR_MODEL_CONFIG, WHERE "full_attn_idxs");
        }
        kv[i] = (int32_t)h->n_kv;
    }
    return (types == NULL && full != NULL) ||
                   (l == h->n_layers && json_count(types) == l)
               ? 0
               : err_set(e, ERR_MODEL_CONFIG,
                         WHERE "layer_types does not name %u layers",
                         h->n_layers);
}

int hf_fill_lfm2_layers(struct hf *h, struct err *e)
{
    int32_t kv[MODEL_LAYERS_MAX] = {0};
    struct hf_rope r = {.theta = 1000000};
    uint32_t taps = 0;
    bool bias = false;
    bool turns = true;
    bool gated = true;
    RETERR(hf_bool(h->text, "conv_bias", &bias, e));
    RETERR(hf_bool(h->text, "use_pos_enc", &turns, e));
    RETERR(hf_bool(h->text, "block_use_swiglu", &gated, e));
    if (bias || !turns || !gated) {
        return err_set(e, ERR_UNSUPPORTED, WHERE "%s is not converted",
                       bias     ? "conv_bias"
                       : !turns ? "use_pos_enc false"
                                : "block_use_swiglu false");
    }
    RETERR(lfm2_layers(h, kv, e));
    RETERR(made_i32s(h->m, hf_key(h, "attention.head_count_kv"), kv,
                     h->n_layers, e));
    RETERR(hf_u32(h->text, "conv_L_cache", true, 2, 1024, &taps, e));
    RETERR(hf_put_u32(h, "shortconv.l_cache", taps, e));
    RETERR(h->vocab > 0 ? hf_put_u32(h, "vocab_size", h->vocab, e) : 0);
    RETERR(hf_rope_of(h, NULL, &r, e));
    RETERR(hf_num(h->text, "theta", false, 1, 1e12, &r.theta, e));
    return hf_put_rope(h, &r, e);
}

static int fill_lfm2(struct hf *h, struct err *e)
{
    RETERR(lfm2_width(h, e));
    return hf_fill_lfm2_layers(h, e);
}

/* --- the table --- */

static const struct hf_family rows[] = {
    {.model_type = "llama",
     .head = "LlamaForCausalLM",
     .arch = "llama",
     .keys = llama_keys,
     .acts = silu,
     .pairs = true,
     .full_rope = true,
     .fill = fill_llama},
    {.model_type = "mistral",
     .head = "MistralForCausalLM",
     .arch = "llama",
     .acts = silu,
     .pairs = true,
     .full_rope = true,
     .fill = fill_mistral},
    {.model_type = "qwen2",
     .head = "Qwen2ForCausalLM",
     .arch = "qwen2",
     .acts = silu,
     .fill = fill_qwen},
    {.model_type = "qwen3",
     .head = "Qwen3ForCausalLM",
     .arch = "qwen3",
     .acts = silu,
     .fill = fill_qwen},
    {.model_type = "phi3",
     .head = "Phi3ForCausalLM",
     .arch = "phi3",
     .acts = silu,
     .fill = fill_phi3},
    {.model_type = "hunyuan_v1_dense",
     .head = "HunYuanDenseV1ForCausalLM",
     .arch = "hunyuan-dense",
     .keys = hunyuan_keys,
     .acts = silu,
     .fill = fill_hunyuan},
    {.model_type = "gemma",
     .head = "GemmaForCausalLM",
     .arch = "gemma",
     .acts = gelu_any,
     .plus_one = true,
     .fill = hf_fill_gemma},
    {.model_type = "gemma2",
     .head = "Gemma2ForCausalLM",
     .arch = "gemma2",
     .keys = hf_gemma2_keys,
     .acts = gelu_tanh,
     .plus_one = true,
     .sandwich = true,
     .fill = hf_fill_gemma2},
    {.model_type = "gemma3_text",
     .head = "Gemma3ForCausalLM",
     .arch = "gemma3",
     .keys = hf_gemma3_keys,
     .acts = gelu_tanh,
     .plus_one = true,
     .sandwich = true,
     .fill = hf_fill_gemma3},
    {.model_type = "gemma4_text",
     .head = "Gemma4ForCausalLM",
     .arch = "gemma4",
     .keys = hf_gemma4_keys,
     .acts = gelu_tanh,
     .sandwich = true,
     .own_sizes = true,
     .fill = hf_fill_gemma4},
    {.model_type = "granite",
     .head = "GraniteForCausalLM",
     .arch = "granite",
     .keys = granite_keys,
     .acts = silu,
     .pairs = true,
     .full_rope = true,
     .fill = fill_granite},
    {.model_type = "olmo2",
     .head = "Olmo2ForCausalLM",
     .arch = "olmo2",
     .acts = silu,
     .sandwich = true,
     .fill = fill_olmo2},
    {.model_type = "smollm3",
     .head = "SmolLM3ForCausalLM",
     .arch = "smollm3",
     .keys = smollm3_keys,
     .acts = silu,
     .pairs = true,
     .full_rope = true,
     .fill = fill_smollm3},
    {.model_type = "lfm2",
     .head = "Lfm2ForCausalLM",
     .arch = "lfm2",
     .keys = lfm2_keys,
     .acts = silu,
     .own_sizes = true,
     .eps = "norm_eps",
     .fill = fill_lfm2},
    {.model_type = "lfm2_moe",
     .head = "Lfm2MoeForCausalLM",
     .arch = "lfm2moe",
     .like = "lfm2",
     .keys = hf_lfm2moe_keys,
     .acts = silu,
     .own_sizes = true,
     .eps = "norm_eps",
     .fill = hf_fill_lfm2moe,
     .take = hf_take_lfm2moe,
     .finish = hf_finish_lfm2moe},
    {.model_type = "openai_privacy_filter",
     .head = "OpenAIPrivacyFilterForTokenClassification",
     .arch = "openai-privacy-filter",
     .keys = hf_privacy_filter_keys,
     .acts = silu,
     .sandwich = true, /* in name: what it is, arch/ says */
     .yarn_exact = true,
     .fill = hf_fill_privacy_filter,
     .take = hf_take_privacy_filter},
    {.model_type = "zaya",
     .head = "ZayaForCausalLM",
     .arch = "zaya",
     .keys = hf_zaya_keys,
     .acts = silu,
     .own_sizes = true,
     .renew = hf_renew_zaya,
     .rename = hf_rename_zaya,
     .fill = hf_fill_zaya,
     .take = hf_take_zaya,
     .finish = hf_finish_zaya},
    {.model_type = "bert",
     .head = "BertModel",
     .arch = "bert",
     .keys = hf_bert_keys,
     .acts = gelu_erf,
     .encodes = true,
     .bodies = hf_bert_bodies,
     .fill = hf_fill_bert,
     .check = hf_check_bert,
     .take = hf_take_bert},
    {.model_type = "nomic_bert",
     .head = "NomicBertModel",
     .arch = "nomic-bert",
     .keys = hf_nomic_keys,
     .acts = silu,
     .encodes = true,
     .bodies = hf_nomic_bodies,
     .other = hf_nomic_other,
     .fill = hf_fill_nomic,
     .check = hf_check_nomic,
     .take = hf_take_nomic},
    {.model_type = "glm4",
     .head = "Glm4ForCausalLM",
     .arch = "glm4",
     .acts = silu,
     .fill = fill_glm4},
    {.model_type = "exaone4",
     .head = "Exaone4ForCausalLM",
     .arch = "exaone4",
     .keys = exaone4_keys,
     .acts = silu,
     .sandwich = true,
     .fill = fill_exaone4},
};

const struct hf_family *const hf_families = rows;
const size_t hf_n_families = countof(rows);
