/* api.c - the route table, errors and small things of all dialects. */
#include "api/api.h"

#include <string.h>

#include "api/anthropic.h"
#include "api/embed.h"
#include "api/llamacpp.h"
#include "api/ollama.h"
#include "api/openai.h"
#include "api/responses.h"
#include "serve/engines/residency.h"

#define GET  HTTP_M_GET
#define POST HTTP_M_POST
#define DEL  HTTP_M_DELETE

#define LLAMA     "llama-server"
#define LMS       "LM Studio"
#define ANED      "aned"
#define OPENAI    "OpenAI"
#define ANTHROPIC "Anthropic"
#define OLLAMA    "Ollama"

/* What clients ask for and no model gives: an error that says why. */
#define NOT_HERE(XX, path, run, of)             \
    XX(POST, path, run, HTTP_CHAT_BODY_MAX, of, \
       "Not here: a 400 that says why", NULL)

/* method, path, handler, largest body, whose it is, what it does, fields of a
 * request for text */
#define ROUTES(XX)                                                             \
    XX(GET, "/health", api_health, 0, LLAMA, "Is the daemon there, and ready", \
       NULL)                                                                   \
    XX(GET, "/metrics", api_metrics, 0, ANED,                                  \
       "Counters, gauges and histograms for Prometheus", NULL)                 \
    XX(GET, "/v1/models", api_oai_models, 0, OPENAI,                           \
       "The models; in Anthropic's form when anthropic-version is a header",   \
       NULL)                                                                   \
    XX(GET, "/v1/models/{name}", api_oai_model, 0, OPENAI,                     \
       "One model, in the form of the list", NULL)                             \
    XX(POST, "/v1/completions", api_completions, HTTP_CHAT_BODY_MAX, OPENAI,   \
       "Continue a text", &openai_completion_fields)                           \
    XX(POST, "/v1/chat/completions", api_chat, HTTP_CHAT_BODY_MAX, OPENAI,     \
       "Answer a conversation", &openai_chat_fields)                           \
    XX(POST, "/v1/responses", api_responses, HTTP_CHAT_BODY_MAX, OPENAI,       \
       "Answer items", &responses_fields)                                      \
    XX(GET, "/v1/responses/{id}", api_response_get, 0, OPENAI,                 \
       "An answer that was stored", NULL)                                      \
    XX(GET, "/v1/responses/{id}/input_items", api_response_items, 0, OPENAI,   \
       "The items that led to an answer that was stored", NULL)                \
    XX(DEL, "/v1/responses/{id}", api_response_delete, HTTP_BODY_MAX, OPENAI,  \
       "Forget an answer that was stored", NULL)                               \
    XX(POST, "/v1/messages", api_messages, HTTP_CHAT_BODY_MAX, ANTHROPIC,      \
       "Answer a conversation", &anthropic_fields)                             \
    XX(POST, "/v1/messages/count_tokens", api_count_tokens,                    \
       HTTP_CHAT_BODY_MAX, ANTHROPIC, "How many tokens a conversation is",     \
       &anthropic_count_fields)                                                \
    XX(GET, "/", api_ollama_root, 0, OLLAMA,                                   \
       "What clients look for before they ask; for browsers a page to look at", \
       NULL)                                                                   \
    XX(GET, "/api/version", api_ollama_version, 0, OLLAMA,                     \
       "The version of Ollama whose API this is", NULL)                        \
    XX(GET, "/api/tags", api_ollama_tags, 0, OLLAMA, "The models", NULL)       \
    XX(GET, "/api/ps", api_ollama_ps, 0, OLLAMA,                               \
       "The models in memory, and when they leave", NULL)                      \
    XX(POST, "/api/show", api_ollama_show, HTTP_BODY_MAX, OLLAMA, "One model", \
       NULL)                                                                   \
    XX(POST, "/api/chat", api_ollama_chat, HTTP_CHAT_BODY_MAX, OLLAMA,         \
       "Answer a conversation", &ollama_chat_fields)                           \
    XX(POST, "/api/generate", api_ollama_generate, HTTP_CHAT_BODY_MAX, OLLAMA, \
       "Answer or continue a text", &ollama_generate_fields)                   \
    XX(POST, "/api/pull", api_ollama_pull, HTTP_BODY_MAX, OLLAMA,              \
       "Success for a model that is there; none is fetched", NULL)             \
    XX(POST, "/api/push", api_ollama_push, HTTP_BODY_MAX, OLLAMA,              \
       "Not here: a 400 that says so", NULL)                                   \
    XX(POST, "/api/create", api_ollama_create, HTTP_BODY_MAX, OLLAMA,          \
       "Not here: a 400 that says what to do instead", NULL)                   \
    XX(POST, "/api/copy", api_ollama_copy, HTTP_BODY_MAX, OLLAMA,              \
       "Not here: a 400 that says so", NULL)                                   \
    XX(DEL, "/api/delete", api_ollama_delete, HTTP_BODY_MAX, OLLAMA,           \
       "Remove a model", NULL)                                                 \
    XX(POST, "/completion", api_llama_completion, HTTP_CHAT_BODY_MAX, LLAMA,   \
       "Continue a text", &llamacpp_completion_fields)                         \
    XX(POST, "/completions", api_llama_completion, HTTP_CHAT_BODY_MAX, LLAMA,  \
       "Another name of /completion", &llamacpp_completion_fields)             \
    XX(POST, "/infill", api_infill, HTTP_CHAT_BODY_MAX, LLAMA,                 \
       "Fill in between two texts, with a model that has tokens for it",       \
       &llamacpp_infill_fields)                                                \
    XX(POST, "/chat/completions", api_chat, HTTP_CHAT_BODY_MAX, LLAMA,         \
       "Another name of /v1/chat/completions", &openai_chat_fields)            \
    XX(GET, "/models", api_oai_models, 0, LLAMA, "Another name of /v1/models", \
       NULL)                                                                   \
    XX(GET, "/models/sse", api_models_sse, 0, LLAMA,                           \
       "Follow the states of all models, as events", NULL)                     \
    XX(GET, "/props", api_props, 0, LLAMA,                                     \
       "A model's context, template and defaults; ?model=NAME", NULL)          \
    XX(POST, "/props", api_no_props, HTTP_BODY_MAX, LLAMA,                     \
       "Not here: a 400 that says so", NULL)                                   \
    XX(GET, "/slots", api_slots, 0, LLAMA,                                     \
       "A model's sequences: which are being worked on; ?model=NAME", NULL)    \
    XX(GET, "/lora-adapters", api_lora_adapters, 0, LLAMA,                     \
       "None: an empty list", NULL)                                            \
    XX(POST, "/lora-adapters", api_no_lora, HTTP_BODY_MAX, LLAMA,              \
       "Not here: a 400 that says so", NULL)                                   \
    XX(POST, "/apply-template", api_apply_template, HTTP_CHAT_BODY_MAX, LLAMA, \
       "The prompt that a conversation becomes", &openai_chat_fields)          \
    XX(POST, "/embedding", api_llama_embedding, HTTP_CHAT_BODY_MAX, LLAMA,     \
       "Vectors of texts, in llama-server's own form", &embed_llamacpp_fields) \
    XX(POST, "/embeddings", api_llama_embedding, HTTP_CHAT_BODY_MAX, LLAMA,    \
       "Another name of /embedding", &embed_llamacpp_fields)                   \
    XX(POST, "/v1/embeddings", api_embeddings, HTTP_CHAT_BODY_MAX, OPENAI,     \
       "Vectors of texts", &embed_openai_fields)                               \
    XX(POST, "/api/embed", api_ollama_embed, HTTP_CHAT_BODY_MAX, OLLAMA,       \
       "Vectors of texts", &embed_ollama_fields)                               \
    XX(POST, "/api/embeddings", api_ollama_embeddings, HTTP_CHAT_BODY_MAX, OLLAMA,\
       "The vector of a text: the older form of /api/embed", &embed_ollama_old_fields)\
    XX(POST, "/api/v0/embeddings", api_embeddings, HTTP_CHAT_BODY_MAX, LMS,    \
       "Another name of /v1/embeddings", &embed_openai_fields)                 \
    NOT_HERE(XX, "/rerank", api_no_rerank, LLAMA)                              \
    NOT_HERE(XX, "/reranking", api_no_rerank, LLAMA)                           \
    NOT_HERE(XX, "/v1/rerank", api_no_rerank, LLAMA)                           \
    NOT_HERE(XX, "/v1/reranking", api_no_rerank, LLAMA)                        \
    XX(GET, "/api/v0/models", api_lms_models, 0, LMS, "The models", NULL)      \
    XX(GET, "/api/v0/models/{name}", api_lms_model, 0, LMS, "One model", NULL) \
    XX(POST, "/api/v0/chat/completions", api_chat, HTTP_CHAT_BODY_MAX, LMS,    \
       "Another name of /v1/chat/completions", &openai_chat_fields)            \
    XX(POST, "/api/v0/completions", api_completions, HTTP_CHAT_BODY_MAX, LMS,  \
       "Another name of /v1/completions", &openai_completion_fields)           \
    XX(POST, "/tokenize", api_tokenize, HTTP_CHAT_BODY_MAX, LLAMA,             \
       "Text into token ids", NULL)                                            \
    XX(POST, "/detokenize", api_detokenize, HTTP_CHAT_BODY_MAX, LLAMA,         \
       "Token ids into text", NULL)                                            \
    XX(GET, "/tokenizer_info", api_tokenizer_info, 0, LLAMA,                   \
       "vLLM's: a model's BOS, EOS and chat template; ?model=NAME", NULL)      \
    XX(GET, "/aned/v1/status", api_status, 0, ANED,                            \
       "What the daemon is doing", NULL)                                       \
    XX(POST, "/aned/v1/key", api_key_new, 0, ANED,                             \
       "A new key for loopback TCP; the old one ends at once", NULL)           \
    XX(GET, "/aned/v1/jobs", api_jobs_list, 0, ANED,                           \
       "Conversion jobs, newest first", NULL)                                  \
    XX(POST, "/aned/v1/jobs", api_jobs_create, HTTP_BODY_MAX, ANED,            \
       "Convert a model", NULL)                                                \
    XX(GET, "/aned/v1/jobs/{id}", api_job_get, 0, ANED, "One job", NULL)       \
    XX(DEL, "/aned/v1/jobs/{id}", api_job_cancel, HTTP_BODY_MAX, ANED,         \
       "Cancel a job", NULL)                                                   \
    XX(GET, "/aned/v1/jobs/{id}/events", api_job_events, 0, ANED,              \
       "Follow a job", NULL)                                                   \
    XX(GET, "/aned/v1/streams", api_streams_list, 0, ANED,                     \
       "The streams that run or wait, of all models", NULL)                    \
    XX(GET, "/aned/v1/streams/{id}", api_stream, 0, ANED,                      \
       "Go on with a resumable stream", NULL)                                  \
    XX(DEL, "/aned/v1/streams/{id}", api_stream_cancel, 0, ANED,               \
       "End a resumable stream", NULL)                                         \
    XX(GET, "/aned/v1/sessions", api_sessions_list, 0, ANED,                   \
       "All sessions, newest first", NULL)                                     \
    XX(POST, "/aned/v1/sessions", api_sessions_create, HTTP_CHAT_BODY_MAX,     \
       ANED, "Begin a session", NULL)                                          \
    XX(GET, "/aned/v1/sessions/{id}", api_session_get, 0, ANED,                \
       "One session, with its tokens", NULL)                                   \
    XX(DEL, "/aned/v1/sessions/{id}", api_session_delete, HTTP_BODY_MAX, ANED, \
       "Delete a session", NULL)                                               \
    XX(POST, "/aned/v1/sessions/{id}/append", api_session_append,              \
       HTTP_CHAT_BODY_MAX, ANED, "Put text or tokens after a session", NULL)   \
    XX(POST, "/aned/v1/sessions/{id}/generate", api_session_generate,          \
       HTTP_CHAT_BODY_MAX, ANED, "Continue a session", NULL)                   \
    XX(POST, "/aned/v1/sessions/{id}/truncate", api_session_truncate,          \
       HTTP_BODY_MAX, ANED, "Keep the first tokens", NULL)                     \
    XX(POST, "/aned/v1/sessions/{id}/fork", api_session_fork, HTTP_BODY_MAX,   \
       ANED, "A new session that begins like this one", NULL)                  \
    XX(POST, "/aned/v1/sessions/{id}/pin", api_session_pin, HTTP_BODY_MAX,     \
       ANED, "Keep its saved state longest", NULL)                             \
    XX(GET, "/aned/v1/models", api_models_list, 0, ANED,                       \
       "The models with all that is known of them", NULL)                      \
    XX(GET, "/aned/v1/models/{name}", api_model_get, 0, ANED, "One model",     \
       NULL)                                                                   \
    XX(DEL, "/aned/v1/models/{name}", api_model_delete, HTTP_BODY_MAX, ANED,   \
       "Remove a model", NULL)                                                 \
    XX(GET, "/aned/v1/models/{name}/events", api_model_events, 0, ANED,        \
       "Follow a model", NULL)                                                 \
    XX(POST, "/aned/v1/models/{name}/load", api_model_load, HTTP_BODY_MAX,     \
       ANED, "Load a model", NULL)                                             \
    XX(POST, "/aned/v1/models/{name}/unload", api_model_unload, HTTP_BODY_MAX, \
       ANED, "Unload a model", NULL)                                           \
    XX(POST, "/aned/v1/models/{name}/verify", api_model_verify, HTTP_BODY_MAX, \
       ANED, "Verify a model", NULL)                                           \
    XX(POST, "/aned/v1/models/{name}/probe", api_model_probe, HTTP_BODY_MAX,   \
       ANED, "Measure a model", NULL)                                          \
    XX(GET, "/aned/v1/models/{name}/quality", api_model_quality, 0, ANED,      \
       "How far a model is from its source", NULL)                             \
    XX(GET, "/aned/v1/models/{name}/residency", api_model_residency, 0, ANED,  \
       "Where a model's operations run", NULL)                                 \
    XX(POST, "/aned/v1/classify", api_classify, HTTP_CHAT_BODY_MAX, ANED,      \
       "Find labelled spans in texts, with an encoder", NULL)                  \
    XX(POST, "/aned/v1/redact", api_redact, HTTP_CHAT_BODY_MAX, ANED,          \
       "The same, and the texts with placeholders in their place", NULL)       \
    XX(GET, "/aned/v1/residency", api_residency, 0, ANED,                      \
       "The verdicts on all models", NULL)

