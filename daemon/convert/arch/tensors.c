/* tensors.c - which tensor, or which rows of one, is what.
 *
 * Exporters write some matrices together: attn_qkv has the rows of q, k and v
 * one after the other, a fused ffn_up those of gate and up, per_layer_model_proj
 * those of every layer. A struct part says which rows are meant, so that
 * nothing after this file knows. Every tensor of the source has a place here or
 * is an error.
 */
#include <string.h>

#include "base/num.h"
#include "base/parse.h"
#include "convert/arch/arch.h"

/* Names; a layer's follow "blk.N.". */
static const char *const slot_names[SLOT_COUNT] = {
    [SLOT_EMBD] = "token_embd.weight",
    [SLOT_OUT_NORM] = "output_norm.weight",
    [SLOT_OUTPUT] = "output.weight",
    [SLOT_OUT_BIAS] = "output.bias",
    [SLOT_ROPE_FREQS] = "rope_freqs.weight",
    [SLOT_ROPE_SHORT] = "rope_factors_short.weight",
    [SLOT_ROPE_LONG] = "rope_factors_long.weight",
    [SLOT_PLE_EMBD] = "per_layer_token_embd.weight",
    [SLOT_PLE_NORM_IN] = "per_layer_proj_norm.weight",
    [SLOT_POSITIONS] = "position_embd.weight",
    [SLOT_TYPES] = "token_types.weight",
    [SLOT_EMBD_NORM] = "token_embd_norm.weight",
    [SLOT_EMBD_NORM_BIAS] = "token_embd_norm.bias",
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
    [SLOT_SINKS] = "attn_sinks.weight",
    [SLOT_CONV_IN] = "shortconv.in_proj.weight",
    [SLOT_CONV] = "shortconv.conv.weight",
    [SLOT_CONV_OUT] = "shortconv.out_proj.weight",
    [SLOT_V_BEFORE] = "attn_v_before.weight",
    [SLOT_MIX] = "cca_mix.weight",
    [SLOT_MIX_BIAS] = "cca_bias.weight",
    [SLOT_K_SCALE] = "cca_k_scale.weight",
    [SLOT_JOIN_ATTN] = "join_attn.weight",
    [SLOT_JOIN_FFN] = "join_ffn.weight",
    [SLOT_POST_ATTN] = "post_attention_norm.weight",
    [SLOT_FFN_NORM] = "ffn_norm.weight",
    [SLOT_GATE] = "ffn_gate.weight",
    [SLOT_UP] = "ffn_up.weight",
    [SLOT_DOWN] = "ffn_down.weight",
    [SLOT_GATE_BIAS] = "ffn_gate.bias",
    [SLOT_UP_BIAS] = "ffn_up.bias",
    [SLOT_DOWN_BIAS] = "ffn_down.bias",
    [SLOT_POST_FFN] = "post_ffw_norm.weight",
    [SLOT_ROUTER] = "ffn_gate_inp.weight",
    [SLOT_ROUTER_SCALE] = "ffn_gate_inp.scale",
    [SLOT_ROUTER_BIAS] = "exp_probs_b.bias",
    [SLOT_ROUTER_DOWN] = "ffn_gate_inp_down.weight",
    [SLOT_ROUTER_1] = "ffn_gate_inp_1.weight",
    [SLOT_ROUTER_2] = "ffn_gate_inp_2.weight",
    [SLOT_ROUTER_VECTORS] = "ffn_gate_inp_vectors.weight",
    [SLOT_ROUTER_ADD] = "ffn_gate_inp.bias",
    [SLOT_EXPERT_GATE] = "ffn_gate_exps.weight",
    [SLOT_EXPERT_UP] = "ffn_up_exps.weight",
    [SLOT_EXPERT_DOWN] = "ffn_down_exps.weight",
    [SLOT_EXPERT_GATE_BIAS] = "ffn_gate_exps.bias",
    [SLOT_EXPERT_UP_BIAS] = "ffn_up_exps.bias",
    [SLOT_EXPERT_DOWN_BIAS] = "ffn_down_exps.bias",
    [SLOT_EXPERT_SCALE] = "ffn_down_exps.scale",
    [SLOT_EXPERT_NORM] = "pre_ffw_norm_2.weight",
    [SLOT_POST_DENSE] = "post_ffw_norm_1.weight",
    [SLOT_POST_EXPERTS] = "post_ffw_norm_2.weight",
    [SLOT_PLE_GATE] = "inp_gate.weight",
    [SLOT_PLE_OUT] = "proj.weight",
    [SLOT_PLE_NORM] = "post_norm.weight",
    [SLOT_OUT_SCALE] = "layer_output_scale.weight",
};

