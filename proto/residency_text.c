/* residency_text.c - see residency_text.h.
 *
 *   measured   warned  Apple M4, 24F74, all (backend=coreml), 3m ago
 *     layers_00_08.mlpackage: 2.1% of the costs are not on the Neural Engine
 *   widths     layers 1 2 4, heads 1 2 3 4 (the same bits in all of these)
 *
 *   layers_00_08.mlpackage t4
 *     Neural Engine        measured 97.9% of the cost, 98.0% of 512 operations
 *     elsewhere, measured  4 softmax on cpu (could: cpu gpu), 2.1% of the
 *                          cost: the Neural Engine does not run it; one is p_0
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
        buf_puts(b, "no report\n");
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

static void put_if(struct buf *b, const char *before, const char *s)
{
    if (s[0] != '\0') {
        buf_puts(b, before);
        put(b, s);
    }
}

static void put_elsewhere(struct buf *b, const char *kind,
                          const struct json *record, const struct json *f)
{
    for (const struct json *o = json_first(json_get(record, "ops")); o != NULL;
         o = json_next(o)) {
        double cost = 0;
        if (!same_function(o, f) ||
            strcmp(text(o, "device"), "neural_engine") == 0) {
            continue;
        }
        buf_printf(b, "  elsewhere, %-14s ", kind);
        buf_printf(b, "%.0f ", json_num(json_get(o, "count")));
        put(b, text(o, "type"));
        buf_puts(b, " on ");
        put(b, text(o, "device"));
        buf_puts(b, " (could: ");
        put(b, text(o, "could"));
        buf_puts(b, ")");
        if (number(o, "cost", &cost) && cost > 0) {
            buf_printf(b, ", %.1f%% of the cost", 100 * cost);
        }
        put_if(b, ": ", text(o, "reason"));
        put_if(b, "; one is ", text(o, "example"));
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
    put_elsewhere(b, "measured", measured, f);
    put_elsewhere(b, "predicted", predicted, f);
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