const struct http_route api_routes[] = {
#define XX(method, path, run, body_max, of, doc, fields) \
    {method, path, run, body_max},
    ROUTES(XX)
#undef XX
};
const struct api_doc api_docs[] = {
#define XX(method, path, run, body_max, of, doc, fields) {of, doc, fields},
    ROUTES(XX)
#undef XX
};
const size_t api_n_routes = countof(api_routes);

struct json *api_openai_error(const struct api_error *x)
{
    struct json *o = json_object();
    struct json *in = json_add_object(o, "error");
    json_add_str(in, "message",
                 x->msg != NULL && x->msg[0] != '\0' ? x->msg
                                                     : err_text(x->code));
    json_add_str(in, "type", http_error_type(err_http(x->code)));
    if (x->param != NULL) {
        json_add_str(in, "param", x->param);
    } else {
        json_add_null(in, "param");
    }
    json_add_str(in, "code", err_name(x->code));
    if (x->n_ctx > 0) {
        json_add_int(in, "n_prompt_tokens", (int64_t)x->n_prompt);
        json_add_int(in, "n_ctx", (int64_t)x->n_ctx);
    }
    return o;
}

/* The form of errors below a path; OpenAI's serves native, OpenAI and
 * llama-server clients. */
static api_error_fn *error_form(const char *path)
{
    static const struct {
        const char *begin;
        api_error_fn *form;
    } rows[] = {
        {"/v1/messages", anthropic_error },
        {"/api/v0/",     api_openai_error}, /* LM Studio's */
        {"/api/",        ollama_error    },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        if (strncmp(path, rows[i].begin, strlen(rows[i].begin)) == 0) {
            return rows[i].form;
        }
    }
    return api_openai_error;
}

