/* schema_text.c - strings of a schema.
 *
 * A string has a pattern, a format, bounds of its length; where it has several
 * of them schema_meet.c takes what they have in common. Formats are patterns
 * too, some narrower than their RFC where that is what people mean. */
#include <string.h>

#include "model/grammar/schema.h"

/* Most readers' calendars begin with the year 1. */
#define YEAR "(\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)"
#define DATE                                                                 \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|"                    \
    "(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|"              \
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|"                                \
    "(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME                                                                 \
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?"                       \
    "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

/* RFC 3339's appendix A, which has no fractions. */
#define TIMED                                                                \
    "T(\\d{1,4}H(\\d{1,2}M(\\d{1,2}S)?)?|\\d{1,4}M(\\d{1,2}S)?|\\d{1,6}S)"
#define DATED                                                                \
    "(\\d{1,4}Y(\\d{1,2}M(\\d{1,2}D)?)?|\\d{1,4}M(\\d{1,2}D)?|\\d{1,5}D)"

/* At most n groups of IPv6, "::", and at most m. */
#define HEX      "[0-9A-Fa-f]{1,4}"
#define V6(n, m) "(" HEX ":){1," n "}(:" HEX "){1," m "}|"

#define UUID(version)                                                        \
    "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-" version "[0-9a-fA-F]{3}-"              \
    "[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
#define SIGN   "[A-Za-z0-9+/]"
#define BASE64 "^(" SIGN "{4})*(" SIGN "{2}==|" SIGN "{3}=)?$"

/* The same with an end: labels of 15, and of 63 with a path and a query. */
#define SHORT  "[A-Za-z0-9]([A-Za-z0-9-]{0,13}[A-Za-z0-9])?"
#define NARROW "[A-Za-z0-9._~!$&'()*+,;=:@-]"

/* A format has several rows where it has no end, or a far one: with a maxLength
 * the first that keeps to it is taken, so that nothing has to be counted. */
static const struct format {
    const char *name, *pattern;
    uint32_t least, most; /* characters */
} formats[] = {
    /* Any string is one: no pattern. */
    {"password", NULL, 0, BUILD_ANY},
    {"path", NULL, 0, BUILD_ANY},
    {"binary", NULL, 0, BUILD_ANY},
    {"date", "^" DATE "$", 10, 10},
    {"time", "^" TIME "$", 9, 24},
    {"date-time", "^" DATE "T" TIME "$", 20, 35},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-"
             "[0-9a-fA-F]{12}$", 36, 36},
    /* pydantic's names of a UUID's versions */
    {"uuid1", UUID("1"), 36, 36},
    {"uuid3", UUID("3"), 36, 36},
    {"uuid4", UUID("4"), 36, 36},
    {"uuid5", UUID("5"), 36, 36},
    {"uuid6", UUID("6"), 36, 36},
    {"uuid7", UUID("7"), 36, 36},
    {"uuid8", UUID("8"), 36, 36},
    {"duration", "^P(" DATED "(" TIMED ")?|" TIMED "|\\d{1,4}W)$", 3, 24},
    {"base64", BASE64, 0, BUILD_ANY},
    {"byte", BASE64, 0, BUILD_ANY},
    {"ipv6", "^((" HEX ":){7}" HEX "|(" HEX ":){1,7}:|" V6("6", "1")
             V6("5", "2") V6("4", "3") V6("3", "4") V6("2", "5") V6("1", "6")
             ":((:" HEX "){1,7}|:))$", 2, 39},
    {"ipv4", "^(" BYTE "\\.){3}" BYTE "$", 7, 15},
    {"hostname", "^" LABEL "(\\." LABEL "){0,3}$", 1, 255},
    {"hostname", "^" SHORT "(\\." SHORT "){0,2}$", 1, 47},
    {"email", "^" ATOM "(\\." ATOM ")?@" LABEL "(\\." LABEL "){1,4}$", 5, 385},
    {"email", "^[A-Za-z0-9_+-]{1,14}@" SHORT "(\\." SHORT "){1,2}$", 5, 62},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(//" LABEL "(\\." LABEL
            "){0,6}(:\\d{1,5})?(/" PCHAR "*)*|" PCHAR "+(/" PCHAR
            "*)*)(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?$", 3, BUILD_ANY},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]{1,9}://" LABEL "(\\." LABEL
            "){0,2}(:\\d{1,5})?(/" NARROW "{0,100}){0,8}(\\?" NARROW
            "{0,400})?(#" NARROW "{0,100})?$", 6, 1520},
    {"uri", "^https?://" SHORT "(\\." SHORT "){0,2}(/" NARROW "{0,12}){0,2}$",
     8, 81},
};

/* The row of a format for a maxLength: the first that fits, else the last. */
static const struct format *format_of(struct schema *c, const char *name,
                                      uint32_t max)
{
    const struct format *found = NULL;
    for (size_t i = 0; i < countof(formats); i++) {
        if (name != NULL && strcmp(formats[i].name, name) == 0 &&
            (found == NULL || found->most > max)) {
            found = &formats[i];
        }
    }
    if (found == NULL) {
        schema_deny(c, ERR_UNSUPPORTED, "format",
                    name != NULL ? "this format is not supported"
                                 : "is no string");
    }
    return found;
}

static void by_pattern(struct schema *c, const struct string_part *p,
                       uint32_t from, uint32_t to)
{
    struct builder *b = c->b;
    uint32_t body = build_text(b, from, "\"", 1);
    uint32_t end = build_state(b);
    build_regex(b, p->pattern, p->n, true, true, c->json->character, body, end);
    build_bytes(b, end, '"', '"', to);
    if (b->rc != 0) {
        (void)err_prefix(b->e, b->rc, "schema %s: %s", c->path.text, p->word);
    }
}

