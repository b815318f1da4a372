/* conn.h - what the files of this room share: server, connection, request. */
#pragma once

#include "base/list.h"
#include "http/address.h"
#include "http/guard.h"
#include "http/parse.h"

#define SERVER_MAGIC 0x68747376u
#define CONN_MAGIC   0x68746370u
#define REQ_MAGIC    0x68747271u

/* A Unix socket or a TCP one; `stream` is what both are. */
union http_stream {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tcp_t tcp;
};

struct http_server {
    uint32_t magic;
    uv_loop_t *loop;
    struct http_conf conf;
    struct http_stats stats;
    union http_stream listener;
    bool tcp;
    struct http_place place; /* where it listens on TCP: what Host may say */
    char name[HTTP_ADDRESS_TEXT]; /* that as text; "" on a Unix socket */
    /* Called before the loop sleeps: writes what this turn of the loop has
     * produced. Open until http_close, so that the loop always has a close
     * callback to call, even when nothing else is open. */
    uv_prepare_t turn;
    struct list outbox; /* connections whose bytes this turn has to write */
    uint64_t turn_ns;   /* when this turn's first request was read; 0: none */
    bool accept_waits;  /* the next turn accepts a connection */
    bool listening, draining, closing;
    unsigned open; /* handles and connections alive */
    struct list conns;
    size_t conns_max;
    size_t requests;     /* that handlers have not answered yet */
    size_t body_bytes;   /* of all requests in memory */
    int dir_fd, lock_fd; /* -1 for a socket that was passed to the process */
    char base[108];      /* the socket's name in dir_fd */
    char date[64];       /* the header of date_at, Unix seconds */
    int64_t date_at;
    uint64_t dev, ino;   /* what was bound: only that is unlinked */
    void (*closed)(void *ctx);
    void *closed_ctx;
    char in[KIB(64)]; /* the buffer of every read */
};

/*   accept -> READ --complete--> BUSY --answered--> FLUSH --written--> READ
 *              |                                      |
 *              +--refused (4xx, 503)----------------> +--> LINGER -> CLOSING
 * conn_close() goes to CLOSING from any state; on_closed frees the memory. */
enum conn_state { CONN_READ, CONN_BUSY, CONN_FLUSH, CONN_LINGER, CONN_CLOSING };

struct http_conn {
    uint32_t magic;
    enum conn_state state;
    struct http_server *srv;
    struct list link;
    struct list out; /* in the server's outbox */
    unsigned open;   /* peer and timer */
    union http_stream peer;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct http_parse parse;
    struct http_req *req; /* NULL between requests */
    struct buf ahead;     /* bytes read while a request was being answered */
    struct buf flying;    /* of the write in flight */
    struct buf waiting;   /* of the next write, from byte `skip` on */
    size_t skip;
    bool in_flight, eof, reading;
    bool later;        /* a later turn of the loop reads `ahead` */
    bool keep;         /* the connection stays open after the answer */
    size_t linger;     /* bytes still to read and drop after a refusal */
    size_t stall_mark; /* bytes queued when the stall timer was set */
    unsigned n_requests;
    int64_t peer_pid;
    uint64_t peer_process; /* set by the first http_peer_process() */
    uint64_t number;       /* among the connections of this server */
};

struct http_req {
    uint32_t magic;
    struct http_conn *conn;
    struct http_msg msg;
    const char *query; /* in msg.target; "" when none */
    const struct http_route *route;
    struct http_args args;
    unsigned allow; /* for a 405 */
    bool page;      /* http_wants_page */
    struct guard_pass pass; /* how it got past the guard of a TCP socket */
    const char *why;        /* what the guard said against it */
    uint64_t started_ns;
    size_t body_counted; /* in srv->body_bytes */
    struct list held;    /* in http_hold */
    bool running;        /* the handler was called, or will be */
    bool streaming;
    bool raw;          /* stream without chunks: HTTP/1.0 */
    bool headed;       /* HEAD of a stream: the answer is the head alone */
    bool paused;       /* http_stream_write returned false */
    bool events;       /* comments, or its ping, keep it alive */
    const char *ping;  /* NULL: a comment */
    uint64_t wrote_ms; /* uv_now() of its last bytes */
    void (*on_gone)(struct http_req *r, void *user);
    void (*on_drain)(struct http_req *r, void *user);
    void *user;
    char path[HTTP_URL_MAX + 1]; /* the last: only the rest is cleared */
};

/* conn.c */
void conn_accept(struct http_server *s);
void conn_close(struct http_conn *c);
/* Whether its requests were answered and it has sent nothing since, also
 * nothing that the kernel still holds: closing it loses no request. */
bool conn_idle(const struct http_conn *c);
/* Whether the client has closed, or cannot receive any more. */
bool conn_hung_up(const struct http_conn *c);
/* Append bytes to be written when this turn of the loop ends. */
void conn_write(struct http_conn *c, const void *p, size_t n);
/* The same with the bytes of b from `from` on; b is empty afterwards. */
void conn_take(struct http_conn *c, struct buf *b, size_t from);
/* Write what waits, unless a write is in flight. */
void conn_flush(struct http_conn *c);
/* Call when nothing is being written: wait for what the client sends next. */
void conn_wait(struct http_conn *c);
size_t conn_queued(const struct http_conn *c);
/* The answer is complete and queued: the request is freed. */
void conn_answered(struct http_conn *c);
void server_unref(struct http_server *s); /* one of `open` was closed */
/* For conn_read.c: */
struct http_conn *conn_of(void *handle);
void conn_arm(struct http_conn *c, uint64_t after_ms); /* its one timer */
unsigned conn_ms(unsigned own, unsigned limit);        /* own 0: not set */
/* Free a large buffer: a connection that waits keeps none. */
void conn_trim(struct buf *b);

/* conn_read.c */
/* Parse the bytes in `ahead`, then read more. */
void conn_read_on(struct http_conn *c);
/* Whether requests have used up the time that one turn of the loop may take. */
bool server_turn_over(struct http_server *s);
/* The timer's callback for a connection with `later` set. */
void conn_read_later(struct http_conn *c);
/* Answer an error to the request that is being sent; end the connection. */
void conn_refuse(struct http_conn *c, int code);
void req_free(struct http_req *r); /* NULL is fine */

/* peer.c: 0 when the peer has this process's uid; *pid is its pid when it
 * connected (-1: unknown). < 0 for any other peer, and when it is not known. */
CHECKED int peer_check(int fd, int64_t *pid);
/* The part of http_activated that asks launchd, with launch_activate_socket for
 * `ask`: 0, or an error number; *fds is from malloc(3). */
typedef int launchd_ask_fn(const char *name, int **fds, size_t *n);
CHECKED int activate_launchd(launchd_ask_fn *ask, struct http_handed *h,
                             struct err *e);
/* http_peer_process of a pid. */
uint64_t peer_process(int64_t pid);

/* reply.c */
const char *http_reason(int status);
/* Status line and headers; length < 0 means chunked (or close, for 1.0). */
void reply_head(struct http_req *r, int status, const char *type,
                int64_t length, const char *extra, struct buf *out);
/* Answer a preflight that got past the guard. */
void reply_preflight(struct http_req *r);
