/* bundle_layers.c - the layers of a bundle: struct layer to and from JSON.
 *
 * One table gives each field's key, kind and range; reading, writing and the
 * fingerprint walk it, so that a field cannot be in one and not in another. A
 * field that came later is an OPTION: absent is 0, and 0 is neither written nor
 * hashed, so that older bundles open and keep their fingerprint.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "model/bundle_impl.h"

enum field_kind { FIELD_U32, FIELD_BOOL, FIELD_F32, FIELD_NAME };

static const char *const mixers[] = {
    [MIXER_ATTENTION] = "attention",
    [MIXER_CONV] = "conv",
    [MIXER_CCA] = "cca",
    NULL};
static const char *const acts[] = {
    [ACT_SILU] = "silu", [ACT_GELU_TANH] = "gelu_tanh",
    [ACT_CLAMPED] = "clamped", [ACT_GELU_ERF] = "gelu_erf", NULL};
static const char *const qk_norms[] = {[QK_NORM_NONE] = "none",
                                       [QK_NORM_HEAD] = "head",
                                       [QK_NORM_FULL] = "full", NULL};
static const char *const routers[] = {
    [ROUTER_NONE] = "none",
    [ROUTER_SOFTMAX_TOP] = "softmax_top",
    [ROUTER_SIGMOID_BIAS] = "sigmoid_bias",
    [ROUTER_NETWORK] = "network",
    NULL};
static const char *const kinds[] = {
    [LAYER_GLOBAL] = "global", [LAYER_LOCAL] = "local", NULL};

#define FIELD(kind, name, lo, hi) \
    {FIELD_##kind, #name, offsetof(struct layer, name), lo, hi, NULL, false}
#define OPTION(kind, name, lo, hi) \
    {FIELD_##kind, #name, offsetof(struct layer, name), lo, hi, NULL, true}
#define NAMED(name, names) \
    {FIELD_NAME, #name, offsetof(struct layer, name), 0, 0, names, false}

static const struct field {
    enum field_kind kind;
    const char *key;
    size_t at;
    double lo, hi;
    const char *const *names; /* FIELD_NAME: of an enum, NULL ends */
    bool option;
} fields[] = {
    NAMED(mixer, mixers),
    NAMED(kind, kinds),
    FIELD(BOOL, rotates, 0, 0),
    OPTION(U32, conv_len, 2, MODEL_CONV_MAX),
    OPTION(U32, mix_len, 2, MODEL_CONV_MAX),
    FIELD(U32, n_heads, 0, MODEL_DIM_MAX),
    FIELD(U32, n_kv, 0, MODEL_DIM_MAX),
    FIELD(U32, d_head, 0, MODEL_DIM_MAX),
    FIELD(U32, kv_from, 0, MODEL_LAYERS_MAX),
    FIELD(BOOL, pre_norm, 0, 0),
    FIELD(BOOL, post_norm, 0, 0),
    OPTION(BOOL, sum_norm, 0, 0),
    FIELD(BOOL, gain_plus_one, 0, 0),
    NAMED(qk_norm, qk_norms),
    FIELD(BOOL, qk_norm_last, 0, 0),
    FIELD(BOOL, v_norm, 0, 0),
    FIELD(BOOL, v_is_k, 0, 0),
    FIELD(F32, score_scale, 0, 1e6),
    FIELD(F32, score_cap, 0, 1e6),
    OPTION(BOOL, both_sides, 0, 0),
    OPTION(BOOL, sinks, 0, 0),
    NAMED(act, acts),
    FIELD(BOOL, gated, 0, 0),
    FIELD(U32, d_ff, 0, MODEL_DIM_MAX),
    {FIELD_NAME, "router", offsetof(struct layer, router), 0, 0, routers, true},
    OPTION(U32, n_experts, 2, MODEL_EXPERTS_MAX),
    OPTION(U32, n_top, 1, MODEL_EXPERTS_MAX),
    OPTION(U32, d_expert, 1, MODEL_DIM_MAX),
    OPTION(U32, d_router, 1, MODEL_DIM_MAX),
    OPTION(BOOL, expert_branch, 0, 0),
    OPTION(BOOL, sparse, 0, 0),
    OPTION(BOOL, affine_join, 0, 0),
    FIELD(F32, residual_scale, 0, 1e6),
    FIELD(U32, d_ple, 0, MODEL_DIM_MAX),
    FIELD(F32, out_scale, -65504, 65504),
};

