/* handlers.h - a server whose routes answer at once, later, in pieces, slowly
 * or never. */
#pragma once

#include "harness.h"

#define H "Host: a\r\n"

static struct {
    struct http_req *held; /* by /hang, /quiet, /follow */
    int gone, drains, slow;
    size_t flood_left;
} t;

static void on_gone(struct http_req *r, void *user)
{
    assert_ptr_equal(user, &t);
    if (t.held == r) {
        t.held = NULL;
    }
    t.gone++;
}

static void hello(struct http_req *r, const struct http_args *a)
{
    (void)a;
    assert_ptr_equal(http_ctx(r), &t);
    http_reply(r, 200, NULL, "{\"hi\":1}", 8);
}

static void echo(struct http_req *r, const struct http_args *a)
{
    char q[32] = "";
    (void)a;
    (void)http_query(r, "q", q, sizeof(q));
    struct span b = http_body(r);
    struct buf out;
    buf_init(&out, KIB(4));
    buf_printf(&out, "[%s|%s|", http_path(r), q);
    buf_put(&out, b.p, b.n);
    buf_puts(&out, "]");
    http_reply(r, 200, "text/plain", out.p, out.n);
    buf_fini(&out);
}

static void hang(struct http_req *r, const struct http_args *a)
{
    (void)a;
    t.held = r;
    http_on_gone(r, on_gone, &t);
}

static void stream(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_stream_begin(r, 200, "text/event-stream");
    assert_true(http_stream_write(r, "data: 1\n\n", 9));
    assert_true(http_stream_write(r, "data: 2\n\n", 9));
    http_stream_end(r);
}

static void more_flood(struct http_req *r, void *user)
{
    static char block[10000];
    (void)user;
    while (t.flood_left > 0) {
        t.flood_left--;
        if (!http_stream_write(r, block, sizeof(block))) {
            assert_true(http_stream_queued(r) >= HTTP_OUT_HIGH);
            assert_true(http_stream_queued(r) < HTTP_OUT_HIGH + 20000);
            return;
        }
    }
    http_stream_end(r);
}

static void on_drain(struct http_req *r, void *user)
{
    assert_true(http_stream_queued(r) < HTTP_OUT_LOW);
    t.drains++;
    more_flood(r, user);
}

static void flood(struct http_req *r, const struct http_args *a)
{
    (void)a;
    t.flood_left = 500; /* 5 MB */
    http_on_gone(r, on_gone, &t);
    http_stream_on_drain(r, on_drain);
    http_stream_begin(r, 200, "text/plain");
    more_flood(r, &t);
}

/* Fifteen times what a busy stream is silent for here: machines are slow. */
#define KEEPALIVE_MS 300

/* A stream of events that has nothing to say, before and after its head. */
static void quiet(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_on_gone(r, on_gone, &t);
    http_stream_expect(r, NULL);
    t.held = r;
}

#define OWN_PING "event: ping\ndata: {}\n\n"

/* The same, kept alive by events of its own. */
static void quiet_own(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_on_gone(r, on_gone, &t);
    http_stream_expect(r, OWN_PING);
    t.held = r;
}

/* A stream of events that has begun and goes on. */
static void follow(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_stream_begin(r, 200, "text/event-stream");
    (void)http_stream_write(r, "data: 1\n\n", 9);
    http_on_gone(r, on_gone, &t);
    t.held = r;
}

/* Takes 2 ms, on the wall. */
static void slow(struct http_req *r, const struct http_args *a)
{
    uint64_t end = uv_hrtime() + 2000000u;
    (void)a;
    t.slow++;
    while (uv_hrtime() < end) {
    }
    http_reply(r, 200, NULL, "{}", 2);
}

static void take(struct http_req *r, const struct http_args *a)
{
    struct buf b, body;
    (void)a;
    http_take_body(r, &body);
    assert_int_equal(http_body(r).n, 0);
    buf_init(&b, MIB(2));
    (void)buf_grow(&b, HTTP_HEAD_ROOM);
    buf_put(&b, body.p, body.n);
    memset(buf_grow(&b, 1000000), 'z', 1000000);
    http_reply_take(r, 200, "text/plain", &b);
    assert_int_equal(b.n, 0);
    buf_fini(&b);
    buf_fini(&body);
}

static const struct http_route table[] = {
    {HTTP_M_GET,  "/slow",    slow,   0     },
    {HTTP_M_POST, "/take",    take,   1024  },
    {HTTP_M_GET,  "/follow",  follow, 0     },
    {HTTP_M_GET,  "/hello",   hello,  0     },
    {HTTP_M_POST, "/echo",    echo,   1024  },
    {HTTP_M_POST, "/echo/{}", echo,   MIB(1)},
    {HTTP_M_GET,  "/hang",    hang,   0     },
    {HTTP_M_GET,  "/stream",  stream, 0     },
    {HTTP_M_GET,  "/flood",   flood,  0     },
    {HTTP_M_GET,  "/quiet",   quiet,  0     },
    {HTTP_M_GET,  "/quiet/own", quiet_own, 0},
};

/* *state: the server's http_times, or NULL for those of proto/limits.h. */
static inline int serve_up(void **state)
{
    const struct http_times *times = *state;
    struct fix *f = calloc(1, sizeof(*f));
    struct err e = {0};
    must(f != NULL);
    memset(&t, 0, sizeof(t));
    assert_int_equal(uv_loop_init(&f->loop), 0);
    fix_dir(f);
    struct http_conf conf = {
        .routes = table,
        .n_routes = countof(table),
        .ctx = &t,
        .times = times != NULL ? *times : (struct http_times){0},
        .conns_max = 20,
        .keepalive_ms = KEEPALIVE_MS,
    };
    unit_ok(http_listen(&f->loop, f->path, &conf, &f->srv, &e), &e);
    *state = f;
    return 0;
}

static inline int serve_down(void **state)
{
    struct fix *f = *state;
    fix_down(f);
    free(f);
    return 0;
}

static inline uint64_t conns_open(const struct fix *f)
{
    struct http_stats st;
    http_get_stats(f->srv, &st);
    return st.conns_open;
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, serve_up, serve_down)
#define CASE_TIMES(fn, times) \
    cmocka_unit_test_prestate_setup_teardown(fn, serve_up, serve_down, times)
