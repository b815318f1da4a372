/* The client against a peer that says what the test wants, in pieces. */
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../unit.h"
#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

static char dir[] = "/tmp/aned-client-XXXXXX";
static struct http_peer peer;
static int listener = -1;

struct script {
    const char *says;
    size_t step;      /* bytes a write; 0: all at once */
    bool hang;        /* stay open and silent afterwards */
    char heard[8192]; /* what the client sent */
};

static void *serve(void *arg)
{
    struct script *s = arg;
    int fd = accept(listener, NULL, NULL);
    size_t at = 0;
    while (at < sizeof(s->heard) - 1) {
        ssize_t k = read(fd, s->heard + at, sizeof(s->heard) - 1 - at);
        if (k <= 0) {
            break;
        }
        at += (size_t)k;
        const char *end = strstr(s->heard, "\r\n\r\n");
        if (end != NULL &&
            (strstr(s->heard, "Content-Length") == NULL || end[4] != '\0')) {
            break;
        }
    }
    size_t n = strlen(s->says);
    for (at = 0; at < n;) {
        size_t k = s->step == 0 || n - at < s->step ? n - at : s->step;
        if (send(fd, s->says + at, k, MSG_NOSIGNAL) < 0) {
            break;
        }
        at += k;
        usleep(s->step != 0 ? 200 : 0);
    }
    char c = 0;
    while (s->hang && read(fd, &c, 1) > 0) {
    }
    (void)close(fd);
    return NULL;
}

static int up(void **state)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(peer.path, sizeof(peer.path), "%s/s", dir);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/s", dir);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return listen(listener, 8);
}

static int down(void **state)
{
    (void)state;
    (void)close(listener);
    (void)unlink(peer.path);
    return rmdir(dir);
}

static int keep(void *user, const char *p, size_t n, struct err *e)
{
    struct buf *b = user;
    buf_put(b, p, n);
    return b->n > 0 && strstr(b->p, "enough") != NULL
               ? err_set(e, ERR_CANCELLED, "enough")
               : 0;
}

static int request(struct script *s, const char *body, struct buf *stream,
                   struct buf *out, int *status, struct err *e)
{
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, serve, s), 0);
    int rc = http_request(&peer, body != NULL ? "POST" : "GET", "/p", body,
                          body != NULL ? strlen(body) : 0,
                          stream != NULL ? keep : NULL, stream, status, out, e);
    assert_int_equal(pthread_join(t, NULL), 0);
    return rc;
}

#define OK "HTTP/1.1 200 OK\r\n"

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int rc, status;
        const char *body;
    } rows[] = {
        {OK "Content-Length: 5\r\n\r\nhello",                                           0,               200, "hello"     },
        {OK
         "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", 0,               200, "hello"     },
        {"HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 1\r\n\r\nx",               0,
         200,                                                                                                 "x"         },
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",                       0,               404, "{}"        },
        {OK "Connection: close\r\n\r\nto the end",                                      0,               200, "to the end"},
        {OK "Content-Length: 9\r\n\r\nhello",                                           ERR_UNAVAILABLE, 0,   NULL        },
        {OK "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",                           ERR_UNAVAILABLE,
         0,                                                                                                   NULL        },
        {"SSH-2.0-OpenSSH_9\r\n",                                                       ERR_HTTP,        0,   NULL        },
        {"",                                                                            ERR_UNAVAILABLE, 0,   NULL        },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        for (size_t step = 0; step < 3; step++) {
            struct script s = {.says = rows[i].says, .step = step};
            struct err e = {0};
            struct buf out;
            int status = 0;
            buf_init(&out, 1000);
            int rc = request(&s, NULL, NULL, &out, &status, &e);
            bool same = rows[i].rc < 0 ? rc < 0 : rc == 0;
            if (!same || (rc < 0 && rc != rows[i].rc && rc != ERR_HTTP) ||
                status != rows[i].status) {
                fail_msg("row %zu step %zu: rc %d status %d %s", i, step, rc,
                         status, e.msg);
            }
            if (rc == 0) {
                assert_string_equal(out.p, rows[i].body);
            }
            buf_fini(&out);
        }
    }
}

static void test_request_bytes(void **state)
{
    (void)state;
    struct script s = {.says = OK "Content-Length: 0\r\n\r\n"};
    struct err e = {0};
    struct buf out;
    int status = 0;
    buf_init(&out, 100);
    unit_ok(request(&s, "{\"a\":1}", NULL, &out, &status, &e), &e);
    assert_int_equal(strncmp(s.heard, "POST /p HTTP/1.1\r\n", 18), 0);
    assert_non_null(strstr(s.heard, "\r\nHost: aned\r\n"));
    assert_non_null(strstr(s.heard, "\r\nContent-Length: 7\r\n"));
    assert_non_null(strstr(s.heard, "\r\n\r\n{\"a\":1}"));
    buf_fini(&out);
}

