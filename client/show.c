#include "client/show.h"

#include <string.h>
#include <time.h>

#include "proto/limits.h"

static enum color color_of(const char *word)
{
    static const struct {
        const char *word;
        enum color color;
    } rows[] = {
        {"ready",       COLOR_GREEN },
        {"loaded",      COLOR_GREEN },
        {"done",        COLOR_GREEN },
        {"passed",      COLOR_GREEN },
        {"ok",          COLOR_GREEN },
        {"failed",      COLOR_RED   },
        {"rejected",    COLOR_RED   },
        {"interrupted", COLOR_RED   },
        {"running",     COLOR_BLUE  },
        {"gating",      COLOR_BLUE  },
        {"loading",     COLOR_BLUE  },
        {"warming",     COLOR_BLUE  },
        {"unverified",  COLOR_YELLOW},
        {"warned",      COLOR_YELLOW},
        {"cancelled",   COLOR_YELLOW},
        {"draining",    COLOR_YELLOW},
        {"queued",      COLOR_DIM   },
        {"not run",     COLOR_DIM   },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        if (strcmp(rows[i].word, word) == 0) {
            return rows[i].color;
        }
    }
    return COLOR_OFF;
}

void show_text(const struct client *c, const char *s)
{
    term_put(stdout, c->term.out_tty, s, strlen(s));
}

void show_state(const struct client *c, const char *state, int width)
{
    (void)fputs(color_out(&c->term, color_of(state)), stdout);
    show_text(c, state);
    (void)fputs(color_out(&c->term, COLOR_OFF), stdout);
    for (int i = (int)strlen(state); i < width; i++) {
        (void)putchar(' ');
    }
}

void show_ago(const struct json *ms, char out[24])
{
    double t = json_num(ms) / 1000;
    double s = (double)time(NULL) - t;
    if (t <= 0) {
        (void)snprintf(out, 24, "-");
    } else if (s < 60) {
        (void)snprintf(out, 24, "%.0fs ago", s > 0 ? s : 0.0);
    } else if (s < 3600) {
        (void)snprintf(out, 24, "%.0fm ago", s / 60);
    } else if (s < 48 * 3600) {
        (void)snprintf(out, 24, "%.0fh ago", s / 3600);
    } else {
        (void)snprintf(out, 24, "%.0f days ago", s / 86400);
    }
}

void show_gates(const struct client *c, const struct json *gates)
{
    for (const struct json *g = json_first(gates); g != NULL;
         g = json_next(g)) {
        const char *detail = ask_str(g, "detail");
        printf("  %-10.32s ", ask_str(g, "name"));
        show_state(c, ask_str(g, "verdict"), detail[0] != '\0' ? 9 : 0);
        if (json_bool(json_get(g, "accepted"))) {
            printf("(accepted) ");
        }
        show_text(c, detail);
        (void)putchar('\n');
    }
}

void show_accepted(const struct json *m, char out[64])
{
    size_t n = 0;
    out[0] = '\0';
    for (const struct json *g = json_first(json_get(m, "accepted"));
         g != NULL && n < 64; g = json_next(g)) {
        const char *name = json_str(g);
        n += (size_t)snprintf(out + n, 64 - n, "%s%.24s", n > 0 ? ", " : "",
                              name != NULL ? name : "");
    }
}

void show_warnings(const struct client *c, const struct json *warnings)
{
    for (const struct json *w = json_first(warnings); w != NULL;
         w = json_next(w)) {
        (void)fprintf(stderr, "%swarning%s: %.256s\n",
                      color_err(&c->term, COLOR_YELLOW),
                      color_err(&c->term, COLOR_OFF),
                      json_str(w) != NULL ? json_str(w) : "");
    }
}

void show_priority(const struct json *job, char out[16])
{
    int64_t n = 0;
    if (!json_int(json_get(job, "priority"), -JOB_PRIORITY_MAX,
                  JOB_PRIORITY_MAX, &n)) {
        (void)snprintf(out, 16, "-");
    } else if (n == 0) {
        (void)snprintf(out, 16, "normal");
    } else if (n == JOB_PRIORITY_LOW || n == JOB_PRIORITY_HIGH) {
        (void)snprintf(out, 16, "%s", n > 0 ? "high" : "low");
    } else {
        (void)snprintf(out, 16, "%+d", (int)n);
    }
}

bool show_job_error(const struct json *job, const char **code,
                    const char **message)
{
    const struct json *x = json_get(job, "error");
    if (json_type(x) == JSON_OBJECT) {
        *code = ask_str(x, "code");
        *message = ask_str(x, "message");
        return true;
    }
    *code = json_str(x) != NULL ? json_str(x) : "";
    *message = ask_str(job, "message");
    return (*code)[0] != '\0';
}

int show_list(struct client *c, const struct show_list *l, bool quiet)
{
    struct json *j = NULL;
    int code = ask_tell(c, "GET", l->path, NULL, &j);
    if (code != EXIT_SUCCESS || c->json) {
        json_free(j);
        return code;
    }
    const struct json *list = ask_list(j, l->key);
    if (!quiet) {
        printf("%s\n", json_first(list) == NULL ? l->none : l->head);
    }
    for (const struct json *x = json_first(list); x != NULL; x = json_next(x)) {
        if (quiet) {
            printf("%s\n", ask_str(x, l->id));
        } else {
            l->row(c, x);
        }
    }
    json_free(j);
    return EXIT_SUCCESS;
}
