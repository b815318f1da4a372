/* schema_object.c - objects of a schema.
 *
 *   "{" ws [ member { "," ws member } ] ws "}"
 *
 * Members come in the order in which the schema declares them; those that are
 * not required may be left out, and others follow if the schema allows them in
 * words. turn[i] is the place where a key is due and only the properties from i
 * on may come; done[i] is behind property i - 1. A comma is read before it is
 * known which key follows, so there is one for all.
 *
 * Keys of others are those that are no declared name. They have one spelling
 * (build_json_chars), as have the names, so that bytes tell them apart. */
#include <string.h>

#include "base/utf8.h"
#include "model/grammar/schema.h"

struct property {
    const char *name;
    bool required;
    bool never; /* no value is valid */
};

struct object {
    struct schema *c;
    const struct view *v;
    struct property *list; /* (n), in the builder's arena */
    size_t n, cap;
    bool others;         /* keys that are not declared */
    struct view other;   /* schemas of their values */
    const struct json *names; /* propertyNames */
};

static struct property *find(const struct object *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++) {
        if (strcmp(o->list[i].name, name) == 0) {
            return &o->list[i];
        }
    }
    return NULL;
}

static struct property *declare(struct object *o, const char *name)
{
    struct property *p = find(o, name);
    if (p != NULL) {
        return p;
    }
    if (o->n == o->cap) {
        size_t cap = o->cap == 0 ? 16 : o->cap * 2;
        struct property *list =
            arena_array(&o->c->b->arena, cap, sizeof(*list));
        if (list == NULL || cap > JSON_MEMBERS_MAX) {
            schema_deny(o->c, ERR_TOO_BIG, "properties", "too many");
            return NULL;
        }
        if (o->n > 0) {
            memcpy(list, o->list, o->n * sizeof(*list));
        }
        o->list = list;
        o->cap = cap;
    }
    o->list[o->n] = (struct property){.name = name};
    return &o->list[o->n++];
}

/* --- what the words say --- */

static void read_properties(struct object *o)
{
    struct schema *c = o->c;
    for (unsigned i = 0; i < o->v->n; i++) {
        const struct json *all = json_get(o->v->part[i], "properties");
        if (all != NULL && json_type(all) != JSON_OBJECT) {
            schema_deny(c, ERR_INVALID, "properties", "is no object");
            return;
        }
        for (const struct json *p = json_first(all);
             p != NULL && c->b->rc == 0; p = json_next(p)) {
            (void)declare(o, json_key(p));
        }
    }
}

static void read_required(struct object *o)
{
    struct schema *c = o->c;
    for (unsigned i = 0; i < o->v->n; i++) {
        const struct json *all = json_get(o->v->part[i], "required");
        if (all != NULL && json_type(all) != JSON_ARRAY) {
            schema_deny(c, ERR_INVALID, "required", "is no list");
            return;
        }
        for (const struct json *p = json_first(all);
             p != NULL && c->b->rc == 0; p = json_next(p)) {
            struct property *x =
                json_str(p) != NULL ? declare(o, json_str(p)) : NULL;
            if (x == NULL) {
                schema_deny(c, ERR_INVALID, "required", "is no list of names");
                return;
            }
            x->required = true;
        }
    }
}

/* Others are allowed where a part says so and none says no; also where nothing
 * is declared at all. */
static void read_others(struct object *o)
{
    bool yes = false;
    bool no = false;
    for (unsigned i = 0; i < o->v->n; i++) {
        const struct json *a =
            json_get(o->v->part[i], "additionalProperties");
        if (a == NULL) {
            continue;
        }
        if (json_type(a) == JSON_BOOL) {
            no |= !json_bool(a);
            yes |= json_bool(a);
            continue;
        }
        yes = true;
        o->other.part[o->other.n++] = a;
    }
    o->others = !no && (yes || view_part(o->v, "properties") == NULL);
}

