/* llamacpp_props.c - what llama-server's clients ask about the server: /props,
 * /slots, /lora-adapters; /apply-template; and vLLM's /tokenizer_info. A slot
 * is a sequence that an engine has open or may open. */
#include <string.h>

#include "api/ask.h"
#include "api/llamacpp.h"
#include "api/openai.h"

/* The model of ?model=NAME, as api_model has it. */
static int queried_model(struct http_req *r, struct model **ret)
{
    char name[MODEL_NAME_MAX + 1] = "";
    return api_model(r, http_query(r, "model", name, sizeof(name)), ret);
}

static bool is_up(const struct model *m)
{
    return m->runner != NULL && runner_state(m->runner) == RUNNER_UP;
}

/* Positions of a sequence, as it runs or as it would. */
static int64_t context_of(const struct model *m)
{
    return is_up(m)            ? (int64_t)runner_ready(m->runner)->context
           : m->bundle != NULL ? (int64_t)m->bundle->context
                               : 0;
}

static int64_t slots_of(const struct server *s, const struct model *m)
{
    return is_up(m) ? (int64_t)runner_sched(m->runner)->conf.seqs
                    : (int64_t)s->conf.cache_sessions;
}

/* {} as a request: the defaults. */
static void put_defaults(struct json *o)
{
    struct arena a;
    struct params p;
    struct err e = {0};
    struct json *none = json_object();
    arena_init(&a, KIB(64));
    int rc = params_read(none, &llamacpp_completion_fields, &a, &p, &e);
    must(rc == 0);
    llamacpp_put_settings(json_add_object(o, "params"), &p);
    arena_fini(&a);
    json_free(none);
}

/* --- /props --- */

static void put_text(struct json *o, const char *key, const struct buf *b)
{
    json_add_strn(o, key, b->p != NULL ? b->p : "", b->n);
}

static void put_caps(struct json *o, const struct voc *v)
{
    bool tools = v->tmpl != NULL && chat_mentions(v->tmpl, "tools");
    bool calls = v->tmpl != NULL && chat_mentions(v->tmpl, "tool_calls");
    struct json *x = json_add_object(o, "chat_template_caps");
    json_add_bool(x, "supports_tools", tools);
    json_add_bool(x, "supports_tool_calls", calls);
}

/* A token's text as `key`, its id as `id_key`; null: the vocabulary has none. */
static void put_token(struct json *o, const char *key, const struct buf *b,
                      const char *id_key, int32_t id)
{
    if (id == TOKEN_NONE) {
        json_add_null(o, key);
        json_add_null(o, id_key);
        return;
    }
    put_text(o, key, b);
    json_add_int(o, id_key, id);
}

/* vLLM's. On the text thread. */
static void write_tokenizer_info(struct ask *k)
{
    const struct voc *v = k->work.voc;
    struct json *o = k->known;
    const char *tmpl = tokenizer_template(v->tok);
    json_add_str(o, "tokenizer_class", tokenizer_kind(v->tok));
    put_token(o, "bos_token", &v->bos, "bos_token_id", tokenizer_bos(v->tok));
    put_token(o, "eos_token", &v->eos, "eos_token_id", tokenizer_eos(v->tok));
    json_add_bool(o, "add_bos_token", tokenizer_add_bos(v->tok));
    json_add_bool(o, "add_eos_token", tokenizer_add_eos(v->tok));
    if (tmpl != NULL) {
        json_add_str(o, "chat_template", tmpl);
    } else {
        json_add_null(o, "chat_template");
    }
    json_write(o, false, &k->out);
}

void api_tokenizer_info(struct http_req *r, const struct http_args *a)
{
    struct model *m = NULL;
    (void)a;
    if (queried_model(r, &m) != 0) {
        return;
    }
    struct json *o = json_object();
    json_add_int(o, "model_max_length", context_of(m));
    ask_vocabulary(r, m, o, write_tokenizer_info);
}

