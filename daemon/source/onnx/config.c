/* config.c - what the files beside a graph say of the model. */
#include "source/onnx/config.h"

#include <math.h>
#include <string.h>

#include "base/fmath.h"

/* A count that this file says; two files that both do must agree. */
static int count(const struct json *j, const char *key, int64_t *ret,
                 struct err *e)
{
    int64_t v = 0;
    RETERR(json_want_int(j, key, false, 0, INT32_MAX, &v, e));
    if (v == 0) {
        return 0;
    }
    if (*ret != 0 && *ret != v) {
        return err_set(e, ERR_INVALID,
                       "%s is %lld in config.json, the same is %lld in "
                       "genai_config.json",
                       key, (long long)*ret, (long long)v);
    }
    *ret = v;
    return 0;
}

static int number(const struct json *j, const char *key, double *ret,
                  struct err *e)
{
    return json_want_num(j, key, false, 0, 1e30, ret, e);
}

static int factors(const struct json *j, const char *key, double *out,
                   size_t *n, struct err *e)
{
    for (const struct json *c = json_first(json_get(j, key)); c != NULL;
         c = json_next(c)) {
        double v = json_type(c) == JSON_NUMBER ? json_num(c) : 0;
        if (*n == ONNX_FACTORS_MAX || !(v > 1e-6 && v < 1e6)) {
            return err_set(e, ERR_INVALID, "%s: divisor %zu is %g", key, *n, v);
        }
        out[(*n)++] = v;
    }
    return 0;
}

static int read_rope(const struct json *j, struct onnx_config *c,
                     struct err *e)
{
    const struct json *local = json_get(j, "sliding_attention");
    const struct json *full = json_get(j, "full_attention");
    if (json_type(local) == JSON_OBJECT && json_type(full) == JSON_OBJECT) {
        RETERR(number(local, "rope_theta", &c->local_theta, e));
        return read_rope(full, c, e);
    }
    const char *type = NULL;
    RETERR(json_want_str(j, "type", false, &type, e));
    RETERR(json_want_str(j, "rope_type", false, &type, e));
    c->scaled = c->scaled || (type != NULL && strcmp(type, "default") != 0);
    RETERR(number(j, "rope_theta", &c->theta, e));
    RETERR(number(j, "alpha", &c->alpha, e));
    RETERR(number(j, "partial_rotary_factor", &c->partial, e));
    RETERR(factors(j, "short_factor", c->shorts, &c->n_short, e));
    return factors(j, "long_factor", c->longs, &c->n_long, e);
}

static int read_hf(const struct json *j, struct onnx_config *c, struct err *e)
{
    bool adjusts = false;
    const char *type = NULL;
    RETERR(json_want_str(j, "model_type", false, &type, e));
    if (type != NULL) {
        (void)snprintf(c->model_type, sizeof(c->model_type), "%.40s", type);
    }
    RETERR(count(j, "num_hidden_layers", &c->layers, e));
    RETERR(count(j, "hidden_size", &c->d_model, e));
    RETERR(count(j, "num_attention_heads", &c->heads, e));
    RETERR(count(j, "num_key_value_heads", &c->kv, e));
    RETERR(count(j, "head_dim", &c->d_head, e));
    RETERR(count(j, "vocab_size", &c->vocab, e));
    RETERR(count(j, "max_position_embeddings", &c->context, e));
    RETERR(json_want_bool(j, "block_auto_adjust_ff_dim", false, &adjusts, e));
    if (!adjusts) {
        RETERR(count(j, "intermediate_size", &c->d_ff, e));
    }
    RETERR(number(j, "rms_norm_eps", &c->eps, e));
    RETERR(number(j, "norm_eps", &c->eps, e));
    RETERR(number(j, "rope_theta", &c->theta, e));
    RETERR(number(j, "rope_local_base_freq", &c->local_theta, e));
    RETERR(number(j, "partial_rotary_factor", &c->partial, e));
    if (json_type(json_get(j, "rope_scaling")) == JSON_OBJECT) {
        RETERR(read_rope(json_get(j, "rope_scaling"), c, e));
    }
    return json_type(json_get(j, "rope_parameters")) == JSON_OBJECT
               ? read_rope(json_get(j, "rope_parameters"), c, e)
               : 0;
}

static int read_genai(const struct json *root, struct onnx_config *c,
                      struct err *e)
{
    const struct json *model = json_get(root, "model");
    const struct json *j = json_get(model, "decoder");
    const char *type = NULL;
    int64_t context = 0;
    if (json_type(model) != JSON_OBJECT || json_type(j) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID,
                       "genai_config.json has no model with a decoder");
    }
    RETERR(json_want_str(model, "type", false, &type, e));
    if (type != NULL && c->model_type[0] == '\0') {
        (void)snprintf(c->model_type, sizeof(c->model_type), "%.40s", type);
    }
    RETERR(count(model, "vocab_size", &c->vocab, e));
    RETERR(count(model, "context_length", &context, e));
    c->context = c->context == 0 ? context : c->context;
    RETERR(count(j, "num_hidden_layers", &c->layers, e));
    RETERR(count(j, "hidden_size", &c->d_model, e));
    RETERR(count(j, "num_attention_heads", &c->heads, e));
    RETERR(count(j, "num_key_value_heads", &c->kv, e));
    return count(j, "head_size", &c->d_head, e);
}

int onnx_config_read(const struct json *hf, const struct json *genai,
                     struct onnx_config *ret, struct err *e)
{
    *ret = (struct onnx_config){.layers = 0};
    if (hf != NULL) {
        RETERR(read_hf(hf, ret, e));
    }
    if (genai != NULL) {
        RETERR(read_genai(genai, ret, e));
    }
    return 0;
}

static int same(const char *what, int64_t said, uint64_t is, struct err *e)
{
    return said == 0 || (uint64_t)said == is
               ? 0
               : err_set(e, ERR_ONNX_GRAPH,
                         "the configuration says %s %lld, the graph has %llu",
                         what, (long long)said, (unsigned long long)is);
}

int onnx_config_check(const struct onnx_config *c, const struct onnx_decoder *d,
                      struct err *e)
{
    RETERR(same("layers:", c->layers, d->n_layers, e));
    RETERR(same("hidden size:", c->d_model, d->d_model, e));
    RETERR(same("vocabulary:", c->vocab, d->vocab, e));
    if (c->eps > 0 && fabs(c->eps / (double)d->eps - 1) > 1e-4) {
        return err_set(e, ERR_ONNX_GRAPH,
                       "the configuration says epsilon %g, the graph has %g",
                       c->eps, (double)d->eps);
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct onnx_layer *y = &d->layers[l];
        RETERR(same("intermediate size:", y->n_experts == 0 ? c->d_ff : 0,
                    y->slots[ONNX_S_GATE].rows, e));
        if (!y->conv) {
            RETERR(same("heads:", c->heads, y->n_heads, e));
            RETERR(same("heads of keys:", c->kv, y->n_kv, e));
            RETERR(same("head size:", c->d_head, y->d_head, e));
        }
    }
    return 0;
}
