/* openai_read.c - what a request of OpenAI's dialect says beside its fields:
 * prompt or messages, and the prediction. */
#include <string.h>

#include "api/fields.h"
#include "api/fill.h"
#include "api/messages.h"
#include "api/openai.h"
#include "api/tools.h"

/* [1, 2, 3], the value of `field`. */
static int read_tokens(struct arena *a, const struct json *v, const char *field,
                       const int32_t **ret, size_t *ret_n, struct err *e)
{
    size_t n = json_count(v), i = 0;
    if (n > TOKENS_MAX) {
        return err_set(e, ERR_TOO_BIG, "%s: more than %u tokens", field,
                       TOKENS_MAX);
    }
    int32_t *t = arena_array(a, n + 1, sizeof(*t));
    if (t == NULL) {
        return message_too_big(e);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int64_t id = 0;
        if (!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            return err_set(e, ERR_INVALID,
                           "%s: entry %zu of the array is no token id", field,
                           i);
        }
        t[i++] = (int32_t)id;
    }
    *ret = t;
    *ret_n = n;
    return 0;
}

static int read_text(struct call *c, const char *text, struct call_prompt *p,
                     struct err *e)
{
    size_t n = strlen(text);
    p->kind = GEN_TEXT;
    p->text = arena_strn(&c->arena, text, n);
    p->text_n = n;
    if (p->text == NULL) {
        return message_too_big(e);
    }
    p->echo_at = c->echo.n;
    if (c->p.echo && c->p.stream) {
        buf_put(&c->echo, text, n);
    } else if (c->p.echo) {
        json_put_text(&c->echo, text, n);
    }
    p->echo_n = c->echo.n - p->echo_at;
    if (!buf_ok(&c->echo) || c->echo.n > ANSWER_BYTES_MAX / c->p.req.n) {
        return err_set(e, ERR_TOO_BIG, "echo: the answer is over the limit");
    }
    return 0;
}

/* What is between prompt and suffix. */
static int read_gap(struct call *c, const char *text, const char *suffix,
                    struct err *e)
{
    struct fim_text *f = NULL;
    c->field = "suffix";
    if (text == NULL || c->p.echo) {
        return err_set(e, ERR_UNSUPPORTED,
                       "suffix: only with a text prompt, without echo");
    }
    return fill_request(&c->arena, text, NULL, suffix, &c->p.req, &f, e);
}

/* One prompt of type t: a string or [int]. */
static int read_one(struct call *c, const struct json *v, enum json_type t,
                    struct call_prompt *p, struct err *e)
{
    if (json_type(v) != t) {
        return err_set(e, ERR_INVALID,
                       "prompt: texts and arrays of token ids together");
    }
    if (t == JSON_STRING) {
        return read_text(c, json_str(v), p, e);
    }
    p->kind = GEN_TOKENS;
    return read_tokens(&c->arena, v, "prompt", &p->tokens, &p->n_tokens, e);
}

static int read_one_alone(struct call *c, const struct json *v, struct err *e)
{
    struct gen_req *q = &c->p.req;
    struct call_prompt p = {0};
    RETERR(read_one(c, v, json_type(v), &p, e));
    q->kind = p.kind;
    q->text = p.text;
    q->text_n = p.text_n;
    q->tokens = p.tokens;
    q->n_tokens = p.n_tokens;
    return 0;
}

/* [string, ...] or [[int], ...]. */
static int read_several(struct call *c, const struct json *v, size_t n,
                        struct err *e)
{
    if (n > PROMPTS_MAX) {
        return err_set(e, ERR_TOO_BIG, "prompt: more than %u prompts",
                       PROMPTS_MAX);
    }
    if (n * c->p.req.n > ANSWER_CHOICES_MAX) {
        return err_set(e, ERR_TOO_BIG,
                       "prompt: %zu prompts with n %u are more than %u choices",
                       n, c->p.req.n, ANSWER_CHOICES_MAX);
    }
    struct call_prompt *p = arena_array(&c->arena, n, sizeof(*p));
    if (p == NULL) {
        return message_too_big(e);
    }
    c->prompts = p;
    c->n_prompts = (uint32_t)n;
    enum json_type t = json_type(json_first(v));
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        RETERR(read_one(c, x, t, p++, e));
    }
    return 0;
}

