/* zaya_first.c - ZAYA as it was first released: its config.json and its names of
 * tensors become those of the transformers library (zaya.c), and nothing after
 * it knows.
 *
 * The first form counts half layers: 2i is attention, 2i + 1 the experts of
 * layer i. A half layer's res_scale stands before it, the library's behind, so
 * each moves by one: that of half layer 0 is the model's input, model.res_scale
 * the last layer's. ffn_hidden_size counts the rows of gate and up together.
 *
 * Sources: Zyphra's own modules for vLLM and SGLang, and the library's script
 * that writes the later form.
 */
#include <string.h>

#include "source/hf/fill.h"

#define WHERE "config.json: "

/* --- config.json --- */

/* What the later form has under another name. */
static const struct {
    const char *from, *to;
} renamed[] = {
    {"norm_epsilon",       "rms_norm_eps"       },
    {"zaya_mlp_expansion", "router_hidden_size" },
    {"moe_router_topk",    "num_experts_per_tok"},
};

/* What the later form has in no key, because it is always so. */
static const struct {
    const char *key;
    const char *text; /* NULL: a bool */
    bool is;
} fixed[] = {
    {"cca",                             NULL,      true },
    {"gated_linear_unit",               NULL,      true },
    {"scale_residual_merge",            NULL,      true },
    {"zaya_use_mod",                    NULL,      true },
    {"zaya_use_eda",                    NULL,      true },
    {"add_bias_linear",                 NULL,      false},
    {"clamp_temp",                      NULL,      false},
    {"rope_scaling",                    NULL,      false},
    {"activation_func_fp8_input_store", NULL,      false},
    {"normalization",                   "RMSNorm", false},
    {"activation_func",                 "swiglu",  false},
};

/* They say with which precision or kernels others compute. */
static const char *const ignored[] = {
    "fused_add_norm",   "apply_rope_fusion", "bias_activation_fusion",
    "residual_in_fp32", "mamba_cache_dtype", "zaya_high_prec",
    "swa_rotary_base"};

/* They are read by what follows here. */
static const char *const own[] = {
    "num_hidden_layers",   "ffn_hidden_size", "num_query_groups",
    "num_key_value_heads", "kv_channels",     "swa_layers",
    "rope_theta",          "partial_rotary_factor"};

static bool among(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(key, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_first(const struct json *j)
{
    for (size_t i = 0; i < countof(renamed); i++) {
        if (hf_get(j, renamed[i].from) != NULL) {
            return true;
        }
    }
    return hf_get(j, "scale_residual_merge") != NULL;
}

static int check_fixed(const struct json *j, struct err *e)
{
    for (size_t i = 0; i < countof(fixed); i++) {
        const struct json *v = hf_get(j, fixed[i].key);
        bool same =
            v == NULL ||
            (fixed[i].text == NULL
                 ? json_type(v) == JSON_BOOL && json_bool(v) == fixed[i].is
                 : json_str(v) != NULL && strcmp(json_str(v), fixed[i].text) == 0);
        if (!same) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "'%s' of a ZAYA's first form is not converted "
                                 "unless it is %s",
                           fixed[i].key,
                           fixed[i].text != NULL ? fixed[i].text
                           : fixed[i].is         ? "true"
                                                 : "false");
        }
    }
    for (const struct json *c = json_first(hf_get(j, "swa_layers")); c != NULL;
         c = json_next(c)) {
        if (json_type(c) != JSON_NUMBER || json_num(c) != 0) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "swa_layers: windows are not converted in "
                                 "this family");
        }
    }
    return 0;
}

/* A number that is said twice. */
static int same_number(const struct json *j, const char *key, const char *other,
                       uint32_t *ret, struct err *e)
{
    uint32_t a = 0;
    RETERR(hf_u32(j, key, false, 1, MODEL_DIM_MAX, ret, e));
    a = *ret;
    RETERR(hf_u32(j, other, false, 1, MODEL_DIM_MAX, &a, e));
    if (*ret != 0 && a != *ret) {
        return err_set(e, ERR_MODEL_CONFIG, WHERE "%s is %u, and %s %u", key,
                       *ret, other, a);
    }
    *ret = a;
    return 0;
}

