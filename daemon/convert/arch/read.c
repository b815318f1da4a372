/* read.c - a family's numbers, from the source's metadata into layers (those
 * of the rotation: rope.c).
 *
 * Nothing is guessed and nothing is dropped: a tensor or a key that changes the
 * arithmetic and is not described here (keys: keys.c) is an error that names
 * it. First every layer gets what the family's row says of all, then the row's
 * `fill` changes what differs, then the layers are checked, whoever filled
 * them.
 */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "convert/arch/arch.h"

/* --- keys --- */

const char *arch_key(struct reading *r, const char *tail)
{
    int n = snprintf(r->text, sizeof(r->text), "%s.%s", r->d->arch->name, tail);
    must(n > 0 && (size_t)n < sizeof(r->text));
    return r->text;
}

bool arch_has_key(struct reading *r, const char *tail)
{
    return gguf_find(r->g, arch_key(r, tail)) != NULL;
}

static int check_u32(const char *name, int64_t v, uint32_t lo, uint32_t hi,
                     struct err *e)
{
    return v >= lo && v <= hi
               ? 0
               : err_set(e, ERR_CONVERT, "%s is %lld; aned takes %u to %u",
                         name, (long long)v, lo, hi);
}

int arch_u32(struct reading *r, const char *tail, uint32_t lo, uint32_t hi,
             uint32_t *ret, struct err *e)
{
    const char *name = arch_key(r, tail);
    uint32_t v = *ret;
    if (gguf_find(r->g, name) == NULL) {
        if (v == 0) {
            return err_set(e, ERR_GGUF_MISSING, "key %s is absent", name);
        }
    } else if (!gguf_get_u32(r->g, name, &v)) {
        return err_set(e, ERR_GGUF_VALUE, "key %s is not one number", name);
    }
    RETERR(check_u32(name, v, lo, hi, e));
    *ret = v;
    return 0;
}

int arch_f32(struct reading *r, const char *tail, float lo, float hi,
             float *ret, struct err *e)
{
    const char *name = arch_key(r, tail);
    float v = *ret;
    if (gguf_find(r->g, name) != NULL && !gguf_get_f32(r->g, name, &v)) {
        return err_set(e, ERR_GGUF_VALUE, "key %s is not one float", name);
    }
    if (!(v >= lo && v <= hi)) { /* NaN too */
        return err_set(e, ERR_CONVERT, "%s is %g; aned takes %g to %g", name,
                       (double)v, (double)lo, (double)hi);
    }
    *ret = v;
    return 0;
}

/* The array of one number (or bool) a layer at r->text; NULL: an error. */
static const struct gguf_kv *layer_array(const struct reading *r, bool bools,
                                         struct err *e)
{
    const struct gguf_kv *kv = gguf_find(r->g, r->text);
    if (kv->kind != GGUF_ARRAY || kv->item == GGUF_STRING ||
        kv->item == GGUF_ARRAY || kv->item == GGUF_F32 ||
        kv->item == GGUF_F64 || (kv->item == GGUF_BOOL) != bools) {
        (void)err_set(e, ERR_GGUF_VALUE, "key %s is not one %s a layer",
                      r->text, bools ? "bool" : "number");
        return NULL;
    }
    if (kv->count != r->d->n_layers) {
        (void)err_set(e, ERR_CONVERT, "%s has %llu entries for %u layers",
                      r->text, (unsigned long long)kv->count, r->d->n_layers);
        return NULL;
    }
    return kv;
}

int arch_u32s(struct reading *r, const char *tail, uint32_t lo, uint32_t hi,
              uint32_t *out, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(r->g, arch_key(r, tail));
    if (kv == NULL || kv->kind != GGUF_ARRAY) {
        uint32_t one = out[0];
        RETERR(arch_u32(r, tail, lo, hi, &one, e));
        for (uint32_t l = 0; kv != NULL && l < r->d->n_layers; l++) {
            out[l] = one;
        }
        return 0;
    }
    kv = layer_array(r, false, e);
    for (uint32_t l = 0; kv != NULL && l < r->d->n_layers; l++) {
        int64_t v = gguf_arr_int(kv, l);
        RETERR(check_u32(r->text, v, lo, hi, e));
        out[l] = (uint32_t)v;
    }
    return kv != NULL ? 0 : e->code;
}

