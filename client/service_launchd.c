/* service_launchd.c - the launchd agent of aned (facts/ane.md 4).
 *
 * launchd runs jobs in domains: gui/UID exists while the user is logged in at
 * the screen, user/UID also over ssh. `launchctl print` is for people, so only
 * its exit status and three of its lines are used, and what it does not say is
 * not known. A job that was told to leave is gone only some time later.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parse.h"
#include "client/service.h"
#include "units.h"

/* Exit statuses of launchctl: errno's of macOS, and its own. */
enum {
    L_ESRCH = 3,        /* no such job */
    L_EIO = 5,          /* bootstrap: often only "not yet" */
    L_EEXIST = 17,      /* it is there */
    L_EINPROGRESS = 36, /* bootout: it is still stopping */
    L_EALREADY = 37,    /* it is there */
    L_NOT_FOUND = 113,  /* print: no such job */
    L_DISABLED = 119    /* bootstrap: `launchctl disable` was used */
};
#define PAUSE_MS   250
#define TRIES      20   /* of bootstrap, PAUSE_MS apart */
#define TARGET_MAX 112u /* domain, '/', label */

static void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

static bool plist_path(const struct service *s, char *out, size_t size)
{
    return snprintf(out, size, "%s/Library/LaunchAgents/%s.plist", s->user,
                    s->label) < (int)size;
}

static bool log_path(const struct service *s, char *out, size_t size)
{
    return snprintf(out, size, "%s/Library/Logs/%s.log", s->user, s->label) <
           (int)size;
}

/* --- launchctl --- */

/* `launchctl VERB A B`; B may be NULL. */
static int ctl(const char *verb, const char *a, const char *b, int *code,
               struct err *e)
{
    const char *argv[] = {"launchctl", verb, a, b, NULL};
    return service_call(argv, code, e);
}

static void target_of(const struct service *s, char out[TARGET_MAX])
{
    (void)snprintf(out, TARGET_MAX, "%s/%s", s->domain, s->label);
}

/* The domain: where the job is, else where one belongs. */
static int find_domain(struct service *s, struct err *e)
{
    static const char *const kinds[] = {"gui", "user"};
    char target[TARGET_MAX];
    int code = 0;
    struct err none = {0};
    if (s->domain[0] != '\0') {
        return 0;
    }
    for (size_t i = 0; i < countof(kinds); i++) {
        (void)snprintf(target, sizeof(target), "%s/%u/%s", kinds[i],
                       (unsigned)getuid(), s->label);
        int rc = ctl("print", target, NULL, &code, &none);
        if (rc != 0 && code == 0) { /* it did not run */
            *e = none;
            return rc;
        }
        if (code == 0) {
            (void)snprintf(s->domain, sizeof(s->domain), "%s/%u", kinds[i],
                           (unsigned)getuid());
            return 0;
        }
    }
    (void)snprintf(s->domain, sizeof(s->domain), "gui/%u", (unsigned)getuid());
    if (ctl("print", s->domain, NULL, &code, &none) != 0) {
        (void)snprintf(s->domain, sizeof(s->domain), "user/%u",
                       (unsigned)getuid());
    }
    return 0;
}

/* What `launchctl print` says of the job; false: it is not loaded. */
static bool print_job(const struct service *s, struct buf *out)
{
    char target[TARGET_MAX];
    int code = 0;
    struct err none = {0};
    target_of(s, target);
    const char *argv[] = {"launchctl", "print", target, NULL};
    buf_init(out, MIB(1));
    return run_program(argv, SERVICE_CALL_S, out, &code, &none) == 0 &&
           code == 0;
}

static bool is_loaded(const struct service *s)
{
    struct buf out;
    bool yes = print_job(s, &out);
    buf_fini(&out);
    return yes;
}

/* The text after "key = " on a line of its own; false: there is none. */
static bool field(const struct buf *b, const char *key, char *out, size_t size)
{
    size_t k = strlen(key);
    const char *p = b->n > 0 ? b->p : "";
    while (*p != '\0') {
        p += strspn(p, " \t\n");
        size_t n = strcspn(p, "\n");
        if (n > k + 3 && strncmp(p, key, k) == 0 &&
            strncmp(p + k, " = ", 3) == 0) {
            (void)snprintf(out, size, "%.*s", (int)(n - k - 3), p + k + 3);
            return true;
        }
        p += n;
    }
    return false;
}

static int64_t number(const struct buf *b, const char *key, int64_t unknown)
{
    char text[64];
    uint64_t v = 0;
    return field(b, key, text, sizeof(text)) &&
                   parse_digits(text, INT32_MAX, &v) != NULL
               ? (int64_t)v
               : unknown;
}

/* --- loading and unloading --- */

/* Unload the job and wait until it is gone; one that is not there is fine. */
static int unload(const struct service *s, struct err *e)
{
    char target[TARGET_MAX];
    int code = 0;
    double end = now_seconds() + SERVICE_GONE_S;
    struct err why = {0};
    target_of(s, target);
    int rc = ctl("bootout", target, NULL, &code, &why);
    if (rc != 0 && code != L_ESRCH && code != L_EINPROGRESS &&
        code != L_NOT_FOUND) {
        *e = why;
        return rc;
    }
    while (is_loaded(s)) {
        if (now_seconds() >= end) {
            return err_set(e, ERR_TIMEOUT,
                           "launchd has not ended %s after %d s; try again",
                           target, SERVICE_GONE_S);
        }
        pause_ms(PAUSE_MS);
    }
    return 0;
}

