/* bundle.c - bundle.json into a struct bundle.
 *
 * The manifest is input from outside: it may have been edited. Every member is
 * checked for type and range while it is copied into the bundle's arena. Then
 * bundle_check compares the parts with each other, the files' sizes are
 * checked, and the recorded fingerprint must be the computed one.
 *
 *   { "format": 2, "name": ..., "architecture": ..., "n_layers": ..., ...
 *     "rope": {"dim", "base", "scale", "window", "magnitude", "factors": [],
 *              "long_factors": [], "original"},
 *     "rope_local": {...},                      only when layers differ
 *     "layers": [{"kind", "n_heads", ...}],     layer.h, by bundle_layers.c
 *     "logit_scale", "logit_cap", "d_ple", "ple_file",
 *     "kind": "encoder", "labels": [...], "position_file",   of encoders,
 *     "pooling": "mean" | "cls" | "last",       only where the source says it
 *     "shards": [{"path", "first", "last", "t_min", "t_max",
 *                 "functions": [{"name", "t"}], "weight_bytes",
 *                 "gives": [{"name", "layer", "role"}], "takes": the same,
 *                 by bundle_ports.c}],           only where there are some
 *     "groups": [...],                          packages of experts, where a
 *                                               layer is sparse (bundle_experts.c)
 *     "heads": [{"path", "vocab_first", "vocab_last", "t_min", "t_max",
 *                "functions": [...],            only where there are several
 *                "weight_bytes"}],
 *     "files": [{"path", "bytes", "sha256"}],
 *     "source": {"name", "bytes", "sha256"},
 *     "peaks": [{"name", "peak"}], "fingerprint": ..., "total_bytes": ... }
 *
 * Format 1 had "layer_local": [true, ...] in place of "layers" and what follows
 * it, and of a rope neither magnitude nor a second list.
 */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "model/bundle_impl.h"
#include "proto/json.h"

#define BYTES_MAX ((int64_t)1 << 48) /* one file; beyond any disk's model */
#define PEAKS_MAX 65536u
/* Copied strings and tables never need more than the text they came from,
 * beyond struct overhead. */
#define ARENA_MAX (BUNDLE_JSON_MAX * 8)

static int want_u32(const struct json *j, const char *key, uint32_t lo,
                    uint32_t hi, uint32_t *ret, struct err *e)
{
    int64_t v = 0;
    int rc = json_want_int(j, key, true, lo, hi, &v, e);
    if (rc == 0) {
        *ret = (uint32_t)v;
    }
    return rc;
}

static int want_bytes(const struct json *j, const char *key, uint64_t *ret,
                      struct err *e)
{
    int64_t v = 0;
    int rc = json_want_int(j, key, true, 0, BYTES_MAX, &v, e);
    if (rc == 0) {
        *ret = (uint64_t)v;
    }
    return rc;
}

static int want_f32(const struct json *j, const char *key, double lo, double hi,
                    float *ret, struct err *e)
{
    double v = 0;
    int rc = json_want_num(j, key, true, lo, hi, &v, e);
    if (rc == 0) {
        *ret = (float)v;
    }
    return rc;
}

int bundle_want_str(struct bundle *b, const struct json *j, const char *key,
                    size_t max, const char **ret, struct err *e)
{
    const char *v = NULL;
    int rc = json_want_str(j, key, true, &v, e);
    if (rc < 0) {
        return rc;
    }
    if (*v == '\0' || strlen(v) >= max) {
        return err_set(e, ERR_INVALID, "%s is empty or too long", key);
    }
    const char *copy = arena_str(&b->arena, v);
    if (copy == NULL) {
        return err_set(e, ERR_NOMEM, "%s", key);
    }
    *ret = copy;
    return 0;
}

int bundle_want_sha256(const struct json *j, const char *key,
                       char out[SHA256_HEX], struct err *e)
{
    const char *v = NULL;
    int rc = json_want_str(j, key, true, &v, e);
    if (rc < 0) {
        return rc;
    }
    if (strlen(v) != SHA256_HEX - 1 ||
        strspn(v, "0123456789abcdef") != SHA256_HEX - 1) {
        return err_set(e, ERR_INVALID, "%s is not a SHA-256", key);
    }
    memcpy(out, v, SHA256_HEX);
    return 0;
}

