/* accept_system.c - the system around the daemon: its version, durable writes,
 * copies without bytes, sandboxes, memory pressure, sleep, Homebrew. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/clonefile.h>
#include <sys/sysctl.h>
#endif

#include "base/file.h"
#include "base/parse.h"
#include "client/accept.h"

#define FLOOR       15u /* the oldest macOS that aned is for */
#define CLONE_BYTES MIB(64)
#define PRESSURE_S  30
#define SLEEP_N     200u /* tokens of the stream that sleeps */

void step_system(struct doctor *d)
{
    struct accept *a = accept_of(d);
    const struct json *m = a->machine;
    uint64_t major = 0;
    if (m == NULL) {
        accept_fail(a, "`aned machine` does not answer");
        return;
    }
    accept_note(a, "%s %s (%s), %s", ask_str(m, "system"),
                ask_str(m, "release"), ask_str(m, "build"), ask_str(m, "chip"));
    accept_number(a, "cores", json_num(json_get(m, "cores")));
    accept_number(a, "memory_bytes", json_num(json_get(m, "memory_bytes")));
    accept_number(a, "page_bytes", json_num(json_get(m, "page_bytes")));
    if (json_bool(json_get(m, "translated"))) {
        accept_fail(a, "aned runs under Rosetta: no Neural Engine there");
    }
    if (strcmp(ask_str(m, "system"), "macOS") == 0) {
        if (parse_digits(ask_str(m, "release"), 1000, &major) != NULL &&
            major >= FLOOR) {
            accept_pass(a, "macOS %u or later", FLOOR);
        } else {
            accept_fail(a, "older than macOS %u", FLOOR);
        }
    }
}

/* --- durable writes --- */

#if defined(F_FULLFSYNC)
static double ms_of(int fd, bool full, bool *ok)
{
    double from = now_seconds();
    *ok = pwrite(fd, "x", 1, 0) == 1 &&
          (full ? fcntl(fd, F_FULLFSYNC) : fsync(fd)) == 0;
    return (now_seconds() - from) * 1000;
}

void step_full_sync(struct doctor *d)
{
    struct accept *a = accept_of(d);
    char path[SERVICE_PATH_MAX];
    bool full = false;
    bool plain = false;
    struct err e = {0};
    box_path(a, "sync", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        (void)err_errno(&e, errno, "sync");
        accept_error(a, "a file", &e);
        return;
    }
    accept_number(a, "full_sync_ms", ms_of(fd, true, &full));
    accept_number(a, "fsync_ms", ms_of(fd, false, &plain));
    double from = now_seconds();
    int rc = file_write(path, "x", 1, &e);
    accept_number(a, "file_write_ms", (now_seconds() - from) * 1000);
    (void)close(fd);
    if (rc < 0 || !plain) {
        accept_fail(a, "a file cannot be written durably");
    } else if (!full) {
        accept_fail(a, "the volume of the home refuses F_FULLFSYNC: records "
                       "are only as safe as its own cache");
    } else {
        accept_pass(a, "the volume takes F_FULLFSYNC");
    }
}
#else
void step_full_sync(struct doctor *d)
{
    accept_away(accept_of(d), "%s", "");
}
#endif

/* --- copies without bytes --- */

#if defined(__APPLE__)
static double free_bytes(const char *path)
{
    struct statvfs v;
    return statvfs(path, &v) == 0 ? (double)v.f_bavail * (double)v.f_frsize
                                  : -1;
}

