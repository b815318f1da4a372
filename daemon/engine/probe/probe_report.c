/* probe_report.c - results as JSON: what a parent keeps, and people read. */
#include <math.h>
#include <string.h>

#include "engine/probe/probe_impl.h"

static const char *device_name(enum backend_device d)
{
    static const char *const names[] = {[BACKEND_CPU] = "cpu",
                                        [BACKEND_GPU] = "gpu",
                                        [BACKEND_NEURAL_ENGINE] =
                                            "neural_engine"};
    return names[d];
}

static void put_text(struct json *o, const char *key, const char *v)
{
    if (v[0] != '\0') {
        json_add_str(o, key, v);
    } else {
        json_add_null(o, key);
    }
}

/* Less than 0: not measured. */
static void put_measured(struct json *o, const char *key, double v)
{
    if (v >= 0) {
        json_add_num(o, key, v);
    } else {
        json_add_null(o, key);
    }
}

static void put_error(struct json *o, int code, enum probe_step step,
                      const char *why)
{
    if (code == 0) {
        json_add_null(o, "error");
        return;
    }
    struct json *x = json_add_object(o, "error");
    json_add_str(x, "code", err_name(code));
    json_add_str(x, "step", probe_step_name(step));
    json_add_str(x, "message", why);
}

static void put_ops(struct json *o, const struct plan_groups *p)
{
    struct json *list = json_add_array(o, "ops");
    for (size_t i = 0; i < p->n; i++) { /* none without a plan */
        const struct plan_group *g = &p->of[i];
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "type", g->type);
        json_add_str(x, "device", device_name(g->preferred));
        struct json *could = json_add_array(x, "could");
        for (unsigned d = 0; d <= BACKEND_NEURAL_ENGINE; d++) {
            if ((g->supported & (1U << d)) != 0) {
                json_add_str(could, NULL, device_name((enum backend_device)d));
            }
        }
        json_add_int(x, "count", g->n);
        json_add_num(x, "cost", g->cost);
        json_add_str(x, "example", g->example);
    }
}

static void put_plan(struct json *o, const struct function_result *f)
{
    const struct plan_groups *p = &f->plan;
    put_text(o, "plan_error", f->plan_why);
    if (!f->planned) {
        json_add_null(o, "plan");
        return;
    }
    struct json *x = json_add_object(o, "plan");
    json_add_num(x, "ms", f->plan_ms);
    json_add_int(x, "operations", p->n_ops);
    json_add_int(x, "on_neural_engine", p->n_here);
    put_measured(x, "share", p->n_ops > 0 ? (double)p->n_here / p->n_ops : -1);
    put_measured(x, "share_of_cost", p->cost > 0 ? p->cost_here / p->cost : -1);
}

static bool right(const struct width_result *w)
{
    return w->bad == 0 &&
           (w->like.cosine > 1.5 || w->like.cosine >= PROBE_COSINE_MIN);
}

static bool sound(const struct width_result *w)
{
    return w->code == 0 && right(w) && w->steady && w->repeats;
}

static void put_width(struct json *list, const struct width_result *w)
{
    struct json *x = json_add_object(list, NULL);
    bool compared = w->like.cosine < 1.5;
    json_add_int(x, "width", w->t);
    json_add_bool(x, "sound", sound(w));
    put_error(x, w->code, w->step, w->why);
    put_measured(x, "warm_ms", w->warm_ms);
    put_measured(x, "median_us", w->us);
    put_measured(x, "cpu_only_us", w->cpu_us);
    if (compared) {
        json_add_num(x, "cosine", w->like.cosine);
    } else {
        json_add_null(x, "cosine");
    }
    put_text(x, "least_like", w->like.name);
    json_add_int(x, "not_finite", (int64_t)w->bad);
    json_add_bool(x, "steady", w->steady);
    json_add_bool(x, "repeats", w->repeats);
}

struct json *report_function(const struct package_result *p,
                             const struct function_result *f)
{
    struct json *all = json_object();
    struct json *o = json_add_object(all, "function");
    json_add_str(o, "package", p->path);
    json_add_str(o, "kind", p->head ? "head" : "layers");
    json_add_str(o, "function", f->name);
    put_error(o, f->code, f->step, f->why);
    put_text(o, "machine", f->arith);
    json_add_num(o, "open_ms", f->open_ms);
    json_add_int(o, "weight_bytes", (int64_t)f->weight_bytes);
    put_plan(o, f);
    put_text(o, "cpu_only_error", f->cpu_why);
    struct json *list = json_add_array(o, "widths");
    for (size_t i = 0; i < f->n; i++) {
        put_width(list, &f->width[i]);
    }
    put_ops(all, &f->plan);
    return all;
}

/* --- classes of widths that agree --- */

static bool agree(const struct package_result *p, const struct width_result *a,
                  const struct width_result *b)
{
    return memcmp(a->hash, b->hash, p->rows * sizeof(*a->hash)) == 0;
}

/* The sound width t of the package; of several functions the first one's. */
static const struct width_result *sound_width(const struct package_result *p,
                                              uint32_t t)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct function_result *f = &p->f[i];
        for (size_t k = 0; f->code == 0 && k < f->n; k++) {
            if (f->width[k].t == t && sound(&f->width[k])) {
                return &f->width[k];
            }
        }
    }
    return NULL;
}

/* A class stands where its least width comes. */
static bool is_least(const struct package_result *p,
                     const struct width_result *w)
{
    for (uint32_t t = 1; t < w->t; t++) {
        const struct width_result *x = sound_width(p, t);
        if (x != NULL && agree(p, w, x)) {
            return false;
        }
    }
    return true;
}

static void put_classes(struct json *o, const struct package_result *p)
{
    struct json *list = json_add_array(o, "classes");
    for (uint32_t t = 1; t <= ENGINE_CHUNK_MAX; t++) {
        const struct width_result *w = sound_width(p, t);
        if (w == NULL || !is_least(p, w)) {
            continue;
        }
        struct json *class = json_add_array(list, NULL);
        for (uint32_t u = t; u <= ENGINE_CHUNK_MAX; u++) {
            const struct width_result *x = sound_width(p, u);
            if (x != NULL && agree(p, w, x)) {
                json_add_int(class, NULL, u);
            }
        }
    }
}

struct json *report_package(const struct package_result *p,
                            const struct backend *reference)
{
    struct json *all = json_object();
    struct json *o = json_add_object(all, "package");
    json_add_str(o, "package", p->path);
    json_add_str(o, "kind", p->head ? "head" : "layers");
    json_add_int(o, "rows", p->rows);
    json_add_str(o, "reference", reference->name);
    put_text(o, "reference_error", p->reference_why);
    put_classes(o, p);
    return all;
}