void api_error_body(const char *path, int code, const char *msg, struct buf *b)
{
    struct api_error x = {.code = code, .msg = msg};
    struct json *o = error_form(path)(&x);
    json_write(o, false, b);
    json_free(o);
}

/* What was written after room for the head; b is freed. */
static void send_written(struct http_req *r, int status, struct buf *b)
{
    if (buf_ok(b)) {
        http_reply_take(r, status, NULL, b);
    } else {
        http_reply_error(r, ERR_TOO_BIG, "the answer is over the limit");
    }
    buf_fini(b);
}

static void begin_reply(struct buf *b)
{
    buf_init(b, HTTP_REPLY_MAX - KIB(4));
    (void)buf_grow(b, HTTP_HEAD_ROOM);
}

void api_reply(struct http_req *r, int status, struct json *body)
{
    struct buf b;
    begin_reply(&b);
    json_write(body, false, &b);
    json_free(body);
    send_written(r, status, &b);
}

void api_list_begin(struct buf *b, const char *key, struct json *members)
{
    begin_reply(b);
    if (members != NULL) {
        json_write(members, false, b);
        json_free(members);
        b->n--; /* its brace */
    }
    buf_puts(b, members != NULL ? "," : "{");
    json_put_string(b, key, strlen(key));
    buf_puts(b, ":[");
}

