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

#define SHARE_MIN    0.985   /* of a function's cost, on the Neural Engine */
#define SMALL_BYTES  MIB(20) /* Core ML leaves small models to the processor */
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
    if (!built_with_coreml(a)) {
        if (d->mac) {
            accept_fail(a, "this aned was built without Core ML");
        } else {
            accept_away(a, "aned was built without Core ML");
        }
        return;
    }
    a->has |= ACCEPT_BUILT;
    if (load(a, "demo", &a->load_ms, &e) < 0) {
        accept_error(a, "the demo on Core ML", &e);
        return;
    }
    keep_compiled(a);
}

void step_model_load(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct err e = {0};
    if (load(a, "model", &a->model_load_ms, &e) < 0) {
        accept_error(a, "the model on Core ML", &e);
        return;
    }
    keep_compiled(a);
}

/* --- once more --- */

static void again(struct accept *a, const char *name, double first)
{
    struct err e = {0};
    double second = 0;
    uint64_t which = 0;
    if (box_stop(a, &e) < 0 || load(a, name, &second, &e) < 0) {
        accept_error(a, "the second start", &e);
        return;
    }
    accept_number(a, "first_load_ms", first);
    (void)compiled(a, &which);
    if (which != a->compiled) {
        accept_fail(a, "the packages were compiled again");
    }
    if (first > SLOW_LOAD_MS && second > first / 2) {
        accept_fail(a,
                    "the second load took %.1f s, the first %.1f: the "
                    "system's caches did not help",
                    second / 1000, first / 1000);
    } else {
        accept_pass(a, "%.1f s, the first took %.1f", second / 1000,
                    first / 1000);
    }
}

void step_coreml_second(struct doctor *d)
{
    struct accept *a = accept_of(d);
    again(a, "demo", a->load_ms);
}

void step_model_second(struct doctor *d)
{
    struct accept *a = accept_of(d);
    again(a, "model", a->model_load_ms);
}

/* --- probe --- */

static void put_width(struct accept *a, const char *place, const struct json *w)
{
    static const char *const keys[] = {"warm_ms", "median_us", "cpu_only_us",
                                       "cosine"};
    for (size_t i = 0; i < countof(keys); i++) {
        const struct json *v = json_get(w, keys[i]);
        char name[200];
        if (json_type(v) == JSON_NUMBER) {
            (void)snprintf(name, sizeof(name), "%.140s width %.0f %s", place,
                           json_num(json_get(w, "width")), keys[i]);
            accept_number(a, name, json_num(v));
        }
    }
}

/* "layers_00_05.mlpackage t4" */
static void place_of(const struct json *f, char out[160])
{
    const char *fn = ask_str(f, "function");
    (void)snprintf(out, 160, "%.100s%s%.50s", ask_str(f, "package"),
                   fn[0] != '\0' ? " " : "", fn);
}

static void put_measured(struct accept *a, const struct json *report)
{
    for (const struct json *f = json_first(json_get(report, "functions"));
         f != NULL; f = json_next(f)) {
        char place[160];
        char name[200];
        place_of(f, place);
        (void)snprintf(name, sizeof(name), "%s open_ms", place);
        accept_number(a, name, json_num(json_get(f, "open_ms")));
        for (const struct json *w = json_first(json_get(f, "widths"));
             w != NULL; w = json_next(w)) {
            put_width(a, place, w);
        }
    }
    if (json_type(json_get(report, "margin")) == JSON_NUMBER) {
        accept_number(a, "margin", json_num(json_get(report, "margin")));
    }
}

/* {"layers": [1,4], "heads": [1]} in a line. */
static void put_widths(struct accept *a, const struct json *widths)
{
    struct buf b;
    buf_init(&b, KIB(4));
    json_write(widths, false, &b);
    accept_note(a, "widths that give the same bits: %s",
                buf_ok(&b) && b.n > 0 ? b.p : "{}");
    buf_fini(&b);
}

