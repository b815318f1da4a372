/* constrain_values.c - arguments that are not JSON: between tags, as in Python,
 * as gemma 4 writes them. Held is what the parser reads back as the schema has
 * it:
 *
 *   tags    constrain_tags.c
 *   Python  JSON, which the parser takes, single quotes, True and False
 *   gemma   strings and lists of strings in its quotes, else JSON
 *
 * Parameters come in the order of the schema. Only its properties are held one
 * by one; other words of the outermost schema cannot be. */
#include <ctype.h>
#include <string.h>

#include "model/grammar/grammar.h"
#include "model/reply/constrain_impl.h"

#define QUOTE "<|\"|>" /* gemma's */

int values_unsupported(const struct values *v, const char *word,
                       const char *what)
{
    bool in = v->name != NULL;
    return err_set(v->c->e, ERR_UNSUPPORTED,
                   "tool '%s': schema #%s%s: %s: %s where calls are not JSON",
                   v->t->name, in ? "/properties/" : "", in ? v->name : "",
                   word, what);
}

/* --- schemas --- */

unsigned values_n_words(const struct json *s)
{
    unsigned n = 0;
    for (const struct json *w = json_first(s); w != NULL; w = json_next(w)) {
        n += !grammar_schema_note(json_key(w));
    }
    return n;
}

const struct json *values_follow(const struct values *v, const struct json *s)
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
        if (to == NULL || values_n_words(s) != 1) {
            break;
        }
        s = to;
    }
    return s;
}

bool values_type_is(const struct json *s, const char *type)
{
    const char *t = json_str(json_get(s, "type"));
    return t != NULL && strcmp(t, type) == 0;
}

const char *values_has_word(const struct json *s, const char *const *words,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (json_get(s, words[i]) != NULL) {
            return words[i];
        }
    }
    return NULL;
}

void values_until(struct values *v, const char *s)
{
    parts_put(&v->c->p, "until", s, strlen(s));
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
    const struct json *s = values_follow(v, schema);
    parts_text(p, v->name);
    parts_text(p, "=");
    parts_begin(p, "any");
    parts_schema(p, schema, v->t->schema);
    if (values_type_is(s, "boolean") && values_n_words(s) == 1) {
        parts_text(p, "True");
        parts_text(p, "False");
    } else if (values_type_is(s, "string") && values_n_words(s) == 1) {
        parts_regex(p, single_quoted);
    } else if (values_type_is(s, "string") && values_n_words(s) == 2) {
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
    values_until(v, QUOTE);
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
    const struct json *s = values_follow(v, schema);
    const struct json *items = json_get(s, "items");
    bool strings = values_type_is(s, "array") &&
                   values_type_is(items, "string") &&
                   values_n_words(items) == 1;
    parts_text(p, v->name);
    parts_text(p, ":");
    if (values_type_is(s, "string") && values_n_words(s) == 1) {
        gemma_string(v);
    } else if (strings) {
        gemma_list(v, s);
    } else if (values_type_is(s, "string") && json_get(s, "enum") != NULL) {
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
    [VALUES_TAGS] = {"",   "_-.", values_tag_member, values_tag_any},
    [VALUES_PYTHON] = {", ", "_",   python_member,     python_any    },
    [VALUES_GEMMA] = {",",  "_-",  gemma_member,      gemma_any     },
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
        bool ok = grammar_schema_note(json_key(w));
        for (size_t i = 0; i < countof(known); i++) {
            ok = ok || strcmp(json_key(w), known[i]) == 0;
        }
        if (!ok) {
            return values_unsupported(v, json_key(w),
                                      "not around all parameters");
        }
    }
    for (const struct json *r = json_first(json_get(all, "required"));
         r != NULL; r = json_next(r)) {
        if (json_get(props, json_str(r)) == NULL) {
            return values_unsupported(v, "required",
                                      "only of declared properties");
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
                return values_unsupported(v, "properties", "no such name");
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
