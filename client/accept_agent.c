/* accept_agent.c - launchd: the job as `anectl service install` writes it, but
 * with a label, a home and a socket of its own. The user's own job is not
 * touched.
 *
 * launchd remembers for each label that it may run (`launchctl enable`), and
 * nothing takes that back: so the label is always the same. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macos.h"
#include "client/accept.h"

#define STREAM_N  480u /* tokens of the stream that is open at the end */
#define CHOICES   4u   /* so many of them at once: seconds, on any machine */
#define EXIT_S    30   /* ExitTimeOut of the agent */
#define EXIT_LINE "exit timeout = 30"
#define FILES     8192 /* NumberOfFiles of the agent */
#define RESTART_S 40   /* launchd waits 10 s between two starts */
#define LOG_RANGE "10m"
/* so slow that a stream is still open when the job is told to end, and may then
 * last for most of ExitTimeOut */
#define AGENT_CONF                                   \
    "[engine]\nbackend = interpreter\nthreads = 1\n" \
    "[server]\ndrain_ms = 20000\n"

static struct service *service_of(struct accept *a)
{
    struct service *s = &a->d.service;
    (void)snprintf(s->label, sizeof(s->label), "%s", ACCEPT_LABEL);
    (void)snprintf(s->home, sizeof(s->home), "%s", a->home);
    s->own_home = true;
    s->own_socket = true;
    return s;
}

static int state_of(struct accept *a, struct service_state *ret, struct err *e)
{
    struct service *s = service_of(a);
    return s->manager->state(s, ret, e);
}

static bool ours(struct accept *a, char log[SERVICE_PATH_MAX])
{
    return snprintf(log, SERVICE_PATH_MAX, "%s/Library/Logs/%s.log",
                    a->d.service.user, ACCEPT_LABEL) < (int)SERVICE_PATH_MAX;
}

void agent_remove(struct accept *a)
{
    char log[SERVICE_PATH_MAX];
    struct service *s = service_of(a);
    struct err e = {0};
    if (!a->agent) {
        return;
    }
    a->agent = false;
    if (s->manager->uninstall(s, &e) < 0) {
        (void)ask_fail_plain(&a->client, &e);
        (void)fprintf(stderr, "  remove it: launchctl bootout gui/%u/%s\n",
                      (unsigned)getuid(), ACCEPT_LABEL);
    }
    if (ours(a, log)) {
        (void)unlink(log);
    }
}

/* --- install --- */

static int install(struct accept *a, struct err *e)
{
    struct service *s = service_of(a);
    char path[SERVICE_PATH_MAX];
    struct service_state t;
    bool changed = false;
    RETERR(state_of(a, &t, e));
    if (t.running) {
        return err_set(e, ERR_CONFLICT,
                       "another acceptance has the label " ACCEPT_LABEL
                       ", pid %d",
                       (int)t.pid);
    }
    RETERR(box_stop(a, e));
    if (!file_join(path, sizeof(path), a->home, "aned.conf")) {
        return err_set(e, ERR_CONFIG, "%s: too long a path", a->home);
    }
    RETERR(file_write(path, AGENT_CONF, strlen(AGENT_CONF), e));
    a->agent = true;
    return s->manager->install(s, &changed, e);
}

static void check_socket_file(struct accept *a)
{
    const char *path = a->client.peer.path;
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        accept_fail(a, "launchd has made no socket");
    } else if ((st.st_mode & 07777u) != 0600 || st.st_uid != geteuid()) {
        accept_fail(a, "the socket's mode is %04o, its owner uid %u",
                    (unsigned)(st.st_mode & 07777u), (unsigned)st.st_uid);
    } else {
        accept_pass(a, "the socket has mode 0600");
    }
}

void step_agent_install(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct service_state t = {0};
    struct err e = {0};
    if (!accept_on_mac(a)) {
        return;
    }
    if (install(a, &e) < 0 || state_of(a, &t, &e) < 0) {
        accept_error(a, "install", &e);
        return;
    }
    if (!t.installed || !t.listening) {
        accept_fail(a, "launchd does not listen: %s", t.text);
    } else if (t.running) {
        accept_fail(a, "it runs before a client came, pid %d", (int)t.pid);
    } else {
        accept_pass(a, "installed, not running: %s", t.text);
    }
    check_socket_file(a);
}

/* --- activation --- */

void step_agent_start(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct service_state t = {0};
    struct json *j = NULL;
    struct err e = {0};
    double from = now_seconds();
    a->client.peer.end_s = a->end_s;
    if (service_answers(&a->client, accept_left(a), &j, &e) < 0) {
        accept_error(a, "the first client", &e);
        return;
    }
    accept_number(a, "first_answer_ms", (now_seconds() - from) * 1000);
    int64_t pid = (int64_t)json_num(json_get(j, "pid"));
    if (!json_bool(json_get(j, "activated"))) {
        accept_fail(a, "it made its socket itself");
    } else {
        accept_pass(a, "the first client started it, on launchd's socket");
    }
    if (state_of(a, &t, &e) < 0 || t.pid != pid) {
        accept_fail(a, "launchd says pid %d, pid %d answers", (int)t.pid,
                    (int)pid);
    }
    json_free(j);
}

