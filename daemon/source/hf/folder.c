/* folder.c - which files of the folder say what, and the whole.
 *
 * Text files are read into memory of their own before they are parsed, so no
 * parser runs on a mapping. Every file that is read is also mapped and held by
 * the source: its digest covers config and tokenizer, and a change of theirs is
 * noticed. Order: config, weights, tokenizer.
 *
 * Weights: one *.safetensors that was named; else the files of
 * model.safetensors.index.json, which must be plain names in the folder; else
 * model.safetensors; else the only *.safetensors there is. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "source/hf/hf.h"

#define INDEX "model.safetensors.index.json"
#define PLAIN "model.safetensors"

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s);
    size_t m = strlen(suffix);
    return n > m && strcmp(s + n - m, suffix) == 0;
}

bool hf_marks(const char *name)
{
    return ends(name, ".safetensors") && name[0] != '.';
}

bool hf_wants(const char *name)
{
    static const char *const texts[] = {
        "config.json",         "generation_config.json",
        "tokenizer.json",      "tokenizer_config.json",
        "tokenizer.model",     "added_tokens.json",
        "chat_template.jinja", INDEX,
        "vocab.txt",           "special_tokens_map.json",
        "modules.json",        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    };
    for (size_t i = 0; i < countof(texts); i++) {
        if (strcmp(name, texts[i]) == 0) {
            return true;
        }
    }
    return hf_marks(name);
}

const char *const hf_below[] = {HF_POOLING, NULL};

/* --- text --- */

/* All of fd, which has at most max bytes. */
static int read_all(int fd, const char *name, size_t max, struct buf *b,
                    struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_errno(e, errno, name);
    }
    if (st.st_size < 0 || (uint64_t)st.st_size > max) {
        return err_set(e, ERR_TOO_BIG, "%s has %lld bytes; the limit is %zu",
                       name, (long long)st.st_size, max);
    }
    size_t n = (size_t)st.st_size;
    char *p = buf_grow(b, n);
    if (p == NULL && n > 0) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    for (size_t at = 0; at < n;) {
        ssize_t got = pread(fd, p + at, n - at, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? err_errno(e, errno, name)
                           : err_set(e, ERR_SOURCE_CHANGED, "%s: %s", name,
                                     err_text(ERR_SOURCE_CHANGED));
        }
        at += (size_t)got;
    }
    return 0;
}

int hf_read(struct hf *h, const char *name, size_t max, struct buf *b,
            bool *ret_there, struct err *e)
{
    struct span map = {NULL, 0};
    int fd = source_file_fd(h->files, name);
    buf_init(b, max + 1);
    *ret_there = fd >= 0;
    if (fd < 0) {
        return 0;
    }
    int rc = read_all(fd, name, max, b, e);
    rc = rc < 0 ? rc : made_map(h->m, fd, name, &map, e);
    if (rc < 0) {
        buf_fini(b);
    }
    return rc;
}

int hf_read_json(struct hf *h, const char *name, size_t max, struct json **ret,
                 struct err *e)
{
    struct buf b;
    bool there = false;
    *ret = NULL;
    RETERR(hf_read(h, name, max, &b, &there, e));
    int rc = 0;
    if (there) {
        rc = json_parse_big(b.p != NULL ? b.p : "", b.n, ret, e);
        if (rc < 0) {
            rc = err_prefix(e, rc == ERR_NOMEM ? rc : ERR_MODEL_CONFIG, "%s",
                            name);
        }
    }
    buf_fini(&b);
    return rc;
}

/* --- weights --- */

static int add_weights(struct hf *h, const char *name, struct err *e)
{
    struct span map = {NULL, 0};
    int fd = source_file_fd(h->files, name);
    if (fd < 0) {
        return err_set(e, ERR_NOT_FOUND, "%s is not in the folder", name);
    }
    if (h->n_weights == GGUF_PARTS_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "more than %u files",
                       GGUF_PARTS_MAX);
    }
    RETERR(made_map(h->m, fd, name, &map, e));
    int rc = safetensors_open(map.p != NULL ? map.p : "", map.n,
                              &h->weights[h->n_weights], e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s", name);
    }
    h->n_weights++;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files that the index names, each once, sorted. */
static int index_files(const struct json *map, const char ***ret, size_t *ret_n,
                       struct err *e)
{
    size_t n = 0;
    size_t most = json_count(map);
    const char **names = calloc(most + 1, sizeof(*names));
    if (names == NULL) {
        return err_set(e, ERR_NOMEM, INDEX);
    }
    *ret = names;
    for (const struct json *c = json_first(map); c != NULL; c = json_next(c)) {
        const char *file = json_str(c);
        if (file == NULL || file[0] == '.' || strchr(file, '/') != NULL ||
            !hf_marks(file)) {
            return err_set(e, ERR_MODEL_CONFIG,
                           INDEX ": '%.64s' is no *.safetensors in the folder",
                           file != NULL ? file : json_key(c));
        }
        names[n++] = file;
    }
    if (n > 0) {
        qsort(names, n, sizeof(*names), by_text);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0) {
            names[kept++] = names[i];
        }
    }
    *ret_n = kept;
    return 0;
}