int arch_bools(struct reading *r, const char *tail, bool *out, struct err *e)
{
    if (!arch_has_key(r, tail)) {
        return err_set(e, ERR_GGUF_MISSING, "key %s is absent", r->text);
    }
    const struct gguf_kv *kv = layer_array(r, true, e);
    for (uint32_t l = 0; kv != NULL && l < r->d->n_layers; l++) {
        out[l] = gguf_arr_int(kv, l) != 0;
    }
    return kv != NULL ? 0 : e->code;
}

/* --- layers --- */

static int read_window(struct reading *r, struct err *e)
{
    const struct arch_row *row = r->d->arch;
    struct arch_kind *global = &r->d->kinds[LAYER_GLOBAL];
    struct arch_kind *local = &r->d->kinds[LAYER_LOCAL];
    uint32_t window = 0;
    uint32_t every = row->local_every;
    if (arch_has_key(r, "attention.sliding_window") &&
        !gguf_get_u32(r->g, r->text, &window)) {
        return err_set(e, ERR_GGUF_VALUE, "key %s is not one number", r->text);
    }
    if (every == 0) {
        global->window = window;
        return 0; /* a window on every layer stands in the mask alone */
    }
    if (window == 0) {
        return err_set(e, ERR_GGUF_MISSING, "key %s is absent",
                       arch_key(r, "attention.sliding_window"));
    }
    *local = *global;
    local->factors = NULL;
    local->n_factors = 0;
    local->scale = local->magnitude = 1;
    local->window = window;
    local->base = row->local_base;
    RETERR(arch_f32(r, "rope.freq_base_swa", 1, 1e12f, &local->base, e));
    if (arch_has_key(r, "attention.sliding_window_pattern") &&
        gguf_find(r->g, r->text)->kind == GGUF_ARRAY) {
        return 0; /* a bool a layer: the family's `fill` reads it */
    }
    RETERR(arch_u32(r, "attention.sliding_window_pattern", 1, MODEL_LAYERS_MAX,
                    &every, e));
    for (uint32_t l = 0; l < r->d->n_layers; l++) {
        r->d->layers[l].kind =
            (l + 1) % every != 0 ? LAYER_LOCAL : LAYER_GLOBAL;
    }
    return 0;
}

/* The heads of all layers alike; n_kv and d_ff may be one a layer. */
static int read_sizes(struct reading *r, struct layer *all, uint32_t *kv,
                      uint32_t *ff, struct err *e)
{
    struct decoder *d = r->d;
    RETERR(arch_u32(r, "attention.head_count", 1, MODEL_DIM_MAX, &all->n_heads,
                    e));
    RETERR(arch_u32s(r, "feed_forward_length", 1, MODEL_DIM_MAX, ff, e));
    for (uint32_t l = 0; l < d->n_layers; l++) {
        kv[l] = all->n_heads;
    }
    RETERR(arch_u32s(r, "attention.head_count_kv", d->arch->some_heads ? 0 : 1,
                     all->n_heads, kv, e));
    all->d_head = d->d_model / all->n_heads;
    if (all->d_head == 0) {
        return err_set(e, ERR_CONVERT, "more heads (%u) than width (%u)",
                       all->n_heads, d->d_model);
    }
    RETERR(
        arch_u32(r, "attention.key_length", 1, MODEL_DIM_MAX, &all->d_head, e));
    uint32_t d_value = all->d_head;
    RETERR(
        arch_u32(r, "attention.value_length", 1, MODEL_DIM_MAX, &d_value, e));
    return d_value == all->d_head
               ? 0
               : err_set(e, ERR_UNSUPPORTED, "keys of %u and values of %u",
                         all->d_head, d_value);
}

