/* report.c - a prediction as people and the store have it: alike operations as
 * one, the gravest reasons first, functions in the form of a measured report.
 */
#include <string.h>

#include "convert/residency/rules.h"

/* --- alike operations --- */

static struct predict_kind *kind_of(struct predict_kinds *t,
                                    const struct predict_op *o)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct predict_op *f = t->of[i].first;
        if (f->rule == o->rule && f->verdict == o->verdict &&
            strcmp(f->op->type, o->op->type) == 0) {
            return &t->of[i];
        }
    }
    if (t->n == countof(t->of)) {
        return &t->others[o->verdict];
    }
    return &t->of[t->n++];
}

static int graver(const void *a, const void *b)
{
    const struct predict_kind *x = a;
    const struct predict_kind *y = b;
    if (x->first->verdict != y->first->verdict) {
        return x->first->verdict < y->first->verdict ? -1 : 1;
    }
    if (x->cost < y->cost || x->cost > y->cost) {
        return x->cost < y->cost ? 1 : -1;
    }
    return strcmp(x->first->op->type, y->first->op->type);
}

void predict_group(const struct predict_function *f, struct predict_kinds *t)
{
    *t = (struct predict_kinds){0};
    for (size_t i = 0; i < f->n_ops; i++) {
        struct predict_kind *k = kind_of(t, &f->ops[i]);
        k->first = k->first != NULL ? k->first : &f->ops[i];
        k->n++;
        k->cost += f->ops[i].cost;
    }
    qsort(t->of, t->n, sizeof(*t->of), graver);
}

/* --- of a bundle --- */

void predict_total_init(struct predict_total *t, const struct predict_limits *l)
{
    *t = (struct predict_total){.limits = *l};
}

/* The same rule in several packages is one reason, told with the first. */
static void add_reason(struct predict_total *t, const char *package,
                       const struct predict_rule *rule, const char *detail,
                       uint64_t weight)
{
    size_t at = 0;
    while (at < t->n && strcmp(t->rule[at], rule->id) != 0) {
        at++;
    }
    if (at == countof(t->reason)) {
        return; /* it stands in its function's report */
    }
    if (at == t->n) {
        char text[PREDICT_REASON_MAX];
        predict_reason(rule, detail, text, sizeof(text));
        t->n++;
        (void)snprintf(t->rule[at], sizeof(t->rule[at]), "%s", rule->id);
        (void)snprintf(t->reason[at], sizeof(t->reason[at]), "%.60s%s%s",
                       package, package[0] != '\0' ? ": " : "", text);
    }
    t->weight[at] += weight;
}

#define GRAVE \
    ((uint64_t)1 << 40) /* what is off goes before what is not known */

static void add_findings(struct predict_total *t, const char *package,
                         const struct predict_findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        add_reason(t, package, f->of[i].rule, f->of[i].detail,
                   f->of[i].verdict == PREDICT_OFF ? 2 * GRAVE : 1);
    }
}

void predict_total_add(struct predict_total *t, const char *package,
                       const struct prediction *v)
{
    t->packages++;
    t->bytes += v->weight_bytes;
    add_findings(t, package, &v->findings);
    for (size_t i = 0; i < v->n; i++) {
        const struct predict_function *f = &v->f[i];
        t->programs += rule_shapes(f->f);
        t->ops += f->n_ops;
        t->on += f->count[PREDICT_ON];
        t->moved += f->bytes;
        t->moved_on += f->bytes * f->cost[PREDICT_ON];
        add_findings(t, package, &f->findings);
        for (size_t k = 0; k < f->n_ops; k++) {
            const struct predict_op *o = &f->ops[k];
            if (o->verdict != PREDICT_ON) {
                add_reason(t, package, o->rule, o->detail,
                           o->verdict == PREDICT_OFF ? GRAVE + 1 : 1);
            }
        }
    }
}

static void swap(struct predict_total *t, size_t a, size_t b)
{
    char reason[sizeof(t->reason[0])];
    char rule[sizeof(t->rule[0])];
    uint64_t weight = t->weight[a];
    memcpy(reason, t->reason[a], sizeof(reason));
    memcpy(rule, t->rule[a], sizeof(rule));
    memcpy(t->reason[a], t->reason[b], sizeof(reason));
    memcpy(t->rule[a], t->rule[b], sizeof(rule));
    t->weight[a] = t->weight[b];
    memcpy(t->reason[b], reason, sizeof(reason));
    memcpy(t->rule[b], rule, sizeof(rule));
    t->weight[b] = weight;
}

const char *predict_judge(struct predict_total *t)
{
    if (t->findings.n == 0) {
        find_in_total(t);
        add_findings(t, "", &t->findings);
    }
    for (size_t i = 1; i < t->n; i++) { /* a dozen */
        for (size_t k = i; k > 0 && t->weight[k] > t->weight[k - 1]; k--) {
            swap(t, k, k - 1);
        }
    }
    return t->n > 0 ? "warned" : "passed";
}