static int load(const struct service *s, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    char target[TARGET_MAX];
    struct err none = {0};
    int code = 0;
    target_of(s, target);
    if (!plist_path(s, path, sizeof(path))) {
        return err_set(e, ERR_CONFIG, "HOME is too long");
    }
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        /* what `launchctl disable` said once would hold for ever */
        (void)ctl("enable", target, NULL, NULL, &none);
        rc = ctl("bootstrap", s->domain, path, &code, e);
        if (rc == 0 || code == L_EEXIST || code == L_EALREADY) {
            return 0;
        }
        if (code != L_EIO && code != L_EINPROGRESS && code != L_DISABLED) {
            break;
        }
        pause_ms(PAUSE_MS);
    }
    return rc;
}

static int need_plist(const struct service *s, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    return plist_path(s, path, sizeof(path)) && file_exists(path)
               ? 0
               : err_set(e, ERR_NOT_FOUND,
                         "it is not installed: anectl service install");
}

/* --- verbs --- */

static int fill(const struct service *s, struct buf *ret, struct err *e)
{
    char log[SERVICE_PATH_MAX];
    if (!log_path(s, log, sizeof(log))) {
        return err_set(e, ERR_CONFIG, "HOME is too long");
    }
    const struct unit_value v[] = {
        {"LABEL",   s->label,             UNIT_XML},
        {"PROGRAM", s->program,           UNIT_XML},
        {"HOME",    s->home,              UNIT_XML},
        {"SOCKET",  s->client->peer.path, UNIT_XML},
        {"LOG",     log,                  UNIT_XML},
    };
    return unit_fill(unit_plist, v, countof(v), ret, e);
}

/* launchd makes the socket and the log, not their folders. */
static int make_folders(const struct service *s, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s", s->client->peer.path);
    *strrchr(path, '/') = '\0';
    RETERR(file_mkdirs(path, 0700, e));
    if (!log_path(s, path, sizeof(path))) {
        return err_set(e, ERR_CONFIG, "HOME is too long");
    }
    *strrchr(path, '/') = '\0';
    return file_mkdirs(path, 0755, e);
}

static int launchd_install(struct service *s, bool *changed, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    struct buf text;
    RETERR(unit_program(s, e));
    RETERR(find_domain(s, e));
    if (!plist_path(s, path, sizeof(path))) {
        return err_set(e, ERR_CONFIG, "HOME is too long");
    }
    RETERR(make_folders(s, e));
    RETERR(fill(s, &text, e));
    int rc = unit_write(path, &text, changed, e);
    buf_fini(&text);
    if (rc == 0 && (*changed || !is_loaded(s))) {
        CHECK(unload(s, e));
        CHECK(load(s, e));
    }
out:
    return rc;
}

static int launchd_uninstall(struct service *s, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    RETERR(find_domain(s, e));
    RETERR(unload(s, e));
    if (plist_path(s, path, sizeof(path)) && unlink(path) != 0 &&
        errno != ENOENT) {
        return err_errno(e, errno, path);
    }
    return 0;
}

static int launchd_start(struct service *s, struct err *e)
{
    char target[TARGET_MAX];
    RETERR(need_plist(s, e));
    RETERR(find_domain(s, e));
    target_of(s, target);
    if (!is_loaded(s)) {
        RETERR(load(s, e));
    }
    return ctl("kickstart", target, NULL, NULL, e);
}

/* Unloaded, since its socket would start it again. */
static int launchd_stop(struct service *s, struct err *e)
{
    RETERR(find_domain(s, e));
    return unload(s, e);
}

static int64_t job_pid(const struct service *s)
{
    struct buf out;
    int64_t pid = print_job(s, &out) ? number(&out, "pid", 0) : 0;
    buf_fini(&out);
    return pid;
}

/* `kickstart -k` would not let it save its states, and an unloaded job has no
 * socket in which clients could wait. */
static int launchd_restart(struct service *s, struct err *e)
{
    char target[TARGET_MAX];
    double end = now_seconds() + SERVICE_GONE_S;
    RETERR(need_plist(s, e));
    RETERR(find_domain(s, e));
    target_of(s, target);
    int64_t pid = job_pid(s);
    if (pid > 0) {
        RETERR(ctl("kill", "SIGTERM", target, NULL, e));
    }
    while (pid > 0 && job_pid(s) == pid) {
        if (now_seconds() >= end) {
            return err_set(e, ERR_TIMEOUT, "pid %d has not ended after %d s",
                           (int)pid, SERVICE_GONE_S);
        }
        pause_ms(PAUSE_MS);
    }
    return launchd_start(s, e);
}

static int launchd_reload(struct service *s, struct err *e)
{
    char target[TARGET_MAX];
    RETERR(find_domain(s, e));
    target_of(s, target);
    return ctl("kill", "SIGHUP", target, NULL, e);
}

