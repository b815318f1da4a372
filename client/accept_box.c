/* accept_box.c - a private home, a daemon in it, requests to that daemon. The
 * user's own home and service are not looked at. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parse.h"
#include "client/accept.h"
#include "client/follow.h"
#include "client/show.h"

#define EXPECTED     "expected.json"
#define EXPECTED_MAX MIB(1)
#define UP_MAX       6 /* folders from anectl up to the source's */

void box_path(const struct accept *a, const char *name,
              char out[SERVICE_PATH_MAX])
{
    must(file_join(out, SERVICE_PATH_MAX, a->work, name)); /* both are short */
}

bool box_wait(const struct accept *a, int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    if (interrupted != 0 || now_seconds() >= a->end_s) {
        return false;
    }
    (void)nanosleep(&t, NULL);
    return true;
}

/* --- the home, the demo model --- */

/* conf/demo of the source that this anectl was built in. */
static int find_demo(struct accept *a, struct err *e)
{
    char dir[SERVICE_PATH_MAX];
    char file[SERVICE_PATH_MAX];
    if (a->o.demo != NULL) {
        char *full = realpath(a->o.demo, NULL);
        bool ok = full != NULL && snprintf(a->demo, sizeof(a->demo), "%s",
                                           full) < (int)sizeof(a->demo);
        free(full);
        return ok ? 0
                  : err_set(e, ERR_NOT_FOUND, "there is no folder %s",
                            a->o.demo);
    }
    (void)snprintf(dir, sizeof(dir), "%s", a->d.service.program);
    for (int i = 0; i < UP_MAX && strrchr(dir, '/') != NULL; i++) {
        *strrchr(dir, '/') = '\0';
        if (file_join(a->demo, sizeof(a->demo), dir, "conf/demo") &&
            file_join(file, sizeof(file), a->demo, EXPECTED) &&
            file_exists(file)) {
            return 0;
        }
    }
    return err_set(e, ERR_NOT_FOUND,
                   "the demo model is not here: build aned from its source, "
                   "or name the folder conf/demo with --demo");
}

static int read_expected(struct accept *a, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    struct buf b = {0};
    if (!file_join(path, sizeof(path), a->demo, EXPECTED)) {
        return err_set(e, ERR_CONFIG, "%s: too long a path", a->demo);
    }
    RETERR(file_read(path, EXPECTED_MAX, &b, e));
    int rc = json_parse(b.n > 0 ? b.p : "", b.n, &a->expected, e);
    buf_fini(&b);
    return rc == 0 ? 0 : err_prefix(e, rc, "%s", path);
}

int box_make(struct accept *a, struct err *e)
{
    const char *tmp = getenv("TMPDIR");
    char base[SERVICE_PATH_MAX];
    if (tmp == NULL || tmp[0] != '/') {
        tmp = "/tmp";
    }
    RETERR(unit_program(&a->d.service, e));
    RETERR(find_demo(a, e));
    RETERR(read_expected(a, e));
    (void)snprintf(base, sizeof(base), "%s", tmp);
    while (base[1] != '\0' && base[strlen(base) - 1] == '/') {
        base[strlen(base) - 1] = '\0'; /* macOS's ends so */
    }
    if (!file_join(a->work, sizeof(a->work), base, "aned-accept-XXXXXX") ||
        strlen(a->work) + strlen("/home/run/aned.sock") >
            http_peer_path_max()) {
        a->work[0] = '\0';
        return err_set(e, ERR_CONFIG,
                       "%s: too long for a socket; set TMPDIR to a shorter one",
                       base);
    }
    if (mkdtemp(a->work) == NULL) {
        int why = errno;
        a->work[0] = '\0';
        return err_errno(e, why, base);
    }
    box_path(a, "home", a->home);
    (void)snprintf(a->d.home, sizeof(a->d.home), "%s", a->home);
    must(file_join(a->client.peer.path, sizeof(a->client.peer.path), a->home,
                   "run/aned.sock"));
    a->client.peer.named = true;
    return file_mkdirs(a->home, 0700, e);
}

void box_end(struct accept *a)
{
    struct err e = {0};
    a->end_s = now_seconds() + 2 * ACCEPT_STOP_S;
    agent_remove(a);
    if (box_stop(a, &e) < 0) {
        (void)ask_fail_plain(&a->client, &e);
    }
    if (a->work[0] != '\0' && !a->o.keep && file_rmtree(a->work, &e) < 0) {
        (void)ask_fail_plain(&a->client, &e);
    }
}

/* --- the daemon --- */

