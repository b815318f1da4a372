/* conn.c - opens, writes and closes connections (states: conn.h; reading:
 * conn_read.c).
 *
 * Invariants:
 *  (1) At most one request of a connection is being read or answered. Bytes
 *      that the client sends meanwhile wait in `ahead`, up to HTTP_AHEAD_MAX.
 *  (2) All that a turn of the loop writes to a connection is sent in one piece
 *      at its end: the head and the first event, or the last events, cost one
 *      system call. At most one write is in flight; bytes queued meanwhile are
 *      sent with the next one.
 *  (3) The next request is read when the last answer is written completely.
 *  (4) conn_close() calls no handler: on_closed calls on_gone.
 *  (5) End of input alone does not mean that the client has left: one that shut
 *      its writing side gets answers to all its requests. One that closed has
 *      left; where reading does not show that, the kernel is asked every
 *      HUP_CHECK_MS. Over TCP the two look the same, and the end of input does
 *      mean that the client has left.
 *  (6) HEAD of a stream is answered by the head alone; then on_gone tells the
 *      handler, in the loop's next turn, to stop.
 */
#include "http/conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/num.h"

#define HUP_CHECK_MS 20u /* about a step of a small model */

static void on_timer(uv_timer_t *t);

struct http_conn *conn_of(void *h)
{
    struct http_conn *c = uv_handle_get_data((uv_handle_t *)h);
    must(c != NULL && c->magic == CONN_MAGIC);
    return c;
}

unsigned conn_ms(unsigned own, unsigned limit)
{
    return own != 0 ? own : limit;
}

void conn_arm(struct http_conn *c, uint64_t after_ms)
{
    must(uv_timer_start(&c->timer, on_timer, after_ms, 0) == 0);
}

/* Between the bytes of an answer: a client that hung up is looked for where
 * reading would not tell, and an event stream is kept alive. */
void conn_wait(struct http_conn *c)
{
    const struct http_req *r = c->req;
    uint64_t every = c->srv->conf.keepalive_ms;
    uint64_t next = UINT64_MAX;
    if (c->state != CONN_BUSY || c->in_flight) {
        return;
    }
    if (r != NULL && r->headed) {
        next = 0;
    } else if (!c->reading) {
        next = HUP_CHECK_MS;
    }
    if (r != NULL && r->events && every > 0) {
        uint64_t silent = uv_now(c->srv->loop) - r->wrote_ms;
        next = num_min(next, silent < every ? every - silent : 0);
    }
    if (next == UINT64_MAX) {
        must(uv_timer_stop(&c->timer) == 0);
    } else if (uv_is_active((uv_handle_t *)&c->timer) == 0 ||
               uv_timer_get_due_in(&c->timer) > next) {
        conn_arm(c, next); /* one that comes earlier looks and waits again */
    }
}

/* --- closing --- */

static void on_closed(uv_handle_t *h)
{
    struct http_conn *c = conn_of(h);
    struct http_server *s = c->srv;
    struct http_req *r = c->req;

    if (--c->open > 0) {
        return;
    }
    if (r != NULL && r->running) {
        r->on_gone(r, r->user);
    }
    req_free(c->req);
    buf_fini(&c->ahead);
    buf_fini(&c->flying);
    buf_fini(&c->waiting);
    list_del(&c->link);
    s->stats.conns_open--;
    c->magic = 0;
    free(c);
    server_unref(s);
}

void conn_close(struct http_conn *c)
{
    if (c->state == CONN_CLOSING) {
        return;
    }
    c->state = CONN_CLOSING;
    list_del(&c->out);
    uv_close((uv_handle_t *)&c->timer, on_closed);
    uv_close(&c->peer.handle, on_closed);
}

/* --- writing --- */

static void on_written(uv_write_t *w, int status);

/* All of it was written at once. Callbacks for that come from the loop. */
static void written(struct http_conn *c)
{
    if (c->req != NULL && c->req->paused) {
        conn_arm(c, 0);
    } else {
        conn_wait(c);
    }
}

