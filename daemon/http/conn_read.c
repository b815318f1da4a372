/* conn_read.c - reads from clients: bytes become requests, and these are
 * refused or run.
 *
 *   on_read -> feed -> head: on_head, routed or refused -> body -> run
 *                 \-> while one is answered: ahead -> read_on -> feed
 *
 * A read goes to the server's one buffer; its bytes are parsed, or copied to
 * `ahead`, before the next read. Limits are checked when the head is complete,
 * before the body arrives, and again as its bytes arrive. A refusal is an
 * ordinary answer, written from here; then the connection lingers or closes.
 *
 * The requests of one turn of the loop get TURN_NS together. When many clients
 * send at once, the rest stays in `ahead` and is read a millisecond later, so
 * that engines, timers and other clients wait a bounded time for the next poll.
 */
#include "http/conn.h"

#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "http/route.h"

#define TURN_NS  4000000u
#define LATER_MS 1u

/* --- requests --- */

static struct http_req *req_new(struct http_conn *c)
{
    struct http_req *r = malloc(sizeof(*r));
    must(r != NULL);
    memset(r, 0, offsetof(struct http_req, path));
    r->path[0] = '\0';
    r->magic = REQ_MAGIC;
    r->conn = c;
    r->query = "";
    r->started_ns = uv_hrtime();
    http_msg_init(&r->msg);
    return r;
}

void req_free(struct http_req *r)
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

/* --- reading --- */

/* What was asked for, and what the limit is. */
static const char *say_why(const struct http_req *r, int code, struct err *e)
{
    if (code == ERR_NO_ROUTE) {
        (void)err_set(e, code, "no such path: %.256s", r->path);
    } else if (code == ERR_BAD_METHOD) {
        (void)err_set(e, code, "%.256s: path exists, method does not", r->path);
    } else if (code == ERR_TOO_BIG && r->route != NULL) {
        (void)err_set(e, code, "%.256s: the body is over its limit, %zu bytes",
                      r->path, r->route->body_max);
    } else {
        return r->why;
    }
    return e->msg;
}

/* An answer of our own, which ends the connection unless the request was sound
 * and complete. */
static void begin_answer(struct http_conn *c, bool keep, size_t linger)
{
    c->keep = keep;
    c->linger = linger;
    c->state = CONN_BUSY;
    c->n_requests++;
    c->srv->stats.requests++;
}

static void refuse(struct http_conn *c, int code, bool keep, size_t linger)
{
    struct err e = {0};
    begin_answer(c, keep, linger);
    http_reply_error(c->req, code, say_why(c->req, code, &e));
}

void conn_refuse(struct http_conn *c, int code)
{
    if (c->req == NULL) {
        c->req = req_new(c);
    }
    refuse(c, code, false, HTTP_LINGER_BYTES);
}

static int split_target(struct http_req *r, struct span *path)
{
    struct buf *t = &r->msg.target;
    char *q = memchr(t->p, '?', t->n);
    *path = (struct span){t->p, q != NULL ? (size_t)(q - t->p) : t->n};
    r->query = q != NULL ? q + 1 : "";
    return http_decode(path->p, path->n, false, r->path, sizeof(r->path));
}

/* What a TCP socket asks of every request; the user's own processes, who alone
 * reach a Unix socket, need no key and are no web page. */
static int guard(struct http_req *r)
{
    struct http_server *s = r->conn->srv;
    if (!s->tcp) {
        return 0;
    }
    int rc = guard_check(s->conf.guard, &s->place, &r->msg, r->page, &r->pass,
                         &r->why);
    s->stats.refused_key += rc == ERR_UNAUTHORIZED;
    s->stats.refused_web += rc != 0 && rc != ERR_UNAUTHORIZED;
    if (rc != 0) {
        log_debug("http.refused", "transport=tcp error=%s", err_name(rc));
    }
    return rc;
}

