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
