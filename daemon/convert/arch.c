/* arch.c - the table of families and its reader.
 *
 * Nothing is guessed and nothing is dropped: a tensor or a key that changes
 * the arithmetic and is not described here (keys: arch_keys.c) is an error that
 * names it. Sources of the rows: the GGUF metadata conventions and the
 * families' papers; gemma3: measured facts on gemma-3-270m.
 */
#include "convert/arch.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "base/parse.h"

#define BIT(slot) (1u << (slot))

/* What every pre-norm decoder with a gated feed-forward has. */
#define NEED_ALL                                                               \
    (BIT(SLOT_EMBD) | BIT(SLOT_OUT_NORM) | BIT(SLOT_ATTN_NORM) | BIT(SLOT_Q) | \
     BIT(SLOT_K) | BIT(SLOT_V) | BIT(SLOT_O) | BIT(SLOT_FFN_NORM) |            \
     BIT(SLOT_GATE) | BIT(SLOT_UP) | BIT(SLOT_DOWN))
#define QKV_BIAS (BIT(SLOT_Q_BIAS) | BIT(SLOT_K_BIAS) | BIT(SLOT_V_BIAS))

static const struct arch_row rows[] = {
    {.name = "llama",
     .need = NEED_ALL,
     .may =
         BIT(SLOT_OUTPUT) | BIT(SLOT_ROPE_FREQS) | QKV_BIAS | BIT(SLOT_O_BIAS),
     .act = ARCH_SILU,
     .rope_interleaved = true},
    {.name = "qwen2",
     .need = NEED_ALL | QKV_BIAS,
     .may = BIT(SLOT_OUTPUT),
     .act = ARCH_SILU},
    {.name = "gemma3",
     .need = NEED_ALL | BIT(SLOT_Q_NORM) | BIT(SLOT_K_NORM) |
             BIT(SLOT_POST_ATTN) | BIT(SLOT_POST_FFN),
     .may = BIT(SLOT_OUTPUT),
     .act = ARCH_GELU_TANH,
     .embed_sqrt = true,
     .local_every = 6,
     .local_base = 10000.0f,
     .wide_layers = 62}, /* 27B; no key of the file tells */
};

/* Names; a layer's follow "blk.N.". */
static const char *const slot_names[SLOT_COUNT] = {
    [SLOT_EMBD] = "token_embd.weight",
    [SLOT_OUT_NORM] = "output_norm.weight",
    [SLOT_OUTPUT] = "output.weight",
    [SLOT_ROPE_FREQS] = "rope_freqs.weight",
    [SLOT_ATTN_NORM] = "attn_norm.weight",
    [SLOT_Q] = "attn_q.weight",
    [SLOT_K] = "attn_k.weight",
    [SLOT_V] = "attn_v.weight",
    [SLOT_O] = "attn_output.weight",
    [SLOT_Q_BIAS] = "attn_q.bias",
    [SLOT_K_BIAS] = "attn_k.bias",
    [SLOT_V_BIAS] = "attn_v.bias",
    [SLOT_O_BIAS] = "attn_output.bias",
    [SLOT_Q_NORM] = "attn_q_norm.weight",
    [SLOT_K_NORM] = "attn_k_norm.weight",
    [SLOT_POST_ATTN] = "post_attention_norm.weight",
    [SLOT_FFN_NORM] = "ffn_norm.weight",
    [SLOT_GATE] = "ffn_gate.weight",
    [SLOT_UP] = "ffn_up.weight",
    [SLOT_DOWN] = "ffn_down.weight",
    [SLOT_POST_FFN] = "post_ffw_norm.weight",
};

/* --- metadata --- */

/* Keys of one family: "llama." + tail. */
struct keys {
    const struct gguf *g;
    const char *arch;
    char text[GGUF_KEY_MAX];
};

static const char *key(struct keys *k, const char *tail)
{
    int n = snprintf(k->text, sizeof(k->text), "%s.%s", k->arch, tail);
    must(n > 0 && (size_t)n < sizeof(k->text));
    return k->text;
}

