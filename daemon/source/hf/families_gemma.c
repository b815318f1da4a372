/* families_gemma.c - what the four generations of Gemma have of their own:
 * layers that see a window, caps, and in the fourth heads and widths that
 * are not those of every layer. */
#include <string.h>

#include "base/num.h"
#include "source/hf/fill.h"

#define WHERE "config.json: "

/* Scores are divided by the square root of query_pre_attn_scalar, which GGUF
 * has not: convert/arch knows the model with `wide` layers, all others have
 * d_head. */
static int check_scale(const struct hf *h, uint32_t wide, struct err *e)
{
    double scalar = 0;
    double want =
        h->n_layers == wide ? h->d_model / h->n_heads : h->d_head;
    RETERR(hf_num(h->text, "query_pre_attn_scalar", false, 0, 1e6, &scalar, e));
    return !(scalar > 0) || scalar == want
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         WHERE "query_pre_attn_scalar %g: only %g is "
                               "converted",
                         scalar, want);
}

static int put_cap(struct hf *h, const char *key, struct err *e)
{
    double cap = 0;
    RETERR(hf_num(h->text, key, false, 0, 1e4, &cap, e));
    return cap > 0 ? hf_put_f32(h, key, cap, e) : 0;
}

/* --- gemma --- */

const char *const hf_gemma2_keys[] = {
    "query_pre_attn_scalar", "attn_logit_softcapping",
    "final_logit_softcapping", "cache_implementation", NULL};
const char *const hf_gemma3_keys[] = {
    "query_pre_attn_scalar", "rope_local_base_freq", "sliding_window_pattern",
    "_sliding_window_pattern", NULL};

/* Their files leave the base out: it is 10000. */
static int gemma_rope(struct hf *h, struct err *e)
{
    struct hf_rope r = {.theta = 10000};
    RETERR(hf_rope_of(h, NULL, &r, e));
    if (r.theta == 10000 && strcmp(r.type, "default") == 0 && r.partial == 1) {
        return 0;
    }
    return hf_put_plain_rope(h, 10000, e);
}

int hf_fill_gemma(struct hf *h, struct err *e)
{
    RETERR(hf_check_layers(h, "", "full_attention", 0, e));
    return gemma_rope(h, e);
}

int hf_fill_gemma2(struct hf *h, struct err *e)
{
    uint32_t window = 0;
    RETERR(check_scale(h, 46, e));
    RETERR(hf_check_layers(h, "sliding_attention", "full_attention", 2, e));
    RETERR(hf_u32(h->text, "sliding_window", true, 1, UINT32_MAX, &window, e));
    RETERR(hf_put_u32(h, "attention.sliding_window", window, e));
    RETERR(put_cap(h, "attn_logit_softcapping", e));
    RETERR(put_cap(h, "final_logit_softcapping", e));
    return gemma_rope(h, e);
}

/* Which layers see everything: every sixth, or as the file says. */
static int gemma3_pattern(struct hf *h, struct err *e)
{
    uint32_t every = 6;
    RETERR(hf_u32(h->text, "sliding_window_pattern", false, 1,
                  MODEL_LAYERS_MAX, &every, e));
    RETERR(hf_u32(h->text, "_sliding_window_pattern", false, 1,
                  MODEL_LAYERS_MAX, &every, e));
    RETERR(hf_check_layers(h, "sliding_attention", "full_attention", every, e));
    return every != 6
               ? hf_put_u32(h, "attention.sliding_window_pattern", every, e)
               : 0;
}

int hf_fill_gemma3(struct hf *h, struct err *e)
{
    struct hf_rope global = {.theta = 1000000};
    struct hf_rope local = {.theta = 10000};
    uint32_t window = 0;
    RETERR(check_scale(h, 62, e));
    RETERR(gemma3_pattern(h, e));
    RETERR(hf_u32(h->text, "sliding_window", true, 1, UINT32_MAX, &window, e));
    RETERR(hf_put_u32(h, "attention.sliding_window", window, e));
    RETERR(hf_rope_of(h, "full_attention", &global, e));
    if (hf_get(hf_get(h->text, "rope_parameters"), "sliding_attention") !=
        NULL) {
        RETERR(hf_rope_of(h, "sliding_attention", &local, e));
    }
    RETERR(hf_num(h->text, "rope_local_base_freq", false, 1, 1e12,
                  &local.theta, e));
    if ((local.type != NULL && strcmp(local.type, "default") != 0) ||
        global.partial < 1) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "a rotation of local layers of type '%.32s'",
                       local.type != NULL ? local.type : "");
    }
    RETERR(local.theta != 10000
               ? hf_put_f32(h, "rope.freq_base_swa", local.theta, e)
               : 0);
    return hf_put_rope(h, &global, e);
}

