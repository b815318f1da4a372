/* json_values.c - JSON values of any kind.
 *
 * What a model could repeat for ever without saying anything has bounds: white
 * space is none, a blank, or one or two ends of line with an indentation of at
 * most 20 (what llama.cpp allows, too); digits are 16 on either side of the
 * point, 2 in an exponent. Escapes in strings are those that readers take: no
 * half of a surrogate pair, no NUL. */
#include "model/grammar/schema.h"

enum { INDENT_MAX = 20, DIGITS_MAX = 16 };

static void hex_digits(struct builder *b, uint32_t from, uint32_t to, int n)
{
    for (int i = 1; i <= n; i++) {
        uint32_t next = i == n ? to : build_state(b);
        build_bytes(b, from, '0', '9', next);
        build_bytes(b, from, 'a', 'f', next);
        build_bytes(b, from, 'A', 'F', next);
        from = next;
    }
}

/* Bytes lo..hi as lower and upper case letters. */
static void letters(struct builder *b, uint32_t from, unsigned lo, unsigned hi,
                    uint32_t to)
{
    build_bytes(b, from, lo, hi, to);
    build_bytes(b, from, lo - 32, hi - 32, to);
}

/* Four hexadecimal digits behind \u; a high surrogate brings its low one. */
static void unicode_escape(struct builder *b, uint32_t from, uint32_t to)
{
    uint32_t rest3 = build_state(b);
    uint32_t rest2 = build_state(b);
    uint32_t rest1 = build_state(b);
    hex_digits(b, rest3, rest2, 1);
    hex_digits(b, rest2, rest1, 1);
    hex_digits(b, rest1, to, 1);
    build_bytes(b, from, '1', '9', rest3);
    letters(b, from, 'a', 'c', rest3);
    letters(b, from, 'e', 'f', rest3);
    uint32_t zero = from;
    const uint32_t rests[] = {rest2, rest1, to};
    for (int i = 0; i < 3; i++) { /* 0000 is NUL */
        uint32_t next = build_state(b);
        build_bytes(b, zero, '0', '0', next);
        build_bytes(b, next, '1', '9', rests[i]);
        letters(b, next, 'a', 'f', rests[i]);
        zero = next;
    }
    uint32_t d = build_state(b);
    uint32_t high = build_state(b);
    letters(b, from, 'd', 'd', d);
    build_bytes(b, d, '0', '7', rest2);
    build_bytes(b, d, '8', '9', high);
    letters(b, d, 'a', 'b', high);
    uint32_t low = build_state(b);
    hex_digits(b, high, low, 2);
    low = build_text(b, low, "\\u", 2);
    uint32_t cd = build_state(b);
    letters(b, low, 'd', 'd', cd);
    letters(b, cd, 'c', 'f', rest2);
}

void json_character(struct builder *b, uint32_t from, uint32_t to)
{
    struct chars c = {0};
    uint32_t slash = build_state(b);
    chars_add(b, &c, 0x20, '"' - 1);
    chars_add(b, &c, '"' + 1, '\\' - 1);
    chars_add(b, &c, '\\' + 1, CHAR_MAX_CODE);
    build_chars(b, from, &c, to);
    build_bytes(b, from, '\\', '\\', slash);
    for (const char *s = "\"\\/bfnrt"; *s != '\0'; s++) {
        build_bytes(b, slash, (unsigned char)*s, (unsigned char)*s, to);
    }
    unicode_escape(b, build_text(b, slash, "u", 1), to);
}

uint32_t json_digits(struct builder *b, uint32_t from, unsigned min,
                     unsigned max)
{
    uint32_t end = build_state(b);
    for (unsigned i = 0; i < max; i++) {
        uint32_t to = build_state(b);
        if (i >= min) {
            build_empty(b, from, end);
        }
        build_bytes(b, from, '0', '9', to);
        from = to;
    }
    build_empty(b, from, end);
    return end;
}

uint32_t json_space(struct builder *b, const struct json_rules *r,
                    uint32_t from)
{
    uint32_t to = build_state(b);
    build_call(b, from, r->space, to);
    return to;
}

/* --- rules --- */

static void space_rule(struct builder *b, uint32_t from, uint32_t to)
{
    uint32_t line = build_text(b, from, "\n", 1);
    uint32_t at = build_text(b, line, "\n", 1);
    build_empty(b, from, to);
    build_bytes(b, from, ' ', ' ', to);
    build_empty(b, line, at);
    for (int i = 0; i < INDENT_MAX; i++) {
        uint32_t next = build_state(b);
        build_empty(b, at, to);
        build_bytes(b, at, ' ', ' ', next);
        build_bytes(b, at, '\t', '\t', next);
        at = next;
    }
    build_empty(b, at, to);
}

static void string_rule(struct builder *b, uint32_t from, uint32_t to)
{
    uint32_t body = build_text(b, from, "\"", 1);
    json_character(b, body, body);
    build_bytes(b, body, '"', '"', to);
}

