/* Event streams, whole and cut everywhere. */
#include "../unit.h"
#include "base/buf.h"
#include "client/sse.h"

static int note(void *user, const char *event, const char *data, size_t n,
                struct err *e)
{
    struct buf *b = user;
    (void)e;
    assert_int_equal(strlen(data), n);
    buf_printf(b, "%s<%s>", event, data);
    return strcmp(data, "stop") == 0 ? ERR_CANCELLED : 0;
}

static const struct {
    const char *in, *out;
} rows[] = {
    {"data: a\n\n",                            "message<a>"               },
    {"data:a\n\ndata: b\n\n",                  "message<a>message<b>"     },
    {"data: a\r\n\r\ndata: b\r\n\r\n",         "message<a>message<b>"     },
    {"data: a\r\rdata: b\r\r",                 "message<a>message<b>"     },
    {"data: a\ndata: b\n\n",                   "message<a\nb>"            },
    {"data:  a\n\n",                           "message< a>"              },
    {"data\n\n",                               "message<>"                },
    {"data:\ndata\n\n",                        "message<\n>"              },
    {": ping\n\n:\n\ndata: a\n\n",             "message<a>"               },
    {"event: done\ndata: a\n\ndata: b\n\n",    "done<a>message<b>"        },
    {"event: x\n\ndata: a\n\n",                "message<a>"               }, /* no data: no event */
    {"id: 4\nretry: 5\nfoo: bar\ndata: a\n\n", "message<a>"               },
    {"\xef\xbb\xbf"
     "data: a\n\n",                       "message<a>"               },
    {"data: a\n",                              ""                         }, /* not ended */
    {"data: a\n\ndata: b",                     "message<a>"               },
    {"data: {\"a\":\"b: c\"}\n\n",             "message<{\"a\":\"b: c\"}>"},
    {"data: \xc3\xa4\n\n",                     "message<\xc3\xa4>"        },
    {"database: a\n\n",                        ""                         },
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        size_t n = strlen(rows[i].in);
        for (size_t step = 1; step <= n; step++) {
            struct sse s;
            struct buf b;
            struct err e = {0};
            buf_init(&b, 1000);
            sse_init(&s, note, &b);
            for (size_t at = 0; at < n; at += step) {
                size_t k = n - at < step ? n - at : step;
                unit_ok(sse_feed(&s, rows[i].in + at, k, &e), &e);
            }
            const char *got = b.n > 0 ? b.p : "";
            if (strcmp(got, rows[i].out) != 0) {
                fail_msg("row %zu step %zu: %s", i, step, got);
            }
            sse_fini(&s);
            buf_fini(&b);
        }
    }
}

static void test_callback_stops(void **state)
{
    (void)state;
    static const char in[] = "data: stop\n\ndata: never\n\n";
    struct sse s;
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1000);
    sse_init(&s, note, &b);
    assert_int_equal(sse_feed(&s, in, sizeof(in) - 1, &e), ERR_CANCELLED);
    assert_string_equal(b.p, "message<stop>");
    sse_fini(&s);
    buf_fini(&b);
}

static void test_bounded(void **state)
{
    (void)state;
    static char block[65536];
    struct sse s;
    struct buf b;
    struct err e = {0};
    int rc = 0;
    size_t fed = 0;
    memset(block, 'x', sizeof(block));
    buf_init(&b, 1000);
    sse_init(&s, note, &b);
    while (rc == 0 && fed < 2 * SSE_EVENT_MAX) {
        rc = sse_feed(&s, block, sizeof(block), &e);
        fed += sizeof(block);
    }
    assert_int_equal(rc, ERR_TOO_BIG);
    assert_true(fed <= SSE_EVENT_MAX + sizeof(block));
    sse_fini(&s);
    sse_init(&s, note, &b); /* many short data lines of one event */
    for (fed = 0, rc = 0; rc == 0 && fed < 2 * SSE_EVENT_MAX; fed += 60000) {
        rc = sse_feed(&s, "data: ", 6, &e);
        if (rc == 0) {
            rc = sse_feed(&s, block, 60000, &e);
        }
        if (rc == 0) {
            rc = sse_feed(&s, "\n", 1, &e);
        }
    }
    assert_int_equal(rc, ERR_TOO_BIG);
    sse_fini(&s);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_callback_stops),
        cmocka_unit_test(test_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
