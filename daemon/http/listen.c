/* listen.c - makes the listening socket, and removes it at the end.
 *
 * The folder is the access control: it belongs to this user, has mode 0700 and
 * is no symbolic link. Only the process that holds the lock on a file beside
 * the socket may bind or unlink the socket; that file is never removed. The
 * lock is needed because connect() cannot tell a stale socket from one that is
 * about to listen (facts/reliability.md V-03). At the end only the socket that
 * this process bound is unlinked. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "http/conn.h"

enum { FDS_RESERVED = 64 };

/* --- the server object --- */

void server_unref(struct http_server *s)
{
    must(s->open > 0);
    if (--s->open > 0) {
        return;
    }
    void (*closed)(void *ctx) = s->closed;
    void *ctx = s->closed_ctx;
    s->magic = 0;
    free(s);
    if (closed != NULL) {
        closed(ctx);
    }
}

static void on_handle_closed(uv_handle_t *h)
{
    server_unref(uv_handle_get_data(h));
}

/* Never so many that accept() runs out of descriptors: libuv would close such
 * connections without a word (facts/reliability.md V-18). */
static size_t conns_limit(const struct http_conf *conf)
{
    size_t max = conf->conns_max != 0 ? conf->conns_max : HTTP_CONNS_MAX;
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
        size_t fds = (size_t)r.rlim_cur;
        size_t free_fds = fds > 2 * FDS_RESERVED ? fds - FDS_RESERVED : fds / 2;
        max = max < free_fds ? max : free_fds;
    }
    return max;
}

void http_flush(struct http_server *s)
{
    while (!list_empty(&s->outbox)) {
        conn_flush(container_of(s->outbox.next, struct http_conn, out));
    }
}

static void on_turn(uv_prepare_t *h)
{
    struct http_server *s = uv_handle_get_data((uv_handle_t *)h);
    s->turn_ns = 0;
    http_flush(s);
    if (s->accept_waits && s->listening) {
        s->accept_waits = false;
        conn_accept(s); /* and libuv tells of the next one again */
    }
}

static struct http_server *server_new(uv_loop_t *loop,
                                      const struct http_conf *conf)
{
    struct http_server *s = calloc(1, sizeof(*s));
    must(s != NULL);
    s->magic = SERVER_MAGIC;
    s->loop = loop;
    s->conf = *conf;
    s->conns_max = conns_limit(conf);
    s->dir_fd = -1;
    s->lock_fd = -1;
    list_init(&s->conns);
    list_init(&s->outbox);
    must(uv_prepare_init(loop, &s->turn) == 0);
    uv_handle_set_data((uv_handle_t *)&s->turn, s);
    must(uv_prepare_start(&s->turn, on_turn) == 0);
    uv_unref((uv_handle_t *)&s->turn);
    s->open = 1;
    return s;
}

static void on_connection(uv_stream_t *st, int status)
{
    struct http_server *s = uv_handle_get_data((uv_handle_t *)st);
    must(s->magic == SERVER_MAGIC);
    if (status < 0) {
        log_warn("http.accept", "error=%s, continuing", uv_strerror(status));
        return;
    }
    if (server_turn_over(s)) { /* a burst of thousands */
        s->accept_waits = true;
        return;
    }
    conn_accept(s);
}

static void open_listener(struct http_server *s, bool tcp)
{
    s->tcp = tcp;
    must((tcp ? uv_tcp_init(s->loop, &s->listener.tcp)
              : uv_pipe_init(s->loop, &s->listener.pipe, 0)) == 0);
    uv_handle_set_data(&s->listener.handle, s);
    s->listening = true;
    s->open++;
}

/* fd becomes the listener's, also on failure. */
static int listen_on(struct http_server *s, int fd, bool tcp, struct err *e)
{
    open_listener(s, tcp);
    int rc = tcp ? uv_tcp_open(&s->listener.tcp, fd)
                 : uv_pipe_open(&s->listener.pipe, fd);
    if (rc < 0) {
        (void)close(fd);
    } else {
        rc = uv_listen(&s->listener.stream, HTTP_BACKLOG, on_connection);
    }
    return rc < 0 ? err_set(e, ERR_CONFIG, "listen: %s", uv_strerror(rc)) : 0;
}

