/* http.h - HTTP/1.1 over Unix sockets and loopback TCP: listening,
 * connections, routing, replies, streams with back-pressure.
 *
 * Thread: the loop thread. Only this room uses llhttp.
 *
 * A request: the connection parses it, checks it against the limits
 * (proto/limits.h), collects the body, finds the route and calls
 * route->run(req) once. The handler replies at once or later, with exactly one
 * http_reply*, or with http_stream_begin, http_stream_write*, http_stream_end.
 * A request is valid until it was answered completely or, when the client
 * leaves before that, until on_gone was called; then it is freed. A handler
 * that answers later must set on_gone. A client that only shuts its writing
 * side has not left; over TCP it has, for there it looks like one that closed.
 * For a HEAD of a stream, on_gone is called once the head
 * was written, as if the client had left.
 */
#pragma once

#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "proto/limits.h"

struct http_server;
struct http_req;

enum http_method {
    HTTP_M_GET = 1,
    HTTP_M_POST = 2,
    HTTP_M_DELETE = 4,
    HTTP_M_HEAD = 8
};

struct http_args {
    size_t n;
    char v[HTTP_ARGS_MAX][256]; /* percent-decoded {...} parts */
};

/* Requests that wait until the daemon is ready, in the order they came.
 * Listeners may share one. */
struct http_hold {
    bool on;
    const char *early; /* path of a route that does not wait; nor does a page */
    size_t n, max;     /* that wait; more are refused with STARTING */
    struct list waiting;
    struct err answer; /* what later ones get; code 0: they may wait */
};
void http_hold_begin(struct http_hold *h, size_t max, const char *early);
/* Run the requests that wait; later ones do not wait. */
void http_hold_end(struct http_hold *h);
/* Answer the requests that wait with an error, and later ones with STARTING. */
void http_hold_refuse(struct http_hold *h, int code, const char *msg);
/* Answer the requests that wait, and later ones, with an error, until
 * http_hold_begin. */
void http_hold_answer(struct http_hold *h, int code, const char *msg);

struct http_route {
    enum http_method method;
    const char *path; /* "/aned/v1/jobs/{id}"; {id} is one segment */
    void (*run)(struct http_req *r, const struct http_args *a);
    size_t body_max; /* bytes */
};

/* Milliseconds; 0 is the value of proto/limits.h. */
struct http_times {
    unsigned header, request, body_idle, idle, stall;
};

/* What a request over TCP needs (guard.h). Borrowed by the servers; the key may
 * change between requests. */
struct http_guard {
    bool open; /* no key is asked for */
    uint8_t key[HTTP_KEY_DIGEST]; /* SHA-256; zeros fit no key that is known */
    size_t n_origins;             /* pages that may ask */
    char origin[HTTP_ORIGINS_MAX][HTTP_ORIGIN_MAX + 1];
};

struct http_conf {
    const struct http_route *routes; /* static */
    size_t n_routes;
    void *ctx; /* http_ctx() */
    /* Body of an error reply in the dialect of the path; may be NULL for the
     * plain {"error":{"code","message","type"}}. Appends JSON to b. */
    void (*error_body)(const char *path, int code, const char *msg,
                       struct buf *b);
    struct http_hold *hold; /* NULL: none */
    const struct http_guard *guard; /* of TCP sockets; must be given there */
    const char *page; /* path whose answer for browsers (http_wants_page) needs
                         no key: it tells nothing; NULL: none */
    struct http_times times;
    unsigned keepalive_ms; /* silence of an event stream; then a comment or
                              its ping is sent. 0: never */
    size_t conns_max;      /* 0: HTTP_CONNS_MAX; always below RLIMIT_NOFILE */
};

struct http_stats { /* counters since start */
    uint64_t conns, conns_open, requests, responses_4xx, responses_5xx,
        bytes_in, bytes_out, streams_open, streams_stalled, refused_uid,
        refused_key, refused_web; /* by the guard: 401, and all others */
    uint64_t bytes_queued; /* now, on all connections: not yet written */
};

/* Listen on a Unix socket. Its folder must belong to this user with mode 0700;
 * a missing one is made so. A lock file stands beside the socket, and only the
 * lock's owner removes a stale socket. The socket has mode 0600; connections of
 * another uid are closed. After a failure the loop must turn once more before
 * it can be closed.
 * Errors: CONFIG (folder, path length), CONFLICT (another daemon listens). */
CHECKED int http_listen(uv_loop_t *loop, const char *socket_path,
                        const struct http_conf *conf, struct http_server **ret,
                        struct err *e);
/* Listen on a loopback address of TCP. Every request has to get past
 * conf->guard. Errors: CONFIG (the system has no such address), CONFLICT
 * (somebody else has the port). */
struct http_address;
CHECKED int http_listen_tcp(uv_loop_t *loop, const struct http_address *a,
                            const struct http_conf *conf,
                            struct http_server **ret, struct err *e);
/* "127.0.0.1:11435", with the port that it has; NULL: a Unix socket. Lives as
 * long as the server. */
const char *http_tcp_name(const struct http_server *s);
/* The same with a socket passed to the process: fd is listening, on a Unix
 * socket or on a loopback address. */
CHECKED int http_listen_fd(uv_loop_t *loop, int fd,
                           const struct http_conf *conf,
                           struct http_server **ret, struct err *e);
