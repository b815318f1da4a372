/* What takes its time: streams and their readers, slow clients, silence. */
#include "handlers.h"

static struct http_times soon = {.header = 150, .body_idle = 150, .idle = 300};

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

    const char *r = talk(f, &b, "GET /hello HT", NULL, &eof); /* half a head */
    assert_int_equal(strncmp(r, "HTTP/1.1 408 ", 13), 0);
    assert_true(eof);

    r = talk(f, &b, "POST /echo HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nab",
             NULL, &eof); /* half a body */
    assert_int_equal(strncmp(r, "HTTP/1.1 408 ", 13), 0);
    assert_true(eof);
    buf_fini(&b);
}

static struct http_times drips = {.request = 2000, .body_idle = 1000};

/* A body that drips: the total ends it. */
static void test_request_time(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char head[] =
        "POST /echo HTTP/1.1\r\n" H "Content-Length: 999\r\n\r\n";
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    int64_t from = now_ms();
    assert_true(put(f, fd, head, sizeof(head) - 1));
    for (int i = 0; i < 400 && b.n == 0; i++) {
        (void)put(f, fd, "x", 1);
        get(f, fd, &b, NULL, 25, &eof);
    }
    assert_int_equal(strncmp(b.p, "HTTP/1.1 408 ", 13), 0);
    assert_true(now_ms() - from >= 1900);
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
    get(f, fd, &b, "{\"hi\":1}", WAIT_MS, &eof);
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

static void test_back_pressure(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] =
        "GET /flood HTTP/1.1\r\n" H "Connection: close\r\n\r\n";
    buf_init(&b, MIB(8));
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 100);
    assert_true(t.flood_left > 400); /* paused: nobody reads */
    get(f, fd, &b, NULL, WAIT_MS, &eof);
    assert_true(eof);
    assert_int_equal(t.flood_left, 0);
    assert_true(t.drains > 5);
    assert_int_equal(t.gone, 0);
    assert_true(b.n > 5000000);
    assert_memory_equal(b.p + b.n - 5, "0\r\n\r\n", 5);
    (void)close(fd);
    TURN_UNTIL(f, conns_open(f) == 0);
    struct http_stats st;
    http_get_stats(f->srv, &st);
    assert_int_equal(st.streams_stalled, 0);
    buf_fini(&b);
}

static struct http_times stalls = {.stall = 300};

/* A client that never reads is cut off, and the handler told. */
static void test_who_never_reads(void **state)
{
    struct fix *f = *state;
    static const char req[] = "GET /flood HTTP/1.1\r\n" H "\r\n";
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    TURN_UNTIL(f, t.gone > 0);
    assert_int_equal(t.gone, 1);
    struct http_stats st;
    http_get_stats(f->srv, &st);
    assert_int_equal(st.streams_stalled, 1);
    assert_int_equal(st.streams_open, 0);
    assert_int_equal(st.conns_open, 0);
    (void)close(fd);
}

/* A stream may break its silence in its own words. */
static void test_keep_alive_events(void **state)
{
    struct fix *f = *state;
    struct buf b;
    bool eof = false;
    static const char req[] = "GET /quiet/own HTTP/1.1\r\n" H "\r\n";
    buf_init(&b, MIB(1));
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    TURN_UNTIL(f, t.held != NULL && http_stream_begun(t.held));
    (void)http_stream_write(t.held, "data: x\n\n", 9);
    http_stream_end(t.held);
    t.held = NULL;
    get(f, fd, &b, "0\r\n\r\n", WAIT_MS, &eof);
    assert_non_null(strstr(b.p, OWN_PING));
    assert_null(strstr(b.p, ": keep-alive"));
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
    size_t pauses = 0; /* of a busy machine: a comment fits into one */
    int fd = dial(f->path);
    int64_t from = now_ms();
    assert_true(put(f, fd, req, sizeof(req) - 1));
    TURN_UNTIL(f, t.held != NULL);
    assert_false(http_stream_begun(t.held));
    turn(f, 3 * KEEPALIVE_MS + 50);
    assert_true(http_stream_begun(t.held));
    size_t most = (size_t)(now_ms() - from) / KEEPALIVE_MS + 1;
    for (int i = 0; i < 10; i++) { /* busy: no comment fits between */
        from = now_ms();
        (void)http_stream_write(t.held, "data: x\n\n", 9);
        turn(f, 20);
        pauses += now_ms() - from > KEEPALIVE_MS - 50;
    }
    http_stream_end(t.held);
    t.held = NULL;
    get(f, fd, &b, "0\r\n\r\n", WAIT_MS, &eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 200 ", 13), 0);
    assert_non_null(strstr(b.p, "Content-Type: text/event-stream\r\n"));
    assert_int_equal(count(b.p, "data: x\n\n"), 10);
    size_t later = count(strstr(b.p, "data: x"), ": keep-alive\n\n");
    assert_in_range(count(b.p, ": keep-alive\n\n") - later, 2, most);
    assert_true(later <= pauses);
    (void)close(fd);

    fd = dial(f->path); /* what is no event stream gets none */
    assert_true(put(f, fd, hang, sizeof(hang) - 1));
    TURN_UNTIL(f, t.held != NULL);
    turn(f, 2 * KEEPALIVE_MS);
    http_reply(t.held, 200, NULL, "{}", 2);
    buf_clear(&b);
    get(f, fd, &b, "{}", WAIT_MS, &eof);
    assert_null(strstr(b.p, "keep-alive\n"));
    assert_int_equal(t.gone, 0);
    (void)close(fd);
    turn(f, 5);

    fd = dial(f->path); /* and a client that leaves during them is noticed */
    assert_true(put(f, fd, req, sizeof(req) - 1));
    turn(f, 2 * KEEPALIVE_MS);
    assert_int_equal(t.gone, 0);
    (void)close(fd);
    TURN_UNTIL(f, t.gone > 0);
    assert_int_equal(t.gone, 1);
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
        TURN_UNTIL(f, t.held != NULL);
        struct http_req *r = t.held;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE_TIMES(test_timeouts, &soon),
        CASE_TIMES(test_request_time, &drips),
        CASE(test_head_of_a_stream),
        CASE(test_back_pressure),
        CASE_TIMES(test_who_never_reads, &stalls),
        CASE(test_keep_alive_events),
        CASE(test_keep_alive_comments),
        CASE(test_a_turn_is_one_write),
    };
    return cmocka_run_group_tests_name("http_stream", tests, NULL, NULL);
}
