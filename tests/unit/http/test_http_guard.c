/* What a request over loopback TCP needs, head by head as it stands on the
 * wire. */
#include "../unit.h"
#include "http/guard.h"

#define KEY  "aned-0123456789abcdef0123456789abcdef"
#define GOOD "Authorization: Bearer " KEY "\r\n"
#define HOST "Host: 127.0.0.1:11435\r\n"
#define PAGE "Origin: http://localhost:3000\r\n"
#define OWN  "Origin: http://127.0.0.1:11435\r\n"
#define JSON_BODY \
    "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

static struct http_guard guard;
static bool page; /* every path is that of http_conf.page */
static const struct http_place place = {.host = "127.0.0.2", .port = 11435};

static int setup(void **state)
{
    struct err e = {0};
    (void)state;
    memset(&guard, 0, sizeof(guard));
    guard_digest(KEY, strlen(KEY), guard.key);
    unit_ok(guard_read_origins("http://localhost:3000, app://obsidian.md",
                               &guard, &e),
            &e);
    return 0;
}

/* The verdict on the bytes of one request; an error of the parser is one too.
 */
static int judge(const char *bytes, struct guard_pass *pass, const char **why)
{
    struct http_parse p;
    struct http_msg m;
    size_t used = 0;
    *why = NULL;
    *pass = (struct guard_pass){0};
    http_parse_init(&p);
    http_msg_init(&m);
    m.body.max = 100;
    http_parse_begin(&p, &m);
    int rc = http_parse_feed(&p, bytes, strlen(bytes), &used);
    if (rc == HTTP_PARSE_HEAD) {
        rc = guard_check(&guard, &place, &m, page && guard_wants_page(&m), pass,
                         why);
        assert_true((rc == 0) == (*why == NULL));
    } else {
        assert_true(rc < 0); /* every row here is a whole head */
    }
    http_msg_fini(&m);
    return rc;
}

struct row {
    const char *what, *bytes;
    int want;
};

static void check_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct guard_pass pass;
        const char *why = NULL;
        int rc = judge(rows[i].bytes, &pass, &why);
        if (rc != rows[i].want) {
            fail_msg("%s: %d, not %d", rows[i].what, rc, rows[i].want);
        }
        if (why != NULL) { /* nothing that was sent is said again */
            assert_null(strstr(why, KEY));
            assert_null(strstr(why, "evil"));
        }
    }
}

static void hosts(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"own port",    "GET / HTTP/1.1\r\n" HOST GOOD "\r\n",                       0            },
        {"no port",     "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" GOOD "\r\n",         0            },
        {"localhost",   "GET / HTTP/1.1\r\nHost: LocalHost:11435\r\n" GOOD "\r\n",
         0                                                                                        },
        {"v6",          "GET / HTTP/1.1\r\nHost: [::1]:11435\r\n" GOOD "\r\n",       0            },
        {"its address",
         "GET / HTTP/1.1\r\nHost: 127.0.0.2:11435\r\n" GOOD "\r\n",                  0            },
        {"rebinding",
         "GET / HTTP/1.1\r\nHost: evil.example:11435\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"sub-domain",
         "GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"dot",         "GET / HTTP/1.1\r\nHost: localhost.:11435\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"nip.io",      "GET / HTTP/1.1\r\nHost: 127.0.0.1.nip.io\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"0.0.0.0",     "GET / HTTP/1.1\r\nHost: 0.0.0.0:11435\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"other port",  "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"zero before",
         "GET / HTTP/1.1\r\nHost: 127.0.0.1:011435\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"empty port",  "GET / HTTP/1.1\r\nHost: 127.0.0.1:\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"user",        "GET / HTTP/1.1\r\nHost: a@127.0.0.1:11435\r\n" GOOD "\r\n",
         ERR_FORBIDDEN                                                                            },
        {"empty",       "GET / HTTP/1.1\r\nHost:\r\n" GOOD "\r\n",                   ERR_FORBIDDEN},
        {"none",        "GET / HTTP/1.0\r\n" GOOD "\r\n",                            ERR_FORBIDDEN},
        {"two",         "GET / HTTP/1.1\r\n" HOST HOST GOOD "\r\n",                  ERR_HTTP     },
    };
    check_rows(rows, countof(rows));
}