/* Member `key` of the root as an array of at most max elements; *ret_items has
 * room for all of them. */
static int want_array(struct bundle *b, const struct json *j, const char *key,
                      size_t max, size_t item_size, const struct json **ret,
                      void **ret_items, size_t *ret_n, struct err *e)
{
    const struct json *a = json_get(j, key);
    if (a == NULL || json_type(a) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID, "%s is not an array", key);
    }
    size_t n = json_count(a);
    if (n > max) {
        return err_set(e, ERR_INVALID, "%s has more than %zu elements", key,
                       max);
    }
    void *items = arena_array(&b->arena, n > 0 ? n : 1, item_size);
    if (items == NULL) {
        return err_set(e, ERR_NOMEM, "%s", key);
    }
    *ret = a;
    *ret_items = items;
    *ret_n = n;
    return 0;
}

/* Absent where the source does not say, and in older bundles. */
static int read_pooling(struct bundle *b, const struct json *j, struct err *e)
{
    const char *v = NULL;
    RETERR(json_want_str(j, "pooling", false, &v, e));
    b->pooling = pooling_parse(v);
    return v == NULL || b->pooling != POOL_NONE
               ? 0
               : err_set(e, ERR_INVALID, "pooling is mean, cls or last");
}

/* Bundles that are older than the word have logits. */
static int read_output(struct bundle *b, const struct json *j, struct err *e)
{
    const char *v = NULL;
    RETERR(json_want_str(j, "output", false, &v, e));
    b->argmax = v != NULL && strcmp(v, "argmax") == 0;
    return v == NULL || b->argmax || strcmp(v, "logits") == 0
               ? 0
               : err_set(e, ERR_INVALID, "output is logits or argmax");
}

static int read_fields(struct bundle *b, const struct json *j, struct err *e)
{
    for (size_t i = 0; i < countof(bundle_u32s); i++) {
        const struct bundle_u32 *r = &bundle_u32s[i];
        RETERR(want_u32(j, r->key, r->lo, r->hi, bundle_at(b, r->at), e));
    }
    for (size_t i = 0; i < countof(bundle_f32s); i++) {
        const struct bundle_f32 *r = &bundle_f32s[i];
        RETERR(want_f32(j, r->key, r->lo, r->hi, bundle_at(b, r->at), e));
    }
    for (size_t i = 0; i < countof(bundle_strs); i++) {
        const struct bundle_str *r = &bundle_strs[i];
        RETERR(bundle_want_str(b, j, r->key, BUNDLE_PATH_MAX,
                               bundle_at(b, r->at), e));
    }
    RETERR(read_output(b, j, e));
    RETERR(read_pooling(b, j, e));
    RETERR(bundle_read_labels(b, j, e));
    RETERR(json_want_num(j, "margin", true, 0, 1e300, &b->margin, e));
    RETERR(json_want_bool(j, "eps_omitted", true, &b->eps_omitted, e));
    RETERR(want_bytes(j, "total_bytes", &b->total_bytes, e));
    RETERR(bundle_read_calibration(b, json_get(j, "calibration"), e));
    return bundle_want_sha256(j, "fingerprint", b->fingerprint, e);
}

static int read_source(struct bundle *b, const struct json *j, struct err *e)
{
    const struct json *s = json_get(j, "source");
    int rc = 0;
    CHECK(bundle_want_str(b, s, "name", BUNDLE_PATH_MAX, &b->source_name, e));
    CHECK(want_bytes(s, "bytes", &b->source_bytes, e));
    CHECK(bundle_want_sha256(s, "sha256", b->source_sha256, e));
out:
    return rc < 0 ? err_prefix(e, rc, "source") : 0;
}

static int read_factors(struct bundle *b, const struct json *j, const char *key,
                        const float **ret, size_t *ret_n, struct err *e)
{
    const struct json *a = NULL;
    void *items = NULL;
    RETERR(want_array(b, j, key, MODEL_DIM_MAX / 2, sizeof(float), &a, &items,
                      ret_n, e));
    float *factors = items;
    size_t i = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        if (json_type(c) != JSON_NUMBER) {
            return err_set(e, ERR_INVALID, "%s are not numbers", key);
        }
        factors[i++] = (float)json_num(c);
    }
    *ret = i > 0 ? factors : NULL;
    return 0;
}

