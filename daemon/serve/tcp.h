/* tcp.h - loopback TCP: the listeners of [http] listen, and the key that is
 * needed there.
 *
 * Without the option nothing listens on TCP, unless the service manager passes
 * such a socket. The key is made by the first start with a listener; only its
 * digest is kept in memory. A port that somebody else has is an error of the
 * start, as a wrong configuration is (reload.h): a daemon that serves without
 * it would look well to all but those who need it.
 *
 * Thread: the loop thread, unless noted.
 */
#pragma once

#include "http/http.h"
#include "serve/conf.h"
#include "serve/home.h"

struct server;

/* Read the options' texts, for the line that has them. Errors: CONFIG. */
CHECKED int tcp_check_listen(const char *text, struct err *e);
CHECKED int tcp_check_origins(const char *text, struct err *e);

/* What requests over TCP need, out of c, with the key of h where it is needed:
 * where c names listeners, or the service manager has passed some. Errors:
 * CONFIG, IO. */
CHECKED int tcp_guard(const struct conf *c, const struct home *h, bool handed,
                      struct http_guard *ret, struct err *e);
/* The digest of the key of h, which is made when it is absent. Any thread. */
CHECKED int tcp_key(const struct home *h, uint8_t ret[HTTP_KEY_DIGEST],
                    struct err *e);
/* The same of a new key in its place. Any thread. */
CHECKED int tcp_new_key(const struct home *h, uint8_t ret[HTTP_KEY_DIGEST],
                        struct err *e);
/* Listen as c says, on all addresses or on none; s->guard is set. Does nothing
 * when it listens already. Errors: CONFIG, CONFLICT. */
CHECKED int tcp_listen(struct server *s, const struct conf *c, struct err *e);
/* Connections that the Unix socket may have, so that TCP's listeners have room
 * too; *tcp: each of those. */
size_t tcp_share(const struct conf *c, size_t *tcp);
