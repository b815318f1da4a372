/* tools.c - see tools.h. */
#include "api/tools.h"

#include <string.h>

#include "proto/limits.h"

/* The text of o, which is freed. */
static int text_of(struct arena *a, struct json *o, size_t max,
                   struct span *ret, struct err *e)
{
    struct buf b;
    buf_init(&b, max);
    json_write(o, false, &b);
    json_free(o);
    ret->n = b.n;
    ret->p = buf_ok(&b) ? arena_strn(a, b.p, b.n) : NULL;
    buf_fini(&b);
    return ret->p != NULL ? 0 : message_too_big(e);
}

/* --- tools --- */

static const char *const hints[] = {"strict",        "cache_control",
                                    "defer_loading", "eager_input_streaming",
                                    "type",          NULL};

static bool is_hint(const char *key)
{
    size_t i = 0;
    while (hints[i] != NULL && strcmp(hints[i], key) != 0) {
        i++;
    }
    return hints[i] != NULL;
}

/* A function as templates know it. schema: the name of its parameters. */
static int read_function(const struct json *f, const char *schema,
                         const char *where, struct json *to, struct err *e)
{
    const char *name = json_str(json_get(f, "name"));
    const struct json *params = json_get(f, schema);
    bool none = params == NULL || json_type(params) == JSON_NULL;
    if (name == NULL || name[0] == '\0' || strlen(name) > TOOL_NAME_MAX) {
        return err_set(e, ERR_INVALID,
                       "%s.name: must be a string of 1 to %u bytes", where,
                       TOOL_NAME_MAX);
    }
    if (!none && json_type(params) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID, "%s.%s: must be an object", where,
                       schema);
    }
    for (const struct json *c = json_first(f); c != NULL; c = json_next(c)) {
        const char *key = json_key(c);
        if (json_type(c) == JSON_NULL || is_hint(key)) {
            continue;
        }
        if (strcmp(key, "description") == 0 && json_str(c) == NULL) {
            return err_set(e, ERR_INVALID, "%s.description: must be a string",
                           where);
        }
        json_add_tree(to, c == params ? "parameters" : key, json_copy(c));
    }
    if (none) { /* OpenAI: a function without parameters */
        struct json *p = json_add_object(to, "parameters");
        json_add_str(p, "type", "object");
        (void)json_add_object(p, "properties");
    }
    return 0;
}

static int read_tool(const struct json *v, enum tools_form form, size_t i,
                     struct json *list, struct err *e)
{
    const struct json *type = json_get(v, "type");
    const char *only = form == TOOLS_SCHEMAS ? "custom" : "function";
    char where[48];
    (void)snprintf(where, sizeof(where), "tools[%zu]%s", i,
                   form == TOOLS_SCHEMAS ? "" : ".function");
    if (json_type(v) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID, "tools[%zu]: must be an object", i);
    }
    if (type != NULL && json_type(type) != JSON_NULL &&
        (json_str(type) == NULL || strcmp(json_str(type), only) != 0)) {
        const char *s = json_str(type);
        return err_set(e, ERR_UNSUPPORTED,
                       "tools[%zu].type: only %s, not '%.32s': this daemon "
                       "runs no tools of its own",
                       i, only,
                       s != NULL ? s : json_type_name(json_type(type)));
    }
    struct json *to = json_add_object(list, NULL);
    json_add_str(to, "type", "function");
    to = json_add_object(to, "function");
    return form == TOOLS_SCHEMAS
               ? read_function(v, "input_schema", where, to, e)
               : read_function(json_get(v, "function"), "parameters", where, to,
                               e);
}

/* No tool's text is over its limit. */
static int check_size(const struct json *tool, size_t i, struct err *e)
{
    struct buf b;
    buf_init(&b, TOOL_BYTES_MAX);
    json_write(tool, false, &b);
    int rc = buf_ok(&b)
                 ? 0
                 : err_set(e, ERR_TOO_BIG, "tools[%zu]: more than %zu bytes", i,
                           TOOL_BYTES_MAX);
    buf_fini(&b);
    return rc;
}

