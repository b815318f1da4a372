/* http.h - a blocking HTTP/1.1 client for one socket, of Unix or of loopback
 * TCP. Each request has its
 * own connection: the daemon is on the same machine. */
#pragma once

#include <sys/socket.h>

#include "base/buf.h"
#include "proto/key_file.h"

struct http_peer {
    char path[512]; /* of the socket; over TCP the URL, for people */
    struct sockaddr_storage tcp; /* --url */
    socklen_t tcp_len;           /* 0: a Unix socket */
    char host[64];               /* "127.0.0.1:11435" */
    struct key_text key;         /* for TCP; "": none */
    bool named;   /* by --socket or ANED_SOCKET; else the usual place */
    double end_s; /* now_seconds() at which a request ends with TIMEOUT; 0:
                     it may take as long as it wants */
};

/* Find the daemon's socket: `given`, else $ANED_SOCKET, else
 * $XDG_RUNTIME_DIR/aned/aned.sock, else HOME/run/aned.sock with $ANED_HOME or
 * the platform's data folder as HOME. Errors: CONFIG. */
CHECKED int http_peer_find(struct http_peer *p, const char *given,
                           struct err *e);

/* The daemon is at "http://127.0.0.1:11435", on this machine; the key is that
 * of $ANED_API_KEY unless there is one already (url.c). Errors: USAGE. */
CHECKED int http_peer_url(struct http_peer *p, const char *url, struct err *e);
/* $ANED_HOME, else the platform's data folder; false: neither is known. */
bool http_home(char *out, size_t size);

/* Bytes of a socket's path at most, on this system. */
size_t http_peer_path_max(void);

/* Takes bytes of a 2xx body as they arrive. When it returns a code other than
 * 0, the request ends with that code. */
typedef int http_data_fn(void *user, const char *p, size_t n, struct err *e);

/* Send a request and read the answer to its end. body (n_body bytes, JSON) may
 * be NULL. With `fn`, a 2xx body is passed to it piece by piece; any other body
 * is put into *out (initialised by the caller, its max is the limit). Returns 0
 * with *status set. Errors: UNAVAILABLE (no daemon listens), CANCELLED
 * (`interrupted`), TIMEOUT, TOO_BIG, HTTP, IO, and what fn returns. */
CHECKED int http_request(const struct http_peer *p, const char *method,
                         const char *path, const void *body, size_t n_body,
                         http_data_fn *fn, void *user, int *status,
                         struct buf *out, struct err *e);