/* Each tensor of the index stands where it says. A tensor that is in a file and
 * not in the index is read: it has a place, or is an error. */
static int check_index(const struct hf *h, const struct json *map,
                       const char *const *names, struct err *e)
{
    for (const struct json *c = json_first(map); c != NULL; c = json_next(c)) {
        size_t i = 0;
        while (i < h->n_weights && strcmp(names[i], json_str(c)) != 0) {
            i++;
        }
        must(i < h->n_weights); /* names are of this map */
        if (safetensors_find(h->weights[i], json_key(c)) == NULL) {
            return err_set(e, ERR_GGUF_SPLIT,
                           "%.127s is not in %.64s, where " INDEX " has it",
                           json_key(c), json_str(c));
        }
    }
    return 0;
}

static int open_index(struct hf *h, struct json *index, struct err *e)
{
    const struct json *map = json_get(index, "weight_map");
    const char **names = NULL;
    size_t n = 0;
    int rc = 0;
    if (map == NULL || json_type(map) != JSON_OBJECT) {
        return err_set(e, ERR_MODEL_CONFIG, INDEX ": no weight_map");
    }
    CHECK(index_files(map, &names, &n, e));
    for (size_t i = 0; i < n; i++) {
        CHECK(add_weights(h, names[i], e));
    }
    CHECK(check_index(h, map, names, e));
out:
    free(names);
    return rc;
}

/* The only *.safetensors; NULL: there are several. */
static const char *only_one(const struct source_files *f)
{
    const char *one = NULL;
    for (size_t i = 0; i < f->parts.n; i++) {
        if (hf_marks(f->names[i])) {
            if (one != NULL) {
                return NULL;
            }
            one = f->names[i];
        }
    }
    return one;
}

static int open_weights(struct hf *h, struct err *e)
{
    struct json *index = NULL;
    const char *one = only_one(h->files);
    if (h->files->whole) {
        RETERR(hf_read_json(h, INDEX, HF_INDEX_MAX, &index, e));
    }
    if (index != NULL) {
        int rc = open_index(h, index, e);
        json_free(index);
        return rc;
    }
    if (source_file_fd(h->files, PLAIN) >= 0 && h->files->whole) {
        return add_weights(h, PLAIN, e);
    }
    return one != NULL
               ? add_weights(h, one, e)
               : err_set(e, ERR_UNSUPPORTED,
                         "several *.safetensors, and no " INDEX
                         " that says which are the model");
}

/* --- the whole --- */

static int put_name(struct hf *h, struct err *e)
{
    char name[MODEL_NAME_MAX + 1];
    const char *path = h->files->parts.path;
    struct span s = source_stem(path != NULL ? path : "model");
    file_name_from(s.p, s.n, name, sizeof(name));
    RETERR(made_str(h->m, "general.architecture", h->family->arch, e));
    RETERR(made_str(h->m, "general.type", "model", e));
    return made_str(h->m, "general.name", name, e);
}

static int build(struct hf *h, struct err *e)
{
    RETERR(hf_read_json(h, "config.json", HF_CONFIG_MAX, &h->root, e));
    if (h->root == NULL) {
        return err_set(e, ERR_NOT_FOUND,
                       "config.json does not stand beside the weights");
    }
    RETERR(hf_read_config(h, e));
    RETERR(hf_read_scales(h, e));
    RETERR(hf_check_keys(h, e));
    RETERR(put_name(h, e));
    RETERR(h->family->fill != NULL ? h->family->fill(h, e) : 0);
    RETERR(h->family->encodes ? hf_put_sentence(h, e) : 0);
    RETERR(open_weights(h, e));
    RETERR(hf_put_tensors(h, e));
    return hf_put_tokenizer(h, e);
}

int hf_open(const struct source_files *f, struct gguf **ret, struct err *e)
{
    struct hf *h = calloc(1, sizeof(*h));
    int rc = 0;
    must(h != NULL); /* fixed size */
    h->files = f;
    CHECK(made_new(&h->m, e));
    CHECK(build(h, e));
    rc = made_done(h->m, "safetensors", ret, e);
    h->m = NULL; /* consumed */
out:
    made_free(h->m);
    for (size_t i = 0; i < h->n_weights; i++) {
        safetensors_close(h->weights[i]);
    }
    json_free(h->root);
    free(h);
    return rc;
}