/* What only the vocabulary knows. On the text thread. */
static void write_props(struct ask *k)
{
    const struct voc *v = k->work.voc;
    struct json *o = k->known;
    const char *tmpl = tokenizer_template(v->tok);
    json_add_str(o, "chat_template", tmpl != NULL ? tmpl : "");
    put_caps(o, v);
    put_text(o, "bos_token", &v->bos);
    put_text(o, "eos_token", &v->eos);
    json_add_bool(o, "infill", fim_check(v->tok, &(struct err){0}) == 0);
    json_write(o, false, &k->out);
}

void api_props(struct http_req *r, const struct http_args *a)
{
    const struct server *s = http_ctx(r);
    struct model *m = NULL;
    (void)a;
    if (queried_model(r, &m) != 0) {
        return;
    }
    struct json *o = json_object();
    struct json *d = json_add_object(o, "default_generation_settings");
    json_add_int(d, "id", 0);
    json_add_int(d, "n_ctx", context_of(m));
    json_add_bool(d, "speculative", s->conf.speculation_max_draft > 0);
    json_add_bool(d, "is_processing", m->users > 0);
    put_defaults(d);
    json_add_int(o, "total_slots", slots_of(s, m));
    json_add_str(o, "model_alias", m->name);
    json_add_str(o, "model_path", m->dir);
    struct json *x = json_add_object(o, "modalities");
    json_add_bool(x, "vision", false);
    json_add_bool(x, "audio", false);
    json_add_str(o, "build_info", "aned " ANED_VERSION);
    json_add_bool(o, "is_sleeping", !is_up(m));
    ask_vocabulary(r, m, o, write_props);
}

/* --- /slots --- */

void api_slots(struct http_req *r, const struct http_args *a)
{
    const struct server *s = http_ctx(r);
    struct model *m = NULL;
    (void)a;
    if (queried_model(r, &m) != 0) {
        return;
    }
    struct json *list = json_array();
    const struct sched *d = is_up(m) ? runner_sched(m->runner) : NULL;
    for (int64_t i = 0; i < slots_of(s, m); i++) {
        const struct sched_seq *q = d != NULL ? &d->seqs[i] : NULL;
        bool used = q != NULL && q->used;
        struct json *o = json_add_object(list, NULL);
        json_add_int(o, "id", i);
        json_add_int(o, "n_ctx", context_of(m));
        json_add_bool(o, "speculative", s->conf.speculation_max_draft > 0);
        json_add_bool(o, "is_processing", used && q->owner != NULL);
        json_add_int(o, "n_tokens", used ? (int64_t)q->n : 0);
    }
    api_reply(r, 200, list);
}

void api_lora_adapters(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_reply(r, 200, json_array());
}

/* --- /apply-template --- */

/* A conversation, with the fields of /v1/chat/completions. */
static int read_template(struct api_read *x, const struct json *j)
{
    struct ask *k = ask_of(x);
    struct call *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->d = &openai_chat;
    c->arena = k->arena; /* lent */
    int rc = params_read(j, &openai_chat_fields, &c->arena, &c->p, &x->e);
    c->field = c->p.param;
    if (rc == 0) {
        rc = openai_read_chat(c, j, &x->e);
    }
    k->arena = c->arena;
    if (rc == 0) {
        rc = ask_copy(k, c->p.model, &k->model, &x->e);
    } else {
        (void)snprintf(k->param, sizeof(k->param), "%s",
                       c->field != NULL ? c->field : "");
    }
    k->work.kind = TEXT_CHAT;
    k->work.messages = c->p.req.messages;
    k->work.n_messages = c->p.req.n_messages;
    k->work.tools = c->p.req.tools;
    k->work.documents = c->p.req.documents;
    k->work.kwargs = c->p.req.kwargs;
    k->work.add_generation = true;
    free(c);
    return rc;
}

static void write_template(struct ask *k)
{
    const struct buf *text = &k->work.out;
    buf_puts(&k->out, "{\"prompt\":");
    json_put_string(&k->out, text->p != NULL ? text->p : "", text->n);
    buf_puts(&k->out, "}");
}

void api_apply_template(struct http_req *r, const struct http_args *a)
{
    (void)a;
    ask_start(r, read_template, write_template);
}
