/* gbnf.c - GBNF: a line-oriented form of BNF for grammars of output.
 *
 *   rule  = name "::=" alternatives, up to the end of its line
 *   alternatives = sequence { "|" sequence }
 *   sequence = { item [ "*" | "+" | "?" | "{m}" | "{m,}" | "{m,n}" ] }
 *   item  = "text" | [class] | "." | name | "(" alternatives ")"
 *
 * Within parentheses, and behind "::=" and "|", an end of line is white space;
 * else it ends the rule. Recursive descent that counts its depth. */
#include <string.h>

#include "base/parse.h"
#include "base/utf8.h"
#include "model/grammar/grammar_impl.h"

struct gbnf {
    struct builder *b;
    uint32_t outer; /* the builder's rule around this grammar, or NO_RULE */
    uint32_t first; /* the builder's rules before are not of this grammar */
    const char *p, *end;
    uint32_t line;
    int depth;
    /* Names of rules: open addressing, rule + 1; 0 is free. */
    uint32_t *table;
    uint32_t mask;
};

static void fail(struct gbnf *g, const char *what)
{
    const char *in = g->b->rule != g->outer && g->b->rc == 0
                         ? g->b->rules[g->b->rule].name
                         : "";
    (void)build_fail(g->b, ERR_INVALID, "line %u%s%s%s: %s", g->line,
                     *in != '\0' ? ", rule '" : "", in,
                     *in != '\0' ? "'" : "", what);
}

static char peek(const struct gbnf *g)
{
    return g->p < g->end ? *g->p : '\0';
}

static bool at(const struct gbnf *g, char c)
{
    return g->p < g->end && *g->p == c;
}

static bool take(struct gbnf *g, char c)
{
    if (at(g, c)) {
        g->p++;
        return true;
    }
    return false;
}

/* White space and comments. */
static void space(struct gbnf *g, bool lines)
{
    while (g->p < g->end) {
        char c = *g->p;
        if (c == '#') {
            while (g->p < g->end && *g->p != '\n' && *g->p != '\r') {
                g->p++;
            }
        } else if (c == ' ' || c == '\t') {
            g->p++;
        } else if (lines && (c == '\n' || c == '\r')) {
            g->line += c == '\n';
            g->p++;
        } else {
            break;
        }
    }
}

/* --- names --- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static struct span word(struct gbnf *g)
{
    struct span s = {g->p, 0};
    while (g->p < g->end && is_word(*g->p)) {
        g->p++;
        s.n++;
    }
    return s;
}

static uint64_t hash_of(struct span s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s.n; i++) {
        h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
    }
    return h ^ h >> 29;
}

/* The rule of this name, made at its first use; g->mask is twice what
 * GRAMMAR_RULES_MAX allows, so a free place is always there. */
static uint32_t rule_of(struct gbnf *g, struct span name)
{
    char copy[GRAMMAR_NAME_MAX + 1];
    if (name.n == 0 || name.n > GRAMMAR_NAME_MAX) {
        fail(g, name.n == 0 ? "expected a rule's name"
                            : "a rule's name is too long");
        return 0;
    }
    uint64_t i = hash_of(name);
    for (;; i++) {
        uint32_t r = g->table[i & g->mask];
        if (r == 0) {
            break;
        }
        const char *have = g->b->rules[r - 1].name;
        if (strlen(have) == name.n && memcmp(have, name.p, name.n) == 0) {
            return r - 1;
        }
    }
    memcpy(copy, name.p, name.n);
    copy[name.n] = '\0';
    uint32_t r = build_rule(g->b, copy, g->line);
    if (g->b->rc == 0) {
        g->table[i & g->mask] = r + 1;
    }
    return r;
}

/* --- characters --- */

static uint32_t hex(struct gbnf *g, int digits)
{
    uint32_t v = 0;
    for (int i = 0; i < digits; i++) {
        char c = peek(g);
        uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
        if (d == 16) {
            fail(g, "expected a hexadecimal digit");
            return 0;
        }
        v = v << 4 | d;
        g->p++;
    }
    if (v > CHAR_MAX_CODE || (v >= 0xD800 && v <= 0xDFFF)) {
        fail(g, "no such character");
        return 0;
    }
    return v;
}

static uint32_t escaped(struct gbnf *g)
{
    char c = peek(g);
    g->p += g->p < g->end;
    switch (c) {
    case 'x':
        return hex(g, 2);
    case 'u':
        return hex(g, 4);
    case 'U':
        return hex(g, 8);
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        return (unsigned char)c;
    default:
        fail(g, "an unknown escape");
        return 0;
    }
}