/* --- gemma4: dense, E2B and E4B, and with experts --- */

const char *const hf_gemma4_keys[] = {
    "final_logit_softcapping",    "num_kv_shared_layers",
    "hidden_size_per_layer_input", "per_layer_config",
    "use_double_wide_mlp",        "global_head_dim",
    "num_global_key_value_heads", "attention_k_eq_v",
    "enable_moe_block",           "num_experts",
    "top_k_experts",              "moe_intermediate_size",
    NULL,
};

struct gemma4 {
    bool local[MODEL_LAYERS_MAX];
    int32_t kv[MODEL_LAYERS_MAX], ff[MODEL_LAYERS_MAX];
    uint32_t head, kv_heads; /* of layers that see everything */
    uint32_t shared, ple, wide;
};

static int gemma4_kinds(const struct hf *h, struct gemma4 *g, struct err *e)
{
    const struct json *list = hf_get(h->text, "layer_types");
    uint32_t l = 0;
    for (const struct json *c = json_first(list);
         c != NULL && l < h->n_layers; c = json_next(c)) {
        const char *kind = json_str(c);
        g->local[l] = kind != NULL && strcmp(kind, "sliding_attention") == 0;
        if (!g->local[l] &&
            (kind == NULL || strcmp(kind, "full_attention") != 0)) {
            return err_set(e, ERR_UNSUPPORTED, WHERE "layer_types: '%.32s'",
                           kind != NULL ? kind : "");
        }
        l++;
    }
    return l == h->n_layers && json_count(list) == l
               ? 0
               : err_set(e, ERR_MODEL_CONFIG,
                         WHERE "layer_types does not name %u layers",
                         h->n_layers);
}

/* What single layers have: {"2": {"head_dim": 32}}. All that see everything
 * are alike. */
static int gemma4_layers(const struct hf *h, struct gemma4 *g, struct err *e)
{
    const struct json *own = hf_get(h->text, "per_layer_config");
    g->head = h->d_head;
    g->kv_heads = h->n_kv;
    RETERR(hf_u32(h->text, "global_head_dim", false, 1, MODEL_DIM_MAX,
                  &g->head, e));
    RETERR(hf_u32(h->text, "num_global_key_value_heads", false, 1, h->n_heads,
                  &g->kv_heads, e));
    for (uint32_t l = 0; own != NULL && l < h->n_layers; l++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "%u", l);
        const struct json *j = hf_get(own, name);
        uint32_t head = h->d_head;
        uint32_t kv = h->n_kv;
        for (const struct json *c = json_first(j); c != NULL;
             c = json_next(c)) {
            if (strcmp(json_key(c), "head_dim") != 0 &&
                strcmp(json_key(c), "num_key_value_heads") != 0) {
                return err_set(e, ERR_UNSUPPORTED,
                               WHERE "per_layer_config: '%.64s'",
                               json_key(c));
            }
        }
        RETERR(hf_u32(j, "head_dim", false, 1, MODEL_DIM_MAX, &head, e));
        RETERR(hf_u32(j, "num_key_value_heads", false, 1, h->n_heads, &kv, e));
        bool first = g->head == h->d_head && g->kv_heads == h->n_kv;
        if (!g->local[l] && first) {
            g->head = head;
            g->kv_heads = kv;
        }
        if (g->local[l] ? head != h->d_head || kv != h->n_kv
                        : head != g->head || kv != g->kv_heads) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "per_layer_config: layer %u differs from "
                                 "others of its kind",
                           l);
        }
    }
    return 0;
}

/* One number where all layers have the same, else one a layer. */
static int put_layers(struct hf *h, const char *tail, const int32_t *v,
                      struct err *e)
{
    bool same = true;
    for (uint32_t l = 1; l < h->n_layers; l++) {
        same = same && v[l] == v[0];
    }
    return same ? hf_put_u32(h, tail, (uint32_t)v[0], e)
                : made_i32s(h->m, hf_key(h, tail), v, h->n_layers, e);
}