static bool make_file(const char *path)
{
    static char block[1 << 20];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0;
    struct err none = {0};
    memset(block, 'w', sizeof(block));
    for (size_t i = 0; ok && i < CLONE_BYTES / sizeof(block); i++) {
        ok = file_put(fd, block, sizeof(block), FILE_HERE, "w", &none) == 0;
    }
    ok = ok && fcntl(fd, F_FULLFSYNC) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

void step_clones(struct doctor *d)
{
    struct accept *a = accept_of(d);
    char from[SERVICE_PATH_MAX];
    char to[SERVICE_PATH_MAX];
    box_path(a, "weights", from);
    box_path(a, "clone", to);
    if (!make_file(from)) {
        accept_fail(a, "64 MiB cannot be written");
        return;
    }
    double before = free_bytes(a->work);
    if (clonefile(from, to, 0) != 0) {
        accept_fail(a, "clonefile: %s: the volume is not APFS",
                    strerror(errno));
        return;
    }
    double took = before - free_bytes(a->work);
    accept_number(a, "bytes", (double)CLONE_BYTES);
    accept_number(a, "bytes_taken", took);
    if (took < (double)CLONE_BYTES / 2) {
        accept_pass(a, "a copy of 64 MiB took %.0f bytes", took);
    } else {
        accept_fail(a, "a copy of 64 MiB took %.0f bytes", took);
    }
}
#else
void step_clones(struct doctor *d)
{
    accept_away(accept_of(d), "%s", "");
}
#endif

/* --- sandboxes --- */

static void tell_tries(struct accept *a, const struct json *j)
{
    for (const struct json *t = json_first(json_get(j, "tries")); t != NULL;
         t = json_next(t)) {
        bool did = json_bool(json_get(t, "worked"));
        bool may = json_bool(json_get(t, "may"));
        if (did == may) {
            accept_pass(a, "%s: %s", ask_str(t, "what"),
                        did ? "allowed" : "refused");
        } else {
            accept_fail(a, "%s: %s, and must not be", ask_str(t, "what"),
                        did ? "allowed" : "refused");
        }
    }
}

/* outside: a folder that no rule allows, for an engine's sandbox; NULL: that of
 * a converter, beside its own. */
static void sandbox(struct accept *a, const char *name, const char *outside)
{
    char dir[SERVICE_PATH_MAX];
    const char *argv[] = {NULL,       "sandbox",   dir,     "--json",
                          "--engine", "--outside", outside, NULL};
    struct buf out = {0};
    struct json *j = NULL;
    struct err e = {0};
    int code = 0;
    argv[4] = outside != NULL ? argv[4] : NULL;
    box_path(a, name, dir);
    int rc = file_mkdirs(dir, 0700, &e);
    if (rc == 0) {
        rc = box_aned(a, argv, &out, &code, &e);
    }
    if (out.n > 0) { /* what is wrong is told there too */
        rc = json_parse(out.p, out.n, &j, &e);
    }
    if (rc < 0) {
        accept_error(a, "aned sandbox", &e);
    } else if (json_str(json_get(j, "by")) != NULL) {
        accept_note(a, "by %s", ask_str(j, "by"));
        tell_tries(a, j);
    } else if (a->d.mac) {
        accept_fail(a, "no sandbox: %s", ask_str(j, "reason"));
    } else {
        accept_away(a, "%s", ask_str(j, "reason"));
    }
    json_free(j);
    buf_fini(&out);
}

void step_sandbox(struct doctor *d)
{
    sandbox(accept_of(d), "convert", NULL);
}

/* An engine may write to temporary folders, where ours is: so what it must not
 * reach is for a moment in the user's home. */
void step_engine_sandbox(struct doctor *d)
{
    struct accept *a = accept_of(d);
    char outside[SERVICE_PATH_MAX];
    struct err e = {0};
    if (!accept_on_mac(a)) {
        return;
    }
    if (!file_join(outside, sizeof(outside), d->service.user,
                   ".aned-accept-XXXXXX") ||
        mkdtemp(outside) == NULL) {
        (void)err_errno(&e, errno, "a folder in your home");
        accept_error(a, "aned sandbox", &e);
        return;
    }
    sandbox(a, "engine", outside);
    if (file_rmtree(outside, &e) < 0) {
        accept_error(a, "a folder in your home", &e);
    }
}

/* --- memory pressure --- */

/* Until the daemon has heard of it, or the program is over. */
static bool heard(struct accept *a, pid_t pid, double before, int *status,
                  bool *over)
{
    double end = now_seconds() + PRESSURE_S;
    *over = false;
    while (now_seconds() < end && box_wait(a, 200)) {
        if (box_metric(a, "memory_pressure_total") > before) {
            return true;
        }
        if (!*over && waitpid(pid, status, WNOHANG) == pid) {
            *over = true;
            if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
                return false;
            }
        }
    }
    return false;
}

