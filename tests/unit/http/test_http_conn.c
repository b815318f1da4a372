/* Connections over a real socket: replies, limits, streams, the ways to leave.
 */
#include "harness.h"

#define H "Host: a\r\n"

static struct {
    struct http_req *held; /* by /hang, /later */
    int gone, drains, slow;
    size_t flood_left;
    bool wrote_past_false;
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
    http_stream_expect(r);
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
};

static int up(void **state)
{
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
        .times = {.header = 150,
                  .request = 400,
                  .body_idle = 150,
                  .idle = 300,
                  .stall = 300},
        .conns_max = 20,
        .keepalive_ms = KEEPALIVE_MS,
    };
    unit_ok(http_listen(&f->loop, f->path, &conf, &f->srv, &e), &e);
    *state = f;
    return 0;
}

static int down(void **state)
{
    struct fix *f = *state;
    fix_down(f);
    free(f);
    return 0;
}

static void test_statuses(void **state)
{
    static const struct {
        const char *bytes, *status;
        bool closes;
    } rows[] = {
        {"GET /hello HTTP/1.1\r\n" H "\r\n",                                    "200", false},
        {"GET /hello?x=%zz HTTP/1.1\r\n" H "\r\n",                              "200", false},
        {"GET /hello HTTP/1.1\r\n" H "Connection: close\r\n\r\n",               "200", true },
        {"GET /hello HTTP/1.0\r\n\r\n",                                         "200", true },
        {"GET /none HTTP/1.1\r\n" H "\r\n",                                     "404", false},
        {"POST /none HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx",              "404", true },
        {"POST /hello HTTP/1.1\r\n" H "\r\n",                                   "405", false},
        {"PUT /hello HTTP/1.1\r\n" H "\r\n",                                    "405", false},
        {"OPTIONS /hello HTTP/1.1\r\n" H "\r\n",                                "405", false},
        {"BREW /hello HTTP/1.1\r\n" H "\r\n",                                   "501", true },
        {"GET /hello HTTP/2.0\r\n" H "\r\n",                                    "505", true },
        {"GET /hello\n\n",                                                      "400", true },
        {"GET /echo/%2e%2e HTTP/1.1\r\n" H "\r\n",                              "400", true },
        {"GET /hello HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx",              "413", true },
        {"POST /echo HTTP/1.1\r\n" H "Content-Length: 1025\r\n\r\n",            "413",
         true                                                                               },
        {"POST /echo HTTP/1.1\r\n" H "Content-Length: 99999999999\r\n\r\n",
         "413",                                                                        true },
        {"POST /echo HTTP/1.1\r\n" H "Content-Length: 1\r\nExpect: no\r\n\r\n",
         "417",                                                                        true },
        {"POST /echo HTTP/1.1\r\n" H
         "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n",        "415", true },
        {"POST /echo HTTP/1.1\r\n" H "Content-Encoding: identity\r\n"
         "Content-Encoding: br\r\nContent-Length: 1\r\n\r\n",          "415", true },
        {"GET /hello HTTP/1.1\r\n" H "Content-Encoding: gzip\r\n\r\n",          "200",
         false                                                                              },
    };
    struct fix *f = *state;
    struct buf b;
    buf_init(&b, MIB(1));
    for (size_t i = 0; i < countof(rows); i++) {
        bool eof = false;
        char want[32];
        const char *r =
            talk(f, &b, rows[i].bytes, rows[i].closes ? NULL : "}", &eof);
        (void)snprintf(want, sizeof(want), "HTTP/1.1 %s ", rows[i].status);
        if (strncmp(r, want, strlen(want)) != 0 || eof != rows[i].closes) {
            fail_msg("row %zu: eof %d: %s", i, eof, r);
        }
        assert_non_null(strstr(r, "X-Content-Type-Options: nosniff\r\n"));
        assert_non_null(strstr(r, "Cache-Control: no-store\r\n"));
        assert_non_null(strstr(r, "Content-Type: application/json\r\n"));
        assert_int_equal(count(r, "HTTP/1.1 "), 1);
        if (rows[i].status[0] != '2') {
            assert_non_null(strstr(r, "\r\n\r\n{\"error\":{\"code\":\""));
        }
        if (strcmp(rows[i].status, "405") == 0) {
            assert_non_null(strstr(r, "Allow: GET, HEAD\r\n"));
        }
    }
    buf_fini(&b);
}

