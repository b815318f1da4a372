/* term.h - output for terminals: colour, a progress line. Pipes get neither. */
#pragma once

#include "base/base.h"

struct term {
    bool out_tty, err_tty;
    bool color_out, color_err; /* a terminal, TERM is not dumb, no NO_COLOR */
    unsigned width;            /* columns; 80 when unknown */
};

void term_init(struct term *t);

enum color {
    COLOR_OFF,
    COLOR_BOLD,
    COLOR_DIM,
    COLOR_RED,
    COLOR_GREEN,
    COLOR_YELLOW,
    COLOR_BLUE
};
/* The escape, or "" when the stream is no terminal. */
const char *color_out(const struct term *t, enum color c);
const char *color_err(const struct term *t, enum color c);

/* "12.3 MB", "1m 05s": both at most 15 characters. */
void fmt_bytes(uint64_t bytes, char out[16]);
void fmt_seconds(double s, char out[16]);

/* Estimates the time left from (fraction done, seconds since the start). It
 * begins with the first fraction above 0: before it a job waits in a queue, and
 * a resumed one begins with what was kept. It gives no estimate before 2 % and
 * one second, then follows the recent speed. */
struct eta {
    double fraction, at; /* of the last sample taken */
    double rate;         /* fraction a second; 0: not known */
    double began;
};
/* Seconds left, < 0 when not known. A fraction that decreases starts anew. */
double eta_update(struct eta *t, double fraction, double now_s);

/* One line of at most `width` columns: stage, bar, percent, times. */
void bar_render(char *out, size_t size, unsigned width, const char *stage,
                double fraction, double elapsed_s, double left_s);

/* A bar_render line on stderr, drawn again in its place; nothing where stderr
 * is no terminal. Zeroed but for `began`, the now_seconds() of the start. */
struct bar {
    struct eta eta;
    double began;
    bool drawn;
};
void bar_draw(struct bar *b, const struct term *t, const char *stage,
              double fraction);
void bar_wipe(struct bar *b);

/* Bytes that came from elsewhere, on a terminal: control characters other
 * than tab and newline become '?'. */
void term_put(FILE *to, bool tty, const char *p, size_t n);

double now_seconds(void); /* monotonic */
