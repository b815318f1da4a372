/* filters_text.c - filters of text. */
#include <string.h>

#include "model/jinja/strings.h"
#include "model/jinja/text.h"

static int cased(struct run *r, const struct call *c, enum str_case to,
                 struct val *ret)
{
    struct span s;
    RETERR(self_text(r, c, &s));
    RETERR(str_case(r, s, to, ret));
    ret->markup = c->self.kind == V_STR && c->self.markup;
    return 0;
}

static int f_upper(struct run *r, const struct call *c, struct val *ret)
{
    return cased(r, c, STR_UPPER, ret);
}

static int f_lower(struct run *r, const struct call *c, struct val *ret)
{
    return cased(r, c, STR_LOWER, ret);
}

static int f_capitalize(struct run *r, const struct call *c, struct val *ret)
{
    return cased(r, c, STR_CAPITALIZE, ret);
}

static int f_title(struct run *r, const struct call *c, struct val *ret)
{
    RETERR(cased(r, c, STR_WORDS, ret));
    ret->markup = false; /* it is joined from parts */
    return 0;
}

static int f_trim(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    struct span chars = zspan("");
    RETERR(self_text(r, c, &s));
    RETERR(run_charge(r, s.n));
    if (c->a[0].kind == V_MISSING || c->a[0].kind == V_NONE) {
        s = span_ltrim(span_rtrim(s));
    } else {
        RETERR(arg_str(r, &c->a[0], "trim's characters", &chars));
        RETERR(run_charge(r, s.n * chars.n));
        s = span_strip(s, chars, true, true);
    }
    *ret = val_str(s);
    ret->markup = c->self.kind == V_STR && c->self.markup;
    return 0;
}

static int f_replace(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    struct span from;
    struct span to;
    int64_t count = -1;
    RETERR(self_text(r, c, &s));
    RETERR(val_text(r, &c->a[0], &from));
    RETERR(val_text(r, &c->a[1], &to));
    if (c->a[2].kind != V_NONE) {
        RETERR(arg_int(r, &c->a[2], "replace's count", &count));
    }
    return str_replace(r, s, from, to, count, ret);
}

static int f_center(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    int64_t width = 80;
    RETERR(self_text(r, c, &s));
    RETERR(arg_int(r, &c->a[0], "center's width", &width));
    return str_center(r, s, width, zspan(" "), ret);
}

/* The text of indent: spaces, or itself. */
static int indention(struct run *r, const struct val *width, struct val *ret)
{
    int64_t n = 4;
    *ret = *width;
    if (width->kind == V_STR) {
        return 0;
    }
    RETERR(arg_int(r, width, "indent's width", &n));
    return str_pad(r, zspan(""), n, 0, zspan(" "), ret);
}

static int f_indent(struct run *r, const struct call *c, struct val *ret)
{
    struct val in;
    struct val lines;
    struct val text = c->self;
    struct val newline = val_strz("\n");
    struct buf b;
    bool first = arg_true(&c->a[1]);
    bool blank = arg_true(&c->a[2]);
    RETERR(indention(r, &c->a[0], &in));
    if (text.kind == V_STR) {
        text.markup = false;
    }
    RETERR(arith(r, OP_ADD, &text, &newline, &text));
    RETERR(str_lines(r, text.s, false, &lines));
    run_buf(r, &b);
    for (size_t i = 0; i < lines.list->n; i++) {
        struct span line = lines.list->v[i].s;
        bool indent = i == 0 ? first : blank || line.n > 0;
        buf_puts(&b, i > 0 ? "\n" : "");
        buf_put(&b, in.s.p, indent ? in.s.n : 0);
        buf_put(&b, line.p, line.n);
    }
    int rc = run_take(r, &b, ret);
    buf_fini(&b);
    ret->markup = c->self.kind == V_STR && c->self.markup;
    return rc;
}

static int f_format(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    struct val args;
    RETERR(self_text(r, c, &s));
    if (c->raw->n > 0 && c->raw->n_kw > 0) {
        return run_error(r, "can't handle positional and keyword arguments at "
                            "the same time");
    }
    if (c->raw->n_kw == 0) {
        RETERR(run_list(r, V_TUPLE, &args));
        for (size_t i = 0; i < c->raw->n; i++) {
            RETERR(run_push(r, &args, c->raw->v[i]));
        }
        return format_percent(r, s, &args, ret);
    }
    RETERR(run_dict(r, V_DICT, &args));
    for (size_t i = 0; i < c->raw->n_kw; i++) {
        RETERR(run_put(r, &args, val_str(c->raw->kw[i].name), c->raw->kw[i].v));
    }
    return format_percent(r, s, &args, ret);
}

