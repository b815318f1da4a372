/* tags.c - POST /aned/v1/classify and /aned/v1/redact: spans of texts, by a model
 * that labels tokens, and the texts without them.
 *
 *   body -> each text: tokens (text thread) -> the model is loaded -> each text:
 *   labels (engine) -> spans and the answer's JSON (text thread) -> sent
 *
 * Texts of one request go to the engine one after the other, so that requests
 * share it.
 */
#include <math.h>
#include <string.h>

#include "api/tags_impl.h"

static const char *const request_keys[] = {"model", "input", "labels",
                                           "biases"};

static void tag_free(struct tag_call *c)
{
    for (size_t i = 0; i < c->n_texts; i++) {
        free(c->texts[i].tokens);
        free(c->texts[i].labels);
        free(c->texts[i].probs);
    }
    if (c->uses) {
        model_unuse(c->m);
    }
    text_fini(&c->work);
    arena_fini(&c->arena);
    buf_fini(&c->out);
    free(c);
}

static void fail(struct tag_call *c, int rc, const char *msg)
{
    if (c->r != NULL) {
        api_fail(c->r, rc, c->param[0] != '\0' ? c->param : NULL, msg);
    }
    tag_free(c);
}

/* --- the request --- */

static int bad_field(struct tag_call *c, const char *key, int code,
                     const char *what, struct err *e)
{
    (void)snprintf(c->param, sizeof(c->param), "%s", key);
    return err_set(e, code, "%.63s: %s", key, what);
}

static int keep(struct tag_call *c, const char *s, const char **ret,
                struct err *e)
{
    *ret = arena_str(&c->arena, s);
    return *ret != NULL ? 0
                        : err_set(e, ERR_TOO_BIG, "the text is over the limit");
}

/* The strings of an array, or one string. */
static int read_strings(struct tag_call *c, const struct json *v,
                        const char *key, size_t most, const char ***ret,
                        size_t *ret_n, struct err *e)
{
    bool one = v != NULL && json_type(v) == JSON_STRING;
    size_t n = one ? 1 : v != NULL ? json_count(v) : 0;
    if (v == NULL || (!one && json_type(v) != JSON_ARRAY) || n == 0) {
        return bad_field(c, key, ERR_INVALID,
                         "must be a text, or an array of them", e);
    }
    if (n > most) {
        return bad_field(c, key, ERR_TOO_BIG, "too many entries", e);
    }
    const char **out = arena_array(&c->arena, n, sizeof(*out));
    if (out == NULL) {
        return err_set(e, ERR_NOMEM, "%zu texts", n);
    }
    const struct json *x = one ? v : json_first(v);
    for (size_t i = 0; i < n; i++, x = json_next(x)) {
        if (json_str(x) == NULL) {
            return bad_field(c, key, ERR_INVALID, "an entry is no text", e);
        }
        RETERR(keep(c, json_str(x), &out[i], e));
    }
    *ret = out;
    *ret_n = n;
    return 0;
}

static int read_biases(struct tag_call *c, const struct json *v, struct err *e)
{
    if (v == NULL) {
        return 0;
    }
    if (json_type(v) != JSON_OBJECT) {
        return bad_field(c, "biases", ERR_INVALID, "must be an object", e);
    }
    for (const struct json *x = json_first(v); x != NULL; x = json_next(x)) {
        unsigned i = 0;
        while (i < TAGS_BIASES &&
               strcmp(tags_bias_names[i], json_key(x)) != 0) {
            i++;
        }
        double b = json_type(x) == JSON_NUMBER ? json_num(x) : (double)NAN;
        if (i == TAGS_BIASES || !(fabs(b) <= 1e6)) {
            return bad_field(c, "biases", ERR_INVALID,
                             "background_stay, background_to_start, "
                             "inside_to_continue, inside_to_end, "
                             "end_to_background, end_to_start, each a number",
                             e);
        }
        c->biases[i] = (float)b;
    }
    return 0;
}

