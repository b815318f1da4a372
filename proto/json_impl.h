/* json_impl.h - what json.c and json_scan.c share. */
#pragma once

#include "base/base.h"

/* Whether p[0..n) is one JSON value by the rules of json.h, except for those on
 * duplicate keys; an object has at most so many members. If not, *ret_why says
 * what is wrong at byte *ret_at. */
bool json_scan(const char *p, size_t n, size_t members, const char **ret_why,
               size_t *ret_at);
