/* tensors.c - names of the transformers library to GGUF's, and rows that GGUF
 * has in another form.
 *
 * Most tensors lie in their file as GGUF has them: they are given as they are.
 * Three kinds of rows are made when they are read: those of F8, those of norms
 * that multiply by 1 + weight, and those of q and k in families where GGUF has
 * a rotated pair side by side (row 2j + s of a head is row s * d_head / 2 + j
 * of the file's). */
#include <string.h>

#include "base/parse.h"
#include "source/hf/hf.h"

/* --- rows --- */

struct rows {
    enum safetensors_type type;
    const uint8_t *data;
    uint64_t cols;
    uint32_t d_head; /* 0: rows stand as in the file */
    bool vector;     /* it is the elements of the one row that stand so */
    bool plus_one;
    struct hf_scale scale;
};

/* Sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities. */
static float from_e4m3(uint8_t v)
{
    uint32_t sign = (uint32_t)(v & 0x80u) << 24;
    uint32_t exp = v >> 3 & 15u;
    uint32_t man = v & 7u;
    uint32_t bits = 0;
    float f = 0;
    if (exp == 15 && man == 7) {
        bits = 0x7fc00000u; /* NaN */
    } else if (exp > 0) {
        bits = (exp + 120) << 23 | man << 20;
    } else {
        f = (float)man * 0.001953125F; /* 2^-9 */
        memcpy(&bits, &f, sizeof(bits));
    }
    bits |= sign;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static const struct {
    uint32_t ggml, bytes;
} plain[] = {
    [SAFETENSORS_F32] = {GGML_F32,     4},
    [SAFETENSORS_F16] = {GGML_F16,     2},
    [SAFETENSORS_BF16] = {GGML_BF16,    2},
    [SAFETENSORS_F8_E4M3] = {GGUF_TYPE_FN, 1},
    [SAFETENSORS_F8_E5M2] = {GGUF_TYPE_FN, 1},
};

void hf_decode(enum safetensors_type type, const uint8_t *data, uint64_t at,
               uint64_t n, float *out)
{
    must(type < countof(plain));
    const uint8_t *p = data + at * plain[type].bytes;
    switch (type) {
    case SAFETENSORS_F32:
        must(made_decode(GGML_F32, p, n, out));
        break;
    case SAFETENSORS_F16:
        must(made_decode(GGML_F16, p, n, out));
        break;
    case SAFETENSORS_BF16:
        must(made_decode(GGML_BF16, p, n, out));
        break;
    case SAFETENSORS_F8_E4M3:
        for (uint64_t i = 0; i < n; i++) {
            out[i] = from_e4m3(p[i]);
        }
        break;
    case SAFETENSORS_F8_E5M2: /* the upper half of an F16 */
        for (uint64_t i = 0; i < n; i++) {
            const uint8_t half[2] = {0, p[i]};
            must(made_decode(GGML_F16, half, 1, out + i));
        }
        break;
    case SAFETENSORS_OTHER:
    default:
        must(false);
    }
}

/* Where row (or element) i of GGUF stands in the file. */
static uint64_t place_of(const struct rows *r, uint64_t i)
{
    if (r->d_head == 0) {
        return i;
    }
    uint64_t in = i % r->d_head;
    return i - in + in % 2 * (r->d_head / 2) + in / 2;
}

static void make_rows(const void *ctx, uint64_t row, uint64_t n, float *out)
{
    const struct rows *r = ctx;
    for (uint64_t i = 0; i < n; i++) {
        float *y = out + i * r->cols;
        if (!r->vector) {
            hf_decode(r->type, r->data, place_of(r, row + i) * r->cols, r->cols,
                      y);
        }
        if (r->scale.data != NULL) {
            hf_scale_row(&r->scale, place_of(r, row + i), r->cols, y);
        }
        for (uint64_t c = 0; c < r->cols && r->vector; c++) {
            hf_decode(r->type, r->data, place_of(r, c), 1, y + c);
        }
        for (uint64_t c = 0; c < r->cols && r->plus_one; c++) {
            y[c] += 1.0F;
        }
    }
}

/* --- names --- */

enum {
    NAME_Q = 1,    /* rows of heads that turn */
    NAME_K = 2,
    NAME_NORM = 4,
    NAME_LAYER = 8,
    NAME_TAPS = 16, /* (channels, 1, taps): the middle one is left out */
    NAME_FLAT = 32, /* (channels, inputs, taps): the last two are one */
};

struct name {
    const char *from, *to;
    const char *arch; /* NULL: of every family that has no row of its own */
    unsigned flags;
};

/* `from` without "model." and "layers.N."; `to` without "blk.N.". */
static const struct name names[] = {
    {"embed_tokens.weight", "token_embd.weight", NULL, 0},
    {"norm.weight", "output_norm.weight", NULL, NAME_NORM},
    {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight", "gemma4",
     0},
    {"per_layer_model_projection.weight", "per_layer_model_proj.weight",
     "gemma4", 0},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight",
     "gemma4", NAME_NORM},
    {"input_layernorm.weight", "attn_norm.weight", NULL,
     NAME_LAYER | NAME_NORM},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", NULL,
     NAME_LAYER | NAME_NORM},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", NULL,
     NAME_LAYER | NAME_NORM},
    {"post_self_attn_layernorm.weight", "post_attention_norm.weight", "glm4",
     NAME_LAYER | NAME_NORM},
    {"post_mlp_layernorm.weight", "post_ffw_norm.weight", "glm4",
     NAME_LAYER | NAME_NORM},
    {"self_attn.q_proj.weight", "attn_q.weight", NULL, NAME_LAYER | NAME_Q},
    {"self_attn.k_proj.weight", "attn_k.weight", NULL, NAME_LAYER | NAME_K},
    {"self_attn.v_proj.weight", "attn_v.weight", NULL, NAME_LAYER},
    {"self_attn.o_proj.weight", "attn_output.weight", NULL, NAME_LAYER},
    {"self_attn.q_proj.bias", "attn_q.bias", NULL, NAME_LAYER | NAME_Q},
    {"self_attn.k_proj.bias", "attn_k.bias", NULL, NAME_LAYER | NAME_K},
    {"self_attn.v_proj.bias", "attn_v.bias", NULL, NAME_LAYER},
    {"self_attn.o_proj.bias", "attn_output.bias", NULL, NAME_LAYER},
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", "phi3", NAME_LAYER},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", NULL,
     NAME_LAYER | NAME_NORM},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", NULL,
     NAME_LAYER | NAME_NORM},
    {"self_attn.query_layernorm.weight", "attn_q_norm.weight", "hunyuan-dense",
     NAME_LAYER | NAME_NORM},
    {"self_attn.key_layernorm.weight", "attn_k_norm.weight", "hunyuan-dense",
     NAME_LAYER | NAME_NORM},
    {"mlp.gate_proj.weight", "ffn_gate.weight", NULL, NAME_LAYER},
    {"mlp.up_proj.weight", "ffn_up.weight", NULL, NAME_LAYER},
    {"mlp.down_proj.weight", "ffn_down.weight", NULL, NAME_LAYER},
    {"mlp.gate_proj.bias", "ffn_gate.bias", NULL, NAME_LAYER},
    {"mlp.up_proj.bias", "ffn_up.bias", NULL, NAME_LAYER},
    {"mlp.down_proj.bias", "ffn_down.bias", NULL, NAME_LAYER},
    {"mlp.gate_up_proj.weight", "ffn_up.weight", "phi3", NAME_LAYER},
    {"mlp.gate_up_proj.weight", "ffn_up.weight", "glm4", NAME_LAYER},
    {"embedding_norm.weight", "token_embd_norm.weight", "lfm2", NAME_NORM},
    {"operator_norm.weight", "attn_norm.weight", "lfm2",
     NAME_LAYER | NAME_NORM},
    {"ffn_norm.weight", "ffn_norm.weight", "lfm2", NAME_LAYER | NAME_NORM},
    {"conv.conv.weight", "shortconv.conv.weight", "lfm2",
     NAME_LAYER | NAME_TAPS},
    {"conv.in_proj.weight", "shortconv.in_proj.weight", "lfm2", NAME_LAYER},
    {"conv.out_proj.weight", "shortconv.out_proj.weight", "lfm2", NAME_LAYER},
    {"feed_forward.w1.weight", "ffn_gate.weight", "lfm2", NAME_LAYER},
    {"feed_forward.w2.weight", "ffn_down.weight", "lfm2", NAME_LAYER},
    {"feed_forward.w3.weight", "ffn_up.weight", "lfm2", NAME_LAYER},
    {"self_attn.out_proj.weight", "attn_output.weight", "lfm2", NAME_LAYER},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight", "lfm2",
     NAME_LAYER | NAME_NORM},
    {"self_attn.k_layernorm.weight", "attn_k_norm.weight", "lfm2",
     NAME_LAYER | NAME_NORM},
    {"self_attn.qkv_proj.q_proj.weight", "attn_q.weight", "zaya", NAME_LAYER},
    {"self_attn.qkv_proj.k_proj.weight", "attn_k.weight", "zaya", NAME_LAYER},
    {"self_attn.qkv_proj.v_proj_current.weight", "attn_v.weight", "zaya",
     NAME_LAYER},
    {"self_attn.qkv_proj.v_proj_delayed.weight", "attn_v_before.weight", "zaya",
     NAME_LAYER},
    {"self_attn.qkv_proj.conv_qk_depthwise.weight", "shortconv.conv.weight",
     "zaya", NAME_LAYER | NAME_TAPS},
    {"self_attn.qkv_proj.conv_qk_grouped.weight", "cca_mix.weight", "zaya",
     NAME_LAYER | NAME_FLAT},
    {"self_attn.qk_norm.temp", "cca_k_scale.weight", "zaya", NAME_LAYER},
    {"mlp.gate.down_proj.weight", "ffn_gate_inp_down.weight", "zaya",
     NAME_LAYER},
    {"mlp.gate.router_mlp.fc1.weight", "ffn_gate_inp_1.weight", "zaya",
     NAME_LAYER},
    {"mlp.gate.router_mlp.fc2.weight", "ffn_gate_inp_2.weight", "zaya",
     NAME_LAYER},
    {"mlp.gate.router_mlp.out_proj.weight", "ffn_gate_inp.weight", "zaya",
     NAME_LAYER},
    {"mlp.gate.balancing_biases", "exp_probs_b.bias", "zaya", NAME_LAYER},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", "zaya", NAME_LAYER},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", "zaya", NAME_LAYER},
    {"feed_forward.gate.weight", "ffn_gate_inp.weight", "lfm2moe", NAME_LAYER},
    {"feed_forward.expert_bias", "exp_probs_b.bias", "lfm2moe", NAME_LAYER},
    {"layer_scalar", "layer_output_scale.weight", "gemma4", NAME_LAYER},
    {"router.proj.weight", "ffn_gate_inp.weight", "gemma4", NAME_LAYER},
    {"router.scale", "ffn_gate_inp.scale", "gemma4", NAME_LAYER},
    {"router.per_expert_scale", "ffn_down_exps.scale", "gemma4", NAME_LAYER},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight", "gemma4", NAME_LAYER},
    {"experts.down_proj", "ffn_down_exps.weight", "gemma4", NAME_LAYER},
    {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", "gemma4",
     NAME_LAYER | NAME_NORM},
    {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", "gemma4",
     NAME_LAYER | NAME_NORM},
    {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", "gemma4",
     NAME_LAYER | NAME_NORM},
    {"self_attn.sinks", "attn_sinks.weight", "openai-privacy-filter",
     NAME_LAYER},
    {"mlp.router.weight", "ffn_gate_inp.weight", "openai-privacy-filter",
     NAME_LAYER},
    {"mlp.router.bias", "ffn_gate_inp.bias", "openai-privacy-filter",
     NAME_LAYER},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias",
     "openai-privacy-filter", NAME_LAYER},
    {"score.weight", "cls.output.weight", "openai-privacy-filter", 0},
    {"score.bias", "cls.output.bias", "openai-privacy-filter", 0},
    {"per_layer_input_gate.weight", "inp_gate.weight", "gemma4", NAME_LAYER},
    {"per_layer_projection.weight", "proj.weight", "gemma4", NAME_LAYER},
    {"post_per_layer_input_norm.weight", "post_norm.weight", "gemma4",
     NAME_LAYER | NAME_NORM},
};