static_assert(sizeof(enum layer_mixer) == sizeof(uint32_t) &&
                  sizeof(enum layer_act) == sizeof(uint32_t) &&
                  sizeof(enum layer_qk_norm) == sizeof(uint32_t) &&
                  sizeof(enum layer_router) == sizeof(uint32_t),
              "enums are read as uint32_t");

static uint32_t get_u32(const struct layer *l, const struct field *f)
{
    uint32_t v = 0;
    memcpy(&v, (const char *)l + f->at, sizeof(v));
    return v;
}

static bool get_bool(const struct layer *l, const struct field *f)
{
    return *(const bool *)((const char *)l + f->at);
}

static float get_f32(const struct layer *l, const struct field *f)
{
    float v = 0;
    memcpy(&v, (const char *)l + f->at, sizeof(v));
    return v;
}

/* --- read --- */

static int read_name(const struct json *j, const struct field *f, void *at,
                     struct err *e)
{
    const char *text = NULL;
    RETERR(json_want_str(j, f->key, true, &text, e));
    for (uint32_t i = 0; f->names[i] != NULL; i++) {
        if (strcmp(text, f->names[i]) == 0) {
            memcpy(at, &i, sizeof(i));
            return 0;
        }
    }
    return err_set(e, ERR_INVALID, "%s '%.32s' is not known", f->key, text);
}

static int read_field(const struct json *j, const struct field *f,
                      struct layer *l, struct err *e)
{
    void *at = (char *)l + f->at;
    int64_t i = 0;
    if (f->option && json_get(j, f->key) == NULL) {
        return 0;
    }
    double v = 0;
    switch (f->kind) {
    case FIELD_U32:
        RETERR(json_want_int(j, f->key, true, (int64_t)f->lo, (int64_t)f->hi,
                             &i, e));
        memcpy(at, &(uint32_t){(uint32_t)i}, sizeof(uint32_t));
        return 0;
    case FIELD_F32:
        RETERR(json_want_num(j, f->key, true, f->lo, f->hi, &v, e));
        memcpy(at, &(float){(float)v}, sizeof(float));
        return 0;
    case FIELD_BOOL:
        return json_want_bool(j, f->key, true, at, e);
    case FIELD_NAME:
        return read_name(j, f, at, e);
    }
    return 0;
}

int bundle_read_layers(const struct bundle *b, const struct json *a,
                       struct layer *out, struct err *e)
{
    uint32_t n = 0;
    if (a == NULL || json_type(a) != JSON_ARRAY ||
        json_count(a) != b->n_layers) {
        return err_set(e, ERR_INVALID,
                       "layers is not an array of n_layers (%u) objects",
                       b->n_layers);
    }
    for (const struct json *j = json_first(a); j != NULL; j = json_next(j)) {
        for (size_t i = 0; i < countof(fields); i++) {
            int rc = read_field(j, &fields[i], &out[n], e);
            if (rc < 0) {
                return err_prefix(e, rc, "layers[%u]", n);
            }
        }
        n++;
    }
    return 0;
}

void bundle_plain_layer(const struct bundle *b, uint32_t i, bool local,
                        struct layer *ret)
{
    *ret = (struct layer){.kind = local ? LAYER_LOCAL : LAYER_GLOBAL,
                          .rotates = true,
                          .n_heads = b->n_heads,
                          .n_kv = b->n_kv_heads,
                          .d_head = b->d_head,
                          .kv_from = i,
                          .pre_norm = true,
                          .gated = true,
                          .d_ff = b->d_ff,
                          .residual_scale = 1,
                          .out_scale = 1};
}

/* An option that the layer does not have. */
static bool left_out(const struct layer *l, const struct field *f)
{
    static const char zero[sizeof(uint32_t)];
    size_t n = f->kind == FIELD_BOOL ? sizeof(bool) : sizeof(uint32_t);
    return f->option && memcmp((const char *)l + f->at, zero, n) == 0;
}

/* --- write --- */