/* Where a TCP listener is in fact. */
static int find_place(struct http_server *s, struct err *e)
{
    struct sockaddr_storage sa = {0};
    int n = sizeof(sa);
    int rc = uv_tcp_getsockname(&s->listener.tcp, (struct sockaddr *)&sa, &n);
    if (rc < 0) {
        return err_set(e, ERR_CONFIG, "getsockname: %s", uv_strerror(rc));
    }
    address_host(&sa, s->place.host);
    s->place.port = address_port(&sa);
    address_text(&sa, s->name);
    return 0;
}

/* --- folder, lock, socket --- */

/* Open the folder of the socket, made when missing. */
static int open_folder(const char *dir, int *ret, struct err *e)
{
    struct stat st;
    int rc = 0;

    if (!file_is_dir(dir)) {
        rc = file_mkdirs(dir, 0700, e);
        if (rc < 0) {
            return err_set(e, ERR_CONFIG, "socket folder %s cannot be made",
                           dir);
        }
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = err_set(e, ERR_CONFIG, "socket folder %s: %s", dir,
                     errno == ENOTDIR || errno == ELOOP
                         ? "not a folder, or a symbolic link"
                         : strerror(errno));
    } else if (st.st_uid != geteuid()) {
        rc = err_set(e, ERR_CONFIG,
                     "socket folder %s belongs to uid %u; choose another with "
                     "--socket",
                     dir, (unsigned)st.st_uid);
    } else if ((st.st_mode & S_ISVTX) != 0) {
        rc = err_set(e, ERR_CONFIG,
                     "socket folder %s is shared with other users; choose "
                     "another with --socket",
                     dir);
    } else if ((st.st_mode & 077) != 0) {
        rc = err_set(e, ERR_CONFIG,
                     "socket folder %s is open to others (mode %04o); "
                     "chmod 700 it, or choose another with --socket",
                     dir, (unsigned)(st.st_mode & 07777));
    }
    if (rc < 0) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return rc;
    }
    *ret = fd;
    return 0;
}

static int take_lock(struct http_server *s, const char *path, struct err *e)
{
    char name[128];
    (void)snprintf(name, sizeof(name), "%s.lock", s->base);
    s->lock_fd = openat(s->dir_fd, name,
                        O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) {
        return err_set(e, ERR_CONFIG, "lock file %s.lock: %s", path,
                       strerror(errno));
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        return err_set(e, ERR_CONFLICT, "another aned serves %s", path);
    }
    return 0;
}

/* With the lock held, what stands at the path is a dead daemon's or not ours
 * to touch. */
static int remove_stale(const struct http_server *s, const char *path,
                        struct err *e)
{
    struct stat st;
    if (fstatat(s->dir_fd, s->base, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT
                   ? 0
                   : err_set(e, ERR_CONFIG, "%s: %s", path, strerror(errno));
    }
    if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid()) {
        return err_set(e, ERR_CONFIG,
                       "%s exists and is not a socket of ours; "
                       "move it away, or choose another with --socket",
                       path);
    }
    if (unlinkat(s->dir_fd, s->base, 0) < 0) {
        return err_set(e, ERR_CONFIG, "%s: %s", path, strerror(errno));
    }
    return 0;
}

/* As bind(2), with mode 0600 from the socket's first moment (V-02). */
static int bind_private(int fd, const struct sockaddr_un *sa)
{
#ifdef __APPLE__
    mode_t mask = umask(0177); /* fchmod has no effect on sockets there */
    int rc = bind(fd, (const struct sockaddr *)sa, sizeof(*sa));
    int error = errno;
    (void)umask(mask);
    errno = error;
    return rc;
#else
    (void)fchmod(fd, 0600);
    return bind(fd, (const struct sockaddr *)sa, sizeof(*sa));
#endif
}

