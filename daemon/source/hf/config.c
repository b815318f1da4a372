/* config.c - the family, and the numbers that every family has. */
#include <string.h>

#include "base/num.h"
#include "source/hf/hf.h"

#define WHERE "config.json: "

/* --- members --- */

const struct json *hf_get(const struct json *j, const char *key)
{
    const struct json *m = json_get(j, key);
    return m != NULL && json_type(m) != JSON_NULL ? m : NULL;
}

const char *hf_known_as(const struct hf *h, const char *key)
{
    const char *const(*o)[2] = h->family->other;
    for (size_t i = 0; o != NULL && o[i][0] != NULL; i++) {
        if (strcmp(o[i][0], key) == 0 && hf_get(h->text, key) == NULL &&
            hf_get(h->text, o[i][1]) != NULL) {
            return o[i][1];
        }
    }
    return key;
}

static int missing(const char *key, bool need, struct err *e)
{
    return need ? err_set(e, ERR_MODEL_CONFIG, WHERE "'%s' is missing", key)
                : 0;
}

int hf_u32(const struct json *j, const char *key, bool need, uint32_t lo,
           uint32_t hi, uint32_t *ret, struct err *e)
{
    const struct json *m = hf_get(j, key);
    int64_t v = 0;
    if (m == NULL) {
        return missing(key, need, e);
    }
    if (!json_int(m, lo, hi, &v)) {
        return err_set(e, ERR_MODEL_CONFIG,
                       WHERE "'%s' is no whole number from %u to %u", key, lo,
                       hi);
    }
    *ret = (uint32_t)v;
    return 0;
}

int hf_num(const struct json *j, const char *key, bool need, double lo,
           double hi, double *ret, struct err *e)
{
    const struct json *m = hf_get(j, key);
    if (m == NULL) {
        return missing(key, need, e);
    }
    double v = json_num(m);
    if (json_type(m) != JSON_NUMBER || !(v >= lo && v <= hi)) {
        return err_set(e, ERR_MODEL_CONFIG,
                       WHERE "'%s' is no number from %g to %g", key, lo, hi);
    }
    *ret = v;
    return 0;
}

int hf_bool(const struct json *j, const char *key, bool *ret, struct err *e)
{
    const struct json *m = hf_get(j, key);
    if (m == NULL) {
        return 0;
    }
    if (json_type(m) != JSON_BOOL) {
        return err_set(e, ERR_MODEL_CONFIG, WHERE "'%s' is no bool", key);
    }
    *ret = json_bool(m);
    return 0;
}

int hf_str(const struct json *j, const char *key, const char **ret,
           struct err *e)
{
    const struct json *m = hf_get(j, key);
    if (m == NULL) {
        return 0;
    }
    if (json_str(m) == NULL) {
        return err_set(e, ERR_MODEL_CONFIG, WHERE "'%s' is no string", key);
    }
    *ret = json_str(m);
    return 0;
}

/* --- keys of the source --- */

const char *hf_key(struct hf *h, const char *tail)
{
    int n = snprintf(h->text_key, sizeof(h->text_key), "%s.%s",
                     h->family->arch, tail);
    must(n > 0 && (size_t)n < sizeof(h->text_key));
    return h->text_key;
}

int hf_put_u32(struct hf *h, const char *tail, uint32_t v, struct err *e)
{
    return made_u32(h->m, hf_key(h, tail), v, e);
}

int hf_put_f32(struct hf *h, const char *tail, double v, struct err *e)
{
    return made_f32(h->m, hf_key(h, tail), (float)v, e);
}

/* --- the family --- */

static int no_family(const char *type, struct err *e)
{
    char known[ERR_MSG_MAX / 2];
    size_t at = 0;
    known[0] = '\0';
    for (size_t i = 0; i < hf_n_families && at < sizeof(known); i++) {
        int n = snprintf(known + at, sizeof(known) - at, "%s%s",
                         i > 0 ? ", " : "", hf_families[i].model_type);
        at += n > 0 ? (size_t)n : 0;
    }
    return err_set(e, ERR_ARCH,
                   WHERE "model_type '%.64s' (aned converts %s)", type, known);
}

/* A model with other senses too has its language model's numbers in
 * text_config. */
static int find_family(struct hf *h, struct err *e)
{
    const char *type = "";
    h->text = h->root;
    if (hf_get(h->root, "text_config") != NULL) {
        h->text = hf_get(h->root, "text_config");
    }
    RETERR(hf_str(h->text, "model_type", &type, e));
    for (size_t i = 0; i < hf_n_families; i++) {
        if (strcmp(hf_families[i].model_type, type) == 0) {
            h->family = &hf_families[i];
            return 0;
        }
    }
    return no_family(type, e);
}

/* The class says what stands on top of the decoder. */
static int check_class(const struct hf *h, struct err *e)
{
    const struct json *list = hf_get(h->root, "architectures");
    const char *name = json_str(json_first(list));
    const char *const *bodies = h->family->bodies;
    if (list == NULL) {
        return 0;
    }
    for (size_t i = 0; bodies != NULL && bodies[i] != NULL; i++) {
        if (name != NULL && json_count(list) == 1 &&
            strcmp(name, bodies[i]) == 0) {
            return 0;
        }
    }
    bool text = h->text != h->root; /* its class is of all senses together */
    bool ok = name != NULL && json_count(list) == 1 &&
              (text ? strstr(name, "ForConditionalGeneration") != NULL
                    : strcmp(name, h->family->head) == 0);
    return ok ? 0
              : err_set(e, ERR_UNSUPPORTED,
                        WHERE "architectures '%.64s': %s is converted",
                        name != NULL ? name : "", h->family->head);
}

