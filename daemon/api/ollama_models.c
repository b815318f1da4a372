/* ollama_models.c - what clients of Ollama ask about models, and what they want
 * done with them. Models come from conversions here: what cannot be done says
 * so, and what to do instead. */
#include <string.h>

#include "api/ollama.h"
#include "serve/engines/residency.h"

/* The version of Ollama whose API this is; clients look for a least one. */
#define OLLAMA_VERSION "0.32.7"
/* What has no end is over in a hundred years. */
#define FOREVER_MS (INT64_C(100) * 365 * 24 * 3600 * 1000)

void api_ollama_root(struct http_req *r, const struct http_args *a)
{
    static const char text[] = "Ollama is running";
    (void)a;
    if (http_wants_page(r)) {
        api_page(r);
        return;
    }
    http_reply_with(r, 200, "text/plain; charset=utf-8", "Vary: Accept\r\n",
                    text, sizeof(text) - 1);
}

void api_ollama_version(struct http_req *r, const struct http_args *a)
{
    struct json *o = json_object();
    (void)a;
    json_add_str(o, "version", OLLAMA_VERSION);
    api_reply(r, 200, o);
}

/* --- models --- */

static void put_time(struct json *o, const char *key, int64_t unix_ms)
{
    struct buf b;
    buf_init(&b, 64);
    ollama_put_time(&b, unix_ms);
    json_add_strn(o, key, b.p, b.n);
    buf_fini(&b);
}

static void put_details(struct json *o, const struct bundle *b)
{
    struct json *x = json_add_object(o, "details");
    json_add_str(x, "parent_model", "");
    json_add_str(x, "format", "mlpackage");
    json_add_str(x, "family", b->architecture);
    json_add_str(json_add_array(x, "families"), NULL, b->architecture);
    json_add_str(x, "parameter_size", "");
    json_add_str(x, "quantization_level", b->quant);
}

/* As `name`, which may be an alias. */
static struct json *model_json(const struct model *m, const char *name,
                               uint64_t bytes)
{
    struct json *o = json_object();
    json_add_str(o, "name", name);
    json_add_str(o, "model", name);
    json_add_int(o, "size", (int64_t)bytes);
    json_add_str(o, "digest", m->bundle->fingerprint);
    put_details(o, m->bundle);
    return o;
}

static struct json *tag(const struct model *m, const char *name)
{
    if (m->bundle == NULL) {
        return NULL;
    }
    struct json *o = model_json(m, name, m->bundle->total_bytes);
    put_time(o, "modified_at", m->created_ms);
    return o;
}

void api_ollama_tags(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_list_models(r, "models", NULL, tag);
}

void api_ollama_ps(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct buf b;
    (void)a;
    api_list_begin(&b, "models", NULL);
    for (struct model *m = models_first(s->models); m != NULL;
         m = models_next(m)) {
        if (m->state != MODEL_LOADED) {
            continue;
        }
        int64_t left = model_leaves_ms(m);
        struct json *o = model_json(m, m->name, model_bytes(m));
        put_time(o, "expires_at",
                 server_unix_ms() + (left < 0 ? FOREVER_MS : left));
        json_add_int(o, "size_vram", 0); /* memory is shared, or the CPU's */
        json_add_int(o, "context_length", (int64_t)m->bundle->context);
        api_list_add(&b, o);
    }
    api_list_reply(r, &b);
}

typedef int find_fn(struct http_req *r, const char *name, struct model **ret);

/* The model that a body names, {"model"} or {"name"}, by `find`; other members
 * of it are among `keys` (NULL at the end). NULL: an answer was sent. */
static struct model *named(struct http_req *r, const char *const *keys,
                           find_fn *find)
{
    struct json *j = NULL;
    struct model *m = NULL;
    struct err e = {0};
    const char *name = NULL;
    if (api_body(r, &j) != 0) {
        return NULL;
    }
    int rc = 0;
    for (const struct json *c = json_first(j); c != NULL && rc == 0;
         c = json_next(c)) {
        bool is_name = strcmp(json_key(c), "model") == 0 ||
                       strcmp(json_key(c), "name") == 0;
        const char *const *k = keys;
        while (*k != NULL && strcmp(*k, json_key(c)) != 0) {
            k++;
        }
        if (is_name && json_str(c) == NULL && json_type(c) != JSON_NULL) {
            rc = err_set(&e, ERR_INVALID, "%s: must be a string", json_key(c));
        } else if (is_name) {
            name = json_str(c) != NULL ? json_str(c) : name;
        } else if (*k == NULL && json_type(c) != JSON_NULL) {
            rc = err_set(&e, ERR_UNSUPPORTED, "%.63s: no such field here",
                         json_key(c));
        }
    }
    if (rc == 0 && name == NULL) {
        rc = err_set(&e, ERR_INVALID, "model: must be given");
    }
    if (rc != 0) {
        api_fail(r, rc, NULL, e.msg);
    } else if (find(r, name, &m) != 0) {
        m = NULL;
    }
    json_free(j);
    return m;
}

/* "llama.context_length" */
static void put_number(struct json *o, const char *arch, const char *key,
                       uint32_t n)
{
    char name[96];
    (void)snprintf(name, sizeof(name), "%.48s.%s", arch, key);
    json_add_int(o, name, (int64_t)n);
}

