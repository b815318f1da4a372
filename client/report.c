/* report.c - the page as a whole: head, what the gates said, the sections. */
#include "client/report.h"

#include <string.h>

#include "base/base.h"

const struct json *report_quality(const struct report *r)
{
    const struct json *q = json_get(r->quality, "report");
    return json_type(q) == JSON_OBJECT ? q : NULL;
}

const struct json *report_functions(const struct report *r)
{
    const struct json *p = json_get(r->residency, "predicted");
    const struct json *f = json_get(json_get(p, "report"), "functions");
    return json_type(f) == JSON_ARRAY ? f : NULL;
}

const struct json *report_at(const struct json *list, size_t i)
{
    const struct json *c = json_first(list);
    while (c != NULL && i-- > 0) {
        c = json_next(c);
    }
    return c;
}

/* --- the head --- */

static void put_fact(const struct report *r, struct buf *b, const char *name,
                     const char *key)
{
    const struct json *v = json_get(r->model, key);
    if (json_type(v) == JSON_STRING) {
        buf_printf(b, "<li>%s <b>", name);
        html_text(b, json_str(v));
        buf_puts(b, "</b></li>");
    } else if (json_type(v) == JSON_NUMBER) {
        buf_printf(b, "<li>%s <b>%.15g</b></li>", name, json_num(v));
    }
}

static void put_accepted(const struct report *r, struct buf *b)
{
    const struct json *list = json_get(r->model, "accepted");
    for (const struct json *g = json_first(list); g != NULL; g = json_next(g)) {
        buf_puts(b, " ");
        html_verdict(b, "accepted");
        buf_puts(b, " ");
        html_text(b, json_str(g));
        buf_puts(b, " failed");
    }
}

static void put_header(const struct report *r, struct buf *b)
{
    const char *state = json_str(json_get(r->model, "state"));
    buf_puts(b, "<header><h1>");
    html_member(b, r->model, "name");
    buf_puts(b, "</h1><p>");
    html_verdict(b, state);
    put_accepted(r, b);
    buf_puts(b, "</p>");
    if (json_type(json_get(r->model, "reason")) == JSON_STRING) {
        buf_puts(b, "<p>");
        html_member(b, r->model, "reason");
        buf_puts(b, "</p>");
    }
    buf_puts(b, "<ul class=\"facts\">");
    put_fact(r, b, "architecture", "architecture");
    put_fact(r, b, "form", "quant");
    put_fact(r, b, "layers", "layers");
    put_fact(r, b, "width", "d_model");
    put_fact(r, b, "vocabulary", "vocab");
    put_fact(r, b, "context", "context");
    buf_puts(b, "<li>size <b>");
    html_bytes(b, json_num(json_get(r->model, "bytes")));
    buf_puts(b, "</b></li><li>source <b>");
    html_member(b, json_get(r->model, "source"), "name");
    buf_puts(b, "</b></li></ul></header>\n");
}

/* --- what the gates said --- */

static void put_gates(const struct report *r, struct buf *b)
{
    html_section(b, "gates", "Gates");
    buf_puts(b, "<div class=\"wide\" tabindex=\"0\" role=\"region\" "
                "aria-label=\"Gates\"><table><thead><tr><th>Gate</th><th>"
                "Verdict</th><th>What it found</th></tr></thead><tbody>\n");
    const struct json *gates = json_get(r->model, "gates");
    for (const struct json *g = json_first(gates); g != NULL;
         g = json_next(g)) {
        const char *v = json_str(json_get(g, "verdict"));
        buf_puts(b, "<tr><th scope=\"row\">");
        html_member(b, g, "name");
        buf_puts(b, "</th><td>");
        html_verdict(b, v != NULL ? v : "not run");
        if (json_bool(json_get(g, "accepted"))) {
            buf_puts(b, " ");
            html_verdict(b, "accepted");
        }
        buf_puts(b, "</td><td class=\"text\">");
        html_member(b, g, "detail");
        buf_puts(b, "</td></tr>\n");
    }
    if (json_first(gates) == NULL) {
        buf_puts(b, "<tr><td colspan=\"3\">No gate has run.</td></tr>");
    }
    buf_puts(b, "</tbody></table></div>\n");
    html_end(b);
}

static void put_tile(struct buf *b, const char *name, const char *value,
                     const char *note)
{
    buf_printf(b, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>", name,
               value, note);
}

