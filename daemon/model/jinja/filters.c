/* filters.c - filters of single values, and JSON. filters_list.c and
 * filters_text.c have the others. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "model/jinja/eval.h"
#include "model/jinja/text.h"
#include "proto/limits.h"

static int f_abs(struct run *r, const struct call *c, struct val *ret)
{
    int64_t i = 0;
    struct val zero = val_int(0);
    if (c->self.kind == V_FLOAT) {
        *ret = val_float(fabs(c->self.f));
        return 0;
    }
    if (!val_as_int(&c->self, &i)) {
        return run_error(r, "bad operand type for abs(): '%s'",
                         val_type(&c->self));
    }
    struct val v = val_int(i);
    return arith(r, i < 0 ? OP_SUB : OP_ADD, &zero, &v, ret);
}

/* An attribute, never an item. */
static int f_attr(struct run *r, const struct call *c, struct val *ret)
{
    struct span name = zspan("");
    RETERR(arg_str(r, &c->a[0], "attr's name", &name));
    if (c->self.kind == V_DICT && find_method(&c->self, name) == NULL) {
        *ret = val_undefined(name);
        return 0;
    }
    return eval_attr(r, &c->self, name, ret);
}

static int f_length(struct run *r, const struct call *c, struct val *ret)
{
    const struct val *v = &c->self;
    if (v->kind == V_STR) {
        RETERR(run_charge(r, v->s.n));
        *ret = val_int((int64_t)text_length(v->s));
    } else if (v->kind == V_UNDEFINED) {
        *ret = val_int(0);
    } else if (v->kind == V_DICT) {
        *ret = val_int((int64_t)v->dict->n);
    } else if (val_has_list(v) && v->kind != V_GEN) {
        *ret = val_int((int64_t)v->list->n);
    } else if (v->kind == V_LOOP) {
        return loop_attr(r, v->loop, zspan("length"), ret);
    } else {
        return run_error(r, "object of type '%s' has no len()", val_type(v));
    }
    return 0;
}

static int f_default(struct run *r, const struct call *c, struct val *ret)
{
    bool missing = c->self.kind == V_UNDEFINED ||
                   (arg_true(&c->a[1]) && !val_true(&c->self));
    (void)r;
    *ret = c->self;
    if (missing) {
        *ret = c->a[0].kind == V_MISSING ? val_strz("") : c->a[0];
    }
    return 0;
}

static int f_escape(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    if (c->self.kind == V_STR && c->self.markup) {
        *ret = c->self;
        return 0;
    }
    RETERR(self_text(r, c, &s));
    return escape_html(r, s, ret);
}

static int f_forceescape(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    RETERR(self_text(r, c, &s));
    return escape_html(r, s, ret);
}

static int f_string(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    bool markup = c->self.kind == V_STR && c->self.markup;
    RETERR(self_text(r, c, &s));
    *ret = val_str(s);
    ret->markup = markup;
    return 0;
}

static int f_safe(struct run *r, const struct call *c, struct val *ret)
{
    RETERR(f_string(r, c, ret));
    ret->markup = true;
    return 0;
}

/* --- numbers --- */

/* s without white space around it and without single '_' between digits, in
 * out; false: it is too long, or '_' stands elsewhere. */
static bool plain_number(struct span s, char *out, size_t size)
{
    size_t n = 0;
    s = span_ltrim(span_rtrim(s));
    for (size_t i = 0; i < s.n; i++) {
        bool inside = i > 0 && i + 1 < s.n && s.p[i - 1] != '_';
        if ((s.p[i] == '_' && !inside) || n + 1 >= size || s.p[i] == '\0') {
            return false;
        }
        out[n] = s.p[i];
        n += s.p[i] != '_';
    }
    out[n] = '\0';
    return n > 0;
}

/* As Python's float() reads text. */
static bool text_to_float(struct span s, double *ret)
{
    char text[512];
    char *end = NULL;
    if (!plain_number(s, text, sizeof(text)) ||
        strpbrk(text, "xXpP(") != NULL) {
        return false;
    }
    *ret = strtod(text, &end);
    return *end == '\0' && end != text;
}