static void test_keep_alive_pipeline_head(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    buf_init(&b, MIB(1));
    const char *r =
        talk(f, &b,
             "POST /echo?q=a%20b HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc"
             "GET /stream HTTP/1.1\r\n" H "\r\n"
             "HEAD /hello HTTP/1.1\r\n" H "\r\n"
             "HEAD /stream HTTP/1.1\r\n" H "\r\n"
             "GET /stream HTTP/1.0\r\n\r\n",
             NULL, &eof);
    assert_true(eof);
    assert_int_equal(count(r, "HTTP/1.1 200"), 5);
    assert_non_null(strstr(r, "[/echo|a b|abc]"));
    assert_non_null(strstr(r, "Transfer-Encoding: chunked\r\n"));
    assert_non_null(strstr(r, "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n"
                              "0\r\n\r\nHTTP/1.1 200 OK"));
    assert_non_null(strstr(r, "Content-Length: 8\r\n"));
    assert_int_equal(count(r, "{\"hi\""), 0); /* HEAD has no body */
    assert_non_null(strstr(r, "\r\n\r\ndata: 1\n\ndata: 2\n\n")); /* 1.0 */
    buf_fini(&b);
}

static void test_pipeline_16_then_half_close(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    for (int i = 0; i < 16; i++) {
        static const char s[] = "GET /hello HTTP/1.1\r\n" H "\r\n";
        assert_int_equal(send(fd, s, sizeof(s) - 1, 0), sizeof(s) - 1);
    }
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    get(f, fd, &b, NULL, 2000, &eof);
    assert_true(eof);
    assert_int_equal(count(b.p, "{\"hi\":1}"), 16);
    (void)close(fd);
    buf_fini(&b);
}

/* HEAD of a stream is its head: the handler hears that nobody reads on, and the
 * connection's next request is answered. */
static void test_head_of_a_stream(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char head[] = "HEAD /follow HTTP/1.1\r\n" H "\r\n"
                               "GET /hello HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    assert_true(put(f, fd, head, sizeof(head) - 1));
    get(f, fd, &b, "{\"hi\":1}", 5000, &eof);
    assert_false(eof);
    assert_int_equal(count(b.p, "HTTP/1.1 200"), 2);
    assert_non_null(strstr(b.p, "Content-Type: text/event-stream\r\n"));
    assert_null(strstr(b.p, "data: 1"));
    assert_null(t.held);
    assert_int_equal(t.gone, 1);
    (void)close(fd);
    turn(f, 5);
    assert_int_equal(t.gone, 1);
    assert_int_equal(http_open_requests(f->srv), 0);
    struct http_stats st;
    http_get_stats(f->srv, &st);
    assert_int_equal(st.streams_open, 0);
    buf_fini(&b);
}

static void test_requests_per_connection(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /hello HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    for (unsigned i = 1; i <= HTTP_REQUESTS_MAX; i++) {
        buf_clear(&b);
        assert_true(put(f, fd, req, sizeof(req) - 1));
        get(f, fd, &b, "{\"hi\":1}", 1000, &eof);
        assert_int_equal(strstr(b.p, "Connection: close") != NULL,
                         i == HTTP_REQUESTS_MAX);
    }
    get(f, fd, &b, NULL, 1000, &eof);
    assert_true(eof);
    (void)close(fd);
    buf_fini(&b);
}

