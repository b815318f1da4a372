/* responses_tools.c - tools of a request of /v1/responses.
 *
 * The model is shown functions, those of namespaces among them, in the form of
 * chat: {"type": "function", "function": {...}}. What a service would run by
 * itself (web_search, file_search, ...) and custom tools, whose input is no
 * JSON, are left out: with tool_choice auto a model need not call them. The
 * answer's "tools" are those that the model was shown. */
#include <string.h>

#include "api/responses.h"
#include "api/tools.h"

struct reader {
    struct responses *x;
    struct json *shown;     /* the answer's "tools" */
    struct json *functions; /* the model's, in the form of chat */
    uint32_t n;
};

static bool is(const struct json *v, const char *type)
{
    const char *s = json_str(json_get(v, "type"));
    return s != NULL && strcmp(s, type) == 0;
}

/* {"name", "description", "parameters", "strict"}: the flat form has more. */
static void put_function(struct reader *r, const struct json *v)
{
    static const char *const keys[] = {"name", "description", "parameters",
                                       "strict"};
    struct json *o = json_add_object(r->functions, NULL);
    struct json *in = NULL;
    json_add_str(o, "type", "function");
    in = json_add_object(o, "function");
    for (size_t i = 0; i < countof(keys); i++) {
        const struct json *x = json_get(v, keys[i]);
        if (x != NULL && json_type(x) != JSON_NULL) {
            json_add_tree(in, keys[i], json_copy(x));
        }
    }
    r->n++;
}

static int read_function(struct reader *r, const struct json *v,
                         const char *where, const char *space, struct err *e)
{
    const char *name = json_str(json_get(v, "name"));
    const struct json *p = json_get(v, "parameters");
    const struct json *text = json_get(v, "description");
    if (name == NULL || name[0] == '\0') {
        return err_set(e, ERR_INVALID, "%s.name: must be a string", where);
    }
    if (text != NULL && json_type(text) != JSON_NULL &&
        json_str(text) == NULL) {
        return err_set(e, ERR_INVALID, "%s.description: must be a string",
                       where);
    }
    if (p != NULL && json_type(p) != JSON_NULL && json_type(p) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID, "%s.parameters: must be an object",
                       where);
    }
    if (r->n >= TOOLS_MAX) {
        return err_set(e, ERR_INVALID, "tools: at most %u functions",
                       TOOLS_MAX);
    }
    put_function(r, v);
    if (space != NULL) {
        buf_put(&r->x->spaces, name, strlen(name) + 1);
        buf_put(&r->x->spaces, space, strlen(space) + 1);
    }
    return buf_ok(&r->x->spaces) ? 0 : message_too_big(e);
}

/* Functions that stand together; their names are their own. */
static int read_space(struct reader *r, const struct json *v, const char *where,
                      struct err *e)
{
    const char *space = json_str(json_get(v, "name"));
    size_t i = 0;
    if (space == NULL || space[0] == '\0') {
        return err_set(e, ERR_INVALID, "%s.name: must be a string", where);
    }
    for (const struct json *f = json_first(json_get(v, "tools")); f != NULL;
         f = json_next(f)) {
        char at[80];
        (void)snprintf(at, sizeof(at), "%s.tools[%zu]", where, i++);
        if (is(f, "function")) {
            RETERR(read_function(r, f, at, space, e));
        }
    }
    return 0;
}

static int read_tool(struct reader *r, const struct json *v, size_t i,
                     struct err *e)
{
    char where[48];
    (void)snprintf(where, sizeof(where), "tools[%zu]", i);
    if (json_str(json_get(v, "type")) == NULL) {
        return err_set(e, ERR_INVALID, "%s.type: must be a string", where);
    }
    bool space = is(v, "namespace");
    if (!space && !is(v, "function")) {
        return 0;
    }
    RETERR(space ? read_space(r, v, where, e)
                 : read_function(r, v, where, NULL, e));
    struct json *o = json_copy(v);
    if (!space && json_get(v, "strict") == NULL) {
        json_add_bool(o, "strict", false);
    }
    json_add_tree(r->shown, NULL, o);
    return 0;
}

int responses_tools(struct call *c, const struct json *j, struct json *echo,
                    struct err *e)
{
    const struct json *v = json_get(j, "tools");
    struct reader r = {.x = responses_of(c),
                       .shown = json_add_array(echo, "tools"),
                       .functions = json_array()};
    size_t i = 0;
    int rc = 0;
    c->field = "tools";
    for (const struct json *t = json_first(v); t != NULL && rc == 0;
         t = json_next(t)) {
        rc = read_tool(&r, t, i++, e);
    }
    if (rc == 0) {
        rc = tools_kwargs(&c->arena, r.functions, TOOLS_FUNCTIONS, &c->p,
                          &c->p.req.tools, &c->p.req.kwargs, e);
    }
    json_free(r.functions);
    return rc;
}

const char *responses_space(const struct responses *x, const char *name)
{
    for (size_t at = 0; at < x->spaces.n;) {
        const char *its = x->spaces.p + at;
        const char *space = its + strlen(its) + 1;
        if (strcmp(its, name) == 0) {
            return space;
        }
        at = (size_t)(space - x->spaces.p) + strlen(space) + 1;
    }
    return NULL;
}
