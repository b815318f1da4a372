/* folder.c - the files of an ONNX decoder: which one is the graph, which ones
 * it names, what the others say.
 *
 * The graph: the file that was named; else the one of genai_config.json; else
 * model.onnx; else the only *.onnx there is. Its external data are files that
 * were opened with it, by plain names: nothing is opened by a name that stands
 * in the graph. The mapping is read inside gguf_guard; configurations are read
 * into memory of their own.
 */
#include "source/onnx/folder.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "source/hf/hf.h"

struct folder {
    const struct source_files *files;
    struct made *m;
    struct onnx_found *found;
    struct json *hf, *genai; /* owned; NULL: there is none */
    struct span model;       /* the graph's bytes, mapped */
    struct onnx_config *config; /* owned */
};

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s);
    size_t m = strlen(suffix);
    return n > m && strcmp(s + n - m, suffix) == 0;
}

bool onnx_marks(const char *name)
{
    return name[0] != '.' && ends(name, ".onnx");
}

/* External data has no name of its own: what exporters write. */
bool onnx_wants(const char *name)
{
    static const char *const texts[] = {
        "config.json",         "hf_config.json",        "genai_config.json",
        "tokenizer.json",      "tokenizer_config.json", "tokenizer.model",
        "added_tokens.json",   "generation_config.json",
        "chat_template.jinja",
    };
    static const char *const tails[] = {".onnx", ".data", ".bin", ".weight",
                                        ".weights", ".raw"};
    if (name[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < countof(texts); i++) {
        if (strcmp(name, texts[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < countof(tails); i++) {
        if (ends(name, tails[i])) {
            return true;
        }
    }
    return strstr(name, ".onnx_data") != NULL ||
           strstr(name, ".onnx.data") != NULL;
}

/* --- configurations --- */

static int read_configs(struct folder *f, struct err *e)
{
    struct hf h = {.files = f->files, .m = f->m};
    RETERR(hf_read_json(&h, "config.json", HF_CONFIG_MAX, &f->hf, e));
    if (f->hf == NULL) {
        RETERR(hf_read_json(&h, "hf_config.json", HF_CONFIG_MAX, &f->hf, e));
    }
    return hf_read_json(&h, "genai_config.json", HF_CONFIG_MAX, &f->genai, e);
}

/* Tokenizer and special tokens: the form of the transformers library. */
static int put_tokenizer(struct folder *f, struct err *e)
{
    const struct hf_family family = {.arch = f->found->arch};
    const struct json *model = json_get(f->genai, "model");
    struct hf h = {.files = f->files,
                   .m = f->m,
                   .root = f->hf,
                   .family = &family,
                   .vocab = f->found->d.vocab};
    if (h.root == NULL && model != NULL) { /* it has the ids too */
        f->hf = h.root = json_copy(model);
    }
    h.text = h.root;
    return hf_put_tokenizer(&h, e);
}

/* --- the graph's file --- */

static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The name of the file with the graph. */
static int choose(const struct folder *f, const char **ret, struct err *e)
{
    const struct source_files *s = f->files;
    const char *only = NULL;
    size_t n = 0;
    const struct json *j =
        json_get(json_get(json_get(f->genai, "model"), "decoder"), "filename");
    if (!s->whole) {
        *ret = last_of(s->parts.path);
        return 0;
    }
    if (j != NULL && json_str(j) != NULL) {
        *ret = json_str(j);
        return source_file_fd(s, *ret) >= 0
                   ? 0
                   : err_set(e, ERR_NOT_FOUND,
                             "genai_config.json names '%.80s', which is not in "
                             "the folder",
                             *ret);
    }
    for (size_t i = 0; i < s->parts.n; i++) {
        if (onnx_marks(s->names[i])) {
            only = s->names[i];
            n++;
        }
    }
    *ret = source_file_fd(s, "model.onnx") >= 0 ? "model.onnx" : only;
    return *ret != NULL && (n == 1 || strcmp(*ret, "model.onnx") == 0)
               ? 0
               : err_set(e, ERR_INVALID,
                         "%zu files *.onnx, none of them model.onnx: name one",
                         n);
}

/* External data: a file that was opened with the model, and has one name. */
static int find(void *ctx, const char *location, struct span *ret,
                struct err *e)
{
    struct folder *f = ctx;
    struct stat st;
    int fd = source_file_fd(f->files, location);
    if (fd < 0) {
        return err_set(e, strchr(location, '/') != NULL ? ERR_ONNX_DATA
                                                        : ERR_NOT_FOUND,
                       "external data '%.100s' is not in the model's folder",
                       location);
    }
    if (onnx_marks(location)) {
        return err_set(e, ERR_ONNX_DATA,
                       "external data '%.100s' is a model itself", location);
    }
    if (fstat(fd, &st) != 0 || st.st_nlink != 1) {
        return err_set(e, ERR_ONNX_DATA,
                       "external data '%.100s' has several names (hard links)",
                       location);
    }
    return made_map(f->m, fd, location, ret, e);
}

/* --- the whole --- */

static int read_graph(void *ctx, struct err *e)
{
    struct folder *f = ctx;
    const struct onnx_files files = {find, f};
    struct onnx_found *o = f->found;
    RETERR(onnx_read(&o->m, f->model.p != NULL ? f->model.p : "", f->model.n,
                     &files, e));
    o->read = true;
    RETERR(onnx_recover(&o->m, &o->d, e));
    o->recovered = true;
    RETERR(onnx_config_read(f->hf, f->genai, f->config, e));
    return onnx_make(&o->d, f->config, f->m, &o->arch, e);
}

static int put_name(const struct folder *f, struct err *e)
{
    char name[MODEL_NAME_MAX + 1];
    struct span s = source_stem(f->files->parts.path);
    file_name_from(s.p, s.n, name, sizeof(name));
    return made_str(f->m, "general.name", name, e);
}

static int open_parts(struct folder *f, struct err *e)
{
    const char *name = NULL;
    RETERR(read_configs(f, e));
    RETERR(choose(f, &name, e));
    (void)snprintf(f->found->file, sizeof(f->found->file), "%s", name);
    RETERR(made_map(f->m, source_file_fd(f->files, name), name, &f->model, e));
    int rc = gguf_guard(read_graph, f, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%.80s", f->found->file);
    }
    RETERR(put_name(f, e));
    return put_tokenizer(f, e);
}

int onnx_open_found(const struct source_files *files, struct onnx_found *found,
                    struct gguf **ret, struct err *e)
{
    struct folder f = {.files = files, .found = found};
    int rc = 0;
    *found = (struct onnx_found){.arch = NULL};
    f.config = calloc(1, sizeof(*f.config));
    must(f.config != NULL); /* fixed size */
    CHECK(made_new(&f.m, e));
    CHECK(open_parts(&f, e));
    rc = made_done(f.m, "onnx", ret, e);
    f.m = NULL; /* given away */
out:
    made_free(f.m);
    json_free(f.hf);
    json_free(f.genai);
    free(f.config);
    return rc;
}

void onnx_found_fini(struct onnx_found *found)
{
    onnx_fini(&found->m);
    *found = (struct onnx_found){.arch = NULL};
}

int onnx_open_files(const struct source_files *f, struct gguf **ret,
                    struct err *e)
{
    struct onnx_found found;
    int rc = onnx_open_found(f, &found, ret, e);
    onnx_found_fini(&found);
    return rc;
}
