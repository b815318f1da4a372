/* format.c - text out of a format and values: '%s' % x, and '{}'.format(x). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/jinja/strings.h"
#include "model/jinja/text.h"
#include "proto/limits.h"

/* --- % of a string --- */

struct spec {
    bool left, zero, plus, space;
    int64_t width, precision; /* -1: none */
    char type;
};

/* Text of `n` bytes with the spec's width around it. */
static void pad(const struct spec *s, struct span text, struct buf *b)
{
    size_t n = text_length(text);
    size_t want = s->width > 0 ? (size_t)s->width : 0;
    bool sign = text.n > 0 && (*text.p == '-' || *text.p == '+');
    bool zero = s->zero && !s->left && s->type != 's' && s->type != 'r';
    if (zero && sign) {
        buf_put(b, text.p, 1);
        text.p++;
        text.n--;
    }
    for (size_t i = n; !s->left && i < want && buf_ok(b); i++) {
        buf_puts(b, zero ? "0" : " ");
    }
    buf_put(b, text.p, text.n);
    for (size_t i = n; s->left && i < want && buf_ok(b); i++) {
        buf_puts(b, " ");
    }
}

static void put_int(char *text, size_t size, char type, const char *sign,
                    int64_t i)
{
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    sign = i < 0 ? "-" : sign;
    if (type == 'x') {
        (void)snprintf(text, size, "%s%" PRIx64, sign, u);
    } else if (type == 'X') {
        (void)snprintf(text, size, "%s%" PRIX64, sign, u);
    } else if (type == 'o') {
        (void)snprintf(text, size, "%s%" PRIo64, sign, u);
    } else {
        (void)snprintf(text, size, "%s%" PRIu64, sign, u);
    }
}

static void put_real(char *text, size_t size, char type, const char *sign,
                     int digits, double f)
{
    switch (type | 0x20) {
    case 'e':
        (void)snprintf(text, size, "%s%.*e", sign, digits, f);
        break;
    case 'g':
        (void)snprintf(text, size, "%s%.*g", sign, digits, f);
        break;
    default:
        (void)snprintf(text, size, "%s%.*f", sign, digits, f);
        break;
    }
    for (char *p = text; type < 'a' && *p != '\0'; p++) {
        *p = *p == 'e' ? 'E' : *p;
    }
}

static int put_number(struct run *r, const struct spec *s, const struct val *v,
                      struct buf *b)
{
    char text[1024]; /* 309 digits before the point, JINJA_DIGITS_MAX behind */
    int64_t i = 0;
    bool whole = strchr("diuxXo", s->type) != NULL;
    bool is_float = v->kind == V_FLOAT;
    const char *sign = s->plus ? "+" : (s->space ? " " : "");
    if (!val_is_number(v) || (is_float && strchr("xXo", s->type) != NULL)) {
        return run_error(r, "%%%c format: a number is required, not %s",
                         s->type, val_type(v));
    }
    if (whole && is_float && !(fabs(v->f) < 9.2e18)) {
        return run_error(r, "a number beyond 64 bits");
    }
    if (whole) {
        i = is_float ? (int64_t)v->f : 0;
        (void)val_as_int(v, &i);
        put_int(text, sizeof(text), s->type, sign, i);
    } else {
        double f = val_as_double(v);
        put_real(text, sizeof(text), s->type, signbit(f) ? "" : sign,
                 s->precision < 0 ? 6 : (int)s->precision, f);
    }
    pad(s, zspan(text), b);
    return 0;
}

static int put_spec(struct run *r, const struct spec *s, const struct val *v,
                    struct buf *b)
{
    struct span text;
    if (strchr("diuxXoeEfFgG", s->type) != NULL) {
        return put_number(r, s, v, b);
    }
    if (s->type != 's' && s->type != 'r') {
        return run_error(r, "unsupported format character '%c'", s->type);
    }
    if (s->type == 's') {
        RETERR(val_text(r, v, &text));
    } else {
        struct val repr;
        struct buf out;
        run_buf(r, &out);
        int rc = val_repr(r, v, &out);
        rc = rc == 0 ? run_take(r, &out, &repr) : rc;
        buf_fini(&out);
        RETERR(rc);
        text = repr.s;
    }
    if (s->precision >= 0) {
        text.n = text_at(text, (size_t)s->precision);
    }
    pad(s, text, b);
    return 0;
}

/* The flags, width and precision at f.p[*at]; false: it ends too early. */
static bool read_spec(struct span f, size_t *at, struct spec *s)
{
    *s = (struct spec){.precision = -1};
    for (; *at < f.n && strchr("-0+ #", f.p[*at]) != NULL; (*at)++) {
        s->left = s->left || f.p[*at] == '-';
        s->zero = s->zero || f.p[*at] == '0';
        s->plus = s->plus || f.p[*at] == '+';
        s->space = s->space || f.p[*at] == ' ';
    }
    for (; *at < f.n && f.p[*at] >= '0' && f.p[*at] <= '9'; (*at)++) {
        s->width = s->width < JINJA_WIDTH_MAX ? s->width * 10 + (f.p[*at] - '0')
                                              : s->width;
    }
    if (*at < f.n && f.p[*at] == '.') {
        s->precision = 0;
        for ((*at)++; *at < f.n && f.p[*at] >= '0' && f.p[*at] <= '9';
             (*at)++) {
            s->precision = s->precision < JINJA_WIDTH_MAX
                               ? s->precision * 10 + (f.p[*at] - '0')
                               : s->precision;
        }
    }
    if (*at >= f.n) {
        return false;
    }
    s->type = f.p[(*at)++];
    return s->width <= JINJA_WIDTH_MAX && s->precision <= JINJA_DIGITS_MAX;
}