/* Some families have another name for a tensor. */
static const char *name_of(const struct decoder *d, unsigned s)
{
    const struct arch_name *other = d->arch->names;
    while (other != NULL && other->name != NULL && other->slot != s) {
        other++;
    }
    return other != NULL && other->name != NULL ? other->name : slot_names[s];
}

/* Tensors that are several slots, their rows in this order. */
static const struct fused {
    const char *name;
    enum arch_slot of[3];
    size_t n;
} fused[] = {
    {"attn_qkv.weight", {SLOT_Q, SLOT_K, SLOT_V},                3},
    {"attn_qkv.bias",   {SLOT_Q_BIAS, SLOT_K_BIAS, SLOT_V_BIAS}, 3},
    {"ffn_up.weight",   {SLOT_GATE, SLOT_UP, SLOT_COUNT},        2},
};
#define FUSED_UP 2u /* only where the family says so */
#define PLE_PROJ "per_layer_model_proj.weight"
#define GATE_UP_EXPERTS "ffn_gate_up_exps.weight"

/* --- shapes --- */

void arch_shape(const struct decoder *d, uint32_t layer, enum arch_slot slot,
                uint64_t *rows, uint64_t *cols)
{
    const struct layer *l = &d->layers[layer];
    uint64_t q = (uint64_t)l->n_heads * l->d_head;
    uint64_t kv = (uint64_t)l->n_kv * l->d_head;
    bool full = l->qk_norm == QK_NORM_FULL;
    bool cca = l->mixer == MIXER_CCA;
    bool network = l->router == ROUTER_NETWORK;
    uint64_t classes = l->n_experts + (network ? 1 : 0);
    const struct {
        uint64_t rows, cols;
    } of[SLOT_COUNT] = {
        [SLOT_EMBD] = {d->vocab, d->d_model},
        [SLOT_OUT_NORM] = {1, d->d_model},
        [SLOT_OUTPUT] = {arch_outputs(d), d->d_model},
        [SLOT_OUT_BIAS] = {1, arch_outputs(d)},
        [SLOT_ROPE_FREQS] = {1, d->kinds[LAYER_GLOBAL].rope_dim / 2},
        [SLOT_ROPE_SHORT] = {1, d->kinds[LAYER_GLOBAL].rope_dim / 2},
        [SLOT_ROPE_LONG] = {1, d->kinds[LAYER_GLOBAL].rope_dim / 2},
        [SLOT_PLE_EMBD] = {d->vocab, (uint64_t)d->n_layers * d->d_ple},
        [SLOT_PLE_NORM_IN] = {1, d->d_ple},
        [SLOT_POSITIONS] = {d->context_train, d->d_model},
        [SLOT_TYPES] = {d->n_types, d->d_model},
        [SLOT_EMBD_NORM] = {1, d->d_model},
        [SLOT_EMBD_NORM_BIAS] = {1, d->d_model},
        [SLOT_ATTN_NORM] = {1, d->d_model},
        [SLOT_Q] = {q, d->d_model},
        [SLOT_K] = {kv, d->d_model},
        [SLOT_V] = {cca ? kv / 2 : kv, d->d_model},
        [SLOT_O] = {d->d_model, q},
        [SLOT_Q_BIAS] = {1, q},
        [SLOT_K_BIAS] = {1, kv},
        [SLOT_V_BIAS] = {1, kv},
        [SLOT_O_BIAS] = {1, d->d_model},
        [SLOT_Q_NORM] = {1, full ? q : l->d_head},
        [SLOT_K_NORM] = {1, full ? kv : l->d_head},
        [SLOT_SINKS] = {1, l->n_heads},
        [SLOT_CONV_IN] = {3 * (uint64_t)d->d_model, d->d_model},
        [SLOT_CONV] = {cca ? q + kv : d->d_model, l->conv_len},
        [SLOT_CONV_OUT] = {d->d_model, d->d_model},
        [SLOT_V_BEFORE] = {kv / 2, d->d_model},
        [SLOT_MIX] = {q + kv, (uint64_t)l->d_head * l->mix_len},
        [SLOT_MIX_BIAS] = {2, q + kv},
        [SLOT_K_SCALE] = {1, l->n_kv},
        [SLOT_JOIN_ATTN] = {4, d->d_model},
        [SLOT_JOIN_FFN] = {4, d->d_model},
        [SLOT_ROUTER_DOWN] = {l->d_router, d->d_model},
        [SLOT_ROUTER_1] = {l->d_router, l->d_router},
        [SLOT_ROUTER_2] = {l->d_router, l->d_router},
        [SLOT_ROUTER_VECTORS] = {5, l->d_router},
        [SLOT_POST_ATTN] = {1, d->d_model},
        [SLOT_POST_ATTN_BIAS] = {1, d->d_model},
        [SLOT_FFN_NORM] = {1, d->d_model},
        [SLOT_GATE] = {l->d_ff, d->d_model},
        [SLOT_UP] = {l->d_ff, d->d_model},
        [SLOT_DOWN] = {d->d_model, l->d_ff},
        [SLOT_GATE_BIAS] = {1, l->d_ff},
        [SLOT_UP_BIAS] = {1, l->d_ff},
        [SLOT_DOWN_BIAS] = {1, d->d_model},
        [SLOT_POST_FFN] = {1, d->d_model},
        [SLOT_POST_FFN_BIAS] = {1, d->d_model},
        [SLOT_ROUTER] = {classes, network ? l->d_router : d->d_model},
        [SLOT_ROUTER_SCALE] = {1, d->d_model},
        [SLOT_ROUTER_BIAS] = {1, classes},
        [SLOT_ROUTER_ADD] = {1, classes},
        [SLOT_EXPERT_GATE] = {(uint64_t)l->n_experts * l->d_expert, d->d_model},
        [SLOT_EXPERT_UP] = {(uint64_t)l->n_experts * l->d_expert, d->d_model},
        [SLOT_EXPERT_DOWN] = {(uint64_t)l->n_experts * d->d_model, l->d_expert},
        [SLOT_EXPERT_GATE_BIAS] = {l->n_experts, l->d_expert},
        [SLOT_EXPERT_UP_BIAS] = {l->n_experts, l->d_expert},
        [SLOT_EXPERT_DOWN_BIAS] = {l->n_experts, d->d_model},
        [SLOT_EXPERT_SCALE] = {1, l->n_experts},
        [SLOT_EXPERT_NORM] = {1, d->d_model},
        [SLOT_POST_DENSE] = {1, d->d_model},
        [SLOT_POST_EXPERTS] = {1, d->d_model},
        [SLOT_PLE_PROJ] = {l->d_ple, d->d_model},
        [SLOT_PLE_GATE] = {l->d_ple, d->d_model},
        [SLOT_PLE_OUT] = {d->d_model, l->d_ple},
        [SLOT_PLE_NORM] = {1, d->d_model},
        [SLOT_OUT_SCALE] = {1, 1},
    };
    *rows = of[slot].rows;
    *cols = of[slot].cols;
}