static int check_act(const struct hf *h, struct err *e)
{
    static const char *const keys[] = {"hidden_activation", "hidden_act"};
    for (size_t i = 0; i < countof(keys); i++) {
        const char *act = NULL;
        bool known = false;
        RETERR(hf_str(h->text, keys[i], &act, e));
        for (size_t k = 0; act != NULL && h->family->acts[k] != NULL; k++) {
            known = known || strcmp(act, h->family->acts[k]) == 0;
        }
        if (act != NULL && !known) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "%s '%.32s' is not converted in this family",
                           keys[i], act);
        }
        if (act != NULL) {
            return 0; /* the first one that is there holds */
        }
    }
    return 0;
}

/* --- numbers --- */

/* What the class has where config.json says nothing; 0: it must say it. */
static uint32_t default_of(const struct hf *h, const char *key)
{
    static const struct {
        const char *model_type, *key;
        uint32_t value;
    } rows[] = {
        {"gemma3_text", "num_attention_heads",     8     },
        {"gemma3_text", "num_key_value_heads",     4     },
        {"gemma3_text", "head_dim",                256   },
        {"gemma3_text", "max_position_embeddings", 131072},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        if (strcmp(rows[i].model_type, h->family->model_type) == 0 &&
            strcmp(rows[i].key, key) == 0) {
            return rows[i].value;
        }
    }
    return 0;
}

static int read_numbers(struct hf *h, struct err *e)
{
    const struct json *j = h->text;
    const struct {
        const char *key;
        uint32_t *to;
        uint32_t most;
    } rows[] = {
        {"num_hidden_layers",       &h->n_layers, MODEL_LAYERS_MAX},
        {"hidden_size",             &h->d_model,  MODEL_DIM_MAX   },
        {"num_attention_heads",     &h->n_heads,  MODEL_DIM_MAX   },
        {"max_position_embeddings", &h->context,  UINT32_MAX      },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        *rows[i].to = default_of(h, rows[i].key);
        RETERR(hf_u32(j, hf_known_as(h, rows[i].key), *rows[i].to == 0, 1,
                      rows[i].most, rows[i].to, e));
    }
    h->n_kv = default_of(h, "num_key_value_heads");
    h->n_kv = h->n_kv > 0 ? h->n_kv : h->n_heads;
    RETERR(hf_u32(j, "num_key_value_heads", false, 1, h->n_heads, &h->n_kv,
                  e));
    h->d_head = default_of(h, "head_dim");
    h->d_head = h->d_head > 0 ? h->d_head : h->d_model / h->n_heads;
    RETERR(hf_u32(j, "head_dim", false, 1, MODEL_DIM_MAX, &h->d_head, e));
    if (h->d_head == 0) {
        return err_set(e, ERR_MODEL_CONFIG,
                       WHERE "more heads (%u) than width (%u)", h->n_heads,
                       h->d_model);
    }
    RETERR(hf_u32(j, "vocab_size", false, 1, MODEL_VOCAB_MAX, &h->vocab, e));
    RETERR(hf_bool(h->root, "tie_word_embeddings", &h->tied, e));
    return hf_bool(j, "tie_word_embeddings", &h->tied, e);
}

static int put_numbers(struct hf *h, struct err *e)
{
    const struct json *j = h->text;
    uint32_t ff = 0;
    double eps = strcmp(h->family->model_type, "gemma3_text") == 0 ? 1e-6 : 0;
    RETERR(hf_put_u32(h, "block_count", h->n_layers, e));
    RETERR(hf_put_u32(h, "context_length", h->context, e));
    RETERR(hf_put_u32(h, "embedding_length", h->d_model, e));
    RETERR(hf_put_u32(h, "attention.head_count", h->n_heads, e));
    if (!h->family->encodes) {
        RETERR(hf_num(j,
                      h->family->eps != NULL ? h->family->eps : "rms_norm_eps",
                      !(eps > 0), 0, 0.1, &eps, e));
        RETERR(hf_put_f32(h, "attention.layer_norm_rms_epsilon", eps, e));
    }
    if (!h->family->own_sizes) {
        RETERR(hf_u32(j, hf_known_as(h, "intermediate_size"), true, 1,
                      MODEL_DIM_MAX, &ff, e));
        RETERR(hf_put_u32(h, "feed_forward_length", ff, e));
        RETERR(hf_put_u32(h, "attention.head_count_kv", h->n_kv, e));
        if (hf_get(j, "head_dim") != NULL ||
            (uint64_t)h->d_head * h->n_heads != h->d_model) {
            RETERR(hf_put_u32(h, "attention.key_length", h->d_head, e));
            RETERR(hf_put_u32(h, "attention.value_length", h->d_head, e));
        }
    }
    if (h->family->full_rope) {
        RETERR(h->vocab > 0 ? hf_put_u32(h, "vocab_size", h->vocab, e) : 0);
        RETERR(hf_put_u32(h, "rope.dimension_count", h->d_head, e));
    }
    return 0;
}

int hf_read_config(struct hf *h, struct err *e)
{
    if (json_type(h->root) != JSON_OBJECT) {
        return err_set(e, ERR_MODEL_CONFIG, WHERE "no object");
    }
    RETERR(find_family(h, e));
    RETERR(h->family->renew != NULL ? h->family->renew(h, e) : 0);
    RETERR(h->family->check != NULL ? h->family->check(h, e) : 0);
    RETERR(check_class(h, e));
    RETERR(check_act(h, e));
    RETERR(read_numbers(h, e));
    return put_numbers(h, e);
}