static int read_layers(struct reading *r, struct err *e)
{
    struct decoder *d = r->d;
    const struct arch_row *row = d->arch;
    struct layer all = {.rotates = true,
                        .pre_norm = !row->no_pre_norm,
                        .post_norm =
                            (row->need & SLOT_BIT(SLOT_POST_ATTN)) != 0,
                        .qk_norm_last = row->qk_norm_last,
                        .act = row->act,
                        .gated = true,
                        .residual_scale = 1,
                        .out_scale = 1};
    uint32_t *kv = calloc(d->n_layers, sizeof(*kv));
    uint32_t *ff = calloc(d->n_layers, sizeof(*ff));
    must(kv != NULL && ff != NULL);
    if ((row->need & SLOT_BIT(SLOT_Q_NORM)) != 0) {
        all.qk_norm = row->qk_norm_full ? QK_NORM_FULL : QK_NORM_HEAD;
    }
    int rc = read_sizes(r, &all, kv, ff, e);
    uint32_t per_score = d->n_layers == row->wide_layers && rc == 0
                             ? d->d_model / all.n_heads
                             : all.d_head;
    all.score_scale = 1.0f / sqrtf((float)per_score);
    for (uint32_t l = 0; rc == 0 && l < d->n_layers; l++) {
        d->layers[l] = all;
        d->layers[l].n_kv = kv[l];
        d->layers[l].d_ff = ff[l];
        d->layers[l].kv_from = l;
    }
    free(kv);
    free(ff);
    return rc;
}

static int read_numbers(struct reading *r, struct err *e)
{
    struct decoder *d = r->d;
    RETERR(arch_u32(r, "block_count", 1, MODEL_LAYERS_MAX, &d->n_layers, e));
    RETERR(arch_u32(r, "embedding_length", 1, MODEL_DIM_MAX, &d->d_model, e));
    RETERR(
        arch_u32(r, "context_length", 1, UINT32_MAX, &d->context_train, e));
    d->layers = calloc(d->n_layers, sizeof(*d->layers));
    d->parts = calloc(d->n_layers, sizeof(*d->parts));
    must(d->layers != NULL && d->parts != NULL);
    d->norm_eps = 1e-5f;
    RETERR(arch_f32(r, "attention.layer_norm_rms_epsilon", 0, 0.1f,
                    &d->norm_eps, e));
    d->embed_scale = d->arch->embed_sqrt ? sqrtf((float)d->d_model) : 1.0f;
    d->logit_scale = 1;
    RETERR(read_layers(r, e));
    d->kinds[LAYER_GLOBAL] =
        (struct arch_kind){.rope_dim = d->layers[0].d_head,
                           .base = 10000.0f,
                           .scale = 1,
                           .magnitude = 1};
    RETERR(arch_read_rope(r, e));
    RETERR(read_window(r, e));
    return d->arch->fill != NULL ? d->arch->fill(r, e) : 0;
}

/* --- checks --- */

static int check_attention(const struct decoder *d, uint32_t l, struct err *e)
{
    const struct layer *y = &d->layers[l];
    const struct arch_kind *k = &d->kinds[y->kind];
    if (y->n_heads % y->n_kv != 0) {
        return err_set(e, ERR_CONVERT, "%u heads do not share %u kv heads",
                       y->n_heads, y->n_kv);
    }
    if ((uint64_t)y->n_heads * y->d_head > MODEL_DIM_MAX) {
        return err_set(e, ERR_CONVERT, "%u heads of %u pass %u channels",
                       y->n_heads, y->d_head, MODEL_DIM_MAX);
    }
    if (y->rotates && (k->rope_dim > y->d_head || k->rope_dim % 2 != 0)) {
        return err_set(e, ERR_CONVERT,
                       "layer %u: %u rotated elements in heads of %u", l,
                       k->rope_dim, y->d_head);
    }
    const struct layer *from = &d->layers[y->kv_from];
    if (from->mixer == MIXER_CONV || y->kv_from > l || from->kv_from != y->kv_from ||
        from->n_kv != y->n_kv || from->d_head != y->d_head ||
        from->kind != y->kind) {
        return err_set(e, ERR_CONVERT,
                       "layer %u cannot read the keys of layer %u", l,
                       y->kv_from);
    }
    return 0;
}

