/* llamacpp.c - llama-server's routes: /health, /tokenize, /detokenize, texts
 * (call.h), and those of things that are not here. */
#include "api/llamacpp.h"

#include <string.h>

#include "api/ask.h"
#include "base/utf8.h"

/* Models whose first predictions run, which may take minutes; NULL: none. */
static struct json *warming(const struct server *s)
{
    struct json *o = NULL;
    struct json *list = NULL;
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        double progress = -1;
        const char *stage = model_stage(m, &progress);
        if (stage == NULL || strcmp(stage, "warming") != 0) {
            continue;
        }
        if (o == NULL) {
            o = json_object();
            json_add_str(o, "status", "ok");
            list = json_add_array(o, "warming");
        }
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "model", m->name);
        json_add_num(x, "progress", progress);
    }
    return o;
}

void api_health(struct http_req *r, const struct http_args *a)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    const struct server *s = http_ctx(r);
    (void)a;
    if (s->draining) {
        http_reply_error(r, ERR_UNAVAILABLE, "the daemon is stopping");
        return;
    }
    if (s->reload.trouble.code != 0) {
        http_reply_error(r, s->reload.trouble.code, s->reload.trouble.msg);
        return;
    }
    if (!s->ready) {
        http_reply_error(r, ERR_STARTING, NULL);
        return;
    }
    struct json *o = warming(s);
    if (o != NULL) {
        api_reply(r, 200, o);
    } else {
        http_reply(r, 200, NULL, ok, sizeof(ok) - 1);
    }
}

static bool is_text(struct span s)
{
    size_t i = 0, len = 1;
    for (; i < s.n && len > 0; i += len) {
        len = s.p[i] != '\0' ? utf8_len(s.p + i, s.n - i) : 0;
    }
    return len > 0;
}

/* {"id", "piece"}: text, or bytes where it is not UTF-8. */
static void put_piece(struct buf *b, const struct tokenizer *t, int32_t id)
{
    struct span s = tokenizer_piece(t, id, true);
    buf_puts(b, "{\"id\":");
    buf_dec(b, (uint64_t)id);
    buf_puts(b, ",\"piece\":");
    if (is_text(s)) {
        json_put_string(b, s.p, s.n);
    } else {
        for (size_t i = 0; i < s.n; i++) {
            buf_puts(b, i > 0 ? "," : "[");
            buf_dec(b, (uint8_t)s.p[i]);
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "}");
}

static void write_text(struct ask *k)
{
    const struct buf *text = &k->work.out;
    buf_puts(&k->out, "{\"content\":");
    json_put_string(&k->out, text->p != NULL ? text->p : "", text->n);
    buf_puts(&k->out, ",\"prompt\":"); /* vLLM's name */
    json_put_string(&k->out, text->p != NULL ? text->p : "", text->n);
    buf_puts(&k->out, "}");
}

static void write_tokens(struct ask *k)
{
    const struct text_work *w = &k->work;
    struct buf *b = &k->out;
    buf_puts(b, "{\"tokens\":[");
    for (size_t i = 0; i < w->n_tokens && buf_ok(b); i++) {
        buf_puts(b, i > 0 ? "," : "");
        if (k->pieces) {
            put_piece(b, w->voc->tok, w->tokens[i]);
        } else {
            buf_dec(b, (uint64_t)w->tokens[i]);
        }
    }
    buf_puts(b, "],\"count\":"); /* vLLM's */
    buf_dec(b, w->n_tokens);
    buf_puts(b, "}");
}

/* add_special: what the vocabulary puts around a text. vLLM has names of its own
 * for the text and for that, which it does unless the request says no. */
static int read_tokenize(struct api_read *x, const struct json *j)
{
    static const char *const keys[] = {
        "content", "add_special", "with_pieces",       "parse_special",
        "model",   "prompt",      "add_special_tokens"};
    struct ask *k = ask_of(x);
    const char *text = NULL, *model = NULL;
    bool special = true;
    struct err *e = &x->e;
    RETERR(ask_only(k, j, keys, countof(keys), e));
    bool vllm = json_get(j, "prompt") != NULL;
    bool around = vllm;
    if (vllm && json_get(j, "content") != NULL) {
        return err_set(e, ERR_INVALID, "prompt: not together with content");
    }
    RETERR(json_want_str(j, vllm ? "prompt" : "content", true, &text, e));
    RETERR(json_want_bool(j, "add_special_tokens", false, &around, e));
    RETERR(json_want_bool(j, "add_special", false, &around, e));
    RETERR(json_want_bool(j, "parse_special", false, &special, e));
    RETERR(json_want_bool(j, "with_pieces", false, &k->pieces, e));
    RETERR(json_want_str(j, "model", false, &model, e));
    RETERR(ask_copy(k, text, &k->work.text, e));
    RETERR(ask_copy(k, model, &k->model, e));
    k->work.kind = TEXT_ENCODE;
    k->work.text_n = strlen(text);
    k->work.special = special;
    k->work.bos = around;
    k->work.eos = around; /* an encoder's [SEP]; few decoders' vocabularies */
    return 0;
}

void api_tokenize(struct http_req *r, const struct http_args *a)
{
    (void)a;
    ask_start(r, read_tokenize, write_tokens);
}

static int read_ids(struct ask *k, const struct json *v, struct err *e)
{
    size_t n = json_count(v), i = 0;
    if (v == NULL || json_type(v) != JSON_ARRAY || n > TOKENS_MAX) {
        return err_set(e, ERR_INVALID, "tokens: must be an array of token ids");
    }
    int32_t *ids = arena_array(&k->arena, n + 1, sizeof(*ids));
    if (ids == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tokens", n);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int64_t id = 0;
        if (!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            return err_set(e, ERR_INVALID, "tokens: entry %zu is no token id",
                           i);
        }
        ids[i++] = (int32_t)id;
    }
    k->work.ids = ids;
    k->work.n_ids = n;
    return 0;
}

static int read_detokenize(struct api_read *x, const struct json *j)
{
    static const char *const keys[] = {"tokens", "model"};
    struct ask *k = ask_of(x);
    const char *model = NULL;
    k->work.kind = TEXT_DECODE;
    k->work.special = true;
    RETERR(ask_only(k, j, keys, countof(keys), &x->e));
    RETERR(json_want_str(j, "model", false, &model, &x->e));
    RETERR(ask_copy(k, model, &k->model, &x->e));
    return read_ids(k, json_get(j, "tokens"), &x->e);
}

void api_detokenize(struct http_req *r, const struct http_args *a)
{
    (void)a;
    ask_start(r, read_detokenize, write_text);
}

void api_llama_completion(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &llamacpp_completion, "");
}

void api_infill(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &llamacpp_infill, "");
}

/* --- not here --- */

void api_no_rerank(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_fail(r, ERR_UNSUPPORTED, NULL,
             "no model here ranks documents: conversions are of models that "
             "draw text");
}

void api_no_props(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_fail(r, ERR_UNSUPPORTED, NULL,
             "properties are not set here: a request says how it draws, and "
             "aned.conf has what the daemon does");
}

void api_no_lora(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_fail(r, ERR_UNSUPPORTED, NULL,
             "there are no adapters here: merge one into its model before the "
             "conversion");
}
