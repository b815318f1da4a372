/* residency_text.c - see residency_text.h.
 *
 *   measured   warned  Apple M4, 24F74, all (backend=coreml), 3m ago
 *     layers_00_08.mlpackage: 2.1% of the costs are not on the Neural Engine
 *   widths     layers 1 2 4, heads 1 2 3 4 (the same bits in all of these)
 *
 *   layers_00_08.mlpackage t4
 *     Neural Engine, measured   97.9% of the cost, 98.0% of 512 operations
 *     Neural Engine, predicted  100.0% of 512 operations
 *     predicted, unknown: program.floor: ...
 *     operation           predicted         measured           why not ...
 *     softmax             4 on              4 cpu              it does not run
 *                                                    it (could: cpu gpu) ...
 *     all others          508 on            508 on
 *     width    median  CPU alone       cosine  bits
 *         4   1.20 ms    3.10 ms  0.999987130  a
 */
#include "proto/residency_text.h"

#include <string.h>

/* --- words and numbers --- */

static void put(struct buf *b, const char *s)
{
    for (; s != NULL && *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        buf_u8(b, c < ' ' || c == 0x7f ? '?' : c);
    }
}

static const char *text(const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    return s != NULL ? s : "";
}

static bool number(const struct json *j, const char *key, double *ret)
{
    const struct json *v = json_get(j, key);
    *ret = json_num(v);
    return json_type(v) == JSON_NUMBER;
}

static void put_ago(struct buf *b, const struct json *r, int64_t now_ms)
{
    static const struct {
        double s;
        const char *unit;
    } units[] = {
        {86400, " days"},
        {3600,  "h"    },
        {60,    "m"    },
        {1,     "s"    },
    };
    double at = 0;
    if (!number(r, "created_ms", &at) || at <= 0) {
        return;
    }
    double s = ((double)now_ms - at) / 1000;
    s = s > 0 ? s : 0;
    size_t i = 0;
    while (i + 1 < countof(units) && s < 2 * units[i].s) {
        i++;
    }
    buf_printf(b, ", %.0f%s ago", s / units[i].s, units[i].unit);
}

static void put_time(struct buf *b, const struct json *w, const char *key)
{
    double us = 0;
    char t[32] = "-";
    if (number(w, key, &us)) {
        (void)snprintf(t, sizeof(t), us < 100000 ? "%.2f ms" : "%.0f ms",
                       us / 1000);
    }
    buf_printf(b, " %10s", t);
}

/* --- the head --- */

static void put_verdict(struct buf *b, const char *kind, const struct json *r,
                        int64_t now_ms)
{
    buf_printf(b, "%-10s ", kind);
    if (r == NULL) {
        buf_puts(b, kind[0] == 'p' ? "not run\n" : "no report\n");
        return;
    }
    put(b, text(r, "verdict"));
    buf_puts(b, "  ");
    put(b, text(r, "machine"));
    buf_puts(b, " (");
    put(b, text(r, "options"));
    buf_puts(b, ")");
    put_ago(b, r, now_ms);
    buf_puts(b, "\n");
    for (const struct json *x =
             json_first(json_get(json_get(r, "report"), "reasons"));
         x != NULL; x = json_next(x)) {
        buf_puts(b, "  ");
        put(b, json_str(x));
        buf_puts(b, "\n");
    }
}

static void put_numbers(struct buf *b, const struct json *list)
{
    bool any = false;
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        buf_printf(b, " %.0f", json_num(c));
        any = true;
    }
    if (!any) {
        buf_puts(b, " none");
    }
}

static void put_widths(struct buf *b, const struct json *r)
{
    const struct json *w = json_get(r, "widths");
    double margin = 0;
    buf_puts(b, "widths     layers");
    put_numbers(b, json_get(w, "layers"));
    buf_puts(b, ", heads");
    put_numbers(b, json_get(w, "heads"));
    buf_puts(b, " (the same bits in all of these)\n");
    if (number(json_get(r, "report"), "margin", &margin)) {
        buf_printf(b, "margin     %.6g: how far a width moves a token's lead\n",
                   margin);
    }
}