size_t conn_queued(const struct http_conn *c)
{
    size_t n = c->waiting.n - c->skip;
    if (c->in_flight) {
        n += uv_stream_get_write_queue_size(&c->peer.stream);
    }
    return n;
}

/* Most of it goes at once: a write request would cost a turn of the loop and a
 * system call more. */
void conn_flush(struct http_conn *c)
{
    list_del(&c->out);
    if (c->in_flight || c->waiting.n == 0 || c->state == CONN_CLOSING) {
        return;
    }
    uv_stream_t *s = &c->peer.stream;
    size_t from = c->skip;
    size_t n = c->waiting.n - from;
    uv_buf_t out = uv_buf_init(c->waiting.p + from, (unsigned)n);
    int done = uv_try_write(s, &out, 1);
    c->skip = 0;
    if (done == (int)n) {
        buf_clear(&c->waiting);
        written(c);
        return;
    }
    struct buf b = c->flying;
    c->flying = c->waiting;
    c->waiting = b;
    from += done > 0 ? (size_t)done : 0; /* an error comes again */
    out = uv_buf_init(c->flying.p + from, (unsigned)(c->flying.n - from));
    if (uv_write(&c->write, s, &out, 1, on_written) < 0) {
        conn_close(c);
        return;
    }
    c->in_flight = true;
    c->stall_mark = conn_queued(c);
    if (c->state == CONN_BUSY || c->state == CONN_FLUSH) {
        conn_arm(c, conn_ms(c->srv->conf.times.stall, HTTP_STALL_MS));
    }
}

void conn_write(struct http_conn *c, const void *p, size_t n)
{
    if (c->state == CONN_CLOSING) {
        return;
    }
    buf_put(&c->waiting, p, n);
    c->srv->stats.bytes_out += n;
    if (!buf_ok(&c->waiting)) { /* a stream whose maker does not pause */
        conn_close(c);
    } else if (!c->in_flight && list_empty(&c->out)) {
        list_push(&c->srv->outbox, &c->out);
    }
}

void conn_take(struct http_conn *c, struct buf *b, size_t from)
{
    if (c->waiting.n > 0 || c->state == CONN_CLOSING) {
        conn_write(c, b->p + from, b->n - from);
        buf_fini(b);
        return;
    }
    struct buf empty = c->waiting;
    c->waiting = *b;
    c->waiting.max = HTTP_REPLY_MAX;
    c->skip = from;
    *b = empty;
    c->srv->stats.bytes_out += c->waiting.n - from;
    if (!c->in_flight && list_empty(&c->out)) {
        list_push(&c->srv->outbox, &c->out);
    }
}

void conn_trim(struct buf *b)
{
    if (b->cap > HTTP_OUT_LOW) {
        size_t max = b->max;
        buf_fini(b);
        buf_init(b, max);
    }
    buf_clear(b);
}

static void on_shutdown(uv_shutdown_t *r, int status)
{
    (void)r;
    (void)status; /* the linger timer or EOF ends the connection */
}

/* The answer is written: read the next request, or close. */
static void flushed(struct http_conn *c)
{
    conn_trim(&c->flying);
    conn_trim(&c->waiting);
    if (c->keep) {
        c->state = CONN_READ;
        conn_arm(c, conn_ms(c->srv->conf.times.idle, HTTP_IDLE_MS));
        conn_read_on(c);
        if (c->state == CONN_READ && c->eof && !c->later) {
            conn_close(c);
        }
        return;
    }
    if (c->linger == 0 || c->eof ||
        uv_shutdown(&c->shutdown, &c->peer.stream, on_shutdown) < 0) {
        conn_close(c);
        return;
    }
    c->state = CONN_LINGER;
    buf_clear(&c->ahead);
    conn_arm(c, HTTP_LINGER_MS);
    conn_read_on(c);
}

