/* conn.c - the life of a connection (drawing in conn.h).
 *
 * Invariants:
 *  (1) At most one request of a connection is being read or answered; what the
 *      client sends ahead waits in `ahead`, HTTP_AHEAD_MAX bytes of it.
 *  (2) What a turn of the loop writes goes out in one piece at its end, so the
 *      head and the first event, or the last ones, cost one system call. At
 *      most one write is in flight; what is queued meanwhile goes with the
 *      next, so memory is what was queued and tokens coalesce by themselves.
 *  (3) The next request is read when the last answer is written completely.
 *  (4) No user code is called by conn_close(): on_gone comes from on_closed.
 */
#include "http/conn.h"

#include <poll.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "http/route.h"

enum { HUP_CHECK_MS = 1000, LINGER_BYTES = 65536 };

static void read_on(struct http_conn *c);
static void on_timer(uv_timer_t *t);

static struct http_conn *of_handle(void *h)
{
    struct http_conn *c = uv_handle_get_data((uv_handle_t *)h);
    must(c != NULL && c->magic == CONN_MAGIC);
    return c;
}

static unsigned ms(unsigned own, unsigned limit)
{
    return own != 0 ? own : limit;
}

static void arm(struct http_conn *c, uint64_t after_ms)
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
    if (!c->reading && !c->eof) {
        next = HUP_CHECK_MS;
    }
    if (r != NULL && r->events && every > 0) {
        uint64_t silent = uv_now(c->srv->loop) - r->wrote_ms;
        next = num_min(next, silent < every ? every - silent : 0);
    }
    if (next == UINT64_MAX) {
        must(uv_timer_stop(&c->timer) == 0);
    } else {
        arm(c, next);
    }
}

/* --- requests --- */

static struct http_req *req_new(struct http_conn *c)
{
    struct http_req *r = calloc(1, sizeof(*r));
    must(r != NULL);
    r->magic = REQ_MAGIC;
    r->conn = c;
    r->query = "";
    r->started_ns = uv_hrtime();
    http_msg_init(&r->msg);
    return r;
}

static void req_free(struct http_req *r)
{
    if (r == NULL) {
        return;
    }
    struct http_server *s = r->conn->srv;
    s->body_bytes -= r->body_counted;
    s->requests -= r->running;
    s->stats.streams_open -= r->streaming;
    http_msg_fini(&r->msg);
    r->magic = 0;
    free(r);
}

/* --- closing --- */

static void on_closed(uv_handle_t *h)
{
    struct http_conn *c = of_handle(h);
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
    uv_close((uv_handle_t *)&c->pipe, on_closed);
}

/* --- writing --- */

static void on_written(uv_write_t *w, int status);

/* All of it, at once. Who waits for that hears of it from the loop. */
static void written(struct http_conn *c)
{
    if (c->req != NULL && c->req->paused) {
        arm(c, 0);
    } else {
        conn_wait(c);
    }
}

