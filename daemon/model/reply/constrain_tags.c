/* constrain_tags.c - arguments between tags (constrain_values.c). A string is
 * what stands there, any other value is JSON. Where the schema leaves open
 * which it is, a string may not read as JSON (tagged_call.c), nor begin with a
 * bracket. JSON of more than REPLY_HELD_MAX the parser takes for a string. */
#include <string.h>

#include "model/reply/constrain_impl.h"

/* A word that a string without quotes cannot keep to. */
static const char *string_word(const struct json *s)
{
    static const char *const words[] = {"pattern", "format", "minLength",
                                        "maxLength"};
    return values_has_word(s, words, countof(words));
}

/* Strings that do not read as JSON: up to where one differs. What follows may
 * be anything, as far as the closing tag, which '<' may begin. */
#define INT    "-?(0|[1-9][0-9]*)"
#define NUMBER INT "(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?"
#define BLANKS "[ \\t\\r\\n]"
#define BEHIND "(" BLANKS "+[^ \\t\\r\\n<]|[^ \\t\\r\\n<])"
static const char no_json[] =
    "[^{\\[\\-0-9tfnTFN<]"
    "|" INT "[^ \\t\\r\\n0-9.eE<]"
    "|" NUMBER BLANKS "+[^ \\t\\r\\n<]"
    "|-?0[0-9]"
    "|-[^0-9<]"
    "|" INT "\\.([^0-9<]|[0-9]+[^ \\t\\r\\n0-9eE<])"
    "|" INT "(\\.[0-9]+)?[eE]([^0-9+\\-<]|[+\\-][^0-9<]"
    "|[+\\-]?[0-9]+[^ \\t\\r\\n0-9<])"
    "|[tT]([^r<]|r([^u<]|u([^e<]|e" BEHIND ")))"
    "|[fF]([^a<]|a([^l<]|l([^s<]|s([^e<]|e" BEHIND "))))"
    "|n([^u<]|u([^l<]|l([^l<]|l" BEHIND ")))"
    "|N([^o<]|o([^n<]|n([^e<]|e" BEHIND ")))";

/* The end of a value that is JSON, or one of a list. */
static void tag_end(struct values *v)
{
    parts_text(&v->c->p, v->sp->tags->line);
    parts_text(&v->c->p, v->sp->tags->end);
}

static void tag_json(struct values *v, const struct json *s)
{
    parts_begin(&v->c->p, "seq");
    parts_schema(&v->c->p, s, v->t->schema);
    tag_end(v);
    parts_end(&v->c->p);
}

/* only: whatever stands there is a string. */
static void tag_text(struct values *v, bool only)
{
    struct parts *p = &v->c->p;
    if (only) {
        values_until(v, v->sp->tags->end);
        return;
    }
    parts_begin(p, "seq");
    parts_regex(p, no_json);
    values_until(v, v->sp->tags->end);
    parts_end(p);
    parts_text(p, v->sp->tags->end);
}

/* One value of an enum. */
static int tag_literal(struct values *v, const struct json *x, bool only)
{
    const char *s = json_str(x);
    size_t n = s != NULL ? strlen(s) : 0;
    struct buf text;
    if (s == NULL && only) {
        return 0; /* not of the type */
    }
    if (s != NULL && ((!only && reply_tagged_json(s, n) != NULL) ||
                      strstr(s, v->sp->tags->end) != NULL ||
                      (n > 0 && (*s == '\n' || s[n - 1] == '\n')))) {
        return values_unsupported(v, "enum",
                                  "a value that would be read as another");
    }
    buf_init(&text, GRAMMAR_SOURCE_MAX);
    if (s != NULL) {
        buf_puts(&text, s);
    } else {
        json_write(x, false, &text);
    }
    buf_puts(&text, v->sp->tags->line);
    buf_puts(&text, v->sp->tags->end);
    int rc =
        buf_ok(&text) ? 0 : values_unsupported(v, "enum", "a value too long");
    if (rc == 0) {
        parts_put(&v->c->p, "text", text.p, text.n);
    }
    buf_fini(&text);
    return rc;
}

static int tag_literals(struct values *v, const struct json *s, bool only)
{
    const struct json *one = json_get(s, "const");
    if (one != NULL) {
        return tag_literal(v, one, only);
    }
    for (const struct json *x = json_first(json_get(s, "enum")); x != NULL;
         x = json_next(x)) {
        RETERR(tag_literal(v, x, only));
    }
    return 0;
}