static void test_expect_continue(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    buf_init(&b, MIB(1));
    static const char head[] =
        "POST /echo HTTP/1.1\r\n" H "Content-Length: 2\r\n"
        "Expect: 100-continue\r\n\r\n";
    int fd = dial(f->path);
    assert_true(put(f, fd, head, sizeof(head) - 1));
    get(f, fd, &b, "\r\n\r\n", 1000, &eof);
    assert_string_equal(b.p, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_true(put(f, fd, "ok", 2));
    get(f, fd, &b, "|ok]", 1000, &eof);
    assert_false(eof);
    assert_int_equal(count(b.p, "HTTP/1.1 200 OK"), 1);
    (void)close(fd);
    buf_fini(&b);
}

/* A body over its limit, all of it sent: the 413 arrives, whole. */
static void test_too_big_is_written(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    char *body = calloc(1, MIB(1) + 1);
    must(body != NULL);
    buf_init(&b, MIB(1));
    for (int chunked = 0; chunked <= 1; chunked++) {
        char head[200];
        int n = snprintf(
            head, sizeof(head), "POST /echo/x HTTP/1.1\r\n" H "%s\r\n\r\n%s",
            chunked ? "Transfer-Encoding: chunked" : "Content-Length: 1048577",
            chunked ? "100001\r\n" : "");
        int fd = dial(f->path);
        buf_clear(&b);
        assert_true(put(f, fd, head, (size_t)n));
        assert_true(put(f, fd, body, MIB(1) + 1));
        get(f, fd, &b, NULL, 2000, &eof);
        assert_true(eof);
        assert_int_equal(strncmp(b.p, "HTTP/1.1 413 ", 13), 0);
        assert_non_null(strstr(b.p, "{\"error\":{\"code\":\"too_big\""));
        (void)close(fd);
    }
    free(body);
    buf_fini(&b);
}

static void test_timeouts(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    buf_init(&b, MIB(1));
    int64_t from = now_ms(); /* silent: closed without a word */
    assert_string_equal(talk(f, &b, "", NULL, &eof), "");
    assert_true(eof);
    assert_true(now_ms() - from >= 250);

    from = now_ms(); /* half a head */
    const char *r = talk(f, &b, "GET /hello HT", NULL, &eof);
    assert_int_equal(strncmp(r, "HTTP/1.1 408 ", 13), 0);
    assert_true(eof);

    r = talk(f, &b, "POST /echo HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nab",
             NULL, &eof); /* half a body */
    assert_int_equal(strncmp(r, "HTTP/1.1 408 ", 13), 0);
    assert_true(eof);

    int fd = dial(f->path); /* a body that drips: the total ends it */
    static const char head[] =
        "POST /echo HTTP/1.1\r\n" H "Content-Length: 99\r\n\r\n";
    from = now_ms();
    buf_clear(&b);
    assert_true(put(f, fd, head, sizeof(head) - 1));
    for (int i = 0; i < 400 && b.n == 0; i++) {
        (void)put(f, fd, "x", 1);
        get(f, fd, &b, NULL, 25, &eof);
    }
    assert_int_equal(strncmp(b.p, "HTTP/1.1 408 ", 13), 0);
    assert_true(now_ms() - from >= 350);
    (void)close(fd);
    buf_fini(&b);
}

static void test_gone(void **state)
{
    struct fix *f = *state;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    for (int how = 0; how < 3; how++) {
        int fd = dial(f->path);
        assert_true(put(f, fd, req, sizeof(req) - 1));
        turn(f, 5);
        assert_non_null(t.held);
        assert_int_equal(http_open_requests(f->srv), 1);
        if (how == 1) { /* it has no more to ask, and waits for the answer */
            assert_int_equal(shutdown(fd, SHUT_WR), 0);
        } else if (how == 2) { /* so much sent ahead that reading stopped */
            static char junk[300000];
            memset(junk, 'x', sizeof(junk));
            (void)send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
        }
        turn(f, 100);
        assert_int_equal(t.gone, how);
        (void)close(fd);
        for (int i = 0; i < 500 && t.gone == how; i++) {
            turn(f, 10);
        }
        assert_int_equal(t.gone, how + 1);
        assert_null(t.held);
        assert_int_equal(http_open_requests(f->srv), 0);
    }
}

/* Who only shuts its writing side is still answered, all that it asked. */
static void test_half_closed(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n"
                              "GET /hang HTTP/1.1\r\n" H "\r\n"
                              "GET /stream HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    assert_int_equal(send(fd, req, sizeof(req) - 1, 0), sizeof(req) - 1);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    for (int i = 0; i < 2; i++) {
        turn(f, 60);
        assert_non_null(t.held);
        assert_int_equal(t.gone, 0);
        struct http_req *r = t.held;
        t.held = NULL;
        http_reply(r, 200, NULL, "{\"late\":1}", 10);
    }
    get(f, fd, &b, NULL, 5000, &eof);
    assert_true(eof);
    assert_int_equal(count(b.p, "HTTP/1.1 200 "), 3);
    assert_int_equal(count(b.p, "{\"late\":1}"), 2);
    assert_non_null(strstr(b.p, "data: 2\n\n"));
    assert_int_equal(t.gone, 0);
    (void)close(fd);
    buf_fini(&b);
}

