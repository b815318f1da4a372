/* strings.h - what filters and methods of strings share. */
#pragma once

#include "model/jinja/eval.h"

enum str_case {
    STR_UPPER,
    STR_LOWER,
    STR_CAPITALIZE,
    STR_TITLE, /* str.title(): a letter behind what is none */
    STR_WORDS, /* the filter title: a letter behind white space, - ( { [ < */
    STR_SWAP
};
CHECKED int str_case(struct run *r, struct span s, enum str_case to,
                     struct val *ret);
/* At most `count` times, < 0: all. */
CHECKED int str_replace(struct run *r, struct span s, struct span from,
                        struct span to, int64_t count, struct val *ret);
/* `left` and `right` fill characters around s. */
CHECKED int str_pad(struct run *r, struct span s, int64_t left, int64_t right,
                    struct span fill, struct val *ret);
/* As str.center(width, fill). */
CHECKED int str_center(struct run *r, struct span s, int64_t width,
                       struct span fill, struct val *ret);
/* As str.splitlines(), into a list. */
CHECKED int str_lines(struct run *r, struct span s, bool keep, struct val *ret);
/* As str.split() and str.rsplit(), into a list; sep of no bytes: at white
 * space. most < 0: all. */
CHECKED int str_split(struct run *r, struct span s, struct span sep,
                      int64_t most, bool right, struct val *ret);
bool str_begins(struct span s, struct span with);
/* Where needle stands last; hay.n + 1: nowhere. */
size_t str_find_last(struct span hay, struct span needle);
/* '{} {0} {name}'.format(...): fields by number and name, not their attributes
 * and formats (format.c). */
CHECKED int format_braces(struct run *r, struct span f, const struct args *a,
                          struct val *ret);
