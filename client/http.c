#include "client/http.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <llhttp.h>

#include "base/file.h"
#include "client/client.h"

/* --- where --- */

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

bool http_home(char *out, size_t size)
{
    const char *home = env("ANED_HOME");
    const char *user = env("HOME");
#if defined(__APPLE__)
    static const char tail[] = "Library/Application Support/dev.aned.daemon";
#else
    static const char tail[] = ".local/share/aned";
#endif
    if (home != NULL) {
        return snprintf(out, size, "%s", home) < (int)size;
    }
    return user != NULL && file_join(out, size, user, tail);
}

size_t http_peer_path_max(void)
{
    struct sockaddr_un sa;
    return sizeof(sa.sun_path) - 1;
}

int http_peer_find(struct http_peer *p, const char *given, struct err *e)
{
    char home[400];
    const char *xdg = env("XDG_RUNTIME_DIR");
    const char *path = given != NULL ? given : env("ANED_SOCKET");
    bool ok = false;

    p->named = path != NULL;
    if (path != NULL) {
        ok = snprintf(p->path, sizeof(p->path), "%s", path) <
             (int)sizeof(p->path);
    } else if (xdg != NULL && xdg[0] == '/') {
        ok = file_join(p->path, sizeof(p->path), xdg, "aned/aned.sock");
    } else {
        ok = http_home(home, sizeof(home)) &&
             file_join(p->path, sizeof(p->path), home, "run/aned.sock");
    }
    if (!ok || p->path[0] == '\0' || strlen(p->path) > http_peer_path_max()) {
        return err_set(e, ERR_CONFIG,
                       "no usable socket path; give --socket PATH (at most "
                       "%zu bytes)",
                       http_peer_path_max());
    }
    return 0;
}

static int too_late(struct err *e)
{
    return err_set(e, ERR_TIMEOUT, "the daemon does not answer in time");
}

/* connect and write wait no longer than until the peer's end. */
static void limit(const struct http_peer *p, int fd)
{
    if (p->end_s > 0) {
        double left = p->end_s - now_seconds();
        long ms = left > 0.001 ? (long)(left * 1000) : 1; /* 0: no limit */
        struct timeval t = {.tv_sec = ms / 1000,
                            .tv_usec = (int)(ms % 1000) * 1000};
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
    }
}

static int dial(const struct http_peer *p, int *ret, struct err *e)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    bool tcp = p->tcp_len > 0;
    const struct sockaddr *sa = (const struct sockaddr *)&un;
    if (tcp) {
        sa = (const struct sockaddr *)&p->tcp;
    } else {
        memcpy(un.sun_path, p->path, strlen(p->path) + 1);
    }
    int fd = socket(sa->sa_family, SOCK_STREAM, 0);
    if (fd < 0) {
        return err_errno(e, errno, "socket");
    }
    limit(p, fd);
    if (connect(fd, sa, tcp ? p->tcp_len : sizeof(un)) == 0) {
        *ret = fd;
        return 0;
    }
    int why = errno;
    (void)close(fd);
    if (why == EACCES || why == EPERM) {
        return err_set(e, ERR_UNAVAILABLE, "%s belongs to another user",
                       p->path);
    }
    if (why == EAGAIN || why == EINPROGRESS) {
        return too_late(e);
    }
    return err_set(e, ERR_UNAVAILABLE, "no aned listens on %s", p->path);
}

/* --- one exchange --- */

struct exchange {
    llhttp_t ll;
    llhttp_settings_t settings;
    http_data_fn *fn;
    void *user;
    struct buf *out;
    struct err *e;
    int rc;
    bool done;
};

static struct exchange *of(llhttp_t *ll)
{
    return container_of(ll, struct exchange, ll);
}

static int on_body(llhttp_t *ll, const char *p, size_t n)
{
    struct exchange *x = of(ll);
    int status = llhttp_get_status_code(ll);
    if (x->fn != NULL && status >= 200 && status < 300) {
        x->rc = x->fn(x->user, p, n, x->e);
    } else {
        buf_put(x->out, p, n);
        if (!buf_ok(x->out)) {
            x->rc = err_set(x->e, ERR_TOO_BIG, "an answer over %zu bytes",
                            x->out->max);
        }
    }
    return x->rc == 0 ? 0 : HPE_USER;
}

