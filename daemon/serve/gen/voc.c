/* voc.c - see voc.h. */
#include "serve/gen/voc.h"

#include <string.h>
#include <time.h>

#include "model/breakers.h"
#include "serve/gen/want.h"

struct voc *voc_new(const char *dir)
{
    struct voc *v = calloc(1, sizeof(*v));
    must(v != NULL);
    v->refs = 1;
    (void)snprintf(v->dir, sizeof(v->dir), "%s", dir);
    return v;
}

struct voc *voc_ref(struct voc *v)
{
    v->refs++;
    return v;
}

void voc_unref(struct voc *v)
{
    if (v == NULL || --v->refs > 0) {
        return;
    }
    chat_free(v->tmpl);
    tokenizer_close(v->tok);
    tokenizer_words_free(v->words[0]);
    tokenizer_words_free(v->words[1]);
    buf_fini(&v->bos);
    buf_fini(&v->eos);
    free(v);
}

/* --- text thread --- */

static void piece_of(const struct tokenizer *t, int32_t id, struct buf *b)
{
    buf_init(b, TOKEN_BYTES_MAX);
    if (id != TOKEN_NONE) {
        struct span s = tokenizer_piece(t, id, true);
        buf_put(b, s.p, s.n);
    }
    buf_put(b, "", 0);
}

static int try_open(struct voc *v)
{
    v->error = (struct err){0};
    int rc = tokenizer_open(v->dir, &v->tok, &v->error);
    if (rc != 0) {
        v->tok = NULL;
        v->error.code = rc;
        return rc;
    }
    piece_of(v->tok, tokenizer_bos(v->tok), &v->bos);
    piece_of(v->tok, tokenizer_eos(v->tok), &v->eos);
    v->tmpl_rc =
        chat_compile(tokenizer_template(v->tok), &v->tmpl, &v->tmpl_error);
    reply_forms_find(tokenizer_template(v->tok), &v->forms);
    int32_t n = tokenizer_vocab(v->tok);
    for (int32_t id = 0; id < n && v->n_eog < VOC_EOG_MAX; id++) {
        if (tokenizer_is_eog(v->tok, id)) {
            v->eog[v->n_eog++] = id;
        }
    }
    return 0;
}

static int voc_open(struct voc *v, struct err *e)
{
    uint64_t now = uv_hrtime() / 1000000u;
    if (v->tok == NULL && now >= v->again_ms && try_open(v) != 0) {
        v->again_ms = now + VOC_RETRY_MS;
    }
    if (v->tok == NULL) {
        *e = v->error;
        return v->error.code;
    }
    return 0;
}

/* Whether the text brought token `id` at that place, so that it does not stand
 * there twice. An encoder's [CLS] and [SEP] stand around every text, as in the
 * library of its kind: in front of a text's own. */
static bool brought(const struct tokenizer *t, const struct text_work *w,
                    size_t at, int32_t id)
{
    return w->special && at < w->n_tokens && w->tokens[at] == id &&
           strcmp(tokenizer_kind(t), "bert") != 0;
}

/* BOS goes in front where the vocabulary says so, unless the text brought it.
 */
static int add_bos(const struct tokenizer *t, struct text_work *w,
                   struct err *e)
{
    int32_t bos = tokenizer_bos(t);
    if (bos == TOKEN_NONE || !tokenizer_add_bos(t) ||
        brought(t, w, 0, bos)) {
        return 0;
    }
    int32_t *p = malloc((w->n_tokens + 1) * sizeof(*p));
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tokens", w->n_tokens);
    }
    p[0] = bos;
    if (w->n_tokens > 0) {
        memcpy(p + 1, w->tokens, w->n_tokens * sizeof(*p));
    }
    free(w->tokens);
    w->tokens = p;
    w->n_tokens++;
    return 0;
}

/* EOS goes behind where the vocabulary says so, unless the text ends with it. */
static int add_eos(const struct tokenizer *t, struct text_work *w,
                   struct err *e)
{
    int32_t eos = tokenizer_eos(t);
    size_t n = w->n_tokens;
    if (eos == TOKEN_NONE || !tokenizer_add_eos(t) ||
        (n > 0 && brought(t, w, n - 1, eos))) {
        return 0;
    }
    int32_t *p = realloc(w->tokens, (n + 1) * sizeof(*p));
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tokens", n);
    }
    p[n] = eos;
    w->tokens = p;
    w->n_tokens++;
    return 0;
}

