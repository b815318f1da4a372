/* schema_text.c - strings of a schema.
 *
 * A string has a pattern, or a format, or bounds of its length: together they
 * would be an intersection, which a grammar does not have. Formats are patterns
 * too, some narrower than their RFC where that is what people mean. */
#include <string.h>

#include "model/grammar/schema.h"

#define DATE                                                                 \
    "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|"                      \
    "(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|"              \
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|"                                \
    "([02468][048]|[13579][26])00)-02-29)"
#define TIME                                                                 \
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?"                       \
    "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-"
             "[0-9a-fA-F]{12}$"},
    {"ipv4", "^(" BYTE "\\.){3}" BYTE "$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,3}$"},
    {"email", "^" ATOM "(\\." ATOM ")?@" LABEL "(\\." LABEL "){1,4}$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(//" LABEL "(\\." LABEL
            "){0,6}(:\\d{1,5})?(/" PCHAR "*)*|" PCHAR "+(/" PCHAR
            "*)*)(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?$"},
};

static const char *pattern_of(struct schema *c, const char *format)
{
    for (size_t i = 0; i < countof(formats); i++) {
        if (format != NULL && strcmp(formats[i].name, format) == 0) {
            return formats[i].pattern;
        }
    }
    schema_deny(c, ERR_UNSUPPORTED, "format",
                format != NULL ? "this format is not supported"
                               : "is no string");
    return NULL;
}

static void by_pattern(struct schema *c, const char *word, const char *pattern,
                       uint32_t from, uint32_t to)
{
    struct builder *b = c->b;
    if (b->rc != 0) {
        return;
    }
    uint32_t body = build_text(b, from, "\"", 1);
    uint32_t end = build_state(b);
    build_regex(b, pattern, strlen(pattern), true, true, c->json->character,
                body, end);
    build_bytes(b, end, '"', '"', to);
    if (b->rc != 0) {
        (void)err_prefix(b->e, b->rc, "schema %s: %s", c->path.text, word);
    }
}

void schema_string(struct schema *c, const struct view *v, uint32_t from,
                   uint32_t to)
{
    struct builder *b = c->b;
    const struct json *pattern = view_get(c, v, "pattern");
    const struct json *format = view_get(c, v, "format");
    uint32_t min = view_count(c, v, "minLength", 0);
    uint32_t max = view_count(c, v, "maxLength", BUILD_ANY);
    bool bounds = min > 0 || max != BUILD_ANY;
    if ((pattern != NULL) + (format != NULL) + bounds > 1) {
        schema_deny(c, ERR_UNSUPPORTED, pattern != NULL ? "pattern" : "format",
                    pattern != NULL && format != NULL
                        ? "together with format"
                        : "together with minLength or maxLength");
    } else if (pattern != NULL) {
        if (json_str(pattern) == NULL) {
            schema_deny(c, ERR_INVALID, "pattern", "is no string");
            return;
        }
        by_pattern(c, "pattern", json_str(pattern), from, to);
    } else if (format != NULL) {
        const char *p = pattern_of(c, json_str(format));
        if (p != NULL) {
            by_pattern(c, "format", p, from, to);
        }
    } else if (!bounds) {
        build_call(b, from, c->json->string, to);
    } else if (min > max) {
        schema_deny(c, ERR_INVALID, "minLength", "is more than maxLength");
    } else {
        uint32_t body = build_text(b, from, "\"", 1);
        body = build_repeat_rule(b, body, c->json->character, min, max);
        build_bytes(b, body, '"', '"', to);
    }
}
