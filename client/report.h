/* report.h - one HTML page about a model: its gates, layers x operations by
 * predicted device, likeness, KL by position, bytes, packages.
 *
 * The page is whole: no other file, no script, and a policy (CSP) that allows
 * none. Every text comes from a model's files or the daemon and is escaped; in
 * attributes only numbers and our own words stand.
 */
#pragma once

#include "base/buf.h"
#include "proto/json.h"
#include "proto/limits.h"

/* What a page is made of, as the daemon gave it:
 * GET /aned/v1/models/NAME, .../quality and .../residency. Borrowed. */
struct report {
    const struct json *model, *quality, *residency;
    const char *made; /* "2026-11-23 20:15", shown */
};

/* Append the page. b->over is set where it would be too long. */
void report_html(const struct report *r, struct buf *b);

/* --- for the files that make it --- */

/* The quality report, or NULL where the gate did not run. */
const struct json *report_quality(const struct report *r);
/* The functions of the prediction, an array; NULL without one. */
const struct json *report_functions(const struct report *r);

/* Element i of a list; NULL when there is none, or it is no list. */
const struct json *report_at(const struct json *list, size_t i);

/* report_style.c: the style sheet, in two pieces */
extern const char report_style[], report_style_more[];

/* report_html.c: text with <, >, &, quotes escaped, and control characters as
 * '?'. */
void html_text(struct buf *b, const char *s);
void html_member(struct buf *b, const struct json *j, const char *key);
/* A coloured word: passed, failed, warned, ...; NULL is "unknown". */
void html_verdict(struct buf *b, const char *word);
void html_bytes(struct buf *b, double bytes);
/* <section> with its heading; ends with html_end. id is our own. */
void html_section(struct buf *b, const char *id, const char *title);
void html_end(struct buf *b);

/* report_plot.c */
struct plot {
    const char *title, *x, *y; /* x and y: the axes */
    const double *v;           /* n values, at x = 0, 1, .. */
    size_t n;
    double lo, hi;      /* of the y axis */
    double bar;         /* a line across that says `bar_is` */
    const char *bar_is; /* NULL: none */
    bool area;          /* columns from the ground, else dots on a line */
};
/* Inline SVG with a text for who does not see it. */
void plot_svg(struct buf *b, const struct plot *p);
void report_likeness(const struct report *r, struct buf *b);
void report_positions(const struct report *r, struct buf *b);

/* report_map.c */
void report_devices(const struct report *r, struct buf *b);
/* report_bytes.c */
void report_bytes(const struct report *r, struct buf *b);
void report_packages(const struct report *r, struct buf *b);
