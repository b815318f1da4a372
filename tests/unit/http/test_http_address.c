/* Addresses of loopback TCP: what is taken, and what is refused. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "../unit.h"
#include "http/address.h"

static void text_of(const struct http_addresses *all, char out[400])
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < all->n; i++) {
        char one[HTTP_ADDRESS_TEXT];
        address_text(&all->v[i].sa, one);
        n += (size_t)snprintf(out + n, 400 - n, "%s%s%s", i ? " " : "", one,
                              all->v[i].optional ? "?" : "");
    }
}

static void good_ones(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"",                           ""                       },
        {" , ",                        ""                       },
        {"127.0.0.1:11435",            "127.0.0.1:11435"        },
        {"127.3.2.1:1,[::1]:65535",    "127.3.2.1:1 [::1]:65535"},
        {"  [0:0::1]:0\t127.0.0.1:0 ", "[::1]:0 127.0.0.1:0"    },
        {"LocalHost:80",               "127.0.0.1:80 [::1]:80?" },
        {"127.0.0.1:0 127.0.0.1:0",    "127.0.0.1:0 127.0.0.1:0"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct http_addresses all;
        struct err e = {0};
        char got[400];
        unit_ok(address_read(rows[i].text, &all, &e), &e);
        text_of(&all, got);
        assert_string_equal(got, rows[i].want);
    }
}

static void bad_ones(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"0.0.0.0:11435",                                                        "no loopback" },
        {"[::]:11435",                                                           "no loopback" },
        {"192.168.1.2:11435",                                                    "no loopback" },
        {"128.0.0.1:1",                                                          "no loopback" },
        {"[::ffff:127.0.0.1]:1",                                                 "no loopback" },
        {"[fe80::1]:1",                                                          "no loopback" },
        {"example.com:11435",                                                    "no loopback" },
        {"127.1:11435",                                                          "no loopback" },
        {"0x7f000001:1",                                                         "no loopback" },
        {"127.0.0.1.:1",                                                         "no loopback" },
        {"*:11435",                                                              "no loopback" },
        {"::1:11435",                                                            "no loopback" },
        {"11435",                                                                "ADDRESS:PORT"},
        {":11435",                                                               "ADDRESS:PORT"},
        {"127.0.0.1",                                                            "ADDRESS:PORT"},
        {"[::1]",                                                                "ADDRESS:PORT"},
        {"127.0.0.1:",                                                           "ADDRESS:PORT"},
        {"127.0.0.1:65536",                                                      "ADDRESS:PORT"},
        {"127.0.0.1:-1",                                                         "ADDRESS:PORT"},
        {"127.0.0.1:http",                                                       "ADDRESS:PORT"},
        {"http://127.0.0.1:80/",                                                 "ADDRESS:PORT"},
        {"127.0.0.1:80 127.0.0.1:80",                                            "twice"       },
        {"localhost:80 [::1]:80",                                                "twice"       },
        {"127.0.0.1:1 127.0.0.1:2 127.0.0.1:3 127.0.0.1:4 127.0.0.1:5 "
         "127.0.0.1:6 127.0.0.1:7 127.0.0.1:8 127.0.0.1:9",             "more than 8" },
        {"127.0.0.1:1xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
         "no address"                                                                          },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct http_addresses all = {.n = 99};
        struct err e = {0};
        assert_int_equal(address_read(rows[i].text, &all, &e), ERR_CONFIG);
        if (strstr(e.msg, rows[i].says) == NULL) {
            fail_msg("%s: %s", rows[i].text, e.msg);
        }
        assert_int_equal(all.n, 99);
    }
}

static void what_is_loopback(void **state)
{
    struct sockaddr_storage sa = {0};
    struct sockaddr_in six = {.sin_family = AF_INET6};
    (void)state;
    assert_false(address_is_loopback(&sa));
    sa.ss_family = AF_UNIX;
    assert_false(address_is_loopback(&sa));
    memcpy(&sa, &six, sizeof(six)); /* :: */
    assert_false(address_is_loopback(&sa));
    assert_false(address_peer_is_loopback(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones),
        cmocka_unit_test(bad_ones),
        cmocka_unit_test(what_is_loopback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
