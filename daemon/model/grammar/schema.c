/* schema.c - JSON schemas: words, references, and schemas that hold at once.
 *
 * A schema that is only a $ref is a call of its target's rule, which is compiled
 * once, so references may go round. Everything else is expanded: allOf and
 * references with words beside them join a view, each branch of anyOf or oneOf
 * is a view of its own. Recursion is bounded by GRAMMAR_DEPTH_MAX, a view by
 * GRAMMAR_PARTS_MAX. */
#include "model/grammar/schema.h"

#include <string.h>

enum {
    T_NULL = 1,
    T_BOOL = 2,
    T_INTEGER = 4,
    T_NUMBER = 8,
    T_STRING = 16,
    T_ARRAY = 32,
    T_OBJECT = 64,
    T_ALL = 127,
};

enum word_kind { NOTE, JOIN, VALUE };

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

/* --- paths and errors --- */

void schema_fail(struct schema *c, int code, const char *word,
                 const char *what)
{
    (void)build_fail(&c->b, code, "schema %s: %s%s%s", c->path, word,
                     *word != '\0' ? ": " : "", what);
}

size_t schema_enter(struct schema *c, const char *word, const char *name)
{
    size_t n = c->path_n;
    int more = snprintf(c->path + n, sizeof(c->path) - n, "/%s%s%s", word,
                        name != NULL ? "/" : "", name != NULL ? name : "");
    if (more > 0) {
        size_t left = sizeof(c->path) - 1 - n;
        c->path_n += (size_t)more < left ? (size_t)more : left;
    }
    return n;
}

void schema_leave(struct schema *c, size_t path_n)
{
    c->path_n = path_n;
    c->path[path_n] = '\0';
}

/* --- views --- */

static bool same_text(const struct json *a, const struct json *b)
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
        if (w != NULL && r != NULL && !same_text(r, w)) {
            schema_fail(c, ERR_UNSUPPORTED, word,
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
        schema_fail(c, large ? ERR_TOO_BIG : ERR_INVALID, word,
                    large ? "larger than the limit" : "is no count");
    }
    return (uint32_t)n;
}

/* --- references --- */

/* The next name of a pointer, with ~0, ~1 and %XX read. NULL at its end. */
static const char *pointer_name(const char *p, char *name, size_t max)
{
    size_t n = 0;
    if (*p != '/') {
        return NULL;
    }
    for (p++; *p != '\0' && *p != '/' && n + 1 < max; p++) {
        char ch = *p;
        if (ch == '~' && (p[1] == '0' || p[1] == '1')) {
            ch = *++p == '0' ? '~' : '/';
        } else if (ch == '%' && p[1] != '\0' && p[2] != '\0') {
            char hex[3] = {p[1], p[2], '\0'};
            char *end = NULL;
            unsigned long v = strtoul(hex, &end, 16);
            if (end == hex + 2) {
                ch = (char)v;
                p += 2;
            }
        }
        name[n++] = ch;
    }
    name[n] = '\0';
    return p;
}

static const struct json *resolve(const struct schema *c, const char *ref)
{
    char name[GRAMMAR_PATH_MAX];
    const struct json *at = c->root;
    if (*ref != '#') {
        return NULL;
    }
    const char *p = ref + 1;
    while (*p != '\0' && at != NULL) {
        p = pointer_name(p, name, sizeof(name));
        if (p == NULL) {
            return NULL;
        }
        if (json_type(at) != JSON_ARRAY) {
            at = json_get(at, name);
            continue;
        }
        char *end = NULL;
        unsigned long k = strtoul(name, &end, 10);
        const struct json *x = json_first(at);
        while (k > 0 && x != NULL) {
            x = json_next(x);
            k--;
        }
        at = *end == '\0' && end != name ? x : NULL;
    }
    return at;
}

/* The target of s's $ref; NULL after an error. */
static const struct json *target_of(struct schema *c, const struct json *s)
{
    const char *ref = json_str(json_get(s, "$ref"));
    const struct json *to = ref != NULL ? resolve(c, ref) : NULL;
    if (to == NULL) {
        bool local = ref == NULL || *ref == '#';
        schema_fail(c, local ? ERR_INVALID : ERR_UNSUPPORTED, "$ref",
                    local ? "leads to nothing"
                          : "only references into the schema itself");
    }
    return to;
}