/* /api/show, while the vocabulary is being opened: the chat template says what
 * the model can do. */
struct show {
    struct text_work work;
    struct http_req *r; /* NULL: the client left */
    struct server *srv;
    char name[MODEL_NAME_MAX + 1];
};

/* Clients choose models for vectors by "embedding", which every decoder gives:
 * it is said of those that were made for it. */
static void put_capabilities(struct json *o, const struct model *m)
{
    const struct voc *v = m->voc;
    struct json *list = json_add_array(o, "capabilities");
    bool embeds = bundle_kind(m->bundle) == BUNDLE_EMBEDDER;
    if (!m->bundle->encoder) {
        json_add_str(list, NULL, "completion");
    }
    if (embeds || m->bundle->pooling != POOL_NONE) {
        json_add_str(list, NULL, "embedding");
    }
    if (m->bundle->encoder) {
        return;
    }
    if (v->open && voc_has_tools(v)) {
        json_add_str(list, NULL, "tools");
    }
    if (v->open && v->forms.thoughts != REPLY_NO_THOUGHTS) {
        json_add_str(list, NULL, "thinking");
    }
}

static void reply_show(struct http_req *r, const struct model *m)
{
    char parameters[48];
    const struct bundle *b = m->bundle;
    if (b == NULL) {
        api_fail(r, ERR_MODEL_FAILED, NULL, m->reason);
        return;
    }
    struct json *o = json_object();
    (void)snprintf(parameters, sizeof(parameters), "num_ctx %u", b->context);
    json_add_str(o, "parameters", parameters);
    put_details(o, b);
    struct json *x = json_add_object(o, "model_info");
    json_add_str(x, "general.architecture", b->architecture);
    json_add_str(x, "general.basename", m->name);
    put_number(x, b->architecture, "context_length", b->context);
    put_number(x, b->architecture, "embedding_length", b->d_model);
    put_number(x, b->architecture, "block_count", b->n_layers);
    put_number(x, b->architecture, "attention.head_count", b->n_heads);
    put_number(x, b->architecture, "attention.head_count_kv", b->n_kv_heads);
    put_number(x, b->architecture, "vocab_size", b->vocab);
    put_capabilities(o, m);
    put_time(o, "modified_at", m->created_ms);
    api_reply(r, 200, o);
}

static void show_free(struct show *x)
{
    text_fini(&x->work);
    free(x);
}

static void show_gone(struct http_req *r, void *user)
{
    struct show *x = user;
    (void)r;
    x->r = NULL;
    if (text_cancel(x->srv->text, &x->work)) {
        show_free(x);
    }
}

/* text_work.done. A vocabulary that does not open says nothing of itself. */
static void show_opened(struct text_work *w)
{
    struct show *x = container_of(w, struct show, work);
    struct model *m = NULL; /* it may be another by now */
    if (x->r != NULL) {
        http_on_gone(x->r, NULL, NULL);
        if (api_model(x->r, x->name, &m) == 0) {
            reply_show(x->r, m);
        }
    }
    show_free(x);
}

void api_ollama_show(struct http_req *r, const struct http_args *a)
{
    static const char *const keys[] = {"verbose", "system", "template",
                                       "options", NULL};
    struct server *s = http_ctx(r);
    struct model *m = named(r, keys, api_model);
    (void)a;
    if (m == NULL) {
        return;
    }
    if (m->bundle == NULL || m->voc->open) {
        reply_show(r, m);
        return;
    }
    struct show *x = calloc(1, sizeof(*x));
    must(x != NULL);
    x->r = r;
    x->srv = s;
    (void)snprintf(x->name, sizeof(x->name), "%s", m->name);
    x->work.kind = TEXT_OPEN;
    x->work.done = show_opened;
    if (text_put(s->text, m->voc, &x->work) != 0) { /* too much waits for it */
        show_free(x);
        reply_show(r, m);
        return;
    }
    http_on_gone(r, show_gone, x);
}

/* --- what is to be done with them --- */

/* A model that is there needs no fetching; aned fetches none. */
void api_ollama_pull(struct http_req *r, const struct http_args *a)
{
    static const char *const keys[] = {"stream", "insecure", NULL};
    static const char done[] = "{\"status\":\"success\"}\n";
    (void)a;
    if (named(r, keys, api_model) != NULL) {
        http_reply(r, 200, "application/x-ndjson", done, sizeof(done) - 1);
    }
}

void api_ollama_push(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_fail(r, ERR_UNSUPPORTED, NULL, "push: aned publishes no models");
}

void api_ollama_create(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_fail(r, ERR_UNSUPPORTED, NULL,
             "create: aned converts files of its own machine; `anectl convert FILE` or POST "
             "/aned/v1/jobs makes a model");
}

void api_ollama_copy(struct http_req *r, const struct http_args *a)
{
    (void)a;
    api_fail(r, ERR_UNSUPPORTED, NULL, "copy: a model has one name here");
}

static void say_deleted(struct http_req *r, const char *name)
{
    (void)name;
    http_reply(r, 200, NULL, "{}", 2);
}

void api_ollama_delete(struct http_req *r, const struct http_args *a)
{
    static const char *const keys[] = {NULL};
    struct model *m = named(r, keys, api_own_model);
    (void)a;
    if (m != NULL) {
        api_delete(r, m, say_deleted);
    }
}
