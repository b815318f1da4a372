/* schema.c - JSON schemas: the words that are known, views, and what a view
 * allows, type by type. schema_join.c makes the views. */
#include "model/grammar/schema.h"

#include <string.h>

/* Words of schemas that are held or only describe; `type`: what a schema
 * without `type` is taken to be that has it. */
static const struct word {
    const char *name;
    enum word_kind kind;
    int type;
} words[] = {
    {"title", NOTE, 0},
    {"description", NOTE, 0},
    {"default", NOTE, 0},
    {"examples", NOTE, 0},
    {"example", NOTE, 0},
    {"$schema", NOTE, 0},
    {"$id", NOTE, 0},
    {"id", NOTE, 0},
    {"$anchor", NOTE, 0},
    {"$comment", NOTE, 0},
    {"$defs", NOTE, 0},
    {"definitions", NOTE, 0},
    {"deprecated", NOTE, 0},
    {"readOnly", NOTE, 0},
    {"writeOnly", NOTE, 0},
    {"contentMediaType", NOTE, 0},
    {"contentEncoding", NOTE, 0},
    {"contentSchema", NOTE, 0},
    {"discriminator", NOTE, 0},
    {"propertyOrdering", NOTE, 0},
    {"$ref", JOIN, 0},
    {"allOf", JOIN, 0},
    {"anyOf", JOIN, 0},
    {"oneOf", JOIN, 0},
    {"type", VALUE, 0},
    {"enum", VALUE, 0},
    {"const", VALUE, 0},
    {"properties", VALUE, T_OBJECT},
    {"required", VALUE, T_OBJECT},
    {"additionalProperties", VALUE, T_OBJECT},
    {"propertyNames", VALUE, T_OBJECT},
    {"items", VALUE, T_ARRAY},
    {"prefixItems", VALUE, T_ARRAY},
    {"minItems", VALUE, T_ARRAY},
    {"maxItems", VALUE, T_ARRAY},
    {"minLength", VALUE, T_STRING},
    {"maxLength", VALUE, T_STRING},
    {"pattern", VALUE, T_STRING},
    {"format", VALUE, T_STRING},
    {"minimum", VALUE, T_NUMBER},
    {"maximum", VALUE, T_NUMBER},
    {"exclusiveMinimum", VALUE, T_NUMBER},
    {"exclusiveMaximum", VALUE, T_NUMBER},
};

static const struct word *find_word(const char *name)
{
    for (size_t i = 0; i < countof(words); i++) {
        if (strcmp(words[i].name, name) == 0) {
            return &words[i];
        }
    }
    return NULL;
}

bool grammar_schema_note(const char *word)
{
    const struct word *k = find_word(word);
    return k != NULL ? k->kind == NOTE : strncmp(word, "x-", 2) == 0;
}

unsigned schema_words(struct schema *c, const struct json *s,
                      enum word_kind kind)
{
    unsigned n = 0;
    if (json_type(s) != JSON_OBJECT) {
        schema_deny(c, ERR_INVALID, "", "neither an object nor true or false");
        return 0;
    }
    for (const struct json *w = json_first(s); w != NULL; w = json_next(w)) {
        const struct word *k = find_word(json_key(w));
        if (k == NULL && strncmp(json_key(w), "x-", 2) != 0) {
            schema_deny(c, ERR_UNSUPPORTED, json_key(w),
                        "this word is not supported");
        }
        n += k != NULL && k->kind == kind;
    }
    return n;
}

/* --- paths and errors --- */

void schema_deny(struct schema *c, int code, const char *word,
                 const char *what)
{
    (void)build_fail(c->b, code, "schema %s: %s%s%s", c->path.text, word,
                     *word != '\0' ? ": " : "", what);
}

/* --- views --- */

bool schema_same(const struct json *a, const struct json *b)
{
    struct buf x;
    struct buf y;
    buf_init(&x, GRAMMAR_SOURCE_MAX);
    buf_init(&y, GRAMMAR_SOURCE_MAX);
    json_write(a, false, &x);
    json_write(b, false, &y);
    bool same = buf_ok(&x) && buf_ok(&y) && x.n == y.n &&
                (x.n == 0 || memcmp(x.p, y.p, x.n) == 0);
    buf_fini(&x);
    buf_fini(&y);
    return same;
}

