/* lex.c - template text into tokens.
 *
 * White space control is done here, as Jinja2 does with trim_blocks and
 * lstrip_blocks: a tag with '-' eats all white space on that side; a statement
 * or a comment eats the newline after it, and the white space before it when
 * nothing else stands before it on its line; '+' keeps both. One newline at the
 * very end is dropped. Inside brackets no tag ends.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/utf8.h"
#include "model/jinja/ast.h"
#include "model/jinja/text.h"
#include "proto/limits.h"

struct lexer {
    struct arena *tmp, *arena;
    struct names *names;
    const char *p;
    size_t n, at;
    struct toks *out;
    struct err *e;
};

size_t toks_line(const struct toks *t, size_t at)
{
    size_t line = 1;
    for (size_t i = 0; i < at && i < t->text.n; i++) {
        line += t->text.p[i] == '\n';
    }
    return line;
}

static int bad(struct lexer *x, const char *what)
{
    return err_set(x->e, ERR_TEMPLATE,
                   "the chat template: %s in line %zu (byte %zu)", what,
                   toks_line(x->out, x->at), x->at);
}

static int too_big(struct lexer *x)
{
    return err_set(x->e, ERR_TOO_BIG, "the chat template");
}

/* The new token, or NULL. */
static struct tok *push(struct lexer *x, enum tok_kind kind, struct span s)
{
    struct toks *o = x->out;
    if (o->n == o->cap) {
        size_t cap = o->cap == 0 ? 256 : o->cap * 2;
        struct tok *t = arena_array(x->tmp, cap, sizeof(*t));
        if (t == NULL) {
            return NULL;
        }
        if (o->n > 0) {
            memcpy(t, o->t, o->n * sizeof(*t));
        }
        o->t = t;
        o->cap = cap;
    }
    struct tok *t = &o->t[o->n++];
    *t = (struct tok){.kind = kind, .s = s, .at = x->at};
    return t;
}

static int put(struct lexer *x, enum tok_kind kind, struct span s)
{
    return push(x, kind, s) != NULL ? 0 : too_big(x);
}

/* --- names --- */

static size_t slot_of(const struct names *t, struct span s)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < s.n; i++) {
        h = (h ^ (unsigned char)s.p[i]) * 1099511628211u;
    }
    size_t at = (size_t)h & (t->cap - 1);
    while (t->slot[at].p != NULL && !span_equal(t->slot[at], s)) {
        at = (at + 1) & (t->cap - 1);
    }
    return at;
}

struct span intern_find(const struct names *t, struct span s)
{
    return t->cap > 0 ? t->slot[slot_of(t, s)] : (struct span){NULL, 0};
}

static bool intern_grow(struct arena *a, struct names *t)
{
    struct names more = {.n = t->n, .cap = t->cap == 0 ? 128 : 2 * t->cap};
    more.slot = arena_array(a, more.cap, sizeof(*more.slot));
    if (more.slot == NULL) {
        return false;
    }
    for (size_t i = 0; i < t->cap; i++) {
        if (t->slot[i].p != NULL) {
            more.slot[slot_of(&more, t->slot[i])] = t->slot[i];
        }
    }
    *t = more;
    return true;
}

struct span intern_put(struct arena *a, struct names *t, struct span s)
{
    if (2 * t->n >= t->cap && !intern_grow(a, t)) {
        return (struct span){NULL, 0};
    }
    size_t at = slot_of(t, s);
    if (t->slot[at].p == NULL) {
        t->slot[at] = (struct span){arena_strn(a, s.p, s.n), s.n};
        t->n += t->slot[at].p != NULL;
    }
    return t->slot[at];
}

/* --- literals --- */

/* The value of `digits` digits of base 8 or 16; -1 when one is none. */
static int32_t digits_value(const char *p, size_t digits, int base)
{
    int32_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        int d = isdigit((unsigned char)p[i])
                    ? p[i] - '0'
                    : (isxdigit((unsigned char)p[i]) ? (p[i] | 0x20) - 'a' + 10
                                                     : 99);
        if (d >= base || v > 0x110000) {
            return -1;
        }
        v = v * base + d;
    }
    return v;
}

/* One escape at p[0..n), n > 1, p[0] a backslash: what it takes; its bytes are
 * added at out[*at]. 0: it is not one that Python knows how to read. */