static int check_layers(struct decoder *d, struct err *e)
{
    bool attention = false;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        if (d->layers[l].mixer != MIXER_CONV) {
            attention = true;
            d->kinds[d->layers[l].kind].used = true;
            RETERR(check_attention(d, l, e));
        }
        RETERR(arch_check_experts(d, l, e));
    }
    return attention ? 0
                     : err_set(e, ERR_UNSUPPORTED,
                               "no layer has attention, so nothing tells "
                               "where a token stands");
}

/* A layer's scale of the stream is one number in a tensor. */
static int read_out_scales(struct decoder *d, struct err *e)
{
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct part *p = arch_part(d, l, SLOT_OUT_SCALE);
        if (p->t != NULL) {
            RETERR(arch_vector(p, &d->layers[l].out_scale, e));
        }
        if (!(fabsf(d->layers[l].out_scale) < 65504.0f)) { /* NaN too */
            return err_set(e, ERR_CONVERT, "layer %u: an output scale of %g", l,
                           (double)d->layers[l].out_scale);
        }
    }
    return 0;
}

void arch_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < arch_n_rows; i++) {
        int n = snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "",
                         arch_rows[i].name);
        used += n > 0 ? num_min((size_t)n, size - used - 1) : 0;
    }
}

static const struct arch_row *find_row(const struct gguf *g, struct err *e)
{
    struct span name = {0};
    char known[ARCH_NAMES_MAX];
    if (!gguf_get_str(g, "general.architecture", &name)) {
        (void)err_set(e, ERR_GGUF_MISSING,
                      "key general.architecture is absent");
        return NULL;
    }
    for (size_t i = 0; i < arch_n_rows; i++) {
        const char *n = arch_rows[i].name;
        if (strlen(n) == name.n && memcmp(n, name.p, name.n) == 0) {
            return &arch_rows[i];
        }
    }
    arch_names(known, sizeof(known));
    (void)err_set(e, ERR_ARCH, "architecture '%.*s' (aned converts %s)",
                  (int)num_min(name.n, 64), name.p, known);
    return NULL;
}

/* How hidden states become one vector, in llama.cpp's numbers: none, mean, cls,
 * last, rank. That of an encoder that labels tokens: check_encoder_keys. */
static int read_pooling(struct reading *r, struct err *e)
{
    static const enum pooling kinds[] = {POOL_NONE, POOL_MEAN, POOL_CLS,
                                         POOL_LAST, POOL_NONE};
    uint32_t k = 0;
    if (r->d->n_labels > 0 ||
        gguf_find(r->g, arch_key(r, "pooling_type")) == NULL) {
        return 0;
    }
    RETERR(arch_u32(r, "pooling_type", 0, countof(kinds) - 1, &k, e));
    r->d->pooling = kinds[k];
    return 0;
}

int arch_read(const struct gguf *g, struct decoder *ret, struct err *e)
{
    struct err none = {0};
    e = e != NULL ? e : &none;
    struct decoder d = {.source = g, .arch = find_row(g, e)};
    if (d.arch == NULL) {
        return e->code;
    }
    d.encoder = d.arch->encoder;
    struct reading r = {.g = g, .d = &d};
    int rc = 0;
    CHECK(arch_check_keys(g, d.arch, e));
    CHECK(read_numbers(&r, e));
    CHECK(read_pooling(&r, e));
    CHECK(check_layers(&d, e));
    CHECK(arch_find_vocab(g, &d, e));
    CHECK(arch_find_tensors(g, &d, e));
    CHECK(arch_read_factors(&d, e));
    CHECK(read_out_scales(&d, e));
    *ret = d;
    d = (struct decoder){0}; /* given away */
out:
    arch_fini(&d);
    return rc;
}

void arch_fini(struct decoder *d)
{
    for (size_t k = 0; k < LAYER_KINDS; k++) {
        free(d->kinds[k].factors);
        free(d->kinds[k].long_factors);
    }
    free(d->layers);
    free(d->parts);
    *d = (struct decoder){0};
}
