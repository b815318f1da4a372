/* job_wish.c - what a request for a job asks for: its fields, and whether there
 * is such a source. See jobs.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macos.h"
#include "convert/import/manifest.h"
#include "convert/quant/choice.h"
#include "convert/shape.h"
#include "serve/jobs/jobs_impl.h"
#include "source/source.h"

static bool one_of(const char *v, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(v, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int want_word(const struct json *j, const char *key,
                     const char *const *words, size_t n, const char **ret,
                     const char **param, struct err *e)
{
    *param = key;
    RETERR(json_want_str(j, key, false, ret, e));
    if (*ret != NULL && !one_of(*ret, words, n)) {
        return err_set(e, ERR_INVALID, "%s: no such value '%.64s'", key, *ret);
    }
    return 0;
}

static int unknown_key(const struct json *j, const char **param, struct err *e)
{
    static const char *const keys[] = {
        "source",         "name",      "quant",
        "context",        "shape",     "kv",
        "profile",        "norm",      "threads",
        "accept",         "priority",  "head_quant",
        "residual_scale", "quant_for", "kind",
        "tokenizer",      "set",       "calibrate",
        "output",         "reshard",   "calibration",
        "target_bytes",   "target_kl", "chat_template",
        "experts",
    };
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        if (strcmp(json_key(c), "force") == 0) {
            *param = json_key(c);
            return err_set(e, ERR_UNSUPPORTED,
                           "force is gone: `accept` lists the gates that may "
                           "fail, say [\"quality\"]");
        }
        if (!one_of(json_key(c), keys, countof(keys))) {
            *param = json_key(c);
            return err_set(e, ERR_UNSUPPORTED, "no such field '%.64s'",
                           json_key(c));
        }
    }
    return 0;
}

static bool given(const struct json *j, const char *key)
{
    const struct json *v = json_get(j, key);
    return v != NULL && json_type(v) != JSON_NULL;
}

static int want_target(const struct json *j, struct job_wish *w,
                       const char **param, struct err *e)
{
    *param = "target_bytes";
    RETERR(json_want_int(j, *param, false, 0, (int64_t)TARGET_BYTES_MAX,
                         &w->target_bytes, e));
    *param = "target_kl";
    RETERR(json_want_num(j, *param, false, 0, TARGET_KL_MAX, &w->target_kl, e));
    if (w->quant != NULL) {
        *param = "quant";
    }
    return quant_choice_target(w->quant, (uint64_t)w->target_bytes,
                               w->target_kl, e);
}

/* What it is made of: a file, or a model whose weights stay as they are. */
static int want_origin(const struct json *j, struct job_wish *w,
                       const char **param, struct err *e)
{
    static const char *const others[] = {
        "source",       "quant",          "head_quant",   "quant_for",
        "norm",         "residual_scale", "calibrate",    "calibration",
        "target_bytes", "target_kl",      "chat_template", "experts"};
    *param = "reshard";
    RETERR(json_want_str(j, *param, false, &w->reshard, e));
    if (w->reshard == NULL) {
        *param = "source";
        return json_want_str(j, *param, true, &w->source, e);
    }
    for (size_t i = 0; i < countof(others); i++) {
        if (given(j, others[i])) {
            *param = others[i];
            return err_set(e, ERR_INVALID,
                           "%s: not with reshard, which copies the weights",
                           others[i]);
        }
    }
    *param = "name";
    return json_str(json_get(j, "name")) != NULL
               ? 0
               : err_set(e, ERR_INVALID,
                         "name: reshard makes a model of another name");
}