static int wrong_shape(const struct gguf_tensor *t, uint64_t r, uint64_t c,
                       struct err *e)
{
    return err_set(
        e, ERR_CONVERT, "%s is %llu x %llu, the metadata says %llu x %llu",
        t->name, (unsigned long long)t->rows, (unsigned long long)t->cols,
        (unsigned long long)r, (unsigned long long)c);
}

static int check_type(const struct gguf_tensor *t, struct err *e)
{
    return gguf_readable(t)
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "%s has type %s, which aned does not read", t->name,
                         gguf_tensor_type(t));
}

/* --- places --- */

/* "blk.12.attn_q.weight" -> layer 12, "attn_q.weight"; else *layer is
 * UINT32_MAX. NULL: not a name. */
static const char *tail_of(const char *name, uint32_t *layer)
{
    *layer = UINT32_MAX;
    if (strncmp(name, "blk.", 4) != 0) {
        return name;
    }
    uint64_t n = 0;
    const char *end = parse_digits(name + 4, MODEL_LAYERS_MAX - 1, &n);
    *layer = (uint32_t)n;
    return end != NULL && *end == '.' ? end + 1 : NULL;
}

/* Whether the family needs the slot, or (may) takes it at all. */
static bool takes_slot(const struct arch_row *row, size_t s, bool may)
{
    if (s < SLOT_LAYER) {
        uint32_t all = row->need_all | (may ? row->may_all : 0);
        return (all & SLOT_GLOBAL_BIT(s)) != 0;
    }
    return ((row->need | (may ? row->may : 0)) & SLOT_BIT(s)) != 0;
}