/* --- priority, limits --- */

/* By doctor's own checks, on the daemon's own word. */
static bool judge_process(struct accept *a, struct err *e)
{
    struct doctor *d = &a->d;
    if (box_ask(a, "GET", "/aned/v1/status", NULL, &d->status, e) < 0) {
        return false;
    }
    d->pid = d->state.pid;
    check_priority(d);
    check_files(d);
    /* it raises a low limit itself, so only this number is launchd's */
    double files = json_num(json_get(json_get(d->status, "process"), "files"));
    if (files != FILES) {
        accept_fail(a, "it may open %.0f files, its plist asks for %d", files,
                    FILES);
    }
    json_free(d->status);
    d->status = NULL;
    return true;
}

/* Say whether `launchctl print` has this line of the job. */
static void judge_print(struct accept *a, const char *line)
{
    char target[160];
    const char *argv[] = {"launchctl", "print", target, NULL};
    struct buf out;
    struct err e = {0};
    int code = 0;
    (void)snprintf(target, sizeof(target), "%s/%s", a->d.service.domain,
                   ACCEPT_LABEL);
    buf_init(&out, MIB(1));
    if (run_program(argv, accept_left(a), &out, &code, &e) < 0) {
        accept_error(a, "launchctl print", &e);
    } else if (out.n > 0 && ask_has_word(out.p, line)) {
        accept_pass(a, "launchd says: %s", line);
    } else {
        accept_fail(a, "launchd does not say: %s", line);
    }
    buf_fini(&out);
}

void step_agent_priority(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct err e = {0};
    if (state_of(a, &d->state, &e) < 0) {
        accept_error(a, "launchctl", &e);
        return;
    }
    if (!judge_process(a, &e)) {
        accept_error(a, "GET /aned/v1/status", &e);
        return;
    }
    judge_print(a, "spawn type = interactive");
}

/* --- the log --- */

/* Lines of this process: "aned[PID:..." in the compact style. */
static size_t lines_of(const struct buf *b, int64_t pid)
{
    char key[40];
    size_t n = 0;
    (void)snprintf(key, sizeof(key), "aned[%lld", (long long)pid);
    for (const char *p = b->n > 0 ? strstr(b->p, key) : NULL; p != NULL;
         p = strstr(p + 1, key)) {
        n++;
    }
    return n;
}

void step_agent_log(struct doctor *d)
{
    struct accept *a = accept_of(d);
    static const char where[] = "subsystem == \"" MACOS_IDENTIFIER "\"";
    const char *argv[] = {"log",     "show",    "--last",      LOG_RANGE,
                          "--style", "compact", "--predicate", where,
                          "--info",  NULL};
    struct service_state t = {0};
    struct buf out;
    struct err e = {0};
    int code = 0;
    if (state_of(a, &t, &e) < 0) {
        accept_error(a, "launchctl", &e);
        return;
    }
    buf_init(&out, MIB(16));
    if (run_program(argv, accept_left(a), &out, &code, &e) < 0) {
        accept_error(a, "log show", &e);
    } else if (code != 0 && out.n > 0 &&
               strstr(out.p, "not permitted") != NULL) {
        accept_skip(a, "log show wants an administrator: %s",
                    run_last_line(&out));
    } else if (code != 0) {
        accept_fail(a, "log show ended with %d: %s", code, run_last_line(&out));
    } else {
        size_t n = lines_of(&out, t.pid);
        accept_number(a, "lines", (double)n);
        if (n > 0) {
            accept_pass(a, "%zu lines of subsystem " MACOS_IDENTIFIER, n);
        } else {
            accept_fail(a, "no line of pid %d in subsystem " MACOS_IDENTIFIER,
                        (int)t.pid);
        }
    }
    buf_fini(&out);
}

/* --- a crash --- */

void step_agent_crash(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct service_state t = {0};
    struct json *j = NULL;
    struct err e = {0};
    if (state_of(a, &t, &e) < 0 || t.pid <= 1) {
        accept_fail(a, "there is no process to end");
        return;
    }
    int64_t old = t.pid;
    double from = now_seconds();
    if (kill((pid_t)old, SIGABRT) != 0) { /* launchd started it for us */
        accept_fail(a, "pid %d: %s", (int)old, strerror(errno));
        return;
    }
    do {
        t = (struct service_state){0};
    } while ((state_of(a, &t, &e) < 0 || t.pid <= 1 || t.pid == old) &&
             now_seconds() < from + RESTART_S && box_wait(a, 250));
    if (t.pid <= 1 || t.pid == old) {
        accept_fail(a, "not started again %d s after a crash: %s", RESTART_S,
                    t.text);
        return;
    }
    accept_number(a, "started_again_s", now_seconds() - from);
    a->client.peer.end_s = a->end_s;
    if (service_answers(&a->client, accept_left(a), &j, &e) < 0) {
        accept_error(a, "after the crash", &e);
        return;
    }
    accept_pass(a, "started again by launchd, without a client");
    accept_note(a, "macOS may have written a report of this crash to "
                   "~/Library/Logs/DiagnosticReports");
    json_free(j);
}