/* --- a function --- */

static bool same_function(const struct json *a, const struct json *b)
{
    return strcmp(text(a, "package"), text(b, "package")) == 0 &&
           strcmp(text(a, "function"), text(b, "function")) == 0;
}

static const struct json *find(const struct json *record, const struct json *f)
{
    for (const struct json *x =
             json_first(json_get(json_get(record, "report"), "functions"));
         x != NULL; x = json_next(x)) {
        if (same_function(x, f)) {
            return x;
        }
    }
    return NULL;
}

static void put_share(struct buf *b, const char *kind, const struct json *f)
{
    const struct json *p = json_get(f, "plan");
    double share = 0;
    double n = 0;
    buf_printf(b, "  Neural Engine, %-10s ", kind);
    if (text(f, "plan_error")[0] != '\0') {
        put(b, text(f, "plan_error"));
    } else if (json_type(p) != JSON_OBJECT) {
        buf_puts(b, f != NULL ? "this backend has no plan" : "no report");
    }
    if (number(p, "share_of_cost", &share)) {
        buf_printf(b, "%.1f%% of the cost, ", 100 * share);
    }
    if (number(p, "share", &share) && number(p, "operations", &n)) {
        buf_printf(b, "%.1f%% of %.0f operations", 100 * share, n);
    }
    buf_puts(b, "\n");
}

/* --- operations, both reports side by side --- */

static bool here(const struct json *op)
{
    return strcmp(text(op, "device"), "neural_engine") == 0;
}

/* The next operation of the record that is of f, and of this type unless it is
 * NULL. after NULL: the first. */
static const struct json *next_op(const struct json *record,
                                  const struct json *f, const char *type,
                                  const struct json *after)
{
    const struct json *o =
        after != NULL ? json_next(after) : json_first(json_get(record, "ops"));
    while (o != NULL &&
           (!same_function(o, f) ||
            (type != NULL && strcmp(text(o, "type"), type) != 0))) {
        o = json_next(o);
    }
    return o;
}

static bool all_here(const struct json *record, const struct json *f,
                     const char *type)
{
    const struct json *o = next_op(record, f, type, NULL);
    while (o != NULL && here(o)) {
        o = next_op(record, f, type, o);
    }
    return o == NULL;
}

/* What a kind of report calls a device: a prediction knows no other than the
 * Neural Engine. */
static const char *word_of(const struct json *o, bool measured)
{
    const char *device = text(o, "device");
    return here(o)                          ? "on"
           : measured || device[0] == '\0'  ? device
           : strcmp(device, "unknown") == 0 ? device
                                            : "off";
}

/* "507 on, 1 cpu", of one type; "-": none, or no plan. */
static void put_cell(struct buf *b, const struct json *record,
                     const struct json *f, const char *type, bool measured)
{
    char cell[64] = "";
    size_t n = 0;
    for (const struct json *o = next_op(record, f, type, NULL); o != NULL;
         o = next_op(record, f, type, o)) {
        int k = snprintf(cell + n, sizeof(cell) - n, "%s%.0f %.13s",
                         n > 0 ? ", " : "", json_num(json_get(o, "count")),
                         word_of(o, measured));
        n += k > 0 && (size_t)k < sizeof(cell) - n ? (size_t)k : 0;
    }
    size_t at = b->n;
    put(b, n > 0 ? cell : "-");
    while (b->n < at + 18 && buf_ok(b)) {
        buf_u8(b, ' ');
    }
}

static void put_if(struct buf *b, const char *before, const char *s)
{
    if (s[0] != '\0') {
        buf_puts(b, before);
        put(b, s);
    }
}

