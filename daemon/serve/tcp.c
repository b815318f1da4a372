/* tcp.c - see tcp.h. */
#include "serve/tcp.h"

#include <string.h>

#include "base/log.h"
#include "http/address.h"
#include "http/guard.h"
#include "proto/key_file.h"

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
