#include "client/doctor.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "client/show.h"

static const char *const names[] = {
    [FINDING_OK] = "ok",
    [FINDING_NOTE] = "note",
    [FINDING_WARNING] = "warning",
    [FINDING_ERROR] = "error",
};

void doctor_say(struct doctor *d, enum finding f, const char *remedy,
                const char *fmt, ...)
{
    static const enum color colors[] = {COLOR_GREEN, COLOR_BLUE, COLOR_YELLOW,
                                        COLOR_RED};
    char text[1024];
    va_list ap;
    must(remedy != NULL || f < FINDING_WARNING);
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    d->found[f]++;
    struct json *o = json_add_object(d->findings, NULL);
    json_add_str(o, "check", d->check);
    json_add_str(o, "finding", names[f]);
    json_add_str(o, "text", text);
    if (remedy != NULL) {
        json_add_str(o, "remedy", remedy);
    } else {
        json_add_null(o, "remedy");
    }
    if (d->client->json || d->quiet) {
        return;
    }
    const struct term *t = &d->client->term;
    printf("%s%-7s%s  %-13s ", color_out(t, colors[f]), names[f],
           color_out(t, COLOR_OFF), d->check);
    show_text(d->client, text);
    (void)putchar('\n');
    if (remedy != NULL) {
        printf("%24s", "");
        show_text(d->client, remedy);
        (void)putchar('\n');
    }
    (void)fflush(stdout);
}

static enum finding worst(const struct doctor *d)
{
    enum finding f = FINDING_ERROR;
    while (f > FINDING_OK && d->found[f] == 0) {
        f--;
    }
    return f;
}

/* findings -> the answer of --json, version 1: members are only ever added. */
static void print_json(struct doctor *d, const struct check *checks, size_t n)
{
    struct json *o = json_object();
    json_add_str(o, "object", "aned.doctor");
    json_add_int(o, "schema", 1);
    json_add_str(o, "version", ANED_VERSION);
    json_add_str(o, "finding", names[worst(d)]);
    struct json *list = json_add_array(o, "checks");
    for (size_t i = 0; i < n; i++) {
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "name", checks[i].name);
        json_add_str(x, "expect", checks[i].expect);
    }
    json_add_tree(o, "findings", d->findings);
    d->findings = NULL;
    (void)ask_print(o);
    json_free(o);
}

static unsigned said(const struct doctor *d)
{
    unsigned n = 0;
    for (size_t k = 0; k < countof(d->found); k++) {
        n += d->found[k];
    }
    return n;
}

void doctor_check(struct doctor *d, const struct check *c)
{
    unsigned before = said(d);
    d->check = c->name;
    c->run(d);
    must(said(d) > before); /* a check that says nothing checks nothing */
}

int doctor_run(struct doctor *d, const struct check *checks, size_t n)
{
    d->findings = json_array();
    for (size_t i = 0; i < n; i++) {
        doctor_check(d, &checks[i]);
    }
    if (d->client->json) {
        print_json(d, checks, n);
    } else {
        printf("errors: %u, warnings: %u\n", d->found[FINDING_ERROR],
               d->found[FINDING_WARNING]);
    }
    json_free(d->findings);
    d->findings = NULL;
    return worst(d) == FINDING_ERROR     ? EXIT_UNAVAILABLE
           : worst(d) == FINDING_WARNING ? 1
                                         : EXIT_SUCCESS;
}

/* --- for the checks --- */

bool doctor_path(const struct doctor *d, const char *path, char *out,
                 size_t size)
{
    return snprintf(out, size, "%s%s", d->root != NULL ? d->root : "", path) <
           (int)size;
}

bool doctor_read(const char *path, struct buf *b)
{
    FILE *f = fopen(path, "re");
    char text[4096];
    if (f == NULL) {
        return false;
    }
    size_t n = fread(text, 1, sizeof(text), f);
    (void)fclose(f);
    buf_init(b, sizeof(text) + 1);
    buf_put(b, text, n);
    buf_u8(b, '\0');
    b->n--;
    return true;
}

bool doctor_private(struct doctor *d, const char *what, const char *path,
                    unsigned mode)
{
    struct stat st;
    char remedy[SERVICE_PATH_MAX + 64];
    if (lstat(path, &st) != 0) {
        doctor_say(d, FINDING_ERROR, "look at the folders above it",
                   "%s %s cannot be looked at", what, path);
        return false;
    }
    if (S_ISLNK(st.st_mode)) {
        doctor_say(d, FINDING_ERROR, "put the real one there",
                   "%s %s is a symbolic link", what, path);
        return false;
    }
    if (st.st_uid != geteuid()) {
        (void)snprintf(remedy, sizeof(remedy), "chown %u '%s', as root",
                       (unsigned)geteuid(), path);
        doctor_say(d, FINDING_ERROR, remedy, "%s %s belongs to uid %u", what,
                   path, (unsigned)st.st_uid);
        return false;
    }
    if ((st.st_mode & 077u) != 0) {
        (void)snprintf(remedy, sizeof(remedy), "chmod %o '%s'", mode, path);
        bool many = (st.st_mode & S_ISVTX) != 0; /* /tmp stays as it is */
        doctor_say(d, FINDING_ERROR,
                   many ? "choose another with --home" : remedy,
                   "%s %s is open to others (%04o)", what, path,
                   (unsigned)(st.st_mode & 07777u));
        return false;
    }
    return true;
}

bool doctor_aned(struct doctor *d, const char **argv, int *code, char *line,
                 size_t size)
{
    struct buf out;
    struct err e = {0};
    if (d->program == NULL) {
        return false;
    }
    argv[0] = d->program;
    buf_init(&out, KIB(64));
    int rc = run_program(argv, SERVICE_CALL_S, &out, code, &e);
    if (rc == 0) {
        (void)snprintf(line, size, "%s", run_last_line(&out));
    }
    buf_fini(&out);
    return rc == 0;
}