static void drained(struct http_conn *c)
{
    struct http_req *r = c->req;
    if (r != NULL && r->paused && conn_queued(c) < HTTP_OUT_LOW) {
        r->paused = false;
        if (r->on_drain != NULL) {
            r->on_drain(r, r->user); /* r may be answered now */
        }
    }
}

static void on_written(uv_write_t *w, int status)
{
    struct http_conn *c = conn_of(w->handle);
    c->in_flight = false;
    if (c->state == CONN_CLOSING) {
        return;
    }
    if (status < 0) {
        conn_close(c);
        return;
    }
    buf_clear(&c->flying);
    if (c->waiting.n > 0) {
        conn_flush(c);
    } else {
        conn_wait(c);
    }
    if (c->state == CONN_BUSY) {
        drained(c);
    } else if (c->state == CONN_FLUSH && !c->in_flight) {
        flushed(c);
    }
}

void conn_answered(struct http_conn *c)
{
    struct http_req *r = c->req;
    c->req = NULL;
    req_free(r);
    if (c->state == CONN_CLOSING) {
        return;
    }
    c->state = CONN_FLUSH;
    if (c->srv->draining) {
        c->keep = false;
    }
    /* on_written continues; where all can be written at once, the timer does,
     * never this call: the next handler must not run inside this one. */
    conn_arm(c, c->in_flight ? conn_ms(c->srv->conf.times.stall, HTTP_STALL_MS)
                             : 0);
}

/* --- time --- */

/* What of `events` the kernel sees on the socket now; all when it is gone. */
static short seen(const struct http_conn *c, short events)
{
    uv_os_fd_t fd = -1;
    if (uv_fileno(&c->peer.handle, &fd) < 0) {
        return events;
    }
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, 0) > 0 ? (short)(p.revents & events) : 0;
}

/* Both directions are closed. On Linux POLLHUP means that, and POLLRDHUP that
 * only the client's writing side was shut. Elsewhere POLLHUP may mean either,
 * and a send of zero bytes shows whether the client can still read. Over TCP
 * nobody can tell a client that closed from one that only ended its sending
 * before something is sent to it: both have left (conn.h). */
bool conn_hung_up(const struct http_conn *c)
{
    if (c->srv->tcp && c->eof) {
        return true;
    }
#ifdef POLLRDHUP
    return seen(c, c->srv->tcp ? POLLHUP | POLLRDHUP : POLLHUP) != 0;
#else
    uv_os_fd_t fd = -1;
    return uv_fileno(&c->peer.handle, &fd) < 0 ||
           (seen(c, POLLHUP) != 0 && send(fd, "", 0, MSG_DONTWAIT) < 0 &&
            errno != EAGAIN);
#endif
}

bool conn_idle(const struct http_conn *c)
{
    return c->state == CONN_READ && c->req == NULL && c->n_requests > 0 &&
           !c->later && seen(c, POLLIN) == 0;
}

/* A write that made no progress since the timer was set is a stall. */
static void on_stall_timer(struct http_conn *c)
{
    size_t now = uv_stream_get_write_queue_size(&c->peer.stream);
    if (now >= c->stall_mark) {
        c->srv->stats.streams_stalled++;
        conn_close(c);
        return;
    }
    c->stall_mark = now;
    conn_arm(c, conn_ms(c->srv->conf.times.stall, HTTP_STALL_MS));
}

/* A comment, which every reader of events passes over, or what this one knows.
 */
static void keep_alive(struct http_conn *c)
{
    static const char comment[] = ": keep-alive\n\n";
    struct http_req *r = c->req;
    uint64_t every = c->srv->conf.keepalive_ms;
    if (r == NULL || !r->events || every == 0 ||
        uv_now(c->srv->loop) - r->wrote_ms < every) {
        return;
    }
    if (!r->streaming) {
        http_stream_begin(r, 200, "text/event-stream");
    }
    const char *ping = r->ping != NULL ? r->ping : comment;
    (void)http_stream_write(r, ping, strlen(ping));
}