static int read_lists(struct bundle *b, const struct json *j,
                      struct bundle_rope *r, struct err *e)
{
    size_t n = 0;
    size_t n_long = 0;
    r->magnitude = 1;
    RETERR(read_factors(b, j, "factors", &r->factors, &n, e));
    r->n_factors = (uint32_t)n;
    if (b->format == 1) {
        return 0;
    }
    RETERR(want_f32(j, "magnitude", 1e-6, 1e6, &r->magnitude, e));
    RETERR(want_u32(j, "original", 0, UINT32_MAX, &r->original, e));
    RETERR(read_factors(b, j, "long_factors", &r->long_factors, &n_long, e));
    return n_long == 0 || n_long == n
               ? 0
               : err_set(e, ERR_INVALID, "%zu long_factors beside %zu factors",
                         n_long, n);
}

static int read_rope(struct bundle *b, const struct json *root, const char *key,
                     bool need, struct bundle_rope *r, struct err *e)
{
    const struct json *j = json_get(root, key);
    if (!need && (j == NULL || json_type(j) == JSON_NULL)) {
        return 0;
    }
    int rc = 0;
    CHECK(want_u32(j, "dim", 2, MODEL_DIM_MAX, &r->dim, e));
    CHECK(want_f32(j, "base", 1e-6, 1e30, &r->base, e));
    CHECK(want_f32(j, "scale", 1e-9, 1e9, &r->scale, e));
    CHECK(want_u32(j, "window", 0, MODEL_CONTEXT_MAX, &r->window, e));
    CHECK(read_lists(b, j, r, e));
out:
    r->present = rc == 0;
    return rc < 0 ? err_prefix(e, rc, "%s", key) : 0;
}

/* Format 1: a flag a layer, and else they are alike. */
static int read_locals(struct bundle *b, const struct json *j,
                       struct layer *layers, struct err *e)
{
    const struct json *a = json_get(j, "layer_local");
    if (a == NULL || json_type(a) != JSON_ARRAY ||
        json_count(a) != b->n_layers) {
        return err_set(e, ERR_INVALID,
                       "layer_local is not one entry for each of %u layers",
                       b->n_layers);
    }
    uint32_t i = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        if (json_type(c) != JSON_BOOL) {
            return err_set(e, ERR_INVALID, "layer_local is not true or false");
        }
        bundle_plain_layer(b, i, json_bool(c), &layers[i]);
        i++;
    }
    return 0;
}

static int read_layers(struct bundle *b, const struct json *j, struct err *e)
{
    struct layer *layers = arena_array(&b->arena, b->n_layers, sizeof(*layers));
    if (layers == NULL) {
        return err_set(e, ERR_NOMEM, "layers");
    }
    b->layers = layers;
    b->logit_scale = 1;
    if (b->format == 1) {
        return read_locals(b, j, layers, e);
    }
    const struct json *file = json_get(j, "ple_file");
    RETERR(want_f32(j, "logit_scale", -1e6, 1e6, &b->logit_scale, e));
    RETERR(want_f32(j, "logit_cap", 0, 1e6, &b->logit_cap, e));
    RETERR(want_u32(j, "d_ple", 0, MODEL_DIM_MAX, &b->d_ple, e));
    if (file != NULL && json_type(file) != JSON_NULL) {
        RETERR(bundle_want_str(b, j, "ple_file", BUNDLE_PATH_MAX, &b->ple_file,
                               e));
    }
    return bundle_read_layers(b, json_get(j, "layers"), layers, e);
}

/* What a shard or a head has of them. */
struct functions {
    size_t n;
    const char **names;
    uint32_t *t;
};

static int read_functions(struct bundle *b, const struct json *j,
                          struct functions *ret, struct err *e)
{
    const struct json *a = NULL;
    void *names = NULL;
    RETERR(want_array(b, j, "functions", ENGINE_CHUNK_MAX, sizeof(*ret->names),
                      &a, &names, &ret->n, e));
    ret->names = names;
    ret->t = arena_array(&b->arena, ret->n + 1, sizeof(*ret->t));
    if (ret->t == NULL) {
        return err_set(e, ERR_NOMEM, "functions");
    }
    size_t i = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        RETERR(bundle_want_str(b, c, "name", BUNDLE_TEXT_MAX, &ret->names[i],
                               e));
        RETERR(want_u32(c, "t", 0, ENGINE_CHUNK_MAX, &ret->t[i], e));
        i++;
    }
    return 0;
}