static size_t escape(const char *p, size_t n, char *out, size_t *at)
{
    static const char from[] = "ntr\\'\"abfv";
    static const char to[] = "\n\t\r\\'\"\a\b\f\v";
    const char *known = strchr(from, p[1]);
    size_t digits = p[1] == 'x' ? 2 : (p[1] == 'u' ? 4 : (p[1] == 'U' ? 8 : 0));
    if (known != NULL && p[1] != '\0') {
        out[(*at)++] = to[known - from];
        return 2;
    }
    if (p[1] == '\n') {
        return 2; /* a line that goes on */
    }
    if (p[1] >= '0' && p[1] <= '7') {
        while (digits < 3 && digits + 1 < n && p[1 + digits] >= '0' &&
               p[1 + digits] <= '7') {
            digits++;
        }
        *at += utf8_put(out + *at, (uint32_t)digits_value(p + 1, digits, 8));
        return 1 + digits;
    }
    if (digits > 0) {
        int32_t c = n >= 2 + digits ? digits_value(p + 2, digits, 16) : -1;
        if (c < 0 || c >= 0x110000 || (c >= 0xD800 && c < 0xE000)) {
            return 0;
        }
        *at += utf8_put(out + *at, (uint32_t)c);
        return 2 + digits;
    }
    out[(*at)++] = '\\'; /* an unknown one stays as it is */
    return p[1] == 'N' ? 0 : 1;
}

static int lex_string(struct lexer *x)
{
    char quote = x->p[x->at];
    size_t from = x->at + 1;
    size_t end = from;
    size_t at = 0;
    while (end < x->n && x->p[end] != quote) {
        end += x->p[end] == '\\' ? 2 : 1;
    }
    if (end >= x->n) {
        return bad(x, "a string without its end");
    }
    /* An octal escape of two bytes, \ and a digit, may become two bytes. */
    char *out = arena_alloc(x->arena, end - from + 4);
    if (out == NULL) {
        return too_big(x);
    }
    for (size_t i = from; i < end;) {
        if (x->p[i] != '\\') {
            out[at++] = x->p[i++];
            continue;
        }
        size_t took = escape(x->p + i, end - i, out, &at);
        if (took == 0) {
            return bad(x, "an escape that is no character");
        }
        i += took;
    }
    RETERR(put(x, TK_STRING, (struct span){out, at}));
    x->at = end + 1;
    return 0;
}

/* p[*i..n) continues with digits of `base`, with single '_' between them. */
static void digits(const char *p, size_t n, size_t *i, int base)
{
    while (*i < n) {
        size_t at = *i + (p[*i] == '_' && *i + 1 < n);
        if (digits_value(p + at, 1, base) < 0) {
            break;
        }
        *i = at + 1;
    }
}

/* A fraction, an exponent: returns whether there is one. */
static bool fraction(const char *p, size_t n, size_t *i)
{
    size_t at = *i;
    if (at + 1 < n && p[at] == '.' && isdigit((unsigned char)p[at + 1])) {
        at++;
        digits(p, n, &at, 10);
    }
    size_t e = at;
    if (e < n && (p[e] | 0x20) == 'e') {
        e += e + 1 < n && (p[e + 1] == '-' || p[e + 1] == '+') ? 2u : 1u;
        if (e < n && isdigit((unsigned char)p[e])) {
            at = e;
            digits(p, n, &at, 10);
        }
    }
    bool found = at > *i;
    *i = at;
    return found;
}

static int lex_number(struct lexer *x)
{
    const char *p = x->p + x->at;
    size_t left = x->n - x->at;
    size_t i = 0;
    int base = 10;
    if (left > 2 && *p == '0') {
        char kind = (char)(p[1] | 0x20);
        base = kind == 'x' ? 16 : (kind == 'o' ? 8 : (kind == 'b' ? 2 : 10));
    }
    i = base == 10 ? 0u : 2u;
    size_t from = i;
    digits(p, left, &i, base);
    bool after_dot = x->at > 0 && x->p[x->at - 1] == '.';
    bool is_float = base == 10 && !after_dot && fraction(p, left, &i);
    if (!is_float && *p == '0' && base == 10) {
        i = 1; /* no number begins with 0 but 0 itself */
        while (i < left && p[i] == '0') {
            i++;
        }
    }
    char text[400];
    size_t n = 0;
    for (size_t k = from; k < i && n + 1 < sizeof(text); k++) {
        text[n] = p[k];
        n += p[k] != '_';
    }
    text[n] = '\0';
    struct tok *t = push(x, is_float ? TK_FLOAT : TK_INT, (struct span){p, i});
    if (t == NULL) {
        return too_big(x);
    }
    char *end = NULL;
    unsigned long long v = is_float ? 0 : strtoull(text, &end, base);
    if ((is_float && !parse_double(text, &t->f)) ||
        (!is_float && (n == 0 || n > 64 || v > INT64_MAX))) {
        return bad(x, "a number beyond 64 bits");
    }
    if (!is_float) {
        t->i = (int64_t)v;
    }
    x->at += i;
    return 0;
}

