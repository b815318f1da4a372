/* accept_probe.c - what the daemon measured of a model on Core ML before it
 * used it: whether the numbers are right at each width, how long they take,
 * where the operations run. */
#include <string.h>

#include "client/accept.h"

#define SHARE_MIN   0.985   /* of a function's cost, on the Neural Engine */
#define SMALL_BYTES MIB(20) /* Core ML leaves such models to the processor */

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

/* The daemon's record of this machine; NULL: there is none yet. */
static int read_record(struct accept *a, const char *name, struct json **ret,
                       struct err *e)
{
    char path[200];
    struct json *j = NULL;
    RETERR(ask_path(path, sizeof(path), "/aned/v1/models/", name, "/residency",
                    e));
    RETERR(box_ask(a, "GET", path, NULL, &j, e));
    const struct json *measured = json_get(j, "measured");
    *ret = json_type(measured) == JSON_OBJECT ? json_copy(measured) : NULL;
    json_free(j);
    return 0;
}

/* Until the daemon does not measure the model any more. */
static int await_probe(struct accept *a, const char *name, struct err *e)
{
    char path[200];
    char state[16];
    RETERR(ask_path(path, sizeof(path), "/aned/v1/models/", name, "", e));
    do {
        struct json *j = NULL;
        RETERR(box_ask(a, "GET", path, NULL, &j, e));
        (void)snprintf(state, sizeof(state), "%s",
                       ask_str(json_get(j, "probe"), "state"));
        json_free(j);
    } while ((strcmp(state, "queued") == 0 || strcmp(state, "running") == 0) &&
             box_wait(a, 200));
    return 0;
}

/* The record that the first load left, or one that is asked for. */
static int record(struct accept *a, const char *name, struct json **ret,
                  struct err *e)
{
    char path[200];
    struct json *j = NULL;
    RETERR(box_backend(a, true, 0, e));
    RETERR(read_record(a, name, ret, e));
    if (*ret == NULL) {
        RETERR(ask_path(path, sizeof(path), "/aned/v1/models/", name, "/probe",
                        e));
        RETERR(box_ask(a, "POST", path, NULL, &j, e));
        json_free(j);
        RETERR(await_probe(a, name, e));
        RETERR(read_record(a, name, ret, e));
    }
    return *ret != NULL
               ? 0
               : err_set(e, ERR_UNAVAILABLE, "the daemon has measured nothing");
}

/* gives: what a report gives, whatever its verdict. */
static void probe(struct accept *a, const char *name, unsigned gives,
                  struct json **ret)
{
    struct err e = {0};
    if (record(a, name, ret, &e) < 0) {
        accept_error(a, "the daemon's probe", &e);
        return;
    }
    const char *verdict = ask_str(*ret, "verdict");
    const struct json *report = json_get(*ret, "report");
    a->has |= gives;
    accept_number(a, "took_ms", json_num(json_get(report, "took_ms")));
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

double probe_cold_ms(const struct json *probe)
{
    double ms = 0;
    for (const struct json *f =
             json_first(json_get(json_get(probe, "report"), "functions"));
         f != NULL; f = json_next(f)) {
        ms += json_num(json_get(f, "open_ms"));
        for (const struct json *w = json_first(json_get(f, "widths"));
             w != NULL; w = json_next(w)) {
            ms += json_num(json_get(w, "warm_ms"));
        }
    }
    return ms;
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
