/* methods_text.c - methods of strings. Positions count characters. */
#include <string.h>

#include "model/jinja/strings.h"
#include "model/jinja/text.h"
#include "proto/limits.h"

static int answer(struct val *ret, struct val v)
{
    *ret = v;
    return 0;
}

/* --- cases --- */

#define CASE_METHOD(name, to)                                             \
    static int name(struct run *r, const struct call *c, struct val *ret) \
    {                                                                     \
        return str_case(r, c->self.s, to, ret);                           \
    }

CASE_METHOD(m_upper, STR_UPPER)
CASE_METHOD(m_lower, STR_LOWER)
CASE_METHOD(m_capitalize, STR_CAPITALIZE)
CASE_METHOD(m_title, STR_TITLE)
CASE_METHOD(m_swapcase, STR_SWAP)

/* --- questions --- */

/* Not empty, and each character is so. */
static int all_are(struct run *r, const struct call *c, bool (*is)(int32_t),
                   struct val *ret)
{
    struct span s = c->self.s;
    int32_t u = 0;
    size_t i = 0;
    bool ok = s.n > 0;
    while (ok && i < s.n) {
        i += text_char(s.p + i, s.n - i, &u);
        ok = is(u);
    }
    *ret = val_bool(ok);
    return run_charge_chars(r, i);
}

static bool is_alnum(int32_t c)
{
    return char_is_alpha(c) || char_is_digit(c) || char_is_numeric(c);
}

static bool is_ascii(int32_t c)
{
    return c >= 0 && c < 0x80;
}

#define ALL_METHOD(name, is)                                              \
    static int name(struct run *r, const struct call *c, struct val *ret) \
    {                                                                     \
        return all_are(r, c, is, ret);                                    \
    }

ALL_METHOD(m_isspace, char_is_space)
ALL_METHOD(m_isalpha, char_is_alpha)
ALL_METHOD(m_isdigit, char_is_digit)
ALL_METHOD(m_isdecimal, char_is_decimal)
ALL_METHOD(m_isnumeric, char_is_numeric)
ALL_METHOD(m_isalnum, is_alnum)

static int m_isascii(struct run *r, const struct call *c, struct val *ret)
{
    return c->self.s.n == 0 ? answer(ret, val_bool(true))
                            : all_are(r, c, is_ascii, ret);
}

static int cased(struct run *r, const struct call *c, const char *test,
                 struct val *ret)
{
    struct args none = {0};
    bool yes = false;
    RETERR(call_test(r, zspan(test), &c->self, &none, &yes));
    return answer(ret, val_bool(yes));
}

static int m_isupper(struct run *r, const struct call *c, struct val *ret)
{
    return cased(r, c, "upper", ret);
}

static int m_islower(struct run *r, const struct call *c, struct val *ret)
{
    return cased(r, c, "lower", ret);
}

static bool ends(struct span s, struct span with)
{
    return s.n >= with.n &&
           (with.n == 0 || memcmp(s.p + s.n - with.n, with.p, with.n) == 0);
}

/* The part of a string from a start to an end; false: the start is behind its
 * end, so that not even "" stands there. */
static int window(struct run *r, const struct call *c, const struct val *from,
                  const struct val *to, struct span *ret, bool *ok)
{
    *ok = true;
    *ret = c->self.s;
    if (from->kind == V_MISSING && to->kind == V_MISSING) {
        return 0;
    }
    int64_t n = (int64_t)text_length(c->self.s);
    int64_t i = 0;
    int64_t k = n;
    if (from->kind != V_NONE) {
        RETERR(arg_int(r, from, "a start", &i));
    }
    if (to->kind != V_NONE) {
        RETERR(arg_int(r, to, "an end", &k));
    }
    i = i < 0 ? (i + n < 0 ? 0 : i + n) : i;
    k = k < 0 ? (k + n < 0 ? 0 : k + n) : (k > n ? n : k);
    *ok = i <= k;
    size_t a = text_at(c->self.s, (size_t)(*ok ? i : 0));
    size_t b = text_at(c->self.s, (size_t)k);
    *ret = (struct span){c->self.s.p + a, *ok ? b - a : 0};
    return run_charge(r, c->self.s.n);
}