/* propertyNames with a list of names: those are properties, none required. */
static void read_names(struct object *o)
{
    struct schema *c = o->c;
    o->names = view_get(c, o->v, "propertyNames");
    if (o->names == NULL || (json_type(o->names) == JSON_BOOL &&
                             json_bool(o->names))) {
        o->names = NULL;
        return;
    }
    const struct json *list = json_get(o->names, "enum");
    const struct json *pattern = json_get(o->names, "pattern");
    if (json_get(o->names, "$ref") != NULL ||
        json_type(o->names) != JSON_OBJECT) {
        schema_deny(c, ERR_UNSUPPORTED, "propertyNames",
                    "holds neither enum, pattern nor a length");
        return;
    }
    if (list == NULL && o->n > 0) {
        schema_deny(c, ERR_UNSUPPORTED, "propertyNames",
                    "together with names that are declared");
        return;
    }
    if (list == NULL || pattern != NULL) {
        return;
    }
    size_t declared = o->n;
    for (const struct json *x = json_first(list); x != NULL && o->others;
         x = json_next(x)) {
        if (json_str(x) != NULL) {
            (void)declare(o, json_str(x));
        }
    }
    for (size_t i = 0; i < declared; i++) {
        bool named = false;
        for (const struct json *x = json_first(list); x != NULL;
             x = json_next(x)) {
            named |= json_str(x) != NULL &&
                     strcmp(json_str(x), o->list[i].name) == 0;
        }
        o->list[i].never |= !named;
    }
    o->names = NULL;
    o->others = false;
}

/* --- values --- */

/* The schemas of a property; false: one of them is `false`. */
static bool schemas_of(struct object *o, const struct property *p,
                       struct view *ret)
{
    ret->n = 0;
    for (unsigned i = 0; i < o->v->n; i++) {
        const struct json *part = o->v->part[i];
        const struct json *s = json_get(json_get(part, "properties"), p->name);
        s = s != NULL ? s : json_get(part, "additionalProperties");
        if (s != NULL && json_type(s) == JSON_BOOL && !json_bool(s)) {
            return false;
        }
        if (s != NULL && json_type(s) != JSON_BOOL) {
            ret->part[ret->n++] = s;
        }
    }
    return !p->never;
}

static void value(struct object *o, const struct view *schemas,
                  const char *word, const char *name, uint32_t from,
                  uint32_t to)
{
    struct schema *c = o->c;
    if (schemas->n == 0) {
        build_call(c->b, from, c->json->value, to);
        return;
    }
    size_t path = path_enter(&c->path, word, name);
    schema_join(c, schemas, from, to);
    path_leave(&c->path, path);
}

/* ": value" behind a key. */
static uint32_t colon(struct object *o, uint32_t from)
{
    struct builder *b = o->c->b;
    return json_space(b, o->c->json, build_text(b, from, ":", 1));
}

static void member(struct object *o, const struct property *p, uint32_t from,
                   uint32_t to)
{
    struct builder *b = o->c->b;
    struct view schemas;
    if (!schemas_of(o, p, &schemas)) {
        if (p->required) {
            schema_deny(o->c, ERR_INVALID, p->name,
                        "is required, but no value is valid");
        }
        return;
    }
    uint32_t at = build_text(b, from, "\"", 1);
    for (size_t i = 0; p->name[i] != '\0' && b->rc == 0;) {
        size_t len = utf8_len(p->name + i, strlen(p->name + i));
        struct chars one = {0};
        uint32_t code = len > 0 ? utf8_char(p->name + i, len) : 0xFFFD;
        uint32_t next = build_state(b);
        chars_add(b, &one, code, code);
        build_json_chars(b, at, &one, next);
        at = next;
        i += len > 0 ? len : 1;
    }
    value(o, &schemas, "properties", p->name,
          colon(o, build_text(b, at, "\"", 1)), to);
}

/* --- keys that are not declared --- */

