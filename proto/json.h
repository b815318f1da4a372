/* json.h - JSON for daemon and client: a strict validator before cJSON, typed
 * getters and a builder. Only json.c includes cJSON.h.
 *
 * The validator refuses what cJSON accepts: trailing bytes, duplicate keys, NUL
 * bytes and \u0000, raw control characters, invalid UTF-8, lone surrogates,
 * BOM, leading zeros, numbers out of double range, nesting above
 * JSON_DEPTH_MAX.
 *
 * Thread: a tree belongs to one thread at a time; no globals.
 */
#pragma once

#include "base/buf.h"

struct json; /* a node; the root owns the tree */

/* Parse n bytes. On success *ret is owned by the caller: json_free(). Errors:
 * JSON, NOMEM. The message has the byte offset. */
CHECKED int json_parse(const char *p, size_t n, struct json **ret,
                       struct err *e);
/* The same of a file with objects of up to JSON_MEMBERS_BIG members. It takes
 * many times its size: for processes that have a limit of memory. */
CHECKED int json_parse_big(const char *p, size_t n, struct json **ret,
                           struct err *e);
/* Only look whether json_parse would take p[0..n), but for keys that stand
 * twice. */
CHECKED int json_check(const char *p, size_t n, struct err *e);
void json_free(struct json *j); /* NULL is fine; roots only */

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};
enum json_type json_type(const struct json *j);
const char *json_type_name(enum json_type t);

/* Member of an object, NULL when absent (or j is NULL or no object). */
const struct json *json_get(const struct json *j, const char *key);
/* Children in order, for arrays and objects:
 * for (c = json_first(j); c != NULL; c = json_next(c)). */
const struct json *json_first(const struct json *j);
const struct json *json_next(const struct json *c);
const char *
json_key(const struct json *c);          /* of an object's child, else NULL */
size_t json_count(const struct json *j); /* children; O(n) */

/* Values. Wrong type: NULL, false or 0. */
const char *json_str(const struct json *j); /* borrowed from the tree */
bool json_bool(const struct json *j);
double json_num(const struct json *j);
/* true when j is a number with no fraction in [lo, hi]. */
CHECKED bool json_int(const struct json *j, int64_t lo, int64_t hi,
                      int64_t *ret);

/* Typed members with an error that names the key. A member that is absent or
 * null leaves *ret untouched and returns 0, unless `need`. Errors: INVALID. */
CHECKED int json_want_str(const struct json *j, const char *key, bool need,
                          const char **ret, struct err *e);
CHECKED int json_want_int(const struct json *j, const char *key, bool need,
                          int64_t lo, int64_t hi, int64_t *ret, struct err *e);
CHECKED int json_want_num(const struct json *j, const char *key, bool need,
                          double lo, double hi, double *ret, struct err *e);
CHECKED int json_want_bool(const struct json *j, const char *key, bool need,
                           bool *ret, struct err *e);

/* Builder. json_add_object and json_add_array return the new node, which its
 * parent owns. Strings are copied; bytes that are not UTF-8 become U+FFFD. The
 * size of what aned builds is bounded: allocation failure is must(). */
struct json *json_object(void); /* a new root */
struct json *json_array(void);  /* a new root */
struct json *json_add_object(struct json *parent, const char *key);
struct json *json_add_array(struct json *parent, const char *key);
void json_add_str(struct json *parent, const char *key, const char *v);
void json_add_strn(struct json *parent, const char *key, const char *v,
                   size_t n);
void json_add_num(struct json *parent, const char *key, double v);
/* Exact for |v| < 2^53, written without exponent. */
void json_add_int(struct json *parent, const char *key, int64_t v);
void json_add_bool(struct json *parent, const char *key, bool v);
void json_add_null(struct json *parent, const char *key);
/* Text that this module wrote as JSON: it is not parsed or checked. */
void json_add_raw(struct json *parent, const char *key, const char *text);
/* Move a root into a parent. In all of these key is NULL for arrays. */
void json_add_tree(struct json *parent, const char *key, struct json *root);
/* Deep copy as a new root. */
struct json *json_copy(const struct json *j);

/* Append the text of j to b; pretty indents by two spaces. */
void json_write(const struct json *j, bool pretty, struct buf *b);

/* For streams, where a tree for each token would be too slow. Append, as
 * json_write does: n bytes of text with quotes, or without (bytes that are not
 * UTF-8 become U+FFFD); a number; a number with the few digits that read back
 * as this float. */
void json_put_string(struct buf *b, const char *p, size_t n);
void json_put_text(struct buf *b, const char *p, size_t n);
void json_put_number(struct buf *b, double v);
void json_put_float(struct buf *b, float v);