static int read_shard(struct bundle *b, const struct json *j,
                      struct bundle_shard *s, struct err *e)
{
    RETERR(bundle_want_str(b, j, "path", BUNDLE_PATH_MAX, &s->path, e));
    RETERR(want_u32(j, "first", 0, MODEL_LAYERS_MAX, &s->first, e));
    RETERR(want_u32(j, "last", 1, MODEL_LAYERS_MAX, &s->last, e));
    RETERR(want_u32(j, "t_min", 1, ENCODER_ROWS_MAX, &s->t_min, e));
    RETERR(want_u32(j, "t_max", 1, ENCODER_ROWS_MAX, &s->t_max, e));
    RETERR(want_bytes(j, "weight_bytes", &s->weight_bytes, e));
    struct functions f = {0};
    RETERR(read_functions(b, j, &f, e));
    s->n_functions = f.n;
    s->functions = f.names;
    s->function_t = f.t;
    return bundle_read_ports(b, j, s, e);
}

static int read_head(struct bundle *b, const struct json *j,
                     struct bundle_head *h, struct err *e)
{
    RETERR(bundle_want_str(b, j, "path", BUNDLE_PATH_MAX, &h->path, e));
    RETERR(want_u32(j, "vocab_first", 0, MODEL_VOCAB_MAX, &h->vocab_first, e));
    RETERR(want_u32(j, "vocab_last", 1, MODEL_VOCAB_MAX, &h->vocab_last, e));
    RETERR(want_u32(j, "t_min", 1, ENCODER_ROWS_MAX, &h->t_min, e));
    RETERR(want_u32(j, "t_max", 1, ENCODER_ROWS_MAX, &h->t_max, e));
    RETERR(want_bytes(j, "weight_bytes", &h->weight_bytes, e));
    if (json_get(j, "functions") == NULL) {
        return 0;
    }
    struct functions f = {0};
    RETERR(read_functions(b, j, &f, e));
    h->n_functions = f.n;
    h->functions = f.names;
    h->function_t = f.t;
    return 0;
}

static int read_shards(struct bundle *b, const struct json *j, struct err *e)
{
    const struct json *a = NULL;
    void *items = NULL;
    int rc = want_array(b, j, "shards", SHARDS_MAX, sizeof(*b->shards), &a,
                        &items, &b->n_shards, e);
    if (rc < 0) {
        return rc;
    }
    b->shards = items;
    size_t i = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        rc = read_shard(b, c, &b->shards[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "shards[%zu]", i);
        }
        i++;
    }
    return 0;
}

static int read_heads(struct bundle *b, const struct json *j, struct err *e)
{
    const struct json *a = NULL;
    void *items = NULL;
    int rc = want_array(b, j, "heads", SHARDS_MAX, sizeof(*b->heads), &a,
                        &items, &b->n_heads_shards, e);
    if (rc < 0) {
        return rc;
    }
    b->heads = items;
    size_t i = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        rc = read_head(b, c, &b->heads[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "heads[%zu]", i);
        }
        i++;
    }
    return 0;
}

static int read_file(struct bundle *b, const struct json *j,
                     struct bundle_file *f, struct err *e)
{
    RETERR(bundle_want_str(b, j, "path", BUNDLE_PATH_MAX, &f->path, e));
    RETERR(want_bytes(j, "bytes", &f->bytes, e));
    return bundle_want_sha256(j, "sha256", f->sha256, e);
}

static int read_files(struct bundle *b, const struct json *j, struct err *e)
{
    const struct json *a = NULL;
    void *items = NULL;
    int rc = want_array(b, j, "files", BUNDLE_FILES_MAX, sizeof(*b->files), &a,
                        &items, &b->n_files, e);
    if (rc < 0) {
        return rc;
    }
    b->files = items;
    size_t i = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        rc = read_file(b, c, &b->files[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "files[%zu]", i);
        }
        i++;
    }
    return 0;
}