/* Answering between the client's leaving and on_gone ends the request, too. */
static void test_answer_after_close(void **state)
{
    struct fix *f = *state;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 5);
    (void)close(fd);
    http_reply(t.held, 200, NULL, "{}", 2); /* the write fails later */
    turn(f, 10);
    assert_int_equal(t.gone, 0);
    struct http_stats st;
    http_get_stats(f->srv, &st);
    assert_int_equal(st.conns_open, 0);
}

static void test_later_then_pipelined(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n"
                              "GET /hello HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 5);
    assert_non_null(t.held);
    http_reply_error(t.held, ERR_BUSY, "all \"slots\" taken");
    t.held = NULL;
    get(f, fd, &b, "{\"hi\":1}", 1000, &eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 503 ", 13), 0);
    assert_non_null(strstr(b.p, "Retry-After: "));
    assert_non_null(strstr(b.p, "all \\\"slots\\\" taken"));
    assert_int_equal(count(b.p, "HTTP/1.1 200"), 1);
    assert_int_equal(t.gone, 0);
    (void)close(fd);
    buf_fini(&b);
}

static void test_back_pressure(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /flood HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(8));
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 100);
    assert_true(t.flood_left > 400); /* paused: nobody reads */
    get(f, fd, &b, NULL, 1500, &eof);
    assert_int_equal(t.flood_left, 0);
    assert_true(t.drains > 5);
    assert_int_equal(t.gone, 0);
    assert_true(b.n > 5000000);
    assert_memory_equal(b.p + b.n - 5, "0\r\n\r\n", 5);
    (void)close(fd);
    turn(f, 5);

    /* A client that never reads is cut off, and the handler told. */
    fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 900);
    assert_int_equal(t.gone, 1);
    struct http_stats st;
    http_get_stats(f->srv, &st);
    assert_int_equal(st.streams_stalled, 1);
    assert_int_equal(st.streams_open, 0);
    assert_int_equal(st.conns_open, 0);
    (void)close(fd);
    buf_fini(&b);
}

/* Comments come while an event stream is silent, and only then. */
static void test_keep_alive_comments(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /quiet HTTP/1.1\r\n" H "\r\n";
    static const char hang[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 20);
    assert_false(http_stream_begun(t.held));
    turn(f, 3 * KEEPALIVE_MS + 50);
    assert_true(http_stream_begun(t.held));
    for (int i = 0; i < 10; i++) { /* busy: no comment fits between */
        (void)http_stream_write(t.held, "data: x\n\n", 9);
        turn(f, 20);
    }
    http_stream_end(t.held);
    get(f, fd, &b, "0\r\n\r\n", 1000, &eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 200 ", 13), 0);
    assert_non_null(strstr(b.p, "Content-Type: text/event-stream\r\n"));
    assert_in_range(count(b.p, ": keep-alive\n\n"), 2, 4);
    assert_int_equal(count(b.p, "data: x\n\n"), 10);
    const char *last = strstr(b.p, "data: x");
    assert_null(strstr(last, ": keep-alive"));
    (void)close(fd);

    fd = dial(f->path); /* what is no event stream gets none */
    assert_true(put(f, fd, hang, sizeof(hang) - 1));
    turn(f, 2 * KEEPALIVE_MS);
    http_reply(t.held, 200, NULL, "{}", 2);
    buf_clear(&b);
    get(f, fd, &b, "{}", 1000, &eof);
    assert_null(strstr(b.p, "keep-alive\n"));
    assert_int_equal(t.gone, 0);
    (void)close(fd);
    turn(f, 5);

    fd = dial(f->path); /* and a client that leaves during them is noticed */
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 2 * KEEPALIVE_MS);
    (void)close(fd);
    turn(f, 20);
    assert_int_equal(t.gone, 1);
    buf_fini(&b);
}