static int gemma4_sizes(struct hf *h, struct gemma4 *g, struct err *e)
{
    uint32_t ff = 0;
    uint32_t window = 0;
    bool twice = false;
    RETERR(hf_u32(h->text, "intermediate_size", true, 1, MODEL_DIM_MAX / 2,
                  &ff, e));
    RETERR(hf_u32(h->text, "num_kv_shared_layers", false, 0, h->n_layers - 1,
                  &g->shared, e));
    RETERR(hf_u32(h->text, "hidden_size_per_layer_input", false, 0,
                  MODEL_DIM_MAX, &g->ple, e));
    RETERR(hf_u32(h->text, "sliding_window", true, 1, UINT32_MAX, &window, e));
    RETERR(hf_bool(h->text, "use_double_wide_mlp", &twice, e));
    for (uint32_t l = 0; l < h->n_layers; l++) {
        bool shares = l >= h->n_layers - g->shared;
        g->ff[l] = (int32_t)(twice && shares ? 2 * ff : ff);
        g->kv[l] = (int32_t)(g->local[l] ? h->n_kv : g->kv_heads);
    }
    RETERR(put_layers(h, "feed_forward_length", g->ff, e));
    RETERR(put_layers(h, "attention.head_count_kv", g->kv, e));
    RETERR(hf_put_u32(h, "attention.key_length", g->head, e));
    RETERR(hf_put_u32(h, "attention.value_length", g->head, e));
    RETERR(hf_put_u32(h, "attention.key_length_swa", h->d_head, e));
    RETERR(hf_put_u32(h, "attention.value_length_swa", h->d_head, e));
    RETERR(hf_put_u32(h, "attention.sliding_window", window, e));
    RETERR(hf_put_u32(h, "attention.shared_kv_layers", g->shared, e));
    RETERR(hf_put_u32(h, "embedding_length_per_layer_input", g->ple, e));
    return made_bools(h->m, hf_key(h, "attention.sliding_window_pattern"),
                      g->local, h->n_layers, e);
}

static int gemma4_experts(struct hf *h, struct err *e)
{
    static const struct hf_count rows[] = {
        {"num_experts",           "expert_count",               MODEL_EXPERTS_MAX},
        {"top_k_experts",         "expert_used_count",          MODEL_EXPERTS_MAX},
        {"moe_intermediate_size", "expert_feed_forward_length", MODEL_DIM_MAX    },
    };
    bool experts = false;
    RETERR(hf_bool(h->text, "enable_moe_block", &experts, e));
    return experts ? hf_put_counts(h, rows, countof(rows), e) : 0;
}

/* Pairs beyond the part that turns have a divisor that stops them; the
 * exponents count over the whole head. */
static int gemma4_rope(struct hf *h, const struct gemma4 *g, struct err *e)
{
    struct hf_rope global = {.theta = 1000000};
    struct hf_rope local = {.theta = 10000};
    uint32_t half = g->head / 2;
    RETERR(hf_rope_of(h, "full_attention", &global, e));
    RETERR(hf_rope_of(h, "sliding_attention", &local, e));
    if (strcmp(local.type, "default") != 0 || local.partial < 1 ||
        (strcmp(global.type, "proportional") != 0 &&
         (strcmp(global.type, "default") != 0 || global.partial < 1))) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "rotations of types '%.32s' and '%.32s' are not "
                             "converted in this family",
                       global.type, local.type);
    }
    RETERR(hf_put_f32(h, "rope.freq_base", global.theta, e));
    RETERR(hf_put_f32(h, "rope.freq_base_swa", local.theta, e));
    RETERR(hf_put_u32(h, "rope.dimension_count", g->head, e));
    RETERR(hf_put_u32(h, "rope.dimension_count_swa", h->d_head, e));
    float *v = calloc(half + 1, sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "rope_freqs");
    }
    uint32_t turns = (uint32_t)(global.partial * g->head / 2);
    for (uint32_t i = 0; i < half; i++) {
        v[i] = i < turns ? 1.0F : 1e30F;
    }
    int rc = hf_put_vector(h, "rope_freqs.weight", v, half, e);
    free(v);
    return rc;
}

int hf_fill_gemma4(struct hf *h, struct err *e)
{
    struct gemma4 *g = calloc(1, sizeof(*g));
    int rc = 0;
    must(g != NULL); /* fixed size */
    CHECK(gemma4_kinds(h, g, e));
    CHECK(gemma4_layers(h, g, e));
    CHECK(gemma4_sizes(h, g, e));
    CHECK(gemma4_experts(h, e));
    CHECK(put_cap(h, "final_logit_softcapping", e));
    CHECK(gemma4_rope(h, g, e));
out:
    free(g);
    return rc;
}

