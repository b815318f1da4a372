/* route.h - from target and method to a row of the route table. Pure. */
#pragma once

#include "http/http.h"

/* Decode %XX of n bytes into out (NUL terminated). `plus`: '+' is a space.
 * Errors: HTTP (bad escape, or a byte below 0x20), TOO_BIG. */
CHECKED int http_decode(const char *p, size_t n, bool plus, char *out,
                        size_t size);

/* path: the target's bytes before '?', still encoded. On success *ret and *args
 * are set: the first row that fits.
 * Errors: NO_ROUTE, BAD_METHOD (*allow has the methods of the path), HTTP
 * (escapes; %2f, %2e, %00 in a {} part). */
CHECKED int http_route_find(const struct http_route *table, size_t n,
                            unsigned method, struct span path,
                            const struct http_route **ret,
                            struct http_args *args, unsigned *allow);

/* "GET, HEAD, POST" for an Allow header. */
void http_route_allow(unsigned methods, char out[40]);
