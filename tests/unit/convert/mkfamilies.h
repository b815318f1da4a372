/* mkfamilies.h - a small model of each family: a table of its keys and one of
 * its tensors, of mkgguf.h. */
#pragma once

#include "mkgguf.h"

#define U(key, v)                           \
    {                                       \
        .tail = key, .kind = MK_U32, .u = v \
    }
#define F(key, v)                           \
    {                                       \
        .tail = key, .kind = MK_F32, .f = v \
    }
#define T(key, v)                               \
    {                                           \
        .tail = key, .kind = MK_TEXT, .text = v \
    }
#define US(key, n, v)                                   \
    {                                                   \
        .tail = key, .kind = MK_U32S, .u = n, .list = v \
    }
#define BS(key, n, v)                                    \
    {                                                    \
        .tail = key, .kind = MK_BOOLS, .u = n, .list = v \
    }

#define ALL   UINT32_MAX
#define D     48u
#define FF    40u
#define VOCAB 64u
#define Q     32u /* 4 heads of 8 */
#define KV    16u /* 2 heads of 8 */

#define LAYER(tail, cols, rows)         \
    {                                   \
        "blk.%u." tail, ALL, cols, rows \
    }
#define OF(mask, tail, cols, rows)       \
    {                                    \
        "blk.%u." tail, mask, cols, rows \
    }
#define GLOBAL(name, cols, rows) \
    {                            \
        name, 0, cols, rows      \
    }
#define ENDS \
    GLOBAL("token_embd.weight", D, VOCAB), GLOBAL("output_norm.weight", D, 0)
#define QKVO                                                     \
    LAYER("attn_q.weight", D, Q), LAYER("attn_k.weight", D, KV), \
        LAYER("attn_v.weight", D, KV), LAYER("attn_output.weight", Q, D)
#define MLP                                                         \
    LAYER("ffn_gate.weight", D, FF), LAYER("ffn_up.weight", D, FF), \
        LAYER("ffn_down.weight", FF, D)
#define PRE LAYER("attn_norm.weight", D, 0), LAYER("ffn_norm.weight", D, 0)
#define POST                                   \
    LAYER("post_attention_norm.weight", D, 0), \
        LAYER("post_ffw_norm.weight", D, 0)
#define HEAD_NORMS \
    LAYER("attn_q_norm.weight", 8, 0), LAYER("attn_k_norm.weight", 8, 0)

static const struct mk_row plain_rows[] = {ENDS, QKVO, MLP, PRE};
static const struct mk_row qwen3_rows[] = {ENDS, QKVO, MLP, PRE, HEAD_NORMS};
static const struct mk_row gemma2_rows[] = {ENDS, QKVO, MLP, PRE, POST};
static const struct mk_row olmo2_rows[] = {ENDS,
                                           QKVO,
                                           MLP,
                                           POST,
                                           LAYER("attn_q_norm.weight", Q, 0),
                                           LAYER("attn_k_norm.weight", KV, 0)};
static const struct mk_row granite_rows[] = {
    ENDS,
    QKVO,
    MLP,
    PRE,
    LAYER("attn_q.bias", Q, 0),
    LAYER("attn_k.bias", KV, 0),
    LAYER("attn_v.bias", KV, 0),
    LAYER("attn_output.bias", D, 0),
    LAYER("ffn_gate.bias", FF, 0),
    LAYER("ffn_up.bias", FF, 0),
    LAYER("ffn_down.bias", D, 0),
};
static const struct mk_row phi3_rows[] = {
    ENDS,
    PRE,
    LAYER("attn_qkv.weight", D, Q + 2 * KV),
    LAYER("attn_output.weight", Q, D),
    LAYER("ffn_up.weight", D, 2 * FF),
    LAYER("ffn_down.weight", FF, D),
    GLOBAL("rope_factors_short.weight", 3, 0),
    GLOBAL("rope_factors_long.weight", 3, 0),
};

/* Layers 2 and 5 are global, with heads of 16; 3, 4 and 5 have no keys. Layer 2
 * has no values of its own. */
