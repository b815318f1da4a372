#include "convert/import/manifest.h"

#include <stddef.h>
#include <string.h>

#include "base/file.h"
#include "base/parse.h"
#include "proto/json.h"

#define TEXT_MAX 256u /* bytes of a string of the manifest, with the NUL */
/* Strings and lists are never more than the text that they came from. */
#define ARENA_MAX (IMPORT_JSON_MAX * 8)

enum number_kind { NUMBER_U32, NUMBER_F32 };

/* A key that is one number. */
struct number {
    const char *key;
    enum number_kind kind;
    size_t at;
    double lo, hi;
    bool need;
};

#define FIELD(f) offsetof(struct import_manifest, f)

static const struct number numbers[] = {
    {"n_layers",       NUMBER_U32, FIELD(n_layers),   1,    MODEL_LAYERS_MAX,  true },
    {"d_model",        NUMBER_U32, FIELD(d_model),    1,    MODEL_DIM_MAX,     true },
    {"n_heads",        NUMBER_U32, FIELD(n_heads),    1,    MODEL_DIM_MAX,     true },
    {"n_kv_heads",     NUMBER_U32, FIELD(n_kv_heads), 1,    MODEL_DIM_MAX,     true },
    {"d_head",         NUMBER_U32, FIELD(d_head),     1,    MODEL_DIM_MAX,     true },
    {"d_ff",           NUMBER_U32, FIELD(d_ff),       1,    MODEL_DIM_MAX,     true },
    {"rope_dim",       NUMBER_U32, FIELD(rope_dim),   2,    MODEL_DIM_MAX,     false},
    {"vocab_size",     NUMBER_U32, FIELD(vocab),      1,    MODEL_VOCAB_MAX,   true },
    {"max_seq_len",    NUMBER_U32, FIELD(context),    1,    MODEL_CONTEXT_MAX, true },
    {"rms_norm_eps",   NUMBER_F32, FIELD(norm_eps),   0,    1,                 true },
    {"rope_freq_base", NUMBER_F32, FIELD(rope_base),  1e-6, 1e30,              true },
    {"eos_token_id",   NUMBER_U32, FIELD(eos),        0,    MODEL_VOCAB_MAX,   false},
    {"bos_token_id",   NUMBER_U32, FIELD(bos),        0,    MODEL_VOCAB_MAX,   false},
    {"quant_bits",     NUMBER_U32, FIELD(quant_bits), 0,    32,                false},
    {"rangedim_t_max", NUMBER_U32, FIELD(t_max),      1,    ENGINE_CHUNK_MAX,  false},
};

/* Keys that are read by name below, or whose value changes nothing here: which
 * file the packages were made of, and that the head has the embedding's
 * weights (it has its own copy of them). */
static const char *const others[] = {
    "artifacts_version",
    "model_family",
    "embed_bin",
    "layers",
    "lm_head_shards",
    "speculative_verifier",
    "gguf",
    "tie_word_embeddings",
};

