/* families.c - which family has the structure that was found.
 *
 * Only structure decides: what norms there are and where, the activation, what
 * turns. The configuration's model_type must then be one of those that have
 * this structure; where several families are the same thing under another
 * name, it chooses.
 */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/half.h"
#include "source/onnx/make.h"

/* What a structure has, as bits. */
enum trait {
    T_CONV = 1u << 0,
    T_QK_NORM = 1u << 1,
    T_NORM_LAST = 1u << 2,
    T_POST = 1u << 3, /* norms of what blocks give */
    T_GELU = 1u << 4,
    T_SCALED = 1u << 5, /* embeddings times sqrt(width) */
    T_BIAS = 1u << 6,   /* of q, k, v */
    T_O_BIAS = 1u << 7,
    T_LOCAL = 1u << 8, /* layers of two kinds */
    T_PART = 1u << 9,  /* some of a head turns, or two tables */
    T_FACTORS = 1u << 10, /* one list of divisors */
    T_CAPS = 1u << 11,
    T_UNEVEN = 1u << 12, /* layers of different heads or widths */
    T_EXPERTS = 1u << 13, /* the last layers are mixtures */
};

static const char *const trait_names[] = {
    "convolutions",           "norms of q and k",      "norms after the rotation",
    "norms after blocks",     "GELU",                  "scaled embeddings",
    "biases of q, k and v",   "a bias of the output",  "windows on some layers",
    "a rotation of a part",   "divided frequencies",   "caps",
    "layers of different sizes", "mixtures of experts"};

static void describe(uint32_t traits, char *out, size_t size)
{
    size_t used = 0;
    (void)snprintf(out, size, "nothing beyond the plain decoder");
    for (size_t i = 0; i < countof(trait_names); i++) {
        if ((traits >> i & 1) != 0 && used < size) {
            int n = snprintf(out + used, size - used, "%s%s",
                             used > 0 ? ", " : "", trait_names[i]);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

/* Traits that must be there, and that may be. The first row that fits, and
 * among those the one whose model_type is said. */
static const struct family {
    const char *arch;
    uint32_t need, may;
    const char *types[4]; /* of config.json or genai_config.json */
} families[] = {
    {"lfm2", T_CONV | T_QK_NORM | T_UNEVEN, 0, {"lfm2"}},
    {"lfm2moe", T_CONV | T_QK_NORM | T_UNEVEN | T_EXPERTS, 0, {"lfm2_moe"}},
    {"gemma3",
     T_QK_NORM | T_POST | T_GELU | T_SCALED | T_LOCAL,
     0,
     {"gemma3", "gemma3_text"}},
    {"gemma2", T_POST | T_GELU | T_SCALED | T_LOCAL, T_CAPS, {"gemma2"}},
    {"gemma", T_GELU | T_SCALED, 0, {"gemma"}},
    {"hunyuan-dense",
     T_QK_NORM | T_NORM_LAST,
     0,
     {"hunyuan_v1_dense", "hunyuandensev1"}},
    {"qwen3", T_QK_NORM, 0, {"qwen3"}},
    {"phi3", T_PART, 0, {"phi3", "phi4mm"}},
    {"qwen2", T_BIAS, 0, {"qwen2"}},
    {"llama", 0, T_BIAS | T_O_BIAS | T_FACTORS | T_UNEVEN,
     {"llama", "mistral", "ministral"}},
    {"phi3", 0, 0, {"phi3"}},
};

static bool has(const struct onnx_layer *l, enum onnx_slot s)
{
    return l->slots[s].rows > 0;
}

static uint32_t layer_traits(const struct onnx_layer *l)
{
    bool q = has(l, ONNX_S_QKV_BIAS) || has(l, ONNX_S_Q_BIAS);
    bool norm = has(l, ONNX_S_Q_NORM);
    return (norm ? T_QK_NORM : 0u) | (norm && l->norm_last ? T_NORM_LAST : 0u) |
           (has(l, ONNX_S_POST) && has(l, ONNX_S_FFN_POST) ? T_POST : 0u) |
           (q ? T_BIAS : 0u) | (has(l, ONNX_S_O_BIAS) ? T_O_BIAS : 0u);
}

/* Layers that have attention are alike in all that a family fixes. */
static int check_alike(const struct onnx_making *k, uint32_t *traits,
                       struct err *e)
{
    const struct onnx_decoder *d = k->d;
    const struct onnx_layer *a = k->plain;
    for (uint32_t i = 0; i < d->n_layers; i++) {
        const struct onnx_layer *l = &d->layers[i];
        if (l->slots[ONNX_S_GATE].rows != a->slots[ONNX_S_GATE].rows) {
            *traits |= T_UNEVEN;
        }
        if (has(l, ONNX_S_POST) != has(l, ONNX_S_FFN_POST)) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "layer %u norms only one of its blocks' results",
                           i);
        }
        if (l->conv) {
            *traits |= T_CONV | T_UNEVEN;
            continue;
        }
        bool three = !has(l, ONNX_S_QKV);
        bool biases = has(l, ONNX_S_Q_BIAS) == has(l, ONNX_S_K_BIAS) &&
                      has(l, ONNX_S_K_BIAS) == has(l, ONNX_S_V_BIAS);
        if (layer_traits(l) != layer_traits(a) || l->n_heads != a->n_heads ||
            l->d_head != a->d_head || (three && !biases) ||
            l->score_cap != a->score_cap || l->score_scale != a->score_scale) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "layer %u has another structure than the others",
                           i);
        }
        if (l->rotation == UINT32_MAX) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "layer %u has no rotation: no family that aned "
                           "knows by its graph",
                           i);
        }
        *traits |= l->n_kv != a->n_kv ? T_UNEVEN : 0u;
    }
    return 0;
}

