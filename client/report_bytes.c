/* report_bytes.c - bytes by tensor, and the packages. */
#include <string.h>

#include "client/report.h"

/* Operations of one name, over all layers. */
struct tensor {
    const char *name, *type;
    double bytes;
    size_t n;
};

struct tensors {
    struct tensor of[REPORT_ROWS_MAX];
    size_t n;
    double sum, rest; /* rest: found no room */
};

/* The weights of a row of a map, in all layers of its group. */
static double weights_of(const struct json *w, size_t layers)
{
    double sum = 0;
    if (json_type(w) != JSON_ARRAY) {
        return json_num(w) * (double)(layers > 0 ? layers : 1);
    }
    for (const struct json *x = json_first(w); x != NULL; x = json_next(x)) {
        sum += json_num(x);
    }
    return sum;
}

static void add(struct tensors *t, const char *name, const char *type,
                double bytes, size_t n)
{
    size_t i = 0;
    t->sum += bytes;
    while (i < t->n && (strcmp(t->of[i].name, name) != 0 ||
                        strcmp(t->of[i].type, type) != 0)) {
        i++;
    }
    if (i == REPORT_ROWS_MAX) {
        t->rest += bytes;
        return;
    }
    if (i == t->n) {
        t->of[t->n++] = (struct tensor){.name = name, .type = type};
    }
    t->of[i].bytes += bytes;
    t->of[i].n += n;
}

static void read_group(struct tensors *t, const struct json *g)
{
    size_t layers = json_count(json_get(g, "layers"));
    for (const struct json *o = json_first(json_get(g, "ops")); o != NULL;
         o = json_next(o)) {
        const char *name = json_str(report_at(o, 0));
        const char *type = json_str(report_at(o, 1));
        const struct json *w = report_at(o, 4);
        if (name != NULL && type != NULL && w != NULL) {
            add(t, name, type, weights_of(w, layers), layers > 0 ? layers : 1);
        }
    }
}