static void pages(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"listed",                 "GET / HTTP/1.1\r\n" HOST PAGE GOOD "\r\n",                    0            },
        {"listed, from elsewhere",
         "GET / HTTP/1.1\r\n" HOST PAGE GOOD
         "Sec-Fetch-Site: cross-site\r\n\r\n",                                                    0            },
        {"listed, no key",         "GET / HTTP/1.1\r\n" HOST PAGE "\r\n",
         ERR_UNAUTHORIZED                                                                                      },
        {"another",
         "GET / HTTP/1.1\r\n" HOST GOOD "Origin: http://evil.example\r\n\r\n",
         ERR_FORBIDDEN                                                                                         },
        {"null",                   "GET / HTTP/1.1\r\n" HOST GOOD "Origin: null\r\n\r\n",
         ERR_FORBIDDEN                                                                                         },
        {"empty",                  "GET / HTTP/1.1\r\n" HOST GOOD "Origin:\r\n\r\n",
         ERR_FORBIDDEN                                                                                         },
        {"longer",
         "GET / HTTP/1.1\r\n" HOST GOOD
         "Origin: http://localhost:30000\r\n\r\n",                                                ERR_FORBIDDEN},
        {"shorter",
         "GET / HTTP/1.1\r\n" HOST GOOD "Origin: http://localhost:300\r\n\r\n",
         ERR_FORBIDDEN                                                                                         },
        {"https",
         "GET / HTTP/1.1\r\n" HOST GOOD
         "Origin: https://localhost:3000\r\n\r\n",                                                ERR_FORBIDDEN},
        {"two",                    "GET / HTTP/1.1\r\n" HOST GOOD PAGE PAGE "\r\n",               ERR_FORBIDDEN},
        {"cross-site",
         "GET / HTTP/1.1\r\n" HOST GOOD "Sec-Fetch-Site: cross-site\r\n\r\n",
         ERR_FORBIDDEN                                                                                         },
        {"same-site",
         "GET / HTTP/1.1\r\n" HOST GOOD "Sec-Fetch-Site: same-site\r\n\r\n",
         ERR_FORBIDDEN                                                                                         },
        {"none and another",
         "GET / HTTP/1.1\r\n" HOST GOOD
         "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n\r\n",                            ERR_FORBIDDEN},
        {"none",                   "GET / HTTP/1.1\r\n" HOST GOOD "Sec-Fetch-Site: none\r\n\r\n",
         0                                                                                                     },
        {"same-origin",
         "GET / HTTP/1.1\r\n" HOST GOOD "Sec-Fetch-Site: same-origin\r\n\r\n",
         0                                                                                                     },
    };
    check_rows(rows, countof(rows));
}

/* The page that the listener itself gave. */
static void own_page(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"own",                      "GET / HTTP/1.1\r\n" HOST GOOD OWN "\r\n",     0               },
        {"own, as browsers send it",
         "GET / HTTP/1.1\r\n" HOST GOOD OWN
         "Sec-Fetch-Site: same-origin\r\n\r\n",                                     0               },
        {"by its other name",
         "GET / HTTP/1.1\r\nHost: localhost:11435\r\n" GOOD
         "Origin: http://localhost:11435\r\n\r\n",                                  0               },
        {"no key",                   "GET / HTTP/1.1\r\n" HOST OWN "\r\n",          ERR_UNAUTHORIZED},
        {"from elsewhere",
         "GET / HTTP/1.1\r\n" HOST GOOD OWN
         "Sec-Fetch-Site: cross-site\r\n\r\n",                                      ERR_FORBIDDEN   },
        {"another name for it",
         "GET / HTTP/1.1\r\nHost: localhost:11435\r\n" GOOD OWN "\r\n",
         ERR_FORBIDDEN                                                                              },
        {"rebound",
         "GET / HTTP/1.1\r\nHost: evil.example:11435\r\n" GOOD
         "Origin: http://evil.example:11435\r\n\r\n",                               ERR_FORBIDDEN   },
        {"another port",
         "GET / HTTP/1.1\r\n" HOST GOOD
         "Origin: http://127.0.0.1:11436\r\n\r\n",                                  ERR_FORBIDDEN   },
        {"no port",
         "GET / HTTP/1.1\r\n" HOST GOOD "Origin: http://127.0.0.1\r\n\r\n",
         ERR_FORBIDDEN                                                                              },
        {"https",
         "GET / HTTP/1.1\r\n" HOST GOOD
         "Origin: https://127.0.0.1:11435\r\n\r\n",                                 ERR_FORBIDDEN   },
        {"two",                      "GET / HTTP/1.1\r\n" HOST GOOD OWN OWN "\r\n", ERR_FORBIDDEN   },
    };
    struct guard_pass pass;
    const char *why = NULL;
    check_rows(rows, countof(rows));
    assert_int_equal(judge(rows[0].bytes, &pass, &why), 0);
    assert_null(pass.origin); /* its answers need no Access-Control */
}