/* A number that is halved. */
static int half_of(const struct json *j, const char *key, uint32_t most,
                   uint32_t *ret, struct err *e)
{
    RETERR(hf_u32(j, key, true, 2, 2 * most, ret, e));
    if (*ret % 2 != 0) {
        return err_set(e, ERR_MODEL_CONFIG,
                       WHERE "'%s' of a ZAYA's first form is even, not %u", key,
                       *ret);
    }
    *ret /= 2;
    return 0;
}

/* Keys that mean the same, and those that have another name now. */
static int copy_keys(const struct json *from, struct json *to, struct err *e)
{
    for (const struct json *c = json_first(from); c != NULL; c = json_next(c)) {
        const char *key = json_key(c);
        bool drop = json_type(c) == JSON_NULL ||
                    among(key, own, countof(own)) ||
                    among(key, ignored, countof(ignored));
        for (size_t i = 0; i < countof(fixed); i++) {
            drop = drop || strcmp(key, fixed[i].key) == 0;
        }
        for (size_t i = 0; i < countof(renamed); i++) {
            key = strcmp(key, renamed[i].from) == 0 ? renamed[i].to : key;
        }
        if (!drop && json_get(to, key) != NULL) {
            return err_set(e, ERR_MODEL_CONFIG,
                           WHERE "'%.64s' is said in both forms", json_key(c));
        }
        if (!drop) {
            json_add_tree(to, key, json_copy(c));
        }
    }
    return 0;
}

/* Numbers, not json_add_int: that is text, which nobody reads again. */
static int put_own(const struct json *from, struct json *to, struct err *e)
{
    uint32_t layers = 0;
    uint32_t ff = 0;
    uint32_t kv = 0;
    uint32_t head = 0;
    double theta = 0;
    double part = 0.5; /* of the class */
    RETERR(half_of(from, "num_hidden_layers", MODEL_LAYERS_MAX, &layers, e));
    RETERR(half_of(from, "ffn_hidden_size", MODEL_DIM_MAX, &ff, e));
    RETERR(same_number(from, "num_key_value_heads", "num_query_groups", &kv, e));
    RETERR(same_number(from, "head_dim", "kv_channels", &head, e));
    RETERR(hf_num(from, "rope_theta", true, 1, 1e12, &theta, e));
    RETERR(hf_num(from, "partial_rotary_factor", false, 0.001, 1, &part, e));
    json_add_num(to, "num_hidden_layers", layers);
    json_add_num(to, "moe_intermediate_size", ff);
    if (kv > 0) {
        json_add_num(to, "num_key_value_heads", kv);
    }
    if (head > 0 && json_get(to, "head_dim") == NULL) {
        json_add_num(to, "head_dim", head);
    }
    if (json_get(to, "tie_word_embeddings") == NULL) {
        json_add_bool(to, "tie_word_embeddings", true); /* of the class */
    }
    struct json *rope =
        json_add_object(json_add_object(to, "rope_parameters"), "hybrid");
    json_add_str(rope, "rope_type", "default");
    json_add_num(rope, "rope_theta", theta);
    json_add_num(rope, "partial_rotary_factor", part);
    return 0;
}

int hf_renew_zaya(struct hf *h, struct err *e)
{
    static const char *const later[] = {"moe_intermediate_size",
                                        "rope_parameters"};
    if (!is_first(h->text)) {
        return 0;
    }
    RETERR(check_fixed(h->text, e));
    for (size_t i = 0; i < countof(later); i++) {
        if (hf_get(h->text, later[i]) != NULL) {
            return err_set(e, ERR_MODEL_CONFIG,
                           WHERE "'%s' beside keys of ZAYA's first form",
                           later[i]);
        }
    }
    struct json *to = json_object();
    int rc = copy_keys(h->text, to, e);
    rc = rc < 0 ? rc : put_own(h->text, to, e);
    if (rc < 0) {
        json_free(to);
        return rc;
    }
    json_free(h->root);
    h->text = h->root = to;
    h->first_form = true;
    return 0;
}

/* --- names --- */

struct rename {
    const char *from, *to;
};

static const struct rename of_model[] = {
    {"embed_tokens.weight", "embed_tokens.weight"},
    {"final_norm.weight",   "norm.weight"        },
};