void step_pressure(struct doctor *d)
{
    struct accept *a = accept_of(d);
    const char *argv[] = {"memory_pressure", "-S", "-l", "warn", NULL};
    char program[SERVICE_PATH_MAX];
    struct json *model = NULL;
    struct err e = {0};
    pid_t pid = 0;
    int status = 0;
    bool over = false;
    if (!accept_on_mac(a)) {
        return;
    }
    if (!service_in_path(argv[0], program, sizeof(program))) {
        accept_skip(a, "there is no memory_pressure here");
        return;
    }
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0 || box_backend(a, false, 0, &e) < 0 ||
        box_load(a, "demo", &model, &e) < 0 ||
        run_start(argv, null, &pid, &e) < 0) {
        accept_error(a, "memory pressure", &e);
    } else {
        double before = box_metric(a, "memory_pressure_total");
        bool rose = heard(a, pid, before, &status, &over);
        if (!over) {
            (void)kill(pid, SIGTERM); /* ours: it was just started */
            (void)waitpid(pid, &status, 0);
        }
        if (rose) {
            accept_pass(a, "the daemon heard of it");
        } else if (over && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
            accept_skip(a, "memory_pressure wants root here");
        } else {
            accept_fail(a, "the daemon did not hear of it in %d s", PRESSURE_S);
        }
    }
    json_free(model);
    if (null >= 0) {
        (void)close(null);
    }
}

/* --- sleep --- */

/* When the system last woke, in seconds since 1970; 0: never, or not told. */
static int64_t last_wake(void)
{
#if defined(__APPLE__)
    struct timeval t = {0};
    size_t n = sizeof(t);
    return sysctlbyname("kern.waketime", &t, &n, NULL, 0) == 0 ? t.tv_sec : 0;
#else
    return 0;
#endif
}

static void go_to_sleep(void *ctx)
{
    static const char *const argv[] = {"pmset", "sleepnow", NULL};
    struct err e = {0};
    (void)fprintf(stderr, "\nthe Mac goes to sleep now: wake it again\n");
    *(int *)ctx = service_call(argv, NULL, &e);
}

void step_sleep(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct draw want;
    struct draw got;
    struct err e = {0};
    int slept = -1;
    if (!accept_on_mac(a)) {
        return;
    }
    if (!a->o.sleep) {
        accept_skip(a, "only with --with-sleep");
        return;
    }
    struct draw_wish w = {
        .model = "demo",
        .prompt = ask_str(json_first(json_get(a->expected, "runs")), "prompt"),
        .n = SLEEP_N};
    int64_t before = last_wake();
    if (box_backend(a, (a->has & ACCEPT_COREML) != 0, 0, &e) < 0 ||
        draw(a, &w, &want, &e) < 0) {
        accept_error(a, "before the sleep", &e);
        return;
    }
    w.on_first = go_to_sleep;
    w.ctx = &slept;
    if (draw(a, &w, &got, &e) < 0) {
        accept_error(a, "a stream that slept", &e);
    } else if (slept != 0) {
        accept_skip(a, "pmset did not let it sleep");
    } else {
        (void)draw_same(a, "a stream that slept", &want, &got);
    }
#if defined(__APPLE__)
    /* the stream may have ended before the system slept: give it time */
    while (slept == 0 && last_wake() == before && box_wait(a, 500)) {
    }
    if (slept == 0 && last_wake() == before) {
        accept_fail(a, "the Mac has not slept and woken");
    }
#else
    (void)before;
#endif
    w.on_first = NULL;
    if (slept == 0 && draw(a, &w, &got, &e) == 0) {
        (void)draw_same(a, "after the sleep", &want, &got);
    } else if (slept == 0) {
        accept_error(a, "after the sleep", &e);
    }
}

/* --- Homebrew --- */

void step_formula(struct doctor *d)
{
    struct accept *a = accept_of(d);
    char path[SERVICE_PATH_MAX];
    char brew[SERVICE_PATH_MAX];
    const char *argv[] = {"brew", "style", path, NULL};
    struct buf out;
    struct err e = {0};
    int code = 0;
    if (!service_in_path("brew", brew, sizeof(brew))) {
        accept_skip(a, "there is no brew here");
        return;
    }
    if (!file_join(path, sizeof(path), a->demo,
                   "../../.build/package/aned.rb") ||
        !file_exists(path)) {
        accept_skip(a, "there is no formula: ./dev package brew makes one");
        return;
    }
    buf_init(&out, KIB(256));
    if (run_program(argv, accept_left(a), &out, &code, &e) < 0) {
        accept_error(a, "brew", &e);
    } else if (code == 0) {
        accept_pass(a, "brew style finds nothing");
    } else {
        accept_fail(a, "brew style ended with %d: %s", code,
                    run_last_line(&out));
    }
    buf_fini(&out);
}
