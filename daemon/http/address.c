/* address.c - see address.h. */
#include "http/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"

#define BETWEEN ", \t"

static const struct sockaddr_in *v4(const struct sockaddr_storage *sa)
{
    return (const struct sockaddr_in *)(const void *)sa;
}

static const struct sockaddr_in6 *v6(const struct sockaddr_storage *sa)
{
    return (const struct sockaddr_in6 *)(const void *)sa;
}

bool address_is_loopback(const struct sockaddr_storage *sa)
{
    if (sa->ss_family == AF_INET) {
        return ntohl(v4(sa)->sin_addr.s_addr) >> 24 == 127;
    }
    return sa->ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&v6(sa)->sin6_addr);
}

unsigned address_port(const struct sockaddr_storage *sa)
{
    return ntohs(sa->ss_family == AF_INET ? v4(sa)->sin_port
                                          : v6(sa)->sin6_port);
}

bool address_same(const struct sockaddr_storage *a,
                  const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family || address_port(a) != address_port(b)) {
        return false;
    }
    return a->ss_family == AF_INET
               ? v4(a)->sin_addr.s_addr == v4(b)->sin_addr.s_addr
               : memcmp(&v6(a)->sin6_addr, &v6(b)->sin6_addr,
                        sizeof(v6(a)->sin6_addr)) == 0;
}

void address_host(const struct sockaddr_storage *sa,
                  char out[HTTP_ADDRESS_TEXT])
{
    bool four = sa->ss_family == AF_INET;
    char text[INET6_ADDRSTRLEN] = "";
    (void)inet_ntop(sa->ss_family,
                    four ? (const void *)&v4(sa)->sin_addr
                         : (const void *)&v6(sa)->sin6_addr,
                    text, sizeof(text));
    (void)snprintf(out, HTTP_ADDRESS_TEXT, four ? "%s" : "[%s]", text);
}

void address_text(const struct sockaddr_storage *sa,
                  char out[HTTP_ADDRESS_TEXT])
{
    char host[HTTP_ADDRESS_TEXT];
    address_host(sa, host);
    (void)snprintf(out, HTTP_ADDRESS_TEXT, "%.56s:%u", host, address_port(sa));
}

bool address_is_tcp(int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof(sa);
    return getsockname(fd, (struct sockaddr *)&sa, &n) == 0 &&
           (sa.ss_family == AF_INET || sa.ss_family == AF_INET6);
}

bool address_peer_is_loopback(int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof(sa);
    return getpeername(fd, (struct sockaddr *)&sa, &n) == 0 &&
           address_is_loopback(&sa);
}

/* --- reading --- */

static void set_v4(struct http_address *a, struct in_addr to, uint64_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = to};
#if defined(__APPLE__)
    in.sin_len = sizeof(in);
#endif
    memset(a, 0, sizeof(*a));
    memcpy(&a->sa, &in, sizeof(in));
}

static void set_v6(struct http_address *a, const struct in6_addr *to,
                   uint64_t port)
{
    struct sockaddr_in6 in = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)port),
                              .sin6_addr = *to};
#if defined(__APPLE__)
    in.sin6_len = sizeof(in);
#endif
    memset(a, 0, sizeof(*a));
    memcpy(&a->sa, &in, sizeof(in));
}

static int add(struct http_addresses *all, const struct http_address *a,
               const char *item, struct err *e)
{
    for (size_t i = 0; i < all->n && address_port(&a->sa) != 0; i++) {
        if (address_same(&all->v[i].sa, &a->sa)) {
            return err_set(e, ERR_CONFIG, "%s: the address is given twice",
                           item);
        }
    }
    if (all->n == HTTP_TCP_MAX) {
        return err_set(e, ERR_CONFIG, "more than %u addresses", HTTP_TCP_MAX);
    }
    all->v[all->n++] = *a;
    return 0;
}

/* "ADDRESS" without its brackets. *two: it is "localhost". false: no address
 * that is written in numbers. */
static bool read_host(char *host, uint64_t port, struct http_address *ret,
                      bool *two)
{
    struct in_addr four = {.s_addr = htonl(INADDR_LOOPBACK)};
    struct in6_addr six;
    size_t n = strlen(host);
    *two = strcasecmp(host, "localhost") == 0;
    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        bool ok = inet_pton(AF_INET6, host + 1, &six) == 1;
        host[n - 1] = ']';
        if (ok) {
            set_v6(ret, &six, port);
        }
        return ok;
    }
    bool ok = *two || inet_pton(AF_INET, host, &four) == 1;
    if (ok) {
        set_v4(ret, four, port);
    }
    return ok;
}

/* One item, which is cut at its colon. */
static int read_item(char *item, struct http_addresses *all, struct err *e)
{
    struct http_address a;
    uint64_t port = 0;
    bool two = false;
    char *colon = strrchr(item, ':');
    if (colon == NULL || colon == item || strchr(colon, ']') != NULL ||
        !parse_u64(colon + 1, 65535, &port)) {
        return err_set(e, ERR_CONFIG,
                       "%s: must be ADDRESS:PORT, as 127.0.0.1:11435", item);
    }
    *colon = '\0';
    bool known = read_host(item, port, &a, &two);
    if (!known || !address_is_loopback(&a.sa)) {
        return err_set(e, ERR_CONFIG,
                       "%s: is no loopback address: only 127.0.0.0/8, [::1] "
                       "and localhost are listened on; who comes from another "
                       "machine takes a proxy or an SSH tunnel",
                       item);
    }
    RETERR(add(all, &a, item, e));
    if (two) {
        set_v6(&a, &in6addr_loopback, port);
        a.optional = true;
        return add(all, &a, "[::1]", e);
    }
    return 0;
}

int address_read(const char *text, struct http_addresses *ret, struct err *e)
{
    struct http_addresses all = {.n = 0};
    for (const char *p = text + strspn(text, BETWEEN); *p != '\0';) {
        char item[HTTP_ADDRESS_TEXT];
        size_t n = strcspn(p, BETWEEN);
        if (n >= sizeof(item)) {
            return err_set(e, ERR_CONFIG, "%.*s: is no address",
                           (int)sizeof(item), p);
        }
        memcpy(item, p, n);
        item[n] = '\0';
        RETERR(read_item(item, &all, e));
        p += n;
        p += strspn(p, BETWEEN);
    }
    *ret = all;
    return 0;
}
