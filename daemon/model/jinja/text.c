/* text.c - see text.h. Categories and cases of characters are utf8proc's; what
 * one character of several becomes in the other case stands in a table here.
 * Greek with an iota subscript and the final sigma have their simple case. */
#include "model/jinja/text.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

size_t text_char(const char *p, size_t n, int32_t *ret)
{
    size_t len = (unsigned char)*p < 0x80 ? 1 : utf8_len(p, n);
    *ret = len > 0 ? (int32_t)utf8_char(p, len) : -1;
    return len > 0 ? len : 1;
}

/* Whether a byte begins a character of sound UTF-8. */
static inline bool begins_char(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

size_t text_length(struct span s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        n += begins_char(s.p[i]);
    }
    return n;
}

size_t text_at(struct span s, size_t i)
{
    size_t at = 0;
    if (i >= s.n) {
        return s.n;
    }
    while (s.n - at >= 256) { /* whole blocks, which go faster */
        struct span block = {s.p + at, 256};
        size_t n = text_length(block);
        if (n > i) {
            break;
        }
        i -= n;
        at += 256;
    }
    for (; at < s.n; at++) {
        if (begins_char(s.p[at]) && i-- == 0) {
            break;
        }
    }
    return at;
}

bool char_is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
           c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

static utf8proc_category_t category(int32_t c)
{
    return c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
}

bool char_is_print(int32_t c)
{
    switch ((int)category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

bool char_is_alpha(int32_t c)
{
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool char_is_decimal(int32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool char_is_digit(int32_t c)
{
    static const struct {
        int32_t from, to;
    } more[] = {
  /* superscripts, circled digits */
        {0xB2,    0xB3   },
        {0xB9,    0xB9   },
        {0x2070,  0x2070 },
        {0x2074,  0x2079 },
        {0x2080,  0x2089 },
        {0x2460,  0x2468 },
        {0x2474,  0x247C },
        {0x2488,  0x2490 },
        {0x24EA,  0x24EA },
        {0x24F5,  0x24FD },
        {0x24FF,  0x24FF },
        {0x2776,  0x277E },
        {0x2780,  0x2788 },
        {0x278A,  0x2792 },
        {0x1F100, 0x1F10A},
    };
    for (size_t i = 0; i < countof(more); i++) {
        if (c >= more[i].from && c <= more[i].to) {
            return true;
        }
    }
    return char_is_decimal(c);
}

bool char_is_numeric(int32_t c)
{
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_NO;
}

bool char_is_upper(int32_t c)
{
    return c >= 0 && category(c) == UTF8PROC_CATEGORY_LU;
}

bool char_is_lower(int32_t c)
{
    return c >= 0 &&
           (category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA);
}

bool char_is_cased(int32_t c)
{
    return char_is_upper(c) || char_is_lower(c) ||
           category(c) == UTF8PROC_CATEGORY_LT;
}

struct span span_ltrim(struct span s)
{
    int32_t c = 0;
    while (s.n > 0) {
        size_t len = text_char(s.p, s.n, &c);
        if (!char_is_space(c)) {
            break;
        }
        s.p += len;
        s.n -= len;
    }
    return s;
}

/* Where the last character of s begins; s.n > 0. */
static size_t last_char(struct span s, int32_t *ret)
{
    size_t from = s.n - 1;
    while (from > 0 && s.n - from < 4 &&
           ((unsigned char)s.p[from] & 0xC0) == 0x80) {
        from--;
    }
    if (text_char(s.p + from, s.n - from, ret) != s.n - from) {
        *ret = -1;
        from = s.n - 1;
    }
    return from;
}

struct span span_rtrim(struct span s)
{
    int32_t c = 0;
    while (s.n > 0) {
        size_t from = last_char(s, &c);
        if (!char_is_space(c)) {
            break;
        }
        s.n = from;
    }
    return s;
}

/* Whether the character p[0..n) stands in `chars`. */
static bool stands_in(const char *p, size_t n, struct span chars)
{
    int32_t c = 0;
    size_t len = 0;
    for (size_t i = 0; i < chars.n; i += len) {
        len = text_char(chars.p + i, chars.n - i, &c);
        if (len == n && memcmp(chars.p + i, p, n) == 0) {
            return true;
        }
    }
    return false;
}

struct span span_strip(struct span s, struct span chars, bool left, bool right)
{
    int32_t c = 0;
    while (left && s.n > 0) {
        size_t len = text_char(s.p, s.n, &c);
        if (!stands_in(s.p, len, chars)) {
            break;
        }
        s.p += len;
        s.n -= len;
    }
    while (right && s.n > 0) {
        size_t from = last_char(s, &c);
        if (!stands_in(s.p + from, s.n - from, chars)) {
            break;
        }
        s.n = from;
    }
    return s;
}

/* Source: SpecialCasing.txt of Unicode, without conditions and without the
 * rows of Greek: upper and title case of one character as several. */
static const struct wide {
    int32_t c;
    const char *upper, *title;
} wide[] = {
    {0xDF,   "SS",           "Ss"          },
    {0x149,  "\u02BCN",      "\u02BCN"     },
    {0x1F0,  "J\u030C",      "J\u030C"     },
    {0x587,  "\u0535\u0552", "\u0535\u0582"},
    {0x1E96, "H\u0331",      "H\u0331"     },
    {0x1E97, "T\u0308",      "T\u0308"     },
    {0x1E98, "W\u030A",      "W\u030A"     },
    {0x1E99, "Y\u030A",      "Y\u030A"     },
    {0x1E9A, "A\u02BE",      "A\u02BE"     },
    {0xFB00, "FF",           "Ff"          },
    {0xFB01, "FI",           "Fi"          },
    {0xFB02, "FL",           "Fl"          },
    {0xFB03, "FFI",          "Ffi"         },
    {0xFB04, "FFL",          "Ffl"         },
    {0xFB05, "ST",           "St"          },
    {0xFB06, "ST",           "St"          },
    {0xFB13, "\u0544\u0546", "\u0544\u0576"},
    {0xFB14, "\u0544\u0535", "\u0544\u0565"},
    {0xFB15, "\u0544\u053B", "\u0544\u056B"},
    {0xFB16, "\u054E\u0546", "\u054E\u0576"},
    {0xFB17, "\u0544\u053D", "\u0544\u056D"},
};

size_t text_put_case(char *out, int32_t c, enum text_case to)
{
    for (size_t i = 0; c > 0x7F && to != CASE_LOWER && i < countof(wide); i++) {
        if (wide[i].c == c) {
            const char *s = to == CASE_UPPER ? wide[i].upper : wide[i].title;
            size_t n = strlen(s);
            memcpy(out, s, n);
            return n;
        }
    }
    if (c == 0x130 && to == CASE_LOWER) { /* I with a dot */
        memcpy(out, "i\u0307", 3);
        return 3;
    }
    int32_t other = to == CASE_UPPER   ? utf8proc_toupper(c)
                    : to == CASE_LOWER ? utf8proc_tolower(c)
                                       : utf8proc_totitle(c);
    return utf8_put(out, (uint32_t)other);
}