/* A string or [int], or several of them. */
static int read_prompt(struct call *c, const struct json *j, struct err *e)
{
    const struct json *v = json_get(j, "prompt");
    const char *text = json_str(v);
    const char *suffix = json_str(json_get(j, "suffix"));
    if (suffix != NULL && suffix[0] != '\0') {
        return read_gap(c, text, suffix, e);
    }
    const struct json *first = json_first(v);
    bool many = v != NULL && json_type(v) == JSON_ARRAY && first != NULL;
    enum json_type t = many ? json_type(first) : JSON_NULL;
    if (text != NULL || t == JSON_NUMBER) {
        return read_one_alone(c, v, e);
    }
    if (t != JSON_STRING && t != JSON_ARRAY) {
        return err_set(e, ERR_INVALID,
                       "prompt: must be a string, an array of token ids, or an "
                       "array of one of them, not empty");
    }
    size_t n = json_count(v);
    return n == 1 ? read_one_alone(c, first, e) : read_several(c, v, n, e);
}

/* message_part_fn */
static int read_part(const struct json *v, const char *where, const char **ret,
                     struct err *e)
{
    *ret = field_text_part(v);
    return *ret != NULL ? 0
                        : err_set(e, ERR_UNSUPPORTED,
                                  "%s: only parts of type text", where);
}

/* The members of a role's message, and what it has beside content. */
struct role {
    const char *name;
    const char *keys[8];
};

static const struct role roles_with_more[] = {
    {"assistant",
     {"role", "content", "name", "reasoning_content", "reasoning", "tool_calls",
      "provider_specific_fields"}}, /* litellm's notes on what it got */
    {"tool",      {"role", "content", "tool_call_id", "name"}},
};
static const char *const roles[] = {"system",    "developer", "user",
                                    "assistant", "tool",      NULL};

/* Role function and function_call: they went with `functions`. */
static int check_members(const struct json *v, const char *where, struct err *e)
{
    static const char *const plain[] = {"role", "content", "name", NULL};
    const char *role = json_str(json_get(v, "role"));
    const char *const *keys = plain;
    if (json_type(v) != JSON_OBJECT || role == NULL) {
        return 0; /* message_role says so */
    }
    if (strcmp(role, "function") == 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s.role: no function, the older form of tool", where);
    }
    for (size_t i = 0; i < countof(roles_with_more); i++) {
        if (strcmp(roles_with_more[i].name, role) == 0) {
            keys = roles_with_more[i].keys;
        }
    }
    return message_only(v, where, keys, e);
}

static int read_more(struct calls *k, struct arena *a, const struct json *v,
                     const char *where, struct chat_message *m, struct err *e)
{
    const char *id = NULL, *name = NULL;
    if (strcmp(m->role, "assistant") == 0) {
        RETERR(message_reasoning(a, json_get(v, "reasoning"), where, m, e));
        RETERR(message_reasoning(a, json_get(v, "reasoning_content"), where, m,
                                 e));
        RETERR(calls_read(k, a, json_get(v, "tool_calls"), where, m, e));
    }
    if (strcmp(m->role, "tool") != 0) {
        return message_name(a, v, where, m, e);
    }
    int rc = json_want_str(v, "tool_call_id", false, &id, e);
    if (rc == 0) {
        rc = json_want_str(v, "name", false, &name, e);
    }
    return rc == 0 ? calls_answer(k, a, id, name, m, e)
                   : err_prefix(e, rc, "%s", where);
}

