/* regex.c - regular expressions: what is regular of ECMA 262's, with the u
 * flag, and of what Python and others have in common with it.
 *
 *   alternatives = sequence { "|" sequence }
 *   sequence = ["^"] { atom [quantifier ["?"]] } ["$"]
 *
 * A lazy quantifier matches the same whole texts as a greedy one. ^ and $ may
 * stand only at the ends of the outermost alternatives. Recursive descent that
 * counts its depth. */
#include <string.h>

#include "base/utf8.h"
#include "model/grammar/grammar_impl.h"

struct regex {
    struct builder *b;
    const char *text, *p, *end;
    bool json, search;
    uint32_t any; /* rule of one character, where `search` */
    int depth;
};

static void fail(struct regex *r, const char *what)
{
    (void)build_fail(r->b, ERR_INVALID, "byte %td of the pattern: %s",
                     r->p - r->text, what);
}

static bool at(const struct regex *r, char c)
{
    return r->p < r->end && *r->p == c;
}

static bool take(struct regex *r, char c)
{
    if (at(r, c)) {
        r->p++;
        return true;
    }
    return false;
}

/* --- characters --- */

static void add_all(struct regex *r, struct chars *to, const struct chars *c)
{
    for (size_t i = 0; i < c->n; i++) {
        chars_add(r->b, to, c->r[i].lo, c->r[i].hi);
    }
}

