/* doctor_daemon.c - the daemon as it runs: its answer, socket, configuration,
 * priority and limits. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parse.h"
#include "client/doctor.h"
#include "proto/limits.h"

#define FILES_WANTED (HTTP_CONNS_MAX + SERVE_FILES)
#define NOT_TOLD     "not known: a daemon of that version does not tell it"

/* How this user would start it. */
static const char *to_start(const struct doctor *d)
{
    return d->state.installed ? "anectl service start"
                              : "anectl service install, or: aned serve";
}

void check_daemon(struct doctor *d)
{
    const struct err *e = &d->status_error;
    if (d->status != NULL) {
        const char *version = ask_str(d->status, "version");
        if (strcmp(version, ANED_VERSION) != 0) {
            doctor_say(d, FINDING_WARNING,
                       d->state.running ? "anectl service restart"
                                        : "start it again",
                       "it is version %s, anectl is %s", version, ANED_VERSION);
        } else {
            doctor_say(d, FINDING_OK, NULL,
                       "version %s, pid %" PRId64 " answers", version, d->pid);
        }
        if (strcmp(ask_str(d->status, "status"), "ok") != 0) {
            doctor_say(d, FINDING_NOTE, NULL, "its state is `%s`",
                       ask_str(d->status, "status"));
        }
        return;
    }
    switch (e->code) {
    case ERR_UNAVAILABLE:
        doctor_say(d, FINDING_ERROR, to_start(d), "%s", e->msg);
        break;
    case ERR_CONFIG:
        doctor_say(d, FINDING_ERROR, "mend that; it goes on by itself",
                   "it serves nothing: %s", e->msg);
        break;
    case ERR_STARTING:
        doctor_say(d, FINDING_WARNING, "ask again in a moment",
                   "it still reads its store");
        break;
    default:
        doctor_say(d, FINDING_ERROR, "anectl service logs, or its stderr",
                   "%s: %s", err_name(e->code), e->msg);
    }
}

void check_socket(struct doctor *d)
{
    const char *path = d->client->peer.path;
    char dir[sizeof(d->client->peer.path)];
    struct stat st;
    if (lstat(path, &st) != 0) {
        doctor_say(d, errno == ENOENT ? FINDING_NOTE : FINDING_ERROR,
                   errno == ENOENT ? NULL : "choose another with --socket",
                   "%s: %s", path, strerror(errno));
        return;
    }
    if (!S_ISSOCK(st.st_mode) && !S_ISLNK(st.st_mode)) {
        doctor_say(d, FINDING_ERROR, "move it away, start aned again",
                   "%s is no socket", path);
        return;
    }
    (void)snprintf(dir, sizeof(dir), "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash == NULL) {
        (void)snprintf(dir, sizeof(dir), ".");
    } else {
        slash[slash == dir ? 1 : 0] = '\0';
    }
    bool ok = doctor_private(d, "the socket", path, 0600);
    if (service_shared(dir)) {
        doctor_say(d, FINDING_ERROR,
                   "choose another with --socket: anectl service install",
                   "its folder %s is shared with other users", dir);
    } else if (doctor_private(d, "its folder", dir, 0700) && ok) {
        doctor_say(d, FINDING_OK, NULL, "%s (%zu of at most %zu bytes)", path,
                   strlen(path), http_peer_path_max());
    }
}

/* What the daemon itself says of its file. */
static void check_reload(struct doctor *d)
{
    const struct json *c = json_get(d->status, "config");
    const char *error = json_str(json_get(c, "error"));
    if (error != NULL) {
        doctor_say(d, FINDING_WARNING, "mend it, then: anectl service reload",
                   "the last reload changed nothing: %s", error);
    }
    for (const struct json *o = json_first(json_get(c, "restart_needed"));
         o != NULL; o = json_next(o)) {
        doctor_say(d, FINDING_WARNING, "anectl service restart",
                   "%s was changed, but counts only after a restart",
                   json_str(o) != NULL ? json_str(o) : "");
    }
}

