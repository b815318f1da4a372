/* listeners.h - the sockets that the daemon listens on: those that the service
 * manager passed, else the home's Unix socket, and loopback TCP (tcp.h).
 *
 * Thread: the loop thread.
 */
#pragma once

#include "serve/conf.h"
#include "serve/home.h"

struct server;

/* Look what the service manager has passed; once, before the others. Errors:
 * UNAVAILABLE. */
CHECKED int listeners_find(struct server *s, struct err *e);
/* Listen on what was passed or, where no Unix socket is among that, on
 * home.socket. Does nothing when it does so already. Errors: CONFIG, CONFLICT.
 */
CHECKED int listeners_open(struct server *s, struct err *e);
/* Listen on loopback TCP as c says, on all addresses or on none. Does nothing
 * more than read the key when it does so already. Errors: CONFIG, CONFLICT, IO.
 */
CHECKED int listeners_open_tcp(struct server *s, const struct conf *c,
                               const struct home *h, struct err *e);
/* Close the listener of home.socket, which frees itself. */
void listeners_drop_own(struct server *s);