/* Only a string is cut; what else is short enough stays as it is. */
static int f_truncate(struct run *r, const struct call *c, struct val *ret)
{
    struct span s = zspan("");
    struct val n;
    struct args none = {0};
    struct span end = zspan("...");
    int64_t length = 255;
    int64_t leeway = 5;
    struct buf b;
    RETERR(call_filter(r, zspan("length"), &c->self, &none, &n));
    RETERR(arg_int(r, &c->a[0], "truncate's length", &length));
    RETERR(arg_str(r, &c->a[2], "truncate's end", &end));
    if (c->a[3].kind != V_NONE) {
        RETERR(arg_int(r, &c->a[3], "truncate's leeway", &leeway));
    }
    int64_t tail = (int64_t)text_length(end);
    if (length < tail || leeway < 0) {
        return run_error(r, "truncate: a length of %lld", (long long)length);
    }
    *ret = c->self;
    if (n.i - length <= leeway) {
        return 0;
    }
    RETERR(arg_str(r, &c->self, "what is truncated", &s));
    s.n = text_at(s, (size_t)(length - tail));
    if (!arg_true(&c->a[1])) {
        size_t space = s.n;
        while (space > 0 && s.p[space - 1] != ' ') {
            space--;
        }
        s.n = space > 0 ? space - 1 : s.n;
    }
    run_buf(r, &b);
    buf_put(&b, s.p, s.n);
    buf_put(&b, end.p, end.n);
    int rc = run_take(r, &b, ret);
    buf_fini(&b);
    return rc;
}

static int f_wordcount(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    int64_t n = 0;
    int32_t u = 0;
    bool inside = false;
    RETERR(self_text(r, c, &s));
    RETERR(run_charge_chars(r, s.n));
    for (size_t i = 0; i < s.n;) {
        i += text_char(s.p + i, s.n - i, &u);
        bool word = char_is_alpha(u) || char_is_numeric(u) || u == '_';
        n += word && !inside;
        inside = word;
    }
    *ret = val_int(n);
    return 0;
}

static bool url_safe(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (c != '\0' && strchr("_.-~/", c) != NULL);
}

/* `query`: '/' too is quoted, and a space is '+'. */
static void url_quote(struct span s, bool query, struct buf *b)
{
    for (size_t i = 0; i < s.n; i++) {
        if (url_safe(s.p[i]) && !(query && s.p[i] == '/')) {
            buf_put(b, &s.p[i], 1);
        } else if (query && s.p[i] == ' ') {
            buf_puts(b, "+");
        } else {
            buf_printf(b, "%%%02X", (unsigned)(unsigned char)s.p[i]);
        }
    }
}

/* One key=value of a query. */
static int query_part(struct run *r, const struct val *key, const struct val *v,
                      struct buf *b)
{
    struct span s;
    RETERR(val_text(r, key, &s));
    buf_puts(b, b->n > 0 ? "&" : "");
    url_quote(s, true, b);
    RETERR(val_text(r, v, &s));
    buf_puts(b, "=");
    url_quote(s, true, b);
    return 0;
}

static int f_urlencode(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l = {0};
    struct buf b;
    struct span s;
    int rc = 0;
    bool dict = c->self.kind == V_DICT;
    run_buf(r, &b);
    if (dict || val_has_list(&c->self)) {
        CHECK(run_items(r, &c->self, &l));
    } else {
        CHECK(self_text(r, c, &s));
        url_quote(s, false, &b);
    }
    for (size_t i = 0; i < l.n; i++) {
        struct val_list two = {0};
        if (dict) {
            const struct val_item *m = &c->self.dict->item[i];
            CHECK(query_part(r, &m->key, &m->v, &b));
            continue;
        }
        CHECK(run_items(r, &l.v[i], &two));
        CHECK(two.n == 2 ? 0 : run_error(r, "urlencode is of pairs"));
        CHECK(query_part(r, &two.v[0], &two.v[1], &b));
    }
    rc = run_take(r, &b, ret);
out:
    buf_fini(&b);
    return rc;
}

static const struct builtin filters[] = {
    {"capitalize", f_capitalize, 0, ""                           },
    {"center",     f_center,     0, "width"                      },
    {"format",     f_format,     0, "*"                          },
    {"indent",     f_indent,     0, "width,first,blank"          },
    {"lower",      f_lower,      0, ""                           },
    {"replace",    f_replace,    2, "old,new,count"              },
    {"title",      f_title,      0, ""                           },
    {"trim",       f_trim,       0, "chars"                      },
    {"truncate",   f_truncate,   0, "length,killwords,end,leeway"},
    {"upper",      f_upper,      0, ""                           },
    {"urlencode",  f_urlencode,  0, ""                           },
    {"wordcount",  f_wordcount,  0, ""                           },
};

const struct builtin *find_text_filter(struct span name)
{
    return builtin_find(filters, countof(filters), name);
}
