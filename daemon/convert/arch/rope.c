/* rope.c - how positions turn: base, scaling, divisors of the frequencies.
 *
 * Every scaling becomes divisors and a magnitude, so the engine has one form.
 */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/num.h"
#include "convert/arch/arch.h"

/* Positions are divided by a factor: rope.scaling.factor, in the oldest files
 * rope.scale_linear. 0 is none; a factor without a type is linear. Sets the
 * global kind's scale; *yarn: the type says so. */
static int read_scaling(struct reading *r, float *ret_factor, bool *yarn,
                        struct err *e)
{
    struct span type = {"linear", 6};
    float oldest = 0;
    RETERR(arch_f32(r, "rope.scale_linear", 0, 1e6f, &oldest, e));
    float factor = oldest;
    RETERR(arch_f32(r, "rope.scaling.factor", 0, 1e6f, &factor, e));
    const char *name = arch_key(r, "rope.scaling.type");
    if (gguf_find(r->g, name) != NULL && !gguf_get_str(r->g, name, &type)) {
        return err_set(e, ERR_GGUF_VALUE, "key %s is not one string", name);
    }
    bool none = type.n == 4 && memcmp(type.p, "none", 4) == 0;
    *yarn = type.n == 4 && memcmp(type.p, "yarn", 4) == 0;
    if (!none && !*yarn &&
        !(type.n == 6 && memcmp(type.p, "linear", 6) == 0)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s '%.*s' is not converted (none, linear and yarn "
                       "are)",
                       name, (int)num_min(type.n, 40), type.p);
    }
    if (factor != 0 && factor < 1e-3f) {
        return err_set(e, ERR_CONVERT, "%s is %g; aned takes 0.001 to 1e6",
                       arch_key(r, "rope.scaling.factor"), (double)factor);
    }
    *ret_factor = none || factor == 0 ? 1.0f : factor;
    return 0;
}

/* The index, counted in frequencies, at which `turns` whole turns fit into the
 * original context (YaRN, arXiv:2309.00071, 3.2). */
static double yarn_index(const struct arch_kind *k, uint32_t original,
                         double turns)
{
    double two_pi = 6.283185307179586;
    return (double)k->rope_dim *
           fmath_log((double)original / (turns * two_pi)) /
           (2 * fmath_log((double)k->base));
}

/* Whether the ends of the ramp are whole indices: always, but in families that
 * have the key. */
static int read_truncate(struct reading *r, bool *ret, struct err *e)
{
    const char *name = arch_key(r, "rope.scaling.yarn_truncate");
    return gguf_find(r->g, name) == NULL || gguf_get_bool(r->g, name, ret)
               ? 0
               : err_set(e, ERR_GGUF_VALUE, "key %s is not one bool", name);
}

/* YaRN as divisors: fast frequencies stay, slow ones are divided by the
 * factor, between them a ramp. */
static int read_yarn(struct reading *r, struct arch_kind *k, float factor,
                     struct err *e)
{
    float fast = 32;
    float slow = 1;
    bool truncate = true;
    uint32_t original = 0;
    double usual = factor > 1 ? 0.1 * fmath_log((double)factor) + 1 : 1;
    float magnitude = (float)usual;
    RETERR(arch_u32(r, "rope.scaling.original_context_length", 1,
                    MODEL_CONTEXT_MAX, &original, e));
    RETERR(arch_f32(r, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, &fast, e));
    RETERR(arch_f32(r, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, &slow, e));
    RETERR(arch_f32(r, "rope.scaling.yarn_attn_factor", 0, 1e3f, &magnitude,
                    e));
    if (fabs((double)magnitude - usual) > 1e-3) {
        /* transformers takes it for the whole magnitude, llama.cpp computes
         * its own */
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is %g: engines disagree on what it means, unless it "
                       "is 0.1 ln(factor) + 1 = %.4f",
                       arch_key(r, "rope.scaling.yarn_attn_factor"),
                       (double)magnitude, usual);
    }
    RETERR(read_truncate(r, &truncate, e));
    double last = (double)k->rope_dim - 1;
    double lo = yarn_index(k, original, (double)fast);
    double hi = yarn_index(k, original, (double)slow);
    lo = truncate ? floor(lo) : lo;
    hi = truncate ? ceil(hi) : hi;
    lo = lo < 0 ? 0 : lo > last ? last : lo;
    hi = hi < 0 ? 0 : hi > last ? last : hi;
    hi = hi <= lo ? lo + 0.001 : hi;
    k->n_factors = k->rope_dim / 2;
    k->factors = calloc(k->n_factors, sizeof(*k->factors));
    must(k->factors != NULL);
    for (uint32_t i = 0; i < k->n_factors; i++) {
        double ramp = ((double)i - lo) / (hi - lo);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        k->factors[i] = (float)(1 / (ramp / (double)factor + 1 - ramp));
    }
    k->magnitude = (float)usual;
    return 0;
}

int arch_read_rope(struct reading *r, struct err *e)
{
    struct arch_kind *k = &r->d->kinds[LAYER_GLOBAL];
    float factor = 1;
    bool yarn = false;
    RETERR(arch_u32(r, "rope.dimension_count", 2, r->d->layers[0].d_head,
                    &k->rope_dim, e));
    RETERR(arch_f32(r, "rope.freq_base", 1, 1e12f, &k->base, e));
    if (k->rope_dim % 2 != 0) {
        return err_set(e, ERR_CONVERT, "%u rotated elements a head: not even",
                       k->rope_dim);
    }
    RETERR(read_scaling(r, &factor, &yarn, e));
    if (yarn) {
        return read_yarn(r, k, factor, e);
    }
    k->scale = 1.0f / factor;
    return 0;
}

/* Divisors of the global kind's frequencies, from a tensor. */
static int read_factors(struct decoder *d, enum arch_slot slot, float **ret,
                        struct err *e)
{
    const struct part *p = &d->global[slot];
    struct arch_kind *k = &d->kinds[LAYER_GLOBAL];
    if (p->t == NULL) {
        return 0;
    }
    if (*ret != NULL) {
        return err_set(e, ERR_CONVERT, "%s: the frequencies are divided twice",
                       p->t->name);
    }
    k->n_factors = k->rope_dim / 2;
    *ret = calloc(k->n_factors, sizeof(**ret));
    must(*ret != NULL);
    RETERR(arch_vector(p, *ret, e));
    for (uint32_t i = 0; i < k->n_factors; i++) {
        /* 1e30 says: this pair does not turn */
        if (!((*ret)[i] > 1e-6f && (*ret)[i] <= 1e31f)) {
            return err_set(e, ERR_CONVERT, "%s: factor %u is %g", p->t->name, i,
                           (double)(*ret)[i]);
        }
    }
    return 0;
}

int arch_read_factors(struct decoder *d, struct err *e)
{
    struct arch_kind *k = &d->kinds[LAYER_GLOBAL];
    bool one = d->global[SLOT_ROPE_SHORT].t == NULL;
    RETERR(read_factors(d, one ? SLOT_ROPE_FREQS : SLOT_ROPE_SHORT,
                        &k->factors, e));
    RETERR(read_factors(d, SLOT_ROPE_LONG, &k->long_factors, e));
    return one == (k->long_factors == NULL)
               ? 0
               : err_set(e, ERR_GGUF_MISSING,
                         "of rope_factors_short.weight and "
                         "rope_factors_long.weight one is absent");
}