void api_list_add(struct buf *b, struct json *entry)
{
    if (buf_ok(b) && b->p[b->n - 1] != '[') {
        buf_puts(b, ",");
    }
    json_write(entry, false, b);
    json_free(entry);
}

void api_list_reply(struct http_req *r, struct buf *b)
{
    buf_puts(b, "]}");
    send_written(r, 200, b);
}

void api_fail(struct http_req *r, int code, const char *param, const char *msg)
{
    if (param == NULL) {
        http_reply_error(r, code, msg);
        return;
    }
    struct api_error x = {.code = code, .param = param, .msg = msg};
    api_reply(r, err_http(code), error_form(http_path(r))(&x));
}

/* "NAME:latest" is NAME, as clients of Ollama have it: is name so, with NAME in
 * bare? */
static bool is_latest(const char *name, char bare[MODEL_NAME_MAX + 1])
{
    static const char tag[] = ":latest";
    size_t n = strlen(name), t = sizeof(tag) - 1;
    if (n <= t || n - t > MODEL_NAME_MAX || strcmp(name + n - t, tag) != 0) {
        return false;
    }
    memcpy(bare, name, n - t);
    bare[n - t] = '\0';
    return true;
}

static struct model *find_model(struct server *s, const char *name)
{
    char bare[MODEL_NAME_MAX + 1];
    struct model *m = models_find(s->models, name);
    return m == NULL && is_latest(name, bare) ? models_find(s->models, bare)
                                              : m;
}