/* A count in [lo, hi]. Absent: *ret stays when it is set, else an error. */
static int want_u32(struct keys *k, const char *tail, uint32_t lo, uint32_t hi,
                    uint32_t *ret, struct err *e)
{
    const char *name = key(k, tail);
    uint32_t v = *ret;
    if (gguf_find(k->g, name) == NULL) {
        if (v == 0) {
            return err_set(e, ERR_GGUF_MISSING, "key %s is absent", name);
        }
    } else if (!gguf_get_u32(k->g, name, &v)) {
        return err_set(e, ERR_GGUF_VALUE, "key %s is not one number", name);
    }
    if (v < lo || v > hi) {
        return err_set(e, ERR_CONVERT, "%s is %u; aned takes %u to %u", name, v,
                       lo, hi);
    }
    *ret = v;
    return 0;
}

static int want_f32(struct keys *k, const char *tail, float lo, float hi,
                    float *ret, struct err *e)
{
    const char *name = key(k, tail);
    float v = *ret;
    if (gguf_find(k->g, name) != NULL && !gguf_get_f32(k->g, name, &v)) {
        return err_set(e, ERR_GGUF_VALUE, "key %s is not one float", name);
    }
    if (!(v >= lo && v <= hi)) { /* NaN too */
        return err_set(e, ERR_CONVERT, "%s is %g; aned takes %g to %g", name,
                       (double)v, (double)lo, (double)hi);
    }
    *ret = v;
    return 0;
}

/* Positions are divided by a factor: rope.scaling.factor, in the oldest files
 * rope.scale_linear. 0 is none; a factor without a type is linear. */
static int read_scaling(struct keys *k, struct decoder *d, struct err *e)
{
    struct span type = {"linear", 6};
    float oldest = 0;
    RETERR(want_f32(k, "rope.scale_linear", 0, 1e6f, &oldest, e));
    float factor = oldest;
    RETERR(want_f32(k, "rope.scaling.factor", 0, 1e6f, &factor, e));
    const char *name = key(k, "rope.scaling.type");
    if (gguf_find(k->g, name) != NULL && !gguf_get_str(k->g, name, &type)) {
        return err_set(e, ERR_GGUF_VALUE, "key %s is not one string", name);
    }
    bool none = type.n == 4 && memcmp(type.p, "none", 4) == 0;
    if (!none && !(type.n == 6 && memcmp(type.p, "linear", 6) == 0)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s '%.*s' is not converted (none and linear are)", name,
                       (int)num_min(type.n, 40), type.p);
    }
    if (factor != 0 && factor < 1e-3f) {
        return err_set(e, ERR_CONVERT, "%s is %g; aned takes 0.001 to 1e6",
                       key(k, "rope.scaling.factor"), (double)factor);
    }
    d->rope_scale = none || factor == 0 ? 1.0f : 1.0f / factor;
    return 0;
}

static int read_rope(struct keys *k, struct decoder *d, struct err *e)
{
    d->rope_dim = d->d_head;
    d->rope_base = 10000.0f;
    d->rope_scale = 1;
    RETERR(want_u32(k, "rope.dimension_count", 2, d->d_head, &d->rope_dim, e));
    RETERR(want_f32(k, "rope.freq_base", 1, 1e12f, &d->rope_base, e));
    if (d->rope_dim % 2 != 0) {
        return err_set(e, ERR_CONVERT, "%u rotated elements a head: not even",
                       d->rope_dim);
    }
    return read_scaling(k, d, e);
}

static int read_local(struct keys *k, struct decoder *d, struct err *e)
{
    d->local_every = d->arch->local_every;
    d->rope_base_local = d->arch->local_base;
    if (gguf_find(k->g, key(k, "attention.sliding_window")) != NULL) {
        uint32_t w = 0;
        if (!gguf_get_u32(k->g, k->text, &w)) {
            return err_set(e, ERR_GGUF_VALUE, "key %s is not one number",
                           k->text);
        }
        d->window = w;
    }
    if (d->local_every == 0) {
        return 0; /* a window on every layer stands in the mask alone */
    }
    if (d->window == 0) {
        return err_set(e, ERR_GGUF_MISSING, "key %s is absent",
                       key(k, "attention.sliding_window"));
    }
    RETERR(want_u32(k, "attention.sliding_window_pattern", 1, MODEL_LAYERS_MAX,
                    &d->local_every, e));
    return want_f32(k, "rope.freq_base_swa", 1, 1e12f, &d->rope_base_local, e);
}