int tools_read(struct arena *a, const struct json *v, enum tools_form form,
               struct span *ret, struct err *e)
{
    struct json *list = NULL;
    size_t i = 0;
    int rc = 0;
    *ret = (struct span){0};
    if (v == NULL || json_type(v) == JSON_NULL) {
        return 0;
    }
    if (json_type(v) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID, "tools: must be an array");
    }
    if (json_count(v) > TOOLS_MAX) {
        return err_set(e, ERR_INVALID, "tools: at most %u", TOOLS_MAX);
    }
    if (json_first(v) == NULL) {
        return 0;
    }
    list = json_array();
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        CHECK(check_size(c, i, e));
        CHECK(read_tool(c, form, i, list, e));
        i++;
    }
    return text_of(a, list, TEXT_BYTES_MAX, ret, e);
out:
    json_free(list);
    return rc;
}

/* --- calls and their results --- */

int calls_add(struct calls *k, struct arena *a, struct json *list,
              const struct call_said *x, const char *where, struct err *e)
{
    const char *id = x->id, *name = x->name;
    char made[16];
    if (name == NULL || name[0] == '\0' || strlen(name) > TOOL_NAME_MAX) {
        return err_set(e, ERR_INVALID,
                       "%s: the name must be a string of 1 to %u bytes", where,
                       TOOL_NAME_MAX);
    }
    if (k->n >= CALLS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u", where, CALLS_MAX);
    }
    if (id == NULL) {
        (void)snprintf(made, sizeof(made), "call%05u", k->made++ % 100000);
        id = made;
    }
    struct json *c = json_add_object(list, NULL);
    json_add_str(c, "id", id);
    json_add_str(c, "type", "function");
    struct json *f = json_add_object(c, "function");
    json_add_str(f, "name", name);
    json_add_str(f, "arguments", x->arguments);
    id = arena_str(a, id);
    name = arena_str(a, name);
    if (id == NULL || name == NULL) {
        return message_too_big(e);
    }
    k->call[k->n].id = id;
    k->call[k->n].name = name;
    k->call[k->n++].answered = false;
    return 0;
}

/* One entry of tool_calls. */
static int read_call(struct calls *k, struct arena *a, const struct json *v,
                     const char *where, struct json *list, struct err *e)
{
    const struct json *f = json_get(v, "function");
    const struct json *id = json_get(v, "id");
    const struct json *args = json_get(f, "arguments");
    const char *type = json_str(json_get(v, "type"));
    struct span text = {"{}", 2};
    if (type != NULL && strcmp(type, "function") != 0) {
        return err_set(e, ERR_UNSUPPORTED, "%s.type: only function", where);
    }
    if (json_type(v) != JSON_OBJECT || f == NULL ||
        json_type(f) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID, "%s.function: must be an object", where);
    }
    if (id != NULL && json_type(id) != JSON_NULL &&
        (json_str(id) == NULL || strlen(json_str(id)) > TOOL_NAME_MAX)) {
        return err_set(e, ERR_INVALID,
                       "%s.id: must be a string of at most %u bytes", where,
                       TOOL_NAME_MAX);
    }
    if (args != NULL && json_str(args) != NULL) {
        text.p = json_str(args);
    } else if (args != NULL && json_type(args) == JSON_OBJECT) {
        RETERR(text_of(a, json_copy(args), TEXT_BYTES_MAX, &text, e));
    } else if (args != NULL && json_type(args) != JSON_NULL) {
        return err_set(e, ERR_INVALID,
                       "%s.function.arguments: must be a string or an object",
                       where);
    }
    const struct call_said x = {.id = json_str(id),
                                .name = json_str(json_get(f, "name")),
                                .arguments = text.p};
    return calls_add(k, a, list, &x, where, e);
}

int calls_done(struct arena *a, struct json *list, struct chat_message *m,
               struct err *e)
{
    struct json *o = json_object();
    json_add_tree(o, "tool_calls", list);
    return text_of(a, o, TEXT_BYTES_MAX, &m->fields, e);
}

int calls_read(struct calls *k, struct arena *a, const struct json *v,
               const char *where, struct chat_message *m, struct err *e)
{
    struct json *list = NULL;
    int rc = 0, i = 0;
    if (v == NULL || json_type(v) == JSON_NULL) {
        return 0;
    }
    if (json_type(v) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID, "%s.tool_calls: must be an array",
                       where);
    }
    if (json_first(v) == NULL) {
        return 0;
    }
    list = json_array();
    k->n = 0;
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        char at[80];
        (void)snprintf(at, sizeof(at), "%s.tool_calls[%d]", where, i++);
        CHECK(read_call(k, a, c, at, list, e));
    }
    return calls_done(a, list, m, e);
out:
    json_free(list);
    return rc;
}