void check_config(struct doctor *d)
{
    const char *argv[] = {NULL,    "serve", "--check", "--home",
                          d->home, NULL,    NULL,      NULL};
    char line[600];
    char path[SERVICE_PATH_MAX];
    int code = 0;
    const char *file =
        json_str(json_get(json_get(d->status, "config"), "file"));
    if (file == NULL && file_join(path, sizeof(path), d->home, "aned.conf") &&
        file_exists(path)) {
        file = path;
    }
    if (file != NULL) {
        argv[5] = "--config";
        argv[6] = file;
    }
    if (!doctor_aned(d, argv, &code, line, sizeof(line))) {
        doctor_say(d, FINDING_NOTE, "name it with --program",
                   "not known: there is no aned to read it");
    } else if (code != 0) {
        doctor_say(d, FINDING_ERROR, "mend it, then: anectl service reload",
                   "%s", line);
    } else if (file == NULL) {
        doctor_say(d, FINDING_OK, NULL, "no file: all options have defaults");
    } else {
        doctor_say(d, FINDING_OK, NULL, "%s", file);
    }
    check_reload(d);
}

/* --- priority --- */

/* launchd slows a job that does not say otherwise. */
static bool plist_is_interactive(const struct doctor *d)
{
    struct buf b = {0};
    bool yes = true;
    if (file_read(d->state.unit, MIB(1), &b, NULL) == 0) {
        buf_u8(&b, '\0');
        const char *key = strstr(b.p, "<key>ProcessType</key>");
        const char *v = key != NULL ? strstr(key, "<string>") : NULL;
        yes = v != NULL && strncmp(v + 8, "Interactive<", 12) == 0;
    }
    buf_fini(&b);
    return yes;
}

void check_priority(struct doctor *d)
{
    const struct json *about = json_get(d->status, "process");
    bool ok = true;
    if (d->mac && d->state.installed && !plist_is_interactive(d)) {
        doctor_say(d, FINDING_WARNING, "anectl service install",
                   "the agent's ProcessType is not Interactive: launchd slows "
                   "it");
        ok = false;
    }
    if (d->pid <= 0) {
        doctor_say(d, FINDING_NOTE, NULL, "not known: no daemon answers");
        return;
    }
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)d->pid);
    if (errno == 0 && nice > 0) {
        doctor_say(d, FINDING_WARNING, "start it without nice",
                   "pid %" PRId64 " has nice %d: others go before it", d->pid,
                   nice);
        ok = false;
    }
    if (about == NULL) {
        doctor_say(d, FINDING_NOTE, NULL, NOT_TOLD);
        ok = false;
    } else if (json_bool(json_get(about, "background"))) {
        doctor_say(d, FINDING_WARNING, "start it outside of the background",
                   "pid %" PRId64 " runs in the background: anything else goes "
                   "before it",
                   d->pid);
        ok = false;
    }
    if (ok) {
        doctor_say(d, FINDING_OK, NULL, "pid %" PRId64 " has nice %d", d->pid,
                   nice);
    }
}

/* --- descriptors --- */

/* "Max open files   SOFT   HARD   files" of /proc/PID/limits. */
static bool limit_in_proc(const struct doctor *d, uint64_t *ret)
{
    static const char key[] = "Max open files";
    char path[SERVICE_PATH_MAX];
    char name[64];
    struct buf b = {0};
    bool ok = false;
    (void)snprintf(name, sizeof(name), "/proc/%" PRId64 "/limits", d->pid);
    if (d->pid > 0 && doctor_path(d, name, path, sizeof(path)) &&
        doctor_read(path, &b)) {
        const char *p = strstr(b.p, key);
        if (p != NULL) {
            p += strlen(key);
            p += strspn(p, " ");
            ok = parse_digits(p, UINT64_MAX, ret) != NULL;
            if (!ok && strncmp(p, "unlimited", 9) == 0) {
                *ret = UINT64_MAX;
                ok = true;
            }
        }
    }
    buf_fini(&b);
    return ok;
}