const struct json *view_part(const struct view *v, const char *word)
{
    for (unsigned i = 0; i < v->n; i++) {
        if (json_get(v->part[i], word) != NULL) {
            return v->part[i];
        }
    }
    return NULL;
}

const struct json *view_get(struct schema *c, const struct view *v,
                            const char *word)
{
    const struct json *r = NULL;
    for (unsigned i = 0; i < v->n; i++) {
        const struct json *w = json_get(v->part[i], word);
        if (w != NULL && r != NULL && !schema_same(r, w)) {
            schema_deny(c, ERR_UNSUPPORTED, word,
                        "two different ones that hold at once");
        }
        r = r == NULL ? w : r;
    }
    return r;
}

uint32_t view_count(struct schema *c, const struct view *v, const char *word,
                    uint32_t absent)
{
    const struct json *w = view_get(c, v, word);
    int64_t n = absent;
    if (w != NULL && !json_int(w, 0, GRAMMAR_REPEAT_MAX, &n)) {
        bool large = json_type(w) == JSON_NUMBER &&
                     json_num(w) > (double)GRAMMAR_REPEAT_MAX;
        n = GRAMMAR_REPEAT_MAX;
        if (!large || absent != BUILD_ANY) {
            schema_deny(c, large ? ERR_TOO_BIG : ERR_INVALID, word,
                        large ? "larger than the limit" : "is no count");
        }
    }
    return (uint32_t)n;
}

/* --- one view --- */

static int type_bit(const char *name)
{
    static const struct {
        const char *name;
        int bits;
    } types[] = {
        {"null", T_NULL}, {"boolean", T_BOOL}, {"integer", T_INTEGER},
        {"number", T_NUMBER | T_INTEGER}, {"string", T_STRING},
        {"array", T_ARRAY}, {"object", T_OBJECT},
    };
    for (size_t i = 0; i < countof(types); i++) {
        if (name != NULL && strcmp(types[i].name, name) == 0) {
            return types[i].bits;
        }
    }
    return 0;
}

static int bits_of(struct schema *c, const struct json *type)
{
    int bits = type_bit(json_str(type));
    if (json_type(type) == JSON_ARRAY) {
        for (const struct json *x = json_first(type); x != NULL;
             x = json_next(x)) {
            int bit = type_bit(json_str(x));
            bits |= bit;
            if (bit == 0) {
                bits = 0;
                break;
            }
        }
    }
    if (bits == 0) {
        schema_deny(c, ERR_INVALID, "type", "no type, or list of types");
    }
    return bits;
}

int schema_types(struct schema *c, const struct view *v)
{
    int types = T_ALL;
    int about = 0;
    for (unsigned i = 0; i < v->n; i++) {
        const struct json *type = json_get(v->part[i], "type");
        types &= type != NULL ? bits_of(c, type) : T_ALL;
        for (const struct json *w = json_first(v->part[i]); w != NULL;
             w = json_next(w)) {
            const struct word *k = find_word(json_key(w));
            about |= k != NULL ? k->type : 0;
        }
    }
    if (view_part(v, "type") == NULL && about != 0) {
        types = about | (about & T_NUMBER ? T_INTEGER : 0);
    }
    return types;
}

static int type_of(const struct json *x)
{
    switch (json_type(x)) {
    case JSON_NULL:
        return T_NULL;
    case JSON_BOOL:
        return T_BOOL;
    case JSON_STRING:
        return T_STRING;
    case JSON_ARRAY:
        return T_ARRAY;
    case JSON_OBJECT:
        return T_OBJECT;
    case JSON_NUMBER:
        break;
    }
    double d = json_num(x);
    return d > -9e15 && d < 9e15 && (double)(int64_t)d == d ? T_INTEGER
                                                            : T_NUMBER;
}

int schema_value_types(const struct json *s)
{
    const struct json *one = json_get(s, "const");
    int types = one != NULL ? type_of(one) : 0;
    for (const struct json *x = json_first(json_get(s, "enum"));
         one == NULL && x != NULL; x = json_next(x)) {
        types |= type_of(x);
    }
    return types;
}

