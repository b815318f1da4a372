/* base64.h - bytes as text (RFC 4648, with '='). */
#pragma once

#include "base/base.h"

#define BASE64_CHARS(n) (((n) + 2) / 3 * 4) /* of n bytes */

/* Write BASE64_CHARS(n) characters to out, without a NUL. */
void base64_encode(const void *p, size_t n, char *out);
