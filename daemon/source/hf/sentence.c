/* sentence.c - what a folder of the sentence-transformers library says of an
 * encoder beside config.json:
 *
 *   modules.json                       the steps: Transformer, Pooling, Normalize
 *   1_Pooling/config.json              how hidden states become one vector
 *   sentence_bert_config.json          the longest text
 *   config_sentence_transformers.json  a text that is put in front of all
 *
 * A folder without modules.json is a model of the transformers library; that
 * library takes the mean then, and so does a bundle that says nothing.
 * A step, a pooling or a text in front that aned does not do is refused by name.
 * Normalize says nothing: vectors are given with length 1, or raw where a request
 * asks for it.
 */
#include <string.h>

#include "base/num.h"
#include "source/hf/hf.h"

#define SENTENCE "sentence_bert_config.json"
#define PROMPTS  "config_sentence_transformers.json"

/* --- modules.json --- */

/* "sentence_transformers.models.Pooling": the last word; another library's
 * class is none. */
static const char *module_of(const struct json *j)
{
    static const char library[] = "sentence_transformers.";
    const char *type = json_str(json_get(j, "type"));
    if (type == NULL || strncmp(type, library, sizeof(library) - 1) != 0) {
        return NULL;
    }
    return strrchr(type, '.') + 1;
}

/* The steps in their order; where Pooling stands, its folder is the one that was
 * opened. */
static int check_modules(const struct json *modules, bool *ret_pools,
                         struct err *e)
{
    static const char *const steps[] = {"Transformer", "Pooling", "Normalize"};
    size_t next = 0;
    for (const struct json *c = json_first(modules); c != NULL;
         c = json_next(c)) {
        const char *name = module_of(c);
        const char *path = json_str(json_get(c, "path"));
        const char *type = json_str(json_get(c, "type"));
        size_t i = next;
        while (i < countof(steps) &&
               (name == NULL || strcmp(name, steps[i]) != 0)) {
            i++;
        }
        if (i == countof(steps) || (next == 0 && i > 0)) {
            return err_set(e, ERR_UNSUPPORTED,
                           "modules.json: a step '%.127s' here is not "
                           "converted; Transformer, Pooling and Normalize are",
                           type != NULL ? type : "");
        }
        if (i == 1) {
            *ret_pools = true;
            if (path == NULL || strcmp(path, HF_POOLING_DIR) != 0) {
                return err_set(e, ERR_UNSUPPORTED,
                               "modules.json: Pooling stands in '%.64s'; aned "
                               "reads " HF_POOLING_DIR,
                               path != NULL ? path : "");
            }
        }
        if (i == 0 && path != NULL && path[0] != '\0') {
            return err_set(e, ERR_UNSUPPORTED,
                           "modules.json: Transformer stands in '%.64s', not "
                           "in the folder itself: name that folder",
                           path);
        }
        next = i + 1;
    }
    return next > 0 ? 0
                    : err_set(e, ERR_MODEL_CONFIG,
                              "modules.json: no list of steps");
}

/* --- 1_Pooling/config.json --- */

/* Names of the library's, and GGUF's pooling_type; 0: not converted. */
static const struct mode {
    const char *name;
    const char *flag; /* in files of before version 6 */
    uint32_t type;
} modes[] = {
    {"mean",                 "pooling_mode_mean_tokens",          1},
    {"cls",                  "pooling_mode_cls_token",            2},
    {"lasttoken",            "pooling_mode_lasttoken",            3},
    {"max",                  "pooling_mode_max_tokens",           0},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", 0},
    {"weightedmean",         "pooling_mode_weightedmean_tokens",  0},
};

static const struct mode *mode_named(const char *name)
{
    for (size_t i = 0; name != NULL && i < countof(modes); i++) {
        if (strcmp(modes[i].name, name) == 0) {
            return &modes[i];
        }
    }
    return NULL;
}

/* The one mode that is on; the mean where none is, as in the library. */
static int mode_of_flags(const struct json *j, const struct mode **ret,
                         struct err *e)
{
    const struct mode *found = NULL;
    *ret = &modes[0];
    for (size_t i = 0; i < countof(modes); i++) {
        if (!json_bool(hf_get(j, modes[i].flag))) {
            continue;
        }
        if (found != NULL) {
            return err_set(e, ERR_UNSUPPORTED,
                           HF_POOLING ": %s beside %s is not converted: aned "
                           "gives one pooling",
                           modes[i].flag, found->flag);
        }
        found = &modes[i];
        *ret = found;
    }
    return 0;
}

static int read_mode(const struct json *j, const struct mode **ret,
                     struct err *e)
{
    const struct json *m = hf_get(j, "pooling_mode");
    const char *name = json_str(m);
    if (m == NULL) {
        return mode_of_flags(j, ret, e);
    }
    if (name == NULL && json_count(m) == 1) { /* a list of one */
        name = json_str(json_first(m));
    }
    const struct mode *found = mode_named(name);
    if (found == NULL) {
        return err_set(e, ERR_UNSUPPORTED,
                       HF_POOLING ": pooling_mode '%.64s' is not converted: "
                       "aned gives one of mean, cls and lasttoken",
                       name != NULL ? name : "of several");
    }
    *ret = found;
    return 0;
}