int box_stop(struct accept *a, struct err *e)
{
    double end = now_seconds() + ACCEPT_STOP_S;
    int status = 0;
    pid_t pid = a->daemon;
    if (pid == 0) {
        return 0;
    }
    a->daemon = 0;
    a->conf[0] = '\0';
    (void)kill(pid, SIGTERM);
    for (;;) {
        struct timespec pause = {.tv_nsec = 20000000};
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) {
            break;
        }
        if (now_seconds() >= end) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return err_set(e, ERR_UNAVAILABLE,
                           "aned had not ended %d s after SIGTERM",
                           ACCEPT_STOP_S);
        }
        (void)nanosleep(&pause, NULL);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    return err_set(e, ERR_UNAVAILABLE, "aned ended with %s %d",
                   WIFEXITED(status) ? "exit code" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int start(struct accept *a, struct err *e)
{
    char log[SERVICE_PATH_MAX];
    const char *argv[] = {
        a->d.service.program, "serve", "--home", a->home, "--socket",
        a->client.peer.path,  NULL};
    box_path(a, "serve.log", log);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_errno(e, errno, log);
    }
    int rc = run_start(argv, fd, &a->daemon, e);
    (void)close(fd);
    return rc;
}

/* The last line of the daemon's log. */
static int ended(struct accept *a, struct err *e)
{
    char log[SERVICE_PATH_MAX];
    struct buf b = {0};
    struct err none = {0};
    box_path(a, "serve.log", log);
    (void)!file_read(log, MIB(64), &b, &none);
    int rc = err_set(e, ERR_UNAVAILABLE, "aned ended at its start: %s",
                     run_last_line(&b));
    buf_fini(&b);
    return rc;
}

static int await_answer(struct accept *a, struct err *e)
{
    double end = now_seconds() + ACCEPT_START_S;
    for (;;) {
        struct json *j = NULL;
        int status = 0;
        *e = (struct err){0};
        a->client.peer.end_s = now_seconds() + ACCEPT_START_S;
        int rc = ask(&a->client, "GET", "/aned/v1/status", NULL, &j, e);
        if (rc == 0) {
            a->d.pid = (int64_t)json_num(json_get(j, "pid"));
            json_free(a->d.status);
            a->d.status = j;
            return 0;
        }
        if (waitpid(a->daemon, &status, WNOHANG) == a->daemon) {
            a->daemon = 0;
            return ended(a, e);
        }
        if ((rc != ERR_UNAVAILABLE && rc != ERR_STARTING) ||
            now_seconds() >= end || !box_wait(a, 50)) {
            return rc;
        }
    }
}

int box_serve(struct accept *a, const char *conf, struct err *e)
{
    char path[SERVICE_PATH_MAX];
    if (a->daemon != 0 && strcmp(conf, a->conf) == 0) {
        return 0;
    }
    RETERR(box_stop(a, e));
    if (!file_join(path, sizeof(path), a->home, "aned.conf")) {
        return err_set(e, ERR_CONFIG, "%s: too long a path", a->home);
    }
    RETERR(file_write(path, conf, strlen(conf), e));
    RETERR(start(a, e));
    int rc = await_answer(a, e);
    if (rc == 0) {
        (void)snprintf(a->conf, sizeof(a->conf), "%s", conf);
    }
    return rc;
}

int box_backend(struct accept *a, bool coreml, int drafts, struct err *e)
{
    char conf[200];
    (void)snprintf(conf, sizeof(conf),
                   "[engine]\nbackend = %s\n[speculation]\nmax_draft = %d\n"
                   "[cache]\ndisk_tokens = 64\n",
                   coreml ? "coreml" : "cpu", drafts);
    return box_serve(a, conf, e);
}

/* --- requests --- */

int box_ask(struct accept *a, const char *method, const char *path,
            struct json *body, struct json **ret, struct err *e)
{
    a->client.peer.end_s = a->end_s;
    int rc = ask(&a->client, method, path, body, ret, e);
    json_free(body);
    return rc;
}

double box_metric(struct accept *a, const char *name)
{
    char key[80];
    struct buf out;
    struct err none = {0};
    int status = 0;
    double v = -1;
    (void)snprintf(key, sizeof(key), "\naned_%s ", name);
    buf_init(&out, MIB(4));
    a->client.peer.end_s = a->end_s;
    if (http_request(&a->client.peer, "GET", "/metrics", NULL, 0, NULL, NULL,
                     &status, &out, &none) == 0 &&
        out.n > 0) {
        char *p = strstr(out.p, key);
        if (p != NULL) {
            p += strlen(key);
            p[strcspn(p, "\n")] = '\0';
            v = parse_double(p, &v) ? v : -1;
        }
    }
    buf_fini(&out);
    return v;
}

