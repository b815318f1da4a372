/* plan_report.c - what a plan means: which limits made it, what another chip
 * would change; as an object and as sentences. */
#include <stddef.h>
#include <string.h>

#include "base/buf.h"
#include "convert/plan.h"

/* --- why --- */

static const struct limit {
    const char *name;
    size_t at; /* of the profile */
    bool wide; /* 64 bits */
} limits[] = {
    {"program_bytes", offsetof(struct plan_profile, program_bytes), true },
    {"states",        offsetof(struct plan_profile, states),        false},
    {"head_rows",     offsetof(struct plan_profile, head_rows),     false},
    {"channels",      offsetof(struct plan_profile, channels),      false},
};

/* p without the limits of the set, a bit for each row. */
static struct plan_profile relaxed(const struct plan_profile *p, unsigned set)
{
    struct plan_profile q = *p;
    const uint64_t none64 = INT64_MAX;
    const uint32_t none = UINT32_MAX;
    q.programs = UINT32_MAX; /* it refuses plans, and makes none */
    for (size_t i = 0; i < countof(limits); i++) {
        if ((set >> i & 1) != 0 && limits[i].wide) {
            memcpy((char *)&q + limits[i].at, &none64, sizeof(none64));
        } else if ((set >> i & 1) != 0) {
            memcpy((char *)&q + limits[i].at, &none, sizeof(none));
        }
    }
    return q;
}

static unsigned bits_of(unsigned set)
{
    unsigned n = 0;
    for (; set != 0; set >>= 1) {
        n += set & 1;
    }
    return n;
}

/* The fewest limits without which there would be fewer programs. */
static unsigned binding(const struct plan_profile *p,
                        const struct plan_input *in, uint32_t now, bool heads,
                        struct plan *scratch)
{
    for (unsigned n = 1; now > 1 && n <= countof(limits); n++) {
        for (unsigned set = 1; set < 1u << countof(limits); set++) {
            struct plan_profile q = relaxed(p, set);
            struct err ignored = {0};
            if (bits_of(set) == n &&
                plan_make(&q, in, scratch, &ignored) == 0 &&
                (heads ? scratch->n_heads : scratch->n_shards) < now) {
                return set;
            }
        }
    }
    return 0;
}

static void name_limits(unsigned set, char out[PLAN_BOUND_MAX])
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < countof(limits); i++) {
        if ((set >> i & 1) != 0) {
            int n = snprintf(out + used, PLAN_BOUND_MAX - used, "%s%s",
                             used > 0 ? " and " : "", limits[i].name);
            must(n > 0 && (size_t)n < PLAN_BOUND_MAX - used);
            used += (size_t)n;
        }
    }
}

struct plan_bounds plan_bounds(const struct plan_profile *p,
                               const struct plan_input *in,
                               const struct plan *plan)
{
    struct plan_bounds b;
    struct plan *scratch = calloc(1, sizeof(*scratch));
    must(scratch != NULL);
    name_limits(binding(p, in, plan->n_shards, false, scratch), b.layers);
    name_limits(binding(p, in, plan->n_heads, true, scratch), b.heads);
    if (in->sparse && b.layers[0] == '\0') {
        (void)snprintf(b.layers, sizeof(b.layers), PLAN_BY_EXPERTS);
    }
    free(scratch);
    return b;
}

static bool same_plan(const struct plan *a, const struct plan *b)
{
    return a->n_shards == b->n_shards && a->n_heads == b->n_heads &&
           memcmp(a->shards, b->shards, a->n_shards * sizeof(a->shards[0])) ==
               0 &&
           memcmp(a->heads, b->heads, a->n_heads * sizeof(a->heads[0])) == 0;
}

static bool same_time(struct plan_time a, struct plan_time b)
{
    return a.known == b.known && a.least_ms == b.least_ms &&
           a.most_ms == b.most_ms;
}

int plan_next(const struct plan_profile *p, const struct plan_input *in,
              const struct plan *plan, bool *found, struct plan_profile *ret,
              struct plan *ret_plan, struct err *e)
{
    struct plan_profile all[PLAN_PROFILES_MAX];
    size_t n = 0;
    bool later = false;
    *found = false;
    RETERR(plan_profiles(all, &n, e));
    struct plan_time now = plan_predict(p, in, plan, 1);
    for (size_t i = 0; i < n && !*found; i++) {
        struct err ignored = {0};
        if (later && all[i].chip &&
            plan_make(&all[i], in, ret_plan, &ignored) == 0) {
            *found = !same_plan(plan, ret_plan) ||
                     !same_time(now, plan_predict(&all[i], in, ret_plan, 1)) ||
                     plan_fit(p, in, plan) != plan_fit(&all[i], in, ret_plan);
            *ret = all[i];
        }
        later = later || strcmp(all[i].name, p->name) == 0;
    }
    return 0;
}