/* Is it for us, and may its body come? *linger grows by what may. */
static int take_head(struct http_req *r, size_t *linger)
{
    const struct http_server *s = r->conn->srv;
    struct span path = {0};
    RETERR(split_target(r, &path));
    r->page = s->conf.page != NULL && strcmp(r->path, s->conf.page) == 0 &&
              guard_wants_page(&r->msg);
    RETERR(guard(r));
    if (r->pass.preflight) {
        return 0;
    }
    RETERR(http_route_find(s->conf.routes, s->conf.n_routes, r->msg.method,
                           path, &r->route, &r->args, &r->allow));
    r->msg.body.max = r->route->body_max;
    *linger += r->msg.has_body ? r->route->body_max : 0;
    if (r->msg.length > r->route->body_max) {
        return ERR_TOO_BIG;
    }
    if (r->msg.encoded) {
        return ERR_HTTP_ENCODING;
    }
    return s->body_bytes + r->msg.length > HTTP_BODIES_MAX ? ERR_BUSY : 0;
}

/* The head is complete. */
static void on_head(struct http_conn *c)
{
    struct http_req *r = c->req;
    size_t linger = r->msg.has_body ? HTTP_LINGER_BYTES : 0;
    int rc = take_head(r, &linger);
    bool keep = rc != ERR_HTTP && r->why == NULL && c->parse.message_done &&
                r->msg.keep_alive && c->n_requests < HTTP_REQUESTS_MAX;
    if (rc < 0) {
        refuse(c, rc, keep, linger);
        return;
    }
    if (r->pass.preflight) {
        begin_answer(c, keep, linger);
        reply_preflight(r);
        return;
    }
    if (r->msg.expect) {
        static const char go[] = "HTTP/1.1 100 Continue\r\n\r\n";
        conn_write(c, go, sizeof(go) - 1);
    }
}

/* The handler answers now or later. */
static void handle(struct http_conn *c, struct http_req *r)
{
    r->route->run(r, &r->args);
    if (c->req != r) {
        return; /* answered; r is gone */
    }
    must(r->on_gone != NULL); /* a handler that answers later sets it */
    if (c->eof && conn_hung_up(c)) {
        conn_close(c);
    } else {
        conn_wait(c);
    }
}

static void held_gone(struct http_req *r, void *user)
{
    struct http_hold *h = user;
    list_del(&r->held);
    h->n--;
}

static void hold(struct http_conn *c, struct http_req *r, struct http_hold *h)
{
    if (h->answer.code != 0) {
        http_reply_error(r, h->answer.code, h->answer.msg);
        return;
    }
    if (h->n >= h->max) {
        http_reply_error(r, ERR_STARTING, NULL);
        return;
    }
    list_push(&h->waiting, &r->held);
    h->n++;
    http_on_gone(r, held_gone, h);
    conn_wait(c);
}

static struct http_req *next_held(struct http_hold *h)
{
    struct http_req *r = container_of(h->waiting.next, struct http_req, held);
    held_gone(r, h);
    r->on_gone = NULL;
    return r;
}

void http_hold_begin(struct http_hold *h, size_t max, const char *early)
{
    *h = (struct http_hold){.on = true, .max = max, .early = early};
    list_init(&h->waiting);
}

void http_hold_end(struct http_hold *h)
{
    h->on = false;
    while (!list_empty(&h->waiting)) {
        struct http_req *r = next_held(h);
        handle(r->conn, r);
    }
}

void http_hold_refuse(struct http_hold *h, int code, const char *msg)
{
    h->max = 0;
    while (!list_empty(&h->waiting)) {
        http_reply_error(next_held(h), code, msg);
    }
}

void http_hold_answer(struct http_hold *h, int code, const char *msg)
{
    (void)err_set(&h->answer, code, "%s", msg);
    while (!list_empty(&h->waiting)) {
        http_reply_error(next_held(h), code, msg);
    }
}

