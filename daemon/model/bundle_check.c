/* bundle_check.c - the rules for a manifest, and the model's fingerprint.
 *
 * The same checks run before a manifest is written and after one is read. So a
 * bundle that aned wrote opens; for a hostile one the error names the field.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/num.h"
#include "model/bundle_impl.h"

#define U32(f, lo, hi)                         \
    {                                          \
#f, offsetof(struct bundle, f), lo, hi \
    }
const struct bundle_u32 bundle_u32s[BUNDLE_N_U32] = {
    U32(n_layers, 1, MODEL_LAYERS_MAX), U32(d_model, 1, MODEL_DIM_MAX),
    U32(n_heads, 1, MODEL_DIM_MAX),     U32(n_kv_heads, 1, MODEL_DIM_MAX),
    U32(d_head, 1, MODEL_DIM_MAX),      U32(d_ff, 1, MODEL_DIM_MAX),
    U32(vocab, 1, MODEL_VOCAB_MAX),     U32(context, 1, MODEL_CONTEXT_MAX),
    U32(context_train, 0, UINT32_MAX), /* 0: the source does not tell */
};

/* The scales are finite and positive; 2^24 is far beyond any real one. */
const struct bundle_f32 bundle_f32s[BUNDLE_N_F32] = {
    U32(norm_eps, 0.0, 1.0),
    U32(embed_scale, 0x1p-24, 0x1p24),
    U32(residual_scale, 0x1p-24, 0x1p24),
};

const struct bundle_str bundle_strs[BUNDLE_N_STR] = {
    {"name",              offsetof(struct bundle, name),              false},
    {"architecture",      offsetof(struct bundle, architecture),      true },
    {"quant",             offsetof(struct bundle, quant),             true },
    {"shape",             offsetof(struct bundle, shape),             true },
    {"kv",                offsetof(struct bundle, kv),                true },
    {"norm",              offsetof(struct bundle, norm),              true },
    {"embed_file",        offsetof(struct bundle, embed_file),        true },
    {"tokenizer_file",    offsetof(struct bundle, tokenizer_file),    true },
    {"converter_version", offsetof(struct bundle, converter_version), false},
};

bool bundle_path_ok(const char *path)
{
    size_t n = strlen(path);
    if (n == 0 || n >= BUNDLE_PATH_MAX) {
        return false;
    }
    if (!file_path_ok(path)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f ||
            path[i] == '\\') {
            return false;
        }
    }
    return true;
}

int bundle_file_path(const char *dir, const char *path,
                     char out[static BUNDLE_PATH_MAX + 1024], struct err *e)
{
    if (!bundle_path_ok(path)) {
        return err_set(e, ERR_BUNDLE, "%s is not a path inside a bundle", path);
    }
    if (!file_join(out, BUNDLE_PATH_MAX + 1024, dir, path)) {
        return err_set(e, ERR_BUNDLE, "%s: the path is too long", path);
    }
    return 0;
}

static bool one_of(const char *s, const char *a, const char *b)
{
    return strcmp(s, a) == 0 || strcmp(s, b) == 0;
}

static int check_rope(const struct bundle *b, const struct bundle_rope *r,
                      const char *what, struct err *e)
{
    if (!r->present) {
        return 0;
    }
    if (r->dim == 0 || r->dim % 2 != 0) {
        return err_set(e, ERR_BUNDLE, "%s.dim %u is odd or 0", what, r->dim);
    }
    if (!(r->base > 0.0F) || !isfinite(r->base) || !(r->scale > 0.0F) ||
        !isfinite(r->scale)) {
        return err_set(e, ERR_BUNDLE, "%s.base or .scale is not positive",
                       what);
    }
    if (r->n_factors != 0 && r->n_factors != r->dim / 2) {
        return err_set(e, ERR_BUNDLE, "%s has %u factors for dim %u", what,
                       r->n_factors, r->dim);
    }
    const float *lists[] = {r->factors, r->long_factors};
    for (uint32_t i = 0; i < 2 * r->n_factors; i++) {
        const float *list = lists[i / r->n_factors];
        float f = list != NULL ? list[i % r->n_factors] : 1.0F;
        if (!(f > 0.0F) || !isfinite(f)) {
            return err_set(e, ERR_BUNDLE, "%s: factor %u is not positive", what,
                           i % r->n_factors);
        }
    }
    /* a sequence changes all its lists at once */
    if (r->long_factors != NULL &&
        (r->original == 0 ||
         num_min(r->original, b->context) != bundle_short_max(b))) {
        return err_set(e, ERR_BUNDLE,
                       "%s: its long list holds after %u positions, the other "
                       "kind's after %u",
                       what, r->original, bundle_short_max(b));
    }
    return 0;
}