/* Why those are not there; each on a line of its own below the first. */
static void put_reasons(struct buf *b, const struct json *record,
                        const struct json *f, const char *type, bool measured,
                        bool *first)
{
    for (const struct json *o = next_op(record, f, type, NULL); o != NULL;
         o = next_op(record, f, type, o)) {
        double cost = 0;
        if (here(o)) {
            continue;
        }
        if (!*first) { /* below the first one */
            buf_printf(b, "\n%58s", "");
        }
        buf_puts(b, " ");
        *first = false;
        put(b, text(o, "reason"));
        if (measured) {
            put_if(b, " (could: ", text(o, "could"));
            buf_puts(b, text(o, "could")[0] != '\0' ? ")" : "");
        }
        if (number(o, "cost", &cost) && cost > 0) {
            buf_printf(b, ", %.1f%% of the cost", 100 * cost);
        }
        put_if(b, "; one is ", text(o, "example"));
    }
}

struct pair { /* NULL: there is no such report */
    const struct json *predicted, *measured;
};

static void put_row(struct buf *b, const struct pair *r, const struct json *f,
                    const char *type)
{
    bool first = true;
    char name[24];
    (void)snprintf(name, sizeof(name), "%.19s", type);
    size_t at = b->n;
    buf_puts(b, "  ");
    put(b, name);
    while (b->n < at + 22 && buf_ok(b)) {
        buf_u8(b, ' ');
    }
    put_cell(b, r->predicted, f, type, false);
    put_cell(b, r->measured, f, type, true);
    put_reasons(b, r->predicted, f, type, false, &first);
    put_reasons(b, r->measured, f, type, true, &first);
    while (b->n > 0 && b->p[b->n - 1] == ' ') {
        b->n--;
    }
    buf_puts(b, "\n");
}

/* Of kinds that are there in both reports: how many. */
static void put_rest(struct buf *b, const struct pair *r, const struct json *f,
                     bool all)
{
    const struct json *records[] = {r->predicted, r->measured};
    double n[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        for (const struct json *o = next_op(records[i], f, NULL, NULL);
             o != NULL; o = next_op(records[i], f, NULL, o)) {
            const char *type = text(o, "type");
            if (all_here(r->predicted, f, type) &&
                all_here(r->measured, f, type)) {
                n[i] += json_num(json_get(o, "count"));
            }
        }
    }
    if (n[0] > 0 || n[1] > 0) {
        char cell[2][32] = {"-", "-"};
        for (size_t i = 0; i < 2; i++) {
            if (n[i] > 0) {
                (void)snprintf(cell[i], sizeof(cell[i]), "%.0f on", n[i]);
            }
        }
        buf_printf(b, "  %-20s%-18s%s\n", all ? "all" : "all others", cell[0],
                   cell[1]);
    }
}

/* Has a row for this operation's type been written before it? */
static bool is_first(const struct pair *r, const struct json *f,
                     const struct json *op, bool measured)
{
    const char *type = text(op, "type");
    const struct json *p = next_op(r->predicted, f, type, NULL);
    return measured ? p == NULL && next_op(r->measured, f, type, NULL) == op
                    : p == op;
}

static void put_ops(struct buf *b, const struct pair *r, const struct json *f)
{
    const struct json *records[] = {r->predicted, r->measured};
    bool all = true;
    if (next_op(r->predicted, f, NULL, NULL) == NULL &&
        next_op(r->measured, f, NULL, NULL) == NULL) {
        return;
    }
    buf_printf(b, "  %-20s%-18s%-19s%s\n", "operation", "predicted", "measured",
               "why not on the Neural Engine");
    for (size_t i = 0; i < 2; i++) {
        for (const struct json *o = next_op(records[i], f, NULL, NULL);
             o != NULL; o = next_op(records[i], f, NULL, o)) {
            const char *type = text(o, "type");
            if (is_first(r, f, o, i == 1) &&
                !(all_here(r->predicted, f, type) &&
                  all_here(r->measured, f, type))) {
                put_row(b, r, f, type);
                all = false;
            }
        }
    }
    put_rest(b, r, f, all);
}

