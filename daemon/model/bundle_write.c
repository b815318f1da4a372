/* bundle_write.c - a struct bundle into bundle.json, and the check that its
 * files are still the ones that were hashed.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/num.h"
#include "model/bundle_impl.h"
#include "proto/json.h"

/* Regular files below dir, as paths relative to it. */
struct listing {
    struct bundle *b;
    size_t cap;
    int depth;
};

static int list_dir(struct listing *l, const char *dir, const char *below,
                    struct err *e);

static int list_entry(struct listing *l, const char *dir, const char *rel,
                      struct err *e)
{
    char path[BUNDLE_PATH_MAX + 1024];
    struct stat st;
    int rc = bundle_file_path(dir, rel, path, e);
    if (rc < 0) {
        return rc;
    }
    if (lstat(path, &st) != 0) {
        return err_errno(e, errno, rel);
    }
    if (S_ISDIR(st.st_mode)) {
        return list_dir(l, dir, rel, e);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_BUNDLE, "%s is not a regular file", rel);
    }
    if (l->b->n_files >= l->cap) {
        return err_set(e, ERR_BUNDLE, "more than %zu files", l->cap);
    }
    l->b->files[l->b->n_files].path = arena_str(&l->b->arena, rel);
    if (l->b->files[l->b->n_files].path == NULL) {
        return err_set(e, ERR_NOMEM, "%s", rel);
    }
    l->b->n_files++;
    return 0;
}

static int list_dir(struct listing *l, const char *dir, const char *below,
                    struct err *e)
{
    char path[BUNDLE_PATH_MAX + 1024];
    int n =
        snprintf(path, sizeof(path), "%s%s%s", dir, *below ? "/" : "", below);
    if (n < 0 || (size_t)n >= sizeof(path) || l->depth > 8) {
        return err_set(e, ERR_BUNDLE, "%s is too deep", below);
    }
    DIR *d = opendir(path);
    if (d == NULL) {
        return err_errno(e, errno, path);
    }
    l->depth++;
    int rc = 0;
    for (struct dirent *ent = NULL; (ent = readdir(d)) != NULL;) {
        char rel[BUNDLE_PATH_MAX];
        if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0 ||
            (*below == '\0' && strcmp(ent->d_name, BUNDLE_MANIFEST) == 0)) {
            continue;
        }
        n = snprintf(rel, sizeof(rel), "%s%s%s", below, *below ? "/" : "",
                     ent->d_name);
        if (n < 0 || (size_t)n >= sizeof(rel)) {
            rc = err_set(e, ERR_BUNDLE, "%s: the path is too long", below);
            goto out;
        }
        CHECK(list_entry(l, dir, rel, e));
    }
out:
    l->depth--;
    (void)closedir(d);
    return rc;
}

static int by_path(const void *a, const void *b)
{
    const struct bundle_file *x = a;
    const struct bundle_file *y = b;
    return strcmp(x->path, y->path);
}

/* Size and hash of f, which is at `path`. */
static int fill_file(const struct bundle *b, struct bundle_file *f,
                     const char *path, struct err *e)
{
    struct stat st;
    for (size_t i = 0; i < b->n_known; i++) {
        const struct bundle_file *k = &b->known[i];
        if (strcmp(k->path, f->path) != 0) {
            continue;
        }
        if (lstat(path, &st) != 0) {
            return err_errno(e, errno, f->path);
        }
        if (st.st_size < 0 || (uint64_t)st.st_size != k->bytes) {
            return err_set(e, ERR_BUNDLE, "%s has %lld bytes, %llu were written",
                           f->path, (long long)st.st_size,
                           (unsigned long long)k->bytes);
        }
        f->bytes = k->bytes;
        memcpy(f->sha256, k->sha256, SHA256_HEX);
        return 0;
    }
    return sha256_file(path, f->sha256, &f->bytes, e);
}

/* The converter may leave the list empty: then it is what lies in dir. The
 * order is that of the paths, so the same files give the same fingerprint. */