/* The fields that say how weights are stored, by the converter's own rules. */
static int want_forms(const struct json *j, struct job_wish *w,
                      const char **param, struct err *e)
{
    struct quant_choice c;
    *param = "quant";
    RETERR(json_want_str(j, *param, false, &w->quant, e));
    RETERR(quant_choice_init(&c, w->quant, NULL, e));
    *param = "head_quant";
    RETERR(json_want_str(j, *param, false, &w->head_quant, e));
    RETERR(quant_choice_init(&c, w->quant, w->head_quant, e));
    RETERR(want_target(j, w, param, e));
    *param = "quant_for";
    const struct json *list = json_get(j, *param);
    if (list != NULL && json_type(list) != JSON_NULL &&
        json_type(list) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID, "quant_for: a list of PATTERN=KIND");
    }
    for (const struct json *r = json_first(list); r != NULL; r = json_next(r)) {
        if (json_str(r) == NULL) {
            return err_set(e, ERR_INVALID, "quant_for: a list of PATTERN=KIND");
        }
        RETERR(quant_choice_add(&c, json_str(r), e));
    }
    return 0;
}

/* The fields of an import; the worker reads "set" once more, against the
 * manifest. */
static int want_import(const struct json *j, struct job_wish *w,
                       const char **param, struct err *e)
{
    static const char *const kinds[] = {"convert", "import"};
    static const char *const mine[] = {"tokenizer", "set"};
    static const char *const theirs[] = {
        "quant",       "head_quant",     "quant_for",
        "context",     "shape",          "kv",
        "output",      "norm",           "calibrate",
        "calibration", "reshard",        "target_bytes",
        "target_kl",   "residual_scale", "chat_template",
        "experts"};
    const char *kind = NULL;
    RETERR(want_word(j, "kind", kinds, countof(kinds), &kind, param, e));
    w->import = kind != NULL && strcmp(kind, "import") == 0;
    const char *const *foreign = w->import ? theirs : mine;
    size_t n = w->import ? countof(theirs) : countof(mine);
    for (size_t i = 0; i < n; i++) {
        *param = foreign[i];
        if (given(j, *param)) {
            return err_set(e, ERR_INVALID, "%s: not of kind %s", *param,
                           w->import ? "import, which takes packages as they "
                                       "are"
                                     : "convert");
        }
    }
    *param = "tokenizer";
    RETERR(json_want_str(j, *param, w->import, &w->tokenizer, e));
    if (w->tokenizer != NULL && w->tokenizer[0] != '/') {
        return err_set(e, ERR_INVALID, "tokenizer: must be an absolute path");
    }
    *param = "set";
    const struct json *list = json_get(j, *param);
    bool ok = !given(j, *param) || (json_type(list) == JSON_ARRAY &&
                                    json_count(list) <= IMPORT_SETS_MAX);
    for (const struct json *c = json_first(list); ok && c != NULL;
         c = json_next(c)) {
        ok = json_str(c) != NULL;
    }
    return ok ? 0
              : err_set(e, ERR_INVALID, "set: a list of at most %u KEY=NUMBER",
                        IMPORT_SETS_MAX);
}

int job_wish_priority(const struct json *j, int *ret, struct err *e)
{
    static const struct {
        const char *word;
        int n;
    } words[] = {
        {"low",    JOB_PRIORITY_LOW },
        {"normal", 0                },
        {"high",   JOB_PRIORITY_HIGH},
    };
    int64_t n = 0;
    const char *word = json_str(json_get(j, "priority"));
    for (size_t i = 0; word != NULL && i < countof(words); i++) {
        if (strcmp(words[i].word, word) == 0) {
            *ret = words[i].n;
            return 0;
        }
    }
    if (word != NULL) {
        return err_set(e, ERR_INVALID,
                       "priority: low, normal, high or a number, not '%.32s'",
                       word);
    }
    RETERR(json_want_int(j, "priority", false, -JOB_PRIORITY_MAX,
                         JOB_PRIORITY_MAX, &n, e));
    *ret = (int)n;
    return 0;
}

