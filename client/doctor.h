/* doctor.h - a list of checks, what they found, and how it is told.
 *
 * A check has a name, a sentence that says what is right, and a function that
 * calls doctor_say for each thing it finds; when it finds nothing wrong it says
 * so once. Checks only look: they change nothing, but asking a daemon that
 * waits for its first client starts it.
 */
#pragma once

#include "client/service.h"
#include "proto/json.h"

/* The worst one decides the exit status. */
enum finding {
    FINDING_OK,
    FINDING_NOTE,    /* to know; nothing is wrong */
    FINDING_WARNING, /* it works, but not as well as it could */
    FINDING_ERROR    /* it does not work, or soon will not */
};

struct doctor {
    struct client *client;
    struct service service;
    bool mac;            /* the service manager is launchd */
    const char *program; /* aned; NULL: not found */
    int64_t now;         /* Unix time in seconds */
    const char *root;    /* before /proc, /sys and /usr; tests have their own */
    /* what the daemon and its manager said; asked once */
    struct json *status; /* NULL: status_error says why */
    struct err status_error;
    struct json *residency;     /* /aned/v1/residency; NULL: not known */
    char build[64];             /* of the system, "24G84"; "": not known */
    struct service_state state; /* when state_error.code is 0 */
    struct err state_error;
    char home[SERVICE_PATH_MAX]; /* the daemon's, else the service's */
    int64_t pid;                 /* the daemon's; 0: none */
    bool quiet;                  /* findings are only kept */
    /* what was found */
    const char *check;
    unsigned found[FINDING_ERROR + 1];
    struct json *findings;
};

struct check {
    const char *name;
    const char *expect; /* what is right */
    void (*run)(struct doctor *d);
};

/* Say what the running check has found. remedy: what to do, a sentence without
 * a full stop; NULL: nothing is to be done, which a warning or an error cannot
 * say. */
void doctor_say(struct doctor *d, enum finding f, const char *remedy,
                const char *fmt, ...) PRINTF_LIKE(4, 5);
/* Run one check: its findings are added to d->findings, and counted in
 * d->found. */
void doctor_check(struct doctor *d, const struct check *c);
/* Run all of them; each finding is printed as it comes, with --json all at the
 * end. Returns the exit code: 0, 1 with warnings, 69 with errors. */
int doctor_run(struct doctor *d, const struct check *checks, size_t n);

/* The checks of `anectl doctor`; doctor_daemon.c, doctor_home.c and
 * doctor_system.c. */
void check_daemon(struct doctor *d);
void check_socket(struct doctor *d);
void check_config(struct doctor *d);
void check_priority(struct doctor *d);
void check_files(struct doctor *d);
void check_neural_engine(struct doctor *d);
void check_home(struct doctor *d);
void check_store(struct doctor *d);
void check_disk(struct doctor *d);
void check_caches(struct doctor *d);
void check_clock(struct doctor *d);
void check_service(struct doctor *d);
void check_name(struct doctor *d);
void check_os_build(struct doctor *d);
void check_large_pages(struct doctor *d);

/* The system's build, "24G84"; "" where there is none. */
void doctor_build(char *out, size_t size);
/* root + path. */
CHECKED bool doctor_path(const struct doctor *d, const char *path, char *out,
                         size_t size);
/* A file of /proc or /sys, whose size says nothing: its first 4 KiB, with a NUL
 * after them. The caller frees b. */
CHECKED bool doctor_read(const char *path, struct buf *b);
/* Whether a file or folder is ours and closed to others; says what is not.
 * `what`: "the socket". */
bool doctor_private(struct doctor *d, const char *what, const char *path,
                    unsigned mode);
/* The last line that `aned ARGS...` printed, and its exit status; false: there
 * is no aned. argv[0] is set here. */
CHECKED bool doctor_aned(struct doctor *d, const char **argv, int *code,
                         char *line, size_t size);