static void put_layer(struct json *o, const struct layer *l)
{
    for (size_t i = 0; i < countof(fields); i++) {
        const struct field *f = &fields[i];
        if (left_out(l, f)) {
            continue;
        }
        switch (f->kind) {
        case FIELD_U32:
            json_add_int(o, f->key, get_u32(l, f));
            break;
        case FIELD_F32:
            json_add_num(o, f->key, (double)get_f32(l, f));
            break;
        case FIELD_BOOL:
            json_add_bool(o, f->key, get_bool(l, f));
            break;
        case FIELD_NAME:
            json_add_str(o, f->key, f->names[get_u32(l, f)]);
            break;
        }
    }
}

void bundle_put_layers(struct json *j, const struct bundle *b)
{
    struct json *a = json_add_array(j, "layers");
    for (uint32_t i = 0; i < b->n_layers; i++) {
        put_layer(json_add_object(a, NULL), &b->layers[i]);
    }
}

/* --- check --- */

static int check_experts(const struct bundle *b, uint32_t i, struct err *e)
{
    const struct layer *l = &b->layers[i];
    if (l->d_ff == 0 && l->n_experts == 0) {
        return err_set(e, ERR_BUNDLE, "layer %u has no feed-forward", i);
    }
    if (l->n_experts > 0 &&
        (l->n_top == 0 || l->n_top > l->n_experts || l->d_expert == 0 ||
         l->router == ROUTER_NONE)) {
        return err_set(e, ERR_BUNDLE, "layer %u: %u experts of %u, %u wide, router %s",
                       i, l->n_top, l->n_experts, l->d_expert,
                       routers[l->router]);
    }
    if ((l->router == ROUTER_NETWORK) != (l->d_router > 0) ||
        (l->router == ROUTER_NETWORK && l->n_top != 1)) {
        return err_set(e, ERR_BUNDLE, "layer %u: d_router %u, router %s", i,
                       l->d_router, routers[l->router]);
    }
    if (i > 0 && l->router == ROUTER_NETWORK &&
        l[-1].d_router != l->d_router) {
        return err_set(e, ERR_BUNDLE,
                       "layer %u: its router of %u goes on from one of %u", i,
                       l->d_router, l[-1].d_router);
    }
    if (l->sparse && (l->n_experts == 0 || b->encoder)) {
        return err_set(e, ERR_BUNDLE,
                       "layer %u is sparse, but %s", i,
                       b->encoder ? "an encoder's experts are in its programs"
                                  : "has no experts");
    }
    if (l->n_experts > 0 && l->expert_branch != (l->d_ff > 0)) {
        return err_set(e, ERR_BUNDLE,
                       "layer %u: expert_branch and d_ff %u do not go together",
                       i, l->d_ff);
    }
    return 0;
}

/* A convolution has taps, and nothing of attention. */
static int check_conv(const struct layer *l, uint32_t i, struct err *e)
{
    return l->conv_len > 0 && l->mix_len == 0 && l->n_heads == 0 && l->n_kv == 0 &&
                   l->d_head == 0 && !l->rotates && l->kv_from == i
               ? 0
               : err_set(e, ERR_BUNDLE, "layer %u: a convolution has conv_len "
                                        "and no heads",
                         i);
}