/* The call that a result is for: by its id, by its name, or the next one. */
static size_t find_call(const struct calls *k, const char *id, const char *name)
{
    for (size_t i = 0; i < k->n; i++) {
        if (id != NULL
                ? strcmp(k->call[i].id, id) == 0
                : !k->call[i].answered &&
                      (name == NULL || strcmp(k->call[i].name, name) == 0)) {
            return i;
        }
    }
    return k->n;
}

int calls_answer(struct calls *k, struct arena *a, const char *id,
                 const char *name, struct chat_message *m, struct err *e)
{
    size_t i = find_call(k, id, name);
    if (i < k->n) {
        k->call[i].answered = true;
        id = k->call[i].id;
        name = name != NULL ? name : k->call[i].name;
    }
    if (id == NULL && name == NULL) {
        return 0;
    }
    struct json *o = json_object();
    if (id != NULL) {
        json_add_str(o, "tool_call_id", id);
    }
    if (name != NULL) {
        json_add_str(o, "name", name);
    }
    return text_of(a, o, TEXT_BYTES_MAX, &m->fields, e);
}

/* --- what the template is told beside --- */

/* Unless the client says it itself. */
static bool is_free(const struct params *p, const char *key)
{
    return p->kwargs == NULL || json_get(p->kwargs, key) == NULL;
}

static int read_kwargs(struct arena *a, const struct params *p,
                       struct span *ret, struct err *e)
{
    static const char *const names[] = {"enable_thinking", "thinking"};
    struct json *o = p->kwargs != NULL ? json_copy(p->kwargs) : json_object();
    for (size_t i = 0; i < countof(names); i++) {
        if (p->thinks != THINKS_UNSAID && is_free(p, names[i])) {
            json_add_bool(o, names[i], p->thinks == THINKS_YES);
        }
    }
    if (p->effort != NULL && is_free(p, "reasoning_effort")) {
        json_add_str(o, "reasoning_effort", p->effort);
    }
    if (p->think_tokens > 0 && is_free(p, "thinking_budget")) {
        json_add_int(o, "thinking_budget", (int64_t)p->think_tokens);
    }
    *ret = (struct span){0};
    if (json_first(o) == NULL) {
        json_free(o);
        return 0;
    }
    return text_of(a, o, TEXT_BYTES_MAX, ret, e);
}

int documents_read(struct arena *a, const struct json *v, struct span *ret,
                   struct err *e)
{
    *ret = (struct span){0};
    if (v == NULL || json_type(v) == JSON_NULL) {
        return 0;
    }
    bool ok = json_type(v) == JSON_ARRAY;
    for (const struct json *c = ok ? json_first(v) : NULL; c != NULL;
         c = json_next(c)) {
        ok = ok && json_type(c) == JSON_OBJECT;
    }
    if (!ok) {
        return err_set(e, ERR_INVALID,
                       "documents: must be an array of objects");
    }
    return json_first(v) != NULL
               ? text_of(a, json_copy(v), TEXT_BYTES_MAX, ret, e)
               : 0;
}

/* Calls of strict tools keep to their schemas. */
static int read_strict(struct arena *a, const struct json *tools,
                       struct params *p, struct err *e)
{
    struct text_want *w = &p->req.want;
    size_t n = json_count(tools);
    size_t i = 0;
    bool *strict = arena_array(a, n + 1, sizeof(*strict));
    if (strict == NULL) {
        return message_too_big(e);
    }
    for (const struct json *t = json_first(tools); t != NULL;
         t = json_next(t)) {
        const struct json *f = json_get(t, "function");
        strict[i] = json_bool(json_get(f != NULL ? f : t, "strict"));
        w->strict = w->strict || strict[i];
        i++;
    }
    w->strict_tools = strict;
    w->one = p->one_call;
    return 0;
}

int tools_kwargs(struct arena *a, const struct json *tools,
                 enum tools_form form, struct params *p, struct span *ret_tools,
                 struct span *ret_kwargs, struct err *e)
{
    int rc = read_kwargs(a, p, ret_kwargs, e);
    p->kwargs = NULL; /* borrowed from the request's tree */
    if (rc == 0) {
        rc = tools_read(a, tools, form, ret_tools, e);
    }
    if (p->no_tools) { /* checked, and not shown */
        *ret_tools = (struct span){0};
    }
    return rc == 0 && ret_tools->n > 0 ? read_strict(a, tools, p, e) : rc;
}