/* What [aliases] has for a name; NULL. */
static const char *find_alias(struct server *s, const char *name)
{
    char bare[MODEL_NAME_MAX + 1];
    const char *to = aliases_find(&s->conf.aliases, name);
    return to == NULL && is_latest(name, bare)
               ? aliases_find(&s->conf.aliases, bare)
               : to;
}

int api_model(struct http_req *r, const char *name, struct model **ret)
{
    struct server *s = http_ctx(r);
    const char *usual = s->conf.http_default_model;
    name = name != NULL && name[0] != '\0' ? name : NULL;
    name = name == NULL && usual[0] != '\0' ? usual : name;
    struct model *m =
        name != NULL ? find_model(s, name) : models_only(s->models);
    const char *alias = m == NULL && name != NULL ? find_alias(s, name) : NULL;
    struct err e = {0};
    m = alias != NULL ? find_model(s, alias) : m;
    if (m != NULL) {
        *ret = m;
        return 0;
    }
    int rc = 0;
    if (name == NULL && models_count(s->models) > 0) {
        rc = err_set(&e, ERR_INVALID, "model: name one of the %zu models",
                     models_count(s->models));
    } else if (name == NULL) {
        rc = err_set(&e, ERR_MODEL_NOT_FOUND,
                     "there is no model yet; POST /aned/v1/jobs makes one");
    } else if (alias != NULL) {
        rc = err_set(&e, ERR_MODEL_NOT_FOUND,
                     "there is no model '%.128s', which [aliases] has for "
                     "'%.128s'",
                     alias, name);
    } else {
        rc = err_set(&e, ERR_MODEL_NOT_FOUND, "there is no model '%.128s'",
                     name);
    }
    api_fail(r, rc, "model", e.msg);
    return rc;
}

static void list_model(struct buf *b, struct json *entry)
{
    if (entry != NULL) {
        api_list_add(b, entry);
    }
}

void api_list_models(struct http_req *r, const char *key, struct json *members,
                     struct json *(*one)(const struct model *m,
                                         const char *name))
{
    struct server *s = http_ctx(r);
    struct buf b;
    api_list_begin(&b, key, members);
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        list_model(&b, one(m, m->name));
    }
    for (size_t i = 0; i < s->conf.aliases.n; i++) {
        const struct alias *a = &s->conf.aliases.row[i];
        const struct model *m = find_model(s, a->model);
        if (m != NULL && alias_is_name(a) &&
            find_model(s, a->pattern) == NULL) {
            list_model(&b, one(m, a->pattern));
        }
    }
    api_list_reply(r, &b);
}

int api_own_model(struct http_req *r, const char *name, struct model **ret)
{
    struct server *s = http_ctx(r);
    struct err e = {0};
    if (name != NULL && name[0] != '\0' && find_model(s, name) == NULL &&
        find_alias(s, name) != NULL) {
        int rc = err_set(&e, ERR_MODEL_NOT_FOUND,
                         "'%.128s' is an alias; name the model itself", name);
        api_fail(r, rc, "model", e.msg);
        return rc;
    }
    return api_model(r, name, ret);
}

int api_keep_alive(const struct json *v, int64_t *ret_ms, struct err *e)
{
    if (json_type(v) == JSON_NUMBER) {
        return keep_alive_seconds(json_num(v), ret_ms, e);
    }
    const char *s = json_str(v);
    if (s == NULL) {
        return err_set(e, ERR_INVALID,
                       "keep_alive: must be a number of seconds or a duration "
                       "such as \"10m\"");
    }
    return keep_alive_text(s, ret_ms, e);
}