/* The socket at `path`, seen to be in the folder that was checked. */
static int bind_socket(struct http_server *s, const char *path, int *ret,
                       struct err *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct stat st;
    int rc = 0;

    memcpy(sa.sun_path, path, strlen(path) + 1); /* length was checked */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        rc = err_set(e, ERR_CONFIG, "socket: %s", strerror(errno));
        goto out;
    }
    if (bind_private(fd, &sa) < 0) {
        rc = err_set(e, ERR_CONFIG, "bind %s: %s", path, strerror(errno));
        goto out;
    }
    /* bind() went by path: it must have landed in the folder that was checked
     */
    if (fstatat(s->dir_fd, s->base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISSOCK(st.st_mode)) {
        rc = err_set(e, ERR_CONFIG, "%s: the folder was replaced", path);
        goto out;
    }
    s->dev = (uint64_t)st.st_dev;
    s->ino = (uint64_t)st.st_ino;
    *ret = fd;
    fd = -1;
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

static void unlink_ours(struct http_server *s)
{
    struct stat st;
    if (s->dir_fd >= 0 && s->ino != 0 &&
        fstatat(s->dir_fd, s->base, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (uint64_t)st.st_dev == s->dev && (uint64_t)st.st_ino == s->ino) {
        (void)unlinkat(s->dir_fd, s->base, 0);
    }
    s->ino = 0;
}

/* Folder and file name of an absolute or relative path. */
static int split_path(const char *path, char dir[108], char base[108],
                      struct err *e)
{
    struct sockaddr_un sa;
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof(sa.sun_path) || n >= 108) {
        return err_set(e, ERR_CONFIG,
                       "socket path of %zu bytes, the system takes 1 to %zu: "
                       "%.120s",
                       n, sizeof(sa.sun_path) - 1, path);
    }
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return err_set(e, ERR_CONFIG, "socket path %s names a folder", path);
    }
    size_t len = slash == NULL ? 1 : (size_t)(slash - path);
    memcpy(dir, slash == NULL ? "." : path, len);
    dir[len] = '\0';
    if (len == 0) {
        memcpy(dir, "/", 2);
    }
    memcpy(base, name, strlen(name) + 1);
    return 0;
}

int http_listen(uv_loop_t *loop, const char *socket_path,
                const struct http_conf *conf, struct http_server **ret,
                struct err *e)
{
    char dir[108];
    char base[108];
    int fd = -1;
    int rc = split_path(socket_path, dir, base, e);
    if (rc < 0) {
        return rc;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* a vanished reader is an error code */
    struct http_server *s = server_new(loop, conf);
    memcpy(s->base, base, sizeof(base));
    rc = open_folder(dir, &s->dir_fd, e);
    if (rc < 0) {
        goto out;
    }
    rc = take_lock(s, socket_path, e);
    if (rc < 0) {
        goto out;
    }
    rc = remove_stale(s, socket_path, e);
    if (rc < 0) {
        goto out;
    }
    rc = bind_socket(s, socket_path, &fd, e);
    if (rc < 0) {
        goto out;
    }
    rc = listen_on(s, fd, false, e);
    if (rc < 0) {
        goto out;
    }
    *ret = s;
    s = NULL;
out:
    if (s != NULL) {
        http_close(s, NULL, NULL);
    }
    return rc;
}

static int cannot_bind(const struct http_address *a, int why, struct err *e)
{
    char text[HTTP_ADDRESS_TEXT];
    address_text(&a->sa, text);
    if (why == UV_EADDRINUSE) {
        return err_set(e, ERR_CONFLICT,
                       "%s: another program listens there; end it, or choose "
                       "another port in [http] listen",
                       text);
    }
    return err_set(e, ERR_CONFIG, "%s: %s; see [http] listen", text,
                   uv_strerror(why));
}

int http_listen_tcp(uv_loop_t *loop, const struct http_address *a,
                    const struct http_conf *conf, struct http_server **ret,
                    struct err *e)
{
    must(conf->guard != NULL && address_is_loopback(&a->sa));
    (void)signal(SIGPIPE, SIG_IGN);
    struct http_server *s = server_new(loop, conf);
    open_listener(s, true);
    int rc = uv_tcp_bind(&s->listener.tcp, (const struct sockaddr *)&a->sa, 0);
    if (rc == 0) { /* a port in use shows here */
        rc = uv_listen(&s->listener.stream, HTTP_BACKLOG, on_connection);
    }
    rc = rc < 0 ? cannot_bind(a, rc, e) : find_place(s, e);
    if (rc < 0) {
        http_close(s, NULL, NULL);
        return rc;
    }
    *ret = s;
    return 0;
}

const char *http_tcp_name(const struct http_server *s)
{
    return s->tcp ? s->name : NULL;
}

/* What a socket that was passed to the process is: *tcp. */
static int check_handed(int fd, bool guarded, bool *tcp, struct err *e)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof(sa);
    int on = 0;
    socklen_t on_len = sizeof(on);

