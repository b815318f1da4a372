/* lex.c - see lex.h. */
#include "model/reply/lex.h"

#include <ctype.h>
#include <string.h>

#include "base/utf8.h"

enum {
    W_VALUE,     /* a value comes */
    W_FIRST,     /* a value or ] */
    W_FIRST_KEY, /* a key or } */
    W_KEY,
    W_COLON,
    W_NEXT, /* a comma or the end */
    W_STRING,
    W_ESCAPE,
    W_WORD, /* a number, true, false, null */
};

_Static_assert(JSON_DEPTH_MAX <= 64, "json_walk.objects has a bit a level");

void json_walk_init(struct json_walk *w)
{
    memset(w, 0, sizeof(*w));
    w->state = W_VALUE;
}

static bool takes_value(const struct json_walk *w)
{
    return w->state == W_VALUE || w->state == W_FIRST;
}

static bool takes_key(const struct json_walk *w)
{
    return w->state == W_KEY || w->state == W_FIRST_KEY;
}

static bool in_object(const struct json_walk *w)
{
    return w->depth > 0 && w->depth <= JSON_DEPTH_MAX &&
           (w->objects >> (w->depth - 1) & 1) != 0;
}

static enum walk string_put(struct json_walk *w, char c)
{
    if (w->state == W_ESCAPE) {
        w->state = W_STRING;
    } else if (c == '\\') {
        w->state = W_ESCAPE;
    } else if (c == '"') {
        w->state = w->key ? W_COLON : W_NEXT;
        w->key = false;
        return w->depth == 0 ? WALK_DONE : WALK_MORE;
    } else if ((unsigned char)c < 0x20) {
        w->bad = true;
    }
    return WALK_MORE;
}

static void push(struct json_walk *w, char c)
{
    w->bad = w->bad || !takes_value(w) || w->depth >= JSON_DEPTH_MAX;
    if (!w->bad) {
        uint64_t bit = (uint64_t)1 << w->depth;
        w->objects = c == '{' ? w->objects | bit : w->objects & ~bit;
        w->state = c == '{' ? W_FIRST_KEY : W_FIRST;
    }
    w->depth++;
}

static enum walk pop(struct json_walk *w, char c)
{
    if (w->depth == 0) {
        w->bad = true;
        return WALK_OVER;
    }
    if (!w->bad) {
        bool object = in_object(w);
        w->bad = object != (c == '}') ||
                 (w->state != W_NEXT &&
                  w->state != (object ? W_FIRST_KEY : W_FIRST));
    }
    w->depth--;
    w->state = W_NEXT;
    return w->depth == 0 ? WALK_DONE : WALK_MORE;
}

static enum walk mark_put(struct json_walk *w, char c)
{
    if (c == ',') {
        w->bad = w->bad || w->state != W_NEXT || w->depth == 0;
        w->state = in_object(w) ? W_KEY : W_VALUE;
    } else if (c == ':') {
        w->bad = w->bad || w->state != W_COLON;
        w->state = W_VALUE;
    } else {
        w->bad = w->bad || !takes_value(w) ||
                 !(isalnum((unsigned char)c) || c == '-');
        w->state = W_WORD;
    }
    return w->bad && w->depth == 0 ? WALK_OVER : WALK_MORE;
}

enum walk json_walk_put(struct json_walk *w, char c)
{
    if (w->state == W_STRING || w->state == W_ESCAPE) {
        return string_put(w, c);
    }
    if (w->state == W_WORD) {
        if (isalnum((unsigned char)c) || c == '+' || c == '-' || c == '.') {
            return WALK_MORE;
        }
        w->state = W_NEXT;
        if (w->depth == 0) {
            return WALK_OVER;
        }
    }
    switch (c) {
    case ' ':
    case '\t':
    case '\r':
    case '\n':
        return WALK_MORE;
    case '"':
        w->key = takes_key(w) && !w->bad;
        w->bad = w->bad || !(w->key || takes_value(w));
        w->state = W_STRING;
        return WALK_MORE;
    case '{':
    case '[':
        push(w, c);
        return WALK_MORE;
    case '}':
    case ']':
        return pop(w, c);
    default:
        return mark_put(w, c);
    }
}

/* --- escapes --- */

/* The first half of a pair whose other half did not come. */
static size_t lone(struct unescape *u, char *out)
{
    if (u->high == 0) {
        return 0;
    }
    u->high = 0;
    memcpy(out, UTF8_REPLACEMENT, 3);
    return 3;
}

static size_t put_value(struct unescape *u, char *out)
{
    uint32_t v = u->value;
    size_t n = 0;
    u->in = false;
    if (v >= 0xDC00 && v < 0xE000 && u->high != 0) {
        v = 0x10000 + ((u->high - 0xD800) << 10) + (v - 0xDC00);
        u->high = 0;
    } else {
        n = lone(u, out);
    }
    if (v >= 0xD800 && v < 0xDC00) {
        u->high = v;
        return n;
    }
    if (v == 0 || v >= 0x110000 || (v >= 0xDC00 && v < 0xE000)) {
        v = 0xFFFD;
    }
    return n + utf8_put(out + n, v);
}

static size_t hex_put(struct unescape *u, char c, char *out)
{
    if (!isxdigit((unsigned char)c)) {
        u->in = false;
        u->left = 0;
        u->bad = true;
        size_t n = lone(u, out);
        memcpy(out + n, UTF8_REPLACEMENT, 3);
        out[n + 3] = c;
        return n + 4;
    }
    uint32_t digit = c <= '9' ? (uint32_t)(c - '0')
                              : (uint32_t)((c | 0x20) - 'a' + 10);
    /* \U has eight digits: more than a character needs stay too large */
    u->value = u->value < 0x01000000 ? u->value << 4 | digit : u->value;
    return --u->left > 0 ? 0 : put_value(u, out);
}

static size_t escape_put(struct unescape *u, char c, char *out)
{
    static const char from[] = "\"\\/bfnrt'av";
    static const char to[] = "\"\\/\b\f\n\r\t'\a\v";
    unsigned digits = c == 'u'                 ? 4
                      : u->python && c == 'x' ? 2
                      : u->python && c == 'U' ? 8
                                              : 0;
    if (digits > 0) {
        u->left = digits;
        u->value = 0;
        return 0;
    }
    u->in = false;
    size_t n = lone(u, out);
    const char *known = c == '\0' ? NULL : strchr(from, c);
    bool json = known != NULL && known - from < 8;
    if (known != NULL && (json ? c != '/' || !u->python : u->python)) {
        out[n] = to[known - from];
        return n + 1;
    }
    if (u->python && c == '\n') { /* the line goes on */
        return n;
    }
    u->bad = true;
    out[n] = '\\';
    out[n + 1] = c;
    return n + 2;
}

size_t unescape_put(struct unescape *u, char c, char out[UNESCAPE_MAX])
{
    if (u->left > 0) {
        return hex_put(u, c, out);
    }
    if (u->in) {
        return escape_put(u, c, out);
    }
    if (c == '\\') {
        u->in = true;
        return 0;
    }
    size_t n = lone(u, out);
    if (c == '\0') {
        memcpy(out + n, UTF8_REPLACEMENT, 3);
        return n + 3;
    }
    out[n] = c;
    return n + 1;
}

size_t unescape_end(struct unescape *u, char out[UNESCAPE_MAX])
{
    return lone(u, out);
}