/* --- sentences --- */

static void put_time(struct buf *b, struct plan_time t)
{
    if (!t.known) {
        buf_puts(b, "unknown");
        return;
    }
    buf_printf(b, "%.1f to %.1f ms, %.1f to %.1f tokens a second", t.least_ms,
               t.most_ms, t.rows * 1e3 / t.most_ms, t.rows * 1e3 / t.least_ms);
}

/* "program_bytes 250000000, conservative (ane-book: ...)" */
static void put_figure(struct buf *b, const struct json *profile,
                       const char *key)
{
    const struct json *f = json_get(json_get(profile, "figures"), key);
    buf_printf(b, "%s %.15g", key, json_num(json_get(f, "value")));
    if (json_get(f, "to") != NULL) {
        buf_printf(b, " to %.15g", json_num(json_get(f, "to")));
    }
    buf_printf(b, ", %s (%s)", json_str(json_get(f, "confidence")),
               json_str(json_get(f, "source")));
}

static void explain_division(struct buf *b, const struct json *profile,
                             const char *what, uint32_t n, const char *by)
{
    if (by[0] == '\0') {
        buf_printf(b, "one %s program holds all\n", what);
        return;
    }
    if (strcmp(by, PLAN_BY_EXPERTS) == 0) {
        buf_printf(b, "%u %s programs, which end at routers\n", n, what);
        return;
    }
    buf_printf(b, "%u %s programs, not fewer, for %s:\n", n, what, by);
    for (size_t i = 0; i < countof(limits); i++) {
        if (strstr(by, limits[i].name) != NULL) {
            buf_puts(b, "  ");
            put_figure(b, profile, limits[i].name);
            buf_puts(b, "\n");
        }
    }
}

/* Keys and values that go to later programs. */
static void explain_copies(struct buf *b, const struct plan_input *in,
                           const struct plan *plan)
{
    uint64_t n = 0;
    uint32_t programs = 0;
    for (uint32_t i = 0; i < plan->n_shards; i++) {
        uint64_t copies = plan_shard_copies(in, plan->shards[i]);
        n += copies;
        programs += copies > 0;
    }
    if (programs > 0) {
        buf_printf(b, "%u program%s the keys and values of layers in earlier "
                      "ones, and a copy of their states: %.1f MB a sequence\n",
                   programs, programs == 1 ? " takes" : "s take",
                   (double)n / 1e6);
    }
}

static void explain_fit(struct buf *b, const struct json *profile,
                        const struct plan_profile *p, enum plan_fit fit,
                        double bytes)
{
    buf_printf(b, "weights of all programs: %.1f MB; ", bytes / 1e6);
    if (fit == PLAN_UNKNOWN) {
        buf_puts(b, "how much stays in memory is not known\n");
        return;
    }
    if (fit == PLAN_FITS) {
        buf_puts(b, "they stay in memory, ");
    } else if (fit == PLAN_EDGE) {
        buf_printf(b,
                   "more than was seen to stay, less than the %.1f MB "
                   "where it ends, ",
                   p->resident_bytes.most / 1e6);
    } else {
        buf_puts(b, "they do not stay in memory together. A program that is "
                    "loaded again in each step takes seconds (ane-book: 29 s a "
                    "token where it was measured); ");
    }
    put_figure(b, profile, "resident_bytes");
    buf_puts(b, "\n");
}

static void explain_time(struct buf *b, const struct json *profile,
                         const struct plan_profile *p)
{
    static const char *const used[] = {"gbytes_per_s", "efficiency",
                                       "boundary_ms", "program_ms", "kv_ms"};
    const struct plan_span *spans[] = {&p->gbytes_per_s, &p->efficiency,
                                       &p->boundary_ms, &p->program_ms,
                                       &p->kv_ms};
    for (size_t i = 0; i < countof(used); i++) {
        if (spans[i]->known) {
            continue;
        }
        buf_printf(b, "%s is not known for %s", used[i], p->name);
        buf_puts(b, spans[i] == &p->kv_ms
                        ? ": the time has no part for keys and values, which "
                          "grows with the context\n"
                        : ": no time is predicted\n");
    }
    if (p->fold_bits > 0) {
        buf_puts(b, "weights of fewer bits are read as 16: ");
        put_figure(b, profile, "fold_bits");
        buf_puts(b, "\n");
    }
}

static int explain_next(struct buf *b, const struct plan_profile *p,
                        const struct plan_input *in, const struct plan *plan,
                        struct err *e)
{
    struct plan_profile next = {.name = ""};
    struct plan *other = calloc(1, sizeof(*other));
    bool found = false;
    must(other != NULL);
    int rc = plan_next(p, in, plan, &found, &next, other, e);
    if (rc == 0 && found) {
        buf_printf(b, "next, %s: %u layer programs, %u heads, ", next.name,
                   other->n_shards, other->n_heads);
        put_time(b, plan_predict(&next, in, other, 1));
        buf_puts(b, "\n");
    } else if (rc == 0) {
        buf_puts(b, "no later profile would change anything\n");
    }
    free(other);
    return rc;
}

