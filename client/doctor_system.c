/* doctor_system.c - what is around the daemon: service manager, names, the
 * machine. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/file.h"
#include "client/doctor.h"

/* Its unit was written by an aned that did not know --service yet. */
static bool is_old_unit(const struct doctor *d)
{
    struct buf b = {0};
    bool old = file_read(d->state.unit, MIB(1), &b, NULL) == 0;
    if (old) {
        buf_u8(&b, '\0');
        old = strstr(b.p, "--service") == NULL;
    }
    buf_fini(&b);
    return old;
}

void check_service(struct doctor *d)
{
    const struct service_state *t = &d->state;
    const char *name = d->service.manager->name;
    char advice[200] = "";
    if (d->state_error.code != 0) {
        doctor_say(d, FINDING_NOTE, NULL, "not under %s: %s", name,
                   d->state_error.msg);
        return;
    }
    if (!t->installed) {
        doctor_say(d, FINDING_NOTE, "anectl service install",
                   "%s does not start it", name);
        return;
    }
    if (t->failed) {
        doctor_say(d, FINDING_ERROR, "anectl service logs, then start",
                   "it has failed: %s, exit status %" PRId64, t->text,
                   t->last_exit);
    } else if (t->running && d->pid > 0 && d->pid != t->pid) {
        doctor_say(d, FINDING_WARNING, "end one of them",
                   "%s runs pid %" PRId64 ", but pid %" PRId64
                   " answers on the socket",
                   name, t->pid, d->pid);
    } else if (!t->listening) {
        doctor_say(d, FINDING_WARNING, "anectl service start",
                   "it is installed, but stopped");
    } else {
        doctor_say(d, FINDING_OK, NULL, "%s: %s", name, t->text);
    }
    if (!t->enabled) {
        doctor_say(d, FINDING_WARNING, "anectl service install",
                   "it is not enabled: gone after the next login");
    }
    if (is_old_unit(d)) {
        doctor_say(d, FINDING_WARNING, "anectl service install",
                   "%s is of an older aned", t->unit);
    }
    d->service.manager->advice(&d->service, advice, sizeof(advice));
    if (advice[0] != '\0') {
        doctor_say(d, FINDING_NOTE, NULL, "%s", advice);
    }
}

/* --- the name: macOS has a daemon of its own called aned --- */

static bool same_file(const char *a, const char *b)
{
    struct stat x;
    struct stat y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

void check_name(struct doctor *d)
{
    char apples[SERVICE_PATH_MAX];
    char first[SERVICE_PATH_MAX];
    if (doctor_path(d, "/usr/libexec/aned", apples, sizeof(apples)) &&
        file_exists(apples)) {
        doctor_say(d, FINDING_NOTE, NULL,
                   "macOS has an aned of its own (%s): never end one by its "
                   "name, use anectl service",
                   apples);
    }
    if (!service_in_path("aned", first, sizeof(first))) {
        doctor_say(d, FINDING_NOTE, NULL, "no aned in PATH; anectl uses %s",
                   d->program != NULL ? d->program : "none");
    } else if (d->program != NULL && !same_file(first, d->program)) {
        doctor_say(d, FINDING_WARNING, "put the right folder first in PATH",
                   "PATH has %s, anectl's own is %s", first, d->program);
    } else {
        doctor_say(d, FINDING_OK, NULL, "%s", first);
    }
}

void doctor_build(char *out, size_t size)
{
    out[0] = '\0';
#if defined(__APPLE__)
    size_t n = size;
    if (sysctlbyname("kern.osversion", out, &n, NULL, 0) != 0) {
        out[0] = '\0';
    }
#else
    (void)size;
#endif
}

/* The member "model" of an entry of the residency reports, as text. */
static const char *model_of(const struct json *x)
{
    return ask_str(x, "model");
}

/* A verdict counts for the machine, in whose name the build of the system
 * stands; after an update the daemon measures anew, when it has time. */
void check_os_build(struct doctor *d)
{
    unsigned measured = 0;
    unsigned other = 0;
    if (!d->mac) {
        doctor_say(d, FINDING_NOTE, NULL, "not on this system");
        return;
    }
    if (d->residency == NULL || d->build[0] == '\0') {
        doctor_say(d, FINDING_NOTE, NULL, "not known: %s",
                   d->residency == NULL ? "no daemon tells what was measured"
                                        : "the system does not tell its build");
        return;
    }
    for (const struct json *x = json_first(json_get(d->residency, "models"));
         x != NULL; x = json_next(x)) {
        const struct json *m = json_get(x, "measured");
        const char *machine = ask_str(m, "machine");
        char remedy[200];
        if (machine[0] == '\0') {
            continue;
        }
        measured++;
        if (!ask_has_word(machine, d->build)) {
            other++;
            (void)snprintf(remedy, sizeof(remedy),
                           "anectl probe %.128s, or wait: the daemon does it "
                           "by itself",
                           model_of(x));
            doctor_say(d, FINDING_WARNING, remedy,
                       "%s was measured on \"%s\", this is build %s",
                       model_of(x), machine, d->build);
        }
    }
    if (other == 0) {
        doctor_say(d, FINDING_OK, NULL, "build %s, %u models measured on it",
                   d->build, measured);
    }
}

void check_large_pages(struct doctor *d)
{
    static const char file[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    char path[SERVICE_PATH_MAX];
    char remedy[128];
    struct buf b = {0};
    if (!doctor_path(d, file, path, sizeof(path)) || !doctor_read(path, &b)) {
        doctor_say(d, FINDING_NOTE, NULL, "not on this system");
    } else if (strstr(b.p, "[never]") != NULL) {
        (void)snprintf(remedy, sizeof(remedy), "as root: echo madvise > %s",
                       file);
        doctor_say(d, FINDING_WARNING, remedy,
                   "off: weights in small pages are read up to a third slower");
    } else {
        (void)run_last_line(&b);
        doctor_say(d, FINDING_OK, NULL, "%s", b.p);
    }
    buf_fini(&b);
}