static int read_numbers(struct keys *k, struct decoder *d, struct err *e)
{
    const struct {
        const char *tail;
        uint32_t hi;
        uint32_t *to;
    } sizes[] = {
        {"block_count",          MODEL_LAYERS_MAX, &d->n_layers     },
        {"embedding_length",     MODEL_DIM_MAX,    &d->d_model      },
        {"feed_forward_length",  MODEL_DIM_MAX,    &d->d_ff         },
        {"attention.head_count", MODEL_DIM_MAX,    &d->n_heads      },
        {"context_length",       UINT32_MAX,       &d->context_train},
    };
    for (size_t i = 0; i < countof(sizes); i++) {
        RETERR(want_u32(k, sizes[i].tail, 1, sizes[i].hi, sizes[i].to, e));
    }
    d->n_kv = d->n_heads;
    RETERR(want_u32(k, "attention.head_count_kv", 1, d->n_heads, &d->n_kv, e));
    d->d_head = d->d_model / d->n_heads;
    if (d->d_head == 0) {
        return err_set(e, ERR_CONVERT, "more heads (%u) than width (%u)",
                       d->n_heads, d->d_model);
    }
    RETERR(
        want_u32(k, "attention.key_length", 1, MODEL_DIM_MAX, &d->d_head, e));
    uint32_t d_value = d->d_head;
    RETERR(
        want_u32(k, "attention.value_length", 1, MODEL_DIM_MAX, &d_value, e));
    if (d_value != d->d_head) {
        return err_set(e, ERR_UNSUPPORTED, "keys of %u and values of %u",
                       d->d_head, d_value);
    }
    if (d->n_heads % d->n_kv != 0) {
        return err_set(e, ERR_CONVERT, "%u heads do not share %u kv heads",
                       d->n_heads, d->n_kv);
    }
    if ((uint64_t)d->n_heads * d->d_head > MODEL_DIM_MAX) {
        return err_set(e, ERR_CONVERT, "%u heads of %u pass %u channels",
                       d->n_heads, d->d_head, MODEL_DIM_MAX);
    }
    d->norm_eps = 1e-5f;
    RETERR(want_f32(k, "attention.layer_norm_rms_epsilon", 0, 0.1f,
                    &d->norm_eps, e));
    RETERR(read_rope(k, d, e));
    RETERR(read_local(k, d, e));
    d->embed_scale = d->arch->embed_sqrt ? sqrtf((float)d->d_model) : 1.0f;
    uint32_t per_score = d->n_layers == d->arch->wide_layers
                             ? d->d_model / d->n_heads
                             : d->d_head;
    d->score_scale = 1.0f / sqrtf((float)per_score);
    return 0;
}

/* --- tensors --- */

void arch_shape(const struct decoder *d, enum arch_slot slot, uint64_t *rows_,
                uint64_t *cols)
{
    uint64_t q = (uint64_t)d->n_heads * d->d_head;
    uint64_t kv = (uint64_t)d->n_kv * d->d_head;
    *rows_ = 1;
    *cols = d->d_model;
    switch (slot) {
    case SLOT_EMBD:
    case SLOT_OUTPUT:
        *rows_ = d->vocab;
        break;
    case SLOT_ROPE_FREQS:
        *cols = d->rope_dim / 2;
        break;
    case SLOT_Q:
        *rows_ = q;
        break;
    case SLOT_K:
    case SLOT_V:
        *rows_ = kv;
        break;
    case SLOT_O:
        *rows_ = d->d_model;
        *cols = q;
        break;
    case SLOT_Q_BIAS:
        *cols = q;
        break;
    case SLOT_K_BIAS:
    case SLOT_V_BIAS:
        *cols = kv;
        break;
    case SLOT_Q_NORM:
    case SLOT_K_NORM:
        *cols = d->d_head;
        break;
    case SLOT_GATE:
    case SLOT_UP:
        *rows_ = d->d_ff;
        break;
    case SLOT_DOWN:
        *rows_ = d->d_model;
        *cols = d->d_ff;
        break;
    case SLOT_OUT_NORM:
    case SLOT_ATTN_NORM:
    case SLOT_O_BIAS:
    case SLOT_POST_ATTN:
    case SLOT_FFN_NORM:
    case SLOT_POST_FFN:
    case SLOT_COUNT:
        break;
    }
}

