/* chat.c - messages as the variables of a model's chat template. */
#include "model/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "model/chat_continue.h"
#include "model/jinja/ast.h"
#include "proto/limits.h"

/* What templates call the thoughts of an earlier answer. */
static const char *const thoughts[] = {"reasoning_content", "reasoning",
                                       "thinking"};

struct chat_template {
    struct jinja *jinja;
    bool developer;                   /* its text knows that role */
    bool thoughts[countof(thoughts)]; /* its text has this name; also as a
                                         string: m['thinking'] */
};

int chat_read(const char *path, struct buf *text, struct err *e)
{
    int rc = file_read(path, JINJA_TEXT_MAX, text, e);
    if (rc == ERR_TOO_BIG) {
        return err_set(e, ERR_TEMPLATE,
                       "a chat template of more than %zu bytes",
                       (size_t)JINJA_TEXT_MAX);
    }
    if (rc == 0 && strlen(text->p) != text->n) {
        buf_fini(text);
        rc = err_set(e, ERR_TEMPLATE, "a NUL byte in the chat template");
    }
    return rc;
}

int chat_compile(const char *tmpl, struct chat_template **ret, struct err *e)
{
    if (tmpl == NULL) {
        return err_set(e, ERR_TEMPLATE, "the model has no chat template");
    }
    struct jinja *j = NULL;
    RETERR(jinja_compile(tmpl, strlen(tmpl), &j, e));
    struct chat_template *t = calloc(1, sizeof(*t));
    must(t != NULL);
    t->jinja = j;
    t->developer = strstr(tmpl, "developer") != NULL;
    for (size_t i = 0; i < countof(thoughts); i++) {
        t->thoughts[i] = strstr(tmpl, thoughts[i]) != NULL;
    }
    *ret = t;
    return 0;
}

void chat_free(struct chat_template *t)
{
    if (t != NULL) {
        jinja_free(t->jinja);
        free(t);
    }
}

bool chat_mentions(const struct chat_template *t, const char *name)
{
    return intern_find(&t->jinja->names, zspan(name)).p != NULL;
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "the messages");
}

/* d gets a member; one of that name already there is an error or, with
 * `replace`, goes. */
static int put(struct arena *a, struct val_dict *d, struct val key,
               struct val v, bool replace, struct err *e)
{
    if (!replace && dict_get(d, &key) != NULL) {
        return err_set(e, ERR_JSON, "'%.*s' stands twice in a message",
                       (int)(key.s.n < 60 ? key.s.n : 60), key.s.p);
    }
    return dict_put(a, d, key, v) ? 0 : no_memory(e);
}

static int putz(struct arena *a, struct val_dict *d, const char *key,
                struct val v, struct err *e)
{
    return put(a, d, val_strz(key), v, true, e);
}

/* The members of a JSON object into d. */
static int put_json(struct arena *a, struct val_dict *d, struct span json,
                    bool replace, const char *what, struct err *e)
{
    struct val v;
    if (json.n == 0) {
        return 0;
    }
    int rc = val_from_json(a, json.p, json.n, &v, e);
    if (rc == 0 && v.kind != V_DICT) {
        rc = err_set(e, ERR_JSON, "must be an object");
    }
    if (rc < 0) {
        return err_prefix(e, rc, "%s", what);
    }
    for (size_t i = 0; i < v.dict->n; i++) {
        RETERR(put(a, d, v.dict->item[i].key, v.dict->item[i].v, replace, e));
    }
    return 0;
}

/* The arguments of one call. A text that is no JSON object stays. */
static int parse_arguments(struct arena *a, const struct val *call,
                           struct err *e)
{
    struct val key = val_strz("arguments"), v;
    const struct val *f =
        call->kind == V_DICT ? dict_gets(call->dict, zspan("function")) : NULL;
    const struct val *s =
        f != NULL && f->kind == V_DICT ? dict_get(f->dict, &key) : NULL;
    if (s == NULL || s->kind != V_STR ||
        val_from_json(a, s->s.p, s->s.n, &v, NULL) < 0 || v.kind != V_DICT) {
        return 0;
    }
    return put(a, f->dict, key, v, true, e);
}

static int parse_calls(struct arena *a, const struct val_dict *message,
                       struct err *e)
{
    const struct val *calls = dict_gets(message, zspan("tool_calls"));
    for (size_t i = 0;
         calls != NULL && calls->kind == V_LIST && i < calls->list->n; i++) {
        RETERR(parse_arguments(a, &calls->list->v[i], e));
    }
    return 0;
}