/* startswith and endswith: a text, or a tuple of which one fits. */
static int fits(struct run *r, const struct call *c,
                bool (*how)(struct span, struct span), struct val *ret)
{
    struct val_list one = {.v = (struct val[]){c->a[0]}, .n = 1};
    const struct val_list *l = c->a[0].kind == V_TUPLE ? c->a[0].list : &one;
    struct span s;
    bool ok = false;
    bool yes = false;
    RETERR(window(r, c, &c->a[1], &c->a[2], &s, &ok));
    for (size_t i = 0; i < l->n; i++) {
        struct span with = zspan("");
        RETERR(arg_str(r, &l->v[i], "a prefix or suffix", &with));
        yes = yes || (ok && how(s, with));
    }
    return answer(ret, val_bool(yes));
}

static int m_startswith(struct run *r, const struct call *c, struct val *ret)
{
    return fits(r, c, str_begins, ret);
}

static int m_endswith(struct run *r, const struct call *c, struct val *ret)
{
    return fits(r, c, ends, ret);
}

/* --- finding --- */

static int find(struct run *r, const struct call *c, bool last, int64_t *ret)
{
    struct span s;
    struct span sub = zspan("");
    bool ok = false;
    RETERR(arg_str(r, &c->a[0], "what is looked for", &sub));
    RETERR(window(r, c, &c->a[1], &c->a[2], &s, &ok));
    RETERR(run_charge(r, last ? s.n * (sub.n / 64 + 1) : s.n));
    size_t at = last ? str_find_last(s, sub) : span_find(s, sub);
    *ret = -1;
    if (ok && at <= s.n) {
        size_t bytes = (size_t)(s.p - c->self.s.p) + at;
        *ret = (int64_t)text_length((struct span){c->self.s.p, bytes});
    }
    return 0;
}

static int found(struct run *r, const struct call *c, bool last, bool need,
                 struct val *ret)
{
    int64_t at = -1;
    RETERR(find(r, c, last, &at));
    *ret = val_int(at);
    return need && at < 0 ? run_error(r, "substring not found") : 0;
}

static int m_find(struct run *r, const struct call *c, struct val *ret)
{
    return found(r, c, false, false, ret);
}

static int m_rfind(struct run *r, const struct call *c, struct val *ret)
{
    return found(r, c, true, false, ret);
}

static int m_index(struct run *r, const struct call *c, struct val *ret)
{
    return found(r, c, false, true, ret);
}

static int m_rindex(struct run *r, const struct call *c, struct val *ret)
{
    return found(r, c, true, true, ret);
}

static int m_count(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    struct span sub = zspan("");
    bool ok = false;
    int64_t n = 0;
    RETERR(run_charge(r, c->self.s.n));
    RETERR(arg_str(r, &c->a[0], "what is counted", &sub));
    RETERR(window(r, c, &c->a[1], &c->a[2], &s, &ok));
    if (sub.n == 0) {
        return answer(ret, val_int(ok ? (int64_t)text_length(s) + 1 : 0));
    }
    for (size_t at = span_find(s, sub); ok && at <= s.n;
         at = span_find(s, sub)) {
        n++;
        s.p += at + sub.n;
        s.n -= at + sub.n;
    }
    return answer(ret, val_int(n));
}

/* --- off the ends --- */

static int strip(struct run *r, const struct call *c, bool left, bool right,
                 struct val *ret)
{
    struct span s = c->self.s;
    struct span chars = zspan("");
    RETERR(run_charge(r, s.n));
    if (c->a[0].kind == V_MISSING || c->a[0].kind == V_NONE) {
        s = left ? span_ltrim(s) : s;
        s = right ? span_rtrim(s) : s;
    } else {
        RETERR(arg_str(r, &c->a[0], "strip's characters", &chars));
        RETERR(run_charge(r, s.n * chars.n));
        s = span_strip(s, chars, left, right);
    }
    return answer(ret, val_str(s));
}

static int m_strip(struct run *r, const struct call *c, struct val *ret)
{
    return strip(r, c, true, true, ret);
}

static int m_lstrip(struct run *r, const struct call *c, struct val *ret)
{
    return strip(r, c, true, false, ret);
}

static int m_rstrip(struct run *r, const struct call *c, struct val *ret)
{
    return strip(r, c, false, true, ret);
}

static int m_removeprefix(struct run *r, const struct call *c, struct val *ret)
{
    struct span s = c->self.s;
    struct span with = zspan("");
    RETERR(arg_str(r, &c->a[0], "a prefix", &with));
    size_t n = str_begins(s, with) ? with.n : 0;
    return answer(ret, val_str((struct span){s.p + n, s.n - n}));
}