static int check_numbers(const struct bundle *b, struct err *e)
{
    for (size_t i = 0; i < countof(bundle_u32s); i++) {
        const struct bundle_u32 *r = &bundle_u32s[i];
        uint32_t v = bundle_get_u32(b, r->at);
        if (v < r->lo || v > r->hi) {
            return err_set(e, ERR_BUNDLE, "%s %u is out of range", r->key, v);
        }
    }
    for (size_t i = 0; i < countof(bundle_f32s); i++) {
        const struct bundle_f32 *r = &bundle_f32s[i];
        double v = (double)bundle_get_f32(b, r->at);
        if (!(v >= r->lo && v <= r->hi)) {
            return err_set(e, ERR_BUNDLE, "%s %g is out of range", r->key, v);
        }
    }
    for (size_t i = 0; i < countof(bundle_strs); i++) {
        const char *v = bundle_get_str(b, bundle_strs[i].at);
        if (v == NULL || *v == '\0' || strlen(v) >= BUNDLE_PATH_MAX) {
            return err_set(e, ERR_BUNDLE, "%s is absent or too long",
                           bundle_strs[i].key);
        }
    }
    int exponent = 0;
    if (frexpf(b->residual_scale, &exponent) != 0.5F) {
        return err_set(e, ERR_BUNDLE, "residual_scale is not a power of two");
    }
    if (b->n_heads % b->n_kv_heads != 0) {
        return err_set(e, ERR_BUNDLE, "%u heads do not share %u kv heads",
                       b->n_heads, b->n_kv_heads);
    }
    if (!file_name_ok(b->name)) {
        return err_set(e, ERR_BUNDLE, "name is not a model name");
    }
    if (!one_of(b->shape, "ranged", "functions") ||
        !one_of(b->kv, "state", "host") || !one_of(b->norm, "scale", "max")) {
        return err_set(e, ERR_BUNDLE, "unknown shape, kv or norm");
    }
    if (!isfinite(b->margin) || b->margin < 0) {
        return err_set(e, ERR_BUNDLE, "margin is not a number");
    }
    return 0;
}

static int check_layers(const struct bundle *b, struct err *e)
{
    RETERR(check_rope(b, &b->rope, "rope", e));
    RETERR(check_rope(b, &b->rope_local, "rope_local", e));
    if (!b->rope.present) {
        return err_set(e, ERR_BUNDLE, "rope is absent");
    }
    return bundle_check_layers(b, e);
}

static int check_t(const struct bundle *b, const char *path, uint32_t t_min,
                   uint32_t t_max, struct err *e)
{
    uint32_t most = b->encoder ? ENCODER_ROWS_MAX : ENGINE_CHUNK_MAX;
    if (t_min < 1 || t_max < t_min || t_max > most) {
        return err_set(e, ERR_BUNDLE, "%s: t_min %u and t_max %u; 1 to %u, in order",
                       path, t_min, t_max, most);
    }
    return 0;
}

/* The package has at least one listed file. */
static bool has_package(const struct bundle *b, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < b->n_files; i++) {
        const char *f = b->files[i].path;
        if (strncmp(f, path, n) == 0 && f[n] == '/') {
            return true;
        }
    }
    return false;
}

int bundle_check_package(const struct bundle *b, const char *path,
                         struct err *e)
{
    if (path == NULL || !bundle_path_ok(path)) {
        return err_set(e, ERR_BUNDLE, "a package's path is not acceptable");
    }
    if (!has_package(b, path)) {
        return err_set(e, ERR_BUNDLE, "%s has no file in the list", path);
    }
    return 0;
}

