#include "base/parse.h"

#include <math.h>
#include <string.h>

const char *parse_digits(const char *s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    const char *p = s;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t d = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - d) / 10 || v * 10 + d > max) {
            return NULL;
        }
        v = v * 10 + d;
    }
    if (p == s) {
        return NULL;
    }
    *ret = v;
    return p;
}

bool parse_u64(const char *s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    const char *end = parse_digits(s, max, &v);
    if (end == NULL || *end != '\0') {
        return false;
    }
    *ret = v;
    return true;
}

bool parse_i64(const char *s, int64_t *ret)
{
    uint64_t v = 0;
    bool negative = *s == '-';
    uint64_t max = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    if (!parse_u64(s + (*s == '-' || *s == '+' ? 1 : 0), max, &v)) {
        return false;
    }
    *ret = (int64_t)(negative ? 0 - v : v);
    return true;
}

bool parse_double(const char *s, double *ret)
{
    char *end = NULL;
    size_t n = strspn(s, "+-.eE0123456789");
    if (n == 0 || s[n] != '\0') {
        return false;
    }
    double v = strtod(s, &end);
    if (end != s + n || !isfinite(v)) {
        return false;
    }
    *ret = v;
    return true;
}

static unsigned base64_digit(char c)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c != '\0' ? strchr(digits, c) : NULL;
    return p != NULL ? (unsigned)(p - digits) : 64;
}

bool parse_base64(const char *s, size_t n, uint8_t *out, size_t *ret_n)
{
    size_t at = 0;
    if (n % 4 != 0) {
        return false;
    }
    for (size_t i = 0; i < n; i += 4) {
        size_t pad = 0; /* '=' at the end, which is where they may stand */
        if (i + 4 == n) {
            pad = s[i + 3] != '=' ? 0 : s[i + 2] != '=' ? 1 : 2;
        }
        uint32_t v = 0;
        for (size_t k = 0; k < 4; k++) {
            unsigned d = k < 4 - pad ? base64_digit(s[i + k]) : 0;
            if (d > 63) {
                return false;
            }
            v = v << 6 | d;
        }
        if ((pad > 0 && (v & 0xFF) != 0) || (pad > 1 && (v & 0xFF00) != 0)) {
            return false; /* bits that are nobody's */
        }
        for (size_t k = 0; k < 3 - pad; k++) {
            out[at++] = (uint8_t)(v >> (16 - 8 * k));
        }
    }
    *ret_n = at;
    return true;
}