#define LOCALS 0x1bu
#define PLE    6u
static const struct mk_row gemma4_rows[] = {
    ENDS,
    PRE,
    POST,
    OF(LOCALS, "attn_q.weight", D, 32),
    OF(0x24, "attn_q.weight", D, 64),
    OF(0x3, "attn_k.weight", D, 16),
    OF(0x4, "attn_k.weight", D, 16),
    OF(0x3, "attn_v.weight", D, 16),
    OF(LOCALS, "attn_output.weight", 32, D),
    OF(0x24, "attn_output.weight", 64, D),
    OF(LOCALS, "attn_q_norm.weight", 8, 0),
    OF(0x24, "attn_q_norm.weight", 16, 0),
    OF(0x3, "attn_k_norm.weight", 8, 0),
    OF(0x4, "attn_k_norm.weight", 16, 0),
    OF(0x7, "ffn_gate.weight", D, FF),
    OF(0x7, "ffn_up.weight", D, FF),
    OF(0x7, "ffn_down.weight", FF, D),
    OF(0x38, "ffn_gate.weight", D, 2 * FF),
    OF(0x38, "ffn_up.weight", D, 2 * FF),
    OF(0x38, "ffn_down.weight", 2 * FF, D),
    LAYER("inp_gate.weight", D, PLE),
    LAYER("proj.weight", PLE, D),
    LAYER("post_norm.weight", D, 0),
    LAYER("layer_output_scale.weight", 1, 0),
    GLOBAL("per_layer_token_embd.weight", 6 * PLE, VOCAB),
    GLOBAL("per_layer_model_proj.weight", D, 6 * PLE),
    GLOBAL("per_layer_proj_norm.weight", PLE, 0),
    GLOBAL("rope_freqs.weight", 8, 0),
};
static const uint32_t gemma4_kv[] = {2, 2, 1, 2, 2, 1};
static const uint32_t gemma4_ff[] = {FF, FF, FF, 2 * FF, 2 * FF, 2 * FF};
static const uint32_t gemma4_local[] = {1, 1, 0, 1, 1, 0};
static const struct mk_item gemma4_items[] = {
    U("attention.key_length", 16),
    U("attention.value_length", 16),
    U("attention.key_length_swa", 8),
    U("attention.value_length_swa", 8),
    U("rope.dimension_count", 16),
    U("rope.dimension_count_swa", 8),
    F("rope.freq_base", 1e6f),
    F("rope.freq_base_swa", 5000),
    U("attention.sliding_window", 24),
    BS("attention.sliding_window_pattern", 6, gemma4_local),
    US("attention.head_count_kv", 6, gemma4_kv),
    US("feed_forward_length", 6, gemma4_ff),
    U("attention.shared_kv_layers", 3),
    U("embedding_length_per_layer_input", PLE),
    F("final_logit_softcapping", 12),
};
/* Layers 0, 1 and 3 are short convolutions. */
#define CONVS 0xbu
#define TAPS  3u
static const struct mk_row lfm2_rows[] = {
    GLOBAL("token_embd.weight", D, VOCAB),
    GLOBAL("token_embd_norm.weight", D, 0),
    PRE,
    MLP,
    OF(CONVS, "shortconv.in_proj.weight", D, 3 * D),
    OF(CONVS, "shortconv.conv.weight", TAPS, D),
    OF(CONVS, "shortconv.out_proj.weight", D, D),
    OF(0x4, "attn_q.weight", D, Q),
    OF(0x4, "attn_k.weight", D, KV),
    OF(0x4, "attn_v.weight", D, KV),
    OF(0x4, "attn_output.weight", Q, D),
    OF(0x4, "attn_q_norm.weight", 8, 0),
    OF(0x4, "attn_k_norm.weight", 8, 0),
};
static const uint32_t lfm2_kv[] = {0, 0, 2, 0};
static const struct mk_item lfm2_items[] = {
    US("attention.head_count_kv", 4, lfm2_kv),
    U("shortconv.l_cache", TAPS),
    U("attention.key_length", 8),
};
/* Queries and keys that are mixed along positions; experts alone, by a network. */
#define ZAYA_EXPERTS 5u
#define ZAYA_WIDE    12u
#define ZAYA_ROUTER  10u
#define ZAYA_TAPS    2u
#define ZAYA_MIX     3u
static const struct mk_row zaya_rows[] = {
    ENDS,
    PRE,
    GLOBAL("output.weight", D, VOCAB),
    LAYER("attn_q.weight", D, Q),
    LAYER("attn_k.weight", D, KV),
    LAYER("attn_v.weight", D, KV / 2),
    LAYER("attn_v_before.weight", D, KV / 2),
    LAYER("attn_output.weight", Q, D),
    LAYER("shortconv.conv.weight", ZAYA_TAPS, Q + KV),
    LAYER("cca_mix.weight", 8 * ZAYA_MIX, Q + KV),
    LAYER("cca_bias.weight", Q + KV, 2),
    LAYER("cca_k_scale.weight", 2, 0),
    LAYER("join_attn.weight", D, 4),
    LAYER("join_ffn.weight", D, 4),
    LAYER("ffn_gate_inp_down.weight", D, ZAYA_ROUTER),
    LAYER("ffn_gate_inp_1.weight", ZAYA_ROUTER, ZAYA_ROUTER),
    LAYER("ffn_gate_inp_2.weight", ZAYA_ROUTER, ZAYA_ROUTER),
    LAYER("ffn_gate_inp.weight", ZAYA_ROUTER, ZAYA_EXPERTS + 1),
    LAYER("ffn_gate_inp_vectors.weight", ZAYA_ROUTER, 5),
    LAYER("exp_probs_b.bias", ZAYA_EXPERTS + 1, 0),
    LAYER("ffn_gate_up_exps.weight", D, 2 * ZAYA_EXPERTS *ZAYA_WIDE),
    LAYER("ffn_down_exps.weight", ZAYA_WIDE, ZAYA_EXPERTS *D),
};
static const struct mk_item zaya_items[] = {
    U("cca.time0", ZAYA_TAPS),
    U("cca.time1", ZAYA_MIX),
    U("router_length", ZAYA_ROUTER),
    U("expert_count", ZAYA_EXPERTS),
    U("expert_used_count", 1),
    U("expert_feed_forward_length", ZAYA_WIDE),
    U("attention.key_length", 8),
    U("attention.value_length", 8),
    U("rope.dimension_count", 4),
};
static const struct mk_item note[] = {
    U("vocab_size", VOCAB), /* says nothing new */
};
static const struct mk_item gemma2_items[] = {
    F("attn_logit_softcapping", 4),
    F("final_logit_softcapping", 30),
    U("attention.sliding_window", 24),
};
static const struct mk_item granite_items[] = {
    F("attention.scale", 0.25f),
    F("embedding_scale", 6),
    F("residual_scale", 0.5f),
    F("logit_scale", 8),
};
static const struct mk_item phi3_items[] = {
    U("rope.dimension_count", 6),
    F("rope.scaling.attn_factor", 1.19f),
    U("rope.scaling.original_context_length", 4096),
    U("context_length", 131072),
    U("attention.sliding_window", 262144),
};

