/* harness.h - a server and its clients in one thread: the loop is turned by
 * hand while plain sockets talk to it. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../unit.h"
#include "http/http.h"

struct fix {
    uv_loop_t loop;
    struct http_server *srv;
    char dir[64];
    char path[96];
    bool closed;
};

static inline void fix_dir(struct fix *f)
{
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/aned-http-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/s.sock", f->dir);
}

static inline void fix_closed(void *ctx)
{
    ((struct fix *)ctx)->closed = true;
}

static inline void fix_rm(struct fix *f)
{
    char cmd[160];
    (void)snprintf(cmd, sizeof(cmd), "rm -rf '%s'", f->dir);
    assert_int_equal(system(cmd), 0);
}

/* Everything the server made is gone, every handle closed. */
static inline void fix_down(struct fix *f)
{
    if (f->srv != NULL) {
        http_close(f->srv, fix_closed, f);
        assert_false(f->closed); /* never from inside the call */
        assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
        assert_true(f->closed);
    }
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    fix_rm(f);
}

static inline int64_t now_ms(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Turn the loop for `ms`. Of a time in which this process did not run 5 ms
 * count, so that a busy machine takes no turns away. */
static inline void turn(struct fix *f, int64_t ms)
{
    for (int64_t last = now_ms(); ms > 0;) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        struct timespec t = {0, 200000};
        (void)nanosleep(&t, NULL);
        int64_t now = now_ms();
        ms -= now - last < 5 ? now - last : 5;
        last = now;
    }
}

/* For what has to come: only a test that fails waits so long. */
#define WAIT_MS 30000

#define TURN_UNTIL(f, condition)                             \
    for (int64_t end_ = now_ms() + WAIT_MS; !(condition);) { \
        if (now_ms() >= end_) {                              \
            fail_msg("never happens: %s", #condition);       \
        }                                                    \
        turn(f, 1);                                          \
    }

static inline int dial(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        (void)close(fd);
        return -1;
    }
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* Send all of p while the loop turns; false when the peer closed. */
static inline bool put(struct fix *f, int fd, const char *p, size_t n)
{
    for (int64_t end = now_ms() + WAIT_MS; n > 0 && now_ms() < end;) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else if (errno != EAGAIN) {
            return false;
        }
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    return n == 0;
}

/* Read until `want` is in the text, EOF, or ms are over. *eof tells. */
static inline void get(struct fix *f, int fd, struct buf *b, const char *want,
                       int64_t ms, bool *eof)
{
    *eof = false;
    for (int64_t end = now_ms() + ms; now_ms() < end;) {
        char tmp[65536];
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        ssize_t k = recv(fd, tmp, sizeof(tmp), 0);
        if (k > 0) {
            buf_put(b, tmp, (size_t)k);
            assert_true(buf_ok(b));
        } else if (k == 0 || errno != EAGAIN) {
            *eof = true;
            return;
        }
        if (want != NULL && b->n > 0 && strstr(b->p, want) != NULL) {
            return;
        }
    }
}

/* One exchange on a connection of its own: bytes out, everything that comes
 * back until `want` or EOF. */
static inline const char *talk(struct fix *f, struct buf *b, const char *bytes,
                               const char *want, bool *eof)
{
    int fd = dial(f->path);
    assert_true(fd >= 0);
    buf_clear(b);
    (void)put(f, fd, bytes, strlen(bytes));
    get(f, fd, b, want, WAIT_MS, eof);
    (void)close(fd);
    turn(f, 2);
    return b->n > 0 ? b->p : "";
}

static inline size_t count(const char *s, const char *what)
{
    size_t n = 0;
    for (s = strstr(s, what); s != NULL; s = strstr(s + 1, what)) {
        n++;
    }
    return n;
}

static inline size_t open_fds(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL) {
        return 0;
    }
    while (readdir(d) != NULL) {
        n++;
    }
    (void)closedir(d);
    return n;
}