/* Mixtures are alike, and no dense layer comes after one. */
static int check_experts(const struct onnx_decoder *d, uint32_t *traits,
                         struct err *e)
{
    const struct onnx_layer *a = &d->layers[d->n_layers - 1];
    bool begun = false;
    for (uint32_t i = 0; i < d->n_layers; i++) {
        const struct onnx_layer *l = &d->layers[i];
        begun = begun || l->n_experts > 0;
        if (begun && (l->n_experts != a->n_experts || l->n_top != a->n_top ||
                      l->slots[ONNX_S_EXPERT_GATE].rows !=
                          a->slots[ONNX_S_EXPERT_GATE].rows)) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "layer %u has another mixture of experts than the "
                           "others, or none behind one",
                           i);
        }
    }
    *traits |= begun ? T_EXPERTS : 0u;
    return 0;
}

/* sqrt(width) as any of the types that exporters compute in, or with two
 * decimals (onnxruntime-genai's builder). */
static bool is_sqrt(float v, uint32_t width)
{
    float s = sqrtf((float)width);
    float b = half_float((half_bits(s) + 0x7fffu + (half_bits(s) >> 16 & 1)) &
                         0xffff0000u);
    float cents = (float)(floor((double)s * 100 + 0.5) / 100);
    return fabsf(v / s - 1) < 1e-6f || v == half_round(s) || v == b ||
           v == cents || v == half_round(cents);
}

static int check_scales(const struct onnx_making *k, uint32_t *traits,
                        struct err *e)
{
    const struct onnx_decoder *d = k->d;
    const struct onnx_layer *a = k->plain;
    if (d->embed_scale != 1) {
        if (!is_sqrt(d->embed_scale, d->d_model)) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "embeddings times %g: no family that aned knows by "
                           "its graph",
                           (double)d->embed_scale);
        }
        *traits |= T_SCALED;
    }
    *traits |= a->score_cap > 0 || d->logit_cap > 0 ? T_CAPS : 0u;
    *traits |= d->act == ONNX_ACT_GELU_TANH ? T_GELU : 0u;
    return 0;
}

