/* service.h - aned under the system's service manager: launchd on macOS,
 * systemd's user manager on Linux. What `anectl service` does and what `anectl
 * doctor` asks.
 *
 * A manager is a row of functions (service_launchd.c, service_systemd.c) that
 * run the manager's own programs, launchctl or systemctl. Which row is chosen
 * is data: --manager, else what the platform has. So tests run the macOS part
 * on Linux, with programs of theirs in $PATH.
 *
 * Both own the socket and start aned when the first client connects.
 */
#pragma once

#include "client/client.h"
#include "client/run.h"

#define SERVICE_PATH_MAX 1024u
#define SERVICE_LABEL    "dev.aned.daemon" /* unless a test has its own */
#define SERVICE_CALL_S   120 /* a call of the manager; a stop takes a while */
#define SERVICE_GONE_S   45  /* until a job that was told to stop is gone */

struct manager;

struct service {
    struct client *client;
    const struct manager *manager;
    char program[SERVICE_PATH_MAX]; /* aned, absolute; "": not found */
    char user[SERVICE_PATH_MAX];    /* $HOME */
    char label[64];                 /* launchd: of the job */
    char home[SERVICE_PATH_MAX];    /* of the daemon, absolute */
    char kept[SERVICE_PATH_MAX];    /* the installed unit's; none: `home` */
    bool own_home;                  /* not the one that aned would choose */
    bool own_socket;                /* client->peer.path is not */
    char domain[40];                /* launchd: "gui/501" */
};

/* What the manager says. Texts are its own words, "" when it has none. */
struct service_state {
    bool installed;
    char unit[SERVICE_PATH_MAX]; /* the file */
    bool packaged;               /* the file is a package's, not the user's */
    bool enabled;                /* also after the next login */
    bool listening;              /* a client would start it, or it runs */
    bool running, failed;
    int64_t pid;       /* 0: none */
    int64_t last_exit; /* -1: not known */
    char text[128];
};

struct manager {
    const char *name;      /* for --manager */
    const char *home_tail; /* the daemon's home below $HOME */
    bool runtime_dir; /* its socket is in $XDG_RUNTIME_DIR, else in the home */
    const char *log_hint; /* where its log goes */
    /* The unit file of this user; it may not be there. */
    bool (*file)(const struct service *s, char *out, size_t size);
    /* The value of an option of serve that its text has. */
    bool (*option)(const char *text, const char *option, char *out,
                   size_t size);
    /* *changed: files were written; else all stood there already. */
    int (*install)(struct service *s, bool *changed, struct err *e);
    int (*uninstall)(struct service *s, struct err *e);
    int (*start)(struct service *s, struct err *e);
    int (*stop)(struct service *s, struct err *e);
    int (*restart)(struct service *s, struct err *e);
    int (*reload)(struct service *s, struct err *e); /* SIGHUP */
    int (*state)(struct service *s, struct service_state *ret, struct err *e);
    /* The last n lines of its log; then, with follow, new ones until Ctrl-C. */
    int (*logs)(struct service *s, int64_t n, bool follow, run_line_fn *fn,
                void *ctx, struct err *e);
    /* What a person should know after an install; "" when nothing. */
    void (*advice)(struct service *s, char *out, size_t size);
};

extern const struct manager manager_launchd, manager_systemd;

/* Find everything of *s. manager, program, home: from the command line, NULL
 * for what the environment, else the installed unit says, else the usual.
 * Errors: USAGE (no such manager), CONFIG. */
CHECKED int service_find(struct client *c, const char *manager,
                         const char *program, const char *home,
                         struct service *ret, struct err *e);
/* Where this anectl's aned is: beside it, in the build folder, or in $PATH.
 * Errors: NOT_FOUND. */
CHECKED int service_program(char *out, size_t size, struct err *e);

/* Whether a folder is one for many: sticky, or another user's. What is there
 * cannot be kept from others, and it must not be closed to them. */
bool service_shared(const char *folder);
/* Whether the socket may be where it is asked for. Managers do not look at
 * that. Errors: CONFIG. */
CHECKED int service_place(const struct service *s, struct err *e);

/* The path, after the current folder if it is relative. Errors: CONFIG. */
CHECKED int service_absolute(const char *path, char *out, size_t size,
                             struct err *e);

/* The first program of that name in $PATH. */
CHECKED bool service_in_path(const char *name, char *out, size_t size);
/* Whether s->program is there, for an install. Errors: NOT_FOUND. */
CHECKED int unit_program(const struct service *s, struct err *e);

/* How a text is written into a unit file. */
enum unit_form {
    UNIT_PLAIN, /* as it is: it is ours */
    UNIT_XML,   /* in an element of a plist */
    UNIT_PATH,  /* systemd: the rest of a line */
    UNIT_EXE,   /* systemd: the quoted first word of a command line */
    UNIT_WORD   /* systemd: a later one, in which $ begins a variable */
};
struct unit_value {
    const char *name; /* stands as @NAME@ in the template */
    const char *text;
    enum unit_form form;
};
/* Fill a template of launchd/. Errors: INVALID (a path with control characters,
 * or not UTF-8, which no unit file can hold). */
CHECKED int unit_fill(const char *template, const struct unit_value *v,
                      size_t n, struct buf *ret, struct err *e);
/* Write text to path, 0644, by rename, unless it stands there already; its
 * folder is made. *changed is set to true when it was written. */
CHECKED int unit_write(const char *path, const struct buf *text, bool *changed,
                       struct err *e);

/* The word after `option` in a plist's arguments, in the ExecStart of a unit.
 * False: it is not there, or not to be told from the file alone. */
bool unit_plist_option(const char *text, const char *option, char *out,
                       size_t size);
bool unit_exec_option(const char *text, const char *option, char *out,
                      size_t size);

/* Run a program of the manager. An exit status other than 0 is an error,
 * UNAVAILABLE, with what it printed; *code (may be NULL) has the status. */
CHECKED int service_call(const char *const *argv, int *code, struct err *e);

/* The daemon's answer to /aned/v1/status, once it is ready: waits for it up to
 * limit_s. *ret is freed by the caller. Errors: as ask(); TIMEOUT. */
CHECKED int service_answers(struct client *c, int limit_s, struct json **ret,
                            struct err *e);
