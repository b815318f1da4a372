/* mkgguf.h - small random models, written as GGUF v3 by the test itself. */
#pragma once

#include <math.h>

#include "../unit.h"
#include "base/buf.h"

/* A key of the test's own, after "ARCH."; it replaces the usual one. */
struct mk_item {
    const char *tail;
    enum { MK_U32, MK_F32, MK_BOOL, MK_TEXT, MK_U32S, MK_BOOLS } kind;
    uint32_t u; /* of an array: its count */
    float f;
    const char *text;
    const uint32_t *list;
};

/* A tensor of the test's own: "blk.%u." for each layer of a mask, or one. */
struct mk_row {
    const char *name;
    uint32_t layers;     /* bits; UINT32_MAX: all */
    uint32_t cols, rows; /* rows 0: a vector */
};

/* A model of one of the families. Numbers are chosen by the test. */
struct mk {
    const char *arch;
    uint32_t layers, d, heads, kv, d_head, ff, vocab, context;
    uint32_t rope_dim; /* 0: key absent */
    uint32_t window;   /* gemma3 */
    bool untied;
    bool qkv_bias;
    bool gemma;            /* q/k norms and post norms */
    bool factors;          /* rope_freqs.weight */
    float gain;            /* weights are uniform in +-gain / sqrt(cols) */
    float embed_gain;      /* embeddings in +- this */
    float post_gain;       /* gemma's post norm weights */
    const char
        *extra_key; /* an additional key: u32, or as the next three say */
    uint32_t extra_value;
    const char *extra_text; /* a string */
    float extra_f32;        /* not 0: an f32 */
    bool extra_bool;        /* a bool: extra_value */
    uint32_t n_tokens;    /* a "llama" vocabulary; 0: none */
    uint32_t empty_token; /* this one has no text; 0: none (0 is <unk>) */
    const char *id_key;   /* tokenizer.ggml.<this>: id_value */
    uint32_t id_value;
    bool no_bos;              /* add_bos_token is false */
    const char *extra_tensor; /* a stray tensor of 4 floats */
    const char *without;      /* leave this tensor out */
    const struct mk_item *items; /* n_items */
    size_t n_items;
    const struct mk_row *rows; /* n_rows: all tensors; NULL: the usual ones */
    size_t n_rows;
};

static inline uint32_t mk_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

struct mk_out {
    struct buf kv, info, data;
    uint64_t n_kv, n_tensors, seed;
    bool extra; /* the test's own key is being written */
    const struct mk *m;
};

static inline void mk_key(struct mk_out *o, const char *key, uint32_t type)
{
    buf_u64(&o->kv, strlen(key));
    buf_puts(&o->kv, key);
    buf_u32(&o->kv, type);
    o->n_kv++;
}

static inline void mk_str(struct mk_out *o, const char *key, const char *v)
{
    mk_key(o, key, 8);
    buf_u64(&o->kv, strlen(v));
    buf_puts(&o->kv, v);
}

/* The test gives this key itself. */
static inline bool mk_given(const struct mk_out *o, const char *tail)
{
    for (size_t i = 0; !o->extra && i < o->m->n_items; i++) {
        if (strcmp(tail, o->m->items[i].tail) == 0) {
            return true;
        }
    }
    return o->m->extra_key != NULL && !o->extra &&
           strcmp(tail, o->m->extra_key) == 0;
}

static inline void mk_u32(struct mk_out *o, const char *tail, uint32_t v)
{
    char key[128];
    if (mk_given(o, tail)) {
        return;
    }
    (void)snprintf(key, sizeof(key), "%s.%s", o->m->arch, tail);
    mk_key(o, key, 4);
    buf_u32(&o->kv, v);
}

static inline void mk_f32(struct mk_out *o, const char *tail, float v)
{
    char key[128];
    if (mk_given(o, tail)) {
        return;
    }
    (void)snprintf(key, sizeof(key), "%s.%s", o->m->arch, tail);
    mk_key(o, key, 6);
    buf_f32(&o->kv, v);
}