/* --- an end with an open stream --- */

struct ending {
    struct accept *a;
    pid_t pid; /* of launchctl; 0: not started */
    double from;
    char log[SERVICE_PATH_MAX]; /* of the job */
    off_t at;                   /* how long it was before */
    unsigned pieces;            /* that came after SIGTERM did */
    struct err e;
};

static void on_first(void *ctx)
{
    struct ending *x = ctx;
    char target[160];
    const char *argv[] = {"launchctl", "bootout", target, NULL};
    struct stat st;
    (void)snprintf(target, sizeof(target), "%s/%s", x->a->d.service.domain,
                   ACCEPT_LABEL);
    x->at = stat(x->log, &st) == 0 ? st.st_size : 0;
    x->from = now_seconds();
    if (run_start(argv, STDERR_FILENO, &x->pid, &x->e) < 0) {
        x->pid = 0;
    }
}

/* launchctl does not tell when SIGTERM came; the daemon's log does. */
static bool was_told(const struct ending *x)
{
    char text[4096];
    size_t n = 0;
    FILE *f = fopen(x->log, "re");
    if (f == NULL) {
        return false;
    }
    if (fseeko(f, x->at, SEEK_SET) == 0) {
        n = fread(text, 1, sizeof(text) - 1, f);
    }
    (void)fclose(f);
    text[n] = '\0';
    return strstr(text, " draining ") != NULL;
}

static void on_next(void *ctx)
{
    struct ending *x = ctx;
    x->pieces += x->pieces > 0 || was_told(x) ? 1 : 0;
}

static bool await_end(struct accept *a, pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (!box_wait(a, 50)) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return false;
        }
    }
    return true;
}

/* What came of it; rc: of the stream. */
static void judge_end(struct accept *a, const struct ending *x, int rc,
                      bool told, const struct err *e, int64_t pid)
{
    double took = now_seconds() - x->from;
    accept_number(a, "process_gone_after_s", took);
    accept_number(a, "pieces_after_sigterm", x->pieces);
    if (rc < 0) {
        accept_error(a, "the open stream", e);
    } else if (!told) {
        accept_fail(a, "launchctl bootout did not end: %s", x->e.msg);
    } else if (kill((pid_t)pid, 0) == 0) {
        accept_fail(a, "pid %d is still there", (int)pid);
    } else if (took >= EXIT_S) {
        accept_fail(a, "it took %.0f s: launchd ended it by force", took);
    } else if (x->pieces == 0) {
        accept_fail(a, "the stream was over before SIGTERM came");
    } else {
        accept_pass(a, "the stream went on after SIGTERM and ended in order, "
                       "then the process");
    }
}

void step_agent_stop(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct ending x = {.a = a};
    struct service_state t = {0};
    struct err e = {0};
    const struct draw_wish w = {
        .model = "demo",
        .prompt = ask_str(json_first(json_get(a->expected, "runs")), "prompt"),
        .n = STREAM_N,
        .choices = CHOICES,
        .on_first = on_first,
        .on_next = on_next,
        .ctx = &x};
    if (state_of(a, &t, &e) < 0 || t.pid <= 1 || !ours(a, x.log)) {
        accept_fail(a, "it does not run");
        return;
    }
    judge_print(a, EXIT_LINE);
    int rc = draw_stream(a, &w, &e);
    accept_number(a, "stream_ended_after_s", now_seconds() - x.from);
    bool told = x.pid > 0 && await_end(a, x.pid);
    while (kill((pid_t)t.pid, 0) == 0 && box_wait(a, 50)) {
    }
    judge_end(a, &x, rc, told, &e, t.pid);
}

void step_agent_uninstall(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct service *s = service_of(a);
    char log[SERVICE_PATH_MAX];
    struct service_state t = {0};
    struct err e = {0};
    if (!accept_on_mac(a)) {
        return;
    }
    if (!a->agent) {
        accept_skip(a, "it was not installed");
        return;
    }
    if (s->manager->uninstall(s, &e) < 0 || state_of(a, &t, &e) < 0) {
        accept_error(a, "uninstall", &e);
        return;
    }
    a->agent = false;
    if (t.installed || t.listening || t.running) {
        accept_fail(a, "the job is still there: %s", t.text);
    } else {
        accept_pass(a, "no job, no plist, no process");
    }
    if (ours(a, log) && unlink(log) == 0) {
        accept_note(a, "its log was removed by us: uninstalling keeps it");
    }
    a->d.service.domain[0] = '\0';
}