static int check_functions(const char *path, size_t n, const char **names,
                           const uint32_t *of_t, bool ranged, uint32_t t_min,
                           uint32_t t_max, struct err *e)
{
    if (n < 1 || n > ENGINE_CHUNK_MAX) {
        return err_set(e, ERR_BUNDLE, "%s: %zu functions", path, n);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t t = of_t != NULL ? of_t[i] : 0;
        if (names[i] == NULL || names[i][0] == '\0' ||
            strlen(names[i]) >= BUNDLE_TEXT_MAX) {
            return err_set(e, ERR_BUNDLE, "%s: a function has no name", path);
        }
        if (ranged ? t != 0 : (t < t_min || t > t_max)) {
            return err_set(e, ERR_BUNDLE, "%s: function %zu has T %u", path, i,
                           t);
        }
    }
    return 0;
}

/* The last shard where the last layer is sparse: it adds what the experts gave,
 * and has no layer of its own. */
static bool only_joins(const struct bundle *b, size_t i)
{
    const struct bundle_shard *s = &b->shards[i];
    return i + 1 == b->n_shards && s->first == s->last &&
           s->first == b->n_layers && bundle_joins(b, s);
}

/* A sparse layer ends its shard. */
static int check_cuts(const struct bundle *b, const struct bundle_shard *s,
                      struct err *e)
{
    for (uint32_t l = s->first; l + 1 < s->last; l++) {
        if (b->layers[l].sparse) {
            return err_set(e, ERR_BUNDLE,
                           "%s: layer %u is sparse and has to be its last", s->path,
                           l);
        }
    }
    return 0;
}

static int check_shards(const struct bundle *b, struct err *e)
{
    bool ranged = strcmp(b->shape, "ranged") == 0;
    uint32_t at = 0;
    if (b->n_shards > SHARDS_MAX || b->n_heads_shards > SHARDS_MAX) {
        return err_set(e, ERR_BUNDLE, "too many shards");
    }
    for (size_t i = 0; i < b->n_shards; i++) {
        const struct bundle_shard *s = &b->shards[i];
        RETERR(bundle_check_package(b, s->path, e));
        RETERR(check_t(b, s->path, s->t_min, s->t_max, e));
        RETERR(check_functions(s->path, s->n_functions, s->functions,
                               s->function_t, ranged, s->t_min, s->t_max, e));
        if (s->first != at || s->last > b->n_layers ||
            (s->last <= s->first && !only_joins(b, i))) {
            return err_set(e, ERR_BUNDLE,
                           "%s: layers [%u, %u) do not follow "
                           "%u",
                           s->path, s->first, s->last, at);
        }
        RETERR(check_cuts(b, s, e));
        at = s->last;
    }
    if (at != b->n_layers) {
        return err_set(e, ERR_BUNDLE, "the shards end at layer %u of %u", at,
                       b->n_layers);
    }
    if (b->layers[at - 1].sparse && !only_joins(b, b->n_shards - 1)) {
        return err_set(e, ERR_BUNDLE,
                       "no shard adds what the experts of layer %u give", at - 1);
    }
    return 0;
}

static int check_heads(const struct bundle *b, struct err *e)
{
    uint32_t at = 0;
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        const struct bundle_head *h = &b->heads[i];
        RETERR(bundle_check_package(b, h->path, e));
        RETERR(check_t(b, h->path, h->t_min, h->t_max, e));
        if (h->n_functions > 0) {
            RETERR(check_functions(h->path, h->n_functions, h->functions,
                                   h->function_t, false, h->t_min, h->t_max,
                                   e));
        }
        if (h->vocab_first != at || h->vocab_last <= h->vocab_first ||
            h->vocab_last > bundle_head_rows(b)) {
            return err_set(e, ERR_BUNDLE, "%s: ids [%u, %u) do not follow %u",
                           h->path, h->vocab_first, h->vocab_last, at);
        }
        at = h->vocab_last;
    }
    if (at != bundle_head_rows(b)) {
        return err_set(e, ERR_BUNDLE, "the heads end at id %u of %u", at,
                       bundle_head_rows(b));
    }
    return 0;
}

static const struct bundle_file *find_file(const struct bundle *b,
                                           const char *path)
{
    for (size_t i = 0; i < b->n_files; i++) {
        if (strcmp(b->files[i].path, path) == 0) {
            return &b->files[i];
        }
    }
    return NULL;
}

