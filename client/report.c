/* report.c - the page as a whole: head, what the gates said, the sections. */
#include "client/report.h"

#include <string.h>

#include "base/base.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d1f21;"
    "--dim:#62676d;--line:#dfe1e4;--plot:#2f6f9f;--good:#1a6b3c;--goodbg:"
    "#dff2e5;--bad:#a0200f;--badbg:#fbe3df;--warn:#7a4d00;--warnbg:#fdeecb;"
    "--on:#cfe6d6;--unk:#f6d98a;--off:#e58a78;--cell:#1d1f21}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1d2024;"
    "--ink:#e6e8ea;--dim:#9aa1a9;--line:#343940;--plot:#6fb1e0;--good:#8fdcab;"
    "--goodbg:#173524;--bad:#ffab9c;--badbg:#47201a;--warn:#f3cd7c;--warnbg:"
    "#42320f;--on:#234a33;--unk:#8a6a17;--off:#9c3b2a;--cell:#f2f3f4}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 "
    "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "main,header,footer{max-width:68rem;margin:0 auto;padding:0 1.25rem}"
    "header{padding-top:2rem}h1{font-size:1.7rem;line-height:1.2;margin:0 0 "
    ".4rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin:0 0 .75rem}"
    "section{background:var(--card);border:1px solid var(--line);"
    "border-radius:10px;padding:1.1rem 1.25rem;margin:1rem 0}"
    "p{margin:0 0 .75rem}.dim{color:var(--dim)}code{font:.9em ui-monospace,"
    "'SF Mono',Menlo,'DejaVu Sans Mono',monospace}"
    ".facts{display:flex;flex-wrap:wrap;gap:.35rem 1.6rem;margin:.6rem 0 0;"
    "padding:0;list-style:none;color:var(--dim)}.facts b{color:var(--ink);"
    "font-weight:600}"
    ".tag{display:inline-block;white-space:nowrap;border-radius:999px;padding:"
    "0 .6em;font-size:.86em;font-weight:600;background:var(--line)}"
    ".tag.good{background:var(--goodbg);color:var(--good)}"
    ".tag.bad{background:var(--badbg);color:var(--bad)}"
    ".tag.warn{background:var(--warnbg);color:var(--warn)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,"
    "1fr));gap:.75rem;margin:0 0 1rem;padding:0}"
    ".tiles div{border:1px solid var(--line);border-radius:8px;padding:.55rem "
    ".8rem}.tiles dt{color:var(--dim);font-size:.84rem}"
    ".tiles dd{margin:0;font-size:1.25rem;font-weight:600;"
    "font-variant-numeric:tabular-nums}"
    ".tiles small{display:block;font-size:.78rem;font-weight:400;"
    "color:var(--dim)}"
    ".wide{overflow-x:auto}.wide:focus-visible,summary:focus-visible,"
    "a:focus-visible{outline:2px solid var(--plot);outline-offset:2px}"
    "table{border-collapse:collapse;width:100%;font-size:.9rem;"
    "font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.34rem .7rem .34rem 0;border-bottom:1px "
    "solid var(--line);vertical-align:top}thead th{color:var(--dim);"
    "font-weight:500}tbody th{font-weight:600}td.text{min-width:16rem}"
    "td.fill,th.fill{width:40%;padding-right:0}"
    ".share{display:block;width:100%;height:.55rem;margin-top:.45rem}"
    "details{margin-top:.75rem}summary{cursor:pointer;color:var(--dim)}"
    "figure{margin:0}figcaption{color:var(--dim);font-size:.9rem;"
    "margin-bottom:.35rem}figure svg{display:block;width:100%;height:auto;"
    "max-height:22rem}.grid line,line.grid{stroke:var(--line)}"
    ".tick{fill:var(--dim);font-size:11px}.axis{fill:var(--dim);"
    "font-size:12px}.ink{fill:var(--plot)}.line{fill:none;stroke:var(--plot);"
    "stroke-width:1.6}.bar{stroke:var(--bad);stroke-dasharray:5 4;"
    "stroke-width:1.4}.bartext{fill:var(--bad)}"
    ".map{max-height:34rem;overflow:auto;margin-top:.75rem}"
    "table.grid{width:auto;font-size:.76rem}table.grid td{padding:0;"
    "text-align:center;min-width:1.35rem;border:1px solid var(--card);"
    "color:var(--cell);line-height:1.25rem}table.grid th{padding:0 .7rem 0 0;"
    "border:0;white-space:nowrap;font-weight:500}table.grid thead th{"
    "text-align:center;padding:0 .2rem;position:sticky;top:0;"
    "background:var(--card)}table.grid tbody th,table.grid thead "
    "th:first-child{position:sticky;left:0;background:var(--card);"
    "text-align:left;padding-right:.7rem}table.grid thead th:first-child{"
    "z-index:1}"
    "td.on,.key.on{background:var(--on)}td.unk,.key.unk{background:var(--unk)}"
    "td.off,.key.off{background:var(--off)}"
    ".legend{margin-top:1rem;font-size:.9rem;color:var(--dim)}.key{display:"
    "inline-block;width:1.3rem;text-align:center;border-radius:3px;"
    "color:var(--cell);margin-left:.5rem}"
    "footer{color:var(--dim);font-size:.84rem;padding-bottom:2.5rem}"
    "@media print{body{background:#fff}.map{max-height:none}}";

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
    for (const struct json *g = json_first(list); g != NULL;
         g = json_next(g)) {
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
    html_verdict(b, state != NULL ? state : "unknown");
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
#define TILE(name, vfmt, v, nfmt, n)                      \
    ((void)snprintf(value, sizeof(value), vfmt, v),       \
     (void)snprintf(note, sizeof(note), nfmt, n),         \
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
    buf_printf(b, " - aned report</title><style>%s</style></head><body>\n",
               style);
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