static struct tokenizer_words *words_of(struct voc *v, bool here)
{
    struct tokenizer_words **p = &v->words[here ? 0 : 1];
    if (*p == NULL) {
        *p = tokenizer_words_new(); /* without it goes as well */
    }
    return *p;
}

static int encode(struct voc *v, struct text_work *w, const char *text,
                  size_t n, bool special)
{
    RETERR(tokenizer_encode_words(v->tok, words_of(v, w->here), text, n,
                                  special, &w->tokens, &w->n_tokens, &w->e));
    if (w->bos) {
        RETERR(add_bos(v->tok, w, &w->e));
    }
    return w->eos ? add_eos(v->tok, w, &w->e) : 0;
}

/* The prompt, into w->out. steps: chat_request.steps. */
static int render(struct voc *v, struct text_work *w, uint32_t steps)
{
    buf_init(&w->out, TEXT_BYTES_MAX);
    const struct chat_request q = {.messages = w->messages,
                                   .n_messages = w->n_messages,
                                   .add_generation = w->add_generation,
                                   .go_on = true,
                                   .join = true,
                                   .parse = true,
                                   .tools = w->tools,
                                   .documents = w->documents,
                                   .kwargs = w->kwargs,
                                   .bos = v->bos.p,
                                   .eos = v->eos.p,
                                   .now = (int64_t)time(NULL),
                                   .steps = steps};
    RETERR(chat_render(v->tmpl, &q, &w->out, &w->e));
    return buf_ok(&w->out)
               ? 0
               : err_set(&w->e, ERR_TOO_BIG,
                         "the conversation is over %zu bytes", TEXT_BYTES_MAX);
}

bool voc_has_tools(const struct voc *v)
{
    return v->tmpl_rc == 0 && chat_mentions(v->tmpl, "tools") &&
           v->forms.tools != REPLY_NO_TOOLS;
}

/* A tool that the model never hears of, or whose calls nobody can read, is no
 * tool. */
static int check_tools(const struct voc *v, struct err *e)
{
    if (!chat_mentions(v->tmpl, "tools")) {
        return err_set(e, ERR_UNSUPPORTED,
                       "tools: this model's chat template shows no tools");
    }
    return v->forms.tools != REPLY_NO_TOOLS
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "tools: this model's chat template writes calls in a "
                         "form that is not known here");
}

static int encode_chat(struct voc *v, struct text_work *w)
{
    if (v->tmpl_rc != 0) {
        w->e = v->tmpl_error;
        return err_prefix(&w->e, v->tmpl_rc,
                          "this model has no usable chat template, use "
                          "/v1/completions");
    }
    if (w->tools.n > 0) {
        RETERR(check_tools(v, &w->e));
    }
    if (!w->rendered) {
        RETERR(render(v, w, 0));
    }
    /* The template's text decides about BOS: with it none is added, and
     * without it the vocabulary's rule holds. */
    w->special = true;
    w->bos = true;
    return encode(v, w, w->out.p, w->out.n, true);
}

static int decode(struct voc *v, struct text_work *w)
{
    int32_t n = tokenizer_vocab(v->tok);
    for (size_t i = 0; i < w->n_ids; i++) {
        if (w->ids[i] < 0 || w->ids[i] >= n) {
            return err_set(&w->e, ERR_INVALID,
                           "token %d is not in the vocabulary of %d",
                           (int)w->ids[i], (int)n);
        }
    }
    buf_init(&w->out, 4 * TEXT_BYTES_MAX);
    tokenizer_decode(v->tok, w->ids, w->n_ids, w->special, &w->out);
    return buf_ok(&w->out) ? 0 : err_set(&w->e, ERR_TOO_BIG, "too much text");
}

static int find_breaks(struct text_work *w)
{
    int rc = breakers_find(w->voc->tok, w->breakers, w->n_breakers, &w->breaks,
                           &w->n_breaks, &w->e);
    return rc == 0 ? 0 : err_prefix(&w->e, rc, "dry_sequence_breakers");
}

