#include "client/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/num.h"
#include "client/client.h"

extern char **environ;

/* Start argv with `out` as stdout and `err` (-1: ours) as stderr. */
static int start(const char *const *argv, int out, int err, pid_t *ret,
                 struct err *e)
{
    posix_spawn_file_actions_t acts;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t usual;
    char *args[RUN_ARGS_MAX + 1];
    size_t n = 0;
    for (; argv[n] != NULL; n++) {
        must(n < RUN_ARGS_MAX);
        args[n] = (char *)(uintptr_t)argv[n]; /* posix_spawn changes nothing */
    }
    args[n] = NULL;
    must(posix_spawn_file_actions_init(&acts) == 0);
    must(posix_spawnattr_init(&attr) == 0);
    must(posix_spawn_file_actions_addopen(&acts, 0, "/dev/null", O_RDONLY, 0) ==
         0);
    must(posix_spawn_file_actions_adddup2(&acts, out, 1) == 0);
    if (err >= 0) {
        must(posix_spawn_file_actions_adddup2(&acts, err, 2) == 0);
    }
    /* What we ignore (SIGPIPE), it need not. */
    (void)sigemptyset(&none);
    (void)sigemptyset(&usual);
    (void)sigaddset(&usual, SIGPIPE);
    must(posix_spawnattr_setsigmask(&attr, &none) == 0);
    must(posix_spawnattr_setsigdefault(&attr, &usual) == 0);
    must(posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF) == 0);
    int bad = posix_spawnp(ret, argv[0], &acts, &attr, args, environ);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&acts);
    return bad != 0 ? err_errno(e, bad, argv[0]) : 0;
}

static int await(pid_t pid, int *code, struct err *e)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return err_errno(e, errno, "waitpid");
        }
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

int run_start(const char *const *argv, int out, pid_t *ret, struct err *e)
{
    return start(argv, out, out, ret, e);
}

/* Read until the end of the pipe into b. fn NULL: all of it, until end_s; what
 * does not fit is read and dropped. */
static int drain(int fd, double end_s, struct buf *b, run_line_fn *fn,
                 void *ctx, struct err *e)
{
    char piece[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = fn != NULL ? 1 : end_s - now_seconds();
        if (left <= 0) {
            return err_set(e, ERR_TIMEOUT, "it does not end");
        }
        int ready = poll(&p, 1, left > 1 ? 1000 : (int)(left * 1000) + 1);
        if (interrupted != 0) {
            return err_set(e, ERR_CANCELLED, "interrupted");
        }
        if (ready <= 0) {
            continue;
        }
        ssize_t k = read(fd, piece, sizeof(piece));
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return k < 0 ? err_errno(e, errno, "read") : 0;
        }
        if (b != NULL) {
            buf_put(b, piece, num_min((size_t)k, b->max - b->n));
        }
        if (fn != NULL) {
            RETERR(run_take_lines(b, fn, ctx, e));
        }
    }
}

/* err: descriptor for stderr; -1: ours, OUT_TOO: where stdout goes. */
#define OUT_TOO (-2)
static int go(const char *const *argv, double end_s, int err, struct buf *b,
              run_line_fn *fn, void *ctx, int *code, struct err *e)
{
    int fd[2];
    pid_t pid = 0;
    if (pipe(fd) != 0) {
        return err_errno(e, errno, "pipe");
    }
    (void)fcntl(fd[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd[1], F_SETFD, FD_CLOEXEC);
    int rc = start(argv, fd[1], err == OUT_TOO ? fd[1] : err, &pid, e);
    (void)close(fd[1]);
    if (rc == 0) {
        struct err late = {0};
        rc = drain(fd[0], end_s, b, fn, ctx, e);
        if (rc != 0) {
            (void)kill(pid, rc == ERR_TIMEOUT ? SIGKILL : SIGTERM);
        }
        int ended = await(pid, code, &late);
        if (rc == 0 && ended != 0) {
            *e = late;
            rc = ended;
        }
    }
    (void)close(fd[0]);
    return rc;
}

int run_program(const char *const *argv, int limit_s, struct buf *out,
                int *code, struct err *e)
{
    return go(argv, now_seconds() + limit_s, OUT_TOO, out, NULL, NULL, code, e);
}

int run_output(const char *const *argv, int limit_s, int err, struct buf *out,
               int *code, struct err *e)
{
    return go(argv, now_seconds() + limit_s, err, out, NULL, NULL, code, e);
}

int run_take_lines(struct buf *b, run_line_fn *fn, void *ctx, struct err *e)
{
    size_t at = 0;
    int rc = 0;
    while (rc == 0 && at < b->n) {
        const char *from = b->p + at;
        const char *end = memchr(from, '\n', b->n - at);
        if (end == NULL && b->n - at < RUN_LINE_MAX) {
            break;
        }
        size_t n = end != NULL ? (size_t)(end - from) : RUN_LINE_MAX;
        rc = fn(ctx, from, n, e);
        at += n + (end != NULL ? 1 : 0);
    }
    buf_shift(b, at);
    return rc;
}

int run_lines(const char *const *argv, run_line_fn *fn, void *ctx, int *code,
              struct err *e)
{
    struct buf b;
    buf_init(&b, 2 * RUN_LINE_MAX);
    interrupt_catch();
    int rc = go(argv, 0, -1, &b, fn, ctx, code, e);
    if (rc == 0 && b.n > 0) { /* a last line without an end */
        rc = fn(ctx, b.p, b.n, e);
    }
    buf_fini(&b);
    if (rc == ERR_CANCELLED && interrupted != 0) {
        rc = 0;
        *code = 0;
    }
    return rc;
}

const char *run_last_line(struct buf *b)
{
    while (b->n > 0 && strchr("\n\r \t", b->p[b->n - 1]) != NULL) {
        b->p[--b->n] = '\0';
    }
    const char *at = b->n > 0 ? strrchr(b->p, '\n') : NULL;
    return b->n == 0 ? "" : at != NULL ? at + 1 : b->p;
}