/* As Python's int() reads text: 1 it did, 0 it is none, -1 beyond 64 bits. */
static int text_to_int(struct span s, int64_t base, int64_t *ret)
{
    static const char *const prefix[] = {"xX", "oO", "bB"};
    static const int of[] = {16, 8, 2};
    char text[512];
    char *end = NULL;
    if (!plain_number(s, text, sizeof(text))) {
        return 0;
    }
    char *p = text;
    bool minus = *p == '-';
    p += *p == '-' || *p == '+';
    for (size_t i = 0; i < countof(of); i++) {
        bool marked =
            *p == '0' && p[1] != '\0' && strchr(prefix[i], p[1]) != NULL;
        if (marked && (base == of[i] || base == 0)) {
            base = of[i];
            p += 2;
        }
    }
    if (*p == '-' || *p == '+' || char_is_space((unsigned char)*p) ||
        *p == '\0') {
        return 0;
    }
    errno = 0;
    unsigned long long v = strtoull(p, &end, base == 0 ? 10 : (int)base);
    if (*end != '\0') {
        return 0;
    }
    if (errno == ERANGE || v > INT64_MAX) {
        return -1;
    }
    *ret = minus ? -(int64_t)v : (int64_t)v;
    return 1;
}

/* int(float(v)); false: there is no such integer of 64 bits. */
static bool whole_part(double f, int64_t *ret)
{
    if (!(fabs(f) < 9.2e18)) {
        return false;
    }
    *ret = (int64_t)f;
    return true;
}

static int f_int(struct run *r, const struct call *c, struct val *ret)
{
    const struct val *v = &c->self;
    int64_t base = 10;
    int64_t i = 0;
    double f = 0;
    int got = 0;
    RETERR(arg_int(r, &c->a[1], "int's base", &base));
    if (v->kind == V_UNDEFINED) {
        return run_error(r, "'%.*s' is undefined", (int)v->s.n, v->s.p);
    }
    if (base != 0 && (base < 2 || base > 36)) {
        base = 10;
    }
    if (val_as_int(v, &i)) {
        got = 1;
    } else if (v->kind == V_FLOAT) {
        got = whole_part(v->f, &i) ? 1 : (isfinite(v->f) ? -1 : 0);
    } else if (v->kind == V_STR) {
        got = text_to_int(v->s, base, &i);
        if (got == 0 && text_to_float(v->s, &f)) {
            got = whole_part(f, &i) ? 1 : (isfinite(f) ? -1 : 0);
        }
    }
    if (got < 0) {
        return run_error(r, "a number beyond 64 bits");
    }
    *ret = c->a[0].kind == V_MISSING ? val_int(0) : c->a[0];
    *ret = got == 1 ? val_int(i) : *ret;
    return 0;
}

static int f_float(struct run *r, const struct call *c, struct val *ret)
{
    const struct val *v = &c->self;
    double f = 0;
    if (v->kind == V_UNDEFINED) {
        return run_error(r, "'%.*s' is undefined", (int)v->s.n, v->s.p);
    }
    if (val_is_number(v)) {
        *ret = val_float(val_as_double(v));
    } else if (v->kind == V_STR && text_to_float(v->s, &f)) {
        *ret = val_float(f);
    } else {
        *ret = c->a[0].kind == V_MISSING ? val_float(0) : c->a[0];
    }
    return 0;
}

static double power_of_ten(int64_t n)
{
    double y = 1;
    for (int64_t i = 0; i < (n < 0 ? -n : n); i++) {
        y *= 10;
    }
    return y;
}

/* Half to even, as Python's round() does it: on the decimal digits. */
static double round_digits(double f, int64_t digits)
{
    char text[700];
    if (digits < 0) {
        double p = power_of_ten(digits);
        return nearbyint(f / p) * p;
    }
    (void)snprintf(text, sizeof(text), "%.*f", (int)digits, f);
    return strtod(text, NULL);
}