/* A browser gets the page without a key, and nothing else so. */
static void without_a_key(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"html",               "GET / HTTP/1.1\r\n" HOST "Accept: text/html\r\n\r\n",  0               },
        {"head",               "HEAD / HTTP/1.1\r\n" HOST "Accept: text/html\r\n\r\n", 0               },
        {"a browser's",
         "GET / HTTP/1.1\r\n" HOST
         "Accept: application/xml;q=0.9, Text/HTML;q=0.8,*/*\r\n\r\n",                 0               },
        {"nothing said",       "GET / HTTP/1.1\r\n" HOST "\r\n",                       ERR_UNAUTHORIZED},
        {"anything",           "GET / HTTP/1.1\r\n" HOST "Accept: */*\r\n\r\n",
         ERR_UNAUTHORIZED                                                                              },
        {"text",               "GET / HTTP/1.1\r\n" HOST "Accept: text/*\r\n\r\n",
         ERR_UNAUTHORIZED                                                                              },
        {"longer",             "GET / HTTP/1.1\r\n" HOST "Accept: text/htmlx\r\n\r\n",
         ERR_UNAUTHORIZED                                                                              },
        {"in a parameter",
         "GET / HTTP/1.1\r\n" HOST "Accept: a/b; text/html\r\n\r\n",
         ERR_UNAUTHORIZED                                                                              },
        {"twice",
         "GET / HTTP/1.1\r\n" HOST
         "Accept: text/html\r\nAccept: text/html\r\n\r\n",                             ERR_UNAUTHORIZED},
        {"empty",              "GET / HTTP/1.1\r\n" HOST "Accept:\r\n\r\n",
         ERR_UNAUTHORIZED                                                                              },
        {"POST",               "POST / HTTP/1.1\r\n" HOST "Accept: text/html\r\n\r\n",
         ERR_UNAUTHORIZED                                                                              },
        {"with a body",
         "GET / HTTP/1.1\r\n" HOST
         "Accept: text/html\r\nContent-Length: 1\r\n\r\n",                             ERR_UNAUTHORIZED},
        {"a rebound name",
         "GET / HTTP/1.1\r\nHost: evil\r\nAccept: text/html\r\n\r\n",                  ERR_FORBIDDEN   },
        {"in another's frame",
         "GET / HTTP/1.1\r\n" HOST
         "Accept: text/html\r\nSec-Fetch-Site: cross-site\r\n\r\n",                    ERR_FORBIDDEN   },
    };
    page = true;
    check_rows(rows, countof(rows));
    page = false;
    struct guard_pass pass;
    const char *why = NULL;
    assert_int_equal(judge(rows[0].bytes, &pass, &why), ERR_UNAUTHORIZED);
}

