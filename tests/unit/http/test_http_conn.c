/* Requests on connections over a real socket, and their answers. */
#include "handlers.h"

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
    get(f, fd, &b, NULL, WAIT_MS, &eof);
    assert_true(eof);
    assert_int_equal(count(b.p, "{\"hi\":1}"), 16);
    (void)close(fd);
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
        get(f, fd, &b, "{\"hi\":1}", WAIT_MS, &eof);
        assert_int_equal(strstr(b.p, "Connection: close") != NULL,
                         i == HTTP_REQUESTS_MAX);
    }
    get(f, fd, &b, NULL, WAIT_MS, &eof);
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
    get(f, fd, &b, "\r\n\r\n", WAIT_MS, &eof);
    assert_string_equal(b.p, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_true(put(f, fd, "ok", 2));
    get(f, fd, &b, "|ok]", WAIT_MS, &eof);
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
        get(f, fd, &b, NULL, WAIT_MS, &eof);
        assert_true(eof);
        assert_int_equal(strncmp(b.p, "HTTP/1.1 413 ", 13), 0);
        assert_non_null(strstr(b.p, "{\"error\":{\"code\":\"too_big\""));
        assert_non_null(
            strstr(b.p, "/echo/x: the body is over its limit, 1048576 bytes"));
        (void)close(fd);
    }
    free(body);
    buf_fini(&b);
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
    TURN_UNTIL(f, t.held != NULL);
    http_reply_error(t.held, ERR_BUSY, "all \"slots\" taken");
    t.held = NULL;
    get(f, fd, &b, "{\"hi\":1}", WAIT_MS, &eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 503 ", 13), 0);
    assert_non_null(strstr(b.p, "Retry-After: "));
    assert_non_null(strstr(b.p, "all \\\"slots\\\" taken"));
    assert_int_equal(count(b.p, "HTTP/1.1 200"), 1);
    assert_int_equal(t.gone, 0);
    (void)close(fd);
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
    get(f, fds[24], &b, "}}", WAIT_MS, &eof); /* over conns_max */
    assert_int_equal(strncmp(b.p, "HTTP/1.1 503 ", 13), 0);
    buf_clear(&b);
    assert_true(put(f, fds[0], "GET /hello HTTP/1.1\r\n" H "\r\n", 32));
    get(f, fds[0], &b, "{\"hi\":1}", WAIT_MS, &eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 200 ", 13), 0);
    for (int i = 0; i < 25; i++) {
        (void)close(fds[i]);
    }
    TURN_UNTIL(f, conns_open(f) == 0);
    assert_int_equal(open_fds(), before);
    struct http_stats st;
    http_get_stats(f->srv, &st);
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
        get(f, fds[i], &b, NULL, WAIT_MS, &eof);
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
    get(f, fd, &b, "{\"hi\":1}", WAIT_MS, &eof);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_statuses),
        CASE(test_keep_alive_pipeline_head),
        CASE(test_pipeline_16_then_half_close),
        CASE(test_requests_per_connection),
        CASE(test_expect_continue),
        CASE(test_too_big_is_written),
        CASE(test_later_then_pipelined),
        CASE(test_many_connections),
        CASE(test_a_turn_is_bounded),
        CASE(test_large_without_copies),
    };
    return cmocka_run_group_tests_name("http_conn", tests, NULL, NULL);
}