static bool one_of(const char *v, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(v, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static const struct number *find_number(const char *key)
{
    for (size_t i = 0; i < countof(numbers); i++) {
        if (strcmp(numbers[i].key, key) == 0) {
            return &numbers[i];
        }
    }
    return NULL;
}

static bool absent(const struct json *j, const char *key)
{
    const struct json *v = json_get(j, key);
    return v == NULL || json_type(v) == JSON_NULL;
}

/* --- options --- */

/* "KEY=NUMBER" into the tree: then it is read like all else. */
static int add_set(struct json *j, const char *set, struct err *e)
{
    char key[64];
    double v = 0;
    const char *eq = strchr(set, '=');
    size_t n = eq != NULL ? (size_t)(eq - set) : 0;
    if (n == 0 || n >= sizeof(key) || !parse_double(eq + 1, &v)) {
        return err_set(e, ERR_INVALID, "set '%.64s': KEY=NUMBER", set);
    }
    memcpy(key, set, n);
    key[n] = '\0';
    if (find_number(key) == NULL) {
        return err_set(e, ERR_INVALID, "set: no such number '%s'", key);
    }
    if (json_get(j, key) != NULL) {
        return err_set(e, ERR_INVALID,
                       "set: the manifest has %s; only what it lacks can be "
                       "set",
                       key);
    }
    json_add_num(j, key, v);
    return 0;
}

/* --- numbers --- */

static int read_number(const struct json *j, const struct number *r,
                       struct import_manifest *m, struct err *e)
{
    void *at = (char *)m + r->at;
    int64_t i = 0;
    double v = 0;
    if (absent(j, r->key)) {
        return !r->need ? 0
                        : err_set(e, ERR_CONVERT,
                                  "%s is absent; --set %s=NUMBER gives it",
                                  r->key, r->key);
    }
    if (r->kind == NUMBER_F32) {
        RETERR(json_want_num(j, r->key, true, r->lo, r->hi, &v, e));
        memcpy(at, &(float){(float)v}, sizeof(float));
        return 0;
    }
    RETERR(
        json_want_int(j, r->key, true, (int64_t)r->lo, (int64_t)r->hi, &i, e));
    memcpy(at, &(uint32_t){(uint32_t)i}, sizeof(uint32_t));
    return 0;
}

static int check_numbers(struct import_manifest *m, struct err *e)
{
    m->rope_dim = m->rope_dim != 0 ? m->rope_dim : m->d_head;
    if (m->n_heads % m->n_kv_heads != 0) {
        return err_set(e, ERR_CONVERT,
                       "n_heads %u is no multiple of n_kv_heads "
                       "%u",
                       m->n_heads, m->n_kv_heads);
    }
    if (m->rope_dim % 2 != 0 || m->rope_dim > m->d_head) {
        return err_set(e, ERR_CONVERT,
                       "rope_dim %u: even, and at most d_head "
                       "(%u)",
                       m->rope_dim, m->d_head);
    }
    const uint32_t ids[] = {m->eos, m->bos};
    for (size_t i = 0; i < countof(ids); i++) {
        if (ids[i] != UINT32_MAX && ids[i] >= m->vocab) {
            return err_set(e, ERR_CONVERT,
                           "%s_token_id %u is not in the vocabulary of %u",
                           i == 0 ? "eos" : "bos", ids[i], m->vocab);
        }
    }
    return 0;
}

static int read_numbers(const struct json *j, struct import_manifest *m,
                        struct err *e)
{
    m->eos = m->bos = UINT32_MAX;
    for (size_t i = 0; i < countof(numbers); i++) {
        RETERR(read_number(j, &numbers[i], m, e));
    }
    return check_numbers(m, e);
}

/* --- names and paths --- */

static int keep(struct import_manifest *m, const char *text, const char **ret,
                struct err *e)
{
    *ret = arena_str(&m->arena, text);
    return *ret != NULL ? 0 : err_set(e, ERR_NOMEM, "manifest");
}

static int want_text(const struct json *j, const char *key, const char **ret,
                     struct err *e)
{
    RETERR(json_want_str(j, key, true, ret, e));
    return **ret != '\0' && strlen(*ret) < TEXT_MAX
               ? 0
               : err_set(e, ERR_CONVERT, "%s is empty or over %u bytes", key,
                         TEXT_MAX - 1);
}

static bool control(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '\\') {
            return true;
        }
    }
    return false;
}

static int check_path(const char *key, const char *path, struct err *e)
{
    if (path[0] == '/') {
        return err_set(e, ERR_CONVERT,
                       "%s '%.200s' is absolute; write it relative to the "
                       "manifest",
                       key, path);
    }
    if (!file_path_ok(path) || control(path)) {
        return err_set(e, ERR_CONVERT,
                       "%s '%.200s' must be a path below the manifest's "
                       "folder, without '.' and '..'",
                       key, path);
    }
    return 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t k = strlen(end);
    return n > k && strcmp(text + n - k, end) == 0;
}

