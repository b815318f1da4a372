/* The ways to leave: clients that close or half close, a server that drains or
 * closes. */
#include "handlers.h"

static void test_gone(void **state)
{
    struct fix *f = *state;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    for (int how = 0; how < 3; how++) {
        int fd = dial(f->path);
        assert_true(put(f, fd, req, sizeof(req) - 1));
        TURN_UNTIL(f, t.held != NULL);
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
        TURN_UNTIL(f, t.gone > how);
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
    get(f, fd, &b, NULL, WAIT_MS, &eof);
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
    TURN_UNTIL(f, t.held != NULL);
    (void)close(fd);
    http_reply(t.held, 200, NULL, "{}", 2); /* the write fails later */
    TURN_UNTIL(f, conns_open(f) == 0);
    assert_int_equal(t.gone, 0);
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
        get(f, idle[i], &b, "\"hi\":1", WAIT_MS, &eof);
        assert_false(eof);
    }
    idle[2] = dial(f->path);
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    TURN_UNTIL(f, t.held != NULL);
    const ssize_t all = sizeof(hello) - 1; /* no turn of the loop sees it yet */
    assert_int_equal(send(idle[1], hello, sizeof(hello) - 1, 0), all);
    http_drain(f->srv);
    get(f, idle[0], &b, NULL, WAIT_MS, &eof);
    assert_true(eof);
    assert_true(put(f, idle[2], hello, sizeof(hello) - 1));
    for (int i = 1; i < 3; i++) { /* they are answered, and that was it */
        buf_clear(&b);
        get(f, idle[i], &b, NULL, WAIT_MS, &eof);
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
    get(f, late, &b, NULL, WAIT_MS, &eof);
    assert_true(eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 503 ", 13), 0);
    assert_non_null(strstr(b.p, "Retry-After: "));
    assert_non_null(strstr(b.p, "Connection: close\r\n"));
    (void)close(late);
    late = dial(f->path);
    assert_true(put(f, late, "GET /hello HTTP/1.1\r\n" H "\r\n", 32));
    buf_clear(&b);
    get(f, late, &b, NULL, WAIT_MS, &eof);
    assert_true(eof);
    assert_int_equal(strncmp(b.p, "HTTP/1.1 200 ", 13), 0);
    (void)close(late);
    buf_clear(&b);
    http_reply(t.held, 200, NULL, "{}", 2);
    get(f, fd, &b, NULL, WAIT_MS, &eof);
    assert_true(eof);
    assert_non_null(strstr(b.p, "Connection: close\r\n"));
    (void)close(fd);
    for (int i = 0; i < 3; i++) {
        (void)close(idle[i]);
    }
    buf_fini(&b);
}

/* http_close() with an open request: on_gone comes (down() checks the rest). */
static void test_close_with_open(void **state)
{
    struct fix *f = *state;
    static const char req[] = "GET /hang HTTP/1.1\r\n" H "\r\n";
    int fd = dial(f->path);
    assert_true(put(f, fd, req, sizeof(req) - 1));
    TURN_UNTIL(f, t.held != NULL);
    http_close(f->srv, fix_closed, f);
    f->srv = NULL;
    assert_int_equal(t.gone, 0);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(t.gone, 1);
    assert_true(f->closed);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_gone),
        CASE(test_half_closed),
        CASE(test_answer_after_close),
        CASE(test_drain),
        CASE(test_close_with_open),
    };
    return cmocka_run_group_tests_name("http_leave", tests, NULL, NULL);
}