static int put_reasoning(const struct chat_template *t, struct arena *a,
                         const struct chat_message *m, struct val_dict *d,
                         struct err *e)
{
    struct span text = {m->reasoning, m->reasoning_n};
    if (m->reasoning != NULL && !utf8_valid(text.p, text.n)) {
        return err_set(e, ERR_INVALID, "a message that is not UTF-8");
    }
    for (size_t i = 0; m->reasoning != NULL && i < countof(thoughts); i++) {
        if (t->thoughts[i]) {
            RETERR(putz(a, d, thoughts[i], val_str(text), e));
        }
    }
    return 0;
}

static int message_value(const struct chat_template *t, struct arena *a,
                         const struct chat_message *m, bool parse,
                         struct val *ret, struct err *e)
{
    struct val_dict *d = arena_alloc(a, sizeof(*d));
    const char *role = m->role;
    if (d == NULL) {
        return no_memory(e);
    }
    if (strcmp(role, "developer") == 0 && !t->developer) {
        role = "system";
    }
    RETERR(putz(a, d, "role", val_strz(role), e));
    if (m->content != NULL) {
        struct span text = {m->content, m->content_n};
        if (!utf8_valid(text.p, text.n)) {
            return err_set(e, ERR_INVALID, "a message that is not UTF-8");
        }
        RETERR(putz(a, d, "content", val_str(text), e));
    }
    RETERR(put_json(a, d, m->fields, false, "a message", e));
    RETERR(put_reasoning(t, a, m, d, e));
    if (parse && m->fields.n > 0) {
        RETERR(parse_calls(a, d, e));
    }
    *ret = val_dict_of(d);
    return 0;
}

static int messages_value(const struct chat_template *t, struct arena *a,
                          const struct chat_request *q, struct val *ret,
                          struct err *e)
{
    struct val_list *l = arena_alloc(a, sizeof(*l));
    if (q->n_messages > CHAT_MESSAGES_MAX) {
        return err_set(e, ERR_TOO_BIG, "%zu messages", q->n_messages);
    }
    if (l == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < q->n_messages; i++) {
        struct val one;
        RETERR(message_value(t, a, &q->messages[i], q->parse, &one, e));
        if (!list_push(a, l, one)) {
            return no_memory(e);
        }
    }
    *ret = (struct val){.kind = V_LIST, .list = l};
    return 0;
}

/* A JSON array as a variable; none when there is none. */
static int put_array(struct arena *a, struct val_dict *d, const char *key,
                     struct span json, struct err *e)
{
    struct val v = val_none;
    int rc = json.n > 0 ? val_from_json(a, json.p, json.n, &v, e) : 0;
    if (rc == 0 && v.kind != V_NONE && v.kind != V_LIST) {
        rc = err_set(e, ERR_JSON, "must be an array");
    }
    return rc < 0 ? err_prefix(e, rc, "%s", key) : putz(a, d, key, v, e);
}

static int fill(const struct chat_template *t, struct arena *a,
                const struct chat_request *q, struct val_dict *d, struct err *e)
{
    struct val messages = val_none;
    RETERR(messages_value(t, a, q, &messages, e));
    RETERR(putz(a, d, "messages", messages, e));
    RETERR(putz(a, d, "add_generation_prompt", val_bool(q->add_generation), e));
    RETERR(putz(a, d, "bos_token", val_strz(q->bos), e));
    RETERR(putz(a, d, "eos_token", val_strz(q->eos), e));
    RETERR(put_array(a, d, "tools", q->tools, e));
    RETERR(put_array(a, d, "documents", q->documents, e));
    return put_json(a, d, q->kwargs, true, "chat_template_kwargs", e);
}

/* Render, and end inside the last message. b is untouched on failure. */
static int render_on(const struct chat_template *t, struct arena *a,
                     struct val_dict *vars, int64_t now, uint32_t steps,
                     struct buf *b, struct err *e)
{
    struct span text = {0};
    size_t from = b->n;
    RETERR(continue_mark(a, vars, &text, e));
    RETERR(jinja_render(t->jinja, a, vars, now, steps, b, e));
    if (!buf_ok(b)) {
        return 0; /* the caller's limit; it looks */
    }
    int rc = continue_cut(b, from, text, e);
    if (rc != 0 && b->p != NULL) {
        b->n = from;
        b->p[from] = '\0';
    }
    return rc;
}

static int render(const struct chat_template *t, const struct chat_request *q,
                  struct buf *b, struct err *e)
{
    struct arena a;
    struct val_dict vars = {0};
    arena_init(&a, JINJA_ARENA_MAX);
    int rc = fill(t, &a, q, &vars, e);
    bool on =
        rc == 0 && q->go_on && q->add_generation && continue_wanted(&vars);
    if (on) {
        rc = putz(&a, &vars, "add_generation_prompt", val_bool(false), e);
    }
    if (rc == 0 && on) {
        rc = render_on(t, &a, &vars, q->now, q->steps, b, e);
    } else if (rc == 0) {
        rc = jinja_render(t->jinja, &a, &vars, q->now, q->steps, b, e);
    }
    arena_fini(&a);
    return rc;
}

