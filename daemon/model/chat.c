/* chat.c - which family a template belongs to, and messages as its variables.
 *
 * A family is recognised by marks that only its templates write. Rendering then
 * runs the template itself (chat_impl.h), as transformers does: trim_blocks,
 * lstrip_blocks, tools and documents none. So the small differences inside a
 * family are those of the model's own template.
 */
#include "model/chat.h"

#include <string.h>

#include "model/chat_impl.h"
#include "proto/limits.h"

static const struct family {
    enum chat_family family;
    const char *name;
    const char *marks[2]; /* all of them stand in the template */
    const char *never[2]; /* none of these does */
} families[] = {
    {CHAT_PHI4,   "phi4",   {"<|im_sep|>", NULL},          {NULL, NULL}          },
    {CHAT_CHATML, "chatml", {"<|im_start|>", NULL},        {NULL, NULL}          },
    {CHAT_LLAMA3, "llama3", {"<|start_header_id|>", NULL}, {NULL, NULL}          },
    {CHAT_GEMMA,  "gemma",  {"<start_of_turn>", NULL},     {NULL, NULL}          },
    {CHAT_LLAMA2, "llama2", {"[INST]", "<<SYS>>"},         {NULL, NULL}          },
    {CHAT_PHI4,   "phi4",   {"<|end|>", "<|/tool|>"},      {"<|message|>", NULL} },
    {CHAT_PHI3,   "phi3",   {"<|end|>", "<|assistant|>"},  {"<|message|>", NULL} },
    {CHAT_ZEPHYR, "zephyr", {"<|user|>", "eos_token"},     {"[gMASK]", "<|end|>"}},
};

/* For the message about a template of no known family. */
static const char *const other_marks[] = {
    "[INST]",
    "<|turn>",
    "<|message|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|start_of_role|>",
    "[gMASK]",
    "<|User|>",
    "### Instruction:",
    "USER:",
    "GPT4 Correct",
    "<|role_start|>",
};

static bool matches(const struct family *f, const char *tmpl)
{
    for (size_t i = 0; i < countof(f->marks); i++) {
        if (f->marks[i] != NULL && strstr(tmpl, f->marks[i]) == NULL) {
            return false;
        }
    }
    for (size_t i = 0; i < countof(f->never); i++) {
        if (f->never[i] != NULL && strstr(tmpl, f->never[i]) != NULL) {
            return false;
        }
    }
    return true;
}

const char *chat_family_name(enum chat_family f)
{
    for (size_t i = 0; i < countof(families); i++) {
        if (families[i].family == f) {
            return families[i].name;
        }
    }
    return "none";
}

static int parse(struct arena *a, const char *tmpl, struct node **ret,
                 struct err *e)
{
    struct toks t;
    if (strlen(tmpl) > CHAT_TEXT_MAX) {
        return err_set(e, ERR_TEMPLATE, "a chat template of %zu bytes",
                       strlen(tmpl));
    }
    int rc = chat_lex(a, tmpl, strlen(tmpl), &t, e);
    return rc < 0 ? rc : chat_parse(a, &t, ret, e);
}

int chat_detect(const char *tmpl, enum chat_family *ret, struct err *e)
{
    if (tmpl == NULL) {
        return err_set(e, ERR_TEMPLATE, "the model has no chat template");
    }
    const struct family *found = NULL;
    for (size_t i = 0; found == NULL && i < countof(families); i++) {
        if (matches(&families[i], tmpl)) {
            found = &families[i];
        }
    }
    if (found == NULL) {
        for (size_t i = 0; i < countof(other_marks); i++) {
            if (strstr(tmpl, other_marks[i]) != NULL) {
                return err_set(e, ERR_TEMPLATE,
                               "a chat template with %s is of no family aned "
                               "knows",
                               other_marks[i]);
            }
        }
        return err_set(e, ERR_TEMPLATE,
                       "a chat template of no known family: "
                       "\"%.60s...\"",
                       tmpl);
    }
    struct arena a;
    struct node *tree = NULL;
    arena_init(&a, CHAT_ARENA_MAX);
    int rc = parse(&a, tmpl, &tree, e);
    arena_fini(&a);
    if (rc == 0) {
        *ret = found->family;
    }
    return rc;
}

