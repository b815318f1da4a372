#include "client/engines.h"

#include <string.h>

#include "client/show.h"

static uint64_t count(const struct json *o, const char *key)
{
    double v = json_num(json_get(o, key));
    return v > 0 ? (uint64_t)v : 0;
}

void engines_memory(const struct json *status, char out[48])
{
    const struct json *m = json_get(status, "memory");
    char used[16], budget[16];
    fmt_bytes(count(m, "used_bytes"), used);
    fmt_bytes(count(m, "budget_bytes"), budget);
    (void)snprintf(out, 48, "%s of %s", used, budget);
}

/* When it goes by itself. */
static void leaves(const struct json *m, char out[24])
{
    const struct json *ms = json_get(m, "leaves_ms");
    char in[16];
    if (json_bool(json_get(m, "pinned"))) {
        (void)snprintf(out, 24, "pinned");
    } else if (json_type(ms) == JSON_NUMBER) {
        fmt_seconds(json_num(ms) / 1000, in);
        (void)snprintf(out, 24, "in %s", in);
    } else if (count(m, "users") > 0) {
        (void)snprintf(out, 24, "in use");
    } else {
        (void)snprintf(out, 24, "when needed");
    }
}

/* How far a load is: "warming 40%". */
static void stage(const struct json *m, char out[48])
{
    const struct json *p = json_get(m, "progress");
    char percent[16] = "";
    if (json_type(p) == JSON_NUMBER) {
        (void)snprintf(percent, sizeof(percent), " %.0f%%", 100 * json_num(p));
    }
    (void)snprintf(out, 48, "%.24s%s", ask_str(m, "stage"), percent);
}

/* wide: of the column of names. */
static void show(const struct client *c, const struct json *m, int wide)
{
    const struct json *x = json_get(m, "engine");
    const char *name = ask_str(m, "name");
    char bytes[16], resident[16], until[24], progress[48], warm[24];

    show_text(c, name);
    for (int i = (int)strlen(name); i < wide; i++) {
        (void)putchar(' ');
    }
    (void)putchar(' ');
    show_state(c, ask_str(m, "state"), 9);
    if (json_type(x) != JSON_OBJECT) { /* its engine is still to come */
        stage(m, progress);
        printf(" %8s %8s %8s  %s\n", "-", "-", "-", progress);
        return;
    }
    fmt_bytes(count(x, "bytes"), bytes);
    fmt_bytes(count(x, "resident_bytes"), resident);
    printf(" %8.0f %8s %8s", json_num(json_get(x, "pid")), bytes, resident);
    if (json_get(x, "sequences") == NULL) {
        stage(m, progress);
        printf("  %s\n", progress);
        return;
    }
    leaves(m, until);
    (void)snprintf(warm, sizeof(warm), "%.0f/%.0f",
                   json_num(json_get(x, "warm")),
                   json_num(json_get(x, "sequences")));
    printf(" %4.0f %7s %5.0f  %s\n", json_num(json_get(x, "running")), warm,
           json_num(json_get(x, "waiting")), until);
}

/* Whether it has an engine, or will. */
static bool is_here(const struct json *m)
{
    return json_type(json_get(m, "engine")) == JSON_OBJECT ||
           json_type(json_get(m, "stage")) == JSON_STRING;
}

void engines_show(const struct client *c, const struct json *status)
{
    const struct json *first = json_first(json_get(status, "models"));
    int wide = 0; /* 0: none is here */
    for (const struct json *m = first; m != NULL; m = json_next(m)) {
        int n = (int)strlen(ask_str(m, "name"));
        if (is_here(m)) {
            wide = n > wide ? n : wide;
            wide = wide > 24 ? wide : 24;
        }
    }
    if (wide == 0) {
        printf("no model is loaded\n");
        return;
    }
    printf("%s%-*s %-9s %8s %8s %8s %4s %7s %5s  %s%s\n",
           color_out(&c->term, COLOR_BOLD), wide, "MODEL", "STATE", "PID",
           "MEMORY", "RESIDENT", "RUN", "WARM", "QUEUE", "LEAVES",
           color_out(&c->term, COLOR_OFF));
    for (const struct json *m = first; m != NULL; m = json_next(m)) {
        if (is_here(m)) {
            show(c, m, wide);
        }
    }
}