static uint32_t character(struct gbnf *g)
{
    if (take(g, '\\')) {
        return escaped(g);
    }
    size_t n = g->p < g->end ? utf8_len(g->p, (size_t)(g->end - g->p)) : 0;
    if (n == 0 || *g->p == '\n') {
        fail(g, n == 0 ? "expected a character (UTF-8)"
                       : "a text or a class does not end in its line");
        return 0;
    }
    uint32_t c = utf8_char(g->p, n);
    g->p += n;
    return c;
}

static void class(struct gbnf *g, uint32_t from, uint32_t to)
{
    struct chars set = {0};
    bool negated = take(g, '^');
    while (!at(g, ']') && g->b->rc == 0) {
        uint32_t lo = character(g);
        uint32_t hi = lo;
        if (at(g, '-') && g->p + 1 < g->end && g->p[1] != ']') {
            g->p++;
            hi = character(g);
        }
        if (lo > hi) {
            fail(g, "a range ends before it begins");
        }
        chars_add(g->b, &set, lo, hi);
    }
    g->p++;
    if (negated) {
        set = chars_not(g->b, &set);
    } else if (set.n == 0) {
        fail(g, "an empty class");
    }
    build_chars(g->b, from, &set, to);
}

static void text(struct gbnf *g, uint32_t from, uint32_t to)
{
    while (!at(g, '"') && g->b->rc == 0) {
        char bytes[4];
        size_t n = utf8_put(bytes, character(g));
        from = build_text(g->b, from, bytes, n);
    }
    g->p++;
    build_empty(g->b, from, to);
}

/* --- rules --- */

static struct frag alternatives(struct gbnf *g, bool nested);

static bool item(struct gbnf *g, struct frag *f)
{
    struct builder *b = g->b;
    char c = peek(g);
    if (c == '(') {
        g->p++;
        space(g, true);
        if (++g->depth > GRAMMAR_DEPTH_MAX) {
            (void)build_fail(b, ERR_TOO_BIG,
                             "line %u: groups are nested deeper than %d",
                             g->line, GRAMMAR_DEPTH_MAX);
            return false;
        }
        *f = alternatives(g, true);
        g->depth--;
        if (!take(g, ')')) {
            fail(g, "expected ')'");
        }
        return b->rc == 0;
    }
    if (c != '"' && c != '[' && c != '.' && !is_word(c)) {
        if (c == '<' || c == '!') {
            fail(g, "tokens are not supported");
        }
        return false;
    }
    f->start = build_state(b);
    f->end = build_state(b);
    if (is_word(c)) {
        build_call(b, f->start, rule_of(g, word(g)), f->end);
        return b->rc == 0;
    }
    g->p++;
    if (c == '"') {
        text(g, f->start, f->end);
    } else if (c == '[') {
        class(g, f->start, f->end);
    } else {
        struct chars all = {0};
        chars_add(b, &all, 0, CHAR_MAX_CODE);
        build_chars(b, f->start, &all, f->end);
    }
    return b->rc == 0;
}

static uint32_t count(struct gbnf *g)
{
    uint64_t v = 0;
    if (peek(g) < '0' || peek(g) > '9') {
        fail(g, "expected a number of repetitions");
    }
    while (peek(g) >= '0' && peek(g) <= '9') {
        v = v * 10 + (uint64_t)(*g->p++ - '0');
        if (v > GRAMMAR_REPEAT_MAX) {
            (void)build_fail(g->b, ERR_TOO_BIG,
                             "line %u: more than %u repetitions", g->line,
                             GRAMMAR_REPEAT_MAX);
            break;
        }
    }
    return (uint32_t)v;
}

static bool repetition(struct gbnf *g, bool nested, uint32_t *min,
                       uint32_t *max)
{
    char c = peek(g);
    if (g->p >= g->end || c == '\0' || strchr("*+?{", c) == NULL) {
        return false;
    }
    g->p++;
    *min = c == '+';
    *max = c == '?' ? 1 : BUILD_ANY;
    if (c == '{') {
        space(g, nested);
        *min = count(g);
        *max = *min;
        space(g, nested);
        if (take(g, ',')) {
            space(g, nested);
            *max = at(g, '}') ? BUILD_ANY : count(g);
            space(g, nested);
        }
        if (!take(g, '}')) {
            fail(g, "expected '}'");
        }
        if (*max < *min) {
            fail(g, "a repetition ends before it begins");
        }
    }
    space(g, nested);
    return g->b->rc == 0;
}

