/* accept_report.c - what the steps say, as lines, as JSON, as a file.
 *
 * The file is meant to be sent away. It has no prompt but ours, and no path of
 * this machine: each place that is known by name is written as that word. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/num.h"
#include "client/accept.h"
#include "client/show.h"

#define SEND "attach this file to an issue of the project"

/* --- a step says --- */

#define SAY(finding, remedy)                             \
    do {                                                 \
        char text_[ACCEPT_TEXT_MAX];                     \
        va_list ap_;                                     \
        va_start(ap_, fmt);                              \
        (void)vsnprintf(text_, sizeof(text_), fmt, ap_); \
        va_end(ap_);                                     \
        accept_hide(a, text_, sizeof(text_));            \
        doctor_say(&a->d, finding, remedy, "%s", text_); \
    } while (0)

void accept_pass(struct accept *a, const char *fmt, ...)
{
    SAY(FINDING_OK, NULL);
}

void accept_note(struct accept *a, const char *fmt, ...)
{
    SAY(FINDING_NOTE, NULL);
}

void accept_fail(struct accept *a, const char *fmt, ...)
{
    SAY(FINDING_ERROR, SEND);
}

void accept_skip(struct accept *a, const char *fmt, ...)
{
    a->skipped = true;
    SAY(FINDING_NOTE, NULL);
}