/* `launchctl disable` is remembered, whatever the plist says. */
static bool is_disabled(const struct service *s)
{
    struct buf out;
    int code = 0;
    struct err none = {0};
    char off[TARGET_MAX];
    char old[TARGET_MAX]; /* as older systems say it */
    const char *argv[] = {"launchctl", "print-disabled", s->domain, NULL};
    (void)snprintf(off, sizeof(off), "\"%s\" => disabled", s->label);
    (void)snprintf(old, sizeof(old), "\"%s\" => true", s->label);
    buf_init(&out, MIB(1));
    bool yes = run_program(argv, SERVICE_CALL_S, &out, &code, &none) == 0 &&
               code == 0 && out.n > 0 &&
               (strstr(out.p, off) != NULL || strstr(out.p, old) != NULL);
    buf_fini(&out);
    return yes;
}

static int launchd_state(struct service *s, struct service_state *ret,
                         struct err *e)
{
    struct service_state t = {.last_exit = -1};
    struct buf out;
    RETERR(find_domain(s, e));
    t.installed = plist_path(s, t.unit, sizeof(t.unit)) && file_exists(t.unit);
    t.enabled = t.installed && !is_disabled(s);
    if (print_job(s, &out)) {
        t.listening = true;
        t.pid = number(&out, "pid", 0);
        t.running = t.pid > 0;
        t.last_exit = number(&out, "last exit code", -1);
        t.failed = !t.running && t.last_exit > 0;
        if (!field(&out, "state", t.text, sizeof(t.text))) {
            (void)snprintf(t.text, sizeof(t.text), "loaded");
        }
    } else {
        (void)snprintf(t.text, sizeof(t.text), "not loaded");
    }
    buf_fini(&out);
    *ret = t;
    return 0;
}

/* --- the log: a file --- */

/* Where the last n lines of the file begin; n 0: at its end. */
static int64_t tail_at(FILE *f, int64_t n)
{
    char piece[4096];
    int64_t end = fseeko(f, 0, SEEK_END) == 0 ? (int64_t)ftello(f) : 0;
    int64_t at = end;
    while (at > 0 && n > 0) {
        size_t k = at < (int64_t)sizeof(piece) ? (size_t)at : sizeof(piece);
        at -= (int64_t)k;
        if (fseeko(f, (off_t)at, SEEK_SET) != 0 || fread(piece, 1, k, f) != k) {
            return 0;
        }
        for (size_t i = k; i-- > 0;) {
            /* the newline at the very end begins no line */
            bool border = piece[i] == '\n' && at + (int64_t)i + 1 < end;
            if (border && --n == 0) {
                return at + (int64_t)i + 1;
            }
        }
    }
    return n > 0 ? 0 : end;
}

/* Somebody emptied the file: what is written now stands at its beginning. */
static void mind_truncation(FILE *f)
{
    struct stat st;
    if (fstat(fileno(f), &st) == 0 && st.st_size < ftello(f)) {
        (void)fseeko(f, 0, SEEK_SET);
    }
    clearerr(f);
}

static int launchd_logs(struct service *s, int64_t n, bool follow,
                        run_line_fn *fn, void *ctx, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    char piece[4096];
    struct buf b;
    int rc = 0;
    FILE *f = log_path(s, path, sizeof(path)) ? fopen(path, "re") : NULL;
    if (f == NULL) {
        return err_errno(e, errno, path);
    }
    buf_init(&b, 2 * RUN_LINE_MAX);
    interrupt_catch();
    if (fseeko(f, (off_t)tail_at(f, n), SEEK_SET) != 0) {
        rc = err_errno(e, errno, path);
    }
    while (rc == 0 && interrupted == 0) {
        size_t k = fread(piece, 1, sizeof(piece), f);
        buf_put(&b, piece, k);
        rc = run_take_lines(&b, fn, ctx, e);
        if (k > 0) {
            continue;
        }
        if (!follow) {
            break;
        }
        mind_truncation(f);
        pause_ms(PAUSE_MS);
    }
    if (rc == 0 && b.n > 0) {
        rc = fn(ctx, b.p, b.n, e);
    }
    buf_fini(&b);
    (void)fclose(f);
    return rc;
}

static void launchd_advice(struct service *s, char *out, size_t size)
{
    (void)snprintf(out, size, "%s",
                   strncmp(s->domain, "user/", 5) == 0
                       ? "nobody is logged in at the screen: it is loaded for "
                         "this kind of login, and at the next one there"
                       : "");
}

const struct manager manager_launchd = {
    .name = "launchd",
    .home_tail = "Library/Application Support/" SERVICE_LABEL,
    .file = plist_path,
    .option = unit_plist_option,
    .log_hint = "~/Library/Logs/" SERVICE_LABEL ".log",
    .install = launchd_install,
    .uninstall = launchd_uninstall,
    .start = launchd_start,
    .stop = launchd_stop,
    .restart = launchd_restart,
    .reload = launchd_reload,
    .state = launchd_state,
    .logs = launchd_logs,
    .advice = launchd_advice,
};
