/* test_resume.c - event streams that outlive their connection: a real listener
 * and loop, clients that are plain sockets, and events that the test writes. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "http/http.h"
#include "serve/gen/resume.h"

static struct {
    char dir[64], path[96];
    struct server s;
    struct http_server *http;
    struct resume *x; /* of the last /new */
    int rc;           /* of the last /new or /go */
    unsigned drains, over;
    bool closed;
} t;

static void on_drain(void *ctx)
{
    (void)ctx;
    t.drains++;
}

static void on_over(void *ctx)
{
    (void)ctx;
    t.over++;
    t.x = NULL;
}

static void new_stream(struct http_req *r, const struct http_args *a)
{
    const struct resume_owner o = {.on_drain = on_drain, .on_over = on_over};
    struct err e = {0};
    t.rc = resume_new(&t.s, a->v[0], r, &o, &t.x, &e);
    if (t.rc < 0) {
        http_reply_error(r, t.rc, e.msg);
    }
}

static void go(struct http_req *r, const struct http_args *a)
{
    struct err e = {0};
    uint64_t after = strtoull(a->v[1], NULL, 10);
    t.rc = resume_attach(&t.s, a->v[0], after, r, &e);
    if (t.rc < 0) {
        http_reply_error(r, t.rc, e.msg);
    }
}

static const struct http_route routes[] = {
    {HTTP_M_GET, "/new/{}",   new_stream, 0},
    {HTTP_M_GET, "/go/{}/{}", go,         0},
};

#define UNTIL(condition)                      \
    while (!(condition)) {                    \
        (void)uv_run(&t.s.loop, UV_RUN_ONCE); \
    }

static int setup(void **state)
{
    (void)state;
    struct err e = {0};
    memset(&t, 0, sizeof(t));
    conf_init(&t.s.conf);
    (void)snprintf(t.dir, sizeof(t.dir), "/tmp/aned-resume-XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    assert_true(file_join(t.path, sizeof(t.path), t.dir, "s.sock"));
    assert_int_equal(uv_loop_init(&t.s.loop), 0);
    t.s.resumes = resumes_new(&t.s);
    const struct http_conf c = {.routes = routes, .n_routes = countof(routes)};
    unit_ok(http_listen(&t.s.loop, t.path, &c, &t.http, &e), &e);
    return 0;
}

/* As the server does it: connections first, then what outlives them. */
static void on_closed(void *ctx)
{
    (void)ctx;
    t.closed = true;
    resumes_stop(t.s.resumes);
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    http_close(t.http, on_closed, NULL);
    assert_int_equal(uv_run(&t.s.loop, UV_RUN_DEFAULT), 0);
    assert_true(t.closed);
    assert_int_equal(uv_loop_close(&t.s.loop), 0);
    unit_ok(file_rmtree(t.dir, &e), &e);
    return 0;
}

/* --- clients --- */

static int ask(const char *target)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char text[128];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", t.path);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n",
                     target);
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

/* What comes until `want` stands in it; NULL: until the end. */
static void hear(int fd, struct buf *b, const char *want)
{
    for (;;) {
        char part[65536];
        ssize_t k = recv(fd, part, sizeof(part), 0);
        if (k > 0) {
            buf_put(b, part, (size_t)k);
            assert_true(buf_ok(b));
        } else if (k == 0 || errno != EAGAIN) {
            assert_null(want);
            return;
        }
        if (want != NULL && b->n > 0 &&
            memmem(b->p, b->n, want, strlen(want))) {
            return;
        }
        (void)uv_run(&t.s.loop, UV_RUN_NOWAIT);
    }
}

/* A stream `id` with a reader. */
static int open_stream(const char *id)
{
    char target[64];
    (void)snprintf(target, sizeof(target), "/new/%s", id);
    t.x = NULL;
    int fd = ask(target);
    UNTIL(t.x != NULL);
    return fd;
}

static bool say(const char *text)
{
    char event[64];
    int n = snprintf(event, sizeof(event), "data: %s\n\n", text);
    return resume_write(t.x, event, (size_t)n);
}

/* The reader's end is seen by the daemon. */
static void leave(int fd)
{
    struct http_stats st = {0};
    http_get_stats(t.http, &st);
    uint64_t before = st.conns_open;
    (void)close(fd);
    do {
        (void)uv_run(&t.s.loop, UV_RUN_ONCE);
        http_get_stats(t.http, &st);
    } while (st.conns_open == before);
}

/* --- */

