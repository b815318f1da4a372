/* http.h - HTTP/1.1 over Unix sockets (and, later, loopback TCP): listening,
 * connections, routing, replies, streams with back-pressure.
 *
 * Thread: the loop thread. llhttp is known to this room alone.
 *
 * Life of a request: the connection parses it, enforces limits (proto/limits.h,
 * facts/reliability.md 3.5, 3.6), collects the body, finds the route and calls
 * route->run(req) once. The handler replies now or later: exactly one
 * http_reply*, or http_stream_begin, http_stream_write*, http_stream_end.
 * A request stays valid until it was answered completely and, when the client
 * goes away before that, until on_gone was called; after either the pointer is
 * dead. Handlers that answer later must set on_gone. A client that only shuts
 * its writing side has not gone away. HEAD of a stream ends like one whose
 * client left: on_gone comes once its head was written.
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
    char v[HTTP_ARGS_MAX][256]; /* percent-decoded {} parts */
};

/* Requests that wait until the daemon is ready: of all listeners that share it,
 * in the order they came. */
struct http_hold {
    bool on;
    const char *early; /* path of the route that does not wait */
    size_t n, max;     /* that wait; more are refused with STARTING */
    struct list waiting;
};
void http_hold_begin(struct http_hold *h, size_t max, const char *early);
/* Run them; later ones do not wait. */
void http_hold_end(struct http_hold *h);
/* Answer them with an error, and later ones with STARTING. */
void http_hold_refuse(struct http_hold *h, int code, const char *msg);

struct http_route {
    enum http_method method;
    const char *path; /* "/aned/v1/jobs/{}"; {} is one segment */
    void (*run)(struct http_req *r, const struct http_args *a);
    size_t body_max; /* bytes */
};

/* Milliseconds; 0 is the value of proto/limits.h. */
struct http_times {
    unsigned header, request, body_idle, idle, stall;
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
    struct http_times times;
    unsigned keepalive_ms; /* silence of an event stream; then a comment is
                              sent. 0: never */
    size_t conns_max;      /* 0: HTTP_CONNS_MAX; always below RLIMIT_NOFILE */
};

struct http_stats { /* counters since start */
    uint64_t conns, conns_open, requests, responses_4xx, responses_5xx,
        bytes_in, bytes_out, streams_open, streams_stalled, refused_uid;
    uint64_t bytes_queued; /* now, on all connections: not yet written */
};

/* Listen on a Unix socket: the folder (made 0700 when missing) must be ours and
 * 0700; lock file beside the socket; stale socket removed by the lock's
 * owner only; socket 0600; peers of another uid are closed.
 * After a failure the loop has to turn once more before it can be closed.
 * Errors: CONFIG (folder, path length), CONFLICT (another daemon listens). */
CHECKED int http_listen(uv_loop_t *loop, const char *socket_path,
                        const struct http_conf *conf, struct http_server **ret,
                        struct err *e);
/* The same with sockets handed over (LISTEN_FDS): fd is already listening. */
CHECKED int http_listen_fd(uv_loop_t *loop, int fd,
                           const struct http_conf *conf,
                           struct http_server **ret, struct err *e);
/* Sockets handed over by the service manager: checks LISTEN_PID and
 * LISTEN_FDS, unsets them so that children do not inherit them, and returns
 * how many there are; they are fds HTTP_FD_FIRST and up. 0 when none. Those
 * beyond HTTP_LISTENERS_MAX are closed and logged. */
#define HTTP_FD_FIRST 3
int http_activated(void);
/* What was written in this turn of the loop goes out now, not at its end:
 * something that takes time follows. */
void http_flush(struct http_server *s);
/* Open requests go on, idle connections are closed, answers say Connection:
 * close; a POST is answered 503. A socket handed over is not accepted from any
 * more: what connects waits there for the next daemon. */
void http_drain(struct http_server *s);
/* Close everything; `closed` is called when the last handle is gone and the
 * memory is freed. Unlinks the socket it made. */
void http_close(struct http_server *s, void (*closed)(void *ctx), void *ctx);
void http_get_stats(const struct http_server *s, struct http_stats *ret);
size_t http_open_requests(const struct http_server *s);

/* --- the request, for handlers --- */
void *http_ctx(const struct http_req *r);
const char *http_path(const struct http_req *r); /* decoded, without query */
const char *http_query(const struct http_req *r, const char *key, char *out,
                       size_t size); /* NULL when absent */
struct span http_body(const struct http_req *r);
/* The body becomes the caller's, who frees it; http_body is empty after it. */
void http_take_body(struct http_req *r, struct buf *ret);
const char *http_header(const struct http_req *r,
                        const char *name); /* lower case; NULL */
bool http_is_head(const struct http_req *r); /* a GET without its body */
int64_t http_peer_pid(
    const struct http_req *r); /* -1 when unknown; for logs and fairness */
/* The process that connected: a number that no later one has, whatever its pid.
 * 0 when it is unknown or has ended. Asks the system, once a connection. */
uint64_t http_peer_process(const struct http_req *r);
uint64_t
http_started_ns(const struct http_req *r); /* uv_hrtime() at first byte */

/* The client went away, or the write stalled too long: `fn` is called once,
 * from the loop, never from inside a call of the handler's own; the request is
 * dead after it. */
void http_on_gone(struct http_req *r,
                  void (*fn)(struct http_req *r, void *user), void *user);

/* One whole reply. body is copied. Content-Type: application/json unless
 * another is given. */
void http_reply(struct http_req *r, int status, const char *content_type,
                const void *body, size_t n);
/* The same of a body that may be large: b begins with HTTP_HEAD_ROOM bytes for
 * the head, and is taken over: empty after it. */
#define HTTP_HEAD_ROOM 1024
void http_reply_take(struct http_req *r, int status, const char *content_type,
                     struct buf *b);
/* Error reply by code: status and wire name from ERR_MAP; 503s carry
 * Retry-After. msg may be NULL. */
void http_reply_error(struct http_req *r, int code, const char *msg);
/* The "type" of an error's body, as OpenAI names them: "not_found_error". */
const char *http_error_type(int status);

/* Streams: chunked. content_type "text/event-stream" or others. */
void http_stream_begin(struct http_req *r, int status,
                       const char *content_type);
/* The answer is going to be text/event-stream: a comment begins it when that
 * takes longer than conf.keepalive_ms. */
void http_stream_expect(struct http_req *r);
bool http_stream_begun(const struct http_req *r);
/* Returns false when the stream should pause: HTTP_OUT_HIGH bytes wait; `drain`
 * is called (loop, later) when below HTTP_OUT_LOW. Data is copied. */
bool http_stream_write(struct http_req *r, const void *p, size_t n);
void http_stream_on_drain(struct http_req *r,
                          void (*fn)(struct http_req *r, void *user));
void http_stream_end(struct http_req *r);
size_t http_stream_queued(const struct http_req *r); /* bytes not yet written */
