/* guard.c - see guard.h. */
#include "http/guard.h"

#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/parse.h"

#define BETWEEN ", \t"

bool guard_same(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a;
    const volatile uint8_t *y = b;
    uint8_t differ = 0;
    for (size_t i = 0; i < n; i++) {
        differ = (uint8_t)(differ | (x[i] ^ y[i]));
    }
    return differ == 0;
}

void guard_digest(const char *key, size_t n, uint8_t out[HTTP_KEY_DIGEST])
{
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, key, n);
    sha256_end(&s, out);
}

/* --- Host --- */

/* What follows `name` in host; NULL when host begins otherwise. */
static const char *after(const char *host, const char *name)
{
    size_t n = strlen(name);
    return strncasecmp(host, name, n) == 0 ? host + n : NULL;
}

bool guard_host_ok(const char *host, const struct http_place *at)
{
    const char *names[] = {"localhost", "127.0.0.1", "[::1]", at->host};
    for (size_t i = 0; host != NULL && i < countof(names); i++) {
        const char *rest = names[i][0] != '\0' ? after(host, names[i]) : NULL;
        uint64_t port = 0;
        if (rest != NULL &&
            (*rest == '\0' ||
             (*rest == ':' && rest[1] != '0' &&
              parse_u64(rest + 1, 65535, &port) && port == at->port))) {
            return true;
        }
    }
    return false;
}

/* --- Origin, Sec-Fetch-Site --- */

const char *guard_origin(const struct http_guard *g, const char *origin)
{
    for (size_t i = 0; i < g->n_origins; i++) {
        if (strcmp(g->origin[i], origin) == 0) {
            return g->origin[i];
        }
    }
    return NULL;
}

bool guard_origin_own(const char *origin, const char *host)
{
    static const char scheme[] = "http://";
    size_t n = sizeof(scheme) - 1;
    return host != NULL && strncmp(origin, scheme, n) == 0 &&
           strcmp(origin + n, host) == 0;
}

static int check_page(const struct http_guard *g, const struct http_msg *m,
                      struct guard_pass *ret, const char **why)
{
    const char *origin = http_msg_header(m, "origin");
    const char *site = http_msg_header(m, "sec-fetch-site");
    bool own = origin != NULL && http_msg_count(m, "origin") == 1 &&
               guard_origin_own(origin, http_msg_header(m, "host"));
    if (origin != NULL && !own) {
        ret->origin =
            http_msg_count(m, "origin") == 1 ? guard_origin(g, origin) : NULL;
        if (ret->origin == NULL) {
            *why = "Origin: this page may not ask; [http] cors_origins in "
                   "aned.conf lists those that may";
            return ERR_FORBIDDEN;
        }
        return 0; /* the browser says which page asks: sites do not count */
    }
    if (site != NULL &&
        (http_msg_count(m, "sec-fetch-site") != 1 ||
         (strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0))) {
        *why = "Sec-Fetch-Site: a page of another site may not ask";
        return ERR_FORBIDDEN;
    }
    return 0;
}

/* --- the key --- */

static bool is_key(const struct http_guard *g, const char *key)
{
    uint8_t digest[HTTP_KEY_DIGEST];
    guard_digest(key, strlen(key), digest);
    return guard_same(digest, g->key, sizeof(digest));
}

/* The key of "Bearer KEY", whose scheme has any case (RFC 9110 11.1). */
static const char *bearer(const char *value)
{
    const char *rest = after(value, "bearer ");
    return rest != NULL ? rest + strspn(rest, " ") : NULL;
}

/* An SDK may send both headers, of which one is of another service. */
static bool has_key(const struct http_guard *g, const struct http_msg *m)
{
    const char *auth = http_msg_header(m, "authorization");
    const char *own = http_msg_header(m, "x-api-key");
    if (http_msg_count(m, "authorization") > 1 ||
        http_msg_count(m, "x-api-key") > 1) {
        return false; /* readers differ in which one counts */
    }
    const char *key = auth != NULL ? bearer(auth) : NULL;
    bool first = key != NULL && is_key(g, key);
    bool second = own != NULL && is_key(g, own);
    return first || second;
}