static int put_mode(struct hf *h, const struct json *j, struct err *e)
{
    const struct mode *mode = &modes[0];
    uint32_t width = h->d_model;
    RETERR(read_mode(j, &mode, e));
    if (mode->type == 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       HF_POOLING ": pooling '%s' is not converted; mean, cls "
                       "and lasttoken are",
                       mode->name);
    }
    const char *key = hf_get(j, "embedding_dimension") != NULL
                          ? "embedding_dimension"
                          : "word_embedding_dimension";
    if (hf_u32(j, key, false, 1, MODEL_DIM_MAX, &width, e) != 0 ||
        width != h->d_model) {
        return err_set(e, ERR_MODEL_CONFIG,
                       HF_POOLING ": %s is not the %u of config.json", key,
                       h->d_model);
    }
    return hf_put_u32(h, "pooling_type", mode->type, e);
}

static int put_pooling(struct hf *h, struct err *e)
{
    struct json *j = NULL;
    RETERR(hf_read_json(h, HF_POOLING, HF_CONFIG_MAX, &j, e));
    int rc = j != NULL ? put_mode(h, j, e)
                       : err_set(e, ERR_NOT_FOUND,
                                 HF_POOLING " does not stand in the folder, "
                                 "and modules.json has it");
    json_free(j);
    return rc;
}

/* --- the two others --- */

static int read_sentence(struct hf *h, const struct json *j, struct err *e)
{
    static const char *const known[] = {
        "max_seq_length", "do_lower_case", "transformer_task",
        "modality_config", "module_output_name", "unpad_inputs"};
    const char *task = "feature-extraction";
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        bool ok = json_type(c) == JSON_NULL ||
                  (json_type(c) == JSON_OBJECT && json_first(c) == NULL);
        for (size_t i = 0; i < countof(known); i++) {
            ok = ok || strcmp(json_key(c), known[i]) == 0;
        }
        if (!ok) {
            return err_set(e, ERR_UNSUPPORTED,
                           SENTENCE ": aned does not know '%.64s', and it may "
                           "change what the model computes",
                           json_key(c));
        }
    }
    RETERR(hf_str(j, "transformer_task", &task, e));
    if (strcmp(task, "feature-extraction") != 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       SENTENCE ": transformer_task '%.64s' is not converted",
                       task);
    }
    RETERR(hf_bool(j, "do_lower_case", &h->lowers, e));
    int rc = hf_u32(j, "max_seq_length", false, 1, UINT32_MAX, &h->text_max, e);
    return rc == 0 ? 0
                   : err_set(e, rc, SENTENCE ": max_seq_length is no number "
                                             "of tokens");
}

static int check_prompts(const struct json *j, struct err *e)
{
    const char *name = json_str(hf_get(j, "default_prompt_name"));
    const char *text = json_str(hf_get(hf_get(j, "prompts"),
                                       name != NULL ? name : ""));
    return name == NULL || (text != NULL && text[0] == '\0')
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         PROMPTS ": default_prompt_name '%.64s': aned puts "
                         "nothing in front of a text; set it to null, and let "
                         "clients write the prompt",
                         name);
}

int hf_put_sentence(struct hf *h, struct err *e)
{
    struct json *modules = NULL;
    struct json *sentence = NULL;
    struct json *prompts = NULL;
    bool pools = false;
    int rc = 0;
    CHECK(hf_read_json(h, "modules.json", HF_CONFIG_MAX, &modules, e));
    if (modules == NULL) {
        goto out;
    }
    CHECK(check_modules(modules, &pools, e));
    if (pools) {
        CHECK(put_pooling(h, e));
    }
    CHECK(hf_read_json(h, SENTENCE, HF_CONFIG_MAX, &sentence, e));
    CHECK(read_sentence(h, sentence, e));
    CHECK(hf_read_json(h, PROMPTS, HF_CONFIG_MAX, &prompts, e));
    CHECK(check_prompts(prompts, e));
out:
    json_free(modules);
    json_free(sentence);
    json_free(prompts);
    return rc;
}

int hf_put_text_max(struct hf *h, const struct json *tokenizer_config,
                    struct err *e)
{
    /* "no bound" is written as 1e30 */
    double most = json_num(hf_get(tokenizer_config, "model_max_length"));
    if (h->text_max == 0 && most >= 1 && most < (double)h->context) {
        h->text_max = (uint32_t)most;
    }
    return h->text_max > 0 && h->text_max < h->context
               ? hf_put_u32(h, "max_seq_length", h->text_max, e)
               : 0;
}