#define MODEL(family, n, list, keys)                                           \
    {                                                                          \
        .arch = family, .layers = n, .d = D, .heads = 4, .kv = 2, .d_head = 8, \
        .ff = FF, .vocab = VOCAB, .context = 512, .rows = list,                \
        .n_rows = sizeof(list) / sizeof(*(list)), .items = keys,               \
        .n_items = sizeof(keys) / sizeof(*(keys))                              \
    }

enum family {
    QWEN3,
    PHI3,
    HUNYUAN,
    GEMMA2,
    GEMMA4,
    GRANITE,
    OLMO2,
    SMOLLM3,
    LFM2,
    N, /* of dense ones */
    ZAYA = N,
};
static const struct mk models[N + 1] = {
    [QWEN3] = MODEL("qwen3", 2, qwen3_rows, note),
    [PHI3] = MODEL("phi3", 2, phi3_rows, phi3_items),
    [HUNYUAN] = MODEL("hunyuan-dense", 2, qwen3_rows, note),
    [GEMMA2] = MODEL("gemma2", 4, gemma2_rows, gemma2_items),
    [GEMMA4] = MODEL("gemma4", 6, gemma4_rows, gemma4_items),
    [GRANITE] = MODEL("granite", 2, granite_rows, granite_items),
    [OLMO2] = MODEL("olmo2", 2, olmo2_rows, note),
    [SMOLLM3] = MODEL("smollm3", 9, plain_rows, note),
    [LFM2] = MODEL("lfm2", 4, lfm2_rows, lfm2_items),
    [ZAYA] = MODEL("zaya", 3, zaya_rows, zaya_items),
};
