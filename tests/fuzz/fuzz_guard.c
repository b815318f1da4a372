/* fuzz_guard.c - the head of a request over TCP, and lists of addresses and
 * origins. A head passes only with the key, with a host of ours and from a page
 * of the list, whatever else it has: this looks for the key in the bytes that
 * passed. */
#include <string.h>

#include "http/address.h"
#include "http/guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define KEY "aned-fuzz"

static bool has(const char *p, size_t n, const char *what)
{
    size_t k = strlen(what);
    for (size_t i = 0; i + k <= n; i++) {
        if (memcmp(p + i, what, k) == 0) {
            return true;
        }
    }
    return false;
}

static void check_head(const struct http_guard *g, const char *p, size_t n)
{
    static const struct http_place at = {.host = "127.0.0.2", .port = 80};
    struct guard_pass pass = {0};
    const char *why = NULL;
    struct http_parse ps;
    struct http_msg m;
    size_t used = 0;
    http_parse_init(&ps);
    http_msg_init(&m);
    m.body.max = 256;
    http_parse_begin(&ps, &m);
    if (http_parse_feed(&ps, p, n, &used) == HTTP_PARSE_HEAD) {
        bool page = guard_wants_page(&m);
        int rc = guard_check(g, &at, &m, page, &pass, &why);
        must((rc == 0) == (why == NULL));
        must(rc != 0 || pass.preflight || page || has(p, used, KEY));
        must(!page || !m.has_body);
        if (page && rc == 0) { /* at any other path it needs the key */
            rc = guard_check(g, &at, &m, false, &pass, &why);
            must(rc != 0 || has(p, used, KEY));
        }
        const char *origin = http_msg_header(&m, "origin");
        must(rc != 0 || origin == NULL || strcmp(origin, "null") != 0);
        must(pass.origin == NULL || pass.origin == g->origin[0] ||
             pass.origin == g->origin[1]);
        must(!pass.preflight || pass.origin != NULL);
    }
    http_msg_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct http_guard g = {0}, other = {0};
    struct http_addresses all;
    struct err e = {0};
    char text[512];
    if (n > 16384) {
        return 0;
    }
    guard_digest(KEY, strlen(KEY), g.key);
    must(guard_read_origins("http://a app://b", &g, &e) == 0);
    check_head(&g, (const char *)p, n);

    size_t k = n < sizeof(text) - 1 ? n : sizeof(text) - 1;
    memcpy(text, p, k);
    text[k] = '\0';
    if (address_read(text, &all, &e) == 0) {
        must(all.n <= HTTP_TCP_MAX);
        for (size_t i = 0; i < all.n; i++) {
            char one[HTTP_ADDRESS_TEXT];
            must(address_is_loopback(&all.v[i].sa));
            address_text(&all.v[i].sa, one);
        }
    }
    if (guard_read_origins(text, &other, &e) == 0) {
        must(other.n_origins <= HTTP_ORIGINS_MAX);
        for (size_t i = 0; i < other.n_origins; i++) {
            must(strchr(other.origin[i], '*') == NULL &&
                 guard_origin(&other, other.origin[i]) != NULL);
        }
    }
    return 0;
}
