/* url.c - a daemon that listens on loopback TCP, and its key. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "client/http.h"

static int bad_url(const char *url, struct err *e)
{
    return err_set(e, ERR_USAGE,
                   "--url takes http://127.0.0.1:PORT, http://[::1]:PORT or "
                   "http://localhost:PORT, not '%.200s'",
                   url);
}

/* The host in numbers; only this machine's. */
static bool set_host(struct http_peer *p, const char *host, uint16_t port)
{
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_port = htons(port),
                               .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons(port),
                               .sin6_addr = in6addr_loopback};
    memset(&p->tcp, 0, sizeof(p->tcp));
    if (strcmp(host, "[::1]") == 0) {
        memcpy(&p->tcp, &six, sizeof(six));
        p->tcp_len = sizeof(six);
        return true;
    }
    bool ok = strcasecmp(host, "localhost") == 0 ||
              inet_pton(AF_INET, host, &four.sin_addr) == 1;
    memcpy(&p->tcp, &four, sizeof(four));
    p->tcp_len = sizeof(four);
    return ok && ntohl(four.sin_addr.s_addr) >> 24 == 127;
}

int http_peer_url(struct http_peer *p, const char *url, struct err *e)
{
    static const char scheme[] = "http://";
    uint64_t port = 0;
    size_t skip = sizeof(scheme) - 1;
    if (strncasecmp(url, scheme, skip) != 0) {
        return bad_url(url, e);
    }
    size_t n = strcspn(url + skip, "/");
    const char *rest = url + skip + n;
    char host[sizeof(p->host)];
    if (n == 0 || n >= sizeof(host) ||
        strcmp(rest, rest[0] == '/' ? "/" : "")) {
        return bad_url(url, e);
    }
    memcpy(host, url + skip, n);
    host[n] = '\0';
    memcpy(p->host, host, sizeof(host));
    char *colon = strrchr(host, ':');
    if (colon == NULL || !parse_u64(colon + 1, 65535, &port) || port == 0) {
        return bad_url(url, e);
    }
    *colon = '\0';
    if (!set_host(p, host, (uint16_t)port)) {
        return bad_url(url, e);
    }
    (void)snprintf(p->path, sizeof(p->path), "%s%s", scheme, p->host);
    p->named = true;
    const char *key = getenv("ANED_API_KEY");
    if (p->key.s[0] == '\0' && key != NULL &&
        snprintf(p->key.s, sizeof(p->key.s), "%s", key) >=
            (int)sizeof(p->key.s)) {
        key_forget(&p->key);
        return err_set(e, ERR_USAGE, "ANED_API_KEY is too long for a key");
    }
    if (strpbrk(p->key.s, "\r\n") != NULL) {
        return err_set(e, ERR_USAGE, "ANED_API_KEY has more than one line");
    }
    return 0;
}