/* %(name)s at f.p[*at], behind the '(': what it is in the dictionary. */
static int named(struct run *r, struct span f, size_t *at,
                 const struct val *args, struct val *ret)
{
    const char *end = memchr(f.p + *at, ')', f.n - *at);
    const struct val *v = NULL;
    if (end != NULL && args->kind == V_DICT) {
        struct span key = {f.p + *at, (size_t)(end - f.p) - *at};
        v = dict_gets(args->dict, key);
        *at = (size_t)(end - f.p) + 1;
    }
    if (v == NULL) {
        return run_error(r, "a format names what is not there");
    }
    *ret = *v;
    return 0;
}

static int format_into(struct run *r, struct span f, const struct val *args,
                       struct buf *b)
{
    size_t used = 0;
    bool by_name = false;
    RETERR(run_charge_chars(r, f.n));
    size_t n = args->kind == V_TUPLE ? args->list->n : 1;
    for (size_t i = 0; i < f.n;) {
        struct spec s;
        if (f.p[i] != '%') {
            buf_put(b, &f.p[i++], 1);
            continue;
        }
        struct val v = val_missing;
        i++;
        if (i < f.n && f.p[i] == '(') {
            i++;
            by_name = true;
            RETERR(named(r, f, &i, args, &v));
        }
        if (!read_spec(f, &i, &s)) {
            return run_error(r, "an incomplete format, or one too wide");
        }
        if (s.type == '%') {
            buf_puts(b, "%");
            continue;
        }
        if (v.kind == V_MISSING) {
            if (used >= n) {
                return run_error(r, "not enough arguments for format string");
            }
            v = args->kind == V_TUPLE ? args->list->v[used] : *args;
            used++;
        }
        RETERR(put_spec(r, &s, &v, b));
    }
    return used < n && !by_name && args->kind != V_DICT
               ? run_error(r, "not all arguments converted during string "
                              "formatting")
               : 0;
}

int format_percent(struct run *r, struct span f, const struct val *args,
                   struct val *ret)
{
    struct buf b;
    run_buf(r, &b);
    int rc = format_into(r, f, args, &b);
    rc = rc == 0 ? run_take(r, &b, ret) : rc;
    buf_fini(&b);
    return rc;
}

/* --- "{} {0} {name}".format(...) --- */

/* The argument that `{name}` asks for; *next counts those without a name. */
static int format_field(struct run *r, const struct args *a, struct span name,
                        size_t *next, struct span *ret)
{
    size_t i = 0;
    bool number = true;
    for (size_t k = 0; k < name.n; k++) {
        number = number && name.p[k] >= '0' && name.p[k] <= '9' && k < 6;
        i = i * 10 + (size_t)(name.p[k] - '0');
    }
    if (name.n == 0) {
        i = (*next)++;
    }
    if (number && i < a->n) {
        return val_text(r, &a->v[i], ret);
    }
    for (size_t k = 0; !number && k < a->n_kw; k++) {
        if (span_equal(a->kw[k].name, name)) {
            return val_text(r, &a->kw[k].v, ret);
        }
    }
    return run_error(r, "format: no argument for {%.*s}",
                     (int)(name.n < 60 ? name.n : 60), name.p);
}

static int braces_into(struct run *r, struct span f, const struct args *a,
                       struct buf *b)
{
    size_t next = 0;
    for (size_t i = 0; i < f.n; i++) {
        bool brace = f.p[i] == '{' || f.p[i] == '}';
        if (!brace || (i + 1 < f.n && f.p[i + 1] == f.p[i])) {
            i += brace;
            buf_put(b, &f.p[i], 1);
            continue;
        }
        const char *end = memchr(f.p + i, '}', f.n - i);
        if (f.p[i] == '}' || end == NULL) {
            return run_error(r, "format: a brace alone");
        }
        struct span name = {f.p + i + 1, (size_t)(end - f.p) - i - 1};
        struct span text;
        RETERR(format_field(r, a, name, &next, &text));
        buf_put(b, text.p, text.n);
        i = (size_t)(end - f.p);
    }
    return 0;
}

int format_braces(struct run *r, struct span f, const struct args *a,
                  struct val *ret)
{
    struct buf b;
    RETERR(run_charge_chars(r, f.n));
    run_buf(r, &b);
    int rc = braces_into(r, f, a, &b);
    rc = rc == 0 ? run_take(r, &b, ret) : rc;
    buf_fini(&b);
    return rc;
}