/* --- kinds of layers --- */

/* Global layers are those without a window. One window for all is no kind of
 * its own. */
static int read_kinds(struct onnx_making *k, uint32_t *global, uint32_t *local,
                      uint32_t *traits, struct err *e)
{
    const struct onnx_decoder *d = k->d;
    uint32_t n_local = 0;
    uint32_t n = 0;
    *global = *local = UINT32_MAX;
    for (uint32_t i = 0; i < d->n_layers; i++) {
        const struct onnx_layer *l = &d->layers[i];
        uint32_t *of = l->window > 0 ? local : global;
        if (l->conv) {
            continue;
        }
        n++;
        n_local += l->window > 0;
        if ((*of != UINT32_MAX && *of != l->rotation) ||
            (l->window > 0 && k->window != 0 && k->window != l->window)) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "layer %u turns by other tables, or sees another "
                           "window, than layers of its kind",
                           i);
        }
        k->window = l->window > 0 ? l->window : k->window;
        *of = l->rotation;
    }
    if (n_local == n) {
        *global = *local;
        *local = UINT32_MAX;
    } else if (n_local > 0) {
        *traits |= T_LOCAL;
    }
    return 0;
}

/* The first global layer says how often they come. */
static int read_period(struct onnx_making *k, struct err *e)
{
    const struct onnx_decoder *d = k->d;
    uint32_t every = 1;
    while (every < d->n_layers && d->layers[every - 1].window > 0) {
        every++;
    }
    for (uint32_t i = 0; i < d->n_layers; i++) {
        bool global = (i + 1) % every == 0;
        if ((d->layers[i].window > 0) == global) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "windows do not come and go with a period: layer %u",
                           i);
        }
    }
    k->local_every = every;
    return 0;
}

/* --- rotation --- */

static int read_rope(struct onnx_making *k, uint32_t which, double base,
                     bool hints, struct onnx_rope *ret, struct err *e)
{
    struct onnx_rope_hint h = {.base = base};
    if (hints) {
        h.scaled = k->c->scaled;
        h.n_short = k->c->n_short;
        h.shorts = k->c->shorts;
        h.n_long = k->c->n_long;
        h.longs = k->c->longs;
    }
    RETERR(onnx_rope_read(k->d->m, &k->d->rotations[which], &h, ret, e));
    return ret->dim <= k->plain->d_head
               ? 0
               : err_set(e, ERR_ONNX_GRAPH,
                         "%u numbers turn in heads of %u", ret->dim,
                         k->plain->d_head);
}

/* Of layers with a window. Where the configuration says no base for them, that
 * of the others is tried first: halves do not tell 12345 from 12350. */
static int read_local(struct onnx_making *k, uint32_t which, struct err *e)
{
    struct err other = {0};
    double base = k->c->local_theta;
    if (!(base > 0) && read_rope(k, which, (double)k->rope.base, false,
                                 &k->local, &other) == 0) {
        return 0;
    }
    return read_rope(k, which, base, false, &k->local, e);
}

static int read_ropes(struct onnx_making *k, uint32_t *traits, struct err *e)
{
    uint32_t global = 0;
    uint32_t local = 0;
    double base = k->c->theta;
    RETERR(read_kinds(k, &global, &local, traits, e));
    if (k->c->alpha > 0 && base > 0) { /* hunyuan's: a constant */
        double n = (double)k->plain->d_head;
        base *= fmath_pow(k->c->alpha, n / (n - 2));
    }
    RETERR(read_rope(k, global, base, true, &k->rope, e));
    if (local != UINT32_MAX) {
        RETERR(read_period(k, e));
        RETERR(read_local(k, local, e));
        if (k->local.shorts != NULL || k->local.factor != 1 ||
            k->local.magnitude != 1 || k->local.dim != k->rope.dim) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "layers with a window turn by a scaled rotation, or "
                           "another part of a head");
        }
    }
    bool one = k->rope.longs == NULL;
    *traits |= k->rope.dim < k->plain->d_head || !one ||
                       fabsf(k->rope.magnitude - 1) > 2e-3f
                   ? T_PART
                   : 0u;
    *traits |= one && k->rope.shorts != NULL ? T_FACTORS : 0u;
    return 0;
}