/* --- Content-Type ---
 *
 * A page can send text and forms without asking first, and a body without a
 * type. No page can send a key so: a client that has the key may leave the type
 * out, as some do (litellm's of Ollama). */

bool guard_is_json(const char *type)
{
    const char *rest = after(type, "application/json");
    if (rest == NULL) {
        return false;
    }
    rest += strspn(rest, " \t");
    return *rest == '\0' || *rest == ';';
}

/* --- the page --- */

bool guard_wants_page(const struct http_msg *m)
{
    const char *p = http_msg_header(m, "accept");
    if ((m->method & (HTTP_M_GET | HTTP_M_HEAD)) == 0 || m->has_body ||
        http_msg_count(m, "accept") != 1) {
        return false;
    }
    while (*p != '\0') { /* one media range after the other */
        p += strspn(p, BETWEEN);
        const char *rest = after(p, "text/html");
        if (rest != NULL && strchr(";" BETWEEN, *rest) != NULL) {
            return true;
        }
        p += strcspn(p, ",");
    }
    return false;
}

/* --- all of it --- */

int guard_check(const struct http_guard *g, const struct http_place *at,
                const struct http_msg *m, bool page, struct guard_pass *ret,
                const char **why)
{
    struct guard_pass pass = {0};
    if (!guard_host_ok(http_msg_header(m, "host"), at)) {
        *why = "Host: must be localhost, 127.0.0.1 or [::1], with this port "
               "or none";
        return ERR_FORBIDDEN;
    }
    RETERR(check_page(g, m, &pass, why));
    pass.preflight =
        pass.origin != NULL && m->is_options &&
        http_msg_header(m, "access-control-request-method") != NULL;
    if (!pass.preflight && !page && !g->open && !has_key(g, m)) {
        *ret = pass; /* the page may read why */
        *why = "a key is needed: send 'Authorization: Bearer KEY' or "
               "'x-api-key: KEY'; `anectl key` prints it";
        return ERR_UNAUTHORIZED;
    }
    const char *type = http_msg_header(m, "content-type");
    bool json = type != NULL ? guard_is_json(type) : !g->open;
    *ret = pass;
    if (m->has_body && (!json || http_msg_count(m, "content-type") > 1)) {
        *why = "Content-Type: must be application/json over TCP";
        return ERR_HTTP_TYPE;
    }
    return 0;
}

/* --- the list of origins --- */

/* As browsers write an origin: scheme://host[:port], lower case. */
static bool is_origin(const char *s, size_t n)
{
    static const char scheme[] = "abcdefghijklmnopqrstuvwxyz0123456789+.-";
    static const char host[] = "abcdefghijklmnopqrstuvwxyz0123456789.:[]_-";
    size_t k = strspn(s, scheme);
    if (k == 0 || k + 3 >= n || s[0] < 'a' || s[0] > 'z' ||
        strncmp(s + k, "://", 3) != 0) {
        return false;
    }
    return strspn(s + k + 3, host) == n - k - 3;
}

int guard_read_origins(const char *text, struct http_guard *g, struct err *e)
{
    size_t many = 0;
    for (const char *p = text + strspn(text, BETWEEN); *p != '\0';) {
        char item[HTTP_ORIGIN_MAX + 1];
        size_t n = strcspn(p, BETWEEN);
        if (n < sizeof(item)) {
            memcpy(item, p, n);
            item[n] = '\0';
        }
        if (n >= sizeof(item) || !is_origin(item, n)) {
            return err_set(e, ERR_CONFIG,
                           "%.*s: must be an origin as browsers send it, "
                           "scheme://host[:port] in lower case, without '*' "
                           "and path",
                           (int)(n < 64 ? n : 64), p);
        }
        if (many == HTTP_ORIGINS_MAX) {
            return err_set(e, ERR_CONFIG, "more than %u origins",
                           HTTP_ORIGINS_MAX);
        }
        memcpy(g->origin[many++], item, n + 1);
        p += n;
        p += strspn(p, BETWEEN);
    }
    g->n_origins = many;
    return 0;
}