/* cols x rows floats in lo..hi. */
static inline void mk_tensor(struct mk_out *o, const char *name, uint32_t cols,
                             uint32_t rows, float lo, float hi)
{
    if (o->m->without != NULL && strcmp(name, o->m->without) == 0) {
        return;
    }
    while (o->data.n % 32 != 0) {
        buf_u8(&o->data, 0);
    }
    buf_u64(&o->info, strlen(name));
    buf_puts(&o->info, name);
    buf_u32(&o->info, rows > 0 ? 2 : 1);
    buf_u64(&o->info, cols);
    if (rows > 0) {
        buf_u64(&o->info, rows);
    }
    buf_u32(&o->info, 0);
    buf_u64(&o->info, o->data.n);
    o->n_tensors++;
    uint64_t n = (uint64_t)cols * (rows > 0 ? rows : 1);
    for (uint64_t i = 0; i < n; i++) {
        float u = (float)mk_random(&o->seed) / 2147483648.0f;
        buf_f32(&o->data, lo + (hi - lo) * u);
    }
}

static inline void mk_matrix(struct mk_out *o, const char *name, uint32_t cols,
                             uint32_t rows)
{
    float g = (o->m->gain > 0 ? o->m->gain : 1.7f) / sqrtf((float)cols);
    mk_tensor(o, name, cols, rows, -g, g);
}

static inline void mk_layer(struct mk_out *o, uint32_t l)
{
    const struct mk *m = o->m;
    char n[96];
#define N(tail) (snprintf(n, sizeof(n), "blk.%u." tail, l), n)
    mk_tensor(o, N("attn_norm.weight"), m->d, 0, 0.8f, 1.2f);
    mk_matrix(o, N("attn_q.weight"), m->d, m->heads * m->d_head);
    mk_matrix(o, N("attn_k.weight"), m->d, m->kv * m->d_head);
    mk_matrix(o, N("attn_v.weight"), m->d, m->kv * m->d_head);
    mk_matrix(o, N("attn_output.weight"), m->heads * m->d_head, m->d);
    if (m->qkv_bias) {
        mk_tensor(o, N("attn_q.bias"), m->heads * m->d_head, 0, -1, 1);
        mk_tensor(o, N("attn_k.bias"), m->kv * m->d_head, 0, -1, 1);
        mk_tensor(o, N("attn_v.bias"), m->kv * m->d_head, 0, -1, 1);
    }
    if (m->gemma) {
        float p = m->post_gain > 0 ? m->post_gain : 1;
        mk_tensor(o, N("attn_q_norm.weight"), m->d_head, 0, 0.8f, 1.2f);
        mk_tensor(o, N("attn_k_norm.weight"), m->d_head, 0, 0.8f, 1.2f);
        mk_tensor(o, N("post_attention_norm.weight"), m->d, 0, 0.5f * p, p);
        mk_tensor(o, N("post_ffw_norm.weight"), m->d, 0, 0.5f * p, p);
    }
    mk_tensor(o, N("ffn_norm.weight"), m->d, 0, 0.8f, 1.2f);
    mk_matrix(o, N("ffn_gate.weight"), m->d, m->ff);
    mk_matrix(o, N("ffn_up.weight"), m->d, m->ff);
    mk_matrix(o, N("ffn_down.weight"), m->ff, m->d);
#undef N
}

static inline void mk_extra(struct mk_out *o)
{
    const struct mk *m = o->m;
    char key[128];
    o->extra = true;
    (void)snprintf(key, sizeof(key), "%s.%s", m->arch, m->extra_key);
    if (m->extra_text != NULL) {
        mk_str(o, key, m->extra_text);
    } else if (m->extra_f32 != 0) {
        mk_f32(o, m->extra_key, m->extra_f32);
    } else if (m->extra_bool) {
        mk_key(o, key, 7);
        buf_u8(&o->kv, (uint8_t)m->extra_value);
    } else {
        mk_u32(o, m->extra_key, m->extra_value);
    }
}

static inline void mk_array(struct mk_out *o, const char *key, uint32_t item,
                            uint32_t n)
{
    mk_key(o, key, 9);
    buf_u32(&o->kv, item);
    buf_u64(&o->kv, n);
}