size_t conn_queued(const struct http_conn *c)
{
    size_t n = c->waiting.n;
    if (c->in_flight) {
        n += uv_stream_get_write_queue_size((const uv_stream_t *)&c->pipe);
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
    uv_stream_t *s = (uv_stream_t *)&c->pipe;
    uv_buf_t out = uv_buf_init(c->waiting.p, (unsigned)c->waiting.n);
    int done = uv_try_write(s, &out, 1);
    if (done == (int)c->waiting.n) {
        buf_clear(&c->waiting);
        written(c);
        return;
    }
    struct buf b = c->flying;
    c->flying = c->waiting;
    c->waiting = b;
    size_t from = done > 0 ? (size_t)done : 0; /* an error comes again */
    out = uv_buf_init(c->flying.p + from, (unsigned)(c->flying.n - from));
    if (uv_write(&c->write, s, &out, 1, on_written) < 0) {
        conn_close(c);
        return;
    }
    c->in_flight = true;
    c->stall_mark = conn_queued(c);
    if (c->state == CONN_BUSY || c->state == CONN_FLUSH) {
        arm(c, ms(c->srv->conf.times.stall, HTTP_STALL_MS));
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

/* Big replies leave big buffers; a connection that waits keeps none. */
static void trim(struct buf *b)
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

/* The answer is written: go on, or leave. */
static void flushed(struct http_conn *c)
{
    trim(&c->flying);
    trim(&c->waiting);
    if (c->keep) {
        c->state = CONN_READ;
        arm(c, ms(c->srv->conf.times.idle, HTTP_IDLE_MS));
        read_on(c);
        if (c->state == CONN_READ && c->eof) {
            conn_close(c);
        }
        return;
    }
    if (c->linger == 0 || c->eof ||
        uv_shutdown(&c->shutdown, (uv_stream_t *)&c->pipe, on_shutdown) < 0) {
        conn_close(c);
        return;
    }
    c->state = CONN_LINGER;
    buf_clear(&c->ahead);
    arm(c, HTTP_LINGER_MS);
    read_on(c);
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
    struct http_conn *c = of_handle(w->handle);
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
    /* on_written goes on; where all can be written at once, the timer does,
     * never this call: the next handler must not run inside of this one. */
    arm(c, c->in_flight ? ms(c->srv->conf.times.stall, HTTP_STALL_MS) : 0);
}

/* --- reading --- */

/* An answer of our own, which ends the connection unless the request was sound
 * and complete. */
static void refuse(struct http_conn *c, int code, bool keep, size_t linger)
{
    c->keep = keep;
    c->linger = linger;
    c->state = CONN_BUSY;
    c->n_requests++;
    c->srv->stats.requests++;
    http_reply_error(c->req, code, NULL);
}

static int split_target(struct http_req *r, struct span *path)
{
    struct buf *t = &r->msg.target;
    char *q = memchr(t->p, '?', t->n);
    *path = (struct span){t->p, q != NULL ? (size_t)(q - t->p) : t->n};
    r->query = q != NULL ? q + 1 : "";
    return http_decode(path->p, path->n, false, r->path, sizeof(r->path));
}

/* Head complete: is it for us, and may its body come? */
static void on_head(struct http_conn *c)
{
    struct http_req *r = c->req;
    struct http_server *s = c->srv;
    struct span path = {0};
    size_t linger = r->msg.has_body ? LINGER_BYTES : 0;

    int rc = split_target(r, &path);
    if (rc == 0) {
        rc = http_route_find(s->conf.routes, s->conf.n_routes, r->msg.method,
                             path, &r->route, &r->args, &r->allow);
    }
    if (rc == 0) {
        r->msg.body.max = r->route->body_max;
        linger += r->msg.has_body ? r->route->body_max : 0;
        if (r->msg.length > r->route->body_max) {
            rc = ERR_TOO_BIG;
        } else if (s->body_bytes + r->msg.length > HTTP_BODIES_MAX) {
            rc = ERR_BUSY;
        }
    }
    if (rc < 0) {
        bool keep = rc != ERR_HTTP && c->parse.message_done &&
                    r->msg.keep_alive && c->n_requests < HTTP_REQUESTS_MAX;
        refuse(c, rc, keep, linger);
        return;
    }
    if (r->msg.expect) {
        static const char go[] = "HTTP/1.1 100 Continue\r\n\r\n";
        conn_write(c, go, sizeof(go) - 1);
    }
}

static void run(struct http_conn *c)
{
    struct http_req *r = c->req;
    struct http_server *s = c->srv;

    if (s->draining && r->msg.method == HTTP_M_POST) {
        c->keep = false;
        c->linger = 0;
        c->state = CONN_BUSY;
        s->stats.requests++;
        http_reply_error(r, ERR_UNAVAILABLE, "the daemon is stopping");
        return;
    }
    s->stats.requests++;
    c->n_requests++;
    c->keep = r->msg.keep_alive && c->n_requests < HTTP_REQUESTS_MAX;
    c->linger = 0;
    c->state = CONN_BUSY;
    must(uv_timer_stop(&c->timer) == 0);
    r->running = true;
    s->requests++;
    r->route->run(r, &r->args);
    if (c->req != r) {
        return; /* answered; r is gone */
    }
    must(r->on_gone != NULL); /* a handler that answers later sets it */
    if (c->eof) {
        conn_close(c);
    }
}

/* Keep the sum of bodies of all connections; an idle or endless body ends by
 * its timer. */
static int on_body_bytes(struct http_conn *c)
{
    struct http_server *s = c->srv;
    struct http_req *r = c->req;
    const struct http_times *t = &s->conf.times;

    s->body_bytes += r->msg.body.n - r->body_counted;
    r->body_counted = r->msg.body.n;
    if (s->body_bytes > HTTP_BODIES_MAX) {
        return ERR_BUSY;
    }
    uint64_t gone = (uv_hrtime() - r->started_ns) / 1000000u;
    uint64_t total = ms(t->request, HTTP_REQUEST_MS);
    if (gone >= total) {
        return ERR_TIMEOUT;
    }
    arm(c, num_min(total - gone, ms(t->body_idle, HTTP_BODY_IDLE_MS)));
    return 0;
}

/* Parse what came. Returns how many bytes were used: all of them while the
 * request is incomplete. */
static size_t feed(struct http_conn *c, const char *p, size_t n)
{
    size_t at = 0;
    bool more = false;

    while (c->state == CONN_READ && !more && (at < n || c->req != NULL)) {
        if (c->req == NULL) {
            c->req = req_new(c);
            http_parse_begin(&c->parse, &c->req->msg);
            arm(c, ms(c->srv->conf.times.header, HTTP_HEADER_MS));
        }
        size_t used = 0;
        int rc = http_parse_feed(&c->parse, p + at, n - at, &used);
        at += used;
        if (rc == HTTP_PARSE_HEAD) {
            on_head(c);
        } else if (rc == HTTP_PARSE_MORE && c->parse.scan == SCAN_BODY) {
            more = true;
            rc = on_body_bytes(c);
        } else if (rc == HTTP_PARSE_MORE) {
            more = true;
        } else if (rc == HTTP_PARSE_DONE) {
            run(c);
        }
        if (rc < 0) {
            refuse(c, rc, false, LINGER_BYTES);
        }
    }
    return at;
}

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *b)
{
    struct http_conn *c = of_handle(h);
    (void)want;
    /* One for all: on_read has used or copied it when it returns. */
    *b = uv_buf_init(c->srv->in, sizeof(c->srv->in));
}

static void on_eof(struct http_conn *c)
{
    c->eof = true;
    c->reading = false;
    if (c->state == CONN_FLUSH) {
        return; /* the answer still goes out, and what was sent before */
    }
    conn_close(c);
}

static void on_read(uv_stream_t *st, ssize_t n, const uv_buf_t *b)
{
    struct http_conn *c = of_handle(st);
    if (n == 0 || c->state == CONN_CLOSING) {
        return;
    }
    if (n < 0) {
        on_eof(c);
        return;
    }
    size_t len = (size_t)n;
    size_t used = 0;
    c->srv->stats.bytes_in += len;
    if (c->state == CONN_LINGER) {
        if (len >= c->linger) {
            conn_close(c);
        } else {
            c->linger -= len;
        }
        return;
    }
    if (c->state == CONN_READ) {
        used = feed(c, b->base, len);
    }
    if (c->state == CONN_CLOSING || used == len) {
        return;
    }
    if (!c->keep && c->state == CONN_FLUSH) {
        return; /* nobody will read it */
    }
    buf_put(&c->ahead, b->base + used, len - used);
    must(buf_ok(&c->ahead)); /* reading stops one read below its limit */
    if (c->ahead.n >= HTTP_AHEAD_MAX) {
        must(uv_read_stop(st) == 0);
        c->reading = false;
        conn_wait(c);
    }
}

/* Use what was read ahead, then read on. */
static void read_on(struct http_conn *c)
{
    if (c->ahead.n > 0 && c->state == CONN_READ) {
        size_t used = feed(c, c->ahead.p, c->ahead.n);
        buf_shift(&c->ahead, used);
    }
    if (c->ahead.n == 0) {
        trim(&c->ahead);
    }
    if (c->state != CONN_CLOSING && !c->reading && !c->eof &&
        c->ahead.n < HTTP_AHEAD_MAX) {
        c->reading = true;
        if (uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read) < 0) {
            conn_close(c);
        }
    }
}

/* --- time --- */

/* With reading stopped EOF is not seen; the kernel tells it all the same. */
static bool hung_up(struct http_conn *c)
{
    uv_os_fd_t fd = -1;
#ifdef POLLRDHUP
    short hup = POLLRDHUP | POLLHUP;
#else
    short hup = POLLHUP;
#endif
    if (uv_fileno((const uv_handle_t *)&c->pipe, &fd) < 0) {
        return true;
    }
    struct pollfd p = {.fd = fd, .events = hup};
    return poll(&p, 1, 0) > 0 && (p.revents & hup) != 0;
}

/* A write that made no progress since the timer was set is a stall. */
static void on_stall_timer(struct http_conn *c)
{
    size_t now = uv_stream_get_write_queue_size((uv_stream_t *)&c->pipe);
    if (now >= c->stall_mark) {
        c->srv->stats.streams_stalled++;
        conn_close(c);
        return;
    }
    c->stall_mark = now;
    arm(c, ms(c->srv->conf.times.stall, HTTP_STALL_MS));
}

/* A comment, which every reader of events passes over. */
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
    (void)http_stream_write(r, comment, sizeof(comment) - 1);
}

