/* Requests that wait until a daemon is ready: of several listeners, in the
 * order they came. */
#include "harness.h"

enum { MAX = 3 };

static struct {
    struct fix f; /* the loop and the first listener */
    char path[2][96];
    struct http_server *srv[2];
    struct http_hold hold;
    char order[64]; /* of what ran */
    int closed;
} t;

static void note(struct http_req *r, const struct http_args *a)
{
    size_t n = strlen(t.order);
    (void)snprintf(t.order + n, sizeof(t.order) - n, "%s", a->v[0]);
    http_reply(r, 200, NULL, "{}", 2);
}

static void early(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_reply(r, 200, NULL, "{\"early\":1}", 11);
}

static const struct http_route table[] = {
    {HTTP_M_GET, "/early",   early, 0},
    {HTTP_M_GET, "/note/{}", note,  0},
};

static int up(void **state)
{
    struct err e = {0};
    (void)state;
    memset(&t, 0, sizeof(t));
    assert_int_equal(uv_loop_init(&t.f.loop), 0);
    fix_dir(&t.f);
    http_hold_begin(&t.hold, MAX, "/early");
    struct http_conf conf = {
        .routes = table, .n_routes = countof(table), .hold = &t.hold};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(t.path[i], sizeof(t.path[i]), "%s/%d", t.f.dir, i);
        unit_ok(http_listen(&t.f.loop, t.path[i], &conf, &t.srv[i], &e), &e);
    }
    return 0;
}

static void on_closed(void *ctx)
{
    (void)ctx;
    t.closed++;
}

static int down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        http_close(t.srv[i], on_closed, NULL);
    }
    while (t.closed < 2) {
        (void)uv_run(&t.f.loop, UV_RUN_ONCE);
    }
    assert_int_equal(t.hold.n, 0);
    fix_down(&t.f);
    return 0;
}

/* Ask listener i, and see that the request has come. */
static int ask(int i, const char *path, size_t waiting)
{
    char text[128];
    int fd = dial(t.path[i]);
    assert_true(fd >= 0);
    (void)snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n",
                   path);
    assert_true(put(&t.f, fd, text, strlen(text)));
    while (t.hold.n < waiting) {
        (void)uv_run(&t.f.loop, UV_RUN_ONCE);
    }
    return fd;
}

static void assert_answer(int fd, const char *status, const char *has)
{
    struct buf b;
    bool eof = false;
    buf_init(&b, KIB(64));
    get(&t.f, fd, &b, "}", WAIT_MS, &eof);
    buf_u8(&b, '\0');
    assert_true(strncmp(b.p + 9, status, 3) == 0);
    assert_non_null(strstr(b.p, has));
    buf_fini(&b);
    (void)close(fd);
}

static void they_run_in_their_order(void **state)
{
    (void)state;
    int a = ask(1, "/note/a", 1);
    int b = ask(0, "/note/b", 2);
    assert_answer(ask(0, "/early", 2), "200", "early");
    int c = ask(1, "/note/c", 3);
    assert_answer(ask(0, "/note/d", 3), "503", "Retry-After: ");
    assert_string_equal(t.order, "");
    (void)close(b); /* its client does not wait */
    while (t.hold.n > 2) {
        (void)uv_run(&t.f.loop, UV_RUN_ONCE);
    }
    b = ask(0, "/note/e", 3);
    http_hold_end(&t.hold);
    assert_string_equal(t.order, "ace");
    assert_answer(a, "200", "{}");
    assert_answer(b, "200", "{}");
    assert_answer(c, "200", "{}");
    assert_answer(ask(0, "/note/f", 0), "200", "{}");
    assert_string_equal(t.order, "acef");
}

static void they_are_told_of_the_end(void **state)
{
    (void)state;
    int a = ask(0, "/note/a", 1);
    int b = ask(1, "/note/b", 2);
    http_hold_refuse(&t.hold, ERR_UNAVAILABLE, "the daemon is stopping");
    assert_answer(a, "503", "stopping");
    assert_answer(b, "503", "stopping");
    assert_answer(ask(0, "/note/c", 0), "503", "starting");
    assert_string_equal(t.order, "");
}

static void all_get_one_answer_until_it_begins_anew(void **state)
{
    (void)state;
    int a = ask(0, "/note/a", 1);
    http_hold_answer(&t.hold, ERR_CONFIG, "line 3 is wrong");
    assert_answer(a, "503", "line 3 is wrong");
    assert_answer(ask(1, "/note/b", 0), "503", "\"config\"");
    assert_answer(ask(0, "/early", 0), "200", "early");
    http_hold_answer(&t.hold, ERR_CONFIG, "line 4 is");
    assert_answer(ask(1, "/note/c", 0), "503", "line 4 is");
    http_hold_begin(&t.hold, MAX, "/early");
    int d = ask(1, "/note/d", 1);
    http_hold_end(&t.hold);
    assert_answer(d, "200", "{}");
    assert_string_equal(t.order, "d");
}

static void they_are_there_at_the_close(void **state)
{
    (void)state;
    (void)close(ask(0, "/note/a", 1)); /* `down` closes what still waits */
    int b = ask(1, "/note/b", 1);
    assert_true(t.hold.n >= 1);
    (void)close(b);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)
    const struct CMUnitTest tests[] = {
        CASE(they_run_in_their_order),
        CASE(they_are_told_of_the_end),
        CASE(all_get_one_answer_until_it_begins_anew),
        CASE(they_are_there_at_the_close),
    };
    return cmocka_run_group_tests_name("http_hold", tests, NULL, NULL);
}
