/* report_plot.c - plots as inline SVG. */
#include <math.h>
#include <string.h>

#include "client/report.h"

/* The drawing, in its own units; it is scaled to the page's width. */
#define WIDTH  720.0
#define HEIGHT 220.0
#define LEFT   64.0
#define RIGHT  16.0
#define TOP    14.0
#define BOTTOM 40.0

static double at_x(const struct plot *p, double i)
{
    double span = p->n > 1 ? (double)(p->n - 1) : 1;
    double room = WIDTH - LEFT - RIGHT;
    return p->n > 1 ? LEFT + 6 + (room - 12) * i / span : LEFT + room / 2;
}

static double at_y(const struct plot *p, double v)
{
    double share = (v - p->lo) / (p->hi - p->lo);
    share = share < 0 ? 0 : share > 1 ? 1 : share; /* NaN cannot be: JSON */
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share;
}

/* 1, 2 or 5 times a power of ten, so that about `want` fit in a span. */
static double round_step(double span, double want)
{
    double raw = span / want;
    double base = pow(10, floor(log10(raw)));
    double m = raw / base;
    return base * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static void put_axes(struct buf *b, const struct plot *p)
{
    double step = round_step(p->hi - p->lo, 6);
    for (double k = ceil(p->lo / step - 1e-9); k * step <= p->hi + step * 1e-6;
         k++) {
        double v = fabs(k) < 0.5 ? 0 : k * step;
        double y = at_y(p, v);
        buf_printf(b,
                   "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
                   "y2=\"%.1f\"/><text class=\"tick\" x=\"%.1f\" y=\"%.1f\" "
                   "text-anchor=\"end\">%.6g</text>",
                   LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, v);
    }
    double each = p->n > 1 ? fmax(1, round_step((double)p->n - 1, 10)) : 1;
    for (double i = 0; i < (double)p->n; i += each) {
        buf_printf(b,
                   "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" "
                   "text-anchor=\"middle\">%.0f</text>",
                   at_x(p, i), HEIGHT - BOTTOM + 16, i);
    }
    buf_printf(b,
               "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" "
               "text-anchor=\"middle\">%s</text>",
               (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, p->x);
}

static void put_bar(struct buf *b, const struct plot *p)
{
    if (p->bar_is != NULL && p->bar >= p->lo && p->bar <= p->hi) {
        double y = at_y(p, p->bar);
        buf_printf(b,
                   "<line class=\"bar\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
                   "y2=\"%.1f\"/><text class=\"tick bartext\" x=\"%.1f\" "
                   "y=\"%.1f\" text-anchor=\"end\">%s</text>",
                   LEFT, WIDTH - RIGHT, y, y, WIDTH - RIGHT - 4, y - 5,
                   p->bar_is);
    }
}

static void put_columns(struct buf *b, const struct plot *p)
{
    double wide = p->n > 1 ? at_x(p, 1) - at_x(p, 0) : 8;
    double w = wide > 2 ? wide - 1 : wide * 0.9;
    for (size_t i = 0; i < p->n; i++) {
        double y = at_y(p, p->v[i]);
        buf_printf(b,
                   "<rect class=\"ink\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                   "height=\"%.2f\"><title>%zu: %.4g</title></rect>",
                   at_x(p, (double)i) - w / 2, y, w, HEIGHT - BOTTOM - y, i,
                   p->v[i]);
    }
}

static void put_line(struct buf *b, const struct plot *p)
{
    buf_puts(b, "<polyline class=\"line\" points=\"");
    for (size_t i = 0; i < p->n; i++) {
        buf_printf(b, "%.2f,%.2f ", at_x(p, (double)i), at_y(p, p->v[i]));
    }
    buf_puts(b, "\"/>");
    for (size_t i = 0; i < p->n; i++) {
        buf_printf(b,
                   "<circle class=\"ink\" cx=\"%.2f\" cy=\"%.2f\" r=\"3.2\">"
                   "<title>%zu: %.6f</title></circle>",
                   at_x(p, (double)i), at_y(p, p->v[i]), i, p->v[i]);
    }
}

void plot_svg(struct buf *b, const struct plot *p)
{
    double least = p->n > 0 ? p->v[0] : 0;
    double most = least;
    for (size_t i = 1; i < p->n; i++) {
        least = fmin(least, p->v[i]);
        most = fmax(most, p->v[i]);
    }
    buf_printf(
        b,
        "<figure tabindex=\"0\"><figcaption>%s</figcaption><svg role=\"img\" "
        "viewBox=\"0 0 %.0f %.0f\" aria-label=\"%s: %zu values of %s, "
        "from %.6g to %.6g\">",
        p->title, WIDTH, HEIGHT, p->title, p->n, p->y, least, most);
    put_axes(b, p);
    if (p->area) {
        put_columns(b, p);
    } else {
        put_line(b, p);
    }
    put_bar(b, p);
    buf_puts(b, "</svg></figure>\n");
}

/* Numbers of a list; of objects their member `key`. *ret: free(). */
static size_t numbers(const struct json *list, const char *key, double **ret)
{
    size_t n = 0;
    *ret = calloc(json_count(list) + 1, sizeof(**ret));
    must(*ret != NULL);
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        (*ret)[n++] = json_num(key != NULL ? json_get(c, key) : c);
    }
    return n;
}

static void put_layers(struct buf *b, const struct json *layers)
{
    size_t i = 0;
    buf_puts(b, "<details><summary>As a table</summary><div class=\"wide\" "
                "tabindex=\"0\" role=\"region\" aria-label=\"Layers\">"
                "<table><thead><tr><th>Layer</th><th>Cosine</th><th>Least</th>"
                "<th>Mean |error|</th><th>Largest</th><th>RMS</th></tr></thead>"
                "<tbody>");
    for (const struct json *l = json_first(layers); l != NULL;
         l = json_next(l)) {
        buf_printf(b,
                   "<tr><th scope=\"row\">%zu</th><td>%.6f</td><td>%.6f"
                   "</td><td>%.3g</td><td>%.3g</td><td>%.3g</td></tr>",
                   i++, json_num(json_get(l, "cosine_mean")),
                   json_num(json_get(l, "cosine_min")),
                   json_num(json_get(l, "error_mean")),
                   json_num(json_get(l, "error_max")),
                   json_num(json_get(l, "rms")));
    }
    buf_puts(b, "</tbody></table></div></details>\n");
}

void report_likeness(const struct report *r, struct buf *b)
{
    const struct json *q = report_quality(r);
    const struct json *layers = json_get(q, "layers");
    double *v = NULL;
    size_t n = numbers(layers, "cosine_mean", &v);
    double bar = json_num(json_get(json_get(q, "bars"), "cosine"));
    double least = bar;
    char text[48];
    (void)snprintf(text, sizeof(text), "bar %.3g", bar);
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, v[i]);
    }
    const struct plot p = {
        .title = "Cosine of what each layer gives to the reference, mean over "
                 "positions",
        .x = "layer",
        .y = "cosine",
        .v = v,
        .n = n,
        .lo = least - (1 - least) * 0.15 - 1e-4,
        .hi = 1,
        .bar = bar,
        .bar_is = text,
    };
    html_section(b, "likeness", "Likeness of each layer");
    if (n > 0) {
        plot_svg(b, &p);
        put_layers(b, layers);
    } else {
        buf_puts(b, "<p class=\"dim\">Not measured.</p>\n");
    }
    html_end(b);
    free(v);
}

void report_positions(const struct report *r, struct buf *b)
{
    const struct json *q = report_quality(r);
    double *v = NULL;
    size_t n = numbers(json_get(q, "kl"), NULL, &v);
    double bar = json_num(json_get(json_get(q, "bars"), "kl"));
    double mean = json_num(json_get(json_get(q, "logits"), "kl_mean"));
    double most = mean;
    char text[64];
    (void)snprintf(text, sizeof(text), "mean %.3g (bar %.3g)", mean, bar);
    html_section(b, "positions", "KL by position");
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, v[i]);
    }
    if (n == 0) {
        buf_puts(b, "<p class=\"dim\">Not measured.</p>\n");
    } else {
        const struct plot p = {
            .title = "KL of the logits from the reference, in nats",
            .x = "position",
            .y = "KL",
            .v = v,
            .n = n,
            .hi = most > 0 ? most * 1.05 : 1,
            .bar = mean,
            .bar_is = text,
            .area = true,
        };
        plot_svg(b, &p);
    }
    html_end(b);
    free(v);
}
