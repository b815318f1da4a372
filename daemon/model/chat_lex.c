/* chat_lex.c - template text into tokens.
 *
 * White space control is done here, as Jinja2 does with trim_blocks and
 * lstrip_blocks: a tag with '-' eats all white space on that side; a statement
 * eats the newline after it, and the blanks before it when nothing else
 * stands before it on its line; '+' keeps both. One newline at the very end
 * is dropped.
 */
#include <ctype.h>
#include <string.h>

#include "base/utf8.h"
#include "model/chat_impl.h"

struct lexer {
    struct arena *arena;
    const char *p;
    size_t n, at;
    struct toks *out;
    struct err *e;
};

static int bad(struct lexer *x, const char *what)
{
    return err_set(x->e, ERR_TEMPLATE, "the chat template: %s at byte %zu",
                   what, x->at);
}

static int push(struct lexer *x, enum tok_kind kind, struct span s, int64_t i)
{
    struct toks *o = x->out;
    if (o->n == o->cap) {
        size_t cap = o->cap == 0 ? 256 : o->cap * 2;
        struct tok *t = arena_array(x->arena, cap, sizeof(*t));
        if (t == NULL) {
            return err_set(x->e, ERR_TOO_BIG, "the chat template");
        }
        if (o->n > 0) {
            memcpy(t, o->t, o->n * sizeof(*t));
        }
        o->t = t;
        o->cap = cap;
    }
    o->t[o->n++] = (struct tok){kind, s, i};
    return 0;
}

static int hex_value(const char *p, size_t digits)
{
    int v = 0;
    for (size_t i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)p[i])) {
            return -1;
        }
        int d = p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10;
        v = v * 16 + d;
    }
    return v;
}

/* Escapes of p[0..n) as Python has them; an unknown one stays as it is. */
static struct span unescape(struct arena *a, const char *p, size_t n)
{
    static const char from[] = "ntr\\'\"abfv";
    static const char to[] = "\n\t\r\\'\"\a\b\f\v";
    char *out = arena_alloc(a, n + 1);
    size_t at = 0;
    if (out == NULL) {
        return (struct span){NULL, 0};
    }
    for (size_t i = 0; i < n; i++) {
        const char *known =
            p[i] == '\\' && i + 1 < n ? strchr(from, p[i + 1]) : NULL;
        int wide = -1;
        size_t digits = 0;
        if (known != NULL) {
            out[at++] = to[known - from];
            i++;
            continue;
        }
        if (p[i] == '\\' && i + 1 < n) {
            digits = p[i + 1] == 'x' ? 2 : (p[i + 1] == 'u' ? 4 : 0);
        }
        if (digits > 0 && i + 2 + digits <= n) {
            wide = hex_value(p + i + 2, digits);
        }
        if (wide > 0) {
            at +=
                utf8_put(out + at, (uint32_t)wide); /* never longer than \xHH */
            i += 1 + digits;
        } else {
            out[at++] = p[i];
        }
    }
    return (struct span){out, at};
}

static int lex_string(struct lexer *x)
{
    char quote = x->p[x->at];
    size_t from = x->at + 1;
    size_t i = from;
    while (i < x->n && x->p[i] != quote) {
        i += x->p[i] == '\\' ? 2 : 1;
    }
    if (i >= x->n) {
        return bad(x, "a string without its end");
    }
    struct span s = unescape(x->arena, x->p + from, i - from);
    if (s.p == NULL) {
        return err_set(x->e, ERR_TOO_BIG, "the chat template");
    }
    x->at = i + 1;
    return push(x, TK_STRING, s, 0);
}

