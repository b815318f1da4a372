/* tcp.h - loopback TCP: what [http] says of it, and the key that is needed
 * there. The listeners: listeners.h.
 *
 * Without the option nothing listens on TCP, unless the service manager passes
 * such a socket. The key is made by the first start with a listener; only its
 * digest is kept in memory. A port that somebody else has is an error of the
 * start, as a wrong configuration is (reload.h): a daemon that serves without
 * it would look well to all but those who need it.
 *
 * Thread: any.
 */
#pragma once

#include "http/http.h"
#include "serve/conf.h"
#include "serve/home.h"

/* Read the options' texts, for the line that has them. Errors: CONFIG. */
CHECKED int tcp_check_listen(const char *text, struct err *e);
CHECKED int tcp_check_origins(const char *text, struct err *e);

/* What requests over TCP need, out of c, with the key of h where it is needed:
 * where c names listeners, or the service manager has passed some. Errors:
 * CONFIG, IO. */
CHECKED int tcp_guard(const struct conf *c, const struct home *h, bool handed,
                      struct http_guard *ret, struct err *e);
/* The digest of the key of h, which is made when it is absent. */
CHECKED int tcp_key(const struct home *h, uint8_t ret[HTTP_KEY_DIGEST],
                    struct err *e);
/* The same of a new key in its place. */
CHECKED int tcp_new_key(const struct home *h, uint8_t ret[HTTP_KEY_DIGEST],
                        struct err *e);