/* A key of the test's own; the one in extra_key comes in its place. */
static inline void mk_item(struct mk_out *o, const struct mk_item *x)
{
    char key[128];
    (void)snprintf(key, sizeof(key), "%s.%s", o->m->arch, x->tail);
    if (o->m->extra_key != NULL && strcmp(x->tail, o->m->extra_key) == 0) {
        return;
    }
    o->extra = true;
    switch (x->kind) {
    case MK_U32:
        mk_u32(o, x->tail, x->u);
        break;
    case MK_F32:
        mk_f32(o, x->tail, x->f);
        break;
    case MK_TEXT:
        mk_str(o, key, x->text);
        break;
    case MK_BOOL:
        mk_key(o, key, 7);
        buf_u8(&o->kv, (uint8_t)x->u);
        break;
    case MK_U32S:
        mk_array(o, key, 4, x->u);
        for (uint32_t i = 0; i < x->u; i++) {
            buf_u32(&o->kv, x->list[i]);
        }
        break;
    case MK_BOOLS:
        mk_array(o, key, 7, x->u);
        for (uint32_t i = 0; i < x->u; i++) {
            buf_u8(&o->kv, (uint8_t)x->list[i]);
        }
        break;
    }
    o->extra = false;
}

/* With a gain, matrices are as in usual models; without, all is positive. */
static inline void mk_own(struct mk_out *o, const char *name,
                          const struct mk_row *x)
{
    if (o->m->gain > 0 && x->rows > 0) {
        mk_matrix(o, name, x->cols, x->rows);
    } else {
        mk_tensor(o, name, x->cols, x->rows, 0.5f, 1.5f);
    }
}

static inline void mk_row(struct mk_out *o, const struct mk_row *x)
{
    char name[96];
    if (strncmp(x->name, "blk.%u.", 7) != 0) {
        mk_own(o, x->name, x);
        return;
    }
    for (uint32_t l = 0; l < o->m->layers; l++) {
        if (x->layers == UINT32_MAX || (l < 32 && (x->layers >> l & 1) != 0)) {
            (void)snprintf(name, sizeof(name), "blk.%u.%s", l, x->name + 7);
            mk_own(o, name, x);
        }
    }
}

/* <unk>, <s>, </s>, t3, t4, ... with falling scores. */
static inline void mk_vocab(struct mk_out *o)
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    static const uint32_t first_type[] = {2, 3, 3};
    const struct mk *m = o->m;
    mk_str(o, "tokenizer.ggml.model", "llama");
    mk_array(o, "tokenizer.ggml.tokens", 8, m->n_tokens);
    for (uint32_t i = 0; i < m->n_tokens; i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "t%u", i);
        const char *s = i < 3 ? first[i] : text;
        s = i != 0 && i == m->empty_token ? "" : s;
        buf_u64(&o->kv, strlen(s));
        buf_puts(&o->kv, s);
    }
    mk_array(o, "tokenizer.ggml.scores", 6, m->n_tokens);
    for (uint32_t i = 0; i < m->n_tokens; i++) {
        buf_f32(&o->kv, -(float)i);
    }
    mk_array(o, "tokenizer.ggml.token_type", 5, m->n_tokens);
    for (uint32_t i = 0; i < m->n_tokens; i++) {
        buf_u32(&o->kv, i < 3 ? first_type[i] : 1);
    }
    if (m->no_bos) {
        mk_key(o, "tokenizer.ggml.add_bos_token", 7);
        buf_u8(&o->kv, 0);
    }
    if (m->id_key != NULL) {
        char key[128];
        (void)snprintf(key, sizeof(key), "tokenizer.ggml.%s", m->id_key);
        mk_key(o, key, 4);
        buf_u32(&o->kv, m->id_value);
    }
}