/* One token inside a tag. */
static int lex_inside(struct lexer *x)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "**"};
    const char *p = x->p + x->at;
    size_t left = x->n - x->at;
    if (*p == '\'' || *p == '"') {
        return lex_string(x);
    }
    if (isdigit((unsigned char)*p)) {
        int64_t v = 0;
        size_t i = 0;
        while (i < left && i < 15 && isdigit((unsigned char)p[i])) {
            v = v * 10 + (p[i++] - '0');
        }
        x->at += i;
        return push(x, TK_INT, (struct span){p, i}, v);
    }
    if (isalpha((unsigned char)*p) || *p == '_') {
        size_t i = 1;
        while (i < left && (isalnum((unsigned char)p[i]) || p[i] == '_')) {
            i++;
        }
        x->at += i;
        return push(x, TK_NAME, (struct span){p, i}, 0);
    }
    for (size_t i = 0; left >= 2 && i < countof(ops); i++) {
        if (memcmp(p, ops[i], 2) == 0) {
            x->at += 2;
            return push(x, TK_OP, (struct span){p, 2}, 0);
        }
    }
    if (*p == '\0' || strchr("+-*/%~|.,:()[]{}<>=", *p) == NULL) {
        return bad(x, "an unknown character");
    }
    x->at++;
    return push(x, TK_OP, (struct span){p, 1}, 0);
}

/* What the tag at x->at does to the text before it, given its kind. */
static int push_text(struct lexer *x, size_t from, size_t to, char tag,
                     char sign)
{
    if (sign == '-') {
        while (to > from && isspace((unsigned char)x->p[to - 1])) {
            to--;
        }
    } else if (tag != '{' && sign != '+') {
        size_t i = to;
        while (i > from && (x->p[i - 1] == ' ' || x->p[i - 1] == '\t')) {
            i--;
        }
        if (i == 0 || x->p[i - 1] == '\n') {
            to = i;
        }
    }
    return to > from
               ? push(x, TK_TEXT, (struct span){x->p + from, to - from}, 0)
               : 0;
}

/* After the closing mark of a tag: skip what it eats. */
static void eat_after(struct lexer *x, char tag, char sign)
{
    if (sign == '-') {
        while (x->at < x->n && isspace((unsigned char)x->p[x->at])) {
            x->at++;
        }
    } else if (tag != '{' && sign != '+' && x->at < x->n &&
               x->p[x->at] == '\n') {
        x->at++;
    }
}

static int lex_comment(struct lexer *x)
{
    for (size_t i = x->at + 2; i + 1 < x->n; i++) {
        if (x->p[i] == '#' && x->p[i + 1] == '}') {
            char sign = x->p[i - 1];
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
    int nest = 0; /* of { } inside an expression */
    RETERR(push(x, tag == '{' ? TK_EXPR_OPEN : TK_STMT_OPEN,
                (struct span){"", 0}, 0));
    for (;;) {
        while (x->at < x->n && isspace((unsigned char)x->p[x->at])) {
            x->at++;
        }
        size_t left = x->n - x->at;
        const char *p = x->p + x->at;
        if (left == 0) {
            return bad(x, "a tag without its end");
        }
        bool signed_end =
            left >= 3 && (*p == '-' || *p == '+') && p[1] == end && p[2] == '}';
        bool plain_end = left >= 2 && *p == end && p[1] == '}';
        if (signed_end || (plain_end && nest == 0)) {
            x->at += signed_end ? 3 : 2;
            eat_after(x, tag, signed_end ? *p : '\0');
            return push(x, tag == '{' ? TK_EXPR_CLOSE : TK_STMT_CLOSE,
                        (struct span){"", 0}, 0);
        }
        nest += *p == '{' ? 1 : (*p == '}' ? -1 : 0);
        RETERR(lex_inside(x));
    }
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

int chat_lex(struct arena *a, const char *p, size_t n, struct toks *ret,
             struct err *e)
{
    memset(ret, 0, sizeof(*ret));
    p = one_newline(a, p, &n);
    if (p == NULL) {
        return err_set(e, ERR_TOO_BIG, "the chat template");
    }
    struct lexer x = {.arena = a, .p = p, .n = n, .out = ret, .e = e};
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
            RETERR(push(&x, TK_TEXT, (struct span){p + from, x.n - from}, 0));
            break;
        }
        char tag = p[i + 1];
        char sign = i + 2 < x.n ? p[i + 2] : '\0';
        RETERR(push_text(&x, from, i, tag, sign));
        if (tag == '#') {
            x.at = i;
            RETERR(lex_comment(&x));
        } else {
            x.at = i + 2 + (sign == '-' || sign == '+');
            RETERR(lex_tag(&x, tag));
        }
    }
    return push(&x, TK_END, (struct span){"", 0}, 0);
}