static int larger(const void *a, const void *b)
{
    const struct tensor *x = a;
    const struct tensor *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static void put_tensor(struct buf *b, const char *name, size_t n, double bytes,
                       double all, double most)
{
    buf_puts(b, "<tr><th scope=\"row\">");
    html_text(b, name);
    if (n > 0) {
        buf_printf(b, "</th><td>%zu</td><td>", n);
    } else {
        buf_puts(b, "</th><td></td><td>");
    }
    html_bytes(b, bytes);
    buf_printf(b,
               "</td><td>%.1f&#8239;%%</td><td class=\"fill\"><svg "
               "class=\"share\" viewBox=\"0 0 100 8\" "
               "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect "
               "class=\"ink\" width=\"%.2f\" height=\"8\"/></svg></td></tr>\n",
               100 * bytes / all, 100 * bytes / most);
}

/* The larger ones singly, down to a five-hundredth of `all`. */
static void put_tensors(struct buf *b, struct tensors *t, double all)
{
    double rest = all - t->sum; /* embeddings lie beside the programs */
    double small = t->rest;
    size_t n_small = 0;
    qsort(t->of, t->n, sizeof(*t->of), larger);
    double most = t->of[0].bytes > rest ? t->of[0].bytes : rest;
    buf_puts(b, "<p>Weights as stored, summed over layers, by the operation "
                "that reads them.</p><div class=\"wide\" tabindex=\"0\" "
                "role=\"region\" aria-label=\"Bytes\"><table><thead><tr><th>"
                "Read by</th><th>Times</th><th>Bytes</th><th>Share</th><th "
                "class=\"fill\"></th></tr></thead><tbody>\n");
    for (size_t i = 0; i < t->n; i++) {
        const struct tensor *x = &t->of[i];
        if (x->bytes >= all / 500) {
            put_tensor(b, x->name, x->n, x->bytes, all, most);
        } else {
            small += x->bytes;
            n_small += x->n;
        }
    }
    put_tensor(b, "smaller ones", n_small, small, all, most);
    if (rest > 0) {
        put_tensor(b, "embeddings, vocabulary, programs", 0, rest, all, most);
    }
    buf_puts(b, "</tbody></table></div>\n");
}

void report_bytes(const struct report *r, struct buf *b)
{
    struct tensors *t = calloc(1, sizeof(*t));
    double all = json_num(json_get(r->model, "bytes"));
    must(t != NULL);
    html_section(b, "bytes", "Bytes by tensor");
    for (const struct json *f = json_first(report_functions(r)); f != NULL;
         f = json_next(f)) {
        const struct json *groups = json_get(json_get(f, "map"), "groups");
        for (const struct json *g = json_first(groups); g != NULL;
             g = json_next(g)) {
            read_group(t, g);
        }
    }
    if (t->n > 0 && all > 0) {
        put_tensors(b, t, all);
    } else {
        buf_puts(b, "<p class=\"dim\">No weights are told of singly.</p>\n");
    }
    html_end(b);
    free(t);
}

/* --- packages --- */

static const struct json *shard_of(const struct report *r, const char *package)
{
    const struct json *list = json_get(report_quality(r), "shards");
    for (const struct json *s = json_first(list); s != NULL; s = json_next(s)) {
        const char *p = json_str(json_get(s, "package"));
        if (p != NULL && package != NULL && strcmp(p, package) == 0) {
            return s;
        }
    }
    return NULL;
}

static void put_package(const struct report *r, struct buf *b,
                        const struct json *f)
{
    const struct json *plan = json_get(f, "plan");
    const struct json *s = shard_of(r, json_str(json_get(f, "package")));
    const char *function = json_str(json_get(f, "function"));
    buf_puts(b, "<tr><th scope=\"row\">");
    html_member(b, f, "package");
    if (function != NULL && function[0] != '\0') {
        buf_puts(b, " <span class=\"dim\">");
        html_text(b, function);
        buf_puts(b, "</span>");
    }
    buf_puts(b, "</th><td>");
    if (s != NULL) {
        buf_printf(b, "%.0f&#8211;%.0f", json_num(json_get(s, "first")),
                   json_num(json_get(s, "last")) - 1);
    } else {
        html_member(b, f, "kind");
    }
    buf_puts(b, "</td><td>");
    html_bytes(b, json_num(json_get(f, "weight_bytes")));
    buf_printf(b, "</td><td>%.0f</td><td>%.1f&#8239;%%</td>",
               json_num(json_get(plan, "operations")),
               100 * json_num(json_get(plan, "share")));
    if (s != NULL && json_get(s, "worst_cosine") != NULL) {
        buf_printf(b, "<td>%.6f</td><td>%.6f (%.0f)</td></tr>\n",
                   json_num(json_get(s, "cosine_mean")),
                   json_num(json_get(s, "worst_cosine")),
                   json_num(json_get(s, "worst_layer")));
    } else {
        buf_puts(b, "<td></td><td></td></tr>\n");
    }
}

void report_packages(const struct report *r, struct buf *b)
{
    html_section(b, "packages", "Plan");
    if (report_functions(r) == NULL) {
        buf_puts(b, "<p class=\"dim\">No report on the packages is kept."
                    "</p>\n");
        html_end(b);
        return;
    }
    buf_puts(b, "<div class=\"wide\" tabindex=\"0\" role=\"region\" "
                "aria-label=\"Packages\"><table><thead><tr><th>Package</th>"
                "<th>Layers</th><th>Weights</th><th>Operations</th><th>On the "
                "Neural Engine, predicted</th><th>Cosine at its end</th><th>"
                "Least (layer)</th></tr></thead><tbody>\n");
    for (const struct json *f = json_first(report_functions(r)); f != NULL;
         f = json_next(f)) {
        put_package(r, b, f);
    }
    buf_puts(b, "</tbody></table></div>\n");
    html_end(b);
}