static int read_peak(struct bundle *b, const struct json *j,
                     struct bundle_peak *p, struct err *e)
{
    RETERR(bundle_want_str(b, j, "name", BUNDLE_TEXT_MAX, &p->name, e));
    return json_want_num(j, "peak", true, 0, 1e300, &p->peak, e);
}

static int read_peaks(struct bundle *b, const struct json *j, struct err *e)
{
    const struct json *a = NULL;
    void *items = NULL;
    int rc = want_array(b, j, "peaks", PEAKS_MAX, sizeof(*b->peaks), &a, &items,
                        &b->n_peaks, e);
    if (rc < 0) {
        return rc;
    }
    b->peaks = items;
    size_t i = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        rc = read_peak(b, c, &b->peaks[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "peaks[%zu]", i);
        }
        i++;
    }
    return 0;
}

static int read_ropes(struct bundle *b, const struct json *j, struct err *e)
{
    RETERR(read_rope(b, j, "rope", true, &b->rope, e));
    return read_rope(b, j, "rope_local", false, &b->rope_local, e);
}

static int read_manifest(struct bundle *b, const struct json *j, struct err *e)
{
    int (*const parts[])(struct bundle *, const struct json *, struct err *) = {
        read_fields, read_source, read_ropes, read_layers,       read_shards,
        bundle_read_groups, read_heads,  read_files,  read_peaks, bundle_read_forms,
    };
    int64_t format = 0;
    RETERR(json_want_int(j, "format", true, 0, INT32_MAX, &format, e));
    if (format < 1 || format > BUNDLE_FORMAT) {
        return err_set(e, ERR_BUNDLE, "format %d, aned reads 1 to %d",
                       (int)format, BUNDLE_FORMAT);
    }
    b->format = (int)format;
    for (size_t i = 0; i < countof(parts); i++) {
        RETERR(parts[i](b, j, e));
    }
    return 0;
}

static int open_at(struct bundle *b, const struct json *j, struct err *e)
{
    char want[SHA256_HEX];
    RETERR(read_manifest(b, j, e));
    RETERR(bundle_check(b, e));
    RETERR(bundle_check_files(b, b->dir, e));
    bundle_fingerprint(b, want);
    if (strcmp(want, b->fingerprint) != 0) {
        return err_set(e, ERR_BUNDLE,
                       "fingerprint is not that of the numbers "
                       "and files");
    }
    return 0;
}

int bundle_open(const char *dir, struct bundle **ret, struct err *e)
{
    struct err local = {0};
    struct buf text = {0};
    struct json *j = NULL;
    char path[sizeof(((struct bundle *)0)->dir) + sizeof(BUNDLE_MANIFEST)];
    int rc = 0;

    if (e == NULL) {
        e = &local;
    }
    struct bundle *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return err_set(e, ERR_NOMEM, "bundle");
    }
    arena_init(&b->arena, ARENA_MAX);
    if (strlen(dir) >= sizeof(b->dir) ||
        !file_join(path, sizeof(path), dir, BUNDLE_MANIFEST)) {
        rc = err_set(e, ERR_BUNDLE, "the folder's path is too long");
        goto out;
    }
    memcpy(b->dir, dir, strlen(dir) + 1);
    rc = file_read(path, BUNDLE_JSON_MAX, &text, e);
    if (rc < 0) {
        goto out;
    }
    rc = json_parse(text.p != NULL ? text.p : "", text.n, &j, e);
    if (rc == 0) {
        rc = open_at(b, j, e);
    }
    if (rc < 0) {
        /* INVALID and JSON tell what is wrong inside: to the caller the
         * bundle is not sound. */
        rc = rc == ERR_INVALID || rc == ERR_JSON ? ERR_BUNDLE : rc;
        rc = err_prefix(e, rc, "%s", BUNDLE_MANIFEST);
        goto out;
    }
    *ret = b;
    b = NULL; /* given away */
out:
    bundle_close(b);
    json_free(j);
    buf_fini(&text);
    return rc;
}

void bundle_close(struct bundle *b)
{
    if (b == NULL) {
        return;
    }
    arena_fini(&b->arena);
    free(b);
}
