/* constrain_values.c - arguments that are not JSON: between tags, as in Python,
 * as gemma 4 writes them. Held is what the parser reads back as the schema has
 * it:
 *
 *   tags    a string is what stands there, any other value is JSON. Where the
 *           schema leaves open which it is, a string may not read as JSON
 *           (tagged_call.c), nor begin with a bracket
 *   Python  JSON, which the parser takes, single quotes, True and False
 *   gemma   strings and lists of strings in its quotes, else JSON
 *
 * Parameters come in the order of the schema. Only its properties are held one
 * by one; other words of the outermost schema cannot be. */
#include <ctype.h>
#include <string.h>

#include "model/reply/constrain_impl.h"

#define QUOTE "<|\"|>" /* gemma's */

struct values {
    struct constrain *c;
    const struct reply_spelling *sp;
    const struct tool *t;
    const char *name; /* of the parameter that is written */
};

static int unsupported(const struct values *v, const char *word,
                       const char *what)
{
    bool in = v->name != NULL;
    return err_set(v->c->e, ERR_UNSUPPORTED,
                   "tool '%s': schema #%s%s: %s: %s where calls are not JSON",
                   v->t->name, in ? "/properties/" : "", in ? v->name : "",
                   word, what);
}

/* --- schemas --- */

static bool is_note(const char *word)
{
    static const char *const notes[] = {
        "title",   "description", "default", "examples",    "example",
        "$schema", "$id",         "$defs",   "definitions", "$comment"};
    bool found = strncmp(word, "x-", 2) == 0;
    for (size_t i = 0; i < countof(notes); i++) {
        found = found || strcmp(word, notes[i]) == 0;
    }
    return found;
}

/* How many words s has that say what is valid. */
static unsigned n_words(const struct json *s)
{
    unsigned n = 0;
    for (const struct json *w = json_first(s); w != NULL; w = json_next(w)) {
        n += !is_note(json_key(w));
    }
    return n;
}

/* A name in the definitions of the schema that s only refers to; else s. */
static const struct json *follow(const struct values *v, const struct json *s)
{
    static const char *const words[] = {"$defs", "definitions"};
    for (int hops = 0; hops < 8; hops++) {
        const char *ref = json_str(json_get(s, "$ref"));
        const struct json *to = NULL;
        for (size_t i = 0; i < countof(words) && ref != NULL; i++) {
            size_t n = strlen(words[i]);
            if (strncmp(ref, "#/", 2) == 0 &&
                strncmp(ref + 2, words[i], n) == 0 && ref[2 + n] == '/') {
                to = json_get(json_get(v->t->schema, words[i]), ref + 3 + n);
            }
        }
        if (to == NULL || n_words(s) != 1) {
            break;
        }
        s = to;
    }
    return s;
}

static bool type_is(const struct json *s, const char *type)
{
    const char *t = json_str(json_get(s, "type"));
    return t != NULL && strcmp(t, type) == 0;
}

/* The first of these words that s has; NULL: none. */
static const char *has_word(const struct json *s, const char *const *words,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (json_get(s, words[i]) != NULL) {
            return words[i];
        }
    }
    return NULL;
}

/* A word that a string without quotes cannot keep to. */
static const char *string_word(const struct json *s)
{
    static const char *const words[] = {"pattern", "format", "minLength",
                                        "maxLength"};
    return has_word(s, words, countof(words));
}

/* --- between tags --- */

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

static void until(struct values *v, const char *s)
{
    parts_put(&v->c->p, "until", s, strlen(s));
}

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
        until(v, v->sp->tags->end);
        return;
    }
    parts_begin(p, "seq");
    parts_regex(p, no_json);
    until(v, v->sp->tags->end);
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
        return unsupported(v, "enum", "a value that would be read as another");
    }
    buf_init(&text, GRAMMAR_SOURCE_MAX);
    if (s != NULL) {
        buf_puts(&text, s);
    } else {
        json_write(x, false, &text);
    }
    buf_puts(&text, v->sp->tags->line);
    buf_puts(&text, v->sp->tags->end);
    int rc = buf_ok(&text) ? 0 : unsupported(v, "enum", "a value too long");
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
        return unsupported(v, word, "no strings without quotes");
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
    const struct json *s = follow(v, schema);
    const struct json *type = json_get(s, "type");
    const char *in = has_word(s, unions, countof(unions));
    if (json_type(s) == JSON_BOOL || n_words(s) == 0) {
        tag_no_string(v);
        tag_text(v, false);
        return 0;
    }
    if (json_get(s, "enum") != NULL || json_get(s, "const") != NULL) {
        return tag_literals(v, s, only);
    }
    if (in != NULL && (n_words(s) > 1 || depth == 8)) {
        return unsupported(v, in, "together with other words");
    }
    for (const struct json *x = json_first(json_get(s, in != NULL ? in : ""));
         x != NULL; x = json_next(x)) {
        RETERR(tag_value(v, x, false, depth + 1));
    }
    if (in != NULL) {
        return 0;
    }
    if (type == NULL && has_word(s, objects, countof(objects)) == NULL) {
        return unsupported(v, "type", "it has to be given");
    }
    if (type != NULL && json_type(type) == JSON_ARRAY) {
        return tag_types(v, s);
    }
    if (type_is(s, "string")) {
        return tag_string(v, s, only);
    }
    tag_json(v, s);
    return 0;
}