/* What the rules found of the function as a whole. */
static void put_findings(struct buf *b, const struct json *f)
{
    for (const struct json *x = json_first(json_get(f, "findings")); x != NULL;
         x = json_next(x)) {
        buf_puts(b, "  predicted, ");
        put(b, text(x, "verdict"));
        buf_puts(b, ": ");
        put(b, text(x, "reason"));
        buf_puts(b, "\n");
    }
}

static const char *trouble(const struct json *w)
{
    double v = 0;
    if (json_type(json_get(w, "error")) == JSON_OBJECT) {
        return text(json_get(w, "error"), "message");
    }
    if (number(w, "not_finite", &v) && v > 0) {
        return "numbers that are not finite";
    }
    if (!json_bool(json_get(w, "repeats"))) {
        return "other bits each time";
    }
    if (!json_bool(json_get(w, "steady"))) {
        return "a row's bits depend on the rows beside it";
    }
    return json_bool(json_get(w, "sound")) ? "" : "unlike the reference";
}

/* A letter for each class of widths that agree; '-': in none. */
static char class_of(const struct json *package, double width)
{
    int letter = 'a';
    for (const struct json *c = json_first(json_get(package, "classes"));
         c != NULL && letter < 'z'; c = json_next(c), letter++) {
        for (const struct json *t = json_first(c); t != NULL;
             t = json_next(t)) {
            if (json_num(t) >= width && json_num(t) <= width) {
                return (char)letter;
            }
        }
    }
    return '-';
}

static const struct json *package_of(const struct json *record,
                                     const struct json *f)
{
    const struct json *p =
        json_first(json_get(json_get(record, "report"), "packages"));
    while (p != NULL && strcmp(text(p, "package"), text(f, "package")) != 0) {
        p = json_next(p);
    }
    return p;
}

static void put_runs(struct buf *b, const struct json *record,
                     const struct json *f)
{
    const struct json *package = package_of(record, f);
    const struct json *w = json_first(json_get(f, "widths"));
    if (w != NULL) {
        buf_printf(b, "  %5s %10s %10s %12s  %s\n", "width", "median",
                   "CPU alone", "cosine", "bits");
    }
    for (; w != NULL; w = json_next(w)) {
        double cosine = 0;
        buf_printf(b, "  %5.0f", json_num(json_get(w, "width")));
        put_time(b, w, "median_us");
        put_time(b, w, "cpu_only_us");
        if (number(w, "cosine", &cosine)) {
            buf_printf(b, " %12.9f", cosine);
        } else {
            buf_printf(b, " %12s", "-");
        }
        buf_printf(b, "  %c",
                   class_of(package, json_num(json_get(w, "width"))));
        buf_puts(b, trouble(w)[0] != '\0' ? "  " : "");
        put(b, trouble(w));
        buf_puts(b, "\n");
    }
}

static void put_function(struct buf *b, const struct json *f,
                         const struct json *measured,
                         const struct json *predicted)
{
    const struct json *m = find(measured, f);
    const struct json *p = find(predicted, f);
    buf_puts(b, "\n");
    put(b, text(f, "package"));
    buf_puts(b, text(f, "function")[0] != '\0' ? " " : "");
    put(b, text(f, "function"));
    buf_puts(b, "\n");
    put_share(b, "measured", m);
    put_share(b, "predicted", p);
    put_findings(b, p);
    put_ops(b, &(struct pair){predicted, measured}, f);
    put_runs(b, measured, m);
}

void residency_text(const struct json *measured, const struct json *predicted,
                    int64_t now_ms, struct buf *out)
{
    const struct json *records[] = {measured, predicted};
    put_verdict(out, "measured", measured, now_ms);
    put_verdict(out, "predicted", predicted, now_ms);
    if (measured != NULL) {
        put_widths(out, measured);
    }
    for (size_t i = 0; i < countof(records); i++) {
        for (const struct json *f = json_first(
                 json_get(json_get(records[i], "report"), "functions"));
             f != NULL; f = json_next(f)) {
            if (i == 0 || find(measured, f) == NULL) {
                put_function(out, f, measured, predicted);
            }
        }
    }
}