static enum arch_slot slot_of(const struct decoder *d, const char *tail,
                              bool layered)
{
    size_t from = layered ? SLOT_GLOBALS : 0;
    size_t to = layered ? SLOT_COUNT : SLOT_GLOBALS;
    for (size_t s = from; s < to; s++) {
        const char *name = name_of(d, (unsigned)s);
        if (name != NULL && strcmp(tail, name) == 0 &&
            takes_slot(d->arch, s, true)) {
            return (enum arch_slot)s;
        }
    }
    return SLOT_COUNT;
}

/* Put n slots of a layer (or of the model) on the rows of t, in order. */
static int place(struct decoder *d, uint32_t layer, const enum arch_slot *of,
                 size_t n, const struct gguf_tensor *t, struct err *e)
{
    uint64_t at = 0;
    uint64_t rows = 0;
    uint64_t cols = 0;
    bool vector = false;
    RETERR(check_type(t, e));
    for (size_t i = 0; i < n; i++) {
        struct part *p = of[i] < SLOT_LAYER
                             ? &d->global[of[i]]
                             : &d->parts[layer][of[i] - SLOT_LAYER];
        if (p->t != NULL) {
            return err_set(e, ERR_CONVERT, "%s and %s are the same matrix",
                           p->t->name, t->name);
        }
        arch_shape(d, layer, of[i], &rows, &cols);
        vector = rows == 1 && t->rows == 1;
        *p = (struct part){.t = t, .first = at, .rows = rows, .cols = cols};
        at += vector ? cols : rows;
    }
    uint64_t want_rows = vector ? 1 : at;
    uint64_t want_cols = vector ? at : cols;
    return t->rows == want_rows && t->cols == want_cols
               ? 0
               : wrong_shape(t, want_rows, want_cols, e);
}

/* Rows of the tensor that has the projections of all layers. */
static int place_projections(struct decoder *d, const struct gguf_tensor *t,
                             struct err *e)
{
    uint64_t rows = (uint64_t)d->n_layers * d->d_ple;
    RETERR(check_type(t, e));
    if (t->rows != rows || t->cols != d->d_model) {
        return wrong_shape(t, rows, d->d_model, e);
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        d->parts[l][SLOT_PLE_PROJ - SLOT_LAYER] =
            (struct part){.t = t,
                          .first = (uint64_t)l * d->d_ple,
                          .rows = d->d_ple,
                          .cols = d->d_model};
    }
    return 0;
}

/* [gate; up] of each expert: runs of d_expert rows. */
static int place_gate_up(struct decoder *d, uint32_t layer,
                         const struct gguf_tensor *t, struct err *e)
{
    static const enum arch_slot of[] = {SLOT_EXPERT_GATE, SLOT_EXPERT_UP};
    uint64_t rows = 0;
    uint64_t cols = 0;
    for (size_t i = 0; i < countof(of); i++) {
        struct part *p = &d->parts[layer][of[i] - SLOT_LAYER];
        uint64_t run = d->layers[layer].d_expert;
        if (p->t != NULL) {
            return err_set(e, ERR_CONVERT, "%s and %s are the same matrix",
                           p->t->name, t->name);
        }
        arch_shape(d, layer, of[i], &rows, &cols);
        *p = (struct part){t, i * run, rows, cols, run, 2 * run};
    }
    RETERR(check_type(t, e));
    return t->rows == 2 * rows && t->cols == cols
               ? 0
               : wrong_shape(t, 2 * rows, cols, e);
}

static int no_place(const struct decoder *d, const struct gguf_tensor *t,
                    struct err *e)
{
    return err_set(e, ERR_CONVERT,
                   "tensor %s has no place in a %s of %u layers", t->name,
                   d->arch->name, d->n_layers);
}

