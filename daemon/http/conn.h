/* conn.h - what the files of this room share: server, connection, request. */
#pragma once

#include "base/list.h"
#include "http/parse.h"

#define SERVER_MAGIC 0x68747376u
#define CONN_MAGIC   0x68746370u
#define REQ_MAGIC    0x68747271u

struct http_server {
    uint32_t magic;
    uv_loop_t *loop;
    struct http_conf conf;
    struct http_stats stats;
    uv_pipe_t listener;
    /* Before the loop sleeps: writes what this turn of it made. Open until
     * http_close: its close callback comes from the loop even when nothing else
     * is open. */
    uv_prepare_t turn;
    struct list outbox; /* connections with bytes that were not tried yet */
    uint64_t turn_ns;   /* when this turn's first request was read; 0: none */
    bool accept_waits;  /* a connection is there, for the next turn */
    bool listening, draining, closing;
    unsigned open; /* handles and connections alive */
    struct list conns;
    size_t conns_max;
    size_t requests;     /* given to handlers, not answered yet */
    size_t body_bytes;   /* of all requests being held */
    int dir_fd, lock_fd; /* -1 with a socket handed over */
    char base[108];      /* the socket's name in dir_fd */
    char date[64];       /* the header of date_at, Unix seconds */
    int64_t date_at;
    uint64_t dev, ino;   /* what was bound: only that is unlinked */
    void (*closed)(void *ctx);
    void *closed_ctx;
    char in[KIB(64)]; /* every read lands here first */
};

/*   accept -> READ --complete--> BUSY --answered--> FLUSH --written--> READ
 *              |                                      |
 *              +--refused (4xx, 503)----------------> +--> LINGER -> CLOSING
 * CLOSING from anywhere by conn_close(); the memory goes in on_closed. */
enum conn_state { CONN_READ, CONN_BUSY, CONN_FLUSH, CONN_LINGER, CONN_CLOSING };

struct http_conn {
    uint32_t magic;
    enum conn_state state;
    struct http_server *srv;
    struct list link;
    struct list out; /* in the server's outbox */
    unsigned open;   /* pipe and timer */
    uv_pipe_t pipe;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct http_parse parse;
    struct http_req *req; /* NULL between requests */
    struct buf ahead;     /* read while a request was being answered */
    struct buf flying;    /* in the write in flight */
    struct buf waiting;   /* goes with the next one, from byte `skip` on */
    size_t skip;
    bool in_flight, eof, reading;
    bool later;        /* what is ahead is for another turn of the loop */
    bool keep;         /* after the answer */
    size_t linger;     /* bytes still read away after a refusal */
    size_t stall_mark; /* bytes queued when the stall timer was set */
    unsigned n_requests;
    int64_t peer_pid;
    uint64_t peer_process; /* http_peer_process(), once it was asked for */
};

struct http_req {
    uint32_t magic;
    struct http_conn *conn;
    struct http_msg msg;
    const char *query; /* in msg.target; "" when none */
    const struct http_route *route;
    struct http_args args;
    unsigned allow; /* for a 405 */
    uint64_t started_ns;
    size_t body_counted; /* in srv->body_bytes */
    struct list held;    /* in http_hold */
    bool running;        /* the handler has it, or will */
    bool streaming;
    bool raw;          /* stream without chunks: HTTP/1.0 */
    bool headed;       /* HEAD of a stream: its head is all of the answer */
    bool paused;       /* http_stream_write said false */
    bool events;       /* comments keep it alive */
    uint64_t wrote_ms; /* uv_now() of its last bytes */
    void (*on_gone)(struct http_req *r, void *user);
    void (*on_drain)(struct http_req *r, void *user);
    void *user;
    char path[HTTP_URL_MAX + 1]; /* the last: only the rest is cleared */
};

/* conn.c */
void conn_accept(struct http_server *s);
void conn_close(struct http_conn *c);
/* It has been answered and has said nothing since, not even what the kernel
 * still holds: closing it loses no request. */
bool conn_idle(const struct http_conn *c);
/* The client has closed, or can be told nothing any more. */
bool conn_hung_up(const struct http_conn *c);
/* Append to what goes out, together, when this turn of the loop ends. */
void conn_write(struct http_conn *c, const void *p, size_t n);
/* The same of what b holds from byte `from` on; b is empty after it. */
void conn_take(struct http_conn *c, struct buf *b, size_t from);
/* Write what waits, unless a write is in flight. */
void conn_flush(struct http_conn *c);
/* Nothing is being written: wait for whatever comes next. */
void conn_wait(struct http_conn *c);
size_t conn_queued(const struct http_conn *c);
/* The answer is complete and queued: the request is freed. */
void conn_answered(struct http_conn *c);
void server_unref(struct http_server *s); /* one of `open` is gone */
/* For conn_read.c: */
struct http_conn *conn_of(void *handle);
void conn_arm(struct http_conn *c, uint64_t after_ms); /* its one timer */
unsigned conn_ms(unsigned own, unsigned limit);        /* own 0: not set */
/* Big bodies and replies leave big buffers; a connection that waits keeps
 * none. */
void conn_trim(struct buf *b);

/* conn_read.c */
/* Use what was read ahead, then read on. */
void conn_read_on(struct http_conn *c);
/* What this turn of the loop may take for requests is used up. */
bool server_turn_over(struct http_server *s);
/* The timer of one that was put off. */
void conn_read_later(struct http_conn *c);
/* Answer an error to whatever is being sent, and end the connection. */
void conn_refuse(struct http_conn *c, int code);
void req_free(struct http_req *r); /* NULL is fine */

/* peer.c: 0 when the peer has our uid, with its pid (-1 when unknown) as it was
 * at connect; < 0 for anybody else and on any doubt. */
CHECKED int peer_check(int fd, int64_t *pid);
/* http_peer_process of a pid. */
uint64_t peer_process(int64_t pid);

/* reply.c */
const char *http_reason(int status);
/* Status line and headers; length < 0 means chunked (or close, for 1.0). */
void reply_head(struct http_req *r, int status, const char *type,
                int64_t length, const char *extra, struct buf *out);