static int on_message_complete(llhttp_t *ll)
{
    of(ll)->done = llhttp_get_status_code(ll) >= 200; /* not 100 Continue */
    return of(ll)->done ? HPE_PAUSED : 0;
}

/* 0, or CANCELLED when the user pressed Ctrl-C. */
static int check_interrupt(struct err *e)
{
    return interrupted != 0 ? err_set(e, ERR_CANCELLED, "interrupted") : 0;
}

static int send_all(int fd, const struct buf *b, struct err *e)
{
    for (size_t at = 0; at < b->n;) {
        ssize_t k = write(fd, b->p + at, b->n - at);
        if (k > 0) {
            at += (size_t)k;
        } else if (errno == EINTR) {
            int rc = check_interrupt(e);
            if (rc < 0) {
                return rc;
            }
        } else {
            /* A daemon may answer and close before it has read it all. */
            return errno == EPIPE    ? 0
                   : errno == EAGAIN ? too_late(e)
                                     : err_errno(e, errno, "write");
        }
    }
    return 0;
}

/* Until there is something to read; at most until end_s. */
static int await_answer(int fd, double end_s, struct err *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (end_s > 0 && interrupted == 0) {
        double left = end_s - now_seconds();
        if (left <= 0) {
            return too_late(e);
        }
        int n = poll(&p, 1, left > 60 ? 60000 : (int)(left * 1000) + 1);
        if (n > 0 || (n < 0 && errno != EINTR)) {
            break;
        }
    }
    return 0;
}

static int receive(int fd, double end_s, struct exchange *x)
{
    static char in[65536];
    while (!x->done) {
        /* Every time: of a fast answer Ctrl-C rarely meets the read itself. */
        RETERR(await_answer(fd, end_s, x->e));
        RETERR(check_interrupt(x->e));
        ssize_t k = read(fd, in, sizeof(in));
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0 && errno != ECONNRESET) {
            return err_errno(x->e, errno, "read");
        }
        llhttp_errno_t rc = k > 0 ? llhttp_execute(&x->ll, in, (size_t)k)
                                  : llhttp_finish(&x->ll);
        if (x->rc != 0) {
            return x->rc;
        }
        if (rc != HPE_OK && !x->done) {
            return err_set(x->e, ERR_HTTP, "not an HTTP answer: %s",
                           llhttp_errno_name(rc));
        }
        if (k <= 0 && !x->done) {
            return err_set(x->e, ERR_UNAVAILABLE,
                           "the daemon closed the connection");
        }
    }
    return 0;
}

int http_request(const struct http_peer *p, const char *method,
                 const char *path, const void *body, size_t n_body,
                 http_data_fn *fn, void *user, int *status, struct buf *out,
                 struct err *e)
{
    struct exchange x = {.fn = fn, .user = user, .out = out, .e = e};
    struct buf req;
    int fd = -1;

    buf_init(&req, n_body + 8192);
    buf_printf(&req,
               "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: anectl/%s\r\n"
               "Connection: close\r\n",
               method, path, p->tcp_len > 0 ? p->host : "aned", ANED_VERSION);
    if (p->tcp_len > 0 && p->key.s[0] != '\0') {
        buf_printf(&req, "Authorization: Bearer %s\r\n", p->key.s);
    }
    if (body != NULL) {
        buf_printf(&req,
                   "Content-Type: application/json\r\n"
                   "Content-Length: %zu\r\n",
                   n_body);
    }
    buf_puts(&req, "\r\n");
    buf_put(&req, body != NULL ? body : "", n_body);

    llhttp_settings_init(&x.settings);
    x.settings.on_body = on_body;
    x.settings.on_message_complete = on_message_complete;
    llhttp_init(&x.ll, HTTP_RESPONSE, &x.settings);

    int rc = 0;
    CHECK(buf_ok(&req) ? dial(p, &fd, e)
                       : err_set(e, ERR_TOO_BIG, "the path is too long"));
    CHECK(send_all(fd, &req, e));
    CHECK(receive(fd, p->end_s, &x));
    *status = llhttp_get_status_code(&x.ll);
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    buf_fini(&req);
    return rc;
}