static int f_round(struct run *r, const struct call *c, struct val *ret)
{
    const struct val *v = &c->self;
    struct span method = zspan("common");
    int64_t digits = 0;
    RETERR(arg_int(r, &c->a[0], "round's precision", &digits));
    RETERR(arg_str(r, &c->a[1], "round's method", &method));
    bool up = span_is(method, "ceil");
    if (!up && !span_is(method, "floor") && !span_is(method, "common")) {
        return run_error(r, "method must be common, ceil or floor");
    }
    if (!val_is_number(v) || digits > JINJA_DIGITS_MAX ||
        digits < -JINJA_DIGITS_MAX) {
        return run_error(r, "round: not of a '%s' with this precision",
                         val_type(v));
    }
    if (span_is(method, "common")) {
        int64_t i = 0;
        bool whole = val_as_int(v, &i);
        *ret = whole && digits >= 0
                   ? val_int(i)
                   : val_float(round_digits(val_as_double(v), digits));
        if (whole && digits < 0) {
            *ret = val_int((int64_t)ret->f);
        }
        return 0;
    }
    double p = power_of_ten(digits);
    double f = val_as_double(v);
    f = digits < 0 ? f / p : f * p;
    f = up ? ceil(f) : floor(f);
    *ret = val_float(digits < 0 ? f * p : f / p);
    return 0;
}

/* --- JSON --- */

static int indent_of(struct run *r, const struct val *v,
                     struct json_style *style)
{
    int64_t n = 0;
    if (v->kind == V_MISSING || v->kind == V_NONE) {
        return 0;
    }
    style->lines = true;
    if (v->kind == V_STR) {
        style->indent = v->s;
        return 0;
    }
    RETERR(arg_int(r, v, "tojson's indent", &n));
    if (n > JINJA_WIDTH_MAX) {
        return run_error(r, "tojson: an indent of %lld", (long long)n);
    }
    char *p = arena_alloc(r->arena, (size_t)(n > 0 ? n : 0) + 1);
    if (p == NULL) {
        return run_no_memory(r);
    }
    memset(p, ' ', (size_t)(n > 0 ? n : 0));
    style->indent = (struct span){p, (size_t)(n > 0 ? n : 0)};
    return 0;
}

static int separators_of(struct run *r, const struct val *v,
                         struct json_style *style)
{
    struct val_list l;
    style->comma = zspan(style->lines ? "," : ", ");
    style->colon = zspan(": ");
    if (v->kind == V_MISSING || v->kind == V_NONE) {
        return 0;
    }
    RETERR(run_items(r, v, &l));
    if (l.n != 2 || l.v[0].kind != V_STR || l.v[1].kind != V_STR) {
        return run_error(r, "tojson: separators are two strings");
    }
    style->comma = l.v[0].s;
    style->colon = l.v[1].s;
    return 0;
}

static int f_tojson(struct run *r, const struct call *c, struct val *ret)
{
    struct json_style style = {.ascii = arg_true(&c->a[0]),
                               .sort = arg_true(&c->a[3])};
    struct buf b;
    RETERR(indent_of(r, &c->a[1], &style));
    RETERR(separators_of(r, &c->a[2], &style));
    run_buf(r, &b);
    int rc = val_to_json(r, &c->self, &style, &b);
    rc = rc == 0 ? run_take(r, &b, ret) : rc;
    buf_fini(&b);
    return rc;
}

static const struct builtin filters[] = {
    {"abs",         f_abs,         0, ""                                        },
    {"attr",        f_attr,        1, "name"                                    },
    {"count",       f_length,      0, ""                                        },
    {"length",      f_length,      0, ""                                        },
    {"d",           f_default,     0, "default_value,boolean"                   },
    {"default",     f_default,     0, "default_value,boolean"                   },
    {"e",           f_escape,      0, ""                                        },
    {"escape",      f_escape,      0, ""                                        },
    {"forceescape", f_forceescape, 0, ""                                        },
    {"float",       f_float,       0, "default"                                 },
    {"int",         f_int,         0, "default,base"                            },
    {"round",       f_round,       0, "precision,method"                        },
    {"safe",        f_safe,        0, ""                                        },
    {"string",      f_string,      0, ""                                        },
    {"tojson",      f_tojson,      0, "ensure_ascii,indent,separators,sort_keys"},
};

const struct builtin *find_filter(struct span name)
{
    const struct builtin *f = builtin_find(filters, countof(filters), name);
    f = f != NULL ? f : find_text_filter(name);
    return f != NULL ? f : find_list_filter(name);
}
