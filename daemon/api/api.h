/* api.h - the routes of aned and what their handlers share. One file a
 * dialect; proto/api.json, which doc.c makes, describes every route and field.
 *
 * Thread: the loop thread. http_ctx() is struct server.
 */
#pragma once

#include "proto/json.h"
#include "serve/gen/gen.h"
#include "serve/jobs/jobs.h"
#include "serve/server.h"

struct fields;
/* What a route is for. */
struct api_doc {
    const char *of;              /* the dialect: "OpenAI" */
    const char *doc;             /* in a line */
    const struct fields *fields; /* of its request; NULL: described by hand */
};
extern const struct http_route api_routes[];
extern const struct api_doc api_docs[]; /* of the same row */
extern const size_t api_n_routes;

/* http_conf.error_body: the error object of the path's dialect. */
void api_error_body(const char *path, int code, const char *msg, struct buf *b);

/* An error that a dialect tells in its own form. */
struct api_error {
    int code;
    const char *param;        /* the field it is about; or NULL */
    const char *msg;          /* NULL, "": the code's own text */
    uint32_t n_prompt, n_ctx; /* tokens of a prompt too long; else 0 */
};
typedef struct json *api_error_fn(const struct api_error *x);
/* {"error": {"message", "type", "param", "code"}}. */
struct json *api_openai_error(const struct api_error *x);

/* Reply with an error in the form of the path's dialect. param may be NULL. */
void api_fail(struct http_req *r, int code, const char *param, const char *msg);
/* Reply with a tree, which is freed. */
void api_reply(struct http_req *r, int status, struct json *body);
/* Reply with {"key":[...], `members`}, entry by entry: a tree of all of them
 * would be ten times their text. Trees are freed; `members` may be NULL. */
void api_list_begin(struct buf *b, const char *key, struct json *members);
void api_list_add(struct buf *b, struct json *entry);
void api_list_reply(struct http_req *r, struct buf *b);
/* body.c: the request's body as JSON object, for routes whose bodies are at
 * most BODY_HERE_MAX. On failure the reply was sent. */
CHECKED int api_body(struct http_req *r, struct json **ret);
/* A body of any size. Embedded in the handler's object for the request, which
 * must be alive until `go`. */
struct api_read {
    /* Copy what is needed of the body, which is freed afterwards. Returns 0 or
     * an error. Any thread: it may use only the object that x is embedded in.
     */
    int (*read)(struct api_read *x, const struct json *body);
    /* Called on the loop, perhaps from inside api_read_body; rc and e are set.
     * The request belongs to the handler again and has no on_gone. r NULL: the
     * client has left; only free memory. */
    void (*go)(struct api_read *x);
    struct http_req *r;
    int rc;
    struct err e;
    /* private to body.c */
    struct workq *queue;
    struct work work;
    struct buf body;
};
void api_read_body(struct http_req *r, struct api_read *x);
/* The model that `name` means: NULL or "" is [http] default_model, or the only
 * one there is; "x:latest" is x; what no model is called may be an alias. On
 * failure the reply was sent: 404 model_not_found, or 400 when none is named.
 */
CHECKED int api_model(struct http_req *r, const char *name, struct model **ret);
/* The same for what destroys a model: a pattern might mean one that the user
 * did not think of, so aliases are 404. */
CHECKED int api_own_model(struct http_req *r, const char *name,
                          struct model **ret);

/* Reply with a list of models as a dialect has them, which clients look their
 * name up in: each model by its name, then by each alias that is a name of its
 * own. one: the entry of m as `name`; NULL: none. key, members: api_list_begin.
 */
void api_list_models(struct http_req *r, const char *key, struct json *members,
                     struct json *(*one)(const struct model *m,
                                         const char *name));

/* Ollama's keep_alive: seconds, or a duration as text. Errors: INVALID. */
CHECKED int api_keep_alive(const struct json *v, int64_t *ret_ms,
                           struct err *e);

