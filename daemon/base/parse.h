/* parse.h - numbers, and base64, from text: decimal, no white space, no locale. Each
 * function returns false (or NULL) and does not change *ret when the text is
 * not such a number, or when the number is out of range. Thread: any. */
#pragma once

#include "base/base.h"

/* Read the digits at the beginning of s, at least one, as a number of at most
 * max. Returns where they end; NULL when there are none or the number is
 * larger. */
CHECKED const char *parse_digits(const char *s, uint64_t max, uint64_t *ret);

/* Read all of s as a number of at most max. */
CHECKED bool parse_u64(const char *s, uint64_t max, uint64_t *ret);
/* Read all of s, which may begin with '-' or '+'. */
CHECKED bool parse_i64(const char *s, int64_t *ret);
/* Read all of s as a finite number, with sign, fraction and exponent like
 * strtod, but without its hexadecimal forms. */
CHECKED bool parse_double(const char *s, double *ret);
/* All of s[0..n) as base64 (RFC 4648, with its padding). out has room for n
 * bytes and may be touched; *ret_n: how many are in it. */
CHECKED bool parse_base64(const char *s, size_t n, uint8_t *out,
                          size_t *ret_n);