static int fill_files(const char *dir, struct bundle *b, struct err *e)
{
    if (b->n_files == 0) {
        struct listing l = {.b = b, .cap = BUNDLE_FILES_MAX};
        b->files = arena_array(&b->arena, l.cap, sizeof(*b->files));
        if (b->files == NULL) {
            return err_set(e, ERR_NOMEM, "files");
        }
        RETERR(list_dir(&l, dir, "", e));
    }
    if (b->n_files > 1) {
        qsort(b->files, b->n_files, sizeof(*b->files), by_path);
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < b->n_files; i++) {
        char path[BUNDLE_PATH_MAX + 1024];
        struct bundle_file *f = &b->files[i];
        RETERR(bundle_file_path(dir, f->path, path, e));
        RETERR(file_repage(path, e));
        RETERR(fill_file(b, f, path, e));
        if (!num_add(sum, f->bytes, &sum)) {
            return err_set(e, ERR_BUNDLE, "the files' sizes overflow");
        }
    }
    b->total_bytes = sum;
    return 0;
}

static void put_rope(struct json *j, const char *key,
                     const struct bundle_rope *r)
{
    if (!r->present) {
        return;
    }
    struct json *o = json_add_object(j, key);
    json_add_int(o, "dim", r->dim);
    json_add_num(o, "base", (double)r->base);
    json_add_num(o, "scale", (double)r->scale);
    json_add_int(o, "window", r->window);
    json_add_num(o, "magnitude", (double)r->magnitude);
    json_add_int(o, "original", r->original);
    struct json *a = json_add_array(o, "factors");
    for (uint32_t i = 0; i < r->n_factors; i++) {
        json_add_num(a, NULL, (double)r->factors[i]);
    }
    a = json_add_array(o, "long_factors");
    for (uint32_t i = 0; r->long_factors != NULL && i < r->n_factors; i++) {
        json_add_num(a, NULL, (double)r->long_factors[i]);
    }
}

static void put_functions(struct json *o, size_t n, const char *const *names,
                          const uint32_t *t)
{
    struct json *a = json_add_array(o, "functions");
    for (size_t k = 0; k < n; k++) {
        struct json *f = json_add_object(a, NULL);
        json_add_str(f, "name", names[k]);
        json_add_int(f, "t", t != NULL ? t[k] : 0);
    }
}

static void put_shards(struct json *j, const struct bundle *b)
{
    struct json *a = json_add_array(j, "shards");
    for (size_t i = 0; i < b->n_shards; i++) {
        const struct bundle_shard *s = &b->shards[i];
        struct json *o = json_add_object(a, NULL);
        json_add_str(o, "path", s->path);
        json_add_int(o, "first", s->first);
        json_add_int(o, "last", s->last);
        json_add_int(o, "t_min", s->t_min);
        json_add_int(o, "t_max", s->t_max);
        put_functions(o, s->n_functions, s->functions, s->function_t);
        json_add_int(o, "weight_bytes", (int64_t)s->weight_bytes);
        bundle_put_ports(o, s);
    }
    a = json_add_array(j, "heads");
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        const struct bundle_head *h = &b->heads[i];
        struct json *o = json_add_object(a, NULL);
        json_add_str(o, "path", h->path);
        json_add_int(o, "vocab_first", h->vocab_first);
        json_add_int(o, "vocab_last", h->vocab_last);
        json_add_int(o, "t_min", h->t_min);
        json_add_int(o, "t_max", h->t_max);
        if (h->n_functions > 0) {
            put_functions(o, h->n_functions, h->functions, h->function_t);
        }
        json_add_int(o, "weight_bytes", (int64_t)h->weight_bytes);
    }
}

