/* want.c - see want.h. */
#include "serve/gen/want.h"

#include <string.h>

#include "model/grammar/grammar.h"
#include "model/reply/constrain.h"
#include "proto/json.h"

static bool has_tool(const struct json *tools, const char *name)
{
    for (const struct json *t = json_first(tools); t != NULL;
         t = json_next(t)) {
        const char *s = json_str(json_get(json_get(t, "function"), "name"));
        if (s != NULL && strcmp(s, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The tools that the template is shown, each with what it is not told. NULL:
 * there are none. */
static int read_tools(struct text_work *w, struct json **ret)
{
    const bool *strict = w->want.strict_tools;
    struct json *shown = NULL;
    size_t i = 0;
    *ret = NULL;
    if (w->tools.n == 0) {
        return 0;
    }
    RETERR(json_parse(w->tools.p, w->tools.n, &shown, &w->e));
    *ret = json_array();
    for (const struct json *t = json_first(shown); t != NULL;
         t = json_next(t)) {
        struct json *f = json_copy(json_get(t, "function"));
        struct json *o = json_add_object(*ret, NULL);
        json_add_bool(f, "strict", strict != NULL && strict[i++]);
        json_add_str(o, "type", "function");
        json_add_tree(o, "function", f);
    }
    json_free(shown);
    return 0;
}

/* A call has to be one of a tool that there is. */
static int check_call(struct text_work *w, const struct json *tools)
{
    const struct text_want *x = &w->want;
    w->blame = "tool_choice";
    if (tools == NULL) {
        return err_set(&w->e, ERR_INVALID, "tool_choice: there are no tools");
    }
    return x->name == NULL || has_tool(tools, x->name)
               ? 0
               : err_set(&w->e, ERR_INVALID, "tool_choice: no tool '%.100s'",
                         x->name);
}

/* The answer of a chat: thoughts, calls and text in the model's own form. */
static int of_chat(const struct voc *v, struct text_work *w)
{
    const struct text_want *x = &w->want;
    struct json *tools = NULL;
    int rc = 0;
    RETERR(read_tools(w, &tools));
    rc = x->call ? check_call(w, tools) : 0;
    if (rc < 0) {
        json_free(tools);
        return rc;
    }
    const struct reply_want want = {
        .tools = tools,
        .kind = x->call                      ? WANT_CALL
                : tools != NULL && x->strict ? WANT_AUTO
                                             : WANT_ANSWER,
        .name = x->name,
        .parallel = !x->one,
        .answer = x->answer,
        .thoughts_open = reply_opens_thought(&v->forms, w->out.p, w->out.n),
        .thoughts_off = reply_closes_thought(&v->forms, w->out.p, w->out.n)};
    w->blame = x->call || x->strict ? "tools" : x->answer_field;
    rc = reply_constraint(&v->forms, &want, &w->constraint, &w->e);
    json_free(tools);
    return rc < 0 ? err_prefix(&w->e, rc, "%s", w->blame) : 0;
}

int want_constraint(const struct voc *v, struct text_work *w)
{
    const struct text_want *x = &w->want;
    struct grammar *g = NULL;
    buf_init(&w->constraint, CONSTRAINT_BYTES_MAX);
    if (w->kind == TEXT_CHAT) {
        RETERR(of_chat(v, w));
    } else {
        w->blame = x->answer_field;
        buf_put(&w->constraint, x->answer, strlen(x->answer));
    }
    if (!buf_ok(&w->constraint)) {
        return err_set(&w->e, ERR_TOO_BIG, "%s: more than %zu bytes", w->blame,
                       CONSTRAINT_BYTES_MAX);
    }
    int rc = grammar_from_text(w->constraint.p, w->constraint.n, &g, &w->e);
    grammar_free(g);
    if (rc < 0) {
        return err_prefix(&w->e, rc, "%s", w->blame);
    }
    w->blame = NULL;
    return 0;
}
