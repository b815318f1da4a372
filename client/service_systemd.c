/* service_systemd.c - aned's units in the user's systemd.
 *
 * The socket unit is what is enabled: the first client starts the service. A
 * package may bring both units (launchd/meson.build); then only a home or a
 * socket of the user's own needs files in his folder, which go before those of
 * the package.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parse.h"
#include "client/service.h"
#include "units.h"

#define UNIT       "aned.service"
#define SOCKET     "aned.socket"
#define SHOW_TRIES 5

/* `systemctl --user ...`, up to three words; NULL: fewer. */
static int ctl(const char *a, const char *b, const char *c, struct err *e)
{
    const char *argv[] = {"systemctl", "--user", "--no-pager", a, b, c, NULL};
    int rc = service_call(argv, NULL, e);
    if (rc != 0 && strstr(e->msg, "connect to") != NULL) {
        return err_set(e, ERR_UNAVAILABLE,
                       "no systemd of this user runs here: log in as the user "
                       "(not by su or sudo), or, for a user without a login, "
                       "`loginctl enable-linger`. Without systemd start "
                       "`aned serve --service` yourself");
    }
    if (rc != 0 && strncmp(e->msg, "there is no systemctl", 21) == 0) {
        return err_set(e, ERR_UNAVAILABLE,
                       "there is no systemctl here: let your own service "
                       "manager start `aned serve --service`");
    }
    return rc;
}

/* --- files --- */

static bool user_unit(const struct service *s, const char *name, char *out,
                      size_t size)
{
    char dir[SERVICE_PATH_MAX];
    const char *conf = getenv("XDG_CONFIG_HOME");
    bool ok =
        conf != NULL && conf[0] == '/'
            ? file_join(dir, sizeof(dir), conf, "systemd/user")
            : file_join(dir, sizeof(dir), s->user, ".config/systemd/user");
    return ok && file_join(out, size, dir, name);
}

static bool systemd_file(const struct service *s, char *out, size_t size)
{
    return user_unit(s, UNIT, out, size);
}

/* Whether systemd looks for units of users in this folder: /usr/lib/..., not
 * those of any prefix. */
static bool is_searched(const char *dir)
{
    const char *argv[] = {"systemctl",  "--user",   "--no-pager", "show",
                          "--property", "UnitPath", NULL};
    size_t n = strlen(dir);
    struct buf out;
    struct err none = {0};
    int code = 0;
    bool yes = false;
    buf_init(&out, KIB(64));
    if (run_program(argv, SERVICE_CALL_S, &out, &code, &none) == 0 &&
        code == 0 && out.n > 0) {
        for (const char *p = strstr(out.p, dir); p != NULL && !yes;
             p = strstr(p + 1, dir)) {
            yes = p > out.p && strchr("= ", p[-1]) != NULL &&
                  strchr(" \n", p[n]) != NULL;
        }
    }
    buf_fini(&out);
    return yes;
}

/* Whether a package of the PREFIX that the program is in has brought units. */
static bool is_packaged(const struct service *s)
{
    char prefix[SERVICE_PATH_MAX];
    char dir[SERVICE_PATH_MAX];
    char path[SERVICE_PATH_MAX];
    (void)snprintf(prefix, sizeof(prefix), "%s", s->program);
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(prefix, '/');
        if (slash == NULL) {
            return false;
        }
        *slash = '\0';
    }
    return file_join(dir, sizeof(dir), prefix, "lib/systemd/user") &&
           file_join(path, sizeof(path), dir, UNIT) && file_exists(path) &&
           is_searched(dir);
}

/* " --home ..." where aned would choose another, as words of ExecStart. */
static int arguments(const struct service *s, struct buf *ret, struct err *e)
{
    const struct unit_value home = {"X", s->home, UNIT_WORD};
    const struct unit_value sock = {"X", s->client->peer.path, UNIT_WORD};
    struct buf b = {0};
    int rc = 0;
    buf_init(ret, KIB(16));
    if (s->own_home) {
        CHECK(unit_fill(" --home @X@", &home, 1, &b, e));
        buf_put(ret, b.p, b.n);
        buf_fini(&b);
    }
    if (s->own_socket) {
        CHECK(unit_fill(" --socket @X@", &sock, 1, &b, e));
        buf_put(ret, b.p, b.n);
        buf_fini(&b);
    }
    buf_u8(ret, '\0');
out:
    return rc;
}

static int write_one(const struct service *s, const char *name,
                     const char *template, const char *args, bool *changed,
                     struct err *e)
{
    char path[SERVICE_PATH_MAX];
    struct buf text;
    const struct unit_value v[] = {
        {"PROGRAM",   s->program,                                                 UNIT_EXE  },
        {"ARGUMENTS", args,                                                       UNIT_PLAIN},
        {"SOCKET",    s->own_socket ? s->client->peer.path : "%t/aned/aned.sock",
         s->own_socket ? UNIT_PATH : UNIT_PLAIN                                             },
    };
    if (!user_unit(s, name, path, sizeof(path))) {
        return err_set(e, ERR_CONFIG, "HOME is too long");
    }
    RETERR(unit_fill(template, v, countof(v), &text, e));
    int rc = unit_write(path, &text, changed, e);
    buf_fini(&text);
    return rc;
}