/* Find the listening sockets that the service manager opened for this process:
 * those of LISTEN_FDS (LISTEN_PID is checked, and both are unset so that
 * children do not inherit them) and, on macOS, those of HTTP_LAUNCHD_SOCKET, a
 * key under Sockets in the agent's plist. They become close-on-exec and
 * non-blocking. Those beyond HTTP_LISTENERS_MAX are closed and logged. launchd
 * hands its sockets over once: call it once.
 * Errors: UNAVAILABLE: launchd has such a socket and does not give it. */
#define HTTP_LAUNCHD_SOCKET "aned"
struct http_handed {
    size_t n; /* 0: none */
    int fd[HTTP_LISTENERS_MAX];
};
CHECKED int http_activated(struct http_handed *ret, struct err *e);
/* Send at once what was written in this turn of the loop, not at its end: call
 * it before something that takes time. */
void http_flush(struct http_server *s);
/* Open requests continue, idle connections are closed, answers have Connection:
 * close, a POST is answered 503. From a socket that was passed to the process
 * no connection is accepted any more: new ones wait for the next daemon. */
void http_drain(struct http_server *s);
/* Close everything and unlink the socket that it made; `closed` is called when
 * the last handle is closed and the memory is freed. */
void http_close(struct http_server *s, void (*closed)(void *ctx), void *ctx);
/* Change conf.times.stall and conf.keepalive_ms: for timers that are set from
 * now on. */
void http_set_times(struct http_server *s, unsigned stall_ms,
                    unsigned keepalive_ms);
void http_get_stats(const struct http_server *s, struct http_stats *ret);
size_t http_open_requests(const struct http_server *s);

/* --- the request, for handlers --- */
void *http_ctx(const struct http_req *r);
const char *http_path(const struct http_req *r); /* decoded, without query */
const char *http_query(const struct http_req *r, const char *key, char *out,
                       size_t size); /* NULL when absent */
struct span http_body(const struct http_req *r);
/* Move the body to the caller, who frees it; http_body is empty afterwards. */
void http_take_body(struct http_req *r, struct buf *ret);
const char *http_header(const struct http_req *r,
                        const char *name); /* lower case; NULL */
bool http_is_head(const struct http_req *r); /* a GET without its body */
/* It asks for conf.page, and accepts text/html. Perhaps nobody asked for its
 * key: answer with the page, which is the same for everybody. */
bool http_wants_page(const struct http_req *r);
int64_t http_peer_pid(
    const struct http_req *r); /* -1 when unknown, as over TCP; for logs */
/* A number for the client's process; no later process has the same, even with
 * the same pid. 0 when it is unknown or has ended. The first call on a
 * connection makes system calls. */
uint64_t http_peer_process(const struct http_req *r);
/* A number for fairness between clients: the pid (all ones when unknown). TCP
 * tells of no process: there a client is known by its User-Agent, which all
 * connections of one program share, else by its connection. */
uint64_t http_peer(const struct http_req *r);
bool http_is_tcp(const struct http_req *r);
uint64_t
http_started_ns(const struct http_req *r); /* uv_hrtime() at first byte */

/* When the client leaves, or a write stalls too long, `fn` is called once: from
 * the loop, never from inside a call by the handler. The request is freed after
 * it. */
void http_on_gone(struct http_req *r,
                  void (*fn)(struct http_req *r, void *user), void *user);

/* One whole reply. body is copied. Content-Type: application/json unless
 * another is given. */
void http_reply(struct http_req *r, int status, const char *content_type,
                const void *body, size_t n);
/* The same with more headers: lines that end in CR LF, of ours, at most
 * HTTP_EXTRA_MAX bytes. */
void http_reply_with(struct http_req *r, int status, const char *content_type,
                     const char *headers, const void *body, size_t n);
/* The same for a body that may be large. b begins with HTTP_HEAD_ROOM bytes,
 * which the head overwrites; its memory is moved, and b is empty afterwards. */
#define HTTP_HEAD_ROOM 1024
void http_reply_take(struct http_req *r, int status, const char *content_type,
                     struct buf *b);
/* Error reply by code: status and wire name from ERR_MAP; a 503 has a
 * Retry-After. msg may be NULL. */
void http_reply_error(struct http_req *r, int code, const char *msg);
/* The "type" of an error's body, as OpenAI names them: "not_found_error". */
const char *http_error_type(int status);

/* Streams: chunked. content_type "text/event-stream" or others. */
void http_stream_begin(struct http_req *r, int status,
                       const char *content_type);
/* The answer will be a text/event-stream. If it has not begun after
 * conf.keepalive_ms, it begins with what keeps it alive: `ping`, a whole event
 * (static), or a comment where that is NULL. */
void http_stream_expect(struct http_req *r, const char *ping);
bool http_stream_begun(const struct http_req *r);
/* Returns false when the stream should pause because HTTP_OUT_HIGH bytes wait.
 * on_drain's fn is called from the loop when they are below HTTP_OUT_LOW. Data
 * is copied. */
bool http_stream_write(struct http_req *r, const void *p, size_t n);
void http_stream_on_drain(struct http_req *r,
                          void (*fn)(struct http_req *r, void *user));
void http_stream_end(struct http_req *r);
size_t http_stream_queued(const struct http_req *r); /* bytes not yet written */
