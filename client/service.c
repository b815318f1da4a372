/* service.c - see service.h: what both managers need. */
#include "client/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#include "base/file.h"
#include "base/utf8.h"
#include "proto/json.h"

/* --- where things are --- */

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

/* The path that this program was started by. */
static bool own_path(char *out, size_t size)
{
#if defined(__APPLE__)
    uint32_t n =
        (uint32_t)size; /* a link stays one: brew's survives upgrades */
    return _NSGetExecutablePath(out, &n) == 0 && out[0] == '/';
#else
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    return true;
#endif
}

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           access(path, X_OK) == 0;
}

bool service_in_path(const char *name, char *out, size_t size)
{
    const char *p = env("PATH");
    while (p != NULL && *p != '\0') {
        char dir[SERVICE_PATH_MAX];
        size_t n = strcspn(p, ":");
        int w = snprintf(dir, sizeof(dir), "%.*s", (int)n, p);
        if (p[0] == '/' && w > 0 && (size_t)w < sizeof(dir) &&
            file_join(out, size, dir, name) && is_program(out)) {
            return true;
        }
        p += n;
        p += *p == ':' ? 1 : 0;
    }
    return false;
}

int service_program(char *out, size_t size, struct err *e)
{
    static const char *const beside[] = {"aned", "../daemon/aned"};
    char own[SERVICE_PATH_MAX];
    if (own_path(own, sizeof(own)) && strrchr(own, '/') != NULL) {
        *strrchr(own, '/') = '\0';
        for (size_t i = 0; i < countof(beside); i++) {
            char path[SERVICE_PATH_MAX];
            if (!file_join(path, sizeof(path), own, beside[i]) ||
                !is_program(path)) {
                continue;
            }
            char *real = i > 0 ? realpath(path, NULL) : NULL; /* without .. */
            bool fits =
                real != NULL && snprintf(out, size, "%s", real) < (int)size;
            free(real);
            if (fits || snprintf(out, size, "%s", path) < (int)size) {
                return 0;
            }
        }
    }
    return service_in_path("aned", out, size)
               ? 0
               : err_set(e, ERR_NOT_FOUND,
                         "there is no aned beside anectl or in PATH");
}

int service_absolute(const char *path, char *out, size_t size, struct err *e)
{
    char here[SERVICE_PATH_MAX];
    bool ok = path[0] == '/' ? snprintf(out, size, "%s", path) < (int)size
                             : getcwd(here, sizeof(here)) != NULL &&
                                   file_join(out, size, here, path);
    return ok ? 0 : err_set(e, ERR_CONFIG, "'%s' is too long a path", path);
}

static int find_manager(const char *name, const struct manager **ret,
                        struct err *e)
{
    static const struct manager *const all[] = {&manager_launchd,
                                                &manager_systemd};
#if defined(__APPLE__)
    *ret = all[0];
#else
    *ret = all[1];
#endif
    for (size_t i = 0; name != NULL && i < countof(all); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            *ret = all[i];
            return 0;
        }
    }
    return name == NULL
               ? 0
               : err_set(e, ERR_USAGE,
                         "--manager is launchd or systemd, not %s", name);
}

/* What the installed unit of this user says; texts are "" where it is silent.
 */
struct installed {
    bool is;
    char home[SERVICE_PATH_MAX], socket[SERVICE_PATH_MAX];
};

static void read_installed(const struct service *s, struct installed *ret)
{
    const struct manager *m = s->manager;
    char path[SERVICE_PATH_MAX];
    struct buf b = {0};
    *ret = (struct installed){0};
    if (m->file(s, path, sizeof(path)) &&
        file_read(path, MIB(1), &b, NULL) == 0) {
        buf_u8(&b, '\0');
        ret->is = true;
        if (!m->option(b.p, "--home", ret->home, sizeof(ret->home))) {
            ret->home[0] = '\0';
        }
        if (!m->option(b.p, "--socket", ret->socket, sizeof(ret->socket))) {
            ret->socket[0] = '\0';
        }
    }
    buf_fini(&b);
}

/* A socket in a home that is left does not stay there. */
static bool socket_stays(const struct service *s, const struct installed *is)
{
    size_t n = strlen(s->kept);
    return is->socket[0] != '\0' &&
           (strcmp(s->home, s->kept) == 0 ||
            strncmp(is->socket, s->kept, n) != 0 || is->socket[n] != '/');
}

/* Where the daemon's socket is: as named, else as installed, else where its
 * home and this manager have it. */