/* An integer without sign, no leading zero. */
static uint32_t whole(struct builder *b, uint32_t from)
{
    uint32_t first = build_state(b);
    build_bytes(b, from, '1', '9', first);
    uint32_t end = json_digits(b, first, 0, DIGITS_MAX - 1);
    build_bytes(b, from, '0', '0', end);
    return end;
}

static void number_rule(struct builder *b, uint32_t from, uint32_t to)
{
    uint32_t sign = build_state(b);
    build_empty(b, from, sign);
    build_bytes(b, from, '-', '-', sign);
    uint32_t n = whole(b, sign);
    uint32_t point = build_text(b, n, ".", 1);
    uint32_t part = json_digits(b, point, 1, DIGITS_MAX);
    build_empty(b, n, part);
    build_empty(b, part, to);
    uint32_t e = build_state(b);
    letters(b, part, 'e', 'e', e);
    uint32_t exponent = build_state(b);
    build_empty(b, e, exponent);
    build_bytes(b, e, '-', '-', exponent);
    build_bytes(b, e, '+', '+', exponent);
    build_empty(b, json_digits(b, exponent, 1, 2), to);
}

static void integer_rule(struct builder *b, uint32_t from, uint32_t to)
{
    uint32_t first = build_state(b);
    uint32_t minus = build_text(b, from, "-", 1);
    build_bytes(b, from, '0', '0', to);
    build_bytes(b, from, '1', '9', first);
    build_bytes(b, minus, '1', '9', first);
    build_empty(b, json_digits(b, first, 0, DIGITS_MAX - 1), to);
}

static void value_rule(struct builder *b, const struct json_rules *r,
                       uint32_t from, uint32_t to)
{
    build_call(b, from, r->object, to);
    build_call(b, from, r->array, to);
    build_call(b, from, r->string, to);
    build_call(b, from, r->number, to);
    build_empty(b, build_text(b, from, "true", 4), to);
    build_empty(b, build_text(b, from, "false", 5), to);
    build_empty(b, build_text(b, from, "null", 4), to);
}

/* Members or items between brackets: `more` is in front of one, `done` behind
 * it. */
static void brackets(struct builder *b, const struct json_rules *r,
                     const char *marks, uint32_t from, uint32_t to,
                     uint32_t more, uint32_t done)
{
    unsigned close = (unsigned char)marks[1];
    uint32_t open = json_space(b, r, build_text(b, from, marks, 1));
    build_bytes(b, open, close, close, to);
    build_empty(b, open, more);
    build_empty(b, json_space(b, r, build_text(b, done, ",", 1)), more);
    build_bytes(b, json_space(b, r, done), close, close, to);
}

static void object_rule(struct builder *b, const struct json_rules *r,
                        uint32_t from, uint32_t to)
{
    uint32_t more = build_state(b);
    uint32_t done = build_state(b);
    uint32_t key = build_state(b);
    brackets(b, r, "{}", from, to, more, done);
    build_call(b, more, r->string, key);
    build_call(b, json_space(b, r, build_text(b, key, ":", 1)), r->value, done);
}

static void array_rule(struct builder *b, const struct json_rules *r,
                       uint32_t from, uint32_t to)
{
    uint32_t more = build_state(b);
    uint32_t done = build_state(b);
    brackets(b, r, "[]", from, to, more, done);
    build_call(b, more, r->value, done);
}

void json_rules(struct builder *b, struct json_rules *r)
{
    static const struct {
        const char *name;
        void (*simple)(struct builder *, uint32_t, uint32_t);
        void (*make)(struct builder *, const struct json_rules *, uint32_t,
                     uint32_t);
    } rules[] = {
        {"white space", space_rule, NULL},
        {"character", json_character,
         NULL},
        {"string", string_rule, NULL},
        {"number", number_rule, NULL},
        {"integer", integer_rule, NULL},
        {"value", NULL, value_rule},
        {"object", NULL, object_rule},
        {"array", NULL, array_rule},
    };
    uint32_t ids[countof(rules)];
    for (size_t i = 0; i < countof(rules); i++) {
        ids[i] = build_rule(b, rules[i].name, 0);
    }
    *r = (struct json_rules){ids[0], ids[1], ids[2], ids[3],
                             ids[4], ids[5], ids[6], ids[7]};
    for (size_t i = 0; i < countof(rules) && b->rc == 0; i++) {
        uint32_t before = build_open(b, ids[i]);
        uint32_t from = b->rules[ids[i]].start;
        uint32_t to = b->rules[ids[i]].end;
        if (rules[i].simple != NULL) {
            rules[i].simple(b, from, to);
        } else {
            rules[i].make(b, r, from, to);
        }
        build_close(b, before);
    }
}

int grammar_json(struct grammar **ret, struct err *e)
{
    struct builder b;
    struct json_rules r;
    build_init(&b, e);
    json_rules(&b, &r);
    return build_finish(&b, r.object, ret);
}