static int tag_member(struct values *v, const struct json *s)
{
    const struct value_tags *tags = v->sp->tags;
    struct parts *p = &v->c->p;
    parts_text(p, tags->key);
    parts_text(p, v->name);
    parts_text(p, tags->key_end);
    parts_regex(p, tags->gap);
    parts_text(p, tags->value);
    parts_begin(p, "any");
    RETERR(tag_value(v, s, type_is(s, "string"), 0));
    parts_end(p);
    parts_regex(p, tags->after);
    return 0;
}

static void tag_any(struct values *v)
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
    until(v, tags->end);
    parts_regex(p, tags->after);
    parts_end(p);
}

/* --- as in Python --- */

/* A string between single quotes; Python's escapes that JSON has, too. */
static const char single_quoted[] =
    "'([^'\\\\\\x00-\\x1F]|\\\\['\"\\\\bfnrt])*'";

static void python_literals(struct values *v, const struct json *list)
{
    struct parts *p = &v->c->p;
    for (const struct json *x = json_first(list); x != NULL; x = json_next(x)) {
        const char *s = json_str(x);
        bool plain = s != NULL;
        for (size_t i = 0; plain && s[i] != '\0'; i++) {
            plain = (unsigned char)s[i] >= 0x20 && s[i] != '\'' && s[i] != '\\';
        }
        if (plain) {
            parts_begin(p, "seq");
            parts_text(p, "'");
            parts_text(p, s);
            parts_text(p, "'");
            parts_end(p);
        }
    }
}

static int python_member(struct values *v, const struct json *schema)
{
    struct parts *p = &v->c->p;
    const struct json *s = follow(v, schema);
    parts_text(p, v->name);
    parts_text(p, "=");
    parts_begin(p, "any");
    parts_schema(p, schema, v->t->schema);
    if (type_is(s, "boolean") && n_words(s) == 1) {
        parts_text(p, "True");
        parts_text(p, "False");
    } else if (type_is(s, "string") && n_words(s) == 1) {
        parts_regex(p, single_quoted);
    } else if (type_is(s, "string") && n_words(s) == 2) {
        python_literals(v, json_get(s, "enum"));
    }
    parts_end(p);
    return 0;
}

static void python_any(struct values *v)
{
    static const char name[] = "[A-Za-z_][A-Za-z0-9_]{0,63}=";
    struct parts *p = &v->c->p;
    parts_begin(p, "seq");
    parts_regex(p, name);
    parts_raw(p, "{\"schema\":true}");
    parts_end(p);
}

/* --- as gemma 4 does --- */

static void gemma_string(struct values *v)
{
    parts_text(&v->c->p, QUOTE);
    until(v, QUOTE);
}

/* Values of an enum, in gemma's quotes if they are strings. */
static void gemma_literals(struct values *v, const struct json *list)
{
    struct parts *p = &v->c->p;
    for (const struct json *x = json_first(list); x != NULL; x = json_next(x)) {
        const char *s = json_str(x);
        if (s != NULL && strstr(s, QUOTE) == NULL) {
            parts_begin(p, "seq");
            parts_text(p, QUOTE);
            parts_text(p, s);
            parts_text(p, QUOTE);
            parts_end(p);
        }
    }
}

static void gemma_list(struct values *v, const struct json *s)
{
    struct parts *p = &v->c->p;
    int64_t min = 0;
    int64_t max = 0;
    bool none = json_int(json_get(s, "maxItems"), 0, 0, &max);
    (void)!json_int(json_get(s, "minItems"), 0, GRAMMAR_REPEAT_MAX, &min);
    (void)!json_int(json_get(s, "maxItems"), 0, GRAMMAR_REPEAT_MAX, &max);
    parts_text(p, "[");
    if (!none) {
        parts_repeat(p);
        parts_begin(p, "seq");
        gemma_string(v);
        parts_end(p);
        parts_repeat_end(p, (unsigned)min, (unsigned)max, ",");
    }
    parts_text(p, "]");
}

static int gemma_member(struct values *v, const struct json *schema)
{
    struct parts *p = &v->c->p;
    const struct json *s = follow(v, schema);
    const struct json *items = json_get(s, "items");
    bool strings =
        type_is(s, "array") && type_is(items, "string") && n_words(items) == 1;
    parts_text(p, v->name);
    parts_text(p, ":");
    if (type_is(s, "string") && n_words(s) == 1) {
        gemma_string(v);
    } else if (strings) {
        gemma_list(v, s);
    } else if (type_is(s, "string") && json_get(s, "enum") != NULL) {
        parts_begin(p, "any");
        gemma_literals(v, json_get(s, "enum"));
        parts_end(p);
    } else {
        parts_schema(p, schema, v->t->schema);
    }
    return 0;
}

