/* accept_coreml.c - Core ML: whether it loads what we write, where it runs it,
 * whether the numbers are right, what it keeps on disk. With the demo, and with
 * the model of --model: the demo is so small that Core ML may well leave it to
 * the processor. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "client/accept.h"

#define SLOW_LOAD_MS 10000.0 /* such a load is worth a cache */
#define BACKING_RUNS "200"
#define CACHE_DEPTH  3

/* --- load --- */

static bool built_with_coreml(const struct accept *a)
{
    for (const struct json *b = json_first(json_get(a->machine, "backends"));
         b != NULL; b = json_next(b)) {
        if (json_str(b) != NULL && strcmp(json_str(b), "coreml") == 0) {
            return true;
        }
    }
    return false;
}

/* Folders NAME.mlmodelc below `dir`: their number, and a hash of which they
 * are. */
static size_t compiled_below(const char *dir, int depth, uint64_t *which)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *x = d != NULL ? readdir(d) : NULL; x != NULL;
         x = readdir(d)) {
        char path[SERVICE_PATH_MAX];
        struct stat st;
        size_t k = strlen(x->d_name);
        if (x->d_name[0] == '.' ||
            !file_join(path, sizeof(path), dir, x->d_name) ||
            lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
            continue;
        }
        if (k > 9 && strcmp(x->d_name + k - 9, ".mlmodelc") == 0) {
            const uint64_t of[2] = {st.st_ino, hash_bytes(path, strlen(path))};
            *which ^= hash_bytes(of, sizeof(of)); /* in any order */
            n++;
        } else if (depth > 0) {
            n += compiled_below(path, depth - 1, which);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return n;
}

static size_t compiled(const struct accept *a, uint64_t *which)
{
    char dir[SERVICE_PATH_MAX];
    *which = 0;
    box_path(a, "home/cache", dir);
    return compiled_below(dir, CACHE_DEPTH, which);
}

static void judge_load(struct accept *a, const struct json *model)
{
    const struct json *engine = json_get(model, "engine");
    double on_cpu = box_engine(model, "packages_on_cpu");
    if (strcmp(ask_str(model, "state"), "loaded") != 0) {
        accept_fail(a, "its state is %s: %s", ask_str(model, "state"),
                    ask_str(model, "reason"));
        return;
    }
    if (on_cpu > 0) {
        accept_fail(a, "%.0f packages left Core ML: %s", on_cpu,
                    ask_str(engine, "last_failure"));
    }
    if (!json_bool(json_get(engine, "exact"))) {
        accept_fail(a, "the engine says that it is not exact");
    }
    if (on_cpu == 0) {
        accept_pass(a, "loaded; results depend on: %s",
                    ask_str(engine, "arith"));
    }
    accept_number(a, "t_max", box_engine(model, "t_max"));
    accept_number(a, "packages_reopened",
                  box_engine(model, "packages_reopened"));
}

/* Load with Core ML and time it: the whole, and what the engine counted. */
static int load(struct accept *a, const char *name, double *ret_ms,
                struct err *e)
{
    struct json *model = NULL;
    RETERR(box_backend(a, true, 0, e));
    double from = now_seconds();
    RETERR(box_load(a, name, &model, e));
    *ret_ms = (now_seconds() - from) * 1000;
    accept_number(a, "load_ms", *ret_ms);
    accept_number(a, "engine_load_ms", box_engine(model, "load_ms"));
    judge_load(a, model);
    json_free(model);
    return 0;
}

static void keep_compiled(struct accept *a)
{
    uint64_t which = 0;
    size_t n = compiled(a, &which);
    accept_number(a, "compiled_models", (double)n);
    a->compiled = which;
    if (n == 0) {
        accept_fail(a, "no compiled model is kept in the home's cache");
    }
}

void step_coreml_load(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct err e = {0};
    double ms = 0;
    if (!built_with_coreml(a)) {
        if (d->mac) {
            accept_fail(a, "this aned was built without Core ML");
        } else {
            accept_away(a, "aned was built without Core ML");
        }
        return;
    }
    a->has |= ACCEPT_BUILT;
    if (load(a, "demo", &ms, &e) < 0) {
        accept_error(a, "the demo on Core ML", &e);
        return;
    }
    keep_compiled(a);
}

void step_model_load(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct err e = {0};
    double ms = 0;
    if (load(a, "model", &ms, &e) < 0) {
        accept_error(a, "the model on Core ML", &e);
        return;
    }
    keep_compiled(a);
}

/* --- once more --- */

/* cold_ms: what opening and warming took when this model was first seen. */
static void again(struct accept *a, const char *name, double cold_ms)
{
    struct err e = {0};
    double second = 0;
    uint64_t which = 0;
    if (box_stop(a, &e) < 0 || load(a, name, &second, &e) < 0) {
        accept_error(a, "the second start", &e);
        return;
    }
    accept_number(a, "cold_ms", cold_ms);
    (void)compiled(a, &which);
    if (which != a->compiled) {
        accept_fail(a, "the packages were compiled again");
    }
    if (cold_ms > SLOW_LOAD_MS && second > cold_ms / 2) {
        accept_fail(a,
                    "the load took %.1f s, the first opening %.1f: the "
                    "system's caches did not help",
                    second / 1000, cold_ms / 1000);
    } else {
        accept_pass(a, "%.1f s, the first opening took %.1f", second / 1000,
                    cold_ms / 1000);
    }
}

void step_coreml_second(struct doctor *d)
{
    struct accept *a = accept_of(d);
    again(a, "demo", probe_cold_ms(a->probe));
}

void step_model_second(struct doctor *d)
{
    struct accept *a = accept_of(d);
    again(a, "model", probe_cold_ms(a->model_probe));
}

/* --- results where they were wanted --- */

static void count_backings(struct accept *a, const char *package,
                           const char *out)
{
    struct json *j = NULL;
    struct err e = {0};
    if (json_parse(out, strlen(out), &j, &e) < 0) {
        accept_error(a, package, &e);
        return;
    }
    const struct json *moved = json_get(j, "moved");
    char name[160];
    (void)snprintf(name, sizeof(name), "%.100s moved", package);
    accept_number(a, name, json_num(moved));
    (void)snprintf(name, sizeof(name), "%.100s median_us", package);
    accept_number(a, name, json_num(json_get(j, "median_us")));
    if (json_type(moved) != JSON_NUMBER) {
        accept_fail(a, "%s: it does not say how many results came elsewhere",
                    package);
    } else if (json_bool(json_get(j, "refused"))) {
        accept_fail(a, "%s: predictions fail with prepared arrays", package);
    } else if (json_num(moved) > 0) {
        accept_fail(a, "%s: %.0f results came elsewhere", package,
                    json_num(moved));
    } else {
        accept_pass(a, "%s: %.0f predictions, each result where it was wanted",
                    package, json_num(json_get(j, "predictions")));
    }
    json_free(j);
}

static void time_package(struct accept *a, const char *bundle,
                         const char *package)
{
    char path[SERVICE_PATH_MAX];
    const char *argv[] = {NULL,      "mil",        "time",      path,
                          "--count", BACKING_RUNS, "--backend", "coreml",
                          "--json",  NULL};
    struct buf out = {0};
    struct err e = {0};
    int code = 0;
    if (!file_join(path, sizeof(path), bundle, package)) {
        accept_fail(a, "%s: too long a path", package);
    } else if (box_aned(a, argv, &out, &code, &e) < 0) {
        accept_error(a, package, &e);
    } else {
        /* Core ML prints on stdout when it compiles */
        count_backings(a, package, run_last_line(&out));
    }
    buf_fini(&out);
}

void step_coreml_backings(struct doctor *d)
{
    struct accept *a = accept_of(d);
    char bundle[SERVICE_PATH_MAX];
    size_t n = 0;
    box_path(a, "home/models/demo", bundle);
    DIR *dir = opendir(bundle);
    for (struct dirent *x = dir != NULL ? readdir(dir) : NULL; x != NULL;
         x = readdir(dir)) {
        const char *dot = strrchr(x->d_name, '.');
        if (dot != NULL && strcmp(dot, ".mlpackage") == 0) {
            time_package(a, bundle, x->d_name);
            n++;
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    if (n == 0) {
        accept_fail(a, "the demo's bundle has no packages");
    }
}

/* --- a model of the user's --- */

void step_model_convert(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct err e = {0};
    if (a->o.model == NULL) {
        accept_skip(a, "no model was named: --model FILE.gguf");
        return;
    }
    double from = now_seconds();
    if (box_backend(a, false, 0, &e) < 0 ||
        box_convert(a, a->o.model, "model", 0, &e) < 0) {
        accept_error(a, "the model's conversion", &e);
        return;
    }
    accept_pass(a, "converted");
    accept_number(a, "ms", (now_seconds() - from) * 1000);
}

/* --- what it keeps on disk --- */

static bool system_caches(const struct accept *a, char out[SERVICE_PATH_MAX])
{
    return file_join(out, SERVICE_PATH_MAX, a->d.service.user,
                     "Library/Caches/" SERVICE_LABEL);
}

void coreml_caches_before(struct accept *a)
{
    char path[SERVICE_PATH_MAX];
    a->caches_before = system_caches(a, path) ? file_tree_bytes(path) : 0;
}

void step_coreml_caches(struct doctor *d)
{
    struct accept *a = accept_of(d);
    char path[SERVICE_PATH_MAX];
    if (!accept_on_mac(a) || !system_caches(a, path)) {
        return;
    }
    double grown = (double)file_tree_bytes(path) - (double)a->caches_before;
    accept_number(a, "library_caches_grown_bytes", grown);
    box_path(a, "home/cache", path);
    double own = (double)file_tree_bytes(path);
    accept_number(a, "home_cache_bytes", own);
    box_path(a, "home/models", path);
    double models = (double)file_tree_bytes(path);
    accept_number(a, "models_bytes", models);
    accept_note(a,
                "%.1f times the models' bytes, without what the system keeps "
                "below /Library/Caches/com.apple.aned",
                models > 0 ? (own + grown) / models : 0);
    accept_note(a, "what grew in ~/Library/Caches/" SERVICE_LABEL
                   " stays; `anectl doctor` says when that is too much");
}
