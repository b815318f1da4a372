/* The verdict on bytes: every row whole, cut in two everywhere, and byte by
 * byte must give the same. Rows follow facts/reliability.md 3.5, 3.6. */
#include "../unit.h"
#include "http/parse.h"

#define H "Host: a\r\n"

struct row {
    const char *bytes;
    int verdict; /* events of http_parse_feed or an error code */
    const char *body;
};

static const struct row rows[] = {
    {"GET / HTTP/1.1\r\n" H "\r\n",                                           HTTP_PARSE_DONE,  ""     },
    {"\r\nGET / HTTP/1.1\r\n" H "\r\n",                                       HTTP_PARSE_DONE,  ""     },
    {"GET / HTTP/1.0\r\n\r\n",                                                HTTP_PARSE_DONE,  ""     },
    {"GET / HTTP/1.1\r\n" H,                                                  HTTP_PARSE_MORE,  NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc",                  HTTP_PARSE_DONE,
     "abc"                                                                                             },
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nab",                   HTTP_PARSE_MORE,
     NULL                                                                                              },
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
     "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",                             HTTP_PARSE_DONE,  "abcde"},
    {"GET / HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
     HTTP_PARSE_DONE,                                                                           ""     },
    {"OPTIONS / HTTP/1.1\r\n" H "\r\n",                                       HTTP_PARSE_DONE,  ""     },
 /* refused */
    {"GET / HTTP/1.1\n" H "\r\n",                                             ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\nHost: a\n\r\n",                                       ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",                                  ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n" H "\n",                                             ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n" H "\rX",                                            ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\nHost : a\r\n\r\n",                                    ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n",                             ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n" H ": a\r\n\r\n",                                    ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n" H "nocolon\r\n\r\n",                                ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n" H "X: a\001b\r\n\r\n",                              ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n\r\n",                                                ERR_HTTP,         NULL   },
    {"GET / HTTP/1.1\r\n" H H "\r\n",                                         ERR_HTTP,         NULL   },
    {"GET http://a/ HTTP/1.1\r\n" H "\r\n",                                   ERR_HTTP,         NULL   },
    {"GET * HTTP/1.1\r\n" H "\r\n",                                           ERR_HTTP,         NULL   },
    {"GET /\x80 HTTP/1.1\r\n" H "\r\n",                                       ERR_HTTP,         NULL   },
    {"GET / HTTP/2.0\r\n" H "\r\n",                                           ERR_HTTP_VERSION, NULL   },
    {"GET / HTTP/1.2\r\n" H "\r\n",                                           ERR_HTTP_VERSION, NULL   },
    {"BREW / HTTP/1.1\r\n" H "\r\n",                                          ERR_HTTP_METHOD,  NULL   },
    {"TRACE / HTTP/1.1\r\n" H "\r\n",                                         ERR_HTTP_METHOD,  NULL   },
    {"\x16\x03\x01\x02",                                                      ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: +3\r\n\r\nabc",                 ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: -3\r\n\r\nabc",                 ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3 3\r\n\r\nabc",                ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3,3\r\n\r\nabc",                ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\nabc",                    ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H
     "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",                ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: "
     "chunked\r\n\r\n0\r\n\r\n",                                         ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: "
     "3\r\n\r\n0\r\n\r\n",                                               ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n"
     "0\r\n\r\n",                                                        ERR_HTTP,         NULL   },
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",        ERR_HTTP,
     NULL                                                                                              },
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n",
     ERR_HTTP,                                                                                  NULL   },
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
     ERR_HTTP,                                                                                  NULL   },
    {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nX: "
     "y\r\n\r\n",                                                        ERR_HTTP,         NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nExpect: magic\r\n\r\nabc",
     ERR_HTTP_EXPECT,                                                                           NULL   },
    {"POST / HTTP/1.1\r\n" H "Content-Length: 1000\r\n\r\n",                  HTTP_PARSE_MORE,
     NULL                                                                                              },
};

