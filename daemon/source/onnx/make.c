/* make.c - a recovered decoder becomes a source: its keys. */
#include "source/onnx/make.h"

#include <math.h>
#include <string.h>

static const char *key(struct onnx_making *k, const char *tail)
{
    int n = snprintf(k->key, sizeof(k->key), "%s.%s", k->arch, tail);
    must(n > 0 && (size_t)n < sizeof(k->key));
    return k->key;
}

static int put_u32(struct onnx_making *k, const char *tail, uint64_t v,
                   struct err *e)
{
    return v <= UINT32_MAX
               ? made_u32(k->m, key(k, tail), (uint32_t)v, e)
               : err_set(e, ERR_TOO_BIG, "%s is %llu", key(k, tail),
                         (unsigned long long)v);
}

static int put_f32(struct onnx_making *k, const char *tail, float v,
                   struct err *e)
{
    return made_f32(k->m, key(k, tail), v, e);
}

/* One number for all layers, or one each. */
static int put_each(struct onnx_making *k, const char *tail,
                    uint64_t (*of)(const struct onnx_layer *l), struct err *e)
{
    uint32_t each[MODEL_LAYERS_MAX];
    bool same = true;
    for (uint32_t l = 0; l < k->d->n_layers; l++) {
        each[l] = (uint32_t)of(&k->d->layers[l]);
        same = same && each[l] == each[0];
    }
    return same ? put_u32(k, tail, each[0], e)
                : made_u32s(k->m, key(k, tail), each, k->d->n_layers, e);
}

static uint64_t ff_of(const struct onnx_layer *l)
{
    return l->slots[ONNX_S_GATE].rows;
}

static uint64_t kv_of(const struct onnx_layer *l)
{
    return l->conv ? 0 : l->n_kv;
}

/* Of dense layers; and of experts, which the last layers have. */
static int put_widths(struct onnx_making *k, struct err *e)
{
    const struct onnx_decoder *d = k->d;
    const struct onnx_layer *y = &d->layers[d->n_layers - 1];
    uint32_t dense = 0;
    if (y->n_experts == 0) {
        return put_each(k, "feed_forward_length", ff_of, e);
    }
    uint64_t width = y->slots[ONNX_S_EXPERT_GATE].rows / y->n_experts;
    while (d->layers[dense].n_experts == 0) {
        dense++;
    }
    RETERR(put_u32(k, "feed_forward_length",
                   dense > 0 ? ff_of(&d->layers[0]) : width, e));
    RETERR(put_u32(k, "leading_dense_block_count", dense, e));
    RETERR(put_u32(k, "expert_count", y->n_experts, e));
    RETERR(put_u32(k, "expert_used_count", y->n_top, e));
    RETERR(put_u32(k, "expert_feed_forward_length", width, e));
    return put_u32(k, "expert_gating_func", 2, e); /* sigmoid */
}

static int put_sizes(struct onnx_making *k, struct err *e)
{
    const struct onnx_decoder *d = k->d;
    uint64_t context =
        k->c->context > 0 ? (uint64_t)k->c->context : k->rope.positions;
    RETERR(made_str(k->m, "general.architecture", k->arch, e));
    RETERR(put_u32(k, "block_count", d->n_layers, e));
    RETERR(put_u32(k, "context_length", context, e));
    RETERR(put_u32(k, "embedding_length", d->d_model, e));
    RETERR(put_widths(k, e));
    RETERR(put_u32(k, "attention.head_count", k->plain->n_heads, e));
    RETERR(put_each(k, "attention.head_count_kv", kv_of, e));
    RETERR(put_u32(k, "attention.key_length", k->plain->d_head, e));
    RETERR(put_u32(k, "attention.value_length", k->plain->d_head, e));
    RETERR(put_f32(k, "attention.layer_norm_rms_epsilon", d->eps, e));
    return put_u32(k, "vocab_size", d->vocab, e);
}

static int put_rope(struct onnx_making *k, struct err *e)
{
    const struct onnx_rope *r = &k->rope;
    RETERR(put_u32(k, "rope.dimension_count", r->dim, e));
    RETERR(put_f32(k, "rope.freq_base", r->base, e));
    if (r->factor != 1) {
        RETERR(made_str(k->m, key(k, "rope.scaling.type"), "linear", e));
        RETERR(put_f32(k, "rope.scaling.factor", r->factor, e));
    }
    if (strcmp(k->arch, "phi3") == 0) {
        RETERR(put_f32(k, "rope.scaling.attn_factor", r->magnitude, e));
    }
    if (r->longs != NULL) {
        RETERR(put_u32(k, "rope.scaling.original_context_length", r->original,
                       e));
    }
    if (k->local.dim > 0 && strcmp(k->arch, "gemma3") == 0) {
        RETERR(put_f32(k, "rope.freq_base_swa", k->local.base, e));
        RETERR(put_u32(k, "attention.sliding_window_pattern", k->local_every,
                       e));
    }
    return 0;
}

static int put_rest(struct onnx_making *k, struct err *e)
{
    const struct onnx_decoder *d = k->d;
    if (k->window > 0) {
        RETERR(put_u32(k, "attention.sliding_window", k->window, e));
    }
    if (k->plain->score_cap > 0) {
        RETERR(put_f32(k, "attn_logit_softcapping", k->plain->score_cap, e));
    }
    if (d->logit_cap > 0) {
        RETERR(put_f32(k, "final_logit_softcapping", d->logit_cap, e));
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        if (d->layers[l].conv) {
            return put_u32(k, "shortconv.l_cache",
                           d->layers[l].slots[ONNX_S_CONV].cols, e);
        }
    }
    return 0;
}

int onnx_make(const struct onnx_decoder *d, const struct onnx_config *c,
              struct made *m, const char **ret_arch, struct err *e)
{
    struct onnx_making k = {.d = d, .c = c, .m = m};
    RETERR(onnx_config_check(c, d, e));
    RETERR(onnx_choose_family(&k, e));
    RETERR(put_sizes(&k, e));
    RETERR(put_rope(&k, e));
    RETERR(put_rest(&k, e));
    *ret_arch = k.arch;
    return onnx_make_tensors(&k, e);
}