/* gives: what a report gives, whatever its verdict. */
static void probe(struct accept *a, const char *name, unsigned gives,
                  struct json **ret)
{
    char bundle[SERVICE_PATH_MAX];
    char sub[80];
    const char *argv[] = {NULL,     "probe",  bundle, "--backend",
                          "coreml", "--json", NULL};
    struct buf out;
    struct err e = {0};
    int code = 0;
    (void)snprintf(sub, sizeof(sub), "home/models/%s", name);
    box_path(a, sub, bundle);
    int rc = box_aned(a, argv, &out, &code, &e);
    if (rc == 0 || code == EXIT_DATA) {
        const char *line = run_last_line(&out);
        rc = json_parse(line, strlen(line), ret, &e);
    }
    buf_fini(&out);
    if (rc < 0) {
        accept_error(a, "aned probe", &e);
        return;
    }
    const char *verdict = ask_str(*ret, "verdict");
    const struct json *report = json_get(*ret, "report");
    a->has |= gives;
    put_widths(a, json_get(*ret, "widths"));
    put_measured(a, report);
    for (const struct json *r = json_first(json_get(report, "reasons"));
         r != NULL; r = json_next(r)) {
        accept_note(a, "%s", json_str(r) != NULL ? json_str(r) : "");
    }
    if (strcmp(verdict, "passed") == 0 || strcmp(verdict, "warned") == 0) {
        accept_pass(a, "the verdict is `%s`", verdict);
    } else {
        accept_fail(a, "the verdict is `%s`", verdict);
    }
}

void step_coreml_probe(struct doctor *d)
{
    struct accept *a = accept_of(d);
    probe(a, "demo", ACCEPT_PROBE, &a->probe);
}

void step_model_probe(struct doctor *d)
{
    struct accept *a = accept_of(d);
    probe(a, "model", ACCEPT_MODEL_PROBE, &a->model_probe);
}

/* --- placement --- */

/* A function's share on the Neural Engine: of cost, else of operations; -1:
 * the system has no plan of it. */
static double share_of(const struct json *function)
{
    const struct json *plan = json_get(function, "plan");
    const struct json *v = json_get(plan, "share_of_cost");
    v = json_type(v) == JSON_NUMBER ? v : json_get(plan, "share");
    return json_type(v) == JSON_NUMBER ? json_num(v) : -1;
}

static void placement(struct accept *a, const struct json *probe)
{
    double bytes = 0;
    size_t n = 0;
    size_t elsewhere = 0;
    for (const struct json *f =
             json_first(json_get(json_get(probe, "report"), "functions"));
         f != NULL; f = json_next(f)) {
        char place[160];
        char name[200];
        double share = share_of(f);
        place_of(f, place);
        bytes += json_num(json_get(f, "weight_bytes"));
        n++;
        (void)snprintf(name, sizeof(name), "%s share", place);
        accept_number(a, name, share);
        if (share < SHARE_MIN) {
            elsewhere++;
            accept_note(a, "%s: %.1f%% on the Neural Engine%s%s", place,
                        share < 0 ? 0 : 100 * share,
                        share < 0 ? ": there is no plan: " : "",
                        share < 0 ? ask_str(f, "plan_error") : "");
        }
    }
    if (n == 0) {
        accept_fail(a, "the probe reports no function");
    } else if (elsewhere == 0) {
        accept_pass(a, "%zu functions, all on the Neural Engine", n);
    } else if (bytes < (double)SMALL_BYTES) {
        accept_skip(a,
                    "a model of %.0f MB says little: Core ML leaves small ones "
                    "to the processor; name a larger one with --model",
                    bytes / 1e6);
    } else {
        accept_fail(a, "%zu of %zu functions are not on the Neural Engine",
                    elsewhere, n);
    }
}

void step_coreml_placement(struct doctor *d)
{
    struct accept *a = accept_of(d);
    placement(a, a->probe);
}

void step_model_placement(struct doctor *d)
{
    struct accept *a = accept_of(d);
    placement(a, a->model_probe);
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