static int check_tensor(const struct decoder *d, const struct gguf_tensor *t,
                        enum arch_slot slot, struct err *e)
{
    uint64_t r = 0;
    uint64_t c = 0;
    arch_shape(d, slot, &r, &c);
    if (t->rows != r || t->cols != c) {
        return err_set(
            e, ERR_CONVERT, "%s is %llu x %llu, the metadata says %llu x %llu",
            t->name, (unsigned long long)t->rows, (unsigned long long)t->cols,
            (unsigned long long)r, (unsigned long long)c);
    }
    if (!gguf_type_readable(t->type)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has type %s, which aned does not read", t->name,
                       gguf_type_name(t->type));
    }
    return 0;
}

/* "blk.12.attn_q.weight" -> layer 12 and its slot; a plain name -> its slot.
 * SLOT_COUNT: no such tensor. */
static enum arch_slot slot_of(const char *name, uint32_t *layer)
{
    size_t from = 0;
    size_t to = SLOT_GLOBALS;
    const char *tail = name;
    *layer = 0;
    if (strncmp(name, "blk.", 4) == 0) {
        uint64_t n = 0;
        const char *end = parse_digits(name + 4, MODEL_LAYERS_MAX - 1, &n);
        if (end == NULL || *end != '.') {
            return SLOT_COUNT;
        }
        *layer = (uint32_t)n;
        tail = end + 1;
        from = SLOT_GLOBALS;
        to = SLOT_COUNT;
    }
    for (size_t s = from; s < to; s++) {
        if (strcmp(tail, slot_names[s]) == 0) {
            return (enum arch_slot)s;
        }
    }
    return SLOT_COUNT;
}

static int find_tensors(const struct gguf *g, struct decoder *d, struct err *e)
{
    uint32_t takes = d->arch->need | d->arch->may;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint32_t layer = 0;
        enum arch_slot s = slot_of(t->name, &layer);
        if (s == SLOT_COUNT || (takes & BIT(s)) == 0 || layer >= d->n_layers) {
            return err_set(e, ERR_CONVERT,
                           "tensor %s has no place in a %s of %u layers",
                           t->name, d->arch->name, d->n_layers);
        }
        if (s == SLOT_EMBD) {
            continue; /* already found: it gave the vocabulary's size */
        }
        int rc = check_tensor(d, t, s, e);
        if (rc < 0) {
            return rc;
        }
        if (s < SLOT_LAYER) {
            d->global[s] = t;
        } else {
            d->layer[layer][s - SLOT_LAYER] = t;
        }
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        for (unsigned s = 0; s < SLOT_COUNT; s++) {
            if ((d->arch->need & BIT(s)) == 0 ||
                arch_tensor(d, l, (enum arch_slot)s) != NULL) {
                continue;
            }
            return s < SLOT_LAYER
                       ? err_set(e, ERR_GGUF_MISSING, "tensor %s is absent",
                                 slot_names[s])
                       : err_set(e, ERR_GGUF_MISSING,
                                 "tensor blk.%u.%s is absent", l,
                                 slot_names[s]);
        }
    }
    return 0;
}

static int read_vocab(const struct gguf *g, struct decoder *d, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(g, slot_names[SLOT_EMBD]);
    if (t == NULL) {
        return err_set(e, ERR_GGUF_MISSING, "tensor %s is absent",
                       slot_names[SLOT_EMBD]);
    }
    if (t->rows == 0 || t->rows > MODEL_VOCAB_MAX) {
        return err_set(e, ERR_CONVERT, "a vocabulary of %llu tokens",
                       (unsigned long long)t->rows);
    }
    d->vocab = (uint32_t)t->rows;
    d->global[SLOT_EMBD] = t;
    RETERR(check_tensor(d, t, SLOT_EMBD, e));
    const struct gguf_kv *tokens =
        gguf_get_arr(g, "tokenizer.ggml.tokens", GGUF_STRING);
    if (tokens != NULL && tokens->count > d->vocab) {
        return err_set(e, ERR_CONVERT, "%llu tokens but %u embeddings",
                       (unsigned long long)tokens->count, d->vocab);
    }
    return 0;
}

