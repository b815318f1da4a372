/* hf_weights.h - config.json and weights of a tiny model in the form of the
 * transformers library, in memory: a llama of one layer. */
#pragma once

#include <string.h>

#include "base/buf.h"
#include "proto/limits.h"

#define HF_CONFIG                                                            \
    "\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","    \
    "\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":1,"    \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":4,"   \
    "\"hidden_act\":\"silu\",\"max_position_embeddings\":64,"               \
    "\"rms_norm_eps\":1e-5,\"vocab_size\":3,\"tie_word_embeddings\":true"
/* 0 rows: a vector; deep: a third axis, or 0. Values count up by a half. */
struct hf_tensor {
    const char *name;
    unsigned rows, cols, deep;
};
static const struct hf_tensor hf_tensors[] = {
    {"model.embed_tokens.weight",                      3, 4, 0},
    {"model.norm.weight",                              0, 4, 0},
    {"model.layers.0.input_layernorm.weight",          0, 4, 0},
    {"model.layers.0.post_attention_layernorm.weight", 0, 4, 0},
    {"model.layers.0.self_attn.q_proj.weight",         8, 4, 0},
    {"model.layers.0.self_attn.k_proj.weight",         4, 4, 0},
    {"model.layers.0.self_attn.v_proj.weight",         4, 4, 0},
    {"model.layers.0.self_attn.o_proj.weight",         4, 8, 0},
    {"model.layers.0.self_attn.q_proj.bias",           0, 8, 0},
    {"model.layers.0.mlp.gate_proj.weight",            6, 4, 0},
    {"model.layers.0.mlp.up_proj.weight",              6, 4, 0},
    {"model.layers.0.mlp.down_proj.weight",            4, 6, 0},
};

/* The shape and the bytes of one tensor, F32 or of an F8 `dtype` (codes count up
 * from 0). */
static inline void hf_put_one(struct buf *head, struct buf *data,
                              const struct hf_tensor *t, const char *dtype)
{
    size_t at = data->n;
    unsigned n = (t->rows > 0 ? t->rows : 1) * t->cols *
                 (t->deep > 0 ? t->deep : 1);
    for (unsigned k = 0; k < n; k++) {
        if (dtype != NULL) {
            buf_u8(data, (uint8_t)k);
        } else {
            buf_f32(data, 0.5F * (float)k);
        }
    }
    buf_printf(head, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
               dtype != NULL ? dtype : "F32");
    buf_printf(head, t->rows > 0 ? "%u,%u" : "%.0u%u", t->rows, t->cols);
    buf_printf(head, t->deep > 0 ? ",%u" : "%.0u", t->deep);
    buf_printf(head, "],\"data_offsets\":[%zu,%zu]}", at, data->n);
}

/* A file of `n` tensors of F32, but for the tensor `other`, of that dtype. */
static inline void hf_file(struct buf *b, const struct hf_tensor *t, size_t n,
                           const char *other, const char *dtype)
{
    struct buf head;
    struct buf data;
    buf_init(&head, MIB(1));
    buf_init(&data, MIB(1));
    buf_puts(&head, "{");
    for (size_t i = 0; i < n; i++) {
        bool f8 = other != NULL && strcmp(other, t[i].name) == 0;
        buf_puts(&head, i > 0 ? "," : "");
        hf_put_one(&head, &data, &t[i], f8 ? dtype : NULL);
    }
    buf_puts(&head, "}");
    buf_init(b, MIB(2));
    buf_u64(b, head.n);
    buf_put(b, head.p, head.n);
    buf_put(b, data.p, data.n);
    buf_fini(&head);
    buf_fini(&data);
}

static inline void hf_weights(struct buf *b, const char *other,
                              const char *dtype)
{
    hf_file(b, hf_tensors, countof(hf_tensors), other, dtype);
}
