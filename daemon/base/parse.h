/* parse.h - numbers out of text, one way: decimal, no white space, no locale.
 * Each returns false (NULL) and leaves *ret untouched when the text is not
 * such a number or lies outside its range. Thread: any. */
#pragma once

#include "base/base.h"

/* The digits at the beginning of s, at least one, as a number of at most max.
 * Returns where they end; NULL when there are none or the number is larger. */
CHECKED const char *parse_digits(const char *s, uint64_t max, uint64_t *ret);

/* The whole of s. */
CHECKED bool parse_u64(const char *s, uint64_t max, uint64_t *ret);
/* The whole of s, which may begin with '-' or '+'. */
CHECKED bool parse_i64(const char *s, int64_t *ret);
/* The whole of s, finite; signs, fractions and exponents as strtod has them,
 * but neither hexadecimal forms nor white space. */
CHECKED bool parse_double(const char *s, double *ret);