static void test_stream_and_stop(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf out;
    struct buf got;
    int status = 0;
    buf_init(&out, 100);
    buf_init(&got, 1000);
    struct script s = {.says = OK "Transfer-Encoding: chunked\r\n\r\n"
                                  "2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"};
    unit_ok(request(&s, NULL, &got, &out, &status, &e), &e);
    assert_string_equal(got.p, "abcd");
    /* an error's body does not go to the stream */
    struct script bad = {.says = "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n"
                                 "\r\n{}"};
    buf_clear(&got);
    unit_ok(request(&bad, NULL, &got, &out, &status, &e), &e);
    assert_int_equal(got.n, 0);
    assert_string_equal(out.p, "{}");
    /* the reader has enough: the connection ends, the peer notices */
    struct script more = {.says = OK "Transfer-Encoding: chunked\r\n\r\n"
                                     "6\r\nenough\r\n",
                          .hang = true};
    buf_clear(&got);
    assert_int_equal(request(&more, NULL, &got, &out, &status, &e),
                     ERR_CANCELLED);
    /* an answer over its limit */
    struct script big = {.says = OK "Content-Length: 101\r\n\r\n"
                                    "1234567890123456789012345678901234567890"
                                    "1234567890123456789012345678901234567890"
                                    "123456789012345678901"};
    buf_clear(&out);
    assert_int_equal(request(&big, NULL, NULL, &out, &status, &e), ERR_TOO_BIG);
    buf_fini(&out);
    buf_fini(&got);
}

static void *press_ctrl_c(void *arg)
{
    usleep(100000);
    (void)pthread_kill(*(pthread_t *)arg, SIGINT);
    return NULL;
}

static void test_interrupt(void **state)
{
    (void)state;
    struct script s = {.says = OK "Transfer-Encoding: chunked\r\n\r\n",
                       .hang = true};
    struct err e = {0};
    struct buf out;
    struct buf got;
    int status = 0;
    pthread_t me = pthread_self();
    pthread_t t;
    interrupt_catch();
    interrupt_clear();
    buf_init(&out, 100);
    buf_init(&got, 100);
    assert_int_equal(pthread_create(&t, NULL, press_ctrl_c, &me), 0);
    assert_int_equal(request(&s, NULL, &got, &out, &status, &e), ERR_CANCELLED);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(interrupted, 1);
    interrupt_clear();
    buf_fini(&out);
    buf_fini(&got);
}

/* An answer that never ends is given up, and one that is there in time is not.
 */
static void test_time_limit(void **state)
{
    (void)state;
    struct script slow = {.says = OK "Content-Length: 5\r\n\r\nhel",
                          .hang = true};
    struct script quick = {.says = OK "Content-Length: 5\r\n\r\nhello"};
    struct err e = {0};
    struct buf out;
    int status = 0;
    double from = now_seconds();
    interrupt_clear();
    buf_init(&out, 100);
    peer.end_s = from + 0.2;
    assert_int_equal(request(&slow, NULL, NULL, &out, &status, &e),
                     ERR_TIMEOUT);
    assert_true(now_seconds() >= from + 0.2);
    assert_int_equal(request(&quick, NULL, NULL, &out, &status, &e),
                     ERR_TIMEOUT); /* the time is over */
    buf_clear(&out);
    peer.end_s = now_seconds() + 600;
    unit_ok(request(&quick, NULL, NULL, &out, &status, &e), &e);
    assert_string_equal(out.p, "hello");
    peer.end_s = 0;
    buf_fini(&out);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    struct http_peer none = {0};
    struct err e = {0};
    struct buf out;
    int status = 0;
    (void)snprintf(none.path, sizeof(none.path), "%s/none", dir);
    buf_init(&out, 100);
    assert_int_equal(
        http_request(&none, "GET", "/", NULL, 0, NULL, NULL, &status, &out, &e),
        ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, none.path));
    assert_int_equal(err_exit(e.code), EXIT_UNAVAILABLE);
    buf_fini(&out);
}