static void text_run(struct text_work *w)
{
    w->rc = voc_open(w->voc, &w->e);
    if (w->rc != 0) {
        return;
    }
    w->opened = true;
    switch (w->kind) {
    case TEXT_ENCODE:
        w->rc = encode(w->voc, w, w->text, w->text_n, w->special);
        break;
    case TEXT_CHAT:
        w->rc = encode_chat(w->voc, w);
        break;
    case TEXT_DECODE:
        w->rc = decode(w->voc, w);
        break;
    case TEXT_OPEN:
        break;
    case TEXT_FIM:
        w->rc =
            fim_encode(w->voc->tok, words_of(w->voc, w->here), w->fim,
                       w->fim_room, &w->tokens, &w->n_tokens, &w->cut, &w->e);
        break;
    }
    if (w->rc == 0 && text_wants(&w->want)) {
        w->rc = want_constraint(w->voc, w);
    }
    if (w->rc == 0 && w->guess != NULL) {
        w->rc = tokenizer_encode_words(
            w->voc->tok, words_of(w->voc, w->here), w->guess, w->guess_n, false,
            &w->guess_tokens, &w->n_guess_tokens, &w->e);
    }
    if (w->rc == 0 && w->n_breakers > 0) {
        w->rc = find_breaks(w);
    }
}

static void run(struct work *work)
{
    struct text_work *w = container_of(work, struct text_work, work);
    text_run(w);
    if (w->then != NULL) {
        w->then(w);
    }
}

/* --- loop --- */

static void done(struct work *work)
{
    struct text_work *w = container_of(work, struct text_work, work);
    struct voc *v = w->voc;
    v->open = v->open || w->opened; /* `tok` may be being opened for another */
    w->done(w);                     /* may free w */
    voc_unref(v);
}

/* Waking the text thread and being woken by it takes as long as tokenising some
 * kilobytes, and a core from the engine. */
static bool is_short(const struct text_work *w)
{
    size_t n = w->guess != NULL ? w->guess_n : 0;
    n += w->n_ids * sizeof(*w->ids);
    n += w->kind == TEXT_ENCODE ? w->text_n : 0;
    n += w->kind == TEXT_FIM ? fim_bytes(w->fim) : 0;
    n += w->tools.n + w->documents.n + w->kwargs.n;
    for (size_t i = 0; i < w->n_messages && n <= TEXT_HERE_MAX; i++) {
        const struct chat_message *m = &w->messages[i];
        n += m->content_n + m->fields.n + m->reasoning_n;
    }
    return n <= TEXT_HERE_MAX && w->n_breakers == 0 &&
           w->n_messages <= TEXT_HERE_MESSAGES &&
           !text_wants(&w->want); /* schemas may be large */
}

/* A short conversation, rendered here. False: the template takes long, or
 * fails, for it: the text thread begins again. */
static bool render_here(struct voc *v, struct text_work *w)
{
    if (v->tmpl_rc != 0) {
        return true; /* an error is soon told */
    }
    w->rendered = render(v, w, TEXT_HERE_STEPS) == 0;
    if (!w->rendered) {
        buf_fini(&w->out);
        w->e = (struct err){0};
    }
    return w->rendered;
}

int text_put(struct workq *q, struct voc *v, struct text_work *w)
{
    w->work.run = run;
    w->work.done = done;
    w->rc = 0;
    w->opened = false;
    w->voc = voc_ref(v); /* before the worker can see it */
    w->rendered = false;
    w->here =
        v->open && is_short(w) && (w->kind != TEXT_CHAT || render_here(v, w));
    int rc = w->here ? workq_run(q, &w->work) : workq_put(q, &w->work);
    if (rc != 0) {
        buf_fini(&w->out); /* nothing, or a prompt */
        w->voc = NULL;
        voc_unref(v);
    }
    return rc;
}

bool text_cancel(struct workq *q, struct text_work *w)
{
    bool mine = workq_cancel(q, &w->work);
    if (mine) {
        voc_unref(w->voc);
        w->voc = NULL;
    }
    return mine;
}

void text_fini(struct text_work *w)
{
    free(w->tokens);
    w->tokens = NULL;
    w->n_tokens = 0;
    free(w->guess_tokens);
    w->guess_tokens = NULL;
    w->n_guess_tokens = 0;
    free(w->breaks);
    w->breaks = NULL;
    w->n_breaks = 0;
    buf_fini(&w->out);
    buf_fini(&w->constraint);
}
