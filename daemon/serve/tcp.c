/* tcp.c - see tcp.h. */
#include "serve/tcp.h"

#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/num.h"
#include "http/address.h"
#include "http/guard.h"
#include "proto/key_file.h"
#include "serve/server.h"

int tcp_check_listen(const char *text, struct err *e)
{
    struct http_addresses all;
    return address_read(text, &all, e);
}

int tcp_check_origins(const char *text, struct err *e)
{
    struct http_guard g;
    return guard_read_origins(text, &g, e);
}

/* --- the key --- */

static void digest_of(struct key_text *k, uint8_t ret[HTTP_KEY_DIGEST])
{
    guard_digest(k->s, strlen(k->s), ret);
    key_forget(k);
}

int tcp_key(const struct home *h, uint8_t ret[HTTP_KEY_DIGEST], struct err *e)
{
    struct key_text k;
    bool made = false;
    RETERR(key_open(h->key, &k, &made, e));
    digest_of(&k, ret);
    if (made) {
        log_info("key_made", "file=%s", h->key);
    }
    return 0;
}

int tcp_new_key(const struct home *h, uint8_t ret[HTTP_KEY_DIGEST],
                struct err *e)
{
    struct key_text k;
    RETERR(key_make(h->key, &k, e));
    digest_of(&k, ret);
    log_info("key_made", "file=%s", h->key);
    return 0;
}

int tcp_guard(const struct conf *c, const struct home *h, bool handed,
              struct http_guard *ret, struct err *e)
{
    bool needed = handed || c->http_listen[0] != '\0';
    memset(ret, 0, sizeof(*ret));
    ret->open = strcmp(c->http_allow_unauthenticated, "yes") == 0;
    RETERR(guard_read_origins(c->http_cors_origins, ret, e));
    return ret->open || !needed ? 0 : tcp_key(h, ret->key, e);
}

/* --- listening --- */

/* At most a quarter of the descriptors is TCP's. */
size_t tcp_share(const struct conf *c, size_t *tcp)
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
    struct http_conf hc = server_http_conf(s);
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

int tcp_listen(struct server *s, const struct conf *c, struct err *e)
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