static int m_removesuffix(struct run *r, const struct call *c, struct val *ret)
{
    struct span s = c->self.s;
    struct span with = zspan("");
    RETERR(arg_str(r, &c->a[0], "a suffix", &with));
    s.n -= ends(s, with) ? with.n : 0;
    return answer(ret, val_str(s));
}

/* --- apart --- */

static int split(struct run *r, const struct call *c, bool right,
                 struct val *ret)
{
    struct span sep = zspan("");
    int64_t most = -1;
    RETERR(arg_int(r, &c->a[1], "split's maximum", &most));
    if (c->a[0].kind != V_MISSING && c->a[0].kind != V_NONE) {
        RETERR(arg_str(r, &c->a[0], "split's separator", &sep));
        if (sep.n == 0) {
            return run_error(r, "empty separator");
        }
    }
    return str_split(r, c->self.s, sep, most, right, ret);
}

static int m_split(struct run *r, const struct call *c, struct val *ret)
{
    return split(r, c, false, ret);
}

static int m_rsplit(struct run *r, const struct call *c, struct val *ret)
{
    return split(r, c, true, ret);
}

static int m_splitlines(struct run *r, const struct call *c, struct val *ret)
{
    return str_lines(r, c->self.s, arg_true(&c->a[0]), ret);
}

/* Before, the separator, behind it. */
static int partition(struct run *r, const struct call *c, bool last,
                     struct val *ret)
{
    struct span s = c->self.s;
    struct span sep = zspan("");
    struct val part[3] = {val_str(s), val_strz(""), val_strz("")};
    RETERR(arg_str(r, &c->a[0], "partition's separator", &sep));
    if (sep.n == 0) {
        return run_error(r, "empty separator");
    }
    RETERR(run_charge(r, s.n));
    size_t at = last ? str_find_last(s, sep) : span_find(s, sep);
    if (at <= s.n) {
        part[0].s.n = at;
        part[1] = val_str(sep);
        part[2] = val_str((struct span){s.p + at + sep.n, s.n - at - sep.n});
    } else if (last) {
        part[2] = part[0];
        part[0] = val_strz("");
    }
    RETERR(run_list(r, V_TUPLE, ret));
    for (size_t i = 0; i < countof(part); i++) {
        RETERR(run_push(r, ret, part[i]));
    }
    return 0;
}

static int m_partition(struct run *r, const struct call *c, struct val *ret)
{
    return partition(r, c, false, ret);
}

static int m_rpartition(struct run *r, const struct call *c, struct val *ret)
{
    return partition(r, c, true, ret);
}

/* --- together --- */

static int m_join(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    struct buf b;
    int rc = 0;
    RETERR(run_items(r, &c->a[0], &l));
    run_buf(r, &b);
    for (size_t i = 0; i < l.n; i++) {
        struct span s = zspan("");
        CHECK(arg_str(r, &l.v[i], "an item of join", &s));
        buf_put(&b, c->self.s.p, i > 0 ? c->self.s.n : 0);
        buf_put(&b, s.p, s.n);
    }
    rc = run_take(r, &b, ret);
out:
    buf_fini(&b);
    return rc;
}

static int m_replace(struct run *r, const struct call *c, struct val *ret)
{
    struct span from = zspan("");
    struct span to = zspan("");
    int64_t count = -1;
    RETERR(arg_str(r, &c->a[0], "what is replaced", &from));
    RETERR(arg_str(r, &c->a[1], "what replaces it", &to));
    RETERR(arg_int(r, &c->a[2], "replace's count", &count));
    return str_replace(r, c->self.s, from, to, count, ret);
}

/* Which side gets the fill: -1 the left, 1 the right, 0 both. */
static int justify(struct run *r, const struct call *c, int side,
                   struct val *ret)
{
    int64_t n = (int64_t)text_length(c->self.s);
    int64_t width = 0;
    struct span fill = zspan(" ");
    RETERR(arg_int(r, &c->a[0], "a width", &width));
    RETERR(arg_str(r, &c->a[1], "a fill", &fill));
    if (side == 0) {
        return str_center(r, c->self.s, width, fill, ret);
    }
    return str_pad(r, c->self.s, side < 0 ? width - n : 0,
                   side > 0 ? width - n : 0, fill, ret);
}