static int tag_string(struct values *v, const struct json *s, bool only)
{
    const char *word = string_word(s);
    if (word != NULL) {
        return values_unsupported(v, word, "no strings without quotes");
    }
    tag_text(v, only);
    return 0;
}

/* Any value but a string. */
static void tag_no_string(struct values *v)
{
    struct parts *p = &v->c->p;
    parts_begin(p, "seq");
    parts_raw(p, "{\"schema\":{\"type\":[\"number\",\"boolean\",\"null\","
                 "\"array\",\"object\"]}}");
    tag_end(v);
    parts_end(p);
}

static bool is_string(const struct json *type)
{
    const char *s = json_str(type);
    return s != NULL && strcmp(s, "string") == 0;
}

/* s, whose type is a list, without strings; *strings: they were in it. The
 * caller frees it. NULL: nothing else is in it. */
static struct json *without_string(const struct json *s, bool *strings)
{
    struct json *rest = json_object();
    const struct json *list = json_get(s, "type");
    for (const struct json *w = json_first(s); w != NULL; w = json_next(w)) {
        if (w != list) {
            json_add_tree(rest, json_key(w), json_copy(w));
        }
    }
    struct json *types = json_add_array(rest, "type");
    for (const struct json *t = json_first(list); t != NULL; t = json_next(t)) {
        *strings = *strings || is_string(t);
        if (!is_string(t)) {
            json_add_tree(types, NULL, json_copy(t));
        }
    }
    if (json_first(types) == NULL) {
        json_free(rest);
        return NULL;
    }
    return rest;
}

/* A list of types. */
static int tag_types(struct values *v, const struct json *s)
{
    bool strings = false;
    struct json *rest = without_string(s, &strings);
    if (rest != NULL) {
        tag_json(v, rest);
    }
    json_free(rest);
    return strings ? tag_string(v, s, false) : 0;
}

/* The value of a parameter with its closing tag: alternatives. only: the parser
 * knows that it is a string. */
static int tag_value(struct values *v, const struct json *schema, bool only,
                     int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    static const char *const objects[] = {"properties", "items"};
    const struct json *s = values_follow(v, schema);
    const struct json *type = json_get(s, "type");
    const char *in = values_has_word(s, unions, countof(unions));
    if (json_type(s) == JSON_BOOL || values_n_words(s) == 0) {
        tag_no_string(v);
        tag_text(v, false);
        return 0;
    }
    if (json_get(s, "enum") != NULL || json_get(s, "const") != NULL) {
        return tag_literals(v, s, only);
    }
    if (in != NULL && (values_n_words(s) > 1 || depth == 8)) {
        return values_unsupported(v, in, "together with other words");
    }
    for (const struct json *x = json_first(json_get(s, in != NULL ? in : ""));
         x != NULL; x = json_next(x)) {
        RETERR(tag_value(v, x, false, depth + 1));
    }
    if (in != NULL) {
        return 0;
    }
    if (type == NULL && values_has_word(s, objects, countof(objects)) == NULL) {
        return values_unsupported(v, "type", "it has to be given");
    }
    if (type != NULL && json_type(type) == JSON_ARRAY) {
        return tag_types(v, s);
    }
    if (values_type_is(s, "string")) {
        return tag_string(v, s, only);
    }
    tag_json(v, s);
    return 0;
}

int values_tag_member(struct values *v, const struct json *s)
{
    const struct value_tags *tags = v->sp->tags;
    struct parts *p = &v->c->p;
    parts_text(p, tags->key);
    parts_text(p, v->name);
    parts_text(p, tags->key_end);
    parts_regex(p, tags->gap);
    parts_text(p, tags->value);
    parts_begin(p, "any");
    RETERR(tag_value(v, s, values_type_is(s, "string"), 0));
    parts_end(p);
    parts_regex(p, tags->after);
    return 0;
}

void values_tag_any(struct values *v)
{
    static const char name[] = "[A-Za-z_][A-Za-z0-9_.\\-]{0,63}";
    const struct value_tags *tags = v->sp->tags;
    struct parts *p = &v->c->p;
    parts_begin(p, "seq");
    parts_text(p, tags->key);
    parts_regex(p, name);
    parts_text(p, tags->key_end);
    parts_regex(p, tags->gap);
    parts_text(p, tags->value);
    values_until(v, tags->end);
    parts_regex(p, tags->after);
    parts_end(p);
}