/* --- what the words say --- */

struct parts {
    struct string_part list[STRING_PARTS_MAX];
    unsigned n;
};

static struct string_part *add_part(struct schema *c, struct parts *p,
                                    enum part_kind kind, const char *word)
{
    static struct string_part none;
    if (p->n == STRING_PARTS_MAX) {
        schema_deny(c, ERR_TOO_BIG, word, "too many look-aheads");
        return &none;
    }
    p->list[p->n] = (struct string_part){.kind = kind, .word = word};
    return &p->list[p->n++];
}

/* The end of the group that begins at p, behind its ')'; NULL: it has none. */
static const char *group_end(const char *p)
{
    unsigned depth = 0;
    bool class = false;
    for (; *p != '\0'; p++) {
        if (*p == '\\' && p[1] != '\0') {
            p++;
        } else if (class || *p == '[') {
            class = *p != ']';
        } else if (*p == '(') {
            depth++;
        } else if (*p == ')' && --depth == 0) {
            return p + 1;
        }
    }
    return NULL;
}

/* Whether '|' stands outside all groups: then ^ and $ are of one branch. */
static bool branches_outside(const char *p)
{
    bool class = false;
    for (; *p != '\0'; p++) {
        const char *end = !class && *p == '(' ? group_end(p) : NULL;
        if (end != NULL) {
            p = end - 1;
        } else if (*p == '\\' && p[1] != '\0') {
            p++;
        } else if (class || *p == '[') {
            class = *p != ']';
        } else if (*p == '|') {
            return true;
        }
    }
    return false;
}

/* A pattern. (?!..) at its beginning are parts of their own, as the patterns of
 * some libraries for e-mail addresses and decimals have them. They need ^ before
 * them and $ at the end, neither escaped nor of one branch only (schema_meet.c
 * says why); else build_regex refuses them. */
static void add_pattern(struct schema *c, struct parts *p, const char *pattern)
{
    size_t n = strlen(pattern);
    const char *at = pattern + 1;
    char *rest = NULL;
    bool whole = n > 1 && pattern[0] == '^' && pattern[n - 1] == '$' &&
                 pattern[n - 2] != '\\' && !branches_outside(pattern);
    while (whole && strncmp(at, "(?!", 3) == 0) {
        const char *end = group_end(at);
        if (end == NULL) {
            break;
        }
        const char *from = at + 3 + (at[3] == '^');
        const char *to = end - 1;
        bool not = to > from && to[-1] == '$' && to[-2] != '\\';
        struct string_part *x =
            add_part(c, p, not ? PART_NOT : PART_NEVER, "pattern");
        x->pattern = from;
        x->n = (size_t)(to - from) - not;
        at = end;
    }
    struct string_part *x = add_part(c, p, PART_MUST, "pattern");
    x->pattern = pattern;
    x->n = n;
    if (at > pattern + 1 && p->n > 1) { /* ^ and what follows them */
        rest = arena_strn(&c->b->arena, at - 1, n - (size_t)(at - 1 - pattern));
        if (rest == NULL) {
            (void)build_fail(c->b, ERR_NOMEM, "a pattern");
            return;
        }
        rest[0] = '^';
        x->pattern = rest;
        x->n = strlen(rest);
    }
}

static void read_parts(struct schema *c, const struct view *v, struct parts *p)
{
    const struct json *pattern = view_get(c, v, "pattern");
    const struct json *format = view_get(c, v, "format");
    uint32_t min = view_count(c, v, "minLength", 0);
    uint32_t max = view_count(c, v, "maxLength", BUILD_ANY);
    if (pattern != NULL && json_str(pattern) == NULL) {
        schema_deny(c, ERR_INVALID, "pattern", "is no string");
        return;
    }
    if (min > max) {
        schema_deny(c, ERR_INVALID, "minLength", "is more than maxLength");
        return;
    }
    if (pattern != NULL) {
        add_pattern(c, p, json_str(pattern));
        max = max - min < GRAMMAR_MEET_LENGTH || max == BUILD_ANY
                  ? max
                  : min + GRAMMAR_MEET_LENGTH;
    }
    const struct format *f =
        format != NULL ? format_of(c, json_str(format), max) : NULL;
    if (f != NULL && f->pattern != NULL) {
        struct string_part *x = add_part(c, p, PART_MUST, "format");
        x->pattern = f->pattern;
        x->n = strlen(f->pattern);
        min = min <= f->least ? 0 : min;
        max = max >= f->most ? BUILD_ANY : max;
    }
    if (min > 0 || max != BUILD_ANY) {
        struct string_part *x = add_part(c, p, PART_MUST, "minLength");
        x->min = min;
        x->max = max;
    }
}

void schema_string(struct schema *c, const struct view *v, uint32_t from,
                   uint32_t to)
{
    struct builder *b = c->b;
    struct parts p = {.n = 0};
    read_parts(c, v, &p);
    if (b->rc != 0) {
        return;
    }
    if (p.n == 0) {
        build_call(b, from, c->json->string, to);
    } else if (p.n > 1) {
        schema_meet(c, p.list, p.n, from, to);
    } else if (p.list[0].pattern != NULL) {
        by_pattern(c, &p.list[0], from, to);
    } else {
        uint32_t body = build_text(b, from, "\"", 1);
        body = build_repeat_rule(b, body, c->json->character, p.list[0].min,
                                 p.list[0].max);
        build_bytes(b, body, '"', '"', to);
    }
}