/* Feed s in two pieces (cut) or byte by byte (cut < 0). */
static int verdict(const char *s, size_t n, long cut, struct http_msg *m)
{
    struct http_parse p;
    size_t at = 0;
    int rc = HTTP_PARSE_MORE;

    http_msg_init(m);
    m->body.max = 64;
    http_parse_init(&p);
    http_parse_begin(&p, m);
    while (rc == HTTP_PARSE_HEAD || (rc == HTTP_PARSE_MORE && at < n)) {
        size_t end = cut < 0 ? at + 1 : at < (size_t)cut ? (size_t)cut : n;
        size_t used = 0;
        if (end > n) {
            end = n;
        }
        rc = http_parse_feed(&p, s + at, end - at, &used);
        at += used;
    }
    return rc;
}

static void test_verdicts(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        const char *s = rows[i].bytes;
        size_t n = strlen(s);
        for (long cut = -1; cut <= (long)n; cut++) {
            struct http_msg m;
            int rc = verdict(s, n, cut, &m);
            if (rc != rows[i].verdict) {
                fail_msg("row %zu cut %ld: %d, not %d: %s", i, cut, rc,
                         rows[i].verdict, s);
            }
            if (rows[i].body != NULL) {
                assert_int_equal(m.body.n, strlen(rows[i].body));
                assert_memory_equal(m.body.n > 0 ? m.body.p : "", rows[i].body,
                                    m.body.n);
            }
            http_msg_fini(&m);
        }
    }
}

static int one(const char *s, size_t n)
{
    struct http_msg m;
    int rc = verdict(s, n, (long)n, &m);
    struct http_msg m2;
    int rc2 = verdict(s, n, -1, &m2);
    assert_int_equal(rc, rc2);
    http_msg_fini(&m);
    http_msg_fini(&m2);
    return rc;
}

/* prefix + n times 'x' + suffix */
static int with_run(const char *prefix, size_t n, const char *suffix)
{
    struct buf b;
    buf_init(&b, MIB(1));
    buf_puts(&b, prefix);
    for (size_t i = 0; i < n; i++) {
        buf_u8(&b, 'x');
    }
    buf_puts(&b, suffix);
    assert_true(buf_ok(&b));
    int rc = one(b.p, b.n);
    buf_fini(&b);
    return rc;
}

static void test_limits(void **state)
{
    (void)state;
    static const char end[] = " HTTP/1.1\r\n" H "\r\n";
    assert_int_equal(with_run("GET /", HTTP_URL_MAX - 2, end), HTTP_PARSE_DONE);
    assert_int_equal(with_run("GET /", HTTP_URL_MAX - 1, end), HTTP_PARSE_DONE);
    assert_int_equal(with_run("GET /", HTTP_URL_MAX, end), ERR_HTTP_URI);
    /* "X: " + value */
    static const char head[] = "GET / HTTP/1.1\r\n" H "X: ";
    assert_int_equal(with_run(head, HTTP_HEADER_LINE_MAX - 3, "\r\n\r\n"),
                     HTTP_PARSE_DONE);
    assert_int_equal(with_run(head, HTTP_HEADER_LINE_MAX - 2, "\r\n\r\n"),
                     ERR_HTTP_HEADERS);

    for (int extra = -1; extra <= 1; extra++) {
        struct buf b;
        buf_init(&b, MIB(1));
        buf_puts(&b, "GET / HTTP/1.1\r\n" H);
        for (int i = 1; i < (int)HTTP_HEADER_COUNT + extra; i++) {
            buf_printf(&b, "X%d: y\r\n", i);
        }
        buf_puts(&b, "\r\n");
        assert_int_equal(one(b.p, b.n),
                         extra <= 0 ? (int)HTTP_PARSE_DONE : ERR_HTTP_HEADERS);
        buf_fini(&b);
    }
    for (int extra = -1; extra <= 1; extra++) { /* all headers together */
        struct buf b;
        size_t left = HTTP_HEADERS_MAX - 7 + (size_t)extra; /* "Host: a" */
        buf_init(&b, MIB(1));
        buf_puts(&b, "GET / HTTP/1.1\r\n" H);
        while (left > 0) {
            size_t n = left > 8192 ? 8000 : left;
            buf_printf(&b, "X:%0*d\r\n", (int)n - 2, 0);
            left -= n;
        }
        buf_puts(&b, "\r\n");
        assert_int_equal(one(b.p, b.n),
                         extra <= 0 ? (int)HTTP_PARSE_DONE : ERR_HTTP_HEADERS);
        buf_fini(&b);
    }
    static const char post[] =
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;";
    assert_int_equal(with_run(post, 1024, "\r\na\r\n0\r\n\r\n"),
                     HTTP_PARSE_DONE);
    assert_int_equal(with_run(post, 1025, "\r\na\r\n0\r\n\r\n"), ERR_HTTP);
}

