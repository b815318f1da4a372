/* schema_one.c - oneOf: exactly one branch holds.
 *
 * A grammar of all branches gives values of some branch; that no other holds
 * must be known beforehand. It is known where, for each two branches, nothing
 * that the grammar writes for the one is valid by the other, because
 *
 *   - their types differ, or their values (const, enum);
 *   - of objects: the other requires a key that is never written here, or
 *     allows no other keys and one is always written here that it does not
 *     declare, or a key that is always written here has values there that
 *     exclude these (the usual tag: {"kind": {"const": "a"}}).
 *
 * What cannot be seen so is an error: anyOf asks for less and is taken always.
 * Parts that are joined to the other branch (allOf and the like) only exclude
 * more; joined to this one they may write more, so then less is known. */
#include <string.h>

#include "model/grammar/schema.h"

#define FOLLOW_MAX 8 /* references, and keys in keys */

/* A branch, and the schema around it, which holds too. */
struct branch {
    const struct json *s;
    const struct json *around; /* or NULL */
    bool more; /* other schemas hold as well, and may declare keys */
};

static bool excludes(struct schema *c, struct branch a, struct branch b,
                     unsigned depth);

/* The word of the branch or of what is around it. */
static const struct json *word_of(struct branch x, const char *word)
{
    const struct json *w = json_get(x.s, word);
    return w != NULL || x.around == NULL ? w : json_get(x.around, word);
}

static bool joins(const struct json *s)
{
    return json_get(s, "$ref") != NULL || json_get(s, "allOf") != NULL ||
           json_get(s, "anyOf") != NULL || json_get(s, "oneOf") != NULL;
}

static bool has_name(const struct json *list, const char *name)
{
    for (const struct json *x = json_first(list); x != NULL; x = json_next(x)) {
        const char *s = json_str(x);
        if (s != NULL && strcmp(s, name) == 0) {
            return true;
        }
    }
    return false;
}

/* --- values and types --- */

/* Is x one of the values of const or enum? */
static bool is_value(const struct json *s, const struct json *x)
{
    const struct json *one = json_get(s, "const");
    const struct json *list = json_get(s, "enum");
    if (one != NULL) {
        return schema_same(one, x);
    }
    for (const struct json *y = json_first(list); y != NULL; y = json_next(y)) {
        if (schema_same(x, y)) {
            return true;
        }
    }
    return false;
}

static bool has_values(const struct json *s)
{
    return json_get(s, "const") != NULL ||
           json_type(json_get(s, "enum")) == JSON_ARRAY;
}

/* No value of a's is one of b's. */
static bool other_values(const struct json *a, const struct json *b)
{
    const struct json *one = json_get(a, "const");
    if (!has_values(a) || !has_values(b)) {
        return false;
    }
    if (one != NULL) {
        return !is_value(b, one);
    }
    for (const struct json *x = json_first(json_get(a, "enum")); x != NULL;
         x = json_next(x)) {
        if (is_value(b, x)) {
            return false;
        }
    }
    return true;
}

/* What is written for a branch, and what is valid by one: without a word about
 * it, what its words are about, and everything. */
static int types_of(struct schema *c, struct branch x, bool written)
{
    const struct json *type = word_of(x, "type");
    if (type == NULL && has_values(x.s)) {
        return schema_value_types(x.s);
    }
    if (type == NULL && (!written || joins(x.s))) {
        return T_ALL;
    }
    struct view v = {.part = {x.s, x.around}, .n = x.around != NULL ? 2 : 1};
    return schema_types(c, &v);
}

/* --- objects --- */

/* The grammar of a may write this key. */
static bool may_write(struct branch a, const char *key)
{
    const struct json *const parts[] = {a.s, a.around};
    for (size_t i = 0; !a.more && i < countof(parts); i++) {
        const struct json *s = parts[i];
        if (s == NULL) {
            continue;
        }
        const struct json *more = json_get(s, "additionalProperties");
        bool more_no = json_type(more) == JSON_BOOL && !json_bool(more);
        if (json_get(json_get(s, "properties"), key) != NULL ||
            has_name(json_get(s, "required"), key) ||
            (more != NULL && !more_no) || (i == 0 && joins(s))) {
            return true;
        }
    }
    return a.more || word_of(a, "properties") == NULL; /* then any keys */
}

/* A key that is always written for a is against b. */
static bool key_excludes(struct schema *c, struct branch a, struct branch b,
                         const char *key, unsigned depth)
{
    const struct json *mine = json_get(json_get(a.s, "properties"), key);
    const struct json *its = json_get(json_get(b.s, "properties"), key);
    const struct json *more = json_get(b.s, "additionalProperties");
    if (mine != NULL && its != NULL) {
        const struct json *too =
            a.around != NULL ? json_get(a.around, "properties") : NULL;
        bool two = a.more || json_get(too, key) != NULL;
        return excludes(c, (struct branch){mine, NULL, two},
                        (struct branch){its, NULL, false}, depth + 1);
    }
    return its == NULL && json_type(more) == JSON_BOOL && !json_bool(more);
}

static bool objects_exclude(struct schema *c, struct branch a, struct branch b,
                            unsigned depth)
{
    const struct json *const lists[] = {
        json_get(a.s, "required"),
        a.around != NULL ? json_get(a.around, "required") : NULL};
    const struct json *its = json_get(b.s, "required");
    for (const struct json *k = json_first(its); k != NULL; k = json_next(k)) {
        if (json_str(k) != NULL && !may_write(a, json_str(k))) {
            return true;
        }
    }
    for (size_t i = 0; i < countof(lists); i++) {
        for (const struct json *k = json_first(lists[i]); k != NULL;
             k = json_next(k)) {
            if (json_str(k) != NULL &&
                key_excludes(c, a, b, json_str(k), depth)) {
                return true;
            }
        }
    }
    return false;
}

/* Nothing that is written for a is valid by b. */
static bool excludes(struct schema *c, struct branch a, struct branch b,
                     unsigned depth)
{
    a.s = schema_target(c, a.s, FOLLOW_MAX);
    b.s = schema_target(c, b.s, FOLLOW_MAX);
    if (depth == FOLLOW_MAX || json_type(a.s) != JSON_OBJECT ||
        json_type(b.s) != JSON_OBJECT) {
        return false;
    }
    int written = types_of(c, a, true);
    int valid = types_of(c, b, false);
    return (written & valid) == 0 || other_values(a.s, b.s) ||
           ((written & valid) == T_OBJECT &&
            objects_exclude(c, a, b, depth));
}

void schema_one(struct schema *c, const struct json *s, bool alone)
{
    const struct json *list = json_get(s, "oneOf");
    for (const struct json *x = json_first(list); x != NULL; x = json_next(x)) {
        for (const struct json *y = json_next(x); y != NULL; y = json_next(y)) {
            const struct branch a = {x, s, !alone};
            const struct branch b = {y, s, !alone};
            if (!excludes(c, a, b, 0) || !excludes(c, b, a, 0)) {
                schema_deny(c, ERR_UNSUPPORTED, "oneOf",
                            "two of its schemas may hold at once, which is "
                            "then not valid; anyOf takes that");
                return;
            }
        }
    }
}