/* A listed file of one fp16 row for each token, or position. */
static int check_table(const struct bundle *b, const char *path, uint32_t rows,
                       uint64_t cols, struct err *e)
{
    const struct bundle_file *f = find_file(b, path);
    if (f == NULL) {
        return err_set(e, ERR_BUNDLE, "%s is not in the list of files", path);
    }
    if (f->bytes != rows * cols * 2) {
        return err_set(e, ERR_BUNDLE,
                       "%s has %" PRIu64 " bytes for (%u, %" PRIu64 ") fp16",
                       f->path, f->bytes, rows, cols);
    }
    return 0;
}

static int check_listed(const struct bundle *b, struct err *e)
{
    uint64_t sum = 0;
    if (b->n_files > BUNDLE_FILES_MAX) {
        return err_set(e, ERR_BUNDLE, "%zu files are too many", b->n_files);
    }
    for (size_t i = 0; i < b->n_files; i++) {
        const struct bundle_file *f = &b->files[i];
        if (!bundle_path_ok(f->path) || strcmp(f->path, BUNDLE_MANIFEST) == 0) {
            return err_set(e, ERR_BUNDLE, "files[%zu].path is not acceptable",
                           i);
        }
        if (find_file(b, f->path) != f) {
            return err_set(e, ERR_BUNDLE, "%s is listed twice", f->path);
        }
        if (!num_add(sum, f->bytes, &sum)) {
            return err_set(e, ERR_BUNDLE, "the files' sizes overflow");
        }
    }
    if (sum != b->total_bytes) {
        return err_set(e, ERR_BUNDLE, "total_bytes is not the files' sum");
    }
    if (find_file(b, b->tokenizer_file) == NULL) {
        return err_set(e, ERR_BUNDLE, "%s is not in the list of files",
                       b->tokenizer_file);
    }
    if ((b->d_ple > 0) != (b->ple_file != NULL)) {
        return err_set(e, ERR_BUNDLE, "d_ple and ple_file: one is absent");
    }
    RETERR(check_table(b, b->embed_file, b->vocab, b->d_model, e));
    if (b->position_file != NULL) {
        RETERR(check_table(b, b->position_file, b->context_train, b->d_model,
                           e));
    }
    return b->ple_file != NULL
               ? check_table(b, b->ple_file, b->vocab,
                             (uint64_t)b->n_layers * b->d_ple, e)
               : 0;
}