static void test_error_bodies(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body;
        int code;
        const char *text;
    } rows[] = {
        {404, "{\"error\":{\"code\":\"not_found\",\"message\":\"no\"}}",
         ERR_NOT_FOUND,                                                                       "no"                     },
        {400,
         "{\"error\":{\"code\":\"invalid\",\"param\":\"quant\","
         "\"message\":\"int3\"}}",                                       ERR_INVALID,         "quant: int3"            },
        {400,
         "{\"error\":{\"code\":\"invalid\",\"param\":\"n\","
         "\"message\":\"n: too big\"}}",                                 ERR_INVALID,         "n: too big"             },
        {400,
         "{\"error\":{\"code\":\"invalid\",\"param\":\"n\","
         "\"message\":\"not one of 16\"}}",                              ERR_INVALID,         "n: not one of 16"       },
        {404,
         "{\"error\":{\"code\":\"model_not_found\",\"param\":\"model\","
         "\"message\":\"there is no model 'x'\"}}",                      ERR_MODEL_NOT_FOUND, "there is no model 'x'"  },
        {404, "{\"error\":{\"code\":404,\"message\":\"x\"}}",            ERR_NOT_FOUND,
         "x"                                                                                                           },
        {503, "{\"error\":{\"code\":\"new.name\"}}",                     ERR_BUSY,            NULL                     },
        {500, "{\"error\":\"plain\"}",                                   ERR_INTERNAL,        "plain"                  },
        {500, "<html>",                                                  ERR_INTERNAL,        "the daemon answered 500"},
        {413, "",                                                        ERR_TOO_BIG,         "the daemon answered 413"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        assert_int_equal(
            ask_error(rows[i].status, rows[i].body, strlen(rows[i].body), &e),
            rows[i].code);
        assert_int_equal(e.code, rows[i].code);
        if (rows[i].text != NULL) {
            assert_string_equal(e.msg, rows[i].text);
        }
    }
}

static void test_paths(void **state)
{
    (void)state;
    char out[300];
    struct err e = {0};
    unit_ok(ask_path(out, sizeof(out), "/m/", "a.b-c", "/load", &e), &e);
    assert_string_equal(out, "/m/a.b-c/load");
    static const char *const bad[] = {"", "..", "a/b", "a b", "%2e", "-x"};
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(ask_path(out, sizeof(out), "/m/", bad[i], "", &e),
                         ERR_NOT_FOUND);
    }
}

/* Only this machine's addresses, in numbers: a key goes nowhere else. */
static void urls(void **state)
{
    static const struct {
        const char *url, *host; /* NULL: refused */
    } rows[] = {
        {"http://127.0.0.1:11435",   "127.0.0.1:11435"},
        {"HTTP://LocalHost:80/",     "LocalHost:80"   },
        {"http://[::1]:65535",       "[::1]:65535"    },
        {"http://127.9.9.9:1",       "127.9.9.9:1"    },
        {"https://127.0.0.1:80",     NULL             },
        {"127.0.0.1:80",             NULL             },
        {"http://127.0.0.1",         NULL             },
        {"http://127.0.0.1:0",       NULL             },
        {"http://127.0.0.1:65536",   NULL             },
        {"http://127.0.0.1:80/v1",   NULL             },
        {"http://192.0.2.1:80",      NULL             },
        {"http://[::2]:80",          NULL             },
        {"http://a@127.0.0.1:80",    NULL             },
        {"http://evil.example:80",   NULL             },
        {"http://localhost.evil:80", NULL             },
        {"http://:80",               NULL             },
        {"http://",                  NULL             },
        {"",                         NULL             },
    };
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        struct http_peer p = {.end_s = 0};
        struct err e = {0};
        int rc = http_peer_url(&p, rows[i].url, &e);
        assert_int_equal(rc, rows[i].host != NULL ? 0 : ERR_USAGE);
        if (rc == 0) {
            assert_string_equal(p.host, rows[i].host);
            assert_true(p.tcp_len > 0 && p.named);
        }
    }
    struct http_peer p = {.end_s = 0};
    struct err e = {0};
    assert_int_equal(setenv("ANED_API_KEY", "k\r\nX: y", 1), 0);
    assert_int_equal(http_peer_url(&p, rows[0].url, &e), ERR_USAGE);
    assert_int_equal(setenv("ANED_API_KEY", "k", 1), 0);
    p.key.s[0] = '\0';
    unit_ok(http_peer_url(&p, rows[0].url, &e), &e);
    assert_string_equal(p.key.s, "k");
    assert_int_equal(unsetenv("ANED_API_KEY"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_request_bytes),
        cmocka_unit_test(test_stream_and_stop),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_error_bodies),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, up, down);
}