static void keys(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"none",                              "GET / HTTP/1.1\r\n" HOST "\r\n",                           ERR_UNAUTHORIZED},
        {"right, another case of the scheme",
         "GET / HTTP/1.1\r\n" HOST "authorization: BEARER   " KEY " \r\n\r\n",
         0                                                                                                                },
        {"x-api-key",                         "GET / HTTP/1.1\r\n" HOST "X-Api-Key: " KEY "\r\n\r\n",
         0                                                                                                                },
        {"one of two",
         "GET / HTTP/1.1\r\n" HOST
         "Authorization: Bearer none\r\nX-Api-Key: " KEY "\r\n\r\n",
         0                                                                                                                },
        {"wrong",
         "GET / HTTP/1.1\r\n" HOST
         "Authorization: Bearer aned-0123456789abcdef0123456789abcdeF\r\n\r\n",                           ERR_UNAUTHORIZED},
        {"empty",                             "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer \r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"empty x-api-key",                   "GET / HTTP/1.1\r\n" HOST "X-Api-Key:\r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"prefix",
         "GET / HTTP/1.1\r\n" HOST
         "Authorization: Bearer aned-0123456789abcdef\r\n\r\n",                                           ERR_UNAUTHORIZED},
        {"more",
         "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " KEY "0\r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"and more",
         "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " KEY " x\r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"bare",                              "GET / HTTP/1.1\r\n" HOST "Authorization: " KEY "\r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"basic",
         "GET / HTTP/1.1\r\n" HOST "Authorization: Basic " KEY "\r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"twice",                             "GET / HTTP/1.1\r\n" HOST GOOD GOOD "\r\n",                 ERR_UNAUTHORIZED},
        {"right and wrong",
         "GET / HTTP/1.1\r\n" HOST GOOD "Authorization: Bearer x\r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"in the query",
         "GET /?key=" KEY "&api_key=" KEY " HTTP/1.1\r\n" HOST "\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"in a cookie",                       "GET / HTTP/1.1\r\n" HOST "Cookie: key=" KEY "\r\n\r\n",
         ERR_UNAUTHORIZED                                                                                                 },
        {"as a proxy's",
         "GET / HTTP/1.1\r\n" HOST "Proxy-Authorization: Bearer " KEY
         "\r\n\r\n",                                                                                      ERR_UNAUTHORIZED},
    };
    check_rows(rows, countof(rows));
    guard.open = true;
    struct guard_pass pass;
    const char *why = NULL;
    assert_int_equal(judge(rows[0].bytes, &pass, &why), 0);
    guard.open = false;
    /* a guard that was never given a key takes none */
    memset(guard.key, 0, sizeof(guard.key));
    assert_int_equal(judge(rows[1].bytes, &pass, &why), ERR_UNAUTHORIZED);
    assert_int_equal(judge(rows[5].bytes, &pass, &why), ERR_UNAUTHORIZED);
}

