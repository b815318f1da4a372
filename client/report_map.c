/* report_map.c - layers x operations, coloured by the device that is predicted,
 * and the rules that say why. */
#include <string.h>

#include "client/report.h"

/* A row of the table: operations of one name and place, one of each layer. */
struct row {
    const char *name, *type;
    char *cells; /* a layer each: '+', '?', 'x'; 0: has no such operation */
    const char **rules;
};

struct grid {
    size_t layers; /* columns: a head slice is one, too, the last */
    size_t heads;
    struct row *rows;
    size_t n;
};

static char mark_of(const char *word)
{
    return word == NULL               ? '?'
           : strcmp(word, "on") == 0  ? '+'
           : strcmp(word, "off") == 0 ? 'x'
                                      : '?';
}

static bool is_head(const struct json *f)
{
    const char *kind = json_str(json_get(f, "kind"));
    return kind != NULL && strcmp(kind, "head") == 0;
}

/* Layers of a function with a map: one more than the largest number there; a
 * head is one. */
static size_t count_layers(const struct json *f)
{
    const struct json *map = json_get(f, "map");
    size_t n = 0;
    if (is_head(f)) {
        return json_type(map) == JSON_OBJECT ? 1 : 0;
    }
    for (const struct json *g = json_first(json_get(map, "groups")); g != NULL;
         g = json_next(g)) {
        for (const struct json *l = json_first(json_get(g, "layers"));
             l != NULL; l = json_next(l)) {
            int64_t i = 0;
            if (json_int(l, 0, REPORT_COLUMNS_MAX, &i) && (size_t)i >= n) {
                n = (size_t)i + 1;
            }
        }
    }
    return n;
}

/* The row of operations of that name and type; made when there is none. Layers
 * of another kind bring rows of their own. NULL: there are too many. */
static struct row *row_of(struct grid *t, const char *name, const char *type)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->rows[i].name, name) == 0 &&
            strcmp(t->rows[i].type, type) == 0) {
            return &t->rows[i];
        }
    }
    if (t->n == REPORT_ROWS_MAX) {
        return NULL;
    }
    struct row *r = &t->rows[t->n++];
    r->name = name;
    r->type = type;
    r->cells = calloc(t->layers + 1, 1);
    r->rules = calloc(t->layers + 1, sizeof(*r->rules));
    must(r->cells != NULL && r->rules != NULL);
    return r;
}

static void set_cell(struct row *r, const struct grid *t, size_t at,
                     const struct json *op, const char *rule)
{
    if (at < t->layers) {
        r->cells[at] = mark_of(json_str(report_at(op, 2)));
        r->rules[at] = rule;
    }
}

/* f's operations in group g; its first layer is column `first`. */
static void take_group(struct grid *t, const struct json *f,
                       const struct json *g, size_t first)
{
    const struct json *rules = json_get(json_get(f, "map"), "rules");
    for (const struct json *o = json_first(json_get(g, "ops")); o != NULL;
         o = json_next(o)) {
        const char *name = json_str(report_at(o, 0));
        const char *type = json_str(report_at(o, 1));
        int64_t rule = 0;
        struct row *r =
            name != NULL && type != NULL ? row_of(t, name, type) : NULL;
        if (r == NULL || !json_int(report_at(o, 3), 0, 1024, &rule)) {
            continue;
        }
        const char *id = json_str(report_at(rules, (size_t)rule));
        if (is_head(f)) {
            set_cell(r, t, first, o, id);
            continue;
        }
        for (const struct json *l = json_first(json_get(g, "layers"));
             l != NULL; l = json_next(l)) {
            int64_t at = 0;
            if (json_int(l, 0, REPORT_COLUMNS_MAX, &at)) {
                set_cell(r, t, first + (size_t)at, o, id);
            }
        }
    }
}

static void read_grid(const struct report *r, struct grid *t)
{
    const struct json *f = json_first(report_functions(r));
    for (; f != NULL; f = json_next(f)) {
        size_t n = count_layers(f);
        t->layers += n;
        t->heads += is_head(f) ? n : 0;
    }
    t->layers = t->layers < REPORT_COLUMNS_MAX ? t->layers : REPORT_COLUMNS_MAX;
    t->rows = calloc(REPORT_ROWS_MAX, sizeof(*t->rows));
    must(t->rows != NULL);
    size_t first = 0;
    for (f = json_first(report_functions(r)); f != NULL; f = json_next(f)) {
        const struct json *map = json_get(f, "map");
        for (const struct json *g = json_first(json_get(map, "groups"));
             g != NULL; g = json_next(g)) {
            take_group(t, f, g, first);
        }
        first += count_layers(f);
    }
}

static void put_cell(struct buf *b, char mark, const char *rule)
{
    static const struct {
        char mark;
        const char *kind, *shown;
    } kinds[] = {
        {'+', "on",  "&#183;"},
        {'?', "unk", "?"     },
        {'x', "off", "&#215;"},
    };
    for (size_t i = 0; i < countof(kinds); i++) {
        if (kinds[i].mark == mark) {
            buf_printf(b, "<td class=\"%s\" title=\"", kinds[i].kind);
            html_text(b, rule);
            buf_printf(b, "\">%s</td>", kinds[i].shown);
            return;
        }
    }
    buf_puts(b, "<td></td>");
}