static int find_socket(struct service *s, const char *usual_home,
                       const struct installed *is, struct err *e)
{
    struct http_peer *p = &s->client->peer;
    char usual[SERVICE_PATH_MAX];
    char path[SERVICE_PATH_MAX];
    const char *run = s->manager->runtime_dir ? env("XDG_RUNTIME_DIR") : NULL;
    bool in_run = run != NULL && run[0] == '/';
    bool ok =
        in_run ? file_join(usual, sizeof(usual), run, "aned/aned.sock")
               : file_join(usual, sizeof(usual), usual_home, "run/aned.sock");
    if (p->named) {
        RETERR(service_absolute(p->path, path, sizeof(path), e));
    } else if (socket_stays(s, is)) {
        (void)snprintf(path, sizeof(path), "%s", is->socket);
    } else if (in_run) {
        (void)snprintf(path, sizeof(path), "%s", usual);
    } else {
        ok = ok && file_join(path, sizeof(path), s->home, "run/aned.sock");
    }
    if (!ok || strlen(path) > http_peer_path_max()) {
        return err_set(e, ERR_CONFIG,
                       "%s: a socket's path has at most %zu bytes; choose "
                       "another with --socket",
                       ok ? path : usual_home, http_peer_path_max());
    }
    memcpy(p->path, path, strlen(path) + 1);
    s->own_socket = strcmp(path, usual) != 0;
    return 0;
}

int service_find(struct client *c, const char *manager, const char *program,
                 const char *home, struct service *ret, struct err *e)
{
    struct service s = {.client = c};
    struct installed is;
    char usual[SERVICE_PATH_MAX];
    struct err none = {0};
    const char *user = env("HOME");
    RETERR(find_manager(manager, &s.manager, e));
    if (user == NULL || user[0] != '/' ||
        !file_join(usual, sizeof(usual), user, s.manager->home_tail)) {
        return err_set(e, ERR_CONFIG, "HOME must be an absolute path");
    }
    (void)snprintf(s.user, sizeof(s.user), "%s", user);
    (void)snprintf(s.label, sizeof(s.label), SERVICE_LABEL);
    read_installed(&s, &is);
    const char *kept = is.home[0] != '\0' ? is.home : usual;
    home = home != NULL ? home : env("ANED_HOME");
    RETERR(service_absolute(home != NULL ? home : kept, s.home, sizeof(s.home),
                            e));
    (void)snprintf(s.kept, sizeof(s.kept), "%s", is.is ? kept : s.home);
    s.own_home = strcmp(s.home, usual) != 0;
    if (program != NULL) {
        RETERR(service_absolute(program, s.program, sizeof(s.program), e));
    } else if (service_program(s.program, sizeof(s.program), &none) != 0) {
        s.program[0] = '\0'; /* only an install needs it */
    }
    RETERR(find_socket(&s, usual, &is, e));
    *ret = s;
    return 0;
}

bool service_shared(const char *folder)
{
    struct stat st;
    return stat(folder, &st) == 0 &&
           ((st.st_mode & S_ISVTX) != 0 || st.st_uid != geteuid());
}

int service_place(const struct service *s, struct err *e)
{
    char dir[SERVICE_PATH_MAX];
    (void)snprintf(dir, sizeof(dir), "%s", s->client->peer.path);
    char *slash = strrchr(dir, '/'); /* it is absolute */
    slash[slash == dir ? 1 : 0] = '\0';
    return service_shared(dir)
               ? err_set(e, ERR_CONFIG,
                         "%s is shared with other users; choose a socket in a "
                         "folder of yours with --socket",
                         dir)
               : 0;
}

/* --- unit files --- */

static void put_xml(struct buf *b, const char *s)
{
    for (; *s != '\0'; s++) {
        switch (*s) {
        case '&':
            buf_puts(b, "&amp;");
            break;
        case '<':
            buf_puts(b, "&lt;");
            break;
        case '>':
            buf_puts(b, "&gt;");
            break;
        default:
            buf_put(b, s, 1);
        }
    }
}

/* systemd.unit(5): % is a specifier; systemd.service(5): $ is a variable, and a
 * quoted word has C's escapes. */
static void put_systemd(struct buf *b, const char *s, enum unit_form form)
{
    const char *quote = form == UNIT_PATH ? "" : "\"";
    buf_puts(b, quote);
    for (; *s != '\0'; s++) {
        if (*s == '%' || (form == UNIT_WORD && *s == '$')) {
            buf_put(b, s, 1);
        } else if (form != UNIT_PATH && (*s == '"' || *s == '\\')) {
            buf_puts(b, "\\");
        }
        buf_put(b, s, 1);
    }
    buf_puts(b, quote);
}

static bool is_text(const char *s)
{
    size_t left = strlen(s);
    while (left > 0) {
        size_t n = 0;
        if ((unsigned char)*s < 0x20 || *s == 0x7f ||
            utf8_seq(s, left, &n) != UTF8_OK) {
            return false;
        }
        s += n;
        left -= n;
    }
    return true;
}