static int m_ljust(struct run *r, const struct call *c, struct val *ret)
{
    return justify(r, c, 1, ret);
}

static int m_rjust(struct run *r, const struct call *c, struct val *ret)
{
    return justify(r, c, -1, ret);
}

static int m_center(struct run *r, const struct call *c, struct val *ret)
{
    return justify(r, c, 0, ret);
}

static int m_zfill(struct run *r, const struct call *c, struct val *ret)
{
    struct span s = c->self.s;
    int64_t width = 0;
    bool sign = s.n > 0 && (*s.p == '-' || *s.p == '+');
    RETERR(arg_int(r, &c->a[0], "a width", &width));
    int64_t more = width - (int64_t)text_length(s);
    struct span digits = {s.p + sign, s.n - sign};
    RETERR(str_pad(r, digits, more, 0, zspan("0"), ret));
    if (sign) {
        struct val mark = val_str((struct span){s.p, 1});
        struct val rest = *ret;
        return join_strings(r, &mark, &rest, ret);
    }
    return 0;
}

/* "{} {0} {name}".format(...) */
static int m_format(struct run *r, const struct call *c, struct val *ret)
{
    return format_braces(r, c->self.s, c->raw, ret);
}

static int m_unknown(struct run *r, const struct call *c, struct val *ret)
{
    (void)c;
    (void)ret;
    return err_set(r->e, ERR_TEMPLATE,
                   "the chat template uses a method of str that aned does not "
                   "know");
}

static const struct builtin methods[] = {
    {"capitalize",   m_capitalize,   0, ""              },
    {"casefold",     m_lower,        0, ""              },
    {"center",       m_center,       1, "width,fillchar"},
    {"count",        m_count,        1, "sub,start,end" },
    {"encode",       m_unknown,      0, "*"             },
    {"endswith",     m_endswith,     1, "s,start,end"   },
    {"expandtabs",   m_unknown,      0, "*"             },
    {"find",         m_find,         1, "sub,start,end" },
    {"format",       m_format,       0, "*"             },
    {"format_map",   m_unknown,      0, "*"             },
    {"index",        m_index,        1, "sub,start,end" },
    {"isalnum",      m_isalnum,      0, ""              },
    {"isalpha",      m_isalpha,      0, ""              },
    {"isascii",      m_isascii,      0, ""              },
    {"isdecimal",    m_isdecimal,    0, ""              },
    {"isdigit",      m_isdigit,      0, ""              },
    {"isidentifier", m_unknown,      0, "*"             },
    {"islower",      m_islower,      0, ""              },
    {"isnumeric",    m_isnumeric,    0, ""              },
    {"isprintable",  m_unknown,      0, "*"             },
    {"isspace",      m_isspace,      0, ""              },
    {"istitle",      m_unknown,      0, "*"             },
    {"isupper",      m_isupper,      0, ""              },
    {"join",         m_join,         1, "iterable"      },
    {"ljust",        m_ljust,        1, "width,fillchar"},
    {"lower",        m_lower,        0, ""              },
    {"lstrip",       m_lstrip,       0, "chars"         },
    {"maketrans",    m_unknown,      0, "*"             },
    {"partition",    m_partition,    1, "sep"           },
    {"removeprefix", m_removeprefix, 1, "prefix"        },
    {"removesuffix", m_removesuffix, 1, "suffix"        },
    {"replace",      m_replace,      2, "old,new,count" },
    {"rfind",        m_rfind,        1, "sub,start,end" },
    {"rindex",       m_rindex,       1, "sub,start,end" },
    {"rjust",        m_rjust,        1, "width,fillchar"},
    {"rpartition",   m_rpartition,   1, "sep"           },
    {"rsplit",       m_rsplit,       0, "sep,maxsplit"  },
    {"rstrip",       m_rstrip,       0, "chars"         },
    {"split",        m_split,        0, "sep,maxsplit"  },
    {"splitlines",   m_splitlines,   0, "keepends"      },
    {"startswith",   m_startswith,   1, "s,start,end"   },
    {"strip",        m_strip,        0, "chars"         },
    {"swapcase",     m_swapcase,     0, ""              },
    {"title",        m_title,        0, ""              },
    {"translate",    m_unknown,      0, "*"             },
    {"upper",        m_upper,        0, ""              },
    {"zfill",        m_zfill,        1, "width"         },
};

const struct builtin *find_text_method(struct span name)
{
    return builtin_find(methods, countof(methods), name);
}
