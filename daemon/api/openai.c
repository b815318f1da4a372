/* openai.c - the routes of OpenAI's dialect: /v1/models, /v1/completions,
 * /v1/chat/completions. Shapes: OpenAI's API reference, with the fields of
 * llama-server that its clients read (context_length, meta, timings). */
#include "api/openai.h"

#include <string.h>

#include "api/anthropic.h"
#include "serve/gen/session.h"

/* As `id`, which may be an alias; "root" is the model, as vLLM has it. */
static struct json *model_json(const struct model *m, const char *id)
{
    const struct bundle *b = m->bundle;
    struct json *o = json_object();
    json_add_str(o, "id", id);
    json_add_str(o, "object", "model");
    json_add_int(o, "created", m->created_ms / 1000);
    json_add_str(o, "owned_by", "aned");
    json_add_str(o, "root", m->name);
    struct json *st = json_add_object(o, "status");
    const char *v = model_state_name(m->state);
    bool up = strcmp(v, "loaded") == 0 || strcmp(v, "loading") == 0;
    json_add_str(st, "value", up ? v : "unloaded");
    if (m->state == MODEL_REJECTED || m->state == MODEL_FAILED) {
        json_add_bool(st, "failed", true);
    }
    if (b == NULL) {
        json_add_null(o, "meta");
        return o;
    }
    struct json *meta = json_add_object(o, "meta");
    json_add_int(meta, "n_vocab", (int64_t)b->vocab);
    json_add_int(meta, "n_ctx", (int64_t)b->context);
    json_add_int(meta, "n_ctx_train", (int64_t)b->context_train);
    json_add_int(meta, "n_embd", (int64_t)b->d_model);
    json_add_int(meta, "size", (int64_t)b->total_bytes);
    struct json *arch = json_add_object(o, "architecture");
    json_add_str(json_add_array(arch, "input_modalities"), NULL, "text");
    json_add_str(json_add_array(arch, "output_modalities"), NULL, "text");
    json_add_int(o, "context_length", (int64_t)b->context);
    json_add_int(o, "max_model_len", (int64_t)b->context);
    return o;
}

void api_oai_models(struct http_req *r, const struct http_args *a)
{
    (void)a;
    if (anthropic_asks(r)) {
        anthropic_models(r);
        return;
    }
    struct json *o = json_object();
    json_add_str(o, "object", "list");
    api_list_models(r, "data", o, model_json);
}

void api_oai_model(struct http_req *r, const struct http_args *a)
{
    struct model *m = NULL;
    if (anthropic_asks(r)) {
        anthropic_model(r, a->v[0]);
    } else if (api_model(r, a->v[0], &m) == 0) {
        api_reply(r, 200, model_json(m, m->name));
    }
}

void api_completions(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &openai_completion, "");
}

void api_chat(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &openai_chat, "");
}

void api_session_generate(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct session *x = sessions_find(s->sessions, a->v[0]);
    if (x == NULL) {
        api_fail(r, ERR_NOT_FOUND, NULL, "there is no such session");
        return;
    }
    call_start(r, &openai_completion, x->row.id);
}