int unit_program(const struct service *s, struct err *e)
{
    if (s->program[0] == '\0') {
        return err_set(e, ERR_NOT_FOUND,
                       "there is no aned beside anectl or in PATH; name it "
                       "with --program PATH");
    }
    return is_program(s->program)
               ? 0
               : err_set(e, ERR_NOT_FOUND, "%s is no program", s->program);
}

static int put_value(struct buf *b, const struct unit_value *v, struct err *e)
{
    if (v->form != UNIT_PLAIN && !is_text(v->text)) {
        return err_set(e, ERR_INVALID,
                       "%s: no unit file can hold this path; choose one "
                       "without control characters, in UTF-8",
                       v->text);
    }
    if (v->form == UNIT_EXE && strpbrk(v->text, "\"'\\") != NULL) {
        return err_set(e, ERR_INVALID,
                       "%s: systemd starts no program with quotes or "
                       "backslashes in its path",
                       v->text);
    }
    switch (v->form) {
    case UNIT_PLAIN:
        buf_puts(b, v->text);
        break;
    case UNIT_XML:
        put_xml(b, v->text);
        break;
    case UNIT_PATH:
    case UNIT_EXE:
    case UNIT_WORD:
        put_systemd(b, v->text, v->form);
        break;
    }
    return 0;
}

/* The value whose name stands between two @ at p; *ret_n: the bytes of all. */
static const struct unit_value *
value_at(const char *p, const struct unit_value *v, size_t n, size_t *ret_n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = strlen(v[i].name);
        if (strncmp(p + 1, v[i].name, k) == 0 && p[k + 1] == '@') {
            *ret_n = k + 2;
            return &v[i];
        }
    }
    return NULL;
}

int unit_fill(const char *template, const struct unit_value *v, size_t n,
              struct buf *ret, struct err *e)
{
    const char *p = template;
    buf_init(ret, MIB(1));
    while (*p != '\0') {
        size_t k = strcspn(p, "@");
        buf_put(ret, p, k);
        p += k;
        if (*p == '\0') {
            break;
        }
        const struct unit_value *x = value_at(p, v, n, &k);
        must(x != NULL); /* the templates are ours */
        int rc = put_value(ret, x, e);
        if (rc != 0) {
            buf_fini(ret);
            return rc;
        }
        p += k;
    }
    must(buf_ok(ret));
    return 0;
}

int unit_write(const char *path, const struct buf *text, bool *changed,
               struct err *e)
{
    char dir[SERVICE_PATH_MAX];
    struct buf old = {0};
    bool same = file_read(path, MIB(1), &old, NULL) == 0 && old.n == text->n &&
                memcmp(old.p, text->p, text->n) == 0;
    buf_fini(&old);
    if (same) {
        return 0;
    }
    if (snprintf(dir, sizeof(dir), "%s", path) >= (int)sizeof(dir)) {
        return err_set(e, ERR_CONFIG, "%s: too long", path);
    }
    *strrchr(dir, '/') = '\0';
    RETERR(file_mkdirs(dir, 0755, e));
    RETERR(file_write(path, text->p, text->n, e));
    *changed = true;
    /* launchd wants a file that nobody else may change; reading is fine */
    return chmod(path, 0644) == 0 ? 0 : err_errno(e, errno, path);
}

/* --- the manager's programs, and the daemon --- */

int service_call(const char *const *argv, int *code, struct err *e)
{
    struct buf out;
    int status = 0;
    buf_init(&out, KIB(64));
    int rc = run_program(argv, SERVICE_CALL_S, &out, &status, e);
    if (rc == ERR_NOT_FOUND) {
        rc = err_set(e, ERR_UNAVAILABLE, "there is no %s here", argv[0]);
    } else if (rc == 0 && status != 0) {
        char what[200] = "";
        for (size_t i = 0; argv[i] != NULL; i++) {
            size_t n = strlen(what);
            (void)snprintf(what + n, sizeof(what) - n, "%s%s", i > 0 ? " " : "",
                           argv[i]);
        }
        const char *said = run_last_line(&out);
        rc = err_set(e, ERR_UNAVAILABLE, "`%s` ended with %d%s%s", what, status,
                     said[0] != '\0' ? ": " : "", said);
    }
    buf_fini(&out);
    if (code != NULL) {
        *code = status;
    }
    return rc;
}

int service_answers(struct client *c, int limit_s, struct json **ret,
                    struct err *e)
{
    double end = now_seconds() + limit_s;
    for (;;) {
        struct timespec pause = {.tv_nsec = 100000000};
        *e = (struct err){0};
        int rc = ask(c, "GET", "/aned/v1/status", NULL, ret, e);
        /* not there yet, or it reads its store; all else is an answer */
        if ((rc != ERR_UNAVAILABLE && rc != ERR_STARTING) ||
            now_seconds() >= end || interrupted != 0) {
            return rc;
        }
        (void)nanosleep(&pause, NULL);
    }
}
