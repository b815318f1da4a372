/* schema_join.c - references, and schemas that hold at once.
 *
 * A schema that is only a $ref is a call of its target's rule, which is
 * compiled once, so references may go round. Everything else is expanded: allOf and
 * references with words beside them join a view, each branch of anyOf or oneOf
 * is a view of its own. Recursion is bounded by GRAMMAR_DEPTH_MAX, a view by
 * GRAMMAR_PARTS_MAX. */
#include <string.h>

#include "model/grammar/schema.h"

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
        schema_deny(c, local ? ERR_INVALID : ERR_UNSUPPORTED, "$ref",
                    local ? "leads to nothing"
                          : "only references into the schema itself");
    }
    return to;
}

const struct json *schema_target(struct schema *c, const struct json *s,
                                 unsigned most)
{
    while (most-- > 0 && json_type(s) == JSON_OBJECT &&
           json_get(s, "$ref") != NULL && schema_words(c, s, VALUE) == 0 &&
           schema_words(c, s, JOIN) == 1) {
        const struct json *to = target_of(c, s);
        if (to == NULL) {
            break;
        }
        s = to;
    }
    return s;
}

uint32_t schema_rule(struct schema *c, const struct json *target,
                     const char *name)
{
    for (uint32_t i = 0; i < c->n_refs; i++) {
        if (c->refs[i].target == target) {
            return c->refs[i].rule;
        }
    }
    if (c->n_refs == GRAMMAR_REFS_MAX) {
        schema_deny(c, ERR_TOO_BIG, "$ref", "too many different ones");
        return 0;
    }
    if (c->n_refs == c->cap_refs) {
        uint32_t cap = c->cap_refs == 0 ? 16 : c->cap_refs * 2;
        struct schema_ref *p = realloc(c->refs, cap * sizeof(*p));
        if (p == NULL) {
            (void)build_fail(c->b, ERR_NOMEM, "references of a schema");
            return 0;
        }
        c->refs = p;
        c->cap_refs = cap;
    }
    uint32_t rule = build_rule(c->b, name, 0);
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
        schema_deny(c, ERR_TOO_BIG, "", "too many schemas that hold at once");
        return;
    }
    list[(*n)++] = s;
}

/* Join one schema: its words to v, what it refers to to t. */
static void join(struct schema *c, struct view *v, struct pending *t,
                 const struct json *s)
{
    if (json_type(s) == JSON_BOOL) {
        if (!json_bool(s)) {
            schema_deny(c, ERR_INVALID, "false", "nothing is valid");
        }
        return;
    }
    bool alone = v->n == 0 && t->n == 0 && t->n_any == 0 &&
                 schema_words(c, s, JOIN) == 1;
    if (schema_words(c, s, VALUE) > 0) {
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
            schema_deny(c, ERR_INVALID, names[i], "is no list of schemas");
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
        schema_one(c, s, alone);
        push(c, t->any, &t->n_any, one);
    }
}

static bool deeper(struct schema *c)
{
    if (++c->depth > GRAMMAR_DEPTH_MAX) {
        schema_deny(c, ERR_TOO_BIG, "", "schemas are nested too deep");
    }
    return c->b->rc == 0;
}

static void expand(struct schema *c, struct view *v, struct pending *t,
                   uint32_t from, uint32_t to);

/* Each branch of one list, with all else that holds. */
static void branches(struct schema *c, const struct view *v, struct pending *t,
                     uint32_t from, uint32_t to)
{
    const struct json *any = t->any[--t->n_any];
    unsigned i = 0;
    for (const struct json *x = json_first(any); x != NULL && c->b->rc == 0;
         x = json_next(x), i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "%u", i);
        size_t path = path_enter(&c->path, "anyOf", name);
        if (v->n == 0 && t->n_any == 0) {
            schema_value(c, x, from, to);
        } else {
            struct view copy = *v;
            struct pending rest = *t;
            push(c, rest.s, &rest.n, x);
            expand(c, &copy, &rest, from, to);
        }
        path_leave(&c->path, path);
    }
}

static void expand(struct schema *c, struct view *v, struct pending *t,
                   uint32_t from, uint32_t to)
{
    for (unsigned joined = 0; t->n > 0 && c->b->rc == 0; joined++) {
        if (joined == 4 * GRAMMAR_PARTS_MAX) { /* references go round */
            schema_deny(c, ERR_TOO_BIG, "",
                        "too many schemas that hold at once");
            return;
        }
        t->n--;
        join(c, v, t, t->s[t->n]);
    }
    if (deeper(c)) {
        if (t->n_any > 0) {
            branches(c, v, t, from, to);
        } else if (v->n > 0) {
            schema_all(c, v, from, to);
        } else {
            build_call(c->b, from, c->json->value, to);
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
    if (c->b->rc != 0) {
        return;
    }
    if (json_type(s) == JSON_OBJECT && json_get(s, "$ref") != NULL &&
        schema_words(c, s, VALUE) == 0 && schema_words(c, s, JOIN) == 1) {
        const struct json *target = target_of(c, s);
        if (target != NULL) {
            const char *name = json_str(json_get(s, "$ref"));
            build_call(c->b, from, schema_rule(c, target, name), to);
        }
        return;
    }
    struct view v = {.n = 0};
    struct pending t = {.s = {s}, .n = 1};
    expand(c, &v, &t, from, to);
}