static void put_lists(struct json *j, const struct bundle *b)
{
    bundle_put_layers(j, b);
    put_shards(j, b);
    bundle_put_groups(j, b);
    struct json *a = json_add_array(j, "files");
    for (size_t i = 0; i < b->n_files; i++) {
        struct json *o = json_add_object(a, NULL);
        json_add_str(o, "path", b->files[i].path);
        json_add_int(o, "bytes", (int64_t)b->files[i].bytes);
        json_add_str(o, "sha256", b->files[i].sha256);
    }
    a = json_add_array(j, "peaks");
    for (size_t i = 0; i < b->n_peaks; i++) {
        struct json *o = json_add_object(a, NULL);
        json_add_str(o, "name", b->peaks[i].name);
        json_add_num(o, "peak", b->peaks[i].peak);
    }
}

static struct json *manifest(const struct bundle *b)
{
    struct json *j = json_object();
    json_add_int(j, "format", BUNDLE_FORMAT);
    for (size_t i = 0; i < countof(bundle_strs); i++) {
        json_add_str(j, bundle_strs[i].key,
                     bundle_get_str(b, bundle_strs[i].at));
    }
    for (size_t i = 0; i < countof(bundle_u32s); i++) {
        json_add_int(j, bundle_u32s[i].key,
                     bundle_get_u32(b, bundle_u32s[i].at));
    }
    for (size_t i = 0; i < countof(bundle_f32s); i++) {
        json_add_num(j, bundle_f32s[i].key,
                     (double)bundle_get_f32(b, bundle_f32s[i].at));
    }
    json_add_str(j, "output", b->argmax ? "argmax" : "logits");
    if (b->pooling != POOL_NONE) {
        json_add_str(j, "pooling", pooling_name(b->pooling));
    }
    bundle_put_labels(j, b);
    json_add_num(j, "margin", b->margin);
    json_add_bool(j, "eps_omitted", b->eps_omitted);
    struct json *s = json_add_object(j, "source");
    json_add_str(s, "name", b->source_name);
    json_add_int(s, "bytes", (int64_t)b->source_bytes);
    json_add_str(s, "sha256", b->source_sha256);
    bundle_put_calibration(j, b);
    put_rope(j, "rope", &b->rope);
    put_rope(j, "rope_local", &b->rope_local);
    json_add_num(j, "logit_scale", (double)b->logit_scale);
    json_add_num(j, "logit_cap", (double)b->logit_cap);
    json_add_int(j, "d_ple", b->d_ple);
    if (b->ple_file != NULL) {
        json_add_str(j, "ple_file", b->ple_file);
    }
    put_lists(j, b);
    bundle_put_forms(j, b);
    json_add_str(j, "fingerprint", b->fingerprint);
    json_add_int(j, "total_bytes", (int64_t)b->total_bytes);
    return j;
}

int bundle_write(const char *dir, struct bundle *b, struct err *e)
{
    char path[sizeof(b->dir) + sizeof(BUNDLE_MANIFEST)];
    struct buf text = {0};
    struct json *j = NULL;
    int rc = 0;

    if (strlen(dir) >= sizeof(b->dir) ||
        !file_join(path, sizeof(path), dir, BUNDLE_MANIFEST)) {
        return err_set(e, ERR_BUNDLE, "the folder's path is too long");
    }
    if (b->source_name == NULL || *b->source_name == '\0' ||
        strlen(b->source_sha256) != SHA256_HEX - 1) {
        return err_set(e, ERR_BUNDLE, "the source's name or hash is absent");
    }
    b->format = BUNDLE_FORMAT;
    RETERR(fill_files(dir, b, e));
    RETERR(bundle_check(b, e));
    bundle_fingerprint(b, b->fingerprint);
    j = manifest(b);
    buf_init(&text, BUNDLE_JSON_MAX);
    json_write(j, true, &text);
    buf_puts(&text, "\n");
    if (!buf_ok(&text)) {
        rc = err_set(e, ERR_TOO_BIG, "%s", BUNDLE_MANIFEST);
        goto out;
    }
    rc = file_write(path, text.p, text.n, e);
    if (rc == 0) {
        memcpy(b->dir, dir, strlen(dir) + 1);
    }
out:
    json_free(j);
    buf_fini(&text);
    return rc;
}