void predict_line(const struct predict_total *t, char *out, size_t size)
{
    double share = t->ops > 0 ? 100.0 * (double)t->on / (double)t->ops : 0;
    double cost = t->moved > 0 ? 100 * t->moved_on / t->moved : 0;
    (void)snprintf(out, size,
                   "predicted for profile %s: %.1f%% of %llu operations on the "
                   "Neural Engine, %.1f%% of the bytes%s%s",
                   t->limits.profile, share, (unsigned long long)t->ops, cost,
                   t->n > 0 ? "; " : "", t->n > 0 ? t->reason[0] : "");
}

/* --- JSON --- */

static const char *device_of(enum predict_verdict v)
{
    static const char *const names[] = {"cpu", "unknown", "neural_engine"};
    return names[v];
}

static void put_kind(struct json *list, const struct predict_kind *k,
                     const char *type)
{
    const struct predict_op *o = k->first;
    char reason[PREDICT_REASON_MAX];
    struct json *x = json_add_object(list, NULL);
    json_add_str(x, "type", type);
    json_add_str(x, "device", device_of(o->verdict));
    struct json *could = json_add_array(x, "could");
    json_add_str(could, NULL, "cpu"); /* runs all of them */
    if (o->verdict == PREDICT_ON) {
        json_add_str(could, NULL, "neural_engine");
    }
    json_add_int(x, "count", k->n);
    json_add_num(x, "cost", k->cost);
    json_add_str(x, "example",
                 o->op->n_outputs > 0 ? o->op->outputs[0]->name : "");
    json_add_str(x, "rule", o->rule->id);
    if (o->verdict == PREDICT_ON) {
        json_add_null(x, "reason");
    } else {
        predict_reason(o->rule, o->detail, reason, sizeof(reason));
        json_add_str(x, "reason", reason);
    }
}

static void put_findings(struct json *list, const struct predict_findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct predict_finding *x = &f->of[i];
        char reason[PREDICT_REASON_MAX];
        struct json *o = json_add_object(list, NULL);
        predict_reason(x->rule, x->detail, reason, sizeof(reason));
        json_add_str(o, "rule", x->rule->id);
        json_add_str(o, "verdict", predict_word(x->verdict));
        json_add_str(o, "source", x->rule->source);
        json_add_str(o, "reason", reason);
    }
}

static void put_plan(struct json *o, const struct predict_function *f)
{
    struct json *x = json_add_object(o, "plan");
    double cost = 0;
    for (size_t i = 0; i < countof(f->cost); i++) {
        cost += f->cost[i];
    }
    json_add_int(x, "operations", (int64_t)f->n_ops);
    json_add_int(x, "on_neural_engine", f->count[PREDICT_ON]);
    json_add_int(x, "unknown", f->count[PREDICT_UNKNOWN]);
    if (f->n_ops > 0) {
        json_add_num(x, "share",
                     (double)f->count[PREDICT_ON] / (double)f->n_ops);
    } else {
        json_add_null(x, "share");
    }
    if (cost > 0) {
        json_add_num(x, "share_of_cost", f->cost[PREDICT_ON]);
    } else {
        json_add_null(x, "share_of_cost");
    }
}

struct json *predict_function_json(const struct prediction *v, size_t function,
                                   const char *package, const char *kind)
{
    const struct predict_function *f = &v->f[function];
    bool is_default = function == v->p->default_function && !v->p->multi;
    struct predict_kinds t;
    struct json *all = json_object();
    struct json *o = json_add_object(all, "function");
    json_add_str(o, "package", package);
    json_add_str(o, "kind", kind);
    json_add_str(o, "function", is_default ? "" : f->f->name);
    json_add_int(o, "weight_bytes", (int64_t)v->weight_bytes);
    put_plan(o, f);
    struct json *findings = json_add_array(o, "findings");
    put_findings(findings, &f->findings);
    put_findings(findings, &v->findings);
    struct json *map = function == 0 ? predict_map_json(f) : NULL;
    if (map != NULL) { /* of one function: they have the same operations */
        json_add_tree(o, "map", map);
    } else {
        json_add_null(o, "map");
    }
    struct json *list = json_add_array(all, "ops");
    predict_group(f, &t);
    for (size_t i = 0; i < t.n; i++) {
        put_kind(list, &t.of[i], t.of[i].first->op->type);
    }
    for (size_t i = 0; i < countof(t.others); i++) {
        if (t.others[i].n > 0) {
            put_kind(list, &t.others[i], "others");
        }
    }
    return all;
}

struct json *predict_summary_json(struct predict_total *t)
{
    char options[32];
    struct json *all = json_object();
    struct json *o = json_add_object(all, "summary");
    (void)snprintf(options, sizeof(options), "rules=%d", PREDICT_RULES_VERSION);
    json_add_str(o, "machine", t->limits.profile);
    json_add_str(o, "options", options);
    json_add_str(o, "verdict", predict_judge(t));
    struct json *reasons = json_add_array(o, "reasons");
    for (size_t i = 0; i < t->n; i++) {
        json_add_str(reasons, NULL, t->reason[i]);
    }
    return all;
}