int bundle_check(const struct bundle *b, struct err *e)
{
    int (*const rules[])(const struct bundle *, struct err *) = {
        check_numbers,      bundle_check_labels, check_layers, check_shards,
        bundle_check_groups, bundle_check_ports, check_heads, check_listed,
    };
    for (size_t i = 0; i < countof(rules); i++) {
        int rc = rules[i](b, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* No part of path below dir is a symbolic link: a bundle cannot point out of
 * its folder. */
static int check_on_disk(const char *dir, const struct bundle_file *f,
                         struct err *e)
{
    char path[BUNDLE_PATH_MAX + 1024];
    int rc = bundle_file_path(dir, f->path, path, e);
    if (rc < 0) {
        return rc;
    }
    struct stat st;
    size_t below = strlen(path) - strlen(f->path);
    for (char *slash = strchr(path + below, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool dir_ok = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
        *slash = '/';
        if (!dir_ok) {
            return err_set(e, ERR_BUNDLE, "%s is missing", f->path);
        }
    }
    if (lstat(path, &st) != 0) {
        return err_set(e, ERR_BUNDLE, "%s is missing", f->path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_BUNDLE, "%s is not a regular file", f->path);
    }
    if ((uint64_t)st.st_size != f->bytes) {
        return err_set(e, ERR_BUNDLE,
                       "%s has %" PRIu64 " bytes, not the "
                       "recorded %" PRIu64,
                       f->path, (uint64_t)st.st_size, f->bytes);
    }
    return 0;
}

int bundle_check_files(const struct bundle *b, const char *dir, struct err *e)
{
    for (size_t i = 0; i < b->n_files; i++) {
        int rc = check_on_disk(dir, &b->files[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

void bundle_hash_text(struct sha256 *h, const char *fmt, ...)
{
    char line[BUNDLE_PATH_MAX + 256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    must(n >= 0 && (size_t)n < sizeof(line));
    sha256_add(h, line, (size_t)n);
}

static void add_rope(struct sha256 *h, const struct bundle *b, const char *what,
                     const struct bundle_rope *r)
{
    if (!r->present) {
        return;
    }
    bundle_hash_text(h, "%s=%u %a %a %u %u\n", what, r->dim, (double)r->base,
             (double)r->scale, r->window, r->n_factors);
    for (uint32_t i = 0; i < r->n_factors; i++) {
        bundle_hash_text(h, " %a\n", (double)r->factors[i]);
    }
    if (b->format == 1) {
        return;
    }
    bundle_hash_text(h, "magnitude=%a original=%u\n", (double)r->magnitude,
                     r->original);
    for (uint32_t i = 0; r->long_factors != NULL && i < r->n_factors; i++) {
        bundle_hash_text(h, " %a\n", (double)r->long_factors[i]);
    }
}

static void hash_functions(struct sha256 *h, size_t n, const char **names,
                           const uint32_t *t)
{
    for (size_t k = 0; k < n; k++) {
        bundle_hash_text(h, "\nfunction %s %u", names[k],
                         t != NULL ? t[k] : 0);
    }
}

/* Lines of text rather than struct bytes: padding and field order never
 * change a fingerprint. Hexadecimal floats are exact. */
void bundle_fingerprint(const struct bundle *b, char out[SHA256_HEX])
{
    struct sha256 h;
    sha256_init(&h);
    bundle_hash_text(&h, "aned bundle %d\n", b->format);
    for (size_t i = 0; i < countof(bundle_strs); i++) {
        if (bundle_strs[i].number) {
            bundle_hash_text(&h, "%s=%s\n", bundle_strs[i].key,
                     bundle_get_str(b, bundle_strs[i].at));
        }
    }
    for (size_t i = 0; i < countof(bundle_u32s); i++) {
        bundle_hash_text(&h, "%s=%u\n", bundle_u32s[i].key,
                 bundle_get_u32(b, bundle_u32s[i].at));
    }
    for (size_t i = 0; i < countof(bundle_f32s); i++) {
        bundle_hash_text(&h, "%s=%a\n", bundle_f32s[i].key,
                 (double)bundle_get_f32(b, bundle_f32s[i].at));
    }
    if (b->argmax) { /* the others are older than the word */
        bundle_hash_text(&h, "output=argmax\n");
    }
    if (b->pooling != POOL_NONE) { /* the same */
        bundle_hash_text(&h, "pooling=%s\n", pooling_name(b->pooling));
    }
    if (bundle_kind(b) == BUNDLE_EMBEDDER) { /* the same */
        bundle_hash_text(&h, "embeds positions=%s\n",
                         b->position_file != NULL ? b->position_file : "");
    }
    for (uint32_t i = 0; i < b->n_labels; i++) { /* the same */
        bundle_hash_text(&h, "label=%s\n", b->labels[i]);
    }
    add_rope(&h, b, "rope", &b->rope);
    add_rope(&h, b, "rope_local", &b->rope_local);
    bundle_hash_layers(&h, b);
    for (size_t i = 0; i < b->n_shards; i++) {
        const struct bundle_shard *s = &b->shards[i];
        bundle_hash_text(&h, "\nshard %s %u %u %u %u", s->path, s->first, s->last,
                 s->t_min, s->t_max);
        hash_functions(&h, s->n_functions, s->functions, s->function_t);
        bundle_hash_ports(&h, s);
    }
    bundle_hash_groups(&h, b);
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        const struct bundle_head *s = &b->heads[i];
        bundle_hash_text(&h, "\nhead %s %u %u %u %u", s->path, s->vocab_first,
                 s->vocab_last, s->t_min, s->t_max);
        hash_functions(&h, s->n_functions, s->functions, s->function_t);
    }
    for (size_t i = 0; i < b->n_files; i++) {
        bundle_hash_text(&h, "\nfile %s %" PRIu64 " %s", b->files[i].path,
                 b->files[i].bytes, b->files[i].sha256);
    }
    uint8_t digest[SHA256_BYTES];
    sha256_end(&h, digest);
    sha256_hex(digest, out);
}