static struct span zspan(const char *z)
{
    return (struct span){z, strlen(z)};
}

/* The messages as a list of mappings. A template that does not know the
 * developer role gets such a message as a system message. */
static int messages_value(struct chat_env *v, const char *tmpl,
                          const struct chat_message *m, size_t n,
                          struct val *ret)
{
    bool developer = strstr(tmpl, "developer") != NULL;
    struct val_list *l = arena_alloc(v->arena, sizeof(*l));
    if (l == NULL ||
        (l->v = arena_array(v->arena, n + 1, sizeof(*l->v))) == NULL) {
        return err_set(v->e, ERR_TOO_BIG, "the messages");
    }
    for (; l->n < n; l->n++) {
        const char *role = m[l->n].role;
        struct val_map *one = arena_alloc(v->arena, sizeof(*one));
        if (one == NULL) {
            return err_set(v->e, ERR_TOO_BIG, "the messages");
        }
        if (strcmp(role, "developer") == 0 && !developer) {
            role = "system";
        }
        RETERR(val_map_put(v->arena, one, zspan("role"), val_strz(role), v->e));
        struct span text = {m[l->n].content, m[l->n].content_n};
        RETERR(
            val_map_put(v->arena, one, zspan("content"), val_str(text), v->e));
        l->v[l->n] = (struct val){.kind = V_MAP, .map = one};
    }
    *ret = (struct val){.kind = V_LIST, .list = l};
    return 0;
}

static int render(struct chat_env *v, const struct node *tree, const char *bos,
                  const char *eos, struct val messages, bool add_generation)
{
    const struct {
        const char *name;
        struct val v;
    } vars[] = {
        {"messages",              messages                },
        {"add_generation_prompt", val_bool(add_generation)},
        {"bos_token",             val_strz(bos)           },
        {"eos_token",             val_strz(eos)           },
        {"tools",                 {.kind = V_NONE}        },
        {"documents",             {.kind = V_NONE}        },
        {"strftime_now",          val_bool(true)          },
        {"raise_exception",       val_bool(true)          },
    };
    for (size_t i = 0; i < countof(vars); i++) {
        int rc = chat_set(v, zspan(vars[i].name), vars[i].v);
        if (rc < 0) {
            return rc;
        }
    }
    return chat_eval_block(v, tree);
}

int chat_render_at(const char *tmpl, const char *bos, const char *eos,
                   const struct chat_message *m, size_t n, bool add_generation,
                   int64_t now, struct buf *b, struct err *e)
{
    struct arena a;
    struct node *tree = NULL;
    struct val messages = {.kind = V_NONE};
    size_t before = b->n;
    if (n > CHAT_MESSAGES_MAX) {
        return err_set(e, ERR_TOO_BIG, "%zu messages", n);
    }
    arena_init(&a, CHAT_ARENA_MAX);
    struct chat_env *v = arena_alloc(&a, sizeof(*v));
    int rc = 0;
    CHECK(v == NULL ? err_set(e, ERR_NOMEM, "chat template")
                    : parse(&a, tmpl, &tree, e));
    v->arena = &a;
    v->out = b;
    v->e = e;
    v->now = (time_t)now;
    CHECK(messages_value(v, tmpl, m, n, &messages));
    CHECK(render(v, tree, bos, eos, messages, add_generation));
out:
    if (rc < 0 && b->p != NULL) {
        b->n = before; /* untouched on failure */
        b->p[before] = '\0';
    }
    arena_fini(&a);
    return rc;
}

int chat_render(enum chat_family f, const char *tmpl, const char *bos,
                const char *eos, const struct chat_message *m, size_t n,
                bool add_generation, struct buf *b, struct err *e)
{
    must(f != CHAT_NONE && tmpl != NULL);
    return chat_render_at(tmpl, bos, eos, m, n, add_generation,
                          (int64_t)time(NULL), b, e);
}