static void put_tiles(struct buf *b, const struct json *q)
{
    const struct json *l = json_get(q, "logits");
    const struct json *bars = json_get(q, "bars");
    char value[32];
    char note[64];
#define TILE(name, vfmt, v, nfmt, n)                \
    ((void)snprintf(value, sizeof(value), vfmt, v), \
     (void)snprintf(note, sizeof(note), nfmt, n),   \
     put_tile(b, name, value, note))
    buf_puts(b, "<dl class=\"tiles\">");
    TILE("Mean KL, nats", "%.4g", json_num(json_get(l, "kl_mean")),
         "at most %.3g", json_num(json_get(bars, "kl")));
    TILE("Largest KL", "%.4g", json_num(json_get(l, "kl_max")),
         "of %.0f positions", json_num(json_get(l, "positions")));
    TILE("Likeliest token", "%.1f&#8239;%%",
         100 * json_num(json_get(l, "argmax")), "at least %.0f&#8239;%%",
         100 * json_num(json_get(bars, "argmax")));
    TILE("Five likeliest", "%.1f&#8239;%%", 100 * json_num(json_get(l, "top5")),
         "of %.0f positions", json_num(json_get(l, "positions")));
    TILE("Cosine of logits", "%.5f", json_num(json_get(l, "cosine_mean")),
         "least %.5f", json_num(json_get(l, "cosine_min")));
    TILE("|error| of logits", "%.3g", json_num(json_get(l, "error_mean")),
         "largest %.3g", json_num(json_get(l, "error_max")));
#undef TILE
    buf_puts(b, "</dl>\n");
}

static void put_rung(struct buf *b, const char *name, const struct json *x)
{
    const char *v = json_str(json_get(x, "verdict"));
    buf_puts(b, "<tr><th scope=\"row\">");
    html_text(b, name);
    buf_puts(b, "</th><td>");
    html_verdict(b, v != NULL ? v : "not run");
    buf_puts(b, "</td><td class=\"text\">");
    html_member(b, x, "detail");
    buf_puts(b, "</td></tr>\n");
}

static void put_quality(const struct report *r, struct buf *b)
{
    const struct json *q = report_quality(r);
    html_section(b, "quality", "Quality");
    if (q == NULL) {
        buf_puts(b, "<p class=\"dim\">No quality report of this model is kept."
                    "</p>\n");
        html_end(b);
        return;
    }
    buf_puts(b, "<p>The source model in fp32 beside the packages, run with "
                "every result rounded to fp16. Bars of ");
    html_member(b, q, "quant");
    buf_puts(b, ": ");
    html_member(b, json_get(q, "bars"), "reason");
    buf_puts(b, ".</p>\n");
    if (json_num(json_get(json_get(q, "logits"), "positions")) > 0) {
        put_tiles(b, q);
    }
    buf_puts(b, "<div class=\"wide\" tabindex=\"0\" role=\"region\" "
                "aria-label=\"Rungs\"><table><thead><tr><th>Rung</th><th>"
                "Verdict</th><th>What it found</th></tr></thead><tbody>\n");
    for (const struct json *x = json_first(json_get(q, "rungs")); x != NULL;
         x = json_next(x)) {
        put_rung(b, json_str(json_get(x, "name")), x);
    }
    put_rung(b, "exactness", json_get(q, "exactness"));
    buf_puts(b, "</tbody></table></div>\n");
    html_end(b);
}

void report_html(const struct report *r, struct buf *b)
{
    buf_puts(b, "<!doctype html>\n<html lang=\"en\"><head><meta "
                "charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\""
                " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
                "<meta name=\"viewport\" content=\"width=device-width, "
                "initial-scale=1\"><meta name=\"referrer\" "
                "content=\"no-referrer\"><title>");
    html_member(b, r->model, "name");
    buf_printf(b, " - aned report</title><style>%s%s</style></head><body>\n",
               report_style, report_style_more);
    put_header(r, b);
    buf_puts(b, "<main>\n");
    put_gates(r, b);
    put_quality(r, b);
    report_likeness(r, b);
    report_positions(r, b);
    report_devices(r, b);
    report_packages(r, b);
    report_bytes(r, b);
    buf_puts(b, "</main><footer><p>aned " ANED_VERSION ", ");
    html_text(b, r->made);
    buf_puts(b, ". Fingerprint <code>");
    html_member(b, r->model, "fingerprint");
    buf_puts(b, "</code></p></footer></body></html>\n");
}