static void run(struct http_conn *c)
{
    struct http_req *r = c->req;
    struct http_server *s = c->srv;
    struct http_hold *h = s->conf.hold;

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
    bool early = r->page || (h != NULL && h->early != NULL &&
                             strcmp(r->route->path, h->early) == 0);
    if (h != NULL && h->on && !early) {
        hold(c, r, h);
    } else {
        handle(c, r);
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
    uint64_t total = conn_ms(t->request, HTTP_REQUEST_MS);
    if (gone >= total) {
        return ERR_TIMEOUT;
    }
    conn_arm(c,
             num_min(total - gone, conn_ms(t->body_idle, HTTP_BODY_IDLE_MS)));
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
            conn_arm(c, conn_ms(c->srv->conf.times.header, HTTP_HEADER_MS));
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
            conn_refuse(c, rc);
        }
    }
    return at;
}

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *b)
{
    struct http_conn *c = conn_of(h);
    (void)want;
    /* One for all: on_read has used or copied it when it returns. */
    *b = uv_buf_init(c->srv->in, sizeof(c->srv->in));
}

bool server_turn_over(struct http_server *s)
{
    uint64_t now = uv_hrtime();
    if (s->turn_ns == 0) {
        s->turn_ns = now;
    }
    return now - s->turn_ns > TURN_NS;
}

static void put_off(struct http_conn *c)
{
    if (c->reading) {
        must(uv_read_stop(&c->peer.stream) == 0);
        c->reading = false;
    }
    c->later = true;
    conn_arm(c, LATER_MS);
}

void conn_read_later(struct http_conn *c)
{
    const struct http_times *t = &c->srv->conf.times;
    c->later = false;
    conn_read_on(c);
    if (c->state != CONN_READ || c->later) {
        return;
    }
    if (c->eof) {
        conn_close(c);
    } else if (uv_is_active((uv_handle_t *)&c->timer) == 0) {
        conn_arm(c, c->req != NULL ? conn_ms(t->header, HTTP_HEADER_MS)
                                   : conn_ms(t->idle, HTTP_IDLE_MS));
    }
}

static void on_eof(struct http_conn *c)
{
    c->eof = true;
    c->reading = false;
    if (c->state == CONN_FLUSH) {
        return; /* the answer still goes out, and what was sent before */
    }
    if (c->state == CONN_BUSY && !conn_hung_up(c)) {
        conn_wait(c);
        return;
    }
    conn_close(c);
}

static void on_read(uv_stream_t *st, ssize_t n, const uv_buf_t *b)
{
    struct http_conn *c = conn_of(st);
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
    if (c->state == CONN_READ && server_turn_over(c->srv)) {
        buf_put(&c->ahead, b->base, len);
        must(buf_ok(&c->ahead)); /* nothing is ahead of what is read now */
        put_off(c);
        return;
    }
    if (c->state == CONN_READ) {
        used = feed(c, b->base, len);
    }
    if (c->state == CONN_CLOSING || used == len) {
        return;
    }
    if (!c->keep && c->state == CONN_FLUSH) {
        return; /* the client will not read it */
    }
    buf_put(&c->ahead, b->base + used, len - used);
    must(buf_ok(&c->ahead)); /* reading stops one read below its limit */
    if (c->ahead.n >= HTTP_AHEAD_MAX) {
        must(uv_read_stop(st) == 0);
        c->reading = false;
        conn_wait(c);
    }
}

void conn_read_on(struct http_conn *c)
{
    if (c->ahead.n > 0 && c->state == CONN_READ &&
        server_turn_over(c->srv)) {
        put_off(c);
        return;
    }
    if (c->ahead.n > 0 && c->state == CONN_READ) {
        size_t used = feed(c, c->ahead.p, c->ahead.n);
        buf_shift(&c->ahead, used);
    }
    if (c->ahead.n == 0) {
        conn_trim(&c->ahead);
    }
    if (c->state != CONN_CLOSING && !c->reading && !c->eof &&
        c->ahead.n < HTTP_AHEAD_MAX) {
        c->reading = true;
        if (uv_read_start(&c->peer.stream, on_alloc, on_read) < 0) {
            conn_close(c);
        }
    }
}
