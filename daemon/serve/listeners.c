/* listeners.c - see listeners.h. */
#include "serve/listeners.h"

#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/num.h"
#include "http/address.h"
#include "serve/server.h"
#include "serve/tcp.h"

/* Connections that the Unix socket may have, so that TCP's listeners have room
 * too; *tcp: each of those. At most a quarter of the descriptors is TCP's. */
static size_t tcp_share(const struct conf *c, size_t *tcp)
{
    struct http_addresses all = {.n = 0};
    struct rlimit r;
    size_t files = HTTP_CONNS_MAX + SERVE_FILES +
                   (size_t)HTTP_TCP_MAX * HTTP_TCP_CONNS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < files) {
        files = (size_t)r.rlim_cur;
    }
    *tcp = HTTP_TCP_CONNS_MAX;
    if (address_read(c->http_listen, &all, NULL) != 0 || all.n == 0) {
        return HTTP_CONNS_MAX;
    }
    *tcp = num_min(HTTP_TCP_CONNS_MAX, files / 4 / all.n);
    *tcp = *tcp > 0 ? *tcp : 1;
    return num_min(HTTP_CONNS_MAX, files - num_min(files - 1, all.n * *tcp));
}

static struct http_conf http_conf_of(struct server *s)
{
    const struct server_conf *c = s->given;
    size_t tcp = 0;
    return (struct http_conf){
        .routes = c->routes,
        .n_routes = c->n_routes,
        .ctx = s,
        .error_body = c->error_body,
        .hold = &s->hold,
        .guard = &s->guard,
        .page = c->page,
        .times = {.stall = (unsigned)s->conf.http_stall_ms},
        .keepalive_ms = (unsigned)s->conf.http_keepalive_ms,
        .conns_max = tcp_share(&s->conf, &tcp),
    };
}

/* *own: there is none for the user's own processes among them. */
static int listen_handed(struct server *s, bool *own, struct err *e)
{
    struct http_conf hc = http_conf_of(s);
    struct http_handed *h = &s->given_fds;
    for (size_t i = 0; i < h->n; i++) {
        RETERR(http_listen_fd(&s->loop, h->fd[i], &hc, &s->http[s->n_http], e));
        const char *tcp = http_tcp_name(s->http[s->n_http++]);
        *own = *own && tcp != NULL;
        if (tcp != NULL) {
            log_info("listening", "tcp=%s handed over", tcp);
        }
    }
    s->handed = s->handed || h->n > 0;
    if (h->n > 0) {
        log_info("listening", "sockets=%zu handed over", h->n);
    }
    h->n = 0;
    return 0;
}

int listeners_open(struct server *s, struct err *e)
{
    struct http_conf hc = http_conf_of(s);
    bool own = true;
    if (s->listens) {
        return 0;
    }
    RETERR(listen_handed(s, &own, e));
    if (own) {
        RETERR(
            http_listen(&s->loop, s->home.socket, &hc, &s->http[s->n_http], e));
        s->own = s->http[s->n_http++];
        log_info("listening", "socket=%s", s->home.socket);
    }
    s->listens = true;
    return 0;
}

/* --- loopback TCP --- */

/* The service manager may pass what the configuration names too. */
static bool is_handed(const struct server *s, const struct http_address *a)
{
    char text[HTTP_ADDRESS_TEXT];
    bool found = false;
    address_text(&a->sa, text);
    for (size_t i = 0; i < s->n_http; i++) {
        const char *name = http_tcp_name(s->http[i]);
        found = found || (name != NULL && strcmp(name, text) == 0);
    }
    return found;
}

static int listen_one(struct server *s, const struct conf *c,
                      const struct http_address *a, struct err *e)
{
    struct http_conf hc = http_conf_of(s);
    struct http_server *h = NULL;
    struct err why = {0};
    (void)tcp_share(c, &hc.conns_max);
    int rc = http_listen_tcp(&s->loop, a, &hc, &h, &why);
    if (rc == ERR_CONFIG && a->optional) {
        log_info("listening", "not on ::1, which this system does not have");
        return 0;
    }
    if (rc != 0) {
        if (e != NULL) {
            *e = why;
        }
        return rc;
    }
    s->http[s->n_http++] = h;
    log_info("listening", "tcp=%s key=%s", http_tcp_name(h),
             s->guard.open ? "no" : "yes");
    return 0;
}

static int listen_tcp(struct server *s, const struct conf *c, struct err *e)
{
    struct http_addresses all;
    size_t before = s->n_http;
    if (s->listens_tcp) {
        return 0;
    }
    RETERR(address_read(c->http_listen, &all, e));
    for (size_t i = 0; i < all.n; i++) {
        int rc = is_handed(s, &all.v[i]) ? 0 : listen_one(s, c, &all.v[i], e);
        if (rc != 0) {
            while (s->n_http > before) { /* they free themselves */
                http_close(s->http[--s->n_http], NULL, NULL);
            }
            return rc;
        }
    }
    s->listens_tcp = all.n > 0;
    return 0;
}

int listeners_open_tcp(struct server *s, const struct conf *c,
                       const struct home *h, struct err *e)
{
    bool handed = s->handed_tcp;
    RETERR(tcp_guard(c, h, handed, &s->guard, e));
    s->keyed = !s->guard.open && (handed || c->http_listen[0] != '\0');
    /* first what was passed: it may be what the configuration names */
    RETERR(handed ? listeners_open(s, e) : 0);
    return listen_tcp(s, c, e);
}

void listeners_drop_own(struct server *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_http; i++) {
        if (s->http[i] != s->own) {
            s->http[n++] = s->http[i];
        }
    }
    s->n_http = n;
    http_close(s->own, NULL, NULL);
    s->own = NULL;
    s->listens = false;
}

int listeners_find(struct server *s, struct err *e)
{
    RETERR(http_activated(&s->given_fds, e));
    for (size_t i = 0; i < s->given_fds.n; i++) {
        s->handed_tcp = s->handed_tcp || address_is_tcp(s->given_fds.fd[i]);
    }
    return 0;
}