static void what_was_missed_comes_later(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MIB(1));
    int fd = open_stream("a");
    assert_true(say("one") && say("two"));
    hear(fd, &b, "data: two\n\n"); /* number and event are two chunks */
    assert_non_null(memmem(b.p, b.n, "id: 1\n", 6));
    assert_non_null(memmem(b.p, b.n, "id: 2\n", 6));
    leave(fd);
    assert_true(say("three")); /* nobody reads, and nothing is lost */
    buf_clear(&b);
    fd = ask("/go/a/1");
    hear(fd, &b, "data: three");
    assert_non_null(memmem(b.p, b.n, "data: two", 9));
    assert_null(memmem(b.p, b.n, "data: one", 9));
    assert_true(say("four"));
    resume_end(t.x);
    hear(fd, &b, "data: four\n\n");
    assert_non_null(memmem(b.p, b.n, "id: 4\n", 6));
    (void)close(fd);
    /* also once it is over, for a while */
    buf_clear(&b);
    fd = ask("/go/a/3");
    hear(fd, &b, "data: four");
    assert_null(memmem(b.p, b.n, "data: three", 11));
    (void)close(fd);
    assert_int_equal(t.over, 0);
    assert_int_equal(resumes_running(t.s.resumes), 0);
    buf_fini(&b);
}

static void a_newer_reader_takes_over(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MIB(1));
    int old = open_stream("a");
    assert_true(say("one"));
    hear(old, &b, "data: one");
    buf_clear(&b);
    int fd = ask("/go/a/0");
    hear(fd, &b, "data: one");
    assert_true(say("two"));
    hear(fd, &b, "data: two");
    buf_clear(&b);
    hear(old, &b, "0\r\n\r\n"); /* the end of its chunks */
    assert_null(memmem(b.p, b.n, "data: two", 9));
    (void)close(old);
    (void)close(fd);
    buf_fini(&b);
}

/* Without a reader the stream pauses when the kept bytes are full, and
 * continues with the next reader, who misses no event. */
static void it_pauses_when_nobody_reads(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, (size_t)4 * RESUME_KEPT_MAX);
    int fd = open_stream("a");
    assert_true(say("0"));
    hear(fd, &b, "data: 0");
    leave(fd);
    char event[1024];
    memset(event, 'x', sizeof(event));
    memcpy(event, "data: ", 6);
    memcpy(event + sizeof(event) - 2, "\n\n", 2);
    unsigned n = 1;
    while (resume_write(t.x, event, sizeof(event))) {
        n++;
        assert_true(n < RESUME_KEPT_MAX / 512);
    }
    n++;
    assert_int_equal(t.drains, 0);
    buf_clear(&b);
    fd = ask("/go/a/1");
    char last[32];
    (void)snprintf(last, sizeof(last), "id: %u\n", n);
    hear(fd, &b, last);
    UNTIL(t.drains == 1);
    assert_non_null(memmem(b.p, b.n, "id: 2\n", 6));
    (void)close(fd);
    buf_fini(&b);
}

static void wrong_questions_are_told_so(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MIB(1));
    int fd = open_stream("a");
    assert_true(say("one"));
    hear(fd, &b, "data: one");
    static const struct {
        const char *target;
        int rc;
        const char *status;
    } wrong[] = {
        {"/go/b/0", ERR_NOT_FOUND, "404"},
        {"/go/a/2", ERR_INVALID,   "400"},
    };
    for (size_t i = 0; i < countof(wrong); i++) {
        buf_clear(&b);
        int other = ask(wrong[i].target);
        hear(other, &b, wrong[i].status);
        assert_int_equal(t.rc, wrong[i].rc);
        (void)close(other);
    }
    assert_int_equal(resume_cancel(&t.s, "b"), ERR_NOT_FOUND);
    assert_int_equal(resume_cancel(&t.s, "a"), 0);
    assert_int_equal(t.over, 1);
    assert_int_equal(resume_cancel(&t.s, "a"), ERR_NOT_FOUND);
    (void)close(fd);
    buf_fini(&b);
}

/* A stream whose client does not return ends after resume_s; one that has sent
 * no event ends with its connection. */
static void nobody_comes_back(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MIB(1));
    int fd = open_stream("a");
    leave(fd);
    assert_int_equal(t.over, 1);
    fd = open_stream("b");
    assert_true(say("one"));
    hear(fd, &b, "data: one");
    leave(fd);
    assert_int_equal(t.over, 1);
    t.s.conf.http_resume_s = 0;
    UNTIL(t.over == 2);
    buf_fini(&b);
}

/* RESUME_MAX of them; one that ended makes way for a new one. */
static void there_are_only_so_many(void **state)
{
    (void)state;
    struct buf b;
    int fd[RESUME_MAX];
    char id[16];
    buf_init(&b, MIB(1));
    for (unsigned i = 0; i < RESUME_MAX; i++) {
        (void)snprintf(id, sizeof(id), "s%u", i);
        fd[i] = open_stream(id);
        assert_true(say("one"));
    }
    int more = ask("/new/more");
    hear(more, &b, "503");
    assert_int_equal(t.rc, ERR_BUSY);
    (void)close(more);
    resume_end(t.x);
    more = open_stream("more");
    assert_int_equal(t.rc, 0);
    assert_int_equal(resumes_running(t.s.resumes), RESUME_MAX);
    (void)close(more);
    for (unsigned i = 0; i < RESUME_MAX; i++) {
        (void)close(fd[i]);
    }
    buf_fini(&b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_missed_comes_later), TEST(a_newer_reader_takes_over),
        TEST(it_pauses_when_nobody_reads), TEST(wrong_questions_are_told_so),
        TEST(nobody_comes_back),           TEST(there_are_only_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