static int read_request(struct api_read *x, const struct json *j)
{
    struct tag_call *c = container_of(x, struct tag_call, body);
    struct err *e = &x->e;
    const char *model = NULL;
    const char **texts = NULL;
    for (const struct json *k = json_first(j); k != NULL; k = json_next(k)) {
        size_t i = 0;
        while (i < countof(request_keys) &&
               strcmp(request_keys[i], json_key(k)) != 0) {
            i++;
        }
        if (i == countof(request_keys)) {
            return bad_field(c, json_key(k), ERR_UNSUPPORTED,
                             "no such field here", e);
        }
    }
    RETERR(json_want_str(j, "model", false, &model, e));
    if (model != NULL) {
        RETERR(keep(c, model, &c->model_name, e));
    }
    RETERR(read_strings(c, json_get(j, "input"), "input", TAGS_INPUTS_MAX,
                        &texts, &c->n_texts, e));
    c->texts = arena_array(&c->arena, c->n_texts, sizeof(*c->texts));
    if (c->texts == NULL) {
        c->n_texts = 0;
        return err_set(e, ERR_NOMEM, "texts");
    }
    memset(c->texts, 0, c->n_texts * sizeof(*c->texts));
    for (size_t i = 0; i < c->n_texts; i++) {
        c->texts[i].text = (struct span){texts[i], strlen(texts[i])};
    }
    if (json_get(j, "labels") != NULL) {
        RETERR(read_strings(c, json_get(j, "labels"), "labels",
                            MODEL_LABELS_MAX, &c->labels, &c->n_labels, e));
    }
    return read_biases(c, json_get(j, "biases"), e);
}

/* --- the answer --- */

/* text_work.then */
static void write_answer(struct text_work *w)
{
    struct tag_call *c = container_of(w, struct tag_call, work);
    if (w->rc == 0) {
        c->rc = tags_put_answer(c, &c->e);
    }
}

static void on_written(struct text_work *w)
{
    struct tag_call *c = container_of(w, struct tag_call, work);
    if (w->rc != 0) {
        fail(c, w->rc, w->e.msg);
    } else if (c->rc != 0) {
        fail(c, c->rc, c->e.msg);
    } else if (!buf_ok(&c->out)) {
        fail(c, ERR_TOO_BIG, "the answer is over the limit");
    } else {
        if (c->r != NULL) {
            http_reply_take(c->r, 200, NULL, &c->out);
        }
        tag_free(c);
    }
}

/* --- the stages --- */

static void put_work(struct tag_call *c)
{
    struct server *s = c->srv;
    int rc = text_put(s->text, c->m->voc, &c->work);
    if (rc != 0) {
        s->stats.refused_busy++;
        fail(c, rc, "too many texts wait to be tokenised");
    }
}

static void encode_next(struct tag_call *c);
static void tag_next(struct tag_call *c);

static void on_tags(struct run_tags *x, int rc, const char *msg,
                    const struct msg_tags_done *m)
{
    struct tag_call *c = container_of(x, struct tag_call, run);
    struct tag_text *t = &c->texts[c->at];
    c->tagging = false;
    if (rc != 0) {
        fail(c, rc, msg);
        return;
    }
    t->labels = malloc(t->n * sizeof(*t->labels));
    t->probs = malloc(t->n * sizeof(*t->probs));
    if (t->labels == NULL || t->probs == NULL) {
        fail(c, ERR_NOMEM, "no memory for the labels");
        return;
    }
    memcpy(t->labels, m->labels, t->n * sizeof(*t->labels));
    memcpy(t->probs, m->probs, t->n * sizeof(*t->probs));
    for (size_t i = 0; i < t->n; i++) {
        if (t->labels[i] >= c->m->bundle->n_labels) {
            fail(c, ERR_INTERNAL, "the engine gave a label that is none");
            return;
        }
    }
    c->srv->stats.labelled_texts++;
    c->srv->stats.labelled_tokens += t->n;
    c->at++;
    tag_next(c);
}

static void tag_next(struct tag_call *c)
{
    struct err e = {0};
    while (c->at < c->n_texts && c->texts[c->at].n == 0) {
        c->at++; /* an empty text has no spans */
    }
    if (c->at == c->n_texts) {
        text_fini(&c->work);
        c->work = (struct text_work){
            .kind = TEXT_OPEN, .then = write_answer, .done = on_written};
        put_work(c);
        return;
    }
    int rc = model_serves(c->m, &e);
    if (rc != 0) {
        fail(c, rc, e.msg);
        return;
    }
    c->run = (struct run_tags){.tokens = c->texts[c->at].tokens,
                               .n = (uint32_t)c->texts[c->at].n,
                               .done = on_tags};
    memcpy(c->run.biases, c->biases, sizeof(c->biases));
    rc = runner_tags_add(c->m->runner, &c->run);
    if (rc != 0) {
        c->srv->stats.refused_busy++;
        fail(c, rc, "too many texts wait for this model");
        return;
    }
    c->tagging = true;
    runner_tags_kick(c->m->runner);
}

static void on_model(struct model_wait *w, int rc, const struct err *e)
{
    struct tag_call *c = container_of(w, struct tag_call, wait);
    if (rc != 0) {
        fail(c, rc, e->msg);
        return;
    }
    c->at = 0;
    tag_next(c);
}