static int check_attention(const struct bundle *b, uint32_t i, struct err *e)
{
    const struct layer *l = &b->layers[i];
    const struct bundle_rope *r =
        l->kind == LAYER_LOCAL ? &b->rope_local : &b->rope;
    bool cca = l->mixer == MIXER_CCA;
    if (cca && (l->conv_len == 0 || l->mix_len == 0 ||
                layer_tail_len(l) >= MODEL_CONV_MAX || l->kv_from != i ||
                l->n_kv % 2 != 0)) {
        return err_set(e, ERR_BUNDLE,
                       "layer %u: cca has conv_len and mix_len, pairs of key "
                       "heads, and keys of its own",
                       i);
    }
    if ((!cca && (l->conv_len > 0 || l->mix_len > 0)) || l->n_heads == 0 ||
        l->d_head == 0) {
        return err_set(e, ERR_BUNDLE, "layer %u: attention has heads and no "
                                      "conv_len",
                       i);
    }
    if (!r->present) {
        return err_set(e, ERR_BUNDLE, "layer %u is local but rope_local is "
                                      "absent",
                       i);
    }
    if (l->rotates && r->dim > l->d_head) {
        return err_set(e, ERR_BUNDLE, "layer %u: %s.dim %u does not fit d_head "
                                      "%u",
                       i, l->kind == LAYER_LOCAL ? "rope_local" : "rope",
                       r->dim, l->d_head);
    }
    if (l->n_kv == 0 || l->n_heads % l->n_kv != 0) {
        return err_set(e, ERR_BUNDLE, "layer %u: %u heads do not share %u kv "
                                      "heads",
                       i, l->n_heads, l->n_kv);
    }
    if (l->kv_from > i || b->layers[l->kv_from].kv_from != l->kv_from) {
        return err_set(e, ERR_BUNDLE, "layer %u: kv_from %u has no keys", i,
                       l->kv_from);
    }
    const struct layer *from = &b->layers[l->kv_from];
    if (from->n_kv != l->n_kv || from->d_head != l->d_head ||
        from->kind != l->kind) {
        return err_set(e, ERR_BUNDLE, "layer %u cannot read the keys of layer "
                                      "%u",
                       i, l->kv_from);
    }
    return 0;
}

static int check_layer(const struct bundle *b, uint32_t i, struct err *e)
{
    const struct layer *l = &b->layers[i];
    RETERR(l->mixer == MIXER_CONV ? check_conv(l, i, e)
                                  : check_attention(b, i, e));
    if (l->both_sides != b->encoder ||
        (l->both_sides && (l->mixer != MIXER_ATTENTION || l->kv_from != i ||
                           (b->rope.window > 0 &&
                            l->n_kv > MODEL_BAND_GROUPS)))) {
        return err_set(e, ERR_BUNDLE,
                       "layer %u: layers of encoders, and no others, see to "
                       "both sides",
                       i);
    }
    if (l->d_ple != b->d_ple) {
        return err_set(e, ERR_BUNDLE, "layer %u: d_ple is not the bundle's",
                       i);
    }
    return check_experts(b, i, e);
}

int bundle_check_layers(const struct bundle *b, struct err *e)
{
    if (b->layers == NULL) {
        return err_set(e, ERR_BUNDLE, "layers are absent");
    }
    for (uint32_t i = 0; i < b->n_layers; i++) {
        RETERR(check_layer(b, i, e));
    }
    return 0;
}

uint32_t bundle_short_max(const struct bundle *b)
{
    const struct bundle_rope *ropes[] = {&b->rope, &b->rope_local};
    uint32_t n = b->context;
    for (size_t k = 0; k < countof(ropes); k++) {
        bool two = ropes[k]->present && ropes[k]->long_factors != NULL;
        n = two && ropes[k]->original < n ? ropes[k]->original : n;
    }
    return n;
}

/* --- hash --- */

static void hash_layer(struct sha256 *h, const struct layer *l)
{
    for (size_t i = 0; i < countof(fields); i++) {
        const struct field *f = &fields[i];
        if (left_out(l, f)) {
            continue;
        }
        switch (f->kind) {
        case FIELD_U32:
        case FIELD_NAME:
            bundle_hash_text(h, "%s=%u ", f->key, get_u32(l, f));
            break;
        case FIELD_F32:
            bundle_hash_text(h, "%s=%a ", f->key, (double)get_f32(l, f));
            break;
        case FIELD_BOOL:
            bundle_hash_text(h, "%s=%d ", f->key, get_bool(l, f));
            break;
        }
    }
    bundle_hash_text(h, "\n");
}

void bundle_hash_layers(struct sha256 *h, const struct bundle *b)
{
    for (uint32_t i = 0; i < b->n_layers; i++) {
        if (b->format == 1) {
            bundle_hash_text(h, "%d", b->layers[i].kind == LAYER_LOCAL);
        } else {
            hash_layer(h, &b->layers[i]);
        }
    }
    if (b->format != 1) {
        bundle_hash_text(h, "logit_scale=%a logit_cap=%a d_ple=%u",
                         (double)b->logit_scale, (double)b->logit_cap,
                         b->d_ple);
    }
}