static uint32_t sequence(struct gbnf *g, bool nested, uint32_t from)
{
    struct builder *b = g->b;
    while (b->rc == 0) {
        struct frag f = {0};
        uint32_t first = b->n_states;
        uint32_t min = 0;
        uint32_t max = 0;
        if (!item(g, &f)) {
            break;
        }
        space(g, nested);
        while (repetition(g, nested, &min, &max)) {
            f = build_repeat(b, f, &first, min, max);
        }
        build_empty(b, from, f.start);
        from = f.end;
    }
    return from;
}

static struct frag alternatives(struct gbnf *g, bool nested)
{
    struct builder *b = g->b;
    struct frag f = {build_state(b), 0};
    f.end = build_state(b);
    do {
        uint32_t start = build_state(b);
        space(g, true);
        build_empty(b, f.start, start);
        build_empty(b, sequence(g, nested, start), f.end);
        space(g, nested);
    } while (take(g, '|') && b->rc == 0);
    return f;
}

static void rule(struct gbnf *g)
{
    struct builder *b = g->b;
    uint32_t r = rule_of(g, word(g));
    space(g, false);
    if (b->rc != 0) {
        return;
    }
    if (b->rules[r].start != NO_STATE) {
        (void)build_fail(b, ERR_INVALID,
                         "line %u: the rule '%s' is defined in line %u already",
                         g->line, b->rules[r].name, b->rules[r].line);
        return;
    }
    b->rules[r].line = g->line;
    if (g->end - g->p < 3 || memcmp(g->p, "::=", 3) != 0) {
        fail(g, "expected ::= behind a rule's name");
        return;
    }
    g->p += 3;
    uint32_t before = build_open(b, r);
    struct frag f = alternatives(g, false);
    if (b->rc != 0) {
        return;
    }
    build_empty(b, b->rules[r].start, f.start);
    build_empty(b, f.end, b->rules[r].end);
    if (g->p < g->end && !at(g, '\n') && !at(g, '\r')) {
        fail(g, "unexpected character");
    }
    build_close(b, before);
    space(g, true);
}

static uint32_t find_root(struct gbnf *g)
{
    struct builder *b = g->b;
    uint32_t root = NO_RULE;
    for (uint32_t r = g->first; r < b->n_rules && b->rc == 0; r++) {
        if (b->rules[r].start == NO_STATE) {
            (void)build_fail(b, ERR_INVALID,
                             "line %u: the rule '%s' is not defined",
                             b->rules[r].line, b->rules[r].name);
        } else if (root == NO_RULE && strcmp(b->rules[r].name, "root") == 0) {
            root = r; /* its parts, which have its name, come later */
        }
    }
    if (root == NO_RULE) {
        (void)build_fail(b, ERR_INVALID, "there is no rule 'root'");
    }
    return root;
}

uint32_t build_gbnf(struct builder *b, const char *src, size_t n)
{
    struct gbnf g = {.b = b,
                     .outer = b->rule,
                     .first = b->n_rules,
                     .p = src,
                     .end = src,
                     .line = 1};
    if (n > GRAMMAR_SOURCE_MAX) {
        (void)build_fail(b, ERR_TOO_BIG, "a grammar of more than %zu bytes",
                         GRAMMAR_SOURCE_MAX);
        return 0;
    }
    if (n > 0) {
        g.end = src + n;
    }
    /* At least twice the names that the text can hold. */
    for (g.mask = 63; g.mask < n; g.mask = g.mask * 2 + 1) {
    }
    g.table = calloc((size_t)g.mask + 1, sizeof(*g.table));
    if (g.table == NULL) {
        (void)build_fail(b, ERR_NOMEM, "a grammar's names");
        return 0;
    }
    space(&g, true);
    while (g.p < g.end && b->rc == 0) {
        rule(&g);
    }
    uint32_t root = b->rc == 0 ? find_root(&g) : 0;
    free(g.table);
    return root;
}

int grammar_from_gbnf(const char *src, size_t n, struct grammar **ret,
                      struct err *e)
{
    struct builder b;
    build_init(&b, e);
    uint32_t root = build_gbnf(&b, src, n);
    return build_finish(&b, root, ret);
}
