/* fields_tools.c - see fields.h: fields about calls of tools and about what a
 * model thinks before it answers. The second kind goes to the chat template
 * (tools.h, kwargs_read), which knows what its model was taught. */
#include <string.h>

#include "api/fields.h"

/* At least one call; of the tool `name`, where that is not NULL. */
static int force(struct params *p, const struct field *f, const char *name,
                 struct err *e)
{
    p->req.want.call = true;
    p->req.want.name = name != NULL ? arena_str(p->a, name) : NULL;
    return name == NULL || p->req.want.name != NULL ? 0 : field_full(f, e);
}

/* OpenAI's two spellings of one tool. */
static int force_named(struct params *p, const struct field *f,
                       const struct json *v, struct err *e)
{
    const char *type = json_str(json_get(v, "type"));
    const struct json *of = json_get(v, "function");
    const char *name = json_str(json_get(of != NULL ? of : v, "name"));
    if (type == NULL || strcmp(type, "function") != 0) {
        return field_unsupported(
            f, e, "only none, auto, required, or {\"type\": \"function\"}");
    }
    return name != NULL ? force(p, f, name, e)
                        : field_want(f, e, "an object with the function's name");
}

int set_tool_choice(struct params *p, const struct field *f,
                    const struct json *v, struct err *e)
{
    const char *s = json_str(v);
    if (json_type(v) == JSON_OBJECT) {
        return force_named(p, f, v, e);
    }
    if (s == NULL) {
        return field_want(f, e, "a string or an object");
    }
    if (strcmp(s, "required") == 0) {
        return force(p, f, NULL, e);
    }
    if (strcmp(s, "none") != 0 && strcmp(s, "auto") != 0) {
        return field_unsupported(
            f, e, "only none, auto, required, or an object with a function");
    }
    p->no_tools = s[0] == 'n';
    return 0;
}

int set_tool_choice_object(struct params *p, const struct field *f,
                           const struct json *v, struct err *e)
{
    const char *type = json_str(json_get(v, "type"));
    const char *name = json_str(json_get(v, "name"));
    const struct json *one = json_get(v, "disable_parallel_tool_use");
    if (type == NULL) {
        return field_want(f, e, "an object with a type");
    }
    if (one != NULL && json_type(one) != JSON_BOOL &&
        json_type(one) != JSON_NULL) {
        return field_want(f, e, "{type, disable_parallel_tool_use: a boolean}");
    }
    p->one_call = one != NULL && json_bool(one);
    if (strcmp(type, "any") == 0) {
        return force(p, f, NULL, e);
    }
    if (strcmp(type, "tool") == 0) {
        return name != NULL
                   ? force(p, f, name, e)
                   : field_want(f, e, "an object with the tool's name");
    }
    if (strcmp(type, "auto") != 0 && strcmp(type, "none") != 0) {
        return field_unsupported(f, e, "only auto, none, any or tool");
    }
    p->no_tools = type[0] == 'n';
    return 0;
}

int set_parallel(struct params *p, const struct field *f, const struct json *v,
                 struct err *e)
{
    if (json_type(v) != JSON_BOOL) {
        return field_want(f, e, "true or false");
    }
    p->one_call = !json_bool(v);
    return 0;
}

/* Variables that the request has its own fields for. */
int set_kwargs(struct params *p, const struct field *f, const struct json *v,
               struct err *e)
{
    static const char *const own[] = {"messages", "tools", "documents"};
    if (json_type(v) != JSON_OBJECT) {
        return field_want(f, e, "an object");
    }
    for (size_t i = 0; i < countof(own); i++) {
        if (json_get(v, own[i]) != NULL) {
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: '%s' is a field of the request", f->name,
                           own[i]);
        }
    }
    p->kwargs = v;
    return 0;
}

static void think(struct params *p, bool yes)
{
    p->thinks = yes ? THINKS_YES : THINKS_NO;
}

int set_thinks(struct params *p, const struct field *f, const struct json *v,
               struct err *e)
{
    if (json_type(v) != JSON_BOOL) {
        return field_want(f, e, "true or false");
    }
    think(p, json_bool(v));
    return 0;
}

int set_effort(struct params *p, const struct field *f, const struct json *v,
               struct err *e)
{
    const char *s = json_str(v);
    if (s == NULL || strlen(s) > EFFORT_BYTES_MAX) {
        return field_want(f, e, "a short string");
    }
    if (strcmp(s, "none") == 0) {
        think(p, false);
        return 0;
    }
    p->effort = arena_str(p->a, s);
    return p->effort != NULL ? 0 : field_full(f, e);
}

int set_think(struct params *p, const struct field *f, const struct json *v,
              struct err *e)
{
    static const char *const efforts[] = {"low", "medium", "high", NULL};
    const struct field words = {.name = f->name, .words = efforts};
    if (json_type(v) == JSON_BOOL) {
        return set_thinks(p, f, v, e);
    }
    if (!field_is_word(&words, v)) {
        return field_want(f, e, "true, false, low, medium or high");
    }
    think(p, true);
    return set_effort(p, f, v, e);
}

int set_thinking(struct params *p, const struct field *f, const struct json *v,
                 struct err *e)
{
    static const char *const types[] = {"enabled", "disabled", "adaptive",
                                        NULL};
    const struct field words = {.name = f->name, .words = types};
    const struct json *budget = json_get(v, "budget_tokens");
    const struct json *type = json_get(v, "type");
    int64_t n = 0;
    if (type == NULL || !field_is_word(&words, type)) {
        return field_want(f, e,
                          "an object of type enabled, disabled or adaptive");
    }
    if (budget != NULL && json_type(budget) != JSON_NULL &&
        !json_int(budget, 1, MODEL_CONTEXT_MAX, &n)) {
        return field_want(f, e,
                          "an object whose budget_tokens is a number "
                          "of tokens");
    }
    p->think_tokens = (uint32_t)n;
    if (json_str(type)[0] != 'a') { /* adaptive leaves it to the model */
        think(p, json_str(type)[0] == 'e');
    }
    return 0;
}

int set_reasoning_format(struct params *p, const struct field *f,
                         const struct json *v, struct err *e)
{
    if (!field_is_word(f, v)) {
        return field_unsupported(f, e, "only none, auto or deepseek");
    }
    p->thoughts_in_text = strcmp(json_str(v), "none") == 0;
    return 0;
}
