/* lex.h - JSON values and escapes, byte by byte.
 *
 * The walk finds where a value ends. It does not judge it: proto/json.h does,
 * when all bytes are there. But it says when they can no longer be JSON, and
 * then it still counts brackets outside strings.
 */
#pragma once

#include "base/buf.h"
#include "proto/limits.h"

struct json_walk {
    uint64_t objects; /* bit d: level d is an object */
    uint32_t depth;
    unsigned char state;
    bool key; /* the string is one */
    bool bad; /* no JSON any more */
};

enum walk {
    WALK_MORE,
    WALK_DONE, /* this byte was the last */
    WALK_OVER, /* the one before was: it is not part of the value */
};

void json_walk_init(struct json_walk *w);
enum walk json_walk_put(struct json_walk *w, char c);

/* What stands between quotes. */
struct unescape {
    bool python; /* Python's escapes, not JSON's */
    bool in;     /* inside an escape: a quote does not end the string */
    bool bad;    /* an escape that there is not */
    unsigned left; /* hexadecimal digits to come */
    uint32_t value;
    uint32_t high; /* the first half of a pair */
};

#define UNESCAPE_MAX 12 /* bytes that one byte may give */

/* Returns the number of bytes in out. NUL becomes U+FFFD, a half of a pair
 * too. */
size_t unescape_put(struct unescape *u, char c, char out[UNESCAPE_MAX]);
/* At the closing quote. */
size_t unescape_end(struct unescape *u, char out[UNESCAPE_MAX]);