static void put_grid(struct buf *b, const struct grid *t)
{
    buf_puts(
        b, "<p class=\"legend\"><span class=\"key on\">&#183;</span> "
           "Neural Engine <span class=\"key unk\">?</span> nobody knows "
           "<span class=\"key off\">&#215;</span> elsewhere. h: slices "
           "of the head. A cell's rule shows when the pointer rests on it.</p>"
           "<div class=\"wide map\" tabindex=\"0\" role=\"region\" "
           "aria-label=\"Operations by layer\"><table class=\"grid\">"
           "<thead><tr><th scope=\"col\">Operation</th>");
    for (size_t l = 0; l < t->layers; l++) {
        if (l + t->heads < t->layers) {
            buf_printf(b, "<th scope=\"col\">%zu</th>", l);
        } else {
            buf_printf(b, "<th scope=\"col\">h%zu</th>",
                       l + t->heads - t->layers);
        }
    }
    buf_puts(b, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < t->n; i++) {
        const struct row *r = &t->rows[i];
        if (memcmp(r->cells, (char[REPORT_COLUMNS_MAX]){0}, t->layers) == 0) {
            continue; /* of no layer */
        }
        buf_puts(b, "<tr><th scope=\"row\">");
        html_text(b, r->name);
        buf_puts(b, " <span class=\"dim\">");
        html_text(b, r->type);
        buf_puts(b, "</span></th>");
        for (size_t l = 0; l < t->layers; l++) {
            put_cell(b, r->cells[l], r->rules[l]);
        }
        buf_puts(b, "</tr>\n");
    }
    buf_puts(b, "</tbody></table></div>\n");
}

/* --- why --- */

static void put_why(struct buf *b, const struct json *x, const char *verdict,
                    const char *where)
{
    buf_puts(b, "<tr><td>");
    html_text(b, where);
    buf_puts(b, "</td><td><code>");
    html_member(b, x, "rule");
    buf_puts(b, "</code></td><td>");
    html_verdict(b, verdict);
    buf_puts(b, "</td><td>");
    if (json_get(x, "count") != NULL) {
        buf_printf(b, "%.0f ", json_num(json_get(x, "count")));
        html_member(b, x, "type");
    } else {
        buf_puts(b, "the whole of it");
    }
    buf_puts(b, "</td><td class=\"text\">");
    html_member(b, x, "reason");
    buf_puts(b, "</td></tr>\n");
}

static void put_reasons(const struct report *r, struct buf *b)
{
    const struct json *p = json_get(r->residency, "predicted");
    buf_puts(b, "<div class=\"wide\" tabindex=\"0\" role=\"region\" "
                "aria-label=\"Rules\"><table><thead><tr><th>Package</th><th>"
                "Rule</th><th>Device</th><th>Operations</th><th>Why</th></tr>"
                "</thead><tbody>\n");
    size_t from = b->n;
    for (const struct json *f = json_first(report_functions(r)); f != NULL;
         f = json_next(f)) {
        for (const struct json *x = json_first(json_get(f, "findings"));
             x != NULL; x = json_next(x)) {
            const char *v = json_str(json_get(x, "verdict"));
            put_why(b, x, v != NULL && !strcmp(v, "off") ? "cpu" : "unknown",
                    json_str(json_get(f, "package")));
        }
    }
    for (const struct json *o = json_first(json_get(p, "ops")); o != NULL;
         o = json_next(o)) {
        const char *device = json_str(json_get(o, "device"));
        if (device != NULL && strcmp(device, "neural_engine") != 0) {
            put_why(b, o, device, json_str(json_get(o, "package")));
        }
    }
    if (b->n == from) {
        buf_puts(b, "<tr><td colspan=\"5\">No rule speaks against the Neural "
                    "Engine.</td></tr>");
    }
    buf_puts(b, "</tbody></table></div>\n");
}

void report_devices(const struct report *r, struct buf *b)
{
    const struct json *p = json_get(r->residency, "predicted");
    struct grid t = {0};
    html_section(b, "devices", "Where operations run");
    if (report_functions(r) == NULL) {
        buf_puts(b, "<p class=\"dim\">Nothing is predicted of this model."
                    "</p>\n");
        html_end(b);
        return;
    }
    buf_puts(b, "<p><strong>Predicted</strong> for profile ");
    html_member(b, p, "machine");
    buf_puts(b, " by rules of the public record: ");
    html_verdict(b, json_str(json_get(p, "verdict")));
    buf_puts(b, ". A prediction warns; it never rejects.</p>\n");
    put_reasons(r, b);
    read_grid(r, &t);
    if (t.layers > 0) {
        put_grid(b, &t);
    } else {
        buf_puts(b, "<p class=\"dim\">No prediction by layer is kept.</p>\n");
    }
    for (size_t i = 0; i < t.n; i++) {
        free(t.rows[i].cells);
        free(t.rows[i].rules);
    }
    free(t.rows);
    html_end(b);
}