static int take(struct decoder *d, const struct gguf_tensor *t, struct err *e)
{
    uint64_t takes = d->arch->need | d->arch->may;
    uint32_t layer = 0;
    const char *tail = tail_of(t->name, &layer);
    bool layered = layer != UINT32_MAX;
    if (tail == NULL || (layered && layer >= d->n_layers)) {
        return no_place(d, t, e);
    }
    if (!layered && strcmp(tail, PLE_PROJ) == 0 && d->d_ple > 0) {
        return place_projections(d, t, e);
    }
    for (size_t i = 0; layered && i < countof(fused); i++) {
        if (strcmp(tail, fused[i].name) == 0 &&
            (i != FUSED_UP || d->arch->fused_up) &&
            (takes & SLOT_BIT(fused[i].of[0])) != 0) {
            return place(d, layer, fused[i].of, fused[i].n, t, e);
        }
    }
    uint64_t none = layered ? arch_experts_unused(&d->layers[layer]) : 0;
    if (layered && strcmp(tail, GATE_UP_EXPERTS) == 0 &&
        (takes & ~none & SLOT_BIT(SLOT_EXPERT_GATE)) != 0) {
        return place_gate_up(d, layer, t, e);
    }
    enum arch_slot s = slot_of(d, tail, layered);
    if (s == SLOT_COUNT || (none & SLOT_BIT(s)) != 0) {
        return no_place(d, t, e);
    }
    /* the embedding has been found: it gave the vocabulary's size */
    return s == SLOT_EMBD ? 0 : place(d, layered ? layer : 0, &s, 1, t, e);
}

/* --- what must be there --- */

/* Slots that layer l has no use for. */
static uint64_t unused(const struct decoder *d, uint32_t l)
{
    static const uint64_t ple = SLOT_BIT(SLOT_PLE_PROJ) |
                                SLOT_BIT(SLOT_PLE_GATE) |
                                SLOT_BIT(SLOT_PLE_OUT) |
                                SLOT_BIT(SLOT_PLE_NORM);
    static const uint64_t kv = SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_V) |
                               SLOT_BIT(SLOT_K_BIAS) | SLOT_BIT(SLOT_V_BIAS) |
                               SLOT_BIT(SLOT_K_NORM);
    static const uint64_t conv = SLOT_BIT(SLOT_CONV_IN) | SLOT_BIT(SLOT_CONV) |
                                 SLOT_BIT(SLOT_CONV_OUT);
    static const uint64_t attention =
        kv | SLOT_BIT(SLOT_Q) | SLOT_BIT(SLOT_O) | SLOT_BIT(SLOT_Q_BIAS) |
        SLOT_BIT(SLOT_O_BIAS) | SLOT_BIT(SLOT_Q_NORM);
    const struct layer *y = &d->layers[l];
    return (y->d_ple > 0 ? 0 : ple) | (y->kv_from != l ? kv : 0) |
           (y->mixer == MIXER_CONV  ? attention
            : y->mixer == MIXER_CCA ? conv & ~SLOT_BIT(SLOT_CONV)
                                    : conv) |
           (y->v_is_k ? SLOT_BIT(SLOT_V) | SLOT_BIT(SLOT_V_BIAS) : 0) |
           arch_experts_unused(y);
}

static int missing(const struct decoder *d, uint32_t l, unsigned s,
                   struct err *e)
{
    if (s == SLOT_PLE_PROJ) {
        return err_set(e, ERR_GGUF_MISSING, "tensor %s is absent", PLE_PROJ);
    }
    return s < SLOT_LAYER
               ? err_set(e, ERR_GGUF_MISSING, "tensor %s is absent",
                         name_of(d, s))
               : err_set(e, ERR_GGUF_MISSING, "tensor blk.%u.%s is absent", l,
                         name_of(d, s));
}

static int check_all(struct decoder *d, struct err *e)
{
    for (uint32_t l = 0; l < d->n_layers; l++) {
        uint64_t away = unused(d, l);
        uint64_t more = arch_experts_need(&d->layers[l]);
        for (unsigned s = 0; s < SLOT_COUNT; s++) {
            uint64_t bit = SLOT_BIT(s);
            bool need = takes_slot(d->arch, s, false) || (more & bit) != 0;
            bool ple = s == SLOT_PLE_EMBD || s == SLOT_PLE_NORM_IN;
            if (s >= SLOT_LAYER && (away & bit) != 0) {
                /* what a layer does not read changes nothing */
                d->parts[l][s - SLOT_LAYER] = (struct part){0};
            } else if (need && !(ple && d->d_ple == 0) &&
                       !arch_has(d, l, (enum arch_slot)s)) {
                return missing(d, l, s, e);
            }
        }
    }
    return 0;
}