static int write_units(const struct service *s, bool *changed, struct err *e)
{
    struct buf args = {0};
    int rc = 0;
    CHECK(arguments(s, &args, e));
    CHECK(write_one(s, UNIT, unit_service, args.p, changed, e));
    CHECK(write_one(s, SOCKET, unit_socket, args.p, changed, e));
out:
    buf_fini(&args);
    return rc;
}

static int remove_units(const struct service *s, bool *changed, struct err *e)
{
    static const char *const names[] = {UNIT, SOCKET};
    for (size_t i = 0; i < countof(names); i++) {
        char path[SERVICE_PATH_MAX];
        if (!user_unit(s, names[i], path, sizeof(path))) {
            continue;
        }
        if (unlink(path) == 0) {
            *changed = true;
        } else if (errno != ENOENT) {
            return err_errno(e, errno, path);
        }
    }
    return 0;
}

/* --- verbs --- */

static int systemd_state(struct service *s, struct service_state *ret,
                         struct err *e);

static int systemd_install(struct service *s, bool *changed, struct err *e)
{
    struct service_state was;
    struct err none = {0};
    RETERR(unit_program(s, e));
    RETERR(systemd_state(s, &was, e)); /* is there a systemd at all? */
    if (!s->own_home && !s->own_socket && is_packaged(s)) {
        RETERR(remove_units(s, changed, e));
    } else {
        RETERR(write_units(s, changed, e));
    }
    if (*changed) { /* what runs has the old options, and the old socket */
        (void)ctl("stop", UNIT, SOCKET, &none);
        RETERR(ctl("daemon-reload", NULL, NULL, e));
    }
    (void)ctl("reset-failed", UNIT, SOCKET, &none);
    RETERR(ctl("enable", SOCKET, NULL, e));
    *changed = *changed || !was.enabled || !was.listening;
    return ctl("start", SOCKET, NULL, e);
}

static int systemd_uninstall(struct service *s, struct err *e)
{
    struct service_state t;
    struct err none = {0};
    bool changed = false;
    RETERR(systemd_state(s, &t, e));
    if (t.installed) {
        RETERR(ctl("stop", UNIT, SOCKET, e));
        RETERR(ctl("disable", UNIT, SOCKET, e));
    }
    RETERR(remove_units(s, &changed, e));
    (void)ctl("reset-failed", UNIT, SOCKET, &none);
    return ctl("daemon-reload", NULL, NULL, e);
}

static int systemd_start(struct service *s, struct err *e)
{
    struct service_state t;
    struct err none = {0};
    RETERR(systemd_state(s, &t, e));
    if (!t.installed) {
        return err_set(e, ERR_NOT_FOUND,
                       "it is not installed: anectl service install");
    }
    (void)ctl("reset-failed", UNIT, SOCKET, &none); /* the count of failures */
    return ctl("start", SOCKET, UNIT, e);
}

/* With its socket, or the next client would start it again. */
static int systemd_stop(struct service *s, struct err *e)
{
    (void)s;
    return ctl("stop", SOCKET, UNIT, e);
}

static int systemd_restart(struct service *s, struct err *e)
{
    struct err none = {0};
    (void)s;
    (void)ctl("reset-failed", UNIT, SOCKET, &none);
    return ctl("restart", UNIT, NULL, e);
}

static int systemd_reload(struct service *s, struct err *e)
{
    (void)s;
    return ctl("reload", UNIT, NULL, e);
}

/* --- state: `systemctl show`, made for programs --- */

struct unit_state {
    char load[24], active[24], sub[24], file_state[24], result[40];
    char fragment[SERVICE_PATH_MAX];
    char pid[16], status[16];
};

static const struct {
    const char *key;
    size_t at, size;
} shown[] = {
#define SHOWN(key, field)                           \
    {                                               \
        key, offsetof(struct unit_state, field),    \
            sizeof(((struct unit_state *)0)->field) \
    }
    SHOWN("LoadState", load), SHOWN("ActiveState", active),
    SHOWN("SubState", sub),   SHOWN("UnitFileState", file_state),
    SHOWN("Result", result),  SHOWN("FragmentPath", fragment),
    SHOWN("MainPID", pid),    SHOWN("ExecMainStatus", status),
};

static int on_shown(void *ctx, const char *line, size_t n, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < countof(shown); i++) {
        size_t k = strlen(shown[i].key);
        if (n > k && line[k] == '=' && memcmp(line, shown[i].key, k) == 0) {
            (void)snprintf((char *)ctx + shown[i].at, shown[i].size, "%.*s",
                           (int)(n - k - 1), line + k + 1);
        }
    }
    return 0;
}