static uint32_t rule_of(struct schema *c, const struct json *target,
                        const char *name)
{
    for (uint32_t i = 0; i < c->n_refs; i++) {
        if (c->refs[i].target == target) {
            return c->refs[i].rule;
        }
    }
    if (c->n_refs == c->cap_refs) {
        uint32_t cap = c->cap_refs == 0 ? 16 : c->cap_refs * 2;
        struct schema_ref *p = realloc(c->refs, cap * sizeof(*p));
        if (p == NULL) {
            (void)build_fail(&c->b, ERR_NOMEM, "references of a schema");
            return 0;
        }
        c->refs = p;
        c->cap_refs = cap;
    }
    uint32_t rule = build_rule(&c->b, name, 0);
    c->refs[c->n_refs++] = (struct schema_ref){target, rule};
    return rule;
}

/* --- schemas that hold at once --- */

struct pending {
    const struct json *s[GRAMMAR_PARTS_MAX]; /* still to be joined */
    const struct json *any[GRAMMAR_PARTS_MAX]; /* lists of branches */
    unsigned n, n_any;
};

static void push(struct schema *c, const struct json **list, unsigned *n,
                 const struct json *s)
{
    if (*n == GRAMMAR_PARTS_MAX) {
        schema_fail(c, ERR_TOO_BIG, "", "too many schemas that hold at once");
        return;
    }
    list[(*n)++] = s;
}

/* Words that are not known are an error. Returns how many of a kind s has. */
static unsigned count_words(struct schema *c, const struct json *s,
                            enum word_kind kind)
{
    unsigned n = 0;
    if (json_type(s) != JSON_OBJECT) {
        schema_fail(c, ERR_INVALID, "", "neither an object nor true or false");
        return 0;
    }
    for (const struct json *w = json_first(s); w != NULL; w = json_next(w)) {
        const struct word *k = find_word(json_key(w));
        if (k == NULL && strncmp(json_key(w), "x-", 2) != 0) {
            schema_fail(c, ERR_UNSUPPORTED, json_key(w),
                        "this word is not supported");
        }
        n += k != NULL && k->kind == kind;
    }
    return n;
}

/* Join one schema: its words to v, what it refers to to t. */
static void join(struct schema *c, struct view *v, struct pending *t,
                 const struct json *s)
{
    if (json_type(s) == JSON_BOOL) {
        if (!json_bool(s)) {
            schema_fail(c, ERR_INVALID, "false", "nothing is valid");
        }
        return;
    }
    if (count_words(c, s, VALUE) > 0) {
        push(c, v->part, &v->n, s);
    }
    const struct json *all = json_get(s, "allOf");
    const struct json *any = json_get(s, "anyOf");
    const struct json *one = json_get(s, "oneOf");
    const struct json *lists[] = {all, any, one};
    static const char *const names[] = {"allOf", "anyOf", "oneOf"};
    for (size_t i = 0; i < countof(lists); i++) {
        if (lists[i] != NULL && (json_type(lists[i]) != JSON_ARRAY ||
                                 json_first(lists[i]) == NULL)) {
            schema_fail(c, ERR_INVALID, names[i], "is no list of schemas");
            return;
        }
    }
    unsigned first = t->n;
    if (json_get(s, "$ref") != NULL) {
        const struct json *to = target_of(c, s);
        if (to != NULL) {
            push(c, t->s, &t->n, to);
        }
    }
    for (const struct json *x = json_first(all); x != NULL; x = json_next(x)) {
        push(c, t->s, &t->n, x);
    }
    for (unsigned lo = first, hi = t->n; lo + 1 < hi; lo++) {
        const struct json *x = t->s[lo]; /* the first is taken first */
        t->s[lo] = t->s[--hi];
        t->s[hi] = x;
    }
    if (any != NULL) {
        push(c, t->any, &t->n_any, any);
    }
    if (one != NULL) {
        push(c, t->any, &t->n_any, one);
    }
}

static bool deeper(struct schema *c)
{
    if (++c->depth > GRAMMAR_DEPTH_MAX) {
        schema_fail(c, ERR_TOO_BIG, "", "schemas are nested too deep");
    }
    return c->b.rc == 0;
}

