/* utf8.h - one UTF-8 sequence at a time, strictly (RFC 3629: no overlong
 * forms, no surrogates, nothing above U+10FFFF). */
#pragma once

#include "base/base.h"

enum utf8_kind {
    UTF8_OK,   /* len bytes are one character */
    UTF8_BAD,  /* len bytes can begin no character (a maximal subpart) */
    UTF8_PART, /* all len bytes left are the beginning of a character */
};

/* Look at p[0..n), n > 0. */
static inline enum utf8_kind utf8_seq(const char *text, size_t n,
                                      size_t *ret_len)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char lo = 0x80; /* range of the second byte */
    unsigned char hi = 0xBF;
    size_t want = 0;
    *ret_len = 1;
    if (p[0] < 0x80) {
        return UTF8_OK;
    }
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        want = 2;
    } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        want = 3;
        lo = p[0] == 0xE0 ? 0xA0 : lo;
        hi = p[0] == 0xED ? 0x9F : hi;
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        want = 4;
        lo = p[0] == 0xF0 ? 0x90 : lo;
        hi = p[0] == 0xF4 ? 0x8F : hi;
    } else {
        return UTF8_BAD;
    }
    for (size_t i = 1; i < want; i++) {
        if (i >= n) {
            *ret_len = n;
            return UTF8_PART;
        }
        if (p[i] < lo || p[i] > hi) {
            *ret_len = i;
            return UTF8_BAD;
        }
        lo = 0x80;
        hi = 0xBF;
    }
    *ret_len = want;
    return UTF8_OK;
}

static inline bool utf8_valid(const char *p, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i += len) {
        if (utf8_seq(p + i, n - i, &len) != UTF8_OK) {
            return false;
        }
    }
    return true;
}

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