static inline void mk_keys(struct mk_out *o)
{
    const struct mk *m = o->m;
    mk_str(o, "general.architecture", m->arch);
    mk_u32(o, "block_count", m->layers);
    mk_u32(o, "context_length", m->context);
    mk_u32(o, "embedding_length", m->d);
    mk_u32(o, "feed_forward_length", m->ff);
    mk_u32(o, "attention.head_count", m->heads);
    mk_u32(o, "attention.head_count_kv", m->kv);
    mk_f32(o, "attention.layer_norm_rms_epsilon", 1e-6f);
    if (m->d_head * m->heads != m->d) {
        mk_u32(o, "attention.key_length", m->d_head);
        mk_u32(o, "attention.value_length", m->d_head);
    }
    if (m->rope_dim != 0) {
        mk_u32(o, "rope.dimension_count", m->rope_dim);
    }
    if (m->window != 0) {
        mk_u32(o, "attention.sliding_window", m->window);
    }
    for (size_t i = 0; i < m->n_items; i++) {
        mk_item(o, &m->items[i]);
    }
    if (m->extra_key != NULL) {
        mk_extra(o);
    }
    if (m->n_tokens != 0) {
        mk_vocab(o);
    }
}

static inline void mk_usual(struct mk_out *o)
{
    const struct mk *m = o->m;
    float g = m->embed_gain > 0 ? m->embed_gain : 1;
    mk_tensor(o, "token_embd.weight", m->d, m->vocab, -g, g);
    for (uint32_t l = 0; l < m->layers; l++) {
        mk_layer(o, l);
    }
    mk_tensor(o, "output_norm.weight", m->d, 0, 0.8f, 1.2f);
    if (m->untied) {
        mk_matrix(o, "output.weight", m->d, m->vocab);
    }
    if (m->factors) {
        uint32_t r = m->rope_dim != 0 ? m->rope_dim : m->d_head;
        mk_tensor(o, "rope_freqs.weight", r / 2, 0, 1, 8);
    }
}

/* The whole file; buf_fini is the caller's. */
static inline struct buf mk_gguf(const struct mk *m)
{
    struct mk_out o = {.m = m, .seed = 7};
    struct buf out;
    buf_init(&o.kv, 1 << 20);
    buf_init(&o.info, 1 << 20);
    buf_init(&o.data, 64 << 20);
    buf_init(&out, 80 << 20);
    mk_keys(&o);
    for (size_t i = 0; i < m->n_rows; i++) {
        mk_row(&o, &m->rows[i]);
    }
    if (m->n_rows == 0) {
        mk_usual(&o);
    }
    if (m->extra_tensor != NULL) {
        mk_tensor(&o, m->extra_tensor, 4, 0, 0, 1);
    }
    buf_puts(&out, "GGUF");
    buf_u32(&out, 3);
    buf_u64(&out, o.n_tensors);
    buf_u64(&out, o.n_kv);
    buf_put(&out, o.kv.p, o.kv.n);
    buf_put(&out, o.info.p, o.info.n);
    while (out.n % 32 != 0) {
        buf_u8(&out, 0);
    }
    buf_put(&out, o.data.p, o.data.n);
    assert_true(buf_ok(&out));
    buf_fini(&o.kv);
    buf_fini(&o.info);
    buf_fini(&o.data);
    return out;
}

static const struct mk mk_llama = {.arch = "llama",
                                   .layers = 3,
                                   .d = 64,
                                   .heads = 4,
                                   .kv = 2,
                                   .d_head = 16,
                                   .ff = 96,
                                   .vocab = 300,
                                   .context = 64,
                                   .untied = true};
static const struct mk mk_qwen2 = {.arch = "qwen2",
                                   .layers = 2,
                                   .d = 64,
                                   .heads = 4,
                                   .kv = 1,
                                   .d_head = 16,
                                   .ff = 96,
                                   .vocab = 300,
                                   .context = 64,
                                   .qkv_bias = true};
static const struct mk mk_gemma3 = {.arch = "gemma3",
                                    .layers = 7,
                                    .d = 48,
                                    .heads = 4,
                                    .kv = 1,
                                    .d_head = 32,
                                    .ff = 96,
                                    .vocab = 300,
                                    .context = 64,
                                    .window = 16,
                                    .gemma = true};
