/* guard.h - what a request over loopback TCP needs before it is looked at
 * further. Pure.
 *
 * Loopback belongs to every user and program of the machine, and a browser
 * sends there what any web page asks for. So, in this order:
 *
 *   Host            names this machine: a page whose name was bound to
 *                   127.0.0.1 (DNS rebinding) sends its own name     else 403
 *   Origin          is absent, listed, or our own: another page asks else 403
 *   Sec-Fetch-Site  is absent, none or same-origin: the same where
 *                   no Origin is sent; not asked of a listed one     else 403
 *   key             Authorization: Bearer KEY, or x-api-key: KEY     else 401
 *   Content-Type    of a body is application/json: pages may send
 *                   other types without being asked (no preflight)   else 415
 *
 * A preflight of a listed Origin needs no key: browsers send none with it. Nor
 * does http_conf.page: a browser that is sent there has none yet, and the page
 * is the same for everybody.
 */
#pragma once

#include "http/parse.h"

/* What Host may say beside "localhost", "127.0.0.1" and "[::1]". */
struct http_place {
    char host[HTTP_ADDRESS_TEXT]; /* the listener's own address: "127.0.0.2" */
    unsigned port;
};

struct guard_pass {
    const char *origin; /* of the guard's list; NULL: none was sent, or ours */
    bool preflight;
};

/* May it pass? page: it asks for http_conf.page. 0 with *ret set; or FORBIDDEN,
 * UNAUTHORIZED, HTTP_TYPE with *why (static), which says what to do and never
 * what was sent. */
CHECKED int guard_check(const struct http_guard *g, const struct http_place *at,
                        const struct http_msg *m, bool page,
                        struct guard_pass *ret, const char **why);
/* Whether m asks for a page: a GET or HEAD without a body, whose Accept names
 * text/html, as browsers alone do. */
bool guard_wants_page(const struct http_msg *m);

/* --- its parts --- */

/* Compare n bytes. The time does not depend on what they are. */
bool guard_same(const void *a, const void *b, size_t n);
/* The digest that stands for a key, so that all keys compared have one length.
 */
void guard_digest(const char *key, size_t n, uint8_t out[HTTP_KEY_DIGEST]);
/* The host of a Host header, with this port or none. host may be NULL. */
bool guard_host_ok(const char *host, const struct http_place *at);
/* Whether a page that this listener gave asks: its origin is http:// and the
 * Host that it is asked by. Host was checked before. */
bool guard_origin_own(const char *origin, const char *host);
/* The entry of the list that is this origin, byte by byte; or NULL. */
const char *guard_origin(const struct http_guard *g, const char *origin);
/* "application/json", with parameters or without. */
bool guard_is_json(const char *type);

/* Read "http://localhost:3000, app://obsidian.md" into g: origins as browsers
 * send them. Errors: CONFIG ('*', "null", a path, upper case, too many). */
CHECKED int guard_read_origins(const char *text, struct http_guard *g,
                               struct err *e);