/* A stream whose reader wanted its head only: the handler lets go of it. */
static void end_head(struct http_conn *c)
{
    struct http_req *r = c->req;
    r->on_gone(r, r->user);
    conn_answered(c);
}

static void on_timer(uv_timer_t *t)
{
    struct http_conn *c = conn_of(t);
    switch (c->state) {
    case CONN_READ:
        if (c->later) {
            conn_read_later(c);
        } else if (c->req == NULL) {
            conn_close(c);
        } else {
            conn_refuse(c, ERR_TIMEOUT);
        }
        return;
    case CONN_BUSY:
        if (c->in_flight) {
            on_stall_timer(c);
        } else if (c->req != NULL && c->req->paused) {
            drained(c);
            conn_wait(c);
        } else if (!c->reading && conn_hung_up(c)) {
            conn_close(c);
        } else if (c->req != NULL && c->req->headed) {
            end_head(c);
        } else {
            keep_alive(c);
            conn_wait(c);
        }
        return;
    case CONN_FLUSH:
        if (c->in_flight) {
            on_stall_timer(c);
            return;
        }
        conn_flush(c); /* this timer may come before the end of the turn */
        if (!c->in_flight && c->state == CONN_FLUSH) {
            flushed(c);
        }
        return;
    case CONN_LINGER:
        conn_close(c);
        return;
    case CONN_CLOSING:
    default:
        return;
    }
}

/* --- accepting --- */

static struct http_conn *conn_new(struct http_server *s)
{
    struct http_conn *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->magic = CONN_MAGIC;
    c->srv = s;
    c->peer_pid = -1;
    buf_init(&c->ahead, 2 * HTTP_AHEAD_MAX);
    buf_init(&c->flying, HTTP_REPLY_MAX);
    buf_init(&c->waiting, HTTP_REPLY_MAX);
    http_parse_init(&c->parse);
    must((s->tcp ? uv_tcp_init(s->loop, &c->peer.tcp)
                 : uv_pipe_init(s->loop, &c->peer.pipe, 0)) == 0);
    must(uv_timer_init(s->loop, &c->timer) == 0);
    uv_handle_set_data(&c->peer.handle, c);
    uv_handle_set_data((uv_handle_t *)&c->timer, c);
    c->open = 2;
    list_push(&s->conns, &c->link);
    list_init(&c->out);
    s->open++;
    c->number = ++s->stats.conns;
    s->stats.conns_open++;
    return c;
}

/* Who connected is somebody whom this socket is for. */
static bool is_welcome(struct http_conn *c, int fd)
{
    struct http_server *s = c->srv;
    if (s->tcp) { /* the guard asks each request for more */
        bool near = address_peer_is_loopback(fd);
        if (!near) { /* a routing rule may lead others here */
            log_warn("http.peer_refused", "transport=tcp, continuing");
        }
        return near && uv_tcp_nodelay(&c->peer.tcp, 1) == 0;
    }
    if (peer_check(fd, &c->peer_pid) < 0) {
        s->stats.refused_uid++;
        log_warn("http.peer_refused", "transport=unix pid=%lld, continuing",
                 (long long)c->peer_pid);
        return false;
    }
    return true;
}

void conn_accept(struct http_server *s)
{
    struct http_conn *c = conn_new(s);
    uv_os_fd_t fd = -1;

    if (uv_accept(&s->listener.stream, &c->peer.stream) < 0 ||
        uv_fileno(&c->peer.handle, &fd) < 0 || !is_welcome(c, fd)) {
        conn_close(c);
        return;
    }
    conn_arm(c, conn_ms(s->conf.times.idle, HTTP_IDLE_MS));
    if (s->stats.conns_open > s->conns_max) {
        conn_refuse(c, ERR_BUSY);
        return;
    }
    conn_read_on(c);
}

void http_set_times(struct http_server *s, unsigned stall_ms,
                    unsigned keepalive_ms)
{
    must(s->magic == SERVER_MAGIC);
    s->conf.times.stall = stall_ms;
    s->conf.keepalive_ms = keepalive_ms;
}