/* The .mlpackage that the entry speaks of. */
static int read_package(const struct json *j, struct import_manifest *m,
                        const char **ret, struct err *e)
{
    static const char *const keys[] = {"path", "mlmodelc", "mlpackage"};
    static const char compiled[] = ".mlmodelc";
    static const char package[] = ".mlpackage";
    char path[TEXT_MAX + sizeof(package)];
    const char *text = NULL;
    const char *key = NULL;
    for (size_t i = 0; i < countof(keys); i++) {
        if (absent(j, keys[i])) {
            continue;
        }
        if (key != NULL) {
            return err_set(e, ERR_CONVERT, "%s beside %s", keys[i], key);
        }
        key = keys[i];
    }
    key = key != NULL ? key : keys[0];
    RETERR(want_text(j, key, &text, e));
    RETERR(check_path(key, text, e));
    if (!ends_with(text, compiled) && !ends_with(text, package)) {
        return err_set(e, ERR_CONVERT,
                       "%s '%.200s' is no .mlpackage (or the .mlmodelc "
                       "compiled from one)",
                       key, text);
    }
    size_t n = strlen(text);
    n -= ends_with(text, compiled) ? sizeof(compiled) - 1 : sizeof(package) - 1;
    (void)snprintf(path, sizeof(path), "%.*s%s", (int)n, text, package);
    return keep(m, path, ret, e);
}

/* --- lists --- */

/* What the two lists differ in. */
struct list_form {
    const char *key, *first, *last, *index;
    size_t max; /* of last */
    const char *what;
};

static int read_part(const struct json *j, const struct list_form *f, size_t i,
                     uint32_t at, struct import_manifest *m,
                     struct import_part *p, struct err *e)
{
    const char *const known[] = {f->first,   f->last,     "path",
                                 "mlmodelc", "mlpackage", f->index};
    int64_t first = 0;
    int64_t last = 0;
    int64_t index = (int64_t)i;
    if (json_type(j) != JSON_OBJECT) {
        return err_set(e, ERR_CONVERT, "not an object");
    }
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        if (!one_of(json_key(c), known, countof(known))) {
            return err_set(e, ERR_UNSUPPORTED,
                           "the key '%.64s' is not understood; it could "
                           "change the arithmetic",
                           json_key(c));
        }
    }
    RETERR(json_want_int(j, f->first, true, 0, (int64_t)f->max, &first, e));
    RETERR(json_want_int(j, f->last, true, 0, (int64_t)f->max, &last, e));
    RETERR(json_want_int(j, f->index, false, 0, SHARDS_MAX, &index, e));
    if (first != at || last <= first || index != (int64_t)i) {
        return err_set(e, ERR_CONVERT,
                       "%s [%lld, %lld) do not follow %u; they must be in "
                       "order, without gaps",
                       f->what, (long long)first, (long long)last, at);
    }
    p->first = (uint32_t)first;
    p->last = (uint32_t)last;
    return read_package(j, m, &p->path, e);
}

static int read_list(const struct json *root, const struct list_form *f,
                     struct import_manifest *m, struct import_part **ret,
                     size_t *ret_n, struct err *e)
{
    const struct json *a = json_get(root, f->key);
    size_t n = a != NULL && json_type(a) == JSON_ARRAY ? json_count(a) : 0;
    if (n == 0 || n > SHARDS_MAX) {
        return err_set(e, ERR_CONVERT, "%s is not a list of 1 to %u packages",
                       f->key, SHARDS_MAX);
    }
    *ret = arena_array(&m->arena, n, sizeof(**ret));
    if (*ret == NULL) {
        return err_set(e, ERR_NOMEM, "%s", f->key);
    }
    uint32_t at = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        int rc = read_part(c, f, *ret_n, at, m, &(*ret)[*ret_n], e);
        if (rc < 0) {
            return err_prefix(e, rc, "%s[%zu]", f->key, *ret_n);
        }
        at = (*ret)[(*ret_n)++].last;
    }
    return at == f->max ? 0
                        : err_set(e, ERR_CONVERT, "%s: %s end at %u of %zu",
                                  f->key, f->what, at, f->max);
}

