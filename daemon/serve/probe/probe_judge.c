/* probe_judge.c - what a probe's results come to: which widths agree in all
 * packages, and the verdict with its reasons. */
#include <stdarg.h>
#include <string.h>

#include "proto/widths.h"
#include "serve/probe/probe_impl.h"

/* From where on a time is longer than another: more than chance may add. */
#define SLOWER    1.1
#define SLOWER_US 100

static const char *text(const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    return s != NULL ? s : "";
}

static bool is_number(const struct json *j)
{
    return json_type(j) == JSON_NUMBER;
}

/* Of an entry of a function's list; 0: it is none. */
static uint32_t width_of(const struct json *w)
{
    int64_t t = 0;
    return json_int(json_get(w, "width"), 1, ENGINE_CHUNK_MAX, &t) ? (uint32_t)t
                                                                   : 0;
}

/* --- widths that agree --- */

struct classes {
    uint32_t n;
    uint32_t t[ENGINE_WIDTHS_MAX], id[ENGINE_WIDTHS_MAX];
};

/* The class of a package that t is in, from 1; 0: t does not run right. */
static uint32_t class_of(const struct json *package, uint32_t t)
{
    uint32_t id = 0;
    for (const struct json *c = json_first(json_get(package, "classes"));
         c != NULL; c = json_next(c)) {
        id++;
        for (const struct json *w = json_first(c); w != NULL;
             w = json_next(w)) {
            int64_t v = 0;
            if (json_int(w, 1, ENGINE_CHUNK_MAX, &v) && v == t) {
                return id;
            }
        }
    }
    return 0;
}

static void begin(struct classes *x, const struct json *package)
{
    for (uint32_t t = 1; t <= ENGINE_CHUNK_MAX; t++) {
        uint32_t id = class_of(package, t);
        if (id > 0 && x->n < ENGINE_WIDTHS_MAX) {
            x->t[x->n] = t;
            x->id[x->n++] = id;
        }
    }
}

/* Two widths stay together when they are so in this package too. */
static void refine(struct classes *x, const struct json *package)
{
    struct classes to = {0};
    uint32_t was[ENGINE_WIDTHS_MAX];
    uint32_t here[ENGINE_WIDTHS_MAX];
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t id = class_of(package, x->t[i]);
        if (id == 0) {
            continue;
        }
        uint32_t k = 0;
        while (k < to.n && (was[k] != x->id[i] || here[k] != id)) {
            k++;
        }
        was[to.n] = x->id[i];
        here[to.n] = id;
        to.t[to.n] = x->t[i];
        to.id[to.n] = k + 1;
        to.n++;
    }
    *x = to;
}

static uint32_t members(const struct classes *x, uint32_t id,
                        struct msg_widths *ret)
{
    ret->n = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->id[i] == id) {
            ret->of[ret->n++] = x->t[i];
        }
    }
    return ret->n;
}

void probe_agree(const struct probe_found *f, const char *kind,
                 struct probe_agreement *ret)
{
    struct classes x = {0};
    bool begun = false;
    uint32_t best = 0;
    uint32_t most = 0;
    *ret = (struct probe_agreement){0};
    for (const struct json *p = json_first(f->packages); p != NULL;
         p = json_next(p)) {
        if (strcmp(text(p, "kind"), kind) == 0) {
            if (begun) {
                refine(&x, p);
            } else {
                begin(&x, p);
            }
            begun = true;
        }
    }
    for (uint32_t i = 0; i < x.n; i++) {
        struct msg_widths w;
        uint32_t k = members(&x, x.id[i], &w);
        ret->all.of[ret->all.n++] = x.t[i];
        if (width_better(k, best, most)) {
            best = x.t[i];
            most = k;
            ret->best = w;
        }
    }
}

/* --- reasons --- */

PRINTF_LIKE(2, 3)
static void say(struct probe_verdict *v, const char *fmt, ...)
{
    va_list ap;
    if (v->n == PROBE_REASONS) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(v->reason[v->n++], sizeof(v->reason[0]), fmt, ap);
    va_end(ap);
}

/* "layers_00_05.mlpackage t4" */
static const char *place(const struct json *f, char out[400])
{
    const char *fn = text(f, "function");
    (void)snprintf(out, 400, "%.255s%s%.127s", text(f, "package"),
                   fn[0] != '\0' ? " " : "", fn);
    return out;
}

static void judge_losses(const struct probe_found *f, struct probe_verdict *v)
{
    for (size_t i = 0; i < f->n_losses; i++) {
        const struct probe_loss *x = &f->losses[i];
        char width[24] = "";
        if (x->width > 0) {
            (void)snprintf(width, sizeof(width), ", width %u", x->width);
        }
        say(v, "%.100s%s%.60s: the process %s at step %s%s", x->package,
            x->function[0] != '\0' ? " " : "", x->function, x->how, x->step,
            width);
    }
    if (!f->whole) {
        say(v, "given up: not all packages were measured");
    }
}

