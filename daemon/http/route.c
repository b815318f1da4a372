#include "http/route.h"

#include <string.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int http_decode(const char *p, size_t n, bool plus, char *out, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)p[i];
        if (c == '%') {
            int hi = i + 2 < n ? hex(p[i + 1]) : -1;
            int lo = i + 2 < n ? hex(p[i + 2]) : -1;
            if (hi < 0 || lo < 0) {
                return ERR_HTTP;
            }
            c = hi * 16 + lo;
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c < ' ' || c == 0x7f) {
            return ERR_HTTP;
        }
        if (at + 1 >= size) {
            return ERR_TOO_BIG;
        }
        out[at++] = (char)c;
    }
    if (size == 0) {
        return ERR_TOO_BIG;
    }
    out[at] = '\0';
    return 0;
}

/* Once decoded a part is compared with names: an escaped '/' or '.' can only
 * be meant to get past that. */
static int decode_part(const char *p, size_t n, char out[256])
{
    for (size_t i = 0; i + 2 < n; i++) {
        if (p[i] == '%' && p[i + 1] == '2' && strchr("eEfF", p[i + 2])) {
            return ERR_HTTP;
        }
    }
    int rc = http_decode(p, n, false, out, 256);
    return rc == ERR_TOO_BIG ? ERR_NO_ROUTE : rc; /* no name is that long */
}

/* 0 no match, 1 match, < 0 a match whose {} part is not acceptable. */
static int match(const char *path, struct span t, struct http_args *args)
{
    const char *at = t.p;
    const char *end = t.p + t.n;
    int rc = 1;

    args->n = 0;
    while (*path != '\0') {
        if (*path == '{') {
            const char *from = at;
            while (at < end && *at != '/') {
                at++;
            }
            must(args->n < HTTP_ARGS_MAX); /* the table is ours */
            if (at == from) {
                return 0;
            }
            int bad =
                decode_part(from, (size_t)(at - from), args->v[args->n++]);
            rc = bad < 0 ? bad : rc;
            path = strchr(path, '}') + 1;
        } else if (at < end && *at == *path) {
            at++;
            path++;
        } else {
            return 0;
        }
    }
    return at == end ? rc : 0;
}

int http_route_find(const struct http_route *table, size_t n, unsigned method,
                    struct span path, const struct http_route **ret,
                    struct http_args *args, unsigned *allow)
{
    struct http_args a = {0};
    unsigned methods = 0;
    int bad = 0;

    for (size_t i = 0; i < n; i++) {
        int rc = match(table[i].path, path, &a);
        unsigned m = (unsigned)table[i].method;
        if (rc == 0) {
            continue;
        }
        bad = rc < 0 && bad == 0 ? rc : bad;
        m |= m & HTTP_M_GET ? HTTP_M_HEAD : 0u; /* RFC 9110 9.3.2 */
        methods |= m;
        if ((m & method) != 0) {
            *args = a;
            *ret = &table[i];
            return rc < 0 ? rc : 0;
        }
    }
    *allow = methods;
    if (bad < 0) {
        return bad;
    }
    return methods == 0 ? ERR_NO_ROUTE : ERR_BAD_METHOD;
}

void http_route_allow(unsigned methods, char out[40])
{
    (void)snprintf(out, 40, "%s%s%s%s", methods & HTTP_M_GET ? ", GET" : "",
                   methods & HTTP_M_HEAD ? ", HEAD" : "",
                   methods & HTTP_M_POST ? ", POST" : "",
                   methods & HTTP_M_DELETE ? ", DELETE" : "");
    if (out[0] == ',') {
        memmove(out, out + 2, strlen(out + 2) + 1);
    }
}
