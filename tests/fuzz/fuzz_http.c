/* fuzz_http.c - bytes to a connection. The first byte of the input seeds the
 * places where the rest is cut.
 *
 * Twice over the same bytes: the parser alone, whole and cut, which must give
 * the same verdict and body; then a live server over a Unix socket, with
 * handlers that answer at once, later, as a stream, and never. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/parse.h"
#include "http/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* --- parser --- */

static size_t piece(uint32_t *seed, size_t left)
{
    *seed = *seed * 1664525u + 1013904223u;
    size_t k = 1 + (*seed >> 24) % 40;
    return k < left ? k : left;
}

struct verdict {
    int rc;
    size_t requests, bytes; /* complete ones; of their bodies */
};

static struct verdict parse(const char *p, size_t n, uint32_t seed, bool cut)
{
    struct verdict v = {0};
    struct http_parse ps;
    struct http_msg m;
    size_t at = 0;

    http_parse_init(&ps);
    http_msg_init(&m);
    m.body.max = 256;
    http_parse_begin(&ps, &m);
    while (v.rc >= 0 && (at < n || v.rc == HTTP_PARSE_HEAD)) {
        size_t used = 0;
        size_t k = cut && at < n ? piece(&seed, n - at) : n - at;
        v.rc = http_parse_feed(&ps, p + at, k, &used);
        must(used <= k);
        at += used;
        if (v.rc == HTTP_PARSE_DONE) {
            must(m.body.n <= 256 && m.target.n <= HTTP_URL_MAX);
            v.requests++;
            v.bytes += m.body.n;
            http_msg_fini(&m);
            http_msg_init(&m);
            m.body.max = 256;
            http_parse_begin(&ps, &m);
        }
    }
    http_msg_fini(&m);
    return v;
}

/* --- server --- */

static void reply_now(struct http_req *r, const struct http_args *a)
{
    char q[16];
    (void)a;
    (void)http_query(r, "q", q, sizeof(q));
    http_reply(r, 200, NULL, "{}", 2);
}

static void gone(struct http_req *r, void *user)
{
    (void)r;
    (void)user;
}

static void reply_never(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_on_gone(r, gone, NULL);
}

static struct http_req *later; /* answered on the next round */

static void later_gone(struct http_req *r, void *user)
{
    (void)r;
    (void)user;
    later = NULL;
}

static void reply_later(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_on_gone(r, later_gone, NULL);
    later = r;
}

static void reply_stream(struct http_req *r, const struct http_args *a)
{
    http_stream_begin(r, 200, "text/plain");
    (void)http_stream_write(r, a->v[0], strlen(a->v[0]));
    http_stream_end(r);
}

static const struct http_route table[] = {
    {HTTP_M_GET,  "/",      reply_now,    0  },
    {HTTP_M_POST, "/",      reply_now,    256},
    {HTTP_M_GET,  "/later", reply_later,  0  },
    {HTTP_M_GET,  "/never", reply_never,  0  },
    {HTTP_M_GET,  "/s/{}",  reply_stream, 0  },
};

static uv_loop_t loop;
static char dir[] = "/tmp/aned-fuzz-XXXXXX";
static struct sockaddr_un where;

static void cleanup(void)
{
    (void)unlink(where.sun_path);
    (void)rmdir(dir);
}

static void server_up(void)
{
    static const struct http_conf conf = {.routes = table,
                                          .n_routes = countof(table)};
    struct http_server *s = NULL;
    struct err e = {0};

    must(uv_loop_init(&loop) == 0 && mkdtemp(dir) != NULL);
    where.sun_family = AF_UNIX;
    (void)snprintf(where.sun_path, sizeof(where.sun_path), "%s/s", dir);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    must(bind(fd, (struct sockaddr *)&where, sizeof(where)) == 0 &&
         listen(fd, 16) == 0 && http_listen_fd(&loop, fd, &conf, &s, &e) == 0);
    (void)atexit(cleanup);
}

static void turn(int fd)
{
    char sink[4096];
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    if (later != NULL) {
        struct http_req *r = later;
        later = NULL;
        http_reply(r, 200, NULL, "{}", 2);
    }
    while (recv(fd, sink, sizeof(sink), 0) > 0) {
    }
}

static void serve(const char *p, size_t n, uint32_t seed)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    must(connect(fd, (struct sockaddr *)&where, sizeof(where)) == 0 &&
         fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    for (size_t at = 0; at < n;) {
        size_t k = seed % 2 == 0 ? n - at : piece(&seed, n - at);
        ssize_t w = send(fd, p + at, k, MSG_NOSIGNAL);
        if (w < 0 && errno != EAGAIN) {
            break;
        }
        at += w > 0 ? (size_t)w : k;
        turn(fd);
    }
    turn(fd);
    turn(fd);
    (void)close(fd);
    for (int i = 0; i < 4; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    must(later == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static bool ready;
    if (n < 1 || n > 65536) {
        return 0;
    }
    if (!ready) {
        ready = true;
        server_up();
    }
    uint32_t seed = p[0];
    const char *s = (const char *)p + 1;
    n--;
    struct verdict a = parse(s, n, seed, false);
    struct verdict b = parse(s, n, seed, true);
    must(a.requests == b.requests && a.bytes == b.bytes);
    must(a.rc < 0 ? a.rc == b.rc : b.rc >= 0);

    struct http_args args;
    const struct http_route *r = NULL;
    unsigned allow = 0;
    char out[64];
    (void)!http_route_find(table, countof(table), HTTP_M_GET,
                           (struct span){s, n}, &r, &args, &allow);
    (void)!http_decode(s, n, true, out, sizeof(out));
    serve(s, n, seed);
    return 0;
}
