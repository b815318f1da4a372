/* base64.c - see base64.h. */
#include "base/base64.h"

void base64_encode(const void *p, size_t n, char *out)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *d = p;
    for (size_t i = 0; i < n; i += 3) { /* three bytes, four digits */
        uint32_t v = (uint32_t)d[i] << 16;
        v |= i + 1 < n ? (uint32_t)d[i + 1] << 8 : 0u;
        v |= i + 2 < n ? d[i + 2] : 0u;
        out[0] = digits[v >> 18];
        out[1] = digits[v >> 12 & 63];
        out[2] = '=';
        out[3] = '=';
        if (i + 1 < n) {
            out[2] = digits[v >> 6 & 63];
        }
        if (i + 2 < n) {
            out[3] = digits[v & 63];
        }
        out += 4;
    }
}
