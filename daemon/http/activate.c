/* activate.c - sockets that a service manager opened for this process: systemd
 * tells of them in the environment (sd_listen_fds(3)), launchd when it is asked
 * (launch_activate_socket in launch.h). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <launch.h>
#endif

#include "base/log.h"
#include "base/parse.h"
#include "http/conn.h"

#define FD_FIRST 3 /* SD_LISTEN_FDS_START */

/* A manager may hand a socket over as a blocking one that children inherit. */
static bool own(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static void tell_closed(size_t n)
{
    log_warn("http.activated",
             "sockets=%zu are closed: at most %u are served, continuing", n,
             HTTP_LISTENERS_MAX);
}

/* --- systemd --- */

/* Close sockets from which nothing will be accepted, so that no client waits
 * there. An fd that is not a listening socket is left alone, whatever
 * LISTEN_FDS says. */
static void close_extra(uint64_t n)
{
    size_t closed = 0;
    n = n < HTTP_CONNS_MAX ? n : HTTP_CONNS_MAX; /* no more can be open */
    for (size_t i = HTTP_LISTENERS_MAX; i < n; i++) {
        int fd = FD_FIRST + (int)i, on = 0;
        socklen_t len = sizeof(on);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 &&
            on != 0) {
            (void)close(fd);
            closed++;
        }
    }
    tell_closed(closed);
}

static void from_environment(struct http_handed *h)
{
    const char *pid = getenv("LISTEN_PID");
    const char *fds = getenv("LISTEN_FDS");
    uint64_t to = 0; /* the process that they are meant for */
    uint64_t n = 0;
    if (pid == NULL || fds == NULL || !parse_u64(pid, INT32_MAX, &to) ||
        to != (uint64_t)getpid() || !parse_u64(fds, INT32_MAX, &n)) {
        n = 0;
    }
    if (n > HTTP_LISTENERS_MAX) {
        close_extra(n);
        n = HTTP_LISTENERS_MAX;
    }
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    for (size_t i = 0; i < n; i++) {
        h->fd[h->n] = FD_FIRST + (int)i;
        (void)own(h->fd[h->n++]); /* http_listen_fd refuses what is no socket */
    }
}

/* --- launchd --- */

int activate_launchd(launchd_ask_fn *ask, struct http_handed *h, struct err *e)
{
    int *fds = NULL; /* from malloc(3), and ours */
    size_t n = 0;
    int error = ask(HTTP_LAUNCHD_SOCKET, &fds, &n);
    if (error == ENOENT || error == ESRCH) {
        return 0; /* an agent without Sockets; not started by launchd */
    }
    if (error != 0) {
        /* A socket of our own at the same path would take launchd's away. */
        return err_set(e, ERR_UNAVAILABLE,
                       "launchd does not hand over the socket '%s': %s; "
                       "'launchctl bootout' the agent and bootstrap it again",
                       HTTP_LAUNCHD_SOCKET, strerror(error));
    }
    size_t before = h->n;
    for (size_t i = 0; i < n; i++) {
        if (h->n < HTTP_LISTENERS_MAX && own(fds[i])) {
            h->fd[h->n++] = fds[i];
        } else {
            (void)close(fds[i]);
        }
    }
    free(fds);
    if (h->n - before < n) {
        tell_closed(n - (h->n - before));
    }
    return 0;
}

int http_activated(struct http_handed *ret, struct err *e)
{
    struct http_handed h = {.n = 0};
    from_environment(&h);
#if defined(__APPLE__)
    RETERR(activate_launchd(launch_activate_socket, &h, e));
#else
    (void)e;
#endif
    *ret = h;
    return 0;
}