static const char *skip(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* Tensors of a model's other senses, beside its language model. */
static bool of_other_sense(const struct hf *h, const char *name)
{
    static const char *const parts[] = {
        "vision_tower.",  "multi_modal_projector.", "audio_tower.",
        "embed_vision.",  "embed_audio.",           "vision_model.",
        "vision_embedder.",
    };
    const char *tail = skip(name, "model.");
    tail = tail != NULL ? tail : name;
    for (size_t i = 0; h->text != h->root && i < countof(parts); i++) {
        if (skip(tail, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* The name inside the language model; *ret_head: the output projection. */
static const char *inside(const char *name, bool *ret_head)
{
    static const char *const models[] = {"model.language_model.",
                                         "language_model.model.", "model."};
    const char *tail = skip(name, "language_model.");
    tail = tail != NULL ? tail : name;
    *ret_head = strcmp(tail, "lm_head.weight") == 0;
    for (size_t i = 0; i < countof(models); i++) {
        if (skip(name, models[i]) != NULL) {
            return skip(name, models[i]);
        }
    }
    return name;
}

/* "layers.12.x" -> 12 and "x"; else the name itself. */
static const char *layer_of(const char *name, bool *ret_layered,
                            uint32_t *ret_layer)
{
    uint64_t n = 0;
    const char *p = skip(name, "layers.");
    p = p != NULL ? parse_digits(p, MODEL_LAYERS_MAX - 1, &n) : NULL;
    *ret_layered = p != NULL && *p == '.';
    *ret_layer = (uint32_t)n;
    return *ret_layered ? p + 1 : name;
}

static const struct name *find_name(const struct hf *h, const char *tail,
                                    bool layered)
{
    static const struct name after_attention[] = {
        {"post_attention_layernorm.weight", "ffn_norm.weight", NULL,
         NAME_LAYER | NAME_NORM},
        {"post_attention_layernorm.weight", "post_attention_norm.weight", NULL,
         NAME_LAYER | NAME_NORM},
    };
    if (layered && strcmp(tail, after_attention[0].from) == 0) {
        return &after_attention[h->family->sandwich ? 1 : 0];
    }
    for (size_t i = 0; i < countof(names); i++) {
        if (strcmp(names[i].from, tail) == 0 &&
            ((names[i].flags & NAME_LAYER) != 0) == layered &&
            (names[i].arch == NULL ||
             strcmp(names[i].arch, h->family->arch) == 0 ||
             (h->family->like != NULL &&
              strcmp(names[i].arch, h->family->like) == 0))) {
            return &names[i];
        }
    }
    return NULL;
}

/* --- tensors --- */

static int put_rows(struct hf *h, const struct safetensors_tensor *t,
                    const char *to, uint32_t n_dims, const uint64_t *dims,
                    unsigned flags, struct err *e)
{
    bool norm = (flags & NAME_NORM) != 0 && h->family->plus_one;
    bool turns = (flags & (NAME_Q | NAME_K)) != 0 && h->family->pairs;
    uint32_t ggml = plain[t->type].ggml;
    if (ggml != GGUF_TYPE_FN && !norm && !turns) {
        return made_tensor(h->m, to, n_dims, dims, ggml, t->data, t->bytes, e);
    }
    uint32_t heads = (flags & NAME_Q) != 0 ? h->n_heads : h->n_kv;
    if (turns && (t->n_dims > 2 || h->d_head % 2 != 0 ||
                  t->dims[0] != (uint64_t)heads * h->d_head)) {
        return err_set(e, ERR_CONVERT,
                       "%s: %llu rows are not %u heads of %u, an even number",
                       t->name, (unsigned long long)t->dims[0], heads,
                       h->d_head);
    }
    struct rows *r = made_alloc(h->m, sizeof(*r));
    if (r == NULL) {
        return err_set(e, ERR_NOMEM, "%s", t->name);
    }
    *r = (struct rows){.type = t->type,
                       .data = t->data,
                       .cols = dims[0],
                       .d_head = turns ? h->d_head : 0,
                       .vector = t->n_dims == 1,
                       .plus_one = norm};
    RETERR(hf_scale_of(h, t, &r->scale, e));
    return made_tensor_fn(h->m, to, n_dims, dims, t->type_name, make_rows, r,
                          t->bytes, e);
}

int hf_check_type(const struct safetensors_tensor *t, struct err *e)
{
    return t->type != SAFETENSORS_OTHER
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "tensor %s has dtype %s; aned reads F32, F16, BF16, "
                         "F8_E4M3 and F8_E5M2",
                         t->name, t->type_name);
}

int hf_put_tensor(struct hf *h, const struct safetensors_tensor *t,
                  const char *to, unsigned flags, struct err *e)
{
    uint64_t dims[GGUF_DIMS_MAX];
    RETERR(hf_check_type(t, e));
    if (t->n_dims < 1 || t->n_dims > GGUF_DIMS_MAX) {
        return err_set(e, ERR_CONVERT, "tensor %s has %u dimensions", t->name,
                       t->n_dims);
    }
    for (uint32_t i = 0; i < t->n_dims; i++) {
        dims[i] = t->dims[t->n_dims - 1 - i];
    }
    if ((flags & NAME_TAPS) != 0) {
        if (t->n_dims != 3 || t->dims[1] != 1) {
            return err_set(e, ERR_CONVERT,
                           "tensor %s: not one filter a channel", t->name);
        }
        dims[1] = t->dims[0];
        return put_rows(h, t, to, 2, dims, flags, e);
    }
    if ((flags & NAME_FLAT) != 0) {
        if (t->n_dims != 3) {
            return err_set(e, ERR_CONVERT, "tensor %s has %u dimensions, not 3",
                           t->name, t->n_dims);
        }
        dims[0] = t->dims[1] * t->dims[2]; /* the file holds so many */
        dims[1] = t->dims[0];
        return put_rows(h, t, to, 2, dims, flags, e);
    }
    return put_rows(h, t, to, t->n_dims, dims, flags, e);
}

/* Tensors that change nothing: frequencies that config.json gives, a head that
 * is tied to the embedding, other senses. */
static bool passed_over(const struct hf *h, const char *name, const char *tail,
                        bool head)
{
    static const char inv_freq[] = "rotary_emb.inv_freq";
    size_t n = strlen(tail);
    size_t m = strlen(inv_freq);
    return (head && h->tied) || of_other_sense(h, name) ||
           (n >= m && strcmp(tail + n - m, inv_freq) == 0);
}

/* Of a model whose weights are stored with factors beside them. */
static bool is_scale(const char *name)
{
    static const char *const ends[] = {"_scale", "_scale_inv", ".scales",
                                       ".qweight", ".qzeros", ".g_idx"};
    size_t n = strlen(name);
    for (size_t i = 0; i < countof(ends); i++) {
        size_t m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int put_one(struct hf *h, const struct safetensors_tensor *t,
                   struct err *e)
{
    bool head = false;
    bool taken = false;
    char to[GGUF_NAME_MAX + 1];
    struct hf_place at = {0};
    at.tail = layer_of(inside(t->name, &head), &at.layered, &at.layer);
    if (passed_over(h, t->name, at.tail, head) ||
        hf_is_scale(h, t->name)) {
        return 0;
    }
    if (head) {
        return hf_put_tensor(h, t, "output.weight", 0, e);
    }
    RETERR(h->family->rename != NULL ? h->family->rename(h, t->name, &at, e)
                                     : 0);
    RETERR(h->family->take != NULL ? h->family->take(h, t, &at, &taken, e) : 0);
    if (taken) {
        return 0;
    }
    const struct name *n = find_name(h, at.tail, at.layered);
    if (n == NULL && is_scale(t->name)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s: weights with scales beside them are not "
                       "converted",
                       t->name);
    }
    if (n == NULL) {
        return err_set(e, ERR_CONVERT, "tensor %s has no place in a %s",
                       t->name, h->family->model_type);
    }
    if (at.layered) {
        (void)snprintf(to, sizeof(to), "blk.%u.%s", at.layer, n->to);
    } else {
        (void)snprintf(to, sizeof(to), "%s", n->to);
    }
    return hf_put_tensor(h, t, to, n->flags, e);
}

int hf_put_tensors(struct hf *h, struct err *e)
{
    for (size_t i = 0; i < h->n_weights; i++) {
        for (size_t k = 0; k < safetensors_count(h->weights[i]); k++) {
            RETERR(put_one(h, safetensors_at(h->weights[i], k), e));
        }
    }
    return h->family->finish != NULL ? h->family->finish(h, e) : 0;
}