static int read_message(struct calls *k, struct arena *a, const struct json *v,
                        size_t i, struct chat_message *m, struct err *e)
{
    char where[48], content[64];
    (void)snprintf(where, sizeof(where), "messages[%zu]", i);
    (void)snprintf(content, sizeof(content), "%s.content", where);
    const struct json *text = json_get(v, "content");
    RETERR(check_members(v, where, e));
    RETERR(message_role(v, where, roles, &m->role, e));
    RETERR(read_more(k, a, v, where, m, e));
    if (strcmp(m->role, "assistant") == 0 &&
        (text == NULL ? json_get(v, "tool_calls") != NULL && m->fields.n > 0
                      : json_type(text) == JSON_NULL)) {
        m->content = "";
        return 0;
    }
    return message_content(a, text, content, read_part, false, m, e);
}

static int read_messages(struct call *c, const struct json *j, struct err *e)
{
    struct gen_req *q = &c->p.req;
    const struct json *v = json_get(j, "messages");
    struct calls k = {0};
    size_t i = 0;
    q->kind = GEN_CHAT;
    RETERR(messages_room(&c->arena, v, 0, &q->messages, &q->n_messages, e));
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        RETERR(read_message(&k, &c->arena, x, i, &q->messages[i], e));
        i++;
    }
    return 0;
}

/* What the answer may look like: checked by params.c. */
static int read_prediction(struct call *c, struct err *e)
{
    struct gen_req *q = &c->p.req;
    const struct json *v = c->p.prediction;
    struct buf b;
    if (v == NULL) {
        return 0;
    }
    c->p.prediction = NULL; /* borrowed from the request's tree */
    if (json_type(json_first(v)) == JSON_NUMBER) {
        return read_tokens(&c->arena, v, "prediction", &q->guess_tokens,
                           &q->n_guess_tokens, e);
    }
    buf_init(&b, TEXT_BYTES_MAX);
    if (json_str(v) != NULL) {
        buf_puts(&b, json_str(v));
    }
    for (const struct json *part = json_first(v); part != NULL;
         part = json_next(part)) {
        buf_puts(&b, json_str(json_get(part, "text")));
    }
    q->guess = arena_strn(&c->arena, b.p != NULL ? b.p : "", b.n);
    q->guess_n = b.n;
    int rc = buf_ok(&b) && q->guess != NULL ? 0 : message_too_big(e);
    buf_fini(&b);
    return rc;
}

int openai_read_completion(struct call *c, const struct json *j, struct err *e)
{
    c->field = "prompt";
    if (c->of_session[0] == '\0') {
        RETERR(read_prompt(c, j, e));
    } else if (json_get(j, "prompt") != NULL || json_get(j, "model") != NULL ||
               json_get(j, "suffix") != NULL || c->p.echo || c->p.req.n != 1) {
        return err_set(e, ERR_UNSUPPORTED,
                       "prompt, suffix, model, echo, n: not with a session");
    }
    c->field = "prediction";
    return read_prediction(c, e);
}

/* `key`, where it is given, says what happens anyway. */
static int only_this(struct call *c, const struct json *j, const char *key,
                     bool happens, struct err *e)
{
    const struct json *v = json_get(j, key);
    if (v == NULL || json_type(v) == JSON_NULL || json_bool(v) == happens) {
        return 0;
    }
    c->field = key;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: only %s: a last message is continued where it is the "
                   "assistant's",
                   key, happens ? "true" : "false");
}

/* A last message of the assistant is continued (chat.h). */
static int read_continuation(struct call *c, const struct json *j,
                             struct err *e)
{
    const struct gen_req *q = &c->p.req;
    bool on = strcmp(q->messages[q->n_messages - 1].role, "assistant") == 0;
    RETERR(only_this(c, j, "continue_final_message", on, e));
    return only_this(c, j, "add_generation_prompt", !on, e);
}

int openai_read_chat(struct call *c, const struct json *j, struct err *e)
{
    c->field = "messages";
    RETERR(read_messages(c, j, e));
    RETERR(read_continuation(c, j, e));
    c->field = "tools";
    RETERR(tools_kwargs(&c->arena, json_get(j, "tools"), TOOLS_FUNCTIONS, &c->p,
                        &c->p.req.tools, &c->p.req.kwargs, e));
    c->field = "documents";
    RETERR(documents_read(&c->arena, json_get(j, "documents"),
                          &c->p.req.documents, e));
    c->field = "prediction";
    return read_prediction(c, e);
}
