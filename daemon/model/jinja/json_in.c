/* json_in.c - JSON text into values. The syntax is checked first (proto/json.h:
 * strict, and at most JSON_DEPTH_MAX deep), so what is read here is sound. */
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/utf8.h"
#include "model/jinja/value.h"
#include "proto/json.h"

struct reader {
    struct arena *arena;
    const char *p, *end;
    struct err *e;
};

static int read_value(struct reader *x, struct val *ret);

static int too_big(struct reader *x)
{
    return err_set(x->e, ERR_TOO_BIG, "the values of a chat template");
}

static void blank(struct reader *x)
{
    while (x->p < x->end && strchr(" \t\r\n", *x->p) != NULL) {
        x->p++;
    }
}

/* The code unit of four hexadecimal digits. */
static uint32_t unit(const char *p)
{
    char text[5] = {p[0], p[1], p[2], p[3], '\0'};
    return (uint32_t)strtoul(text, NULL, 16);
}

/* What follows a backslash at *x->p. */
static size_t read_escape(struct reader *x, char *out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    char c = *x->p++;
    if (c != 'u') {
        const char *known = strchr(from, c);
        must(known != NULL);
        *out = to[known - from];
        return 1;
    }
    uint32_t u = unit(x->p);
    x->p += 4;
    if (u >= 0xD800 && u < 0xDC00) { /* the scan saw its other half */
        u = 0x10000 + ((u - 0xD800) << 10) + (unit(x->p + 2) - 0xDC00);
        x->p += 6;
    }
    return utf8_put(out, u);
}

static int read_string(struct reader *x, struct span *ret)
{
    const char *from = ++x->p;
    const char *q = from;
    while (*q != '"') {
        q += *q == '\\' ? 2 : 1;
    }
    char *out = arena_alloc(x->arena, (size_t)(q - from) + 1);
    size_t n = 0;
    if (out == NULL) {
        return too_big(x);
    }
    while (*x->p != '"') {
        if (*x->p == '\\') {
            x->p++;
            n += read_escape(x, out + n);
        } else {
            out[n++] = *x->p++;
        }
    }
    x->p++;
    *ret = (struct span){out, n};
    return 0;
}

static int read_number(struct reader *x, struct val *ret)
{
    const char *from = x->p;
    bool whole = true;
    while (x->p < x->end && strchr("+-0123456789.eE", *x->p) != NULL) {
        whole = whole && strchr(".eE", *x->p) == NULL;
        x->p++;
    }
    size_t n = (size_t)(x->p - from);
    char *text = arena_strn(x->arena, from, n);
    if (text == NULL) {
        return too_big(x);
    }
    if (whole) {
        *ret = val_int(0);
        return parse_i64(text, &ret->i)
                   ? 0
                   : err_set(x->e, ERR_JSON, "a number beyond 64 bits: %.40s",
                             text);
    }
    *ret = val_float(strtod(text, NULL));
    return 0;
}

static int read_array(struct reader *x, struct val *ret)
{
    struct val_list *l = arena_alloc(x->arena, sizeof(*l));
    if (l == NULL) {
        return too_big(x);
    }
    *ret = (struct val){.kind = V_LIST, .list = l};
    x->p++;
    for (blank(x); *x->p != ']'; blank(x)) {
        struct val v;
        x->p += *x->p == ',';
        RETERR(read_value(x, &v));
        if (!list_push(x->arena, l, v)) {
            return too_big(x);
        }
    }
    x->p++;
    return 0;
}

static int read_object(struct reader *x, struct val *ret)
{
    struct val_dict *d = arena_alloc(x->arena, sizeof(*d));
    if (d == NULL) {
        return too_big(x);
    }
    *ret = val_dict_of(d);
    x->p++;
    for (blank(x); *x->p != '}'; blank(x)) {
        struct val v;
        struct span key;
        x->p += *x->p == ',';
        blank(x);
        RETERR(read_string(x, &key));
        blank(x);
        x->p++; /* the colon */
        RETERR(read_value(x, &v));
        size_t before = d->n;
        if (!dict_put(x->arena, d, val_str(key), v)) {
            return too_big(x);
        }
        if (d->n == before) {
            return err_set(x->e, ERR_JSON, "key '%.*s' stands twice",
                           (int)(key.n < 60 ? key.n : 60), key.p);
        }
    }
    x->p++;
    return 0;
}

static int read_value(struct reader *x, struct val *ret)
{
    blank(x);
    switch (*x->p) {
    case '{':
        return read_object(x, ret);
    case '[':
        return read_array(x, ret);
    case '"':
        *ret = val_strz("");
        return read_string(x, &ret->s);
    case 't':
    case 'n':
        *ret = *x->p == 't' ? val_bool(true) : val_none;
        x->p += 4;
        return 0;
    case 'f':
        *ret = val_bool(false);
        x->p += 5;
        return 0;
    default:
        return read_number(x, ret);
    }
}

int val_from_json(struct arena *a, const char *p, size_t n, struct val *ret,
                  struct err *e)
{
    RETERR(json_check(p, n, e));
    struct reader x = {.arena = a, .p = p, .end = p + n, .e = e};
    return read_value(&x, ret);
}