/* Two entries with one package would share its state. */
static int check_once(const struct import_manifest *m, struct err *e)
{
    size_t n = m->n_parts + m->n_heads_parts;
    for (size_t i = 0; i < n; i++) {
        const char *a =
            i < m->n_parts ? m->parts[i].path : m->heads[i - m->n_parts].path;
        for (size_t k = 0; k < i; k++) {
            const char *b = k < m->n_parts ? m->parts[k].path
                                           : m->heads[k - m->n_parts].path;
            if (strcmp(a, b) == 0) {
                return err_set(e, ERR_CONVERT, "%.200s is listed twice", a);
            }
        }
    }
    return 0;
}

static int read_lists(const struct json *j, struct import_manifest *m,
                      struct err *e)
{
    const struct list_form layers = {
        .key = "layers",
        .first = "start",
        .last = "end",
        .index = "shard_idx",
        .max = m->n_layers,
        .what = "layers",
    };
    const struct list_form heads = {
        .key = "lm_head_shards",
        .first = "vocab_start",
        .last = "vocab_end",
        .index = "shard_idx",
        .max = m->vocab,
        .what = "ids",
    };
    RETERR(read_list(j, &layers, m, &m->parts, &m->n_parts, e));
    RETERR(read_list(j, &heads, m, &m->heads, &m->n_heads_parts, e));
    return check_once(m, e);
}

/* --- all --- */

static int check_keys(const struct json *j, struct err *e)
{
    int64_t version = 1;
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        const char *key = json_key(c);
        if (find_number(key) == NULL && !one_of(key, others, countof(others))) {
            return err_set(e, ERR_UNSUPPORTED,
                           "the key '%.64s' is not understood; it could "
                           "change the arithmetic",
                           key);
        }
    }
    RETERR(json_want_int(j, "artifacts_version", false, 0, INT32_MAX, &version,
                         e));
    return version == 1 ? 0
                        : err_set(e, ERR_UNSUPPORTED,
                                  "artifacts_version %lld, aned reads 1",
                                  (long long)version);
}

static int read_root(struct json *j, const char *const *sets, size_t n_sets,
                     struct import_manifest *m, struct err *e)
{
    const char *text = NULL;
    if (json_type(j) != JSON_OBJECT) {
        return err_set(e, ERR_CONVERT, "not a JSON object");
    }
    RETERR(check_keys(j, e));
    for (size_t i = 0; i < n_sets; i++) {
        RETERR(add_set(j, sets[i], e));
    }
    RETERR(want_text(j, "model_family", &text, e));
    RETERR(keep(m, text, &m->family, e));
    RETERR(read_numbers(j, m, e));
    RETERR(want_text(j, "embed_bin", &text, e));
    RETERR(check_path("embed_bin", text, e));
    RETERR(keep(m, text, &m->embed, e));
    m->verifier = !absent(j, "speculative_verifier");
    return read_lists(j, m, e);
}

int import_manifest_read(const char *text, size_t n, const char *const *sets,
                         size_t n_sets, struct import_manifest *ret,
                         struct err *e)
{
    struct json *j = NULL;
    *ret = (struct import_manifest){.n_parts = 0};
    arena_init(&ret->arena, ARENA_MAX);
    RETERR(json_parse(text, n, &j, e));
    int rc = read_root(j, sets, n_sets, ret, e);
    json_free(j);
    return rc;
}

void import_manifest_fini(struct import_manifest *m)
{
    arena_fini(&m->arena);
}