int job_wish_read(const struct json *j, struct job_wish *w, const char **param,
                  struct err *e)
{
    static const char *const outputs[] = {"logits", "argmax"};
    static const char *const kvs[] = {"state", "host"};
    static const char *const norms[] = {"scale", "max"};
    static const char *const switches[] = {"on", "off"};
    struct program_shape unused = {0};
    enum experts_form form = EXPERTS_AUTO;
    uint32_t group = 0;
    *param = NULL;
    if (json_type(j) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    }
    const struct {
        const char *key;
        const char *const *words;
        size_t n;
        const char **to;
    } choices[] = {
        {"kv",        kvs,      countof(kvs),      &w->kv       },
        {"norm",      norms,    countof(norms),    &w->norm     },
        {"calibrate", switches, countof(switches), &w->calibrate},
        {"output",    outputs,  countof(outputs),  &w->output   },
    };
    RETERR(unknown_key(j, param, e));
    RETERR(want_import(j, w, param, e));
    RETERR(want_origin(j, w, param, e));
    RETERR(want_forms(j, w, param, e));
    *param = "name";
    RETERR(json_want_str(j, *param, false, &w->name, e));
    for (size_t i = 0; i < countof(choices); i++) {
        RETERR(want_word(j, choices[i].key, choices[i].words, choices[i].n,
                         choices[i].to, param, e));
    }
    *param = "calibration";
    RETERR(json_want_str(j, *param, false, &w->calibration, e));
    if (w->calibration != NULL && w->calibrate != NULL &&
        strcmp(w->calibrate, "off") == 0) {
        return err_set(e, ERR_INVALID,
                       "calibration: of no use with calibrate "
                       "off");
    }
    *param = "chat_template";
    RETERR(json_want_str(j, *param, false, &w->chat_template, e));
    *param = "shape";
    RETERR(json_want_str(j, *param, false, &w->shape, e));
    RETERR(shape_parse(w->shape, &unused, e));
    *param = "experts";
    RETERR(json_want_str(j, *param, false, &w->experts, e));
    RETERR(experts_parse(w->experts, &form, &group, e));
    *param = "profile";
    RETERR(json_want_str(j, *param, false, &w->profile, e));
    *param = "context";
    RETERR(
        json_want_int(j, *param, false, 0, MODEL_CONTEXT_MAX, &w->context, e));
    *param = "threads";
    RETERR(
        json_want_int(j, *param, false, 0, ENGINE_THREADS_MAX, &w->threads, e));
    *param = "residual_scale";
    RETERR(json_want_num(j, *param, false, 0, 65536, &w->residual_scale, e));
    *param = "priority";
    RETERR(job_wish_priority(j, &w->priority, e));
    *param = "accept";
    return job_accept_check(json_get(j, *param), e);
}

/* macOS answers EPERM, not EACCES, where the user has to allow a folder. */
static int refuse_file(const char *path, const char *what, int error,
                       struct err *e)
{
#if defined(__APPLE__)
    const char *folder = macos_guarded(path, getenv("HOME"));
    if (error == EPERM && folder != NULL) {
        return err_set(e, ERR_INVALID,
                       "%s: macOS keeps %s from services; allow aned in "
                       "System Settings, Privacy & Security, Files and "
                       "Folders, or move the file",
                       what, folder);
    }
#else
    (void)path;
#endif
    return err_set(e, ERR_INVALID, "%s: %s", what, strerror(error));
}

static int open_what(const char *path, const char *what, bool folders,
                     struct err *e)
{
    struct stat st;
    if (path[0] != '/') {
        return err_set(e, ERR_INVALID, "%s: must be an absolute path", what);
    }
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return refuse_file(path, what, errno, e);
    }
    if (fstat(fd, &st) != 0 ||
        !(S_ISREG(st.st_mode) || (folders && S_ISDIR(st.st_mode)))) {
        (void)close(fd);
        return err_set(e, ERR_INVALID, "%s: not a regular file%s", what,
                       folders ? ", and no folder" : "");
    }
    return fd;
}

int job_open_file(const char *path, const char *what, struct err *e)
{
    return open_what(path, what, false, e);
}

int job_open_source(const char *path, struct err *e)
{
    return open_what(path, "source", true, e);
}

void job_wish_name(const struct job_wish *w, char out[MODEL_NAME_MAX + 1])
{
    const char *base = strrchr(w->source, '/');
    base = base != NULL ? base + 1 : w->source;
    if (w->import) {
        import_name(base, out);
    } else {
        struct span s = source_stem(w->source);
        file_name_from(s.p, s.n, out, MODEL_NAME_MAX + 1);
    }
}
