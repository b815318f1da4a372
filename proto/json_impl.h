/* json_impl.h - what json.c and json_scan.c share. */
#pragma once

#include "base/base.h"

/* Length of the UTF-8 sequence at p (RFC 3629: shortest form, no surrogates,
 * at most U+10FFFF); 0 when there is none. n > 0. */
size_t json_utf8_len(const unsigned char *p, size_t n);

/* p[0..n) is one JSON value by the rules of json.h, but for duplicate keys.
 * On false *ret_why says what is wrong at byte *ret_at. */
bool json_scan(const char *p, size_t n, const char **ret_why, size_t *ret_at);