int arch_find_tensors(const struct gguf *g, struct decoder *d, struct err *e)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        RETERR(take(d, gguf_tensor_at(g, i), e));
    }
    return check_all(d, e);
}

int arch_find_vocab(const struct gguf *g, struct decoder *d, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(g, slot_names[SLOT_EMBD]);
    if (t == NULL) {
        return missing(d, 0, SLOT_EMBD, e);
    }
    if (t->rows == 0 || t->rows > MODEL_VOCAB_MAX) {
        return err_set(e, ERR_CONVERT, "a vocabulary of %llu tokens",
                       (unsigned long long)t->rows);
    }
    d->vocab = (uint32_t)t->rows;
    d->global[SLOT_EMBD] =
        (struct part){.t = t, .rows = t->rows, .cols = t->cols};
    RETERR(check_type(t, e));
    if (t->cols != d->d_model) {
        return wrong_shape(t, t->rows, d->d_model, e);
    }
    const struct gguf_kv *tokens =
        gguf_get_arr(g, "tokenizer.ggml.tokens", GGUF_STRING);
    if (tokens != NULL && tokens->count > d->vocab) {
        return err_set(e, ERR_CONVERT, "%llu tokens but %u embeddings",
                       (unsigned long long)tokens->count, d->vocab);
    }
    return 0;
}

/* --- what others ask --- */

int arch_vector(const struct part *p, float *out, struct err *e)
{
    if (p->t->cols == p->cols) { /* a table has more than one row */
        return gguf_rows(p->t, p->t->rows > 1 ? p->first : 0, 1, out, e);
    }
    float *all = malloc(p->t->cols * sizeof(*all));
    if (all == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", p->t->name);
    }
    int rc = gguf_rows(p->t, 0, 1, all, e);
    if (rc == 0) {
        memcpy(out, all + p->first, p->cols * sizeof(*out));
    }
    free(all);
    return rc;
}

const struct part *arch_head(const struct decoder *d)
{
    const struct part *p = &d->global[SLOT_OUTPUT];
    return p->t != NULL ? p : &d->global[SLOT_EMBD];
}

uint32_t arch_outputs(const struct decoder *d)
{
    return d->n_labels > 0 ? d->n_labels
           : arch_embeds(d) ? d->d_model
                            : d->vocab;
}

struct span arch_label(const struct decoder *d, uint32_t i)
{
    char name[GGUF_KEY_MAX];
    uint64_t at = 0;
    struct span s = {0};
    (void)snprintf(name, sizeof(name), "%s.classifier.output_labels",
                   d->arch->name);
    const struct gguf_kv *a = gguf_get_arr(d->source, name, GGUF_STRING);
    must(a != NULL && i < a->count); /* arch_read has looked */
    for (uint32_t k = 0; k <= i; k++) {
        s = gguf_arr_str(a, &at);
    }
    return s;
}

uint32_t head_row(const struct head_rows *h, uint32_t i)
{
    if (i >= h->rope_dim) {
        return i;
    }
    uint32_t half = h->rope_dim / 2;
    return i < half ? 2 * i : 2 * (i - half) + 1;
}

bool arch_permutes(const struct decoder *d, uint32_t layer,
                   struct head_rows *ret)
{
    const struct layer *l = &d->layers[layer];
    *ret = (struct head_rows){l->d_head, d->kinds[l->kind].rope_dim};
    return d->arch->pairs && l->rotates;
}

const struct layer *arch_attention(const struct decoder *d)
{
    uint32_t l = 0;
    while (d->layers[l].mixer == MIXER_CONV) {
        l++;
        must(l < d->n_layers); /* arch_read has looked */
    }
    return &d->layers[l];
}

uint64_t arch_position_bytes(const struct decoder *d, uint32_t layer)
{
    const struct layer *y = &d->layers[layer];
    bool keeps = y->kv_from == layer && !y->both_sides;
    return keeps ? (uint64_t)2 * y->n_kv * y->d_head * 2 : 0;
}

uint64_t arch_layer_weights(const struct decoder *d, uint32_t layer)
{
    uint64_t n = 0;
    for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
        const struct part *p = arch_matrix(d, layer, (enum arch_slot)s);
        n += p != NULL ? p->rows * p->cols : 0;
    }
    return n;
}
