#include "client/term.h"

#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

void term_init(struct term *t)
{
    const char *no = getenv("NO_COLOR");
    const char *name = getenv("TERM");
    bool color = (no == NULL || no[0] == '\0') && name != NULL &&
                 strcmp(name, "dumb") != 0;
    struct winsize w = {0};

    t->out_tty = isatty(STDOUT_FILENO) == 1;
    t->err_tty = isatty(STDERR_FILENO) == 1;
    t->color_out = t->out_tty && color;
    t->color_err = t->err_tty && color;
    t->width = 80;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20) {
        t->width = w.ws_col;
    }
}

static const char *const escapes[] = {
    [COLOR_OFF] = "\033[0m",    [COLOR_BOLD] = "\033[1m",
    [COLOR_DIM] = "\033[2m",    [COLOR_RED] = "\033[31m",
    [COLOR_GREEN] = "\033[32m", [COLOR_YELLOW] = "\033[33m",
    [COLOR_BLUE] = "\033[34m",
};

const char *color_out(const struct term *t, enum color c)
{
    return t->color_out ? escapes[c] : "";
}

const char *color_err(const struct term *t, enum color c)
{
    return t->color_err ? escapes[c] : "";
}

void fmt_bytes(uint64_t bytes, char out[16])
{
    static const char *const units[] = {"B",  "kB", "MB", "GB",
                                        "TB", "PB", "EB"};
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 999.5 && u + 1 < countof(units)) {
        v /= 1000;
        u++;
    }
    int digits = u == 0 || v >= 99.95 ? 0 : 1;
    (void)snprintf(out, 16, "%.*f %s", digits, v, units[u]);
}

void fmt_seconds(double s, char out[16])
{
    double bounded = s > 0 ? s : 0; /* also for NaN */
    unsigned n = bounded < 3.5e9 ? (unsigned)(bounded + 0.5) : 3500000000u;
    if (bounded < 9.95) {
        (void)snprintf(out, 16, "%.1fs", bounded);
    } else if (n < 60) {
        (void)snprintf(out, 16, "%us", n);
    } else if (n < 3600) {
        (void)snprintf(out, 16, "%um %02us", n / 60, n % 60);
    } else {
        (void)snprintf(out, 16, "%uh %02um", n / 3600, n / 60 % 60);
    }
}

double eta_update(struct eta *t, double fraction, double now_s)
{
    if (fraction < t->fraction || now_s < t->at) { /* another attempt */
        *t = (struct eta){.fraction = fraction, .at = now_s, .began = now_s};
        return -1;
    }
    if (t->fraction <= 0) { /* a queue is no speed, nor is what is kept */
        *t = (struct eta){.fraction = fraction, .at = now_s, .began = now_s};
        return -1;
    }
    double dt = now_s - t->at;
    if (dt >= 0.2 && fraction > t->fraction) {
        double rate = (fraction - t->fraction) / dt;
        /* A sample counts by how long it took. Most of what is longer ago is
         * forgotten: a sixth of the time so far is more than a layer takes. */
        double past = (now_s - t->began) / 6;
        past = past > 10 ? past : 10;
        double keep = t->rate > 0 ? past / (past + dt) : 0;
        t->rate = keep * t->rate + (1 - keep) * rate;
        t->fraction = fraction;
        t->at = now_s;
    }
    if (t->rate <= 0 || fraction < 0.02 || now_s < 1) {
        return -1;
    }
    double left = (1 - fraction) / t->rate - (now_s - t->at);
    return left > 0 ? left : 0;
}

void bar_render(char *out, size_t size, unsigned width, const char *stage,
                double fraction, double elapsed_s, double left_s)
{
    char times[48];
    char took[16];
    char left[16];
    char cells[64];
    double f = fraction < 0 ? 0 : fraction > 1 ? 1 : fraction;

    fmt_seconds(elapsed_s, took);
    if (left_s >= 0) {
        fmt_seconds(left_s, left);
        (void)snprintf(times, sizeof(times), "%s, %s left", took, left);
    } else {
        (void)snprintf(times, sizeof(times), "%s", took);
    }
    unsigned fixed = 12 + 1 + 2 + 1 + 4 + 2 + (unsigned)strlen(times);
    unsigned room = width > fixed + 5 ? width - fixed : 0;
    unsigned n = room < sizeof(cells) - 1 ? room : (unsigned)sizeof(cells) - 1;
    n = n > 40 ? 40 : n;
    for (unsigned i = 0; i < n; i++) {
        cells[i] = (double)i + 0.5 < f * (double)n ? '#' : '.';
    }
    cells[n] = '\0';
    /* 100 % is for what is complete, not for what is nearly so. */
    int percent = (int)(f * 100);
    if (n > 0) {
        (void)snprintf(out, size, "%-12.12s [%s] %3d%%  %s", stage, cells,
                       percent, times);
    } else {
        (void)snprintf(out, size, "%.12s %d%% %s", stage, percent, times);
    }
    if (width < size) {
        out[width] = '\0';
    }
}

void bar_draw(struct bar *b, const struct term *t, const char *stage,
              double fraction)
{
    char line[256];
    double now = now_seconds() - b->began;
    if (!t->err_tty) {
        return;
    }
    bar_render(line, sizeof(line), t->width - 1, stage, fraction, now,
               eta_update(&b->eta, fraction, now));
    (void)fprintf(stderr, "\r\033[K%s", line);
    (void)fflush(stderr);
    b->drawn = true;
}

void bar_wipe(struct bar *b)
{
    if (b->drawn) {
        (void)fprintf(stderr, "\r\033[K");
        b->drawn = false;
    }
}

void term_put(FILE *to, bool tty, const char *p, size_t n)
{
    if (!tty) {
        (void)fwrite(p, 1, n, to);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        bool bad = (c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
        (void)putc(bad ? '?' : c, to);
    }
}

double now_seconds(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