static int by_name(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

struct other_keys {
    struct builder *b;
    const char **names; /* (n), sorted */
    uint32_t rest;      /* any more characters may come */
    uint32_t end;       /* behind the closing quote */
};

struct branch {
    size_t lo, hi; /* names that begin as the key does so far */
    size_t at;     /* its bytes */
    uint32_t state;
};

/* The branches behind one state: a state for each next character of a name,
 * `rest` for all others. Returns how many were added to `out`. */
static size_t grow_key(struct other_keys *k, struct branch x,
                       struct branch *out)
{
    struct builder *b = k->b;
    struct chars taken = {0};
    size_t n = 0;
    bool whole = false; /* a name ends here: then the key may not */
    for (size_t i = x.lo; i < x.hi;) {
        const char *s = k->names[i] + x.at;
        if (*s == '\0') {
            whole = true;
            i++;
            continue;
        }
        size_t len = utf8_len(s, strlen(s));
        len = len > 0 ? len : 1;
        size_t last = i + 1;
        while (last < x.hi && strncmp(k->names[last] + x.at, s, len) == 0) {
            last++;
        }
        struct chars one = {0};
        uint32_t code = utf8_char(s, len);
        uint32_t state = build_state(b);
        chars_add(b, &one, code, code);
        chars_add(b, &taken, code, code);
        build_json_chars(b, x.state, &one, state);
        out[n++] = (struct branch){i, last, x.at + len, state};
        i = last;
    }
    struct chars others = chars_not(b, &taken);
    build_json_chars(b, x.state, &others, k->rest);
    if (!whole) {
        build_bytes(b, x.state, '"', '"', k->end);
    }
    return n;
}

/* A key that is no declared name, with its quotes. */
static uint32_t other_key(struct object *o, uint32_t from)
{
    struct builder *b = o->c->b;
    struct other_keys k = {.b = b, .rest = build_state(b)};
    size_t bytes = 1;
    k.end = build_state(b);
    for (size_t i = 0; i < o->n; i++) {
        bytes += strlen(o->list[i].name) + 1;
    }
    k.names = arena_array(&b->arena, o->n, sizeof(*k.names));
    struct branch *work = arena_array(&b->arena, bytes, sizeof(*work));
    if (k.names == NULL || work == NULL) {
        schema_deny(o->c, ERR_TOO_BIG, "properties", "too long");
        return 0;
    }
    for (size_t i = 0; i < o->n; i++) {
        k.names[i] = o->list[i].name;
    }
    qsort(k.names, o->n, sizeof(*k.names), by_name);
    size_t n = 1;
    work[0] = (struct branch){0, o->n, 0, build_text(b, from, "\"", 1)};
    for (size_t i = 0; i < n && b->rc == 0; i++) {
        n += grow_key(&k, work[i], work + n);
    }
    struct chars all = {0};
    chars_add(b, &all, 0, CHAR_MAX_CODE);
    build_json_chars(b, k.rest, &all, k.rest);
    build_bytes(b, k.rest, '"', '"', k.end);
    return k.end;
}

static void others(struct object *o, uint32_t from, uint32_t to)
{
    struct schema *c = o->c;
    uint32_t key = 0;
    if (o->names != NULL) {
        struct view v = {.part = {o->names}, .n = 1};
        size_t path = path_enter(&c->path, "propertyNames", NULL);
        key = build_state(c->b);
        for (const struct json *w = json_first(o->names); w != NULL;
             w = json_next(w)) {
            static const char *const known[] = {"type", "pattern", "format",
                                                "minLength", "maxLength"};
            bool ok = false;
            for (size_t i = 0; i < countof(known); i++) {
                ok |= strcmp(known[i], json_key(w)) == 0;
            }
            if (!ok) {
                schema_deny(c, ERR_UNSUPPORTED, json_key(w),
                            "this word is not supported here");
            }
        }
        schema_string(c, &v, from, key);
        path_leave(&c->path, path);
    } else if (o->n > 0) {
        key = other_key(o, from);
    } else {
        key = build_state(c->b);
        build_call(c->b, from, c->json->string, key);
    }
    value(o, &o->other, "additionalProperties", NULL, colon(o, key), to);
}

/* --- the whole --- */

static void members(struct object *o, uint32_t from, uint32_t to)
{
    struct builder *b = o->c->b;
    const struct json_rules *r = o->c->json;
    size_t need = 0; /* properties up to the last required one */
    for (size_t i = 0; i < o->n; i++) {
        need = o->list[i].required ? i + 1 : need;
    }
    uint32_t turn = json_space(b, r, build_text(b, from, "{", 1));
    if (need == 0) {
        build_bytes(b, turn, '}', '}', to);
    }
    for (size_t i = 0; i < o->n && b->rc == 0; i++) {
        uint32_t done = build_state(b);
        uint32_t next = build_state(b);
        member(o, &o->list[i], turn, done);
        if (!o->list[i].required) {
            build_empty(b, turn, next);
        }
        build_empty(b, json_space(b, r, build_text(b, done, ",", 1)), next);
        if (i + 1 >= need) {
            build_bytes(b, json_space(b, r, done), '}', '}', to);
        }
        turn = next;
    }
    if (o->others) {
        uint32_t done = build_state(b);
        others(o, turn, done);
        build_empty(b, json_space(b, r, build_text(b, done, ",", 1)), turn);
        build_bytes(b, json_space(b, r, done), '}', '}', to);
    }
}

void schema_object(struct schema *c, const struct view *v, uint32_t from,
                   uint32_t to)
{
    struct object o = {.c = c, .v = v};
    read_properties(&o);
    read_others(&o);
    read_required(&o);
    read_names(&o);
    if (c->b->rc == 0) {
        members(&o, from, to);
    }
}