static int show(const char *unit, struct unit_state *ret, struct err *e)
{
    const char *argv[] = {"systemctl", "--user",     "--no-pager", "show",
                          unit,        "--property", NULL,         NULL};
    char keys[200] = "";
    struct buf out;
    int code = 0;
    for (size_t i = 0; i < countof(shown); i++) {
        size_t n = strlen(keys);
        (void)snprintf(keys + n, sizeof(keys) - n, "%s%s", i > 0 ? "," : "",
                       shown[i].key);
    }
    argv[6] = keys;
    for (int i = 0; i < SHOW_TRIES; i++) {
        memset(ret, 0, sizeof(*ret));
        buf_init(&out, KIB(64));
        int rc = run_program(argv, SERVICE_CALL_S, &out, &code, e);
        if (rc == 0 && code == 0) {
            buf_puts(&out, "\n");
            rc = run_take_lines(&out, on_shown, ret, e);
        } else { /* say it in our words */
            rc = ctl("show", unit, NULL, e);
        }
        buf_fini(&out);
        if (rc != 0 || ret->load[0] != '\0') {
            return rc;
        }
    } /* it failed once: a manager that has just started may */
    return err_set(e, ERR_UNAVAILABLE, "systemctl says nothing of %s", unit);
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static int64_t number(const char *s, int64_t unknown)
{
    int64_t v = 0;
    return parse_i64(s, &v) ? v : unknown;
}

static int systemd_state(struct service *s, struct service_state *ret,
                         struct err *e)
{
    struct service_state t = {.last_exit = -1};
    struct unit_state unit;
    struct unit_state sock;
    char own[SERVICE_PATH_MAX];
    RETERR(show(UNIT, &unit, e));
    RETERR(show(SOCKET, &sock, e));
    t.installed = is(unit.load, "loaded") && is(sock.load, "loaded");
    (void)snprintf(t.unit, sizeof(t.unit), "%s", unit.fragment);
    t.packaged = t.installed && user_unit(s, UNIT, own, sizeof(own)) &&
                 !is(unit.fragment, own);
    t.enabled =
        is(sock.file_state, "enabled") || is(unit.file_state, "enabled");
    t.pid = number(unit.pid, 0);
    t.running = t.pid > 0;
    t.listening = is(sock.active, "active") || t.running;
    t.failed = is(unit.active, "failed") || is(sock.active, "failed");
    if (!t.running) {
        t.last_exit = number(unit.status, -1);
    }
    (void)snprintf(t.text, sizeof(t.text), "%s (%s)%s%s", unit.active, unit.sub,
                   t.failed ? ", " : "",
                   !t.failed                   ? ""
                   : is(unit.active, "failed") ? unit.result
                                               : sock.result);
    *ret = t;
    return 0;
}

static int systemd_logs(struct service *s, int64_t n, bool follow,
                        run_line_fn *fn, void *ctx, struct err *e)
{
    char lines[24];
    int code = 0;
    (void)s;
    (void)snprintf(lines, sizeof(lines), "%lld", (long long)n);
    const char *argv[] = {"journalctl", "--user",
                          "--unit",     UNIT,
                          "--output",   "cat",
                          "--no-pager", "--lines",
                          lines,        follow ? "--follow" : NULL,
                          NULL};
    int rc = run_lines(argv, fn, ctx, &code, e);
    if (rc == ERR_NOT_FOUND) {
        return err_set(e, ERR_UNAVAILABLE, "there is no journalctl here");
    }
    return rc != 0 || code == 0
               ? rc
               : err_set(e, ERR_UNAVAILABLE, "journalctl ended with %d", code);
}

/* A user's manager ends with his last login, and aned with it. */
static void systemd_advice(struct service *s, char *out, size_t size)
{
    const char *argv[] = {"loginctl", "show-user", NULL, "--property=Linger",
                          NULL};
    char uid[16];
    struct buf b;
    struct err none = {0};
    int code = 0;
    (void)s;
    (void)snprintf(uid, sizeof(uid), "%u", (unsigned)getuid());
    argv[2] = uid;
    buf_init(&b, KIB(4));
    bool ends = run_program(argv, SERVICE_CALL_S, &b, &code, &none) == 0 &&
                code == 0 && b.n > 0 && strstr(b.p, "Linger=no") != NULL;
    buf_fini(&b);
    (void)snprintf(out, size, "%s",
                   ends ? "it ends with your last login; `loginctl "
                          "enable-linger` keeps it"
                        : "");
}

const struct manager manager_systemd = {
    .name = "systemd",
    .home_tail = ".local/share/aned",
    .runtime_dir = true,
    .file = systemd_file,
    .option = unit_exec_option,
    .log_hint = "journalctl --user --unit aned",
    .install = systemd_install,
    .uninstall = systemd_uninstall,
    .start = systemd_start,
    .stop = systemd_stop,
    .restart = systemd_restart,
    .reload = systemd_reload,
    .state = systemd_state,
    .logs = systemd_logs,
    .advice = systemd_advice,
};