/* --- the choice --- */

static bool says(const struct family *f, const char *type)
{
    for (size_t i = 0; i < countof(f->types) && f->types[i] != NULL; i++) {
        if (strcmp(f->types[i], type) == 0) {
            return true;
        }
    }
    return false;
}

static int choose(struct onnx_making *k, uint32_t traits, struct err *e)
{
    const struct family *found = NULL;
    const char *type = k->c->model_type;
    for (size_t i = 0; i < countof(families); i++) {
        const struct family *f = &families[i];
        if ((traits & f->need) != f->need ||
            (traits & ~(f->need | f->may)) != 0) {
            continue;
        }
        if (type[0] != '\0' && says(f, type)) {
            found = f;
            break;
        }
        found = found == NULL && type[0] == '\0' ? f : found;
    }
    if (found == NULL) {
        char text[256];
        describe(traits, text, sizeof(text));
        return err_set(e, ERR_ONNX_GRAPH,
                       "no family that aned knows has this structure (%s)%s"
                       "%.48s",
                       text, type[0] != '\0' ? " and is called " : "", type);
    }
    k->arch = found->arch;
    return 0;
}

/* Scores times 1/sqrt of a head, or in the largest Gemmas (convert/arch/
 * families.c knows them by their layers) of the width by heads. */
static int check_scale(const struct onnx_making *k, struct err *e)
{
    const struct onnx_layer *a = k->plain;
    uint32_t layers = k->d->n_layers;
    bool wide = (layers == 46 && strcmp(k->arch, "gemma2") == 0) ||
                (layers == 62 && strcmp(k->arch, "gemma3") == 0);
    float head = sqrtf((float)a->d_head);
    float want = wide ? sqrtf((float)k->d->d_model / (float)a->n_heads) : head;
    float is = a->score_scale != 0 ? a->score_scale : 1.0f / head;
    return fabsf(is * want - 1) <= 1e-5f
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "attention scores times %g, not 1/sqrt(%g): not "
                         "converted from a graph",
                         (double)is, (double)(want * want));
}

static int check_choice(const struct onnx_making *k, struct err *e)
{
    bool two = strcmp(k->arch, "gemma2") == 0;
    RETERR(check_scale(k, e));
    if (two && fabsf(k->local.base / k->rope.base - 1) > 1e-5f) {
        return err_set(e, ERR_ONNX_GRAPH,
                       "a gemma2 whose layers with a window turn by base %g, "
                       "and not %g as the others",
                       (double)k->local.base, (double)k->rope.base);
    }
    if (two && k->local_every != 2) {
        return err_set(e, ERR_ONNX_GRAPH, "a gemma2 whose windows are not on "
                                          "every other layer");
    }
    if (!two && k->d->act == ONNX_ACT_NONE) {
        return err_set(e, ERR_ONNX_GRAPH, "no layer has an activation");
    }
    return 0;
}

int onnx_choose_family(struct onnx_making *k, struct err *e)
{
    uint32_t traits = 0;
    for (uint32_t l = 0; k->plain == NULL && l < k->d->n_layers; l++) {
        k->plain = k->d->layers[l].conv ? NULL : &k->d->layers[l];
    }
    if (k->plain == NULL) {
        return err_set(e, ERR_ONNX_GRAPH, "no layer has attention");
    }
    traits |= layer_traits(k->plain);
    RETERR(check_alike(k, &traits, e));
    RETERR(check_experts(k->d, &traits, e));
    RETERR(check_scales(k, &traits, e));
    RETERR(read_ropes(k, &traits, e));
    RETERR(choose(k, traits, e));
    return check_choice(k, e);
}