/* By the daemon's own word; of an older one Linux tells it. */
static bool limit_of(const struct doctor *d, uint64_t *ret)
{
    const struct json *files =
        json_get(json_get(d->status, "process"), "files");
    if (files == NULL) {
        return limit_in_proc(d, ret);
    }
    *ret =
        json_type(files) == JSON_NULL ? UINT64_MAX : (uint64_t)json_num(files);
    return true;
}

/* Of one that would be started here: it raises its own limit to the hard one.
 */
static void judge_next(struct doctor *d, const char *remedy)
{
    struct rlimit r = {0};
    (void)getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_max != RLIM_INFINITY && r.rlim_max < FILES_WANTED) {
        doctor_say(d, FINDING_WARNING, remedy,
                   "a daemon started here may open %" PRIu64
                   " files, %u are wanted",
                   (uint64_t)r.rlim_max, FILES_WANTED);
    } else {
        doctor_say(d, FINDING_OK, NULL, "a daemon started here may open %u",
                   FILES_WANTED);
    }
}

void check_files(struct doctor *d)
{
    uint64_t have = 0;
    const char *remedy =
        d->mac ? "anectl service install, or: ulimit -n 8192"
               : "LimitNOFILE=8192 in the unit, or: ulimit -n 8192";
    if (!limit_of(d, &have)) {
        if (d->status != NULL) {
            doctor_say(d, FINDING_NOTE, NULL, NOT_TOLD);
        } else {
            judge_next(d, remedy);
        }
    } else if (have < FILES_WANTED) {
        doctor_say(d, FINDING_WARNING, remedy,
                   "the daemon may open %" PRIu64
                   " files, %u are wanted: it takes fewer connections",
                   have, FILES_WANTED);
    } else if (have == UINT64_MAX) {
        doctor_say(d, FINDING_OK, NULL, "the daemon may open any number");
    } else {
        doctor_say(d, FINDING_OK, NULL, "the daemon may open %" PRIu64, have);
    }
}

/* What was measured of each model: 0 when nothing is to be said of it. */
static unsigned say_residency(struct doctor *d, const struct json *x)
{
    const struct json *m = json_get(x, "measured");
    const char *verdict = ask_str(m, "verdict");
    char remedy[160];
    (void)snprintf(remedy, sizeof(remedy), "anectl residency %.128s",
                   ask_str(x, "model"));
    if (verdict[0] == '\0') {
        doctor_say(d, FINDING_NOTE, NULL, "%s: not measured yet",
                   ask_str(x, "model"));
    } else if (strcmp(verdict, "passed") != 0) {
        doctor_say(d, FINDING_WARNING, remedy, "%s: %s: %s",
                   ask_str(x, "model"), verdict, ask_str(m, "reason"));
    } else {
        return 0;
    }
    return 1;
}

void check_neural_engine(struct doctor *d)
{
    const char *backend = ask_str(d->status, "backend");
    unsigned said = 0;
    if (!d->mac) {
        doctor_say(d, FINDING_NOTE, NULL, "not on this system%s%s",
                   backend[0] != '\0' ? ": the backend is " : "", backend);
        return;
    }
    if (d->status == NULL) {
        doctor_say(d, FINDING_NOTE, NULL, "not known: no daemon answers");
        return;
    }
    if (strcmp(backend, "coreml") != 0) {
        doctor_say(d, FINDING_NOTE,
                   "[engine] backend = coreml in aned.conf, then a restart",
                   "models run on the processor: the backend is %s", backend);
        return;
    }
    for (const struct json *x = json_first(json_get(d->residency, "models"));
         x != NULL; x = json_next(x)) {
        said += say_residency(d, x);
    }
    if (said == 0) {
        doctor_say(d, FINDING_OK, NULL,
                   "the backend is coreml, %zu models "
                   "passed",
                   json_count(json_get(d->residency, "models")));
    }
}
