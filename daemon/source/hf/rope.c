/* rope.c - how positions turn, from config.json.
 *
 * Newer files have rope_parameters, which hold theta and may be one a kind of
 * layer; older ones rope_theta and rope_scaling. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "source/hf/hf.h"

#define WHERE "config.json: "

int hf_rope_of(const struct hf *h, const char *kind, struct hf_rope *ret,
               struct err *e)
{
    const struct json *j = hf_get(h->text, "rope_parameters");
    ret->type = "default";
    ret->partial = 1;
    if (j != NULL && kind != NULL && hf_get(j, kind) != NULL) {
        j = hf_get(j, kind);
    }
    j = j != NULL ? j : hf_get(h->text, "rope_scaling");
    ret->j = j;
    RETERR(hf_num(h->text, "rope_theta", false, 1, 1e12, &ret->theta, e));
    RETERR(hf_num(h->text, "partial_rotary_factor", false, 0, 1, &ret->partial,
                  e));
    if (j == NULL) {
        return 0;
    }
    if (json_type(j) != JSON_OBJECT) {
        return err_set(e, ERR_MODEL_CONFIG, WHERE "rotation is no object");
    }
    RETERR(hf_num(j, "rope_theta", false, 1, 1e12, &ret->theta, e));
    RETERR(hf_num(j, "partial_rotary_factor", false, 0, 1, &ret->partial, e));
    RETERR(hf_str(j, "type", &ret->type, e));
    return hf_str(j, "rope_type", &ret->type, e);
}

/* Every member of the parameters is one of the type's. */
static int check_params(const struct hf_rope *r, const char *const *own,
                        size_t n, struct err *e)
{
    static const char *const all[] = {"type", "rope_type", "rope_theta",
                                      "partial_rotary_factor"};
    for (const struct json *c = json_first(r->j); c != NULL;
         c = json_next(c)) {
        bool known = json_type(c) == JSON_NULL;
        for (size_t i = 0; i < countof(all); i++) {
            known = known || strcmp(json_key(c), all[i]) == 0;
        }
        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(json_key(c), own[i]) == 0;
        }
        if (!known) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "'%.64s' of a rotation of type '%.32s' is not "
                                 "converted",
                           json_key(c), r->type);
        }
    }
    return 0;
}

int hf_put_vector(struct hf *h, const char *name, const float *v, size_t n,
                  struct err *e)
{
    const uint64_t dims[1] = {n};
    uint8_t *p = made_alloc(h->m, n * sizeof(*v));
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    memcpy(p, v, n * sizeof(*v));
    return made_tensor(h->m, name, 1, dims, GGML_F32, p, n * sizeof(*v), e);
}

/* Elements of a head that turn. */
static int rotated(const struct hf *h, const struct hf_rope *r, uint32_t *ret,
                   struct err *e)
{
    *ret = (uint32_t)(r->partial * h->d_head);
    return *ret >= 2 && *ret % 2 == 0 && *ret <= h->d_head
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         WHERE "%u rotated elements of %u", *ret, h->d_head);
}

static int put_linear(struct hf *h, const struct hf_rope *r, struct err *e)
{
    static const char *const own[] = {"factor"};
    double factor = 0;
    RETERR(check_params(r, own, countof(own), e));
    RETERR(hf_num(r->j, "factor", true, 1e-3, 1e6, &factor, e));
    RETERR(made_str(h->m, hf_key(h, "rope.scaling.type"), "linear", e));
    return hf_put_f32(h, "rope.scaling.factor", factor, e);
}

static int put_yarn(struct hf *h, const struct hf_rope *r, struct err *e)
{
    static const char *const own[] = {
        "factor",    "original_max_position_embeddings",
        "beta_fast", "beta_slow",
        "truncate",  "attention_factor",
    };
    double factor = 0;
    double attention = 0;
    double fast = 32;
    double slow = 1;
    uint32_t original = h->context;
    bool truncate = true;
    RETERR(check_params(r, own, countof(own), e));
    RETERR(hf_num(r->j, "factor", true, 1e-3, 1e6, &factor, e));
    RETERR(hf_u32(r->j, own[1], false, 1, MODEL_CONTEXT_MAX, &original, e));
    RETERR(hf_num(r->j, "beta_fast", false, 1e-3, 1e6, &fast, e));
    RETERR(hf_num(r->j, "beta_slow", false, 1e-3, 1e6, &slow, e));
    RETERR(hf_num(r->j, "attention_factor", false, 1e-3, 1e3, &attention, e));
    RETERR(hf_bool(r->j, "truncate", &truncate, e));
    if (!truncate && !h->family->yarn_exact) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "a yarn rotation with truncate false");
    }
    RETERR(truncate ? 0
                    : made_bool(h->m, hf_key(h, "rope.scaling.yarn_truncate"),
                                false, e));
    RETERR(made_str(h->m, hf_key(h, "rope.scaling.type"), "yarn", e));
    RETERR(hf_put_f32(h, "rope.scaling.factor", factor, e));
    RETERR(hf_put_u32(h, "rope.scaling.original_context_length", original, e));
    RETERR(hf_put_f32(h, "rope.scaling.yarn_beta_fast", fast, e));
    RETERR(hf_put_f32(h, "rope.scaling.yarn_beta_slow", slow, e));
    return attention > 0 ? hf_put_f32(h, "rope.scaling.yarn_attn_factor",
                                      attention, e)
                         : 0;
}