static void judge_width(const struct json *f, const struct json *w,
                        struct probe_verdict *v)
{
    char at[400];
    const struct json *e = json_get(w, "error");
    const struct json *cosine = json_get(w, "cosine");
    uint32_t t = width_of(w);
    double bad = json_num(json_get(w, "not_finite"));
    (void)place(f, at);
    if (json_type(e) == JSON_OBJECT) {
        say(v, "%.120s: width %u: %s: %.200s", at, t, text(e, "step"),
            text(e, "message"));
    } else if (bad > 0) {
        say(v, "%.120s: width %u: %.0f numbers are not finite", at, t, bad);
    } else if (is_number(cosine) && json_num(cosine) < PROBE_COSINE_MIN) {
        say(v, "%.120s: width %u: cosine %.4f (%.60s), at least %.2f is wanted",
            at, t, json_num(cosine), text(w, "least_like"), PROBE_COSINE_MIN);
    } else if (!json_bool(json_get(w, "repeats"))) {
        say(v, "%.120s: width %u: the same input gives other bits", at, t);
    } else if (!json_bool(json_get(w, "steady"))) {
        say(v, "%.120s: width %u: a row's bits depend on the rows beside it",
            at, t);
    }
}

static bool lost_at_open(const struct probe_found *found, const struct json *f)
{
    for (size_t i = 0; i < found->n_losses; i++) {
        const struct probe_loss *x = &found->losses[i];
        if (strcmp(x->step, "open") == 0 &&
            strcmp(x->package, text(f, "package")) == 0 &&
            strcmp(x->function, text(f, "function")) == 0) {
            return true;
        }
    }
    return false;
}

static void judge_function(const struct probe_found *found,
                           const struct json *f, struct probe_verdict *v)
{
    char at[400];
    const struct json *e = json_get(f, "error");
    if (json_type(e) == JSON_OBJECT && !lost_at_open(found, f)) {
        say(v, "%.120s: %s: %.200s", place(f, at), text(e, "step"),
            text(e, "message"));
    }
    for (const struct json *w = json_first(json_get(f, "widths")); w != NULL;
         w = json_next(w)) {
        judge_width(f, w, v);
    }
}

/* --- what could be better --- */

static void judge_plan(const struct json *f, struct probe_verdict *v)
{
    char at[400];
    const struct json *plan = json_get(f, "plan");
    const struct json *share = json_get(plan, "share_of_cost");
    bool cost = is_number(share);
    share = cost ? share : json_get(plan, "share");
    if (text(f, "plan_error")[0] != '\0') {
        say(v, "%.120s: the system has no plan: %.200s", place(f, at),
            text(f, "plan_error"));
    } else if (is_number(share) && json_num(share) < PROBE_SHARE_MIN) {
        say(v, "%.120s: %.1f%% of the %s are not on the Neural Engine",
            place(f, at), 100 * (1 - json_num(share)),
            cost ? "costs" : "operations");
    }
}

/* The sum over all functions of a kind that have this width; < 0: one was not
 * measured. */
static double sum_of(const struct probe_found *f, const char *kind, uint32_t t,
                     const char *key)
{
    double sum = 0;
    for (const struct json *x = json_first(f->functions); x != NULL;
         x = json_next(x)) {
        for (const struct json *w = json_first(json_get(x, "widths"));
             w != NULL && strcmp(text(x, "kind"), kind) == 0;
             w = json_next(w)) {
            const struct json *us = json_get(w, key);
            if (width_of(w) == t && sum >= 0) {
                sum = is_number(us) ? sum + json_num(us) : -1;
            }
        }
    }
    return sum;
}

static void judge_times(const struct probe_found *f,
                        const struct probe_agreement *layers,
                        struct probe_verdict *v)
{
    uint32_t n = layers->best.n;
    uint32_t t = n > 0 ? layers->best.of[n - 1] : 0;
    double us = sum_of(f, "layers", t, "median_us");
    double alone = sum_of(f, "layers", t, "cpu_only_us");
    if (us > 0 && alone > 0 && us > alone * SLOWER + SLOWER_US) {
        say(v, "slower than the CPU alone: %.2f ms, not %.2f, at width %u",
            us / 1000, alone / 1000, t);
    }
}

void probe_judge(const struct probe_found *f, struct probe_verdict *ret)
{
    struct probe_agreement layers;
    struct probe_agreement heads;
    *ret = (struct probe_verdict){.word = "passed"};
    probe_agree(f, "layers", &layers);
    probe_agree(f, "head", &heads);
    judge_losses(f, ret);
    for (const struct json *x = json_first(f->functions); x != NULL;
         x = json_next(x)) {
        judge_function(f, x, ret);
    }
    for (const struct json *x = json_first(f->packages); x != NULL;
         x = json_next(x)) {
        if (text(x, "reference_error")[0] != '\0') {
            say(ret, "%.120s: not compared: %.200s", text(x, "package"),
                text(x, "reference_error"));
        }
    }
    for (const struct json *x = json_first(f->functions); x != NULL;
         x = json_next(x)) {
        judge_plan(x, ret);
    }
    judge_times(f, &layers, ret);
    if (layers.best.n == 0 || heads.best.n == 0 || !f->whole) {
        ret->word = "failed";
        say(ret, "no width runs right in all packages");
    } else if (ret->n > 0) {
        ret->word = "warned";
    }
}