/* --- neighbours --- */

/* What stands between two texts, as mistral-common joins them. */
#define BETWEEN "\n\n"

/* Texts of one role, and nothing beside them: results of two tools stay two. Of
 * their thoughts the first one's stay. */
static bool alike(const struct chat_message *x, const struct chat_message *y)
{
    return x->content != NULL && y->content != NULL && x->fields.n == 0 &&
           y->fields.n == 0 && strcmp(x->role, y->role) == 0 &&
           strcmp(x->role, "tool") != 0;
}

/* The texts of m[0 .. n) as one message. */
static bool join_run(struct arena *a, const struct chat_message *m, size_t n,
                     struct chat_message *to)
{
    const size_t between = sizeof(BETWEEN) - 1;
    size_t total = between * (n - 1), at = 0;
    *to = *m;
    if (n == 1) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        total += m[i].content_n;
    }
    char *p = arena_alloc(a, total + 1);
    if (p == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(p + at, BETWEEN, i > 0 ? between : 0);
        at += i > 0 ? between : 0;
        memcpy(p + at, m[i].content, m[i].content_n);
        at += m[i].content_n;
    }
    p[total] = '\0';
    to->content = p;
    to->content_n = total;
    return true;
}

/* The messages with neighbours joined, in a; NULL: there are none, or no room.
 */
static const struct chat_message *
join(struct arena *a, const struct chat_request *q, size_t *ret_n)
{
    const struct chat_message *m = q->messages;
    struct chat_message *to = arena_alloc(a, q->n_messages * sizeof(*to));
    size_t n = 0;
    for (size_t i = 0, run = 1; to != NULL && i < q->n_messages; i += run) {
        run = 1;
        while (i + run < q->n_messages && alike(&m[i], &m[i + run])) {
            run++;
        }
        if (!join_run(a, &m[i], run, &to[n++])) {
            return NULL;
        }
    }
    *ret_n = n;
    return n < q->n_messages ? to : NULL;
}

/* The same; arguments as objects, then as the texts that they came as. */
static int render_parsed(const struct chat_template *t,
                         const struct chat_request *q, struct buf *b,
                         struct err *e)
{
    struct chat_request texts = *q;
    struct err again = {0};
    bool calls = false;
    int rc = render(t, q, b, e);
    for (size_t i = 0; rc == ERR_TEMPLATE_INPUT && i < q->n_messages; i++) {
        calls = calls || q->messages[i].fields.n > 0;
    }
    texts.parse = false;
    return q->parse && calls && render(t, &texts, b, &again) == 0 ? 0 : rc;
}

int chat_render(const struct chat_template *t, const struct chat_request *q,
                struct buf *b, struct err *e)
{
    struct err why = {0}, again = {0};
    int rc = render_parsed(t, q, b, &why);
    if (rc == ERR_TEMPLATE_INPUT && q->join) {
        struct arena a;
        struct chat_request joined = *q;
        arena_init(&a, JINJA_ARENA_MAX);
        joined.messages = join(&a, q, &joined.n_messages);
        if (joined.messages != NULL &&
            render_parsed(t, &joined, b, &again) == 0) {
            rc = 0;
        }
        arena_fini(&a);
    }
    if (rc != 0) {
        *e = why; /* about the messages as they came */
    }
    return rc;
}

int chat_render_json(const struct chat_template *t, struct span vars,
                     const char *bos, const char *eos, int64_t now,
                     struct buf *b, struct err *e)
{
    struct arena a;
    struct val_dict d = {0};
    const struct val *on = NULL;
    int rc = 0;
    arena_init(&a, JINJA_ARENA_MAX);
    if (bos != NULL) {
        CHECK(putz(&a, &d, "bos_token", val_strz(bos), e));
    }
    if (eos != NULL) {
        CHECK(putz(&a, &d, "eos_token", val_strz(eos), e));
    }
    CHECK(putz(&a, &d, "tools", val_none, e));
    CHECK(putz(&a, &d, "documents", val_none, e));
    CHECK(put_json(&a, &d, vars, true, "the variables", e));
    on = dict_gets(&d, zspan("continue_final_message"));
    if (on != NULL && val_true(on)) {
        CHECK(render_on(t, &a, &d, now, 0, b, e));
    } else {
        CHECK(jinja_render(t->jinja, &a, &d, now, 0, b, e));
    }
out:
    arena_fini(&a);
    return rc;
}