static void test_many_connections(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    int fds[25];
    size_t before = open_fds();
    buf_init(&b, MIB(1));
    for (int i = 0; i < 25; i++) {
        fds[i] = dial(f->path);
        turn(f, 1);
    }
    get(f, fds[24], &b, "}}", 1000, &eof); /* over conns_max */
    assert_int_equal(strncmp(b.p, "HTTP/1.1 503 ", 13), 0);
    buf_clear(&b);
    assert_true(put(f, fds[0], "GET /hello HTTP/1.1\r\n" H "\r\n", 32));
    get(f, fds[0], &b, "{\"hi\":1}", 1000, &eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 200 ", 13), 0);
    for (int i = 0; i < 25; i++) {
        (void)close(fds[i]);
    }
    turn(f, 20);
    assert_int_equal(open_fds(), before);
    struct http_stats st;
    http_get_stats(f->srv, &st);
    assert_int_equal(st.conns_open, 0);
    assert_int_equal(st.conns, 25);
    buf_fini(&b);
}

/* What many ask at once is shared out over turns of the loop; all are answered,
 * also what follows on a connection that was put off, and its end. */
static void test_a_turn_is_bounded(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /slow HTTP/1.1\r\n" H "\r\n"
                              "GET /slow HTTP/1.1\r\n" H "\r\n";
    int fds[12];
    buf_init(&b, MIB(1));
    for (size_t i = 0; i < countof(fds); i++) {
        fds[i] = dial(f->path);
        turn(f, 2);
        assert_int_equal(send(fds[i], req, sizeof(req) - 1, 0),
                         sizeof(req) - 1);
        assert_int_equal(shutdown(fds[i], SHUT_WR), 0);
    }
    int64_t end = now_ms() + 60000;
    while (t.slow < 2 * (int)countof(fds) && now_ms() < end) {
        int before = t.slow;
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_true(t.slow - before <= 3); /* of 2 ms each */
    }
    for (size_t i = 0; i < countof(fds); i++) {
        buf_clear(&b);
        get(f, fds[i], &b, NULL, 5000, &eof);
        assert_true(eof);
        assert_int_equal(count(b.p, "HTTP/1.1 200 "), 2);
        (void)close(fds[i]);
    }
    buf_fini(&b);
}

/* A body that was taken over, and an answer that brings room for its head. */
static void test_large_without_copies(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] =
        "POST /take HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello"
        "HEAD /hello HTTP/1.1\r\n" H "\r\n"
        "GET /hello HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(4));
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    get(f, fd, &b, "{\"hi\":1}", 5000, &eof);
    assert_int_equal(count(b.p, "HTTP/1.1 200 "), 3);
    assert_non_null(strstr(b.p, "Content-Length: 1000005\r\n"));
    const char *body = strstr(b.p, "\r\n\r\nhello");
    assert_non_null(body);
    assert_true(body[9] == 'z' && body[9 + 999999] == 'z');
    assert_int_equal(strncmp(body + 9 + 1000000, "HTTP/1.1 200 ", 13), 0);
    struct http_stats st;
    http_get_stats(f->srv, &st);
    assert_int_equal(st.bytes_out, b.n);
    (void)close(fd);
    buf_fini(&b);
}