static int lex_name(struct lexer *x)
{
    const char *p = x->p + x->at;
    size_t i = 0;
    while (x->at + i < x->n && (isalnum((unsigned char)p[i]) || p[i] == '_' ||
                                (unsigned char)p[i] >= 0x80)) {
        i++;
    }
    struct span s = intern_put(x->arena, x->names, (struct span){p, i});
    if (s.p == NULL) {
        return too_big(x);
    }
    RETERR(put(x, TK_NAME, s));
    x->at += i;
    return 0;
}

/* --- tags --- */

/* One token inside a tag; *nest counts open brackets. */
static int lex_inside(struct lexer *x, int *nest)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "**"};
    const char *p = x->p + x->at;
    size_t left = x->n - x->at;
    if (*p == '\'' || *p == '"') {
        return lex_string(x);
    }
    if (isdigit((unsigned char)*p)) {
        return lex_number(x);
    }
    if (isalpha((unsigned char)*p) || *p == '_' || (unsigned char)*p >= 0x80) {
        return lex_name(x);
    }
    size_t n = 1;
    for (size_t i = 0; left >= 2 && i < countof(ops); i++) {
        n = memcmp(p, ops[i], 2) == 0 ? 2 : n;
    }
    if (*p == '\0' || (n == 1 && strchr("+-*/%~|.,:;()[]{}<>=", *p) == NULL)) {
        return bad(x, "an unknown character");
    }
    *nest += strchr("([{", *p) != NULL;
    *nest -= strchr(")]}", *p) != NULL;
    if (*nest < 0) {
        return bad(x, "a bracket that nothing opened");
    }
    RETERR(put(x, TK_OP, (struct span){p, n}));
    x->at += n;
    return 0;
}

/* The text p[from..to) before a tag with this sign. */
static int put_text(struct lexer *x, size_t from, size_t to, char tag,
                    char sign)
{
    if (sign == '-') {
        to = from + span_rtrim((struct span){x->p + from, to - from}).n;
    } else if (tag != '{' && sign != '+') {
        size_t line = to;
        while (line > from && x->p[line - 1] != '\n') {
            line--;
        }
        struct span blank = {x->p + line, to - line};
        if ((line == 0 || x->p[line - 1] == '\n') && span_rtrim(blank).n == 0) {
            to = line;
        }
    }
    x->at = from;
    return to > from ? put(x, TK_TEXT, (struct span){x->p + from, to - from})
                     : 0;
}

/* After the closing mark of a tag: skip what it eats. */
static void eat_after(struct lexer *x, char tag, char sign)
{
    struct span rest = {x->p + x->at, x->n - x->at};
    if (sign == '-') {
        x->at += rest.n - span_ltrim(rest).n;
    } else if (tag != '{' && sign != '+' && rest.n > 0 && *rest.p == '\n') {
        x->at++;
    }
}

static int lex_comment(struct lexer *x)
{
    for (size_t i = x->at + 2; i + 1 < x->n; i++) {
        if (x->p[i] == '#' && x->p[i + 1] == '}') {
            char sign = i > x->at + 2 ? x->p[i - 1] : '\0';
            x->at = i + 2;
            eat_after(x, '#', sign);
            return 0;
        }
    }
    return bad(x, "a comment without its end");
}

/* From after "{%" or "{{" to after its end. */
static int lex_tag(struct lexer *x, char tag)
{
    char end = tag == '{' ? '}' : '%';
    int nest = 0;
    RETERR(put(x, tag == '{' ? TK_EXPR_OPEN : TK_STMT_OPEN, zspan("")));
    for (;;) {
        while (x->at < x->n && isspace((unsigned char)x->p[x->at])) {
            x->at++;
        }
        size_t left = x->n - x->at;
        const char *p = x->p + x->at;
        if (left == 0) {
            return bad(x, "a tag without its end");
        }
        bool sign = left >= 3 && (*p == '-' || (*p == '+' && tag == '%')) &&
                    p[1] == end && p[2] == '}';
        if (nest == 0 && (sign || (left >= 2 && *p == end && p[1] == '}'))) {
            RETERR(
                put(x, tag == '{' ? TK_EXPR_CLOSE : TK_STMT_CLOSE, zspan("")));
            x->at += sign ? 3 : 2;
            eat_after(x, tag, sign ? *p : '\0');
            return 0;
        }
        RETERR(lex_inside(x, &nest));
    }
}

