/* What dialects read beside the fields: prompts, conversations, blocks, tools.
 * Whatever is taken is whole and has roles that templates know; whatever is
 * refused has words. */
#include <string.h>

#include "api/anthropic.h"
#include "api/llamacpp.h"
#include "api/ollama.h"
#include "api/openai.h"
#include "api/responses.h"

/* Texts for templates are JSON of this type. */
static void check_json(struct span s, enum json_type type)
{
    struct json *j = NULL;
    if (s.n > 0) {
        must(json_parse(s.p, s.n, &j, NULL) == 0 && json_type(j) == type);
        must(json_first(j) != NULL);
    }
    json_free(j);
}

static void check_message(const struct chat_message *m)
{
    static const char *const roles[] = {"system", "developer", "user",
                                        "assistant", "tool"};
    bool known = false;
    for (size_t i = 0; i < countof(roles); i++) {
        known = known || strcmp(m->role, roles[i]) == 0;
    }
    must(known && m->content != NULL && strlen(m->content) == m->content_n);
    must(m->reasoning == NULL || strlen(m->reasoning) == m->reasoning_n);
    check_json(m->fields, JSON_OBJECT);
}

static void check_span(struct span s)
{
    must(s.p != NULL && strlen(s.p) == s.n);
}

static void check_gap(const struct fim_text *f)
{
    check_span(f->prefix);
    check_span(f->prompt);
    check_span(f->suffix);
    must(f->n_files <= FIM_FILES_MAX);
    for (size_t i = 0; i < f->n_files; i++) {
        check_span(f->files[i].name);
        check_span(f->files[i].text);
    }
}

static void check_prompts(const struct call *c)
{
    must(c->n_prompts <= PROMPTS_MAX);
    must(c->n_prompts * c->p.req.n <= ANSWER_CHOICES_MAX);
    for (uint32_t i = 0; i < c->n_prompts; i++) {
        const struct call_prompt *p = &c->prompts[i];
        must(p->kind == c->prompts[0].kind);
        must(p->kind == GEN_TOKENS ? p->n_tokens <= TOKENS_MAX
                                   : strlen(p->text) == p->text_n);
        must(p->echo_at + p->echo_n <= c->echo.n);
    }
}

static void check(const struct call *c)
{
    const struct gen_req *q = &c->p.req;
    if (c->only_load) {
        must(c->d->loaded != NULL);
        return;
    }
    if (c->n_prompts > 0) {
        check_prompts(c);
        return;
    }
    if (c->d == &responses_dialect && responses_of(c)->input != NULL) {
        must(q->n_messages == 0); /* when what they refer to is known */
        return;
    }
    must(q->kind != GEN_TEXT || strlen(q->text) == q->text_n);
    must(q->kind != GEN_TOKENS || q->n_tokens <= TOKENS_MAX);
    if (q->kind == GEN_FIM) {
        check_gap(q->fim);
    }
    must(q->kind != GEN_CHAT || q->n_messages > 0);
    must(q->n_messages <= CHAT_MESSAGES_MAX && c->p.kwargs == NULL);
    check_json(q->tools, JSON_ARRAY);
    check_json(q->documents, JSON_ARRAY);
    check_json(q->kwargs, JSON_OBJECT);
    for (size_t i = 0; q->kind == GEN_CHAT && i < q->n_messages; i++) {
        check_message(&q->messages[i]);
    }
}

static void read_as(const struct dialect *d, const struct json *j)
{
    static struct call c;
    struct err e = {0};
    memset(&c, 0, sizeof(c));
    c.d = d;
    arena_init(&c.arena, GEN_ARENA_MAX);
    buf_init(&c.echo, ANSWER_BYTES_MAX);
    int rc = params_read(j, d->fields, &c.arena, &c.p, &e);
    if (rc == 0) {
        rc = d->read(&c, j, &e);
    }
    if (rc == 0) {
        check(&c);
    } else {
        must(rc < 0 && e.msg[0] != '\0');
    }
    if (d->drop != NULL) {
        d->drop(&c);
    }
    buf_fini(&c.echo);
    arena_fini(&c.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct dialect *const all[] = {
        &openai_completion,   &openai_chat,     &anthropic_chat,
        &ollama_chat,         &ollama_generate, &responses_dialect,
        &llamacpp_completion, &llamacpp_infill};
    struct json *j = NULL;
    if (json_parse((const char *)p, n, &j, NULL) < 0) {
        return 0;
    }
    for (size_t i = 0; i < countof(all) && json_type(j) == JSON_OBJECT; i++) {
        read_as(all[i], j);
    }
    json_free(j);
    return 0;
}
