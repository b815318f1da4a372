/* hf_make.h - a tiny model in the form of the transformers library, in a folder:
 * a llama of one layer. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "source/source.h"

struct hf_folder {
    char dir[48];
};

static inline void hf_folder_path(const struct hf_folder *f, const char *name,
                                  char out[256])
{
    (void)snprintf(out, 256, "%s/%s", f->dir, name);
}

static inline void hf_folder_put(const struct hf_folder *f, const char *name,
                                 const void *p, size_t n)
{
    struct err e = {0};
    char path[256];
    hf_folder_path(f, name, path);
    unit_ok(file_write(path, p, n, &e), &e);
}

static inline void hf_folder_text(const struct hf_folder *f, const char *name,
                                  const char *text)
{
    hf_folder_put(f, name, text, strlen(text));
}

#define HF_CONFIG                                                            \
    "\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","    \
    "\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":1,"    \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":4,"   \
    "\"hidden_act\":\"silu\",\"max_position_embeddings\":64,"               \
    "\"rms_norm_eps\":1e-5,\"vocab_size\":3,\"tie_word_embeddings\":true"
#define HF_TOKENIZER                                                         \
    "{\"added_tokens\":[{\"id\":2,\"content\":\"<|e|>\",\"special\":true}]," \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"

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

static inline void hf_folder_make(struct hf_folder *f)
{
    struct buf b;
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/aned-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    hf_folder_text(f, "config.json", "{" HF_CONFIG "}");
    hf_folder_text(f, "tokenizer.json", HF_TOKENIZER);
    hf_weights(&b, NULL, NULL);
    hf_folder_put(f, "model.safetensors", b.p, b.n);
    buf_fini(&b);
}

static inline void hf_folder_drop(struct hf_folder *f)
{
    struct err e = {0};
    unit_ok(file_rmtree(f->dir, &e), &e);
}