/* A `{% word %}` at p[at..n): its end, and the sign at each side. 0: none. */
static size_t bare_tag(const struct lexer *x, size_t at, const char *word,
                       char sign[2])
{
    struct span s = {x->p + at, x->n - at};
    size_t n = strlen(word);
    if (s.n < 2 || memcmp(s.p, "{%", 2) != 0) {
        return 0;
    }
    sign[0] = s.n > 2 ? s.p[2] : '\0';
    size_t skip = sign[0] == '-' || sign[0] == '+' ? 3u : 2u;
    s = span_ltrim((struct span){s.p + skip, s.n - skip});
    if (s.n < n || memcmp(s.p, word, n) != 0) {
        return 0;
    }
    s = span_ltrim((struct span){s.p + n, s.n - n});
    sign[1] = s.n > 0 ? *s.p : '\0';
    skip = sign[1] == '-' || sign[1] == '+' ? 1u : 0u;
    return s.n >= skip + 2 && memcmp(s.p + skip, "%}", 2) == 0
               ? (size_t)(s.p - x->p) + skip + 2
               : 0;
}

/* {% raw %} at x->at: its text is text. *took: whether it is one. */
static int lex_raw(struct lexer *x, bool *took)
{
    char sign[2];
    size_t from = bare_tag(x, x->at, "raw", sign);
    *took = from > 0 && sign[1] != '+';
    if (!*took) {
        return 0;
    }
    x->at = from;
    if (sign[1] == '-') {
        eat_after(x, '%', '-');
    }
    from = x->at;
    for (size_t i = from; i < x->n; i++) {
        size_t end = bare_tag(x, i, "endraw", sign);
        if (end > 0) {
            RETERR(put_text(x, from, i, '%', sign[0]));
            x->at = end;
            eat_after(x, '%', sign[1]);
            return 0;
        }
    }
    return from == x->n ? 0 : bad(x, "raw without its end");
}

/* The text with every line end as one newline; NULL when memory is out. */
static char *one_newline(struct arena *a, const char *p, size_t *n)
{
    char *out = arena_alloc(a, *n + 1);
    size_t at = 0;
    for (size_t i = 0; out != NULL && i < *n; i++) {
        if (p[i] == '\r') {
            i += i + 1 < *n && p[i + 1] == '\n';
            out[at++] = '\n';
        } else {
            out[at++] = p[i];
        }
    }
    *n = at;
    return out;
}

/* The tag at x->at, after the text before it is put. */
static int lex_mark(struct lexer *x, char tag, char sign)
{
    bool raw = false;
    if (tag == '#') {
        return lex_comment(x);
    }
    if (tag == '%') {
        RETERR(lex_raw(x, &raw));
    }
    if (raw) {
        return 0;
    }
    x->at += sign == '-' || sign == '+' ? 3u : 2u;
    return lex_tag(x, tag);
}

int jinja_lex(struct arena *tmp, struct arena *a, struct names *names,
              const char *p, size_t n, struct toks *ret, struct err *e)
{
    memset(ret, 0, sizeof(*ret));
    p = one_newline(a, p, &n);
    if (p == NULL) {
        return err_set(e, ERR_TOO_BIG, "the chat template");
    }
    ret->text = (struct span){p, n};
    struct lexer x = {.tmp = tmp,
                      .arena = a,
                      .names = names,
                      .p = p,
                      .n = n,
                      .out = ret,
                      .e = e};
    if (n > 0 && p[n - 1] == '\n') {
        x.n--;
    }
    while (x.at < x.n) {
        size_t from = x.at;
        size_t i = from;
        while (i + 1 < x.n &&
               !(p[i] == '{' &&
                 (p[i + 1] == '%' || p[i + 1] == '{' || p[i + 1] == '#'))) {
            i++;
        }
        if (i + 1 >= x.n) {
            RETERR(put(&x, TK_TEXT, (struct span){p + from, x.n - from}));
            break;
        }
        char sign = i + 2 < x.n ? p[i + 2] : '\0';
        RETERR(put_text(&x, from, i, p[i + 1], sign));
        x.at = i;
        RETERR(lex_mark(&x, p[i + 1], sign));
    }
    return put(&x, TK_END, zspan(""));
}