#define QKV  "self_attn.qkv."
#define PROJ "self_attn.qkv_proj."
static const struct rename of_attention[] = {
    {"input_norm.weight",         "input_layernorm.weight"         },
    {QKV "linear_q.weight",       PROJ "q_proj.weight"             },
    {QKV "linear_k.weight",       PROJ "k_proj.weight"             },
    {QKV "val_proj1.weight",      PROJ "v_proj_current.weight"     },
    {QKV "val_proj2.weight",      PROJ "v_proj_delayed.weight"     },
    {QKV "conv_qk.0.weight",      PROJ "conv_qk_depthwise.weight"  },
    {QKV "conv_qk.0.bias",        PROJ "conv_qk_depthwise.bias"    },
    {QKV "conv_qk.1.weight",      PROJ "conv_qk_grouped.weight"    },
    {QKV "conv_qk.1.bias",        PROJ "conv_qk_grouped.bias"      },
    {QKV "temp",                  "self_attn.qk_norm.temp"         },
    {"self_attn.o_proj.weight",   "self_attn.o_proj.weight"        },
};

#define ROUTER "zaya_block.router."
#define GATE   "mlp.gate."
static const struct rename of_experts[] = {
    {"input_norm.weight",          "post_attention_layernorm.weight"},
    {ROUTER "down_proj.weight",    GATE "down_proj.weight"          },
    {ROUTER "down_proj.bias",      GATE "down_proj.bias"            },
    {ROUTER "rmsnorm_eda.weight",  GATE "router_mlp.norm.weight"    },
    {ROUTER "router_mlp.0.weight", GATE "router_mlp.fc1.weight"     },
    {ROUTER "router_mlp.0.bias",   GATE "router_mlp.fc1.bias"       },
    {ROUTER "router_mlp.2.weight", GATE "router_mlp.fc2.weight"     },
    {ROUTER "router_mlp.2.bias",   GATE "router_mlp.fc2.bias"       },
    {ROUTER "router_mlp.4.weight", GATE "router_mlp.out_proj.weight"},
    {ROUTER "balancing_biases",    GATE "balancing_biases"          },
    {ROUTER "router_states_scale", GATE "router_states_scale"       },
};

/* A res_scale, by where the library has it. */
#define JOIN(of, part) {"res_scale." part, of "." part}
#define JOINS(of)                                                           \
    {                                                                       \
        JOIN(of, "hidden_states_bias"), JOIN(of, "hidden_states_scale"),    \
            JOIN(of, "residual_bias"), JOIN(of, "residual_scale")           \
    }
static const struct rename after_attention[] =
    JOINS("post_attention_residual_scale");
static const struct rename after_experts[] = JOINS("post_mlp_residual_scale");
static const struct rename of_input[] = {
    {"res_scale.hidden_states_bias",  "input_hidden_states_bias" },
    {"res_scale.hidden_states_scale", "input_hidden_states_scale"},
};

static bool find(const struct rename *list, size_t n, struct hf_place *at)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].from, at->tail) == 0) {
            at->tail = list[i].to;
            return true;
        }
    }
    return false;
}

/* Half layer 2i or 2i + 1. */
static bool find_layered(struct hf_place *at)
{
    const uint32_t half = at->layer;
    at->layer = half / 2;
    if (half % 2 != 0) {
        return find(of_experts, countof(of_experts), at) ||
               find(after_attention, countof(after_attention), at) ||
               strncmp(at->tail, HF_ZAYA_EXPERT, strlen(HF_ZAYA_EXPERT)) == 0;
    }
    if (find(of_attention, countof(of_attention), at)) {
        return true;
    }
    if (half == 0) {
        at->layered = false;
        return find(of_input, countof(of_input), at);
    }
    at->layer--;
    return find(after_experts, countof(after_experts), at);
}

int hf_rename_zaya(const struct hf *h, const char *name, struct hf_place *at,
                   struct err *e)
{
    bool found = false;
    if (!h->first_form) {
        return 0;
    }
    if (at->layered) {
        found = find_layered(at);
    } else if (find(of_model, countof(of_model), at)) {
        found = true;
    } else {
        at->layered = true;
        at->layer = h->n_layers - 1;
        found = find(after_experts, countof(after_experts), at);
    }
    return found ? 0
                 : err_set(e, ERR_CONVERT,
                           "tensor %s has no place in a ZAYA of its first form",
                           name);
}