static int read_factors(struct decoder *d, struct err *e)
{
    const struct gguf_tensor *t = d->global[SLOT_ROPE_FREQS];
    if (t == NULL) {
        return 0;
    }
    d->n_factors = d->rope_dim / 2;
    d->factors = calloc(d->n_factors, sizeof(*d->factors));
    must(d->factors != NULL);
    RETERR(gguf_rows(t, 0, 1, d->factors, e));
    for (uint32_t i = 0; i < d->n_factors; i++) {
        if (!(d->factors[i] > 1e-6f && d->factors[i] < 1e6f)) {
            return err_set(e, ERR_CONVERT, "%s: factor %u is %g", t->name, i,
                           (double)d->factors[i]);
        }
    }
    return 0;
}

static const struct arch_row *find_row(const struct gguf *g, struct err *e)
{
    struct span name = {0};
    if (!gguf_get_str(g, "general.architecture", &name)) {
        (void)err_set(e, ERR_GGUF_MISSING,
                      "key general.architecture is absent");
        return NULL;
    }
    for (size_t i = 0; i < countof(rows); i++) {
        if (strlen(rows[i].name) == name.n &&
            memcmp(rows[i].name, name.p, name.n) == 0) {
            return &rows[i];
        }
    }
    (void)err_set(e, ERR_ARCH,
                  "architecture '%.*s' (aned converts llama, qwen2, gemma3)",
                  (int)num_min(name.n, 64), name.p);
    return NULL;
}

int arch_read(const struct gguf *g, struct decoder *ret, struct err *e)
{
    struct err none = {0};
    e = e != NULL ? e : &none;
    struct decoder d = {.arch = find_row(g, e)};
    if (d.arch == NULL) {
        return e->code;
    }
    struct keys k = {.g = g, .arch = d.arch->name};
    RETERR(arch_check_keys(g, d.arch, e));
    RETERR(read_numbers(&k, &d, e));
    RETERR(read_vocab(g, &d, e));
    d.layer = calloc(d.n_layers, sizeof(*d.layer));
    must(d.layer != NULL);
    int rc = 0;
    CHECK(find_tensors(g, &d, e));
    CHECK(read_factors(&d, e));
    *ret = d;
    d = (struct decoder){0}; /* given away */
out:
    arch_fini(&d);
    return rc;
}

void arch_fini(struct decoder *d)
{
    free(d->layer);
    free(d->factors);
    *d = (struct decoder){0};
}

const struct gguf_tensor *arch_head(const struct decoder *d)
{
    const struct gguf_tensor *t = d->global[SLOT_OUTPUT];
    return t != NULL ? t : d->global[SLOT_EMBD];
}

bool arch_local(const struct decoder *d, uint32_t layer)
{
    return d->local_every != 0 && (layer + 1) % d->local_every != 0;
}

uint32_t arch_rope_row(const struct decoder *d, uint32_t i)
{
    if (!d->arch->rope_interleaved || i >= d->rope_dim) {
        return i;
    }
    uint32_t half = d->rope_dim / 2;
    return i < half ? 2 * i : 2 * (i - half) + 1;
}

uint64_t arch_layer_weights(const struct decoder *d)
{
    static const enum arch_slot m[] = {SLOT_Q,    SLOT_K,  SLOT_V,   SLOT_O,
                                       SLOT_GATE, SLOT_UP, SLOT_DOWN};
    uint64_t n = 0;
    for (size_t i = 0; i < countof(m); i++) {
        uint64_t r = 0;
        uint64_t c = 0;
        arch_shape(d, m[i], &r, &c);
        n += r * c;
    }
    return n;
}