double box_engine(const struct json *model, const char *key)
{
    return json_num(json_get(json_get(model, "engine"), key));
}

/* Until the job is over. */
static int follow(struct accept *a, const char *id, struct json **ret,
                  struct err *e)
{
    char path[128];
    RETERR(ask_path(path, sizeof(path), "/aned/v1/jobs/", id, "", e));
    for (;;) {
        RETERR(box_ask(a, "GET", path, NULL, ret, e));
        if (follow_over(ask_str(*ret, "state"))) {
            return 0;
        }
        json_free(*ret);
        *ret = NULL;
        if (!box_wait(a, 50)) {
            return err_set(e, ERR_TIMEOUT, "the job does not end");
        }
    }
}

/* What a job came to, as an error of its own kind. */
static int outcome(const struct json *job, struct err *e)
{
    const char *state = ask_str(job, "state");
    const char *code = "";
    const char *text = "";
    if (strcmp(state, "done") == 0) {
        return 0;
    }
    int rc =
        show_job_error(job, &code, &text) ? err_by_name(code) : ERR_UNAVAILABLE;
    return err_set(e, rc, "the job is %s%s%s", state,
                   text[0] != '\0' ? ": " : "", text);
}

int box_convert(struct accept *a, const char *source, const char *name,
                int context, struct err *e)
{
    char id[64];
    char *full = realpath(source, NULL);
    struct json *j = NULL;
    if (full == NULL) {
        return err_errno(e, errno, source);
    }
    struct json *body = json_object();
    json_add_str(body, "source", full);
    json_add_str(body, "name", name);
    if (context > 0) {
        json_add_int(body, "context", context);
    }
    free(full);
    RETERR(box_ask(a, "POST", "/aned/v1/jobs", body, &j, e));
    (void)snprintf(id, sizeof(id), "%s", ask_str(j, "id"));
    json_free(j);
    j = NULL;
    int rc = follow(a, id, &j, e);
    if (rc == 0) {
        rc = outcome(j, e);
    }
    json_free(j);
    return rc;
}

/* How far a load is: the daemon measures a model before its first use. */
static void show_load(struct accept *a, const char *model)
{
    char path[200];
    struct json *j = NULL;
    struct err none = {0};
    if (ask_path(path, sizeof(path), "/aned/v1/models/", model, "", &none) <
            0 ||
        box_ask(a, "GET", path, NULL, &j, &none) < 0) {
        return;
    }
    const struct json *p = json_get(j, "probe");
    if (strcmp(ask_str(p, "state"), "running") == 0) {
        accept_stage(a, "probe %.0f%% %s",
                     100 * json_num(json_get(p, "progress")),
                     ask_str(p, "stage"));
    } else {
        accept_stage(a, "load %.0f%%", 100 * box_engine(j, "progress"));
    }
    json_free(j);
}

/* Asked again and again: a load goes on when its client has left. */
int box_load(struct accept *a, const char *model, struct json **ret,
             struct err *e)
{
    char path[200];
    RETERR(ask_path(path, sizeof(path), "/aned/v1/models/", model, "/load", e));
    for (;;) {
        double end = now_seconds() + 1;
        a->client.peer.end_s = end < a->end_s ? end : a->end_s;
        *e = (struct err){0};
        int rc = ask(&a->client, "POST", path, NULL, ret, e);
        if (rc != ERR_TIMEOUT || now_seconds() < a->client.peer.end_s ||
            now_seconds() >= a->end_s) {
            return rc;
        }
        show_load(a, model);
    }
}

/* --- aned's own commands --- */

/* What it wrote on stderr goes to a file, whose last line is for an error. */
int box_aned(struct accept *a, const char **argv, struct buf *out, int *code,
             struct err *e)
{
    char log[SERVICE_PATH_MAX];
    struct buf b = {0};
    struct err none = {0};
    argv[0] = a->d.service.program;
    buf_init(out, MIB(4));
    box_path(a, "stderr", log);
    int fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_errno(e, errno, log);
    }
    int rc = run_output(argv, accept_left(a), fd, out, code, e);
    (void)close(fd);
    if (rc == 0 && *code != 0) {
        (void)!file_read(log, MIB(4), &b, &none);
        rc = err_set(e, ERR_UNAVAILABLE, "%s", run_last_line(&b));
        buf_fini(&b);
    }
    return rc;
}