/* Llama 3.1's: slow frequencies are divided by the factor, fast ones stay,
 * between them a ramp over the number of turns in the original context. */
static int put_llama3(struct hf *h, const struct hf_rope *r, struct err *e)
{
    static const char *const own[] = {"factor", "low_freq_factor",
                                      "high_freq_factor",
                                      "original_max_position_embeddings"};
    double factor = 8;
    double low = 1;
    double high = 4;
    uint32_t original = 8192;
    uint32_t n = 0;
    RETERR(check_params(r, own, countof(own), e));
    RETERR(hf_num(r->j, own[0], true, 1e-3, 1e6, &factor, e));
    RETERR(hf_num(r->j, own[1], true, 1e-3, 1e6, &low, e));
    RETERR(hf_num(r->j, own[2], true, 1e-3, 1e6, &high, e));
    RETERR(hf_u32(r->j, own[3], true, 1, MODEL_CONTEXT_MAX, &original, e));
    RETERR(rotated(h, r, &n, e));
    if (!(high > low)) {
        return err_set(e, ERR_MODEL_CONFIG, WHERE "high_freq_factor %g is not "
                                                  "above low_freq_factor %g",
                       high, low);
    }
    float *v = calloc(n / 2, sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "rope_freqs");
    }
    for (uint32_t i = 0; i < n / 2; i++) {
        float f = (float)fmath_pow(r->theta, -2.0 * i / n);
        double turns = (double)original * (double)f / 6.283185307179586;
        double ramp = (turns - low) / (high - low);
        v[i] = turns > high  ? 1.0F
               : turns < low ? (float)factor
                             : (float)(1 / ((1 - ramp) / factor + ramp));
    }
    int rc = hf_put_vector(h, "rope_freqs.weight", v, n / 2, e);
    free(v);
    return rc;
}

/* The numbers of a list of n. */
static int read_list(const struct hf_rope *r, const char *key, uint32_t n,
                     float *out, struct err *e)
{
    const struct json *list = hf_get(r->j, key);
    uint32_t i = 0;
    for (const struct json *c = json_first(list); c != NULL && i < n;
         c = json_next(c)) {
        if (json_type(c) != JSON_NUMBER) {
            break;
        }
        out[i++] = (float)json_num(c);
    }
    return i == n && json_count(list) == n
               ? 0
               : err_set(e, ERR_MODEL_CONFIG, WHERE "'%s' is no list of %u "
                                                    "numbers",
                         key, n);
}

static int put_longrope(struct hf *h, const struct hf_rope *r, struct err *e)
{
    static const char *const own[] = {
        "short_factor", "long_factor", "original_max_position_embeddings",
        "attention_factor", "factor"};
    uint32_t original = 0;
    uint32_t n = 0;
    RETERR(check_params(r, own, countof(own), e));
    RETERR(hf_u32(h->text, own[2], false, 1, MODEL_CONTEXT_MAX, &original, e));
    RETERR(hf_u32(r->j, own[2], original == 0, 1, MODEL_CONTEXT_MAX, &original,
                  e));
    RETERR(rotated(h, r, &n, e));
    double factor = (double)h->context / original;
    double magnitude =
        factor <= 1 ? 1
                    : sqrt(1 + fmath_log(factor) / fmath_log(original));
    RETERR(hf_num(r->j, own[3], false, 1e-3, 1e3, &magnitude, e));
    RETERR(hf_put_f32(h, "rope.scaling.attn_factor", magnitude, e));
    RETERR(hf_put_u32(h, "rope.scaling.original_context_length", original, e));
    float *v = calloc(n / 2, sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "rope_factors");
    }
    int rc = 0;
    CHECK(read_list(r, own[0], n / 2, v, e));
    CHECK(hf_put_vector(h, "rope_factors_short.weight", v, n / 2, e));
    CHECK(read_list(r, own[1], n / 2, v, e));
    CHECK(hf_put_vector(h, "rope_factors_long.weight", v, n / 2, e));
out:
    free(v);
    return rc;
}

int hf_put_rope(struct hf *h, const struct hf_rope *r, struct err *e)
{
    static const struct {
        const char *type;
        const char *arch; /* NULL: of any family */
        int (*put)(struct hf *h, const struct hf_rope *r, struct err *e);
    } types[] = {
        {"linear",   NULL,   put_linear  },
        {"yarn",     NULL,   put_yarn    },
        {"llama3",   NULL,   put_llama3  },
        {"longrope", "phi3", put_longrope},
        {"su",       "phi3", put_longrope},
    };
    RETERR(hf_put_f32(h, "rope.freq_base", r->theta, e));
    if (strcmp(r->type, "default") == 0) {
        return check_params(r, NULL, 0, e);
    }
    for (size_t i = 0; i < countof(types); i++) {
        if (strcmp(types[i].type, r->type) == 0 &&
            (types[i].arch == NULL ||
             strcmp(types[i].arch, h->family->arch) == 0)) {
            return types[i].put(h, r, e);
        }
    }
    return err_set(e, ERR_UNSUPPORTED,
                   WHERE "a rotation of type '%.32s' is not converted in this "
                         "family",
                   r->type);
}