/* p, where all weights stay in memory: both forms have the same, and it would
 * hide what else they cost. */
static struct plan_profile resident(const struct plan_profile *p)
{
    struct plan_profile q = *p;
    q.resident_bytes.known = false;
    return q;
}

/* The sparse form in a sentence: predictions, time, and what has to be loaded. */
static void explain_sparse(struct buf *b, const struct plan_profile *p,
                           const struct plan_experts *x,
                           const struct plan_forms *f)
{
    buf_printf(b, "%u predictions of layers", x->runs);
    if (f->dense_runs > 0) {
        buf_printf(b, " in place of %u", f->dense_runs);
    }
    buf_puts(b, ": ");
    put_time(b, f->sparse);
    if (!x->loads) {
        buf_printf(b, " (if %llu functions of experts stayed loaded; profile %s "
                      "has %u programs at once, and an expert that is loaded "
                      "anew takes seconds)",
                   (unsigned long long)x->functions, p->name, p->programs);
    }
}

/* Which form experts have, and what each would cost. */
static void explain_experts(struct buf *b, const struct plan_profile *p,
                            const struct plan_input *in,
                            const struct plan *plan)
{
    struct plan_experts x = plan_experts(p, in, plan);
    if (x.layers == 0) {
        return;
    }
    buf_printf(b, "experts in %u layers, %.1f MB, in %s form; a token takes "
                  "%.1f MB of them, and the CPU backend reads no more\n",
               x.layers, (double)x.bytes / 1e6, in->sparse ? "sparse" : "dense",
               (double)x.taken / 1e6);
    if (in->sparse) {
        buf_printf(b, "%llu functions of experts in %u packages of up to %u\n",
                   (unsigned long long)x.functions, plan_groups(in), in->group);
    }
    if (!p->chip) {
        return;
    }
    const struct plan_profile q = resident(p);
    const char *if_resident = plan_fit(p, in, plan) == PLAN_TOO_BIG
                                  ? "(if all weights stayed in memory) "
                                  : "";
    struct plan_forms f = plan_forms(&q, in, plan);
    if (in->sparse) {
        buf_printf(b, "chosen by the host, a row takes %s", if_resident);
        explain_sparse(b, p, &x, &f);
        buf_puts(b, "; in dense form (--experts dense) the Neural Engine would "
                    "compute all of them: ");
        put_time(b, f.dense);
    } else {
        buf_printf(b, "the Neural Engine computes all of them: a row takes %s",
                   if_resident);
        put_time(b, f.dense);
        buf_puts(b, "; chosen by the host (--experts sparse) it would take ");
        explain_sparse(b, p, &x, &f);
    }
    buf_puts(b, "\n");
}

int plan_explain(const struct plan_profile *p, const struct plan_input *in,
                 const struct plan *plan, struct buf *b, struct err *e)
{
    struct json *profile = plan_profile_json(p->name);
    struct plan_bounds by = plan_bounds(p, in, plan);
    explain_division(b, profile, "layer", plan->n_shards, by.layers);
    explain_division(b, profile, "head", plan->n_heads, by.heads);
    explain_copies(b, in, plan);
    explain_fit(b, profile, p, plan_fit(p, in, plan),
                (double)plan_resident_bytes(p, in, plan));
    explain_time(b, profile, p);
    explain_experts(b, p, in, plan);
    json_free(profile);
    return explain_next(b, p, in, plan, e);
}

/* --- the object --- */

static void add_range(struct json *list, struct plan_range r, uint64_t bytes)
{
    struct json *o = json_add_object(list, NULL);
    json_add_int(o, "first", r.first);
    json_add_int(o, "last", r.last);
    json_add_int(o, "bytes", (int64_t)bytes);
}

static void add_time(struct json *list, struct plan_time t)
{
    struct json *o = json_add_object(list, NULL);
    json_add_int(o, "rows", t.rows);
    if (!t.known) {
        json_add_null(o, "ms");
        json_add_null(o, "tokens_per_s");
        return;
    }
    struct json *ms = json_add_array(o, "ms");
    json_add_num(ms, NULL, t.least_ms);
    json_add_num(ms, NULL, t.most_ms);
    struct json *rate = json_add_array(o, "tokens_per_s");
    json_add_num(rate, NULL, t.rows * 1e3 / t.most_ms);
    json_add_num(rate, NULL, t.rows * 1e3 / t.least_ms);
}