static void test_body_limit(void **state)
{
    (void)state; /* body.max is 64 in verdict() */
    static const char len[] = "POST / HTTP/1.1\r\n" H "Content-Length: ";
    char head[200];
    for (int n = 63; n <= 65; n++) {
        (void)snprintf(head, sizeof(head), "%s%d\r\n\r\n", len, n);
        assert_int_equal(with_run(head, (size_t)n, ""),
                         n <= 64 ? (int)HTTP_PARSE_DONE : ERR_TOO_BIG);
        (void)snprintf(head, sizeof(head),
                       "POST / HTTP/1.1\r\n" H
                       "Transfer-Encoding: chunked\r\n\r\n%x\r\n",
                       (unsigned)n);
        assert_int_equal(with_run(head, (size_t)n, "\r\n0\r\n\r\n"),
                         n <= 64 ? (int)HTTP_PARSE_DONE : ERR_TOO_BIG);
    }
}

static void test_headers_and_pipeline(void **state)
{
    (void)state;
    static const char s[] = "POST /a HTTP/1.1\r\nHOST: h\r\nX-One:  a b \t\r\n"
                            "Content-Length: 2\r\nEmpty:\r\n\r\nhi"
                            "GET /b?c=d HTTP/1.1\r\nHost: i\r\n\r\n";
    struct http_parse p;
    struct http_msg m;
    size_t used = 0;
    size_t at = 0;

    http_parse_init(&p);
    http_msg_init(&m);
    m.body.max = 10;
    http_parse_begin(&p, &m);
    assert_int_equal(http_parse_feed(&p, s, sizeof(s) - 1, &used),
                     HTTP_PARSE_HEAD);
    assert_string_equal(http_msg_header(&m, "host"), "h");
    assert_string_equal(http_msg_header(&m, "x-one"), "a b");
    assert_string_equal(http_msg_header(&m, "empty"), "");
    assert_null(http_msg_header(&m, "none"));
    assert_int_equal(m.method, HTTP_M_POST);
    at = used;
    assert_int_equal(http_parse_feed(&p, s + at, sizeof(s) - 1 - at, &used),
                     HTTP_PARSE_DONE);
    assert_string_equal(m.body.p, "hi");
    assert_true(m.keep_alive);
    at += used;
    http_msg_fini(&m);

    http_msg_init(&m);
    http_parse_begin(&p, &m);
    assert_int_equal(http_parse_feed(&p, s + at, sizeof(s) - 1 - at, &used),
                     HTTP_PARSE_HEAD);
    at += used;
    assert_int_equal(at, sizeof(s) - 1);
    assert_int_equal(http_parse_feed(&p, s + at, 0, &used), HTTP_PARSE_DONE);
    assert_memory_equal(m.target.p, "/b?c=d", 6);
    http_msg_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_body_limit),
        cmocka_unit_test(test_headers_and_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