static void bodies(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"json",         "POST / HTTP/1.1\r\n" HOST GOOD JSON_BODY,                     0               },
        {"charset",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type: Application/JSON ; charset=utf-8\r\n"
         "Content-Length: 2\r\n\r\n{}",                                                 0               },
        {"no body",      "POST / HTTP/1.1\r\n" HOST GOOD "Content-Length: 0\r\n\r\n",
         0                                                                                              },
        {"text/plain",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",                     ERR_HTTP_TYPE   },
        {"form",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type: application/x-www-form-urlencoded\r\n"
         "Content-Length: 2\r\n\r\n{}",                                                 ERR_HTTP_TYPE   },
        {"multipart",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type: multipart/form-data; boundary=application/json\r\n"
         "Content-Length: 2\r\n\r\n{}",                                                 ERR_HTTP_TYPE   },
        {"none",         "POST / HTTP/1.1\r\n" HOST GOOD "Content-Length: 2\r\n\r\n{}",
         0                                                                                              },
        {"empty",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type:\r\nContent-Length: 2\r\n\r\n{}",                             ERR_HTTP_TYPE   },
        {"longer",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type: application/json-seq\r\nContent-Length: 2\r\n\r\n{}",           ERR_HTTP_TYPE   },
        {"two",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type: application/json\r\nContent-Type: text/plain\r\n"
         "Content-Length: 2\r\n\r\n{}",                                                 ERR_HTTP_TYPE   },
        {"chunked",
         "POST / HTTP/1.1\r\n" HOST GOOD
         "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",              ERR_HTTP_TYPE   },
        {"no key first",
         "POST / HTTP/1.1\r\n" HOST
         "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",                     ERR_UNAUTHORIZED},
    };
    check_rows(rows, countof(rows));

    static const struct row keyless[] = {
        {"json", "POST / HTTP/1.1\r\n" HOST JSON_BODY,                     0},
        {"none", "POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}",
         ERR_HTTP_TYPE},
    };
    guard.open = true;
    check_rows(keyless, countof(keyless));
    guard.open = false;
}

#define ASKS "Access-Control-Request-Method: POST\r\n"

static void preflights(void **state)
{
    struct guard_pass p;
    const char *why = NULL;
    (void)state;
    assert_int_equal(judge("OPTIONS /v1/models HTTP/1.1\r\n" HOST PAGE ASKS
                           "\r\n",
                           &p, &why),
                     0);
    assert_true(p.preflight);
    assert_ptr_equal(p.origin, guard.origin[0]); /* ours, not what was sent */
    static const struct row rows[] = {
        {"of another page",
         "OPTIONS / HTTP/1.1\r\n" HOST ASKS
         "Origin: http://evil.example\r\n\r\n",                             ERR_FORBIDDEN},
        {"of nobody",           "OPTIONS / HTTP/1.1\r\n" HOST ASKS "\r\n",
         ERR_UNAUTHORIZED                                                                },
        {"of a rebound name",
         "OPTIONS / HTTP/1.1\r\nHost: evil\r\n" PAGE ASKS "\r\n",
         ERR_FORBIDDEN                                                                   },
        {"for nothing",         "OPTIONS / HTTP/1.1\r\n" HOST PAGE "\r\n",
         ERR_UNAUTHORIZED                                                                },
        {"with another method", "PUT / HTTP/1.1\r\n" HOST PAGE ASKS "\r\n",
         ERR_UNAUTHORIZED                                                                },
    };
    check_rows(rows, countof(rows));
    assert_int_equal(
        judge("GET / HTTP/1.1\r\n" HOST PAGE GOOD ASKS "\r\n", &p, &why), 0);
    assert_false(p.preflight);
    assert_ptr_equal(p.origin, guard.origin[0]);
    assert_int_equal(judge("GET / HTTP/1.1\r\n" HOST GOOD "\r\n", &p, &why), 0);
    assert_null(p.origin);
}

/* Every byte and every bit counts, and no byte before the first that differs
 * is special. */
static void all_bytes_are_compared(void **state)
{
    uint8_t a[HTTP_KEY_DIGEST], b[HTTP_KEY_DIGEST];
    (void)state;
    for (size_t i = 0; i < sizeof(a); i++) {
        a[i] = (uint8_t)(i * 37 + 11);
    }
    memcpy(b, a, sizeof(b));
    assert_true(guard_same(a, b, sizeof(a)));
    for (size_t i = 0; i < 8 * sizeof(a); i++) {
        b[i / 8] = (uint8_t)(b[i / 8] ^ (1u << i % 8));
        assert_false(guard_same(a, b, sizeof(a)));
        b[i / 8] = a[i / 8];
    }
    for (size_t i = 0; i < sizeof(a); i++) { /* two that cancel out */
        size_t k = (i + 1) % sizeof(a);
        b[i] ^= 0x55;
        b[k] ^= 0x55;
        assert_false(guard_same(a, b, sizeof(a)));
        b[i] = a[i];
        b[k] = a[k];
    }
    assert_true(guard_same(a, b, 0));
    guard_digest("", 0, a);
    guard_digest("\0", 1, b);
    assert_false(guard_same(a, b, sizeof(a)));
}

static void lists_of_origins(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "*",
        "http://*.example.com",
        "null",
        "http://localhost:3000/",
        "http://Localhost",
        "localhost:3000",
        "http://",
        "://x",
        "http://a, *",
        "http://a b\r\nx",
        "1http://a",
    };
    for (size_t i = 0; i < countof(bad); i++) {
        struct http_guard g = {.n_origins = 7};
        struct err e = {0};
        assert_int_equal(guard_read_origins(bad[i], &g, &e), ERR_CONFIG);
        assert_int_equal(g.n_origins, 7);
    }
    struct http_guard g = {0};
    struct err e = {0};
    char text[2000] = "";
    unit_ok(guard_read_origins(" ,", &g, &e), &e);
    assert_int_equal(g.n_origins, 0);
    for (unsigned i = 0; i <= HTTP_ORIGINS_MAX; i++) {
        size_t n = strlen(text);
        int rc = guard_read_origins(text, &g, &e);
        unit_ok(rc, &e);
        assert_int_equal(g.n_origins, i);
        (void)snprintf(text + n, sizeof(text) - n, "%shttp://h%u", n ? "," : "",
                       i);
    }
    assert_int_equal(guard_read_origins(text, &g, &e), ERR_CONFIG);
    memset(text, 'a', sizeof(text));
    memcpy(text, "http://", 7);
    text[HTTP_ORIGIN_MAX] = '\0';
    unit_ok(guard_read_origins(text, &g, &e), &e);
    assert_non_null(guard_origin(&g, text));
    text[HTTP_ORIGIN_MAX] = 'a';
    text[HTTP_ORIGIN_MAX + 1] = '\0';
    assert_int_equal(guard_read_origins(text, &g, &e), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts),
        cmocka_unit_test(pages),
        cmocka_unit_test(own_page),
        cmocka_unit_test(without_a_key),
        cmocka_unit_test(keys),
        cmocka_unit_test_setup(bodies, setup),
        cmocka_unit_test(preflights),
        cmocka_unit_test(all_bytes_are_compared),
        cmocka_unit_test(lists_of_origins),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