static void load(struct tag_call *c)
{
    struct err e = {0};
    c->wait.fn = on_model;
    int rc = model_load(c->m, false, &c->wait, &e);
    if (rc < 0) {
        fail(c, rc, e.msg);
        return;
    }
    if (rc == 1) {
        c->at = 0;
        tag_next(c);
    }
}

static void on_encoded(struct text_work *w)
{
    struct tag_call *c = container_of(w, struct tag_call, work);
    struct tag_text *t = &c->texts[c->at];
    if (c->r == NULL) {
        tag_free(c);
        return;
    }
    if (w->rc != 0) {
        fail(c, w->rc, w->e.msg);
        return;
    }
    t->tokens = w->tokens;
    t->n = w->n_tokens;
    w->tokens = NULL;
    if (t->n > TAGS_TOKENS_MAX) {
        struct err e = {0};
        (void)snprintf(c->param, sizeof(c->param), "input");
        fail(c,
             err_set(&e, ERR_TOO_BIG,
                     "input: a text of %zu tokens, at most %u are labelled at "
                     "once; cut it where its lines end",
                     t->n, TAGS_TOKENS_MAX),
             e.msg);
        return;
    }
    c->at++;
    encode_next(c);
}

static void encode_next(struct tag_call *c)
{
    while (c->at < c->n_texts && c->texts[c->at].text.n == 0) {
        c->at++;
    }
    if (c->at == c->n_texts) {
        load(c);
        return;
    }
    text_fini(&c->work);
    c->work = (struct text_work){.kind = TEXT_ENCODE,
                                 .text = c->texts[c->at].text.p,
                                 .text_n = c->texts[c->at].text.n,
                                 .done = on_encoded};
    put_work(c);
}

static void on_gone(struct http_req *r, void *user)
{
    struct tag_call *c = user;
    (void)r;
    c->r = NULL;
    if (c->tagging) {
        runner_tags_remove(c->m->runner, &c->run);
        tag_free(c);
    } else if (c->wait.model != NULL) {
        model_unwait(&c->wait);
        tag_free(c);
    } else if (text_cancel(c->srv->text, &c->work)) {
        tag_free(c);
    } /* else its done() is called */
}

/* Every label that is asked for is one of the model's. */
static int check_labels(struct tag_call *c, struct err *e)
{
    const struct bundle *b = c->m->bundle;
    struct tags *t = NULL;
    RETERR(tags_open(b->labels, b->n_labels, &t, e));
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n_labels; i++) {
        if (tags_find(t, c->labels[i]) == UINT32_MAX) {
            (void)snprintf(c->param, sizeof(c->param), "labels");
            rc = err_set(e, ERR_INVALID, "labels: %s has no '%.64s'",
                         c->m->name, c->labels[i]);
        }
    }
    tags_close(t);
    return rc;
}

static int check_model(struct tag_call *c, struct err *e)
{
    if (c->m->bundle == NULL) {
        return err_set(e, ERR_MODEL_FAILED, "%s: %s", c->m->name,
                       c->m->reason);
    }
    int rc = bundle_want_kind(c->m->bundle, BUNDLE_TAGGER, e);
    if (rc != 0) {
        (void)snprintf(c->param, sizeof(c->param), "model");
        return rc;
    }
    return check_labels(c, e);
}

/* api_read.go */
static void on_read(struct api_read *x)
{
    struct tag_call *c = container_of(x, struct tag_call, body);
    struct err e = {0};
    c->r = x->r;
    if (c->r == NULL) {
        tag_free(c);
        return;
    }
    c->srv = http_ctx(c->r);
    if (x->rc != 0) {
        fail(c, x->rc, x->e.msg);
        return;
    }
    if (api_model(c->r, c->model_name, &c->m) != 0) {
        tag_free(c);
        return;
    }
    int rc = check_model(c, &e);
    if (rc != 0) {
        fail(c, rc, e.msg);
        return;
    }
    model_use(c->m); /* it is neither unloaded nor deleted meanwhile */
    c->uses = true;
    http_on_gone(c->r, on_gone, c);
    encode_next(c);
}

static void start(struct http_req *r, bool redacts)
{
    struct tag_call *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->redacts = redacts;
    arena_init(&c->arena, GEN_ARENA_MAX);
    buf_init(&c->out, HTTP_REPLY_MAX - KIB(4));
    c->body.read = read_request;
    c->body.go = on_read;
    api_read_body(r, &c->body);
}

void api_classify(struct http_req *r, const struct http_args *a)
{
    (void)a;
    start(r, false);
}

void api_redact(struct http_req *r, const struct http_args *a)
{
    (void)a;
    start(r, true);
}