static void add_programs(struct json *o, const struct plan_input *in,
                         const struct plan *plan)
{
    uint64_t states = 0;
    uint64_t copies = 0;
    uint32_t n_states = 0;
    struct json *list = json_add_array(o, "layers");
    for (uint32_t i = 0; i < plan->n_shards; i++) {
        add_range(list, plan->shards[i], plan_shard_bytes(in, plan->shards[i]));
        copies += plan_shard_copies(in, plan->shards[i]);
        n_states += plan_shard_states(in, plan->shards[i]);
    }
    list = json_add_array(o, "heads");
    for (uint32_t i = 0; i < plan->n_heads; i++) {
        add_range(list, plan->heads[i], plan_head_bytes(in, plan->heads[i]));
    }
    for (uint32_t l = 0; l < in->n_layers; l++) {
        states += in->layers[l].state_bytes;
    }
    json_add_int(o, "states", n_states);
    json_add_int(o, "state_bytes", (int64_t)(states + copies));
    json_add_int(o, "copied_state_bytes", (int64_t)copies);
}

static void add_experts(struct json *o, const struct plan_profile *p,
                        const struct plan_input *in, const struct plan *plan)
{
    struct plan_experts x = plan_experts(p, in, plan);
    if (x.layers == 0) {
        json_add_null(o, "experts");
        return;
    }
    struct json *j = json_add_object(o, "experts");
    const struct plan_profile q = resident(p);
    struct plan_forms f = plan_forms(&q, in, plan);
    json_add_str(j, "form", in->sparse ? "sparse" : "dense");
    json_add_int(j, "layers", x.layers);
    json_add_int(j, "bytes", (int64_t)x.bytes);
    json_add_int(j, "bytes_of_a_token", (int64_t)x.taken);
    if (in->sparse) {
        json_add_int(j, "packages", plan_groups(in));
        json_add_int(j, "package_experts", in->group);
    }
    if (f.dense_runs > 0) {
        json_add_int(j, "dense_predictions", f.dense_runs);
    } else {
        json_add_null(j, "dense_predictions");
    }
    json_add_int(j, "sparse_predictions", x.runs);
    json_add_int(j, "sparse_functions", (int64_t)x.functions);
    json_add_bool(j, "sparse_stays_loaded", x.loads);
    json_add_bool(j, "if_resident", plan_fit(p, in, plan) == PLAN_TOO_BIG);
    add_time(json_add_array(j, "dense_steps"), f.dense);
    add_time(json_add_array(j, "sparse_steps"), f.sparse);
}

static void add_text(struct json *o, const char *key, const char *v)
{
    if (v[0] != '\0') {
        json_add_str(o, key, v);
    } else {
        json_add_null(o, key);
    }
}

static int add_next(struct json *o, const struct plan_profile *p,
                    const struct plan_input *in, const struct plan *plan,
                    struct err *e)
{
    struct plan_profile next = {.name = ""};
    struct plan *other = calloc(1, sizeof(*other));
    bool found = false;
    must(other != NULL);
    int rc = plan_next(p, in, plan, &found, &next, other, e);
    if (rc == 0 && found) {
        struct json *x = json_add_object(o, "next");
        json_add_str(x, "profile", next.name);
        add_programs(x, in, other);
        add_time(json_add_array(x, "steps"), plan_predict(&next, in, other, 1));
    } else {
        json_add_null(o, "next");
    }
    free(other);
    return rc;
}

int plan_json(const struct plan_profile *p, const struct plan_input *in,
              const struct plan *plan, struct json **ret, struct err *e)
{
    static const char *const fits[] = {"unknown", "fits", "edge", "too_big"};
    struct plan_bounds by = plan_bounds(p, in, plan);
    struct json *o = json_object();
    json_add_str(o, "object", "aned.plan");
    json_add_int(o, "context", in->context);
    if (in->context_by != NULL) {
        json_add_str(o, "context_by", in->context_by);
    }
    add_programs(o, in, plan);
    json_add_int(o, "resident_bytes",
                 (int64_t)plan_resident_bytes(p, in, plan));
    json_add_str(o, "resident", fits[plan_fit(p, in, plan)]);
    struct json *steps = json_add_array(o, "steps");
    add_time(steps, plan_predict(p, in, plan, 1));
    uint32_t widest = in->widths[in->n_widths - 1];
    if (widest != 1) {
        add_time(steps, plan_predict(p, in, plan, widest));
    }
    add_experts(o, p, in, plan);
    struct json *by_name = json_add_object(o, "limited_by");
    add_text(by_name, "layers", by.layers);
    add_text(by_name, "heads", by.heads);
    json_add_tree(o, "profile", plan_profile_json(p->name));
    int rc = add_next(o, p, in, plan, e);
    if (rc == 0) {
        *ret = o;
    } else {
        json_free(o);
    }
    return rc;
}