/* A value word for word. */
static void literal(struct schema *c, const struct json *x, uint32_t from,
                    uint32_t to)
{
    struct buf text;
    buf_init(&text, GRAMMAR_SOURCE_MAX);
    json_write(x, false, &text);
    if (!buf_ok(&text)) {
        schema_deny(c, ERR_TOO_BIG, "enum", "a value is too long");
    } else {
        build_empty(c->b, build_text(c->b, from, text.p, text.n), to);
    }
    buf_fini(&text);
}

static void values(struct schema *c, const struct view *v, int types,
                   uint32_t from, uint32_t to)
{
    const struct json *list = view_get(c, v, "enum");
    const struct json *one = view_get(c, v, "const");
    unsigned n = 0;
    for (size_t i = 0; i < countof(words); i++) {
        if (words[i].type != 0 && view_part(v, words[i].name) != NULL) {
            schema_deny(c, ERR_UNSUPPORTED, words[i].name,
                        "beside enum or const");
        }
    }
    if (list != NULL && json_type(list) != JSON_ARRAY) {
        schema_deny(c, ERR_INVALID, "enum", "is no list");
        return;
    }
    for (const struct json *x = list != NULL ? json_first(list) : one;
         x != NULL; x = list != NULL ? json_next(x) : NULL) {
        if ((types & type_of(x)) != 0 &&
            (one == NULL || x == one || schema_same(x, one))) {
            literal(c, x, from, to);
            n++;
        }
    }
    if (n == 0) {
        schema_deny(c, ERR_INVALID, list != NULL ? "enum" : "const",
                    "no value is valid");
    }
}

void schema_all(struct schema *c, const struct view *v, uint32_t from,
                uint32_t to)
{
    struct builder *b = c->b;
    int types = schema_types(c, v);
    if (types == 0) {
        schema_deny(c, ERR_INVALID, "type", "no type is valid");
    }
    if (view_part(v, "enum") != NULL || view_part(v, "const") != NULL) {
        values(c, v, types, from, to);
        return;
    }
    if (types & T_NULL) {
        build_empty(b, build_text(b, from, "null", 4), to);
    }
    if (types & T_BOOL) {
        build_empty(b, build_text(b, from, "true", 4), to);
        build_empty(b, build_text(b, from, "false", 5), to);
    }
    if (types & (T_NUMBER | T_INTEGER)) {
        schema_number(c, v, (types & T_NUMBER) == 0, from, to);
    }
    if (types & T_STRING) {
        schema_string(c, v, from, to);
    }
    if (types & T_ARRAY) {
        schema_array(c, v, from, to);
    }
    if (types & T_OBJECT) {
        schema_object(c, v, from, to);
    }
}

/* The rule of a reference. */
static void compile_ref(struct schema *c, const struct schema_ref *ref)
{
    struct builder *b = c->b;
    uint32_t before = build_open(b, ref->rule);
    if (b->rc == 0) {
        path_begin(&c->path, b->rules[ref->rule].name);
        schema_value(c, ref->target, b->rules[ref->rule].start,
                     b->rules[ref->rule].end);
    }
    build_close(b, before);
}

void build_schema(struct builder *b, const struct json_rules *r,
                  const struct json *root, uint32_t from, uint32_t to)
{
    struct schema c = {.b = b, .json = r, .root = root};
    uint32_t rule = schema_rule(&c, root, "#");
    for (uint32_t i = 0; i < c.n_refs && b->rc == 0; i++) {
        struct schema_ref ref = c.refs[i]; /* the list may move */
        compile_ref(&c, &ref);
    }
    build_call(b, from, rule, to);
    free(c.refs);
}

int grammar_from_schema(const struct json *root, struct grammar **ret,
                        struct err *e)
{
    struct builder b;
    struct json_rules r;
    build_init(&b, e);
    json_rules(&b, &r);
    uint32_t start = build_rule(&b, "schema", 0);
    uint32_t before = build_open(&b, start);
    if (b.rc == 0) {
        build_schema(&b, &r, root, b.rules[start].start, b.rules[start].end);
    }
    build_close(&b, before);
    return build_finish(&b, start, ret);
}
