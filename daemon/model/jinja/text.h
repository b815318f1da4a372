/* text.h - Unicode text as Python's str sees it: characters are code points.
 * Every string of a template is UTF-8: its text, the JSON and the messages are
 * checked before. */
#pragma once

#include "base/base.h"

/* The character at p[0..n), n > 0: its length in bytes; *ret is its code
 * point, or -1 for a byte that is none. */
size_t text_char(const char *p, size_t n, int32_t *ret);
size_t text_length(struct span s); /* characters */
/* The byte where character `i` begins; s.n when there are fewer. */
size_t text_at(struct span s, size_t i);

bool char_is_space(int32_t c); /* str.isspace() */
bool char_is_print(int32_t c); /* str.isprintable() */
bool char_is_alpha(int32_t c);
bool char_is_digit(int32_t c); /* what int() reads, and isdigit() more */
bool char_is_decimal(int32_t c);
bool char_is_numeric(int32_t c);
bool char_is_upper(int32_t c);
bool char_is_lower(int32_t c);
bool char_is_cased(int32_t c);

/* White space off one end. */
struct span span_ltrim(struct span s);
struct span span_rtrim(struct span s);
/* All characters that stand in `chars` off the ends named. */
struct span span_strip(struct span s, struct span chars, bool left, bool right);

enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
/* Most bytes that text_put_case writes. */
#define TEXT_CASE_BYTES 12
/* Character c in that case, as Python writes it (\u00df becomes SS). */
size_t text_put_case(char *out, int32_t c, enum text_case to);