/* What all dialects call a blank is in \s; what none does is in \S. */
static void blanks(struct regex *r, struct chars *c, bool all)
{
    chars_add(r->b, c, '\t', '\r');
    chars_add(r->b, c, ' ', ' ');
    if (all) {
        static const struct char_range wide[] = {
            {0x1C, 0x1F}, {0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680},
            {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
            {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF},
        };
        for (size_t i = 0; i < countof(wide); i++) {
            chars_add(r->b, c, wide[i].lo, wide[i].hi);
        }
    }
}

/* \d and its kin; false: c is no such letter. */
static bool class_escape(struct regex *r, char c, struct chars *to)
{
    struct chars set = {0};
    char low = (char)(c | 0x20);
    if (low == 'd' || low == 'w') {
        chars_add(r->b, &set, '0', '9');
    }
    if (low == 'w') {
        chars_add(r->b, &set, 'a', 'z');
        chars_add(r->b, &set, 'A', 'Z');
        chars_add(r->b, &set, '_', '_');
    } else if (low == 's') {
        blanks(r, &set, c == 'S');
    } else if (low != 'd') {
        return false;
    }
    if (c != low) {
        set = chars_not(r->b, &set);
    }
    add_all(r, to, &set);
    return true;
}

static uint32_t hex(struct regex *r, int min, int max)
{
    uint32_t v = 0;
    int n = 0;
    for (; n < max && r->p < r->end; n++) {
        char c = *r->p;
        uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
        if (d == 16) {
            break;
        }
        v = v << 4 | d;
        r->p++;
    }
    if (n < min) {
        fail(r, "expected a hexadecimal digit");
    } else if (v > CHAR_MAX_CODE || (v >= 0xD800 && v <= 0xDFFF)) {
        fail(r, "no such character");
    }
    return v;
}

static uint32_t escaped(struct regex *r)
{
    static const char from[] = "nrtfv0";
    static const char to[] = "\n\r\t\f\v";
    char c = r->p < r->end ? *r->p++ : '\0';
    const char *letter = c != '\0' ? strchr(from, c) : NULL;
    if (letter != NULL) {
        if (c == '0' && r->p < r->end && *r->p >= '0' && *r->p <= '9') {
            fail(r, "octal numbers are not supported");
        }
        return (unsigned char)to[letter - from];
    }
    if (c == 'x') {
        return hex(r, 2, 2);
    }
    if (c == 'u' && take(r, '{')) {
        uint32_t v = hex(r, 1, 6);
        if (!take(r, '}')) {
            fail(r, "expected '}'");
        }
        return v;
    }
    if (c == 'u') {
        return hex(r, 4, 4);
    }
    bool letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9');
    if (c <= ' ' || c > '~' || letter_or_digit) {
        r->p--;
        fail(r, "this escape is not supported");
    }
    return (unsigned char)c;
}

static uint32_t character(struct regex *r)
{
    size_t n = r->p < r->end ? utf8_len(r->p, (size_t)(r->end - r->p)) : 0;
    if (n == 0) {
        fail(r, "expected a character (UTF-8)");
        return 0;
    }
    uint32_t c = utf8_char(r->p, n);
    r->p += n;
    return c;
}

/* One character of a class, or a class in it: then true. */
static bool class_part(struct regex *r, struct chars *set, uint32_t *ret)
{
    if (!take(r, '\\')) {
        *ret = character(r);
        return false;
    }
    if (r->p < r->end && class_escape(r, *r->p, set)) {
        r->p++;
        return true;
    }
    if (take(r, 'b')) {
        *ret = '\b'; /* in a class */
        return false;
    }
    *ret = escaped(r);
    return false;
}

static struct chars class(struct regex *r)
{
    struct chars set = {0};
    bool negated = take(r, '^');
    while (!at(r, ']') && r->b->rc == 0) {
        uint32_t lo = 0;
        if (class_part(r, &set, &lo)) {
            continue;
        }
        uint32_t hi = lo;
        if (at(r, '-') && r->p + 1 < r->end && r->p[1] != ']') {
            r->p++;
            if (class_part(r, &set, &hi)) {
                fail(r, "a range ends in a class");
            }
        }
        if (lo > hi) {
            fail(r, "a range ends before it begins");
        }
        chars_add(r->b, &set, lo, hi);
    }
    r->p++;
    return negated ? chars_not(r->b, &set) : set;
}

/* --- structure --- */

static struct frag alternatives(struct regex *r, bool outer);

static void put_chars(struct regex *r, struct frag *f, struct chars *set)
{
    f->start = build_state(r->b);
    f->end = build_state(r->b);
    (r->json ? build_json_chars : build_chars)(r->b, f->start, set, f->end);
}

static void group(struct regex *r, struct frag *f)
{
    if (++r->depth > GRAMMAR_DEPTH_MAX) {
        (void)build_fail(r->b, ERR_TOO_BIG,
                         "groups of the pattern are nested deeper than %d",
                         GRAMMAR_DEPTH_MAX);
        return;
    }
    if (take(r, '?')) {
        if (take(r, '<')) {
            if (at(r, '=') || at(r, '!')) {
                fail(r, "look-around is not supported");
            }
            while (r->p < r->end && *r->p != '>') {
                r->p++;
            }
            r->p += r->p < r->end;
        } else if (!take(r, ':')) {
            fail(r, "look-around is not supported");
        }
    }
    *f = alternatives(r, false);
    r->depth--;
    if (!take(r, ')')) {
        fail(r, "expected ')'");
    }
}

static bool atom(struct regex *r, struct frag *f)
{
    struct chars set = {0};
    if (r->p >= r->end || r->b->rc != 0 || *r->p == '|' || *r->p == ')' ||
        *r->p == '$') {
        return false;
    }
    if (take(r, '(')) {
        group(r, f);
        return r->b->rc == 0;
    }
    if (strchr("*+?{^", *r->p) != NULL && *r->p != '\0') {
        fail(r, *r->p == '^' ? "'^' is supported only at the beginning"
                             : "nothing to repeat");
        return false;
    }
    if (take(r, '[')) {
        set = class(r);
    } else if (take(r, '.')) {
        struct chars ends = {0};
        chars_add(r->b, &ends, '\n', '\n');
        chars_add(r->b, &ends, '\r', '\r');
        chars_add(r->b, &ends, 0x2028, 0x2029);
        set = chars_not(r->b, &ends);
    } else if (take(r, '\\')) {
        if (r->p < r->end && class_escape(r, *r->p, &set)) {
            r->p++;
        } else {
            uint32_t c = escaped(r);
            chars_add(r->b, &set, c, c);
        }
    } else {
        uint32_t c = character(r);
        chars_add(r->b, &set, c, c);
    }
    put_chars(r, f, &set);
    return r->b->rc == 0;
}

static uint32_t count(struct regex *r)
{
    uint64_t v = 0;
    if (r->p >= r->end || *r->p < '0' || *r->p > '9') {
        fail(r, "expected a number of repetitions");
        return 0;
    }
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
        v = v * 10 + (uint64_t)(*r->p++ - '0');
        if (v > GRAMMAR_REPEAT_MAX) {
            (void)build_fail(r->b, ERR_TOO_BIG,
                             "the pattern has more than %u repetitions",
                             GRAMMAR_REPEAT_MAX);
            return 0;
        }
    }
    return (uint32_t)v;
}