/* page.c: the page for browsers, to a request that http_wants_page */
void api_page(struct http_req *r);
/* embed.c */
void api_embeddings(struct http_req *r, const struct http_args *a);
void api_llama_embedding(struct http_req *r, const struct http_args *a);
void api_ollama_embed(struct http_req *r, const struct http_args *a);
void api_ollama_embeddings(struct http_req *r, const struct http_args *a);
/* tags.c */
void api_classify(struct http_req *r, const struct http_args *a);
void api_redact(struct http_req *r, const struct http_args *a);
/* native_streams.c */
void api_streams_list(struct http_req *r, const struct http_args *a);
/* native.c */
void api_jobs_create(struct http_req *r, const struct http_args *a);
void api_jobs_list(struct http_req *r, const struct http_args *a);
void api_job_get(struct http_req *r, const struct http_args *a);
void api_job_cancel(struct http_req *r, const struct http_args *a);
void api_job_events(struct http_req *r, const struct http_args *a);
void api_stream(struct http_req *r, const struct http_args *a);
void api_stream_cancel(struct http_req *r, const struct http_args *a);
/* native_models.c */
void api_models_list(struct http_req *r, const struct http_args *a);
void api_model_get(struct http_req *r, const struct http_args *a);
void api_model_load(struct http_req *r, const struct http_args *a);
void api_model_events(struct http_req *r, const struct http_args *a);
void api_model_unload(struct http_req *r, const struct http_args *a);
void api_model_verify(struct http_req *r, const struct http_args *a);
void api_model_probe(struct http_req *r, const struct http_args *a);
void api_model_delete(struct http_req *r, const struct http_args *a);
/* Delete m and answer: with `done` when that is durable, or with an error. */
void api_delete(struct http_req *r, struct model *m,
                void (*done)(struct http_req *r, const char *name));
void api_status(struct http_req *r, const struct http_args *a);
/* process.c: the member "process" of the status */
void api_put_process(struct json *o);
/* key.c */
void api_key_new(struct http_req *r, const struct http_args *a);
/* native_reports.c */
void api_model_quality(struct http_req *r, const struct http_args *a);
void api_residency(struct http_req *r, const struct http_args *a);
void api_model_residency(struct http_req *r, const struct http_args *a);
/* openai.c */
void api_oai_models(struct http_req *r, const struct http_args *a);
void api_oai_model(struct http_req *r, const struct http_args *a);
void api_completions(struct http_req *r, const struct http_args *a);
void api_chat(struct http_req *r, const struct http_args *a);
void api_session_generate(struct http_req *r, const struct http_args *a);
/* responses.c */
void api_responses(struct http_req *r, const struct http_args *a);
void api_response_get(struct http_req *r, const struct http_args *a);
void api_response_items(struct http_req *r, const struct http_args *a);
void api_response_delete(struct http_req *r, const struct http_args *a);
/* anthropic.c */
void api_messages(struct http_req *r, const struct http_args *a);
void api_count_tokens(struct http_req *r, const struct http_args *a);
/* ollama_out.c */
void api_ollama_chat(struct http_req *r, const struct http_args *a);
void api_ollama_generate(struct http_req *r, const struct http_args *a);
/* ollama_models.c */
void api_ollama_root(struct http_req *r, const struct http_args *a);
void api_ollama_version(struct http_req *r, const struct http_args *a);
void api_ollama_tags(struct http_req *r, const struct http_args *a);
void api_ollama_ps(struct http_req *r, const struct http_args *a);
void api_ollama_show(struct http_req *r, const struct http_args *a);
void api_ollama_pull(struct http_req *r, const struct http_args *a);
void api_ollama_push(struct http_req *r, const struct http_args *a);
void api_ollama_create(struct http_req *r, const struct http_args *a);
void api_ollama_copy(struct http_req *r, const struct http_args *a);
void api_ollama_delete(struct http_req *r, const struct http_args *a);
/* lmstudio.c */
void api_lms_models(struct http_req *r, const struct http_args *a);
void api_lms_model(struct http_req *r, const struct http_args *a);
/* llamacpp_events.c */
void api_models_sse(struct http_req *r, const struct http_args *a);
/* llamacpp_props.c */
void api_props(struct http_req *r, const struct http_args *a);
void api_slots(struct http_req *r, const struct http_args *a);
void api_lora_adapters(struct http_req *r, const struct http_args *a);
void api_apply_template(struct http_req *r, const struct http_args *a);
/* llamacpp.c */
void api_llama_completion(struct http_req *r, const struct http_args *a);
void api_infill(struct http_req *r, const struct http_args *a);
void api_no_rerank(struct http_req *r, const struct http_args *a);
void api_no_props(struct http_req *r, const struct http_args *a);
void api_no_lora(struct http_req *r, const struct http_args *a);
void api_health(struct http_req *r, const struct http_args *a);
void api_tokenize(struct http_req *r, const struct http_args *a);
void api_detokenize(struct http_req *r, const struct http_args *a);
void api_tokenizer_info(struct http_req *r, const struct http_args *a);
/* session.c */
void api_sessions_list(struct http_req *r, const struct http_args *a);
void api_sessions_create(struct http_req *r, const struct http_args *a);
void api_session_get(struct http_req *r, const struct http_args *a);
void api_session_append(struct http_req *r, const struct http_args *a);
void api_session_truncate(struct http_req *r, const struct http_args *a);
void api_session_fork(struct http_req *r, const struct http_args *a);
void api_session_pin(struct http_req *r, const struct http_args *a);
void api_session_delete(struct http_req *r, const struct http_args *a);
/* metrics.c */
void api_metrics(struct http_req *r, const struct http_args *a);