static void test_drain(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(1));
    static const char hello[] = "GET /hello HTTP/1.1\r\n" H "\r\n";
    int idle[3]; /* one says nothing, one has just spoken, one never did */
    for (int i = 0; i < 2; i++) {
        idle[i] = dial(f->path);
        assert_true(put(f, idle[i], hello, sizeof(hello) - 1));
        buf_clear(&b);
        get(f, idle[i], &b, "\"hi\":1", 1000, &eof);
        assert_false(eof);
    }
    idle[2] = dial(f->path);
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 5);
    const ssize_t all = sizeof(hello) - 1; /* no turn of the loop sees it yet */
    assert_int_equal(send(idle[1], hello, sizeof(hello) - 1, 0), all);
    http_drain(f->srv);
    get(f, idle[0], &b, NULL, 1000, &eof);
    assert_true(eof);
    assert_true(put(f, idle[2], hello, sizeof(hello) - 1));
    for (int i = 1; i < 3; i++) { /* they are answered, and that was it */
        buf_clear(&b);
        get(f, idle[i], &b, NULL, 1000, &eof);
        assert_true(eof);
        assert_int_equal(strncmp(b.p, "HTTP/1.1 200 ", 13), 0);
        assert_non_null(strstr(b.p, "Connection: close\r\n"));
    }
    assert_int_equal(http_open_requests(f->srv), 1);
    static const char post[] =
        "POST /echo HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nhi";
    int late = dial(f->path); /* new work is refused, questions are answered */
    assert_true(put(f, late, post, sizeof(post) - 1));
    buf_clear(&b);
    get(f, late, &b, NULL, 1000, &eof);
    assert_true(eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 503 ", 13), 0);
    assert_non_null(strstr(b.p, "Retry-After: "));
    assert_non_null(strstr(b.p, "Connection: close\r\n"));
    (void)close(late);
    late = dial(f->path);
    assert_true(put(f, late, "GET /hello HTTP/1.1\r\n" H "\r\n", 32));
    buf_clear(&b);
    get(f, late, &b, NULL, 1000, &eof);
    assert_true(eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 200 ", 13), 0);
    (void)close(late);
    buf_clear(&b);
    http_reply(t.held, 200, NULL, "{}", 2);
    get(f, fd, &b, NULL, 1000, &eof);
    assert_true(eof);
    assert_non_null(strstr(b.p, "Connection: close\r\n"));
    (void)close(fd);
    for (int i = 0; i < 3; i++) {
        (void)close(idle[i]);
    }
    buf_fini(&b);
}

/* What a turn of the loop says leaves at its end, all of it together; a server
 * that closes before that loses none of it. */
static void test_a_turn_is_one_write(void **state)
{
    struct fix *f = *state;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    for (int closing = 0; closing < 2; closing++) {
        char got[4096] = "";
        int fd = dial(f->path);
        assert_true(put(f, fd, req, sizeof(req) - 1));
        turn(f, 5);
        struct http_req *r = t.held;
        assert_non_null(r);
        t.held = NULL;
        http_stream_begin(r, 200, "text/event-stream");
        assert_true(http_stream_write(r, "data: 1\n\n", 9));
        assert_true(http_stream_write(r, "data: 2\n\n", 9));
        http_stream_end(r);
        assert_true(recv(fd, got, sizeof(got), 0) < 0 && errno == EAGAIN);
        if (closing == 1) {
            http_close(f->srv, fix_closed, f);
            f->srv = NULL;
            assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
        } else {
            (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        assert_true(recv(fd, got, sizeof(got) - 1, 0) > 0);
        assert_int_equal(strncmp(got, "HTTP/1.1 200 ", 13), 0);
        assert_non_null(strstr(got, "data: 1\n\n\r\n9\r\ndata: 2\n\n"));
        assert_non_null(strstr(got, "\r\n0\r\n\r\n"));
        (void)close(fd);
    }
}

/* http_close() with an open request: on_gone comes (down() checks the rest). */
static void test_close_with_open(void **state)
{
    struct fix *f = *state;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 5);
    http_close(f->srv, fix_closed, f);
    f->srv = NULL;
    assert_int_equal(t.gone, 0);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(t.gone, 1);
    assert_true(f->closed);
    (void)close(fd);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_statuses),
        T(test_keep_alive_pipeline_head),
        T(test_pipeline_16_then_half_close),
        T(test_requests_per_connection),
        T(test_expect_continue),
        T(test_too_big_is_written),
        T(test_timeouts),
        T(test_head_of_a_stream),
        T(test_gone),
        T(test_half_closed),
        T(test_answer_after_close),
        T(test_later_then_pipelined),
        T(test_back_pressure),
        T(test_keep_alive_comments),
        T(test_many_connections),
        T(test_a_turn_is_bounded),
        T(test_large_without_copies),
        T(test_drain),
        T(test_a_turn_is_one_write),
        T(test_close_with_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