static void on_timer(uv_timer_t *t)
{
    struct http_conn *c = of_handle(t);
    switch (c->state) {
    case CONN_READ:
        if (c->req == NULL) {
            conn_close(c);
        } else {
            refuse(c, ERR_TIMEOUT, false, LINGER_BYTES);
        }
        return;
    case CONN_BUSY:
        if (c->in_flight) {
            on_stall_timer(c);
        } else if (c->req != NULL && c->req->paused) {
            drained(c);
            conn_wait(c);
        } else if (!c->reading && hung_up(c)) {
            conn_close(c);
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
    must(uv_pipe_init(s->loop, &c->pipe, 0) == 0);
    must(uv_timer_init(s->loop, &c->timer) == 0);
    uv_handle_set_data((uv_handle_t *)&c->pipe, c);
    uv_handle_set_data((uv_handle_t *)&c->timer, c);
    c->open = 2;
    list_push(&s->conns, &c->link);
    list_init(&c->out);
    s->open++;
    s->stats.conns++;
    s->stats.conns_open++;
    return c;
}

void conn_accept(struct http_server *s)
{
    struct http_conn *c = conn_new(s);
    uv_os_fd_t fd = -1;

    if (uv_accept((uv_stream_t *)&s->listener, (uv_stream_t *)&c->pipe) < 0 ||
        uv_fileno((const uv_handle_t *)&c->pipe, &fd) < 0) {
        conn_close(c);
        return;
    }
    if (peer_check(fd, &c->peer_pid) < 0) {
        s->stats.refused_uid++;
        log_warn("http.peer_refused", "pid=%lld, continuing",
                 (long long)c->peer_pid);
        conn_close(c);
        return;
    }
    arm(c, ms(s->conf.times.idle, HTTP_IDLE_MS));
    if (s->stats.conns_open > s->conns_max) {
        c->req = req_new(c);
        refuse(c, ERR_BUSY, false, LINGER_BYTES);
        return;
    }
    read_on(c);
}