    bool sound =
        getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &on_len) == 0 &&
        on != 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
    *tcp = sa.ss_family != AF_UNIX;
    if (!sound || (*tcp && (!guarded || !address_is_loopback(&sa)))) {
        return err_set(e, ERR_CONFIG,
                       "fd %d is not a listening Unix socket, nor one on a "
                       "loopback address",
                       fd);
    }
    return 0;
}

int http_listen_fd(uv_loop_t *loop, int fd, const struct http_conf *conf,
                   struct http_server **ret, struct err *e)
{
    bool tcp = false;
    RETERR(check_handed(fd, conf->guard != NULL, &tcp, e));
    (void)signal(SIGPIPE, SIG_IGN);
    struct http_server *s = server_new(loop, conf);
    int rc = listen_on(s, fd, tcp, e);
    if (rc == 0 && tcp) {
        rc = find_place(s, e);
    }
    if (rc < 0) {
        http_close(s, NULL, NULL);
        return rc;
    }
    *ret = s;
    return 0;
}

/* --- the end --- */

static void stop_listening(struct http_server *s)
{
    if (s->listening) {
        s->listening = false;
        unlink_ours(s); /* before the close: no client finds a dead socket */
        uv_close(&s->listener.handle, on_handle_closed);
    }
}

void http_drain(struct http_server *s)
{
    must(s->magic == SERVER_MAGIC);
    s->draining = true;
    if (s->dir_fd < 0) {
        stop_listening(s);
    }
    LIST_EACH(l, &s->conns) {
        struct http_conn *c = container_of(l, struct http_conn, link);
        if (conn_idle(c)) { /* others may have a request on its way */
            conn_close(c);
        }
    }
}

void http_close(struct http_server *s, void (*closed)(void *ctx), void *ctx)
{
    must(s->magic == SERVER_MAGIC && !s->closing);
    s->closing = true;
    s->draining = true;
    s->closed = closed;
    s->closed_ctx = ctx;
    stop_listening(s);
    LIST_EACH(l, &s->conns) {
        struct http_conn *c = container_of(l, struct http_conn, link);
        conn_flush(c); /* what this turn of the loop still wrote */
        conn_close(c);
    }
    if (s->dir_fd >= 0) {
        unlink_ours(s);
        (void)close(s->dir_fd);
    }
    if (s->lock_fd >= 0) {
        (void)close(s->lock_fd);
    }
    uv_close((uv_handle_t *)&s->turn, on_handle_closed);
}

void http_get_stats(const struct http_server *s, struct http_stats *ret)
{
    *ret = s->stats;
    LIST_EACH(l, &s->conns) {
        struct http_conn *c = container_of(l, struct http_conn, link);
        ret->bytes_queued += c->state != CONN_CLOSING ? conn_queued(c) : 0;
    }
}

size_t http_open_requests(const struct http_server *s)
{
    return s->requests;
}