static void expand(struct schema *c, struct view *v, struct pending *t,
                   uint32_t from, uint32_t to)
{
    for (unsigned joined = 0; t->n > 0 && c->b.rc == 0; joined++) {
        if (joined == 4 * GRAMMAR_PARTS_MAX) { /* references go round */
            schema_fail(c, ERR_TOO_BIG, "",
                        "too many schemas that hold at once");
            return;
        }
        t->n--;
        join(c, v, t, t->s[t->n]);
    }
    if (!deeper(c) || (t->n_any == 0 && v->n > 0)) {
        if (c->b.rc == 0) {
            schema_all(c, v, from, to);
        }
    } else if (t->n_any == 0) {
        build_call(&c->b, from, c->json.value, to);
    } else {
        const struct json *any = t->any[--t->n_any];
        unsigned i = 0;
        for (const struct json *x = json_first(any);
             x != NULL && c->b.rc == 0; x = json_next(x), i++) {
            char name[16];
            (void)snprintf(name, sizeof(name), "%u", i);
            size_t path = schema_enter(c, "anyOf", name);
            if (v->n == 0 && t->n_any == 0) {
                schema_value(c, x, from, to);
            } else {
                struct view copy = *v;
                struct pending rest = *t;
                push(c, rest.s, &rest.n, x);
                expand(c, &copy, &rest, from, to);
            }
            schema_leave(c, path);
        }
    }
    c->depth--;
}

void schema_join(struct schema *c, const struct view *schemas, uint32_t from,
                 uint32_t to)
{
    struct view v = {.n = 0};
    struct pending t = {.n = 0};
    if (schemas->n == 1) {
        schema_value(c, schemas->part[0], from, to);
        return;
    }
    for (unsigned i = schemas->n; i-- > 0;) {
        push(c, t.s, &t.n, schemas->part[i]);
    }
    expand(c, &v, &t, from, to);
}

void schema_value(struct schema *c, const struct json *s, uint32_t from,
                  uint32_t to)
{
    if (c->b.rc != 0) {
        return;
    }
    if (json_type(s) == JSON_OBJECT && json_get(s, "$ref") != NULL &&
        count_words(c, s, VALUE) == 0 && count_words(c, s, JOIN) == 1) {
        const struct json *target = target_of(c, s);
        if (target != NULL) {
            build_call(&c->b, from,
                       rule_of(c, target, json_str(json_get(s, "$ref"))), to);
        }
        return;
    }
    struct view v = {.n = 0};
    struct pending t = {.s = {s}, .n = 1};
    expand(c, &v, &t, from, to);
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
        schema_fail(c, ERR_INVALID, "type", "no type, or list of types");
    }
    return bits;
}

/* Types that all parts allow; without the word, those that its words are about.
 */
static int types_of(struct schema *c, const struct view *v)
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

/* A value word for word. */
static void literal(struct schema *c, const struct json *x, uint32_t from,
                    uint32_t to)
{
    struct buf text;
    buf_init(&text, GRAMMAR_SOURCE_MAX);
    json_write(x, false, &text);
    if (!buf_ok(&text)) {
        schema_fail(c, ERR_TOO_BIG, "enum", "a value is too long");
    } else {
        build_empty(&c->b, build_text(&c->b, from, text.p, text.n), to);
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
            schema_fail(c, ERR_UNSUPPORTED, words[i].name,
                        "beside enum or const");
        }
    }
    if (list != NULL && json_type(list) != JSON_ARRAY) {
        schema_fail(c, ERR_INVALID, "enum", "is no list");
        return;
    }
    for (const struct json *x = list != NULL ? json_first(list) : one;
         x != NULL; x = list != NULL ? json_next(x) : NULL) {
        if ((types & type_of(x)) != 0 &&
            (one == NULL || x == one || same_text(x, one))) {
            literal(c, x, from, to);
            n++;
        }
    }
    if (n == 0) {
        schema_fail(c, ERR_INVALID, list != NULL ? "enum" : "const",
                    "no value is valid");
    }
}

void schema_all(struct schema *c, const struct view *v, uint32_t from,
                uint32_t to)
{
    struct builder *b = &c->b;
    int types = types_of(c, v);
    if (types == 0) {
        schema_fail(c, ERR_INVALID, "type", "no type is valid");
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

int grammar_from_schema(const struct json *root, struct grammar **ret,
                        struct err *e)
{
    struct schema c = {.root = root};
    build_init(&c.b, e);
    json_rules(&c.b, &c.json);
    (void)rule_of(&c, root, "#");
    for (uint32_t i = 0; i < c.n_refs && c.b.rc == 0; i++) {
        uint32_t rule = c.refs[i].rule;
        uint32_t before = build_open(&c.b, rule);
        c.path_n = 0;
        (void)snprintf(c.path, sizeof(c.path), "%s", c.b.rules[rule].name);
        c.path_n = strlen(c.path);
        if (c.b.rc == 0) {
            schema_value(&c, c.refs[i].target, c.b.rules[rule].start,
                         c.b.rules[rule].end);
        }
        build_close(&c.b, before);
    }
    uint32_t start = c.n_refs > 0 ? c.refs[0].rule : 0;
    free(c.refs);
    return build_finish(&c.b, start, ret);
}
