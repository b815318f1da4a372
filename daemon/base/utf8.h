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

/* Length of the good sequence at p[0..n), n > 0; 0 when there is none. */
static inline size_t utf8_len(const char *p, size_t n)
{
    size_t len = 0;
    return utf8_seq(p, n, &len) == UTF8_OK ? len : 0;
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

/* Bytes that begin a character: of good text, its characters. */
static inline size_t utf8_count(const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        k += ((unsigned char)p[i] & 0xC0u) != 0x80u;
    }
    return k;
}

/* Character c below 0x110000 into out, which has room for 4 bytes; returns
 * how many it took. */
static inline size_t utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; --i > 0; c >>= 6) {
        out[i] = (char)(0x80 | (c & 0x3F));
    }
    out[0] = (char)(first[n] | c);
    return n;
}

/* The character of a sequence of len bytes that utf8_seq found good. */
static inline uint32_t utf8_char(const char *p, size_t len)
{
    static const unsigned char mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = (unsigned char)p[0] & mask[len];
    for (size_t i = 1; i < len; i++) {
        c = c << 6 | ((unsigned char)p[i] & 0x3Fu);
    }
    return c;
}

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
