/* schema_array.c - arrays of a schema: a state behind each item that a word
 * tells from others, then a loop. */
#include "model/grammar/schema.h"

/* One item: by its own schema, by `rest`, or any. */
static void item(struct schema *c, const struct json *own, uint32_t rest,
                 unsigned i, uint32_t from, uint32_t to)
{
    if (own == NULL) {
        build_call(c->b, from, rest, to);
        return;
    }
    char name[16];
    (void)snprintf(name, sizeof(name), "%u", i);
    size_t path = path_enter(&c->path, "prefixItems", name);
    schema_value(c, own, from, to);
    path_leave(&c->path, path);
}

/* The rule of items behind those of prefixItems; max becomes smaller where none
 * may follow. */
static uint32_t rest_rule(struct schema *c, const struct json *items,
                          uint32_t prefix, uint32_t min, uint32_t *max)
{
    struct builder *b = c->b;
    bool none = items != NULL ? json_type(items) == JSON_BOOL &&
                                    !json_bool(items)
                              : prefix > 0 && min <= prefix;
    if (none) {
        *max = prefix < *max ? prefix : *max;
        return c->json->value;
    }
    if (items == NULL || json_type(items) == JSON_BOOL) {
        return c->json->value;
    }
    uint32_t rule = build_rule(b, c->path.text, 0);
    uint32_t before = build_open(b, rule);
    size_t path = path_enter(&c->path, "items", NULL);
    if (b->rc == 0) {
        schema_value(c, items, b->rules[rule].start, b->rules[rule].end);
    }
    path_leave(&c->path, path);
    build_close(b, before);
    return rule;
}

void schema_array(struct schema *c, const struct view *v, uint32_t from,
                  uint32_t to)
{
    struct builder *b = c->b;
    const struct json *prefix = view_get(c, v, "prefixItems");
    const struct json *items = view_get(c, v, "items");
    uint32_t min = view_count(c, v, "minItems", 0);
    uint32_t max = view_count(c, v, "maxItems", BUILD_ANY);
    uint32_t n = prefix != NULL ? (uint32_t)json_count(prefix) : 0;
    if ((prefix != NULL && json_type(prefix) != JSON_ARRAY) ||
        (items != NULL && json_type(items) == JSON_ARRAY)) {
        schema_deny(c, ERR_UNSUPPORTED,
                    prefix != NULL ? "prefixItems" : "items",
                    prefix != NULL ? "is no list"
                                   : "a list; its word is prefixItems");
        return;
    }
    if (prefix != NULL && items != NULL &&
        view_part(v, "items") != view_part(v, "prefixItems")) {
        schema_deny(c, ERR_UNSUPPORTED, "items",
                    "together with another schema's prefixItems");
    }
    uint32_t rest = rest_rule(c, items, n, min, &max);
    if (min > max) {
        schema_deny(c, ERR_INVALID, "minItems", "more than there can be");
    }
    const struct json *own = json_first(prefix);
    uint32_t at = build_text(b, from, "[", 1);
    for (uint32_t i = 0; b->rc == 0; i++) {
        uint32_t space = json_space(b, c->json, at);
        if (i >= min) {
            build_bytes(b, space, ']', ']', to);
        }
        if (i >= max) {
            break;
        }
        uint32_t next = i > 0 ? json_space(b, c->json,
                                           build_text(b, at, ",", 1))
                              : space;
        bool loop = i > 0 && i >= min && i >= n && max == BUILD_ANY;
        uint32_t end = loop ? at : build_state(b);
        item(c, own, rest, i, next, end);
        own = own != NULL ? json_next(own) : NULL;
        if (loop) {
            break;
        }
        at = end;
    }
}