static bool quantifier(struct regex *r, uint32_t *min, uint32_t *max)
{
    if (r->p >= r->end || *r->p == '\0' || strchr("*+?{", *r->p) == NULL) {
        return false;
    }
    char c = *r->p++;
    *min = c == '+';
    *max = c == '?' ? 1 : BUILD_ANY;
    if (c == '{') {
        *min = count(r);
        *max = *min;
        if (take(r, ',')) {
            *max = at(r, '}') ? BUILD_ANY : count(r);
        }
        if (!take(r, '}')) {
            fail(r, "expected '}'");
        }
        if (*max < *min) {
            fail(r, "a repetition ends before it begins");
        }
    }
    (void)take(r, '?'); /* lazy */
    if (at(r, '+') || at(r, '*') || at(r, '?') || at(r, '{')) {
        fail(r, "nothing to repeat");
    }
    return r->b->rc == 0;
}

/* Anything, where the pattern is searched and no anchor stands. */
static uint32_t anything(struct regex *r, uint32_t from)
{
    return build_repeat_rule(r->b, from, r->any, 0, BUILD_ANY);
}

static uint32_t sequence(struct regex *r, uint32_t from, bool outer)
{
    struct builder *b = r->b;
    bool begins = outer && take(r, '^');
    if (outer && r->search && !begins) {
        from = anything(r, from);
    }
    while (b->rc == 0) {
        struct frag f = {0};
        uint32_t first = b->n_states;
        uint32_t min = 0;
        uint32_t max = 0;
        if (!atom(r, &f)) {
            break;
        }
        if (quantifier(r, &min, &max)) {
            f = build_repeat(b, f, &first, min, max);
        }
        build_empty(b, from, f.start);
        from = f.end;
    }
    if (at(r, '$')) {
        if (!outer || (r->p + 1 < r->end && r->p[1] != '|')) {
            fail(r, "'$' is supported only at the end");
        }
        r->p++;
    } else if (outer && r->search) {
        from = anything(r, from);
    }
    return from;
}

static struct frag alternatives(struct regex *r, bool outer)
{
    struct builder *b = r->b;
    struct frag f = {build_state(b), 0};
    f.end = build_state(b);
    do {
        uint32_t start = build_state(b);
        build_empty(b, f.start, start);
        build_empty(b, sequence(r, start, outer), f.end);
    } while (b->rc == 0 && take(r, '|'));
    return f;
}

void build_regex(struct builder *b, const char *text, size_t n, bool json,
                 bool search, uint32_t any, uint32_t from, uint32_t to)
{
    struct regex r = {.b = b,
                      .text = text,
                      .p = text,
                      .end = text + n,
                      .json = json,
                      .search = search,
                      .any = any};
    if (n > GRAMMAR_SOURCE_MAX) {
        (void)build_fail(b, ERR_TOO_BIG, "a pattern of more than %zu bytes",
                         GRAMMAR_SOURCE_MAX);
        return;
    }
    struct frag f = alternatives(&r, true);
    if (b->rc == 0 && r.p < r.end) {
        fail(&r, "unexpected character");
    }
    build_empty(b, from, f.start);
    build_empty(b, f.end, to);
}

int grammar_from_regex(const char *text, size_t n, struct grammar **ret,
                       struct err *e)
{
    struct builder b;
    build_init(&b, e);
    uint32_t root = build_rule(&b, "pattern", 1);
    uint32_t before = build_open(&b, root);
    if (b.rc == 0) {
        build_regex(&b, n > 0 ? text : "", n, false, false, 0,
                    b.rules[root].start, b.rules[root].end);
    }
    build_close(&b, before);
    return build_finish(&b, root, ret);
}
