/* json_scan.c - the validator that runs before cJSON: recursive descent over
 * RFC 8259 with the stricter rules of json.h. It builds nothing.
 */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "proto/json_impl.h"
#include "proto/limits.h"

struct scan {
    const char *p;
    size_t n;
    size_t at;
    size_t members;  /* of an object, at most */
    const char *why; /* first fault */
};

static bool bad(struct scan *s, const char *why)
{
    if (s->why == NULL) {
        s->why = why;
    }
    return false;
}

static int peek(const struct scan *s)
{
    return s->at < s->n ? (unsigned char)s->p[s->at] : -1;
}

static void spaces(struct scan *s)
{
    while (s->at < s->n && strchr(" \t\r\n", s->p[s->at]) != NULL &&
           s->p[s->at] != '\0') {
        s->at++;
    }
}

static int hex4(const struct scan *s)
{
    int v = 0;
    if (s->n - s->at < 4) {
        return -1;
    }
    for (size_t i = 0; i < 4; i++) {
        char c = s->p[s->at + i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) {
            return -1;
        }
        v = v * 16 + d;
    }
    return v;
}

static bool scan_unicode(struct scan *s)
{
    int u = hex4(s);
    if (u <= 0) {
        return bad(s, u == 0 ? "\\u0000 in a string" : "bad \\u escape");
    }
    s->at += 4;
    if (u >= 0xdc00 && u <= 0xdfff) {
        return bad(s, "lone surrogate");
    }
    if (u >= 0xd800 && u <= 0xdbff) {
        if (s->n - s->at < 6 || s->p[s->at] != '\\' || s->p[s->at + 1] != 'u') {
            return bad(s, "lone surrogate");
        }
        s->at += 2;
        int low = hex4(s);
        if (low < 0xdc00 || low > 0xdfff) {
            return bad(s, "lone surrogate");
        }
        s->at += 4;
    }
    return true;
}

static bool scan_string(struct scan *s)
{
    s->at++; /* the quote */
    for (;;) {
        int c = peek(s);
        if (c < 0) {
            return bad(s, "string without end");
        }
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20) {
            return bad(s, "raw control character in a string");
        }
        if (c == '\\') {
            s->at++;
            int esc = peek(s);
            s->at++;
            if (esc == 'u') {
                if (!scan_unicode(s)) {
                    return false;
                }
            } else if (esc <= 0 || strchr("\"\\/bfnrt", esc) == NULL) {
                return bad(s, "bad escape");
            }
            continue;
        }
        size_t len =
            utf8_len(s->p + s->at, s->n - s->at);
        if (len == 0) {
            return bad(s, "not UTF-8");
        }
        s->at += len;
    }
}

static size_t digits(struct scan *s)
{
    size_t from = s->at;
    while (peek(s) >= '0' && peek(s) <= '9') {
        s->at++;
    }
    return s->at - from;
}

static bool scan_number(struct scan *s)
{
    size_t from = s->at;
    if (peek(s) == '-') {
        s->at++;
    }
    bool zero = peek(s) == '0';
    size_t n = digits(s);
    if (n == 0 || (zero && n > 1)) {
        return bad(s, "bad number");
    }
    if (peek(s) == '.') {
        s->at++;
        if (digits(s) == 0) {
            return bad(s, "bad number");
        }
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-') {
            s->at++;
        }
        if (digits(s) == 0) {
            return bad(s, "bad number");
        }
    }
    char text[64]; /* cJSON itself reads at most 63 characters of a number */
    n = s->at - from;
    if (n >= sizeof(text) - 1) {
        return bad(s, "number too long");
    }
    memcpy(text, s->p + from, n);
    text[n] = '\0';
    return isfinite(strtod(text, NULL)) ? true : bad(s, "number out of range");
}

static bool scan_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    if (s->n - s->at < n || memcmp(s->p + s->at, word, n) != 0) {
        return bad(s, "not a JSON value");
    }
    s->at += n;
    return true;
}

static bool scan_value(struct scan *s, int depth);

static bool scan_members(struct scan *s, int depth, bool object)
{
    char close = object ? '}' : ']';
    size_t count = 0;
    if (depth >= JSON_DEPTH_MAX) {
        return bad(s, "nested too deeply");
    }
    s->at++;
    spaces(s);
    if (peek(s) == close) {
        s->at++;
        return true;
    }
    for (;;) {
        spaces(s);
        if (object) {
            if (peek(s) != '"') {
                return bad(s, "a key is expected");
            }
            if (++count > s->members) {
                return bad(s, "too many members");
            }
            if (!scan_string(s)) {
                return false;
            }
            spaces(s);
            if (peek(s) != ':') {
                return bad(s, "':' is expected");
            }
            s->at++;
        }
        if (!scan_value(s, depth + 1)) {
            return false;
        }
        spaces(s);
        int c = peek(s);
        if (c != ',' && c != close) {
            return bad(s, "',' or the end is expected");
        }
        s->at++;
        if (c == close) {
            return true;
        }
    }
}

static bool scan_value(struct scan *s, int depth)
{
    spaces(s);
    switch (peek(s)) {
    case '{':
        return scan_members(s, depth, true);
    case '[':
        return scan_members(s, depth, false);
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case -1:
        return bad(s, "a value is expected");
    default:
        return scan_number(s);
    }
}

bool json_scan(const char *p, size_t n, size_t members, const char **ret_why,
               size_t *ret_at)
{
    struct scan s = {.p = p, .n = n, .members = members};
    bool ok = scan_value(&s, 0);
    if (ok) {
        spaces(&s);
        ok = s.at == n ? true : bad(&s, "bytes after the value");
    }
    *ret_why = s.why;
    *ret_at = s.at;
    return ok;
}