static void gemma_any(struct values *v)
{
    static const char name[] = "[A-Za-z_][A-Za-z0-9_]{0,63}:";
    struct parts *p = &v->c->p;
    parts_begin(p, "seq");
    parts_regex(p, name);
    parts_begin(p, "any");
    parts_begin(p, "seq");
    gemma_string(v);
    parts_end(p);
    parts_raw(p, "{\"schema\":{\"type\":[\"number\",\"boolean\",\"null\","
                 "\"array\",\"object\"]}}");
    parts_end(p);
    parts_end(p);
}

/* --- parameters --- */

static const struct {
    const char *between;
    const char *in_names; /* beside letters and digits */
    int (*member)(struct values *v, const struct json *s);
    void (*any)(struct values *v); /* one of any name and value */
} styles[] = {
    [VALUES_TAGS] = {"",   "_-.", tag_member,    tag_any   },
    [VALUES_PYTHON] = {", ", "_",   python_member, python_any},
    [VALUES_GEMMA] = {",",  "_-",  gemma_member,  gemma_any },
};

static bool is_required(const struct json *schema, const char *name)
{
    for (const struct json *r = json_first(json_get(schema, "required"));
         r != NULL; r = json_next(r)) {
        if (json_str(r) != NULL && strcmp(json_str(r), name) == 0) {
            return true;
        }
    }
    return false;
}

/* A parameter, with what stands before it if it is not the first. */
static int member(struct values *v, const struct json *s, bool first)
{
    const char *between = styles[v->sp->values].between;
    v->name = json_key(s);
    parts_begin(&v->c->p, "seq");
    if (!first) {
        parts_text(&v->c->p, between);
    }
    RETERR(styles[v->sp->values].member(v, s));
    parts_end(&v->c->p);
    return 0;
}

/* s and those behind it. must_come: s is there, and nothing stands before it.
 */
static int members_from(struct values *v, const struct json *s, bool must_come)
{
    bool first = must_come;
    parts_begin(&v->c->p, "seq");
    for (; s != NULL; s = json_next(s)) {
        bool may_lack = !first && !is_required(v->t->schema, json_key(s));
        if (may_lack) {
            parts_begin(&v->c->p, "any");
            parts_nothing(&v->c->p);
        }
        RETERR(member(v, s, first));
        if (may_lack) {
            parts_end(&v->c->p);
        }
        first = false;
    }
    parts_end(&v->c->p);
    return 0;
}

/* Where something stands between parameters, there is an alternative for each
 * that may come first. */
static int members(struct values *v)
{
    const struct json *s = json_first(json_get(v->t->schema, "properties"));
    bool need = false;
    if (*styles[v->sp->values].between == '\0') {
        return members_from(v, s, false);
    }
    parts_begin(&v->c->p, "any");
    for (; s != NULL && !need; s = json_next(s)) {
        RETERR(members_from(v, s, true));
        need = is_required(v->t->schema, json_key(s));
    }
    if (!need) {
        parts_nothing(&v->c->p);
    }
    parts_end(&v->c->p);
    return 0;
}

/* Whether the outermost schema is of properties only. */
static int check_root(struct values *v)
{
    static const char *const known[] = {"type", "properties", "required",
                                        "additionalProperties"};
    const struct json *all = v->t->schema;
    const struct json *props = json_get(all, "properties");
    for (const struct json *w = json_first(all); w != NULL; w = json_next(w)) {
        bool ok = is_note(json_key(w));
        for (size_t i = 0; i < countof(known); i++) {
            ok = ok || strcmp(json_key(w), known[i]) == 0;
        }
        if (!ok) {
            return unsupported(v, json_key(w), "not around all parameters");
        }
    }
    for (const struct json *r = json_first(json_get(all, "required"));
         r != NULL; r = json_next(r)) {
        if (json_get(props, json_str(r)) == NULL) {
            return unsupported(v, "required", "only of declared properties");
        }
    }
    for (const struct json *s = json_first(props); s != NULL;
         s = json_next(s)) {
        const char *name = json_key(s);
        v->name = name;
        for (size_t i = 0; name[i] != '\0' || i == 0; i++) {
            if (!isalnum((unsigned char)name[i]) &&
                (name[i] == '\0' ||
                 strchr(styles[v->sp->values].in_names, name[i]) == NULL)) {
                return unsupported(v, "properties", "no such name");
            }
        }
    }
    v->name = NULL;
    return 0;
}

int constrain_args(struct constrain *c, const struct reply_spelling *sp,
                   const struct tool *t)
{
    struct values v = {.c = c, .sp = sp, .t = t};
    switch (t->args) {
    case ARGS_SCHEMA:
        RETERR(check_root(&v));
        return members(&v);
    case ARGS_ANY:
        parts_repeat(&c->p);
        styles[sp->values].any(&v);
        parts_repeat_end(&c->p, 0, 0, styles[sp->values].between);
        return 0;
    case ARGS_NONE:
    default:
        return 0;
    }
}