void accept_away(struct accept *a, const char *fmt, ...)
{
    char why[ACCEPT_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    accept_skip(a, "not on this system%s%s", why[0] != '\0' ? ": " : "", why);
    a->away |= a->steps[a->at].gives;
}

void accept_error(struct accept *a, const char *what, const struct err *e)
{
    if (interrupted != 0) {
        accept_skip(a, "interrupted");
    } else {
        accept_fail(a, "%s: %s: %s", what, err_name(e->code), e->msg);
    }
}

void accept_number(struct accept *a, const char *name, double v)
{
    json_add_num(a->numbers, name, v);
}

/* --- this machine's paths --- */

static void replace(char *text, size_t size, const char *path, const char *word)
{
    size_t n = strlen(path);
    size_t w = strlen(word);
    char *p = text;
    while (n > 1 && (p = strstr(p, path)) != NULL) {
        size_t rest = strlen(p + n);
        size_t room = size - 1 - (size_t)(p - text);
        if (w > room) { /* the end is cut off */
            *p = '\0';
            return;
        }
        rest = num_min(rest, room - w);
        memmove(p + w, p + n, rest);
        memcpy(p, word, w);
        p[w + rest] = '\0';
        p += w;
    }
}

/* The folder that `path` is in. */
static const char *folder_of(const char *path, char out[SERVICE_PATH_MAX])
{
    (void)snprintf(out, SERVICE_PATH_MAX, "%s", path != NULL ? path : "");
    char *slash = strrchr(out, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return slash != NULL ? out : "";
}

void accept_hide(const struct accept *a, char *text, size_t size)
{
    char dir[SERVICE_PATH_MAX];
    char real[4096]; /* realpath(3): at least PATH_MAX */
    if (a->work[0] != '\0' && realpath(a->work, real) != NULL) {
        replace(text, size, real, "WORK");
    }
    replace(text, size, a->work, "WORK");
    replace(text, size, a->demo, "DEMO");
    replace(text, size, folder_of(a->d.service.program, dir), "BIN");
    replace(text, size, folder_of(a->o.model, dir), "MODELS");
    replace(text, size, a->o.build != NULL ? a->o.build : "", "BUILD");
    replace(text, size, a->d.service.user, "~");
}

/* --- lines --- */

static void print_findings(const struct accept *a, const struct json *list)
{
    for (const struct json *f = json_first(list); f != NULL; f = json_next(f)) {
        printf("         ");
        show_text(&a->client, ask_str(f, "text"));
        (void)putchar('\n');
    }
}

static void print_step(const struct accept *a, const struct step *s,
                       enum result r, double took, const struct json *list)
{
    static const enum color colors[] = {COLOR_GREEN, COLOR_BLUE, COLOR_YELLOW,
                                        COLOR_RED};
    const struct term *t = &a->client.term;
    char time[16];
    fmt_seconds(took, time);
    printf("%s%-8s%s %-20s %s\n", color_out(t, colors[r]), result_name(r),
           color_out(t, COLOR_OFF), s->check.name, time);
    if (r == RESULT_FAILED) {
        printf("         expected: ");
        show_text(&a->client, s->check.expect);
        (void)putchar('\n');
    }
    print_findings(a, list);
    (void)fflush(stdout);
}

/* Findings without their remedies, which are all the same. */
static struct json *plain(const struct json *findings)
{
    struct json *list = json_array();
    for (const struct json *f = json_first(findings); f != NULL;
         f = json_next(f)) {
        struct json *x = json_add_object(list, NULL);
        char text[ACCEPT_TEXT_MAX];
        json_add_str(x, "finding", ask_str(f, "finding"));
        (void)snprintf(text, sizeof(text), "%s", ask_str(f, "text"));
        json_add_str(x, "text", text);
    }
    return list;
}

void accept_told(struct accept *a, const struct step *s, enum result r)
{
    double took = now_seconds() - a->began;
    struct json *list = plain(a->d.findings);
    struct json *o = json_add_object(a->results, NULL);
    json_add_str(o, "name", s->check.name);
    json_add_str(o, "result", result_name(r));
    json_add_num(o, "took_s", (double)(int64_t)(took * 1000) / 1000);
    json_add_int(o, "limit_s", s->limit_s);
    json_add_str(o, "proves", s->proves);
    json_add_str(o, "how", s->how);
    json_add_str(o, "expect", s->check.expect);
    if (!a->json) {
        print_step(a, s, r, took, list);
    }
    json_add_tree(o, "findings", list);
    json_add_tree(o, "numbers", a->numbers);
    a->numbers = NULL;
    a->count[r]++;
}

/* --- the whole --- */

static void add_counts(const struct accept *a, struct json *o)
{
    struct json *x = json_add_object(o, "counts");
    for (enum result r = RESULT_PASSED; r <= RESULT_FAILED; r++) {
        json_add_int(x, result_name(r), a->count[r]);
    }
}

static void add_program(const struct accept *a, struct json *o)
{
    char hex[SHA256_HEX];
    uint64_t bytes = 0;
    struct err none = {0};
    struct json *x = json_add_object(o, "program");
    json_add_str(x, "version", ANED_VERSION);
    if (sha256_file(a->d.service.program, hex, &bytes, &none) == 0) {
        json_add_str(x, "sha256", hex);
        json_add_int(x, "bytes", (int64_t)bytes);
    }
}

struct json *accept_report(struct accept *a)
{
    char date[40] = "";
    struct tm tm = {0};
    time_t now = (time_t)a->d.now;
    struct json *o = json_object();
    if (gmtime_r(&now, &tm) != NULL) {
        (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
    }
    json_add_str(o, "object", "aned.acceptance");
    json_add_int(o, "schema", 1);
    json_add_str(o, "date", date);
    json_add_bool(o, "whole", a->o.n_only == 0 && !a->interrupted);
    json_add_str(o, "result",
                 result_name(a->count[RESULT_FAILED] > 0   ? RESULT_FAILED
                             : a->count[RESULT_PASSED] > 0 ? RESULT_PASSED
                                                           : RESULT_SKIPPED));
    add_counts(a, o);
    add_program(a, o);
    if (a->machine != NULL) {
        json_add_tree(o, "machine", json_copy(a->machine));
    } else {
        json_add_null(o, "machine");
    }
    json_add_tree(o, "steps", json_copy(a->results));
    json_add_str(o, "send", SEND);
    return o;
}

/* "name: value" lines of a flat object. */
static void put_numbers(struct buf *b, const struct json *o)
{
    for (const struct json *c = json_first(o); c != NULL; c = json_next(c)) {
        buf_printf(b, "    %s: %.6g\n", json_key(c), json_num(c));
    }
}

static void put_machine(struct buf *b, const struct json *m)
{
    static const char *const keys[] = {"system", "release", "build", "chip"};
    for (size_t i = 0; i < countof(keys) && m != NULL; i++) {
        buf_printf(b, "%s%s", i > 0 ? " " : "", ask_str(m, keys[i]));
    }
    buf_puts(b, m != NULL ? "\n" : "");
}

static void put_steps(struct buf *b, const struct json *steps)
{
    for (const struct json *s = json_first(steps); s != NULL;
         s = json_next(s)) {
        buf_printf(b, "\n%-8s  %s  (%.1f s)\n", ask_str(s, "result"),
                   ask_str(s, "name"), json_num(json_get(s, "took_s")));
        buf_printf(b, "    proves: %s\n    how: %s\n    expected: %s\n",
                   ask_str(s, "proves"), ask_str(s, "how"),
                   ask_str(s, "expect"));
        for (const struct json *f = json_first(json_get(s, "findings"));
             f != NULL; f = json_next(f)) {
            buf_printf(b, "    %s: %s\n", ask_str(f, "finding"),
                       ask_str(f, "text"));
        }
        put_numbers(b, json_get(s, "numbers"));
    }
}

int accept_write(struct accept *a, const struct json *report,
                 char path[SERVICE_PATH_MAX], struct err *e)
{
    const char *dir = a->o.out != NULL ? a->o.out : ".";
    char name[64] = "aned-acceptance.txt";
    struct tm tm = {0};
    time_t now = (time_t)a->d.now;
    struct buf b;
    if (gmtime_r(&now, &tm) != NULL) {
        (void)strftime(name, sizeof(name), "aned-acceptance-%Y%m%d-%H%M%S.txt",
                       &tm);
    }
    if (!file_join(path, SERVICE_PATH_MAX, dir, name)) {
        return err_set(e, ERR_CONFIG, "%s: too long a path", dir);
    }
    RETERR(file_mkdirs(dir, 0700, e));
    buf_init(&b, MIB(8));
    buf_printf(&b, "aned %s, acceptance on a Mac, %s\n", ANED_VERSION,
               ask_str(report, "date"));
    put_machine(&b, json_get(report, "machine"));
    buf_printf(&b, "passed %u, measured %u, skipped %u, failed %u\n",
               a->count[RESULT_PASSED], a->count[RESULT_MEASURED],
               a->count[RESULT_SKIPPED], a->count[RESULT_FAILED]);
    buf_puts(&b, "To send it: " SEND ".\n");
    put_steps(&b, json_get(report, "steps"));
    buf_puts(&b, "\n--- the same as JSON ---\n");
    json_write(report, true, &b);
    buf_puts(&b, "\n");
    int rc = buf_ok(&b) ? file_write(path, b.p, b.n, e)
                        : err_set(e, ERR_TOO_BIG, "the report");
    buf_fini(&b);
    return rc;
}
