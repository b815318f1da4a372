/* embeds.c - see embeds.h.
 *
 * A request has one seat in the model's queue, for as many streams as it has at
 * once, from its start to its end: so a long list of texts is not refused in its
 * middle. When a text is ready the next one takes its place before the next step
 * is formed.
 */
#include "serve/gen/embeds.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "serve/server.h"

static struct embeds *of_work(struct text_work *w)
{
    return container_of(w, struct embeds, work);
}

/* Leave the scheduler, the queue and the model. */
static void leave(struct embeds *x)
{
    model_unwait(&x->wait);
    for (size_t i = 0; x->running && i < x->at_once; i++) {
        struct embed_slot *s = &x->slots[i];
        if (s->text != NULL && x->m->bundle->encoder) {
            runner_tags_remove(x->m->runner, &s->tags);
        } else if (s->text != NULL) {
            runner_remove(x->m->runner, &s->run);
        }
        s->text = NULL;
    }
    x->running = false;
    if (x->seated) {
        admit_leave(&x->m->admit, &x->seat);
        x->seated = false;
    }
    if (x->uses) {
        model_unuse(x->m);
        x->uses = false;
    }
}

static void finish(struct embeds *x, int rc, const char *msg)
{
    x->srv->stats.embeddings_failed += rc != 0 ? 1 : 0;
    leave(x);
    x->done(x, rc, msg);
}

/* --- streams --- */

static void feed(struct embeds *x);

static struct embed_slot *slot_of(struct run_stream *r)
{
    return container_of(r, struct embed_slot, run);
}

/* The slot's text is out of the runner. */
static void take(struct embed_slot *s, const float *vector, uint32_t n)
{
    struct embeds *x = s->of;
    struct embed_text *t = s->text;
    s->text = NULL;
    x->n_out--;
    if (vector == NULL || n != x->width) {
        finish(x, ERR_INTERNAL, "the engine gave a vector of another width");
        return;
    }
    t->vector = malloc(x->width * sizeof(*t->vector));
    if (t->vector == NULL) {
        finish(x, ERR_NOMEM, "no memory for the vectors");
        return;
    }
    memcpy(t->vector, vector, x->width * sizeof(*t->vector));
    x->srv->stats.embedded_texts++;
    x->srv->stats.embedded_tokens += t->n;
    x->n_done++;
    feed(x);
}

static void on_computed(struct run_stream *r)
{
    struct embed_slot *s = slot_of(r);
    runner_remove(s->of->m->runner, r);
    take(s, r->vector, r->n_vector);
}

static void on_read(struct run_tags *r, int rc, const char *msg,
                    const struct msg_tags_done *m)
{
    struct embed_slot *s = container_of(r, struct embed_slot, tags);
    if (rc != 0) {
        s->text = NULL;
        finish(s->of, rc, msg);
        return;
    }
    take(s, m->vector, m->n_vector);
}

/* A row tells its code alone; this one is about the model. */
static void on_fail(struct run_stream *r, int code, const char *msg)
{
    struct embeds *x = slot_of(r)->of;
    struct err e = {0};
    if (code == ERR_UNSUPPORTED) {
        (void)err_set(&e, code,
                      "%s gives no embeddings: its head has no final norm in "
                      "the form that aned's converter writes; convert the "
                      "model from its source", x->m->name);
        msg = e.msg;
    }
    finish(x, code, msg);
}

static const struct run_events events = {.on_computed = on_computed,
                                         .on_fail = on_fail};

static int add_to_encoder(struct embeds *x, struct embed_slot *s,
                          struct embed_text *t)
{
    *s = (struct embed_slot){.of = x, .text = t};
    s->tags.tokens = t->tokens;
    s->tags.n = t->n;
    s->tags.pool = bundle_pooling(x->m->bundle);
    s->tags.done = on_read;
    int rc = runner_tags_add(x->m->runner, &s->tags);
    s->text = rc == 0 ? t : NULL;
    return rc;
}

static int add(struct embeds *x, struct embed_slot *s, struct embed_text *t)
{
    static struct msg_sampling none; /* nothing is drawn */
    const struct bundle *b = x->m->bundle;
    msg_sampling_init(&none);
    *s = (struct embed_slot){.of = x, .text = t};
    s->run.events = &events;
    s->run.sampling = &none;
    s->run.pool = bundle_pooling(b);
    s->run.s.prompt = t->tokens;
    s->run.s.n_prompt = t->n;
    s->run.s.compute_only = true;
    s->run.s.pool = true;
    s->run.s.cls = x->cls;
    s->run.s.peer = x->peer;
    s->run.s.request = &x->seat;
    int rc = runner_add(x->m->runner, &s->run);
    s->text = rc == 0 ? t : NULL;
    return rc;
}

/* The next texts to places that are free; the end when there are none left. */
static void feed(struct embeds *x)
{
    bool encoder = x->m->bundle->encoder;
    for (size_t i = 0; i < x->at_once && x->at < x->n_texts; i++) {
        struct embed_slot *s = &x->slots[i];
        if (s->text == NULL) {
            struct embed_text *t = &x->texts[x->at];
            int rc = encoder ? add_to_encoder(x, s, t) : add(x, s, t);
            if (rc != 0 && x->n_out > 0) {
                break; /* the next one is tried when one of them is done */
            }
            if (rc != 0) {
                finish(x, rc, "the queue is full");
                return;
            }
            x->n_out++;
            x->at++;
        }
    }
    if (x->n_done == x->n_texts) {
        finish(x, 0, NULL);
        return;
    }
    (encoder ? runner_tags_kick : runner_kick)(x->m->runner);
}

static void run(struct embeds *x)
{
    struct err e = {0};
    int rc = model_serves(x->m, &e);
    if (rc != 0) {
        finish(x, rc, e.msg);
        return;
    }
    x->at = 0;
    x->running = true;
    feed(x);
}

static void on_model(struct model_wait *w, int rc, const struct err *e)
{
    struct embeds *x = container_of(w, struct embeds, wait);
    if (rc != 0) {
        finish(x, rc, e->msg);
    } else {
        run(x);
    }
}

static void load(struct embeds *x)
{
    struct err e = {0};
    x->wait.fn = on_model;
    int rc = model_load(x->m, false, &x->wait, &e);
    if (rc < 0) {
        finish(x, rc, e.msg);
    } else if (rc == 1) {
        run(x);
    }
}

/* --- tokens --- */

/* The first n tokens; where the vocabulary puts EOS behind texts it stays. */
static void cut(const struct embeds *x, struct embed_text *t, uint32_t n)
{
    const struct tokenizer *tok = x->m->voc->tok;
    int32_t last = t->tokens[t->n - 1];
    bool ends = t->text != NULL && tokenizer_add_eos(tok) &&
                last == tokenizer_eos(tok);
    t->n = n;
    if (ends) {
        t->tokens[n - 1] = last;
    }
}

static int check_text(struct embeds *x, struct embed_text *t, struct err *e)
{
    size_t i = (size_t)(t - x->texts);
    int32_t vocab = tokenizer_vocab(x->m->voc->tok);
    uint32_t context = x->m->bundle->context;
    if (t->n == 0) {
        return err_set(e, ERR_INVALID, "input %zu has no token", i);
    }
    for (uint32_t k = 0; k < t->n; k++) {
        if (t->tokens[k] < 0 || t->tokens[k] >= vocab) {
            return err_set(e, ERR_INVALID,
                           "input %zu: token %d is not in the vocabulary of %d",
                           i, (int)t->tokens[k], (int)vocab);
        }
    }
    if (t->n > context && !x->truncate) {
        return err_set(e, ERR_CONTEXT,
                       "input %zu has %u tokens, the model's context %u; cut "
                       "the text into pieces", i, t->n, context);
    }
    if (t->n > context) {
        cut(x, t, context);
    }
    x->n_tokens += t->n;
    return x->n_tokens <= EMBED_TOKENS_MAX
               ? 0
               : err_set(e, ERR_TOO_BIG,
                         "the inputs have more than %u tokens; send them in "
                         "several requests", EMBED_TOKENS_MAX);
}

static void encode_next(struct embeds *x);

static void on_encoded(struct text_work *w)
{
    struct embeds *x = of_work(w);
    struct embed_text *t = &x->texts[x->at];
    struct err e = {0};
    x->encoding = false;
    if (x->seat.n == 0) { /* make_way, or nobody waits for it */
        finish(x, ERR_BUSY, "the queue is full, and others go first");
        return;
    }
    int rc = w->rc;
    if (rc == 0 && t->text != NULL) {
        t->tokens = w->tokens;
        t->n = (uint32_t)num_min(w->n_tokens, UINT32_MAX);
        w->tokens = NULL;
    }
    rc = rc == 0 ? check_text(x, t, &e) : err_set(&e, rc, "%s", w->e.msg);
    if (rc != 0) {
        finish(x, rc, e.msg);
        return;
    }
    x->at++;
    encode_next(x);
}

static int put(struct embeds *x)
{
    struct embed_text *t = &x->texts[x->at];
    text_fini(&x->work);
    x->work = (struct text_work){.kind = TEXT_OPEN, .done = on_encoded};
    if (t->text != NULL) {
        x->work.kind = TEXT_ENCODE;
        x->work.text = t->text;
        x->work.text_n = t->text_n;
        x->work.special = true;
        x->work.bos = true;
        x->work.eos = true;
    } else {
        t->tokens = malloc((t->n_ids + 1) * sizeof(*t->tokens));
        if (t->tokens == NULL) {
            return ERR_NOMEM;
        }
        memcpy(t->tokens, t->ids, t->n_ids * sizeof(*t->tokens));
        t->n = (uint32_t)t->n_ids;
    }
    x->encoding = true;
    int rc = text_put(x->srv->text, x->m->voc, &x->work);
    x->encoding = rc == 0;
    x->srv->stats.refused_busy += rc != 0 ? 1 : 0;
    return rc;
}

static void encode_next(struct embeds *x)
{
    if (x->at == x->n_texts) {
        load(x);
        return;
    }
    int rc = put(x);
    if (rc != 0) {
        finish(x, rc, "too many texts wait to be tokenised");
    }
}

/* --- start and end --- */

int embeds_check(const struct model *m, struct err *e)
{
    if (m->bundle == NULL) {
        return err_set(e, ERR_MODEL_FAILED, "%s: %s", m->name, m->reason);
    }
    if (bundle_kind(m->bundle) == BUNDLE_TAGGER) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s labels tokens and gives no embeddings; use "
                       "/aned/v1/classify", m->name);
    }
    return m->bundle->d_model <= EMBED_DIM_MAX
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "%s has vectors of %u numbers; at most %u are given",
                         m->name, m->bundle->d_model, EMBED_DIM_MAX);
}

/* Another request takes its room, and the queue is full. */
static void make_way(struct admit_req *s)
{
    struct embeds *x = container_of(s, struct embeds, seat);
    x->srv->stats.refused_busy++;
    if (x->encoding && !text_cancel(x->srv->text, &x->work)) {
        leave(x); /* on_encoded ends it */
        x->seat.n = 0;
        return;
    }
    finish(x, ERR_BUSY, "the queue is full, and others go first");
}

static int admit(struct embeds *x, struct err *e)
{
    struct model *m = x->m;
    bool encoder = m->bundle->encoder; /* whose texts are no streams */
    x->at_once = (uint32_t)num_min(x->n_texts, encoder ? ENCODER_TEXTS_MAX
                                                       : EMBED_AT_ONCE);
    x->seat = (struct admit_req){
        .cls = x->cls,
        .n = encoder ? 1 : x->at_once,
        .make_way = make_way,
        .stays = true};
    if (admit_add(&m->admit, &x->seat) != 0) {
        x->srv->stats.refused_busy++;
        return err_set(e, ERR_BUSY, "%u requests are on %s already", m->admit.n,
                       m->name);
    }
    x->seated = true;
    model_use(m); /* it is neither unloaded nor deleted meanwhile */
    x->uses = true;
    return 0;
}

int embeds_start(struct embeds *x, struct err *e)
{
    must(x->n_texts >= 1 && x->n_texts <= EMBED_INPUTS_MAX);
    x->srv->stats.embeddings++;
    int rc = embeds_check(x->m, e);
    rc = rc == 0 ? admit(x, e) : rc;
    if (rc == 0) {
        x->width = x->m->bundle->d_model;
        x->slots = calloc(x->at_once, sizeof(*x->slots));
        rc = x->slots != NULL ? put(x) : ERR_NOMEM;
        rc = rc == 0 ? 0
                     : err_set(e, rc, "too many texts wait to be tokenised");
    }
    if (rc != 0) {
        x->srv->stats.embeddings_failed++;
        leave(x);
        return rc;
    }
    admit_settle(&x->m->admit);
    x->seat.stays = false;
    return 0;
}

bool embeds_cancel(struct embeds *x)
{
    bool free_now = !x->encoding || text_cancel(x->srv->text, &x->work);
    leave(x);
    x->seat.n = 0; /* on_encoded ends it */
    return free_now;
}

void embeds_fini(struct embeds *x)
{
    for (size_t i = 0; x->texts != NULL && i < x->n_texts; i++) {
        free(x->texts[i].tokens);
        free(x->texts[i].vector);
    }
    text_fini(&x->work);
    free(x->slots);
    x->slots = NULL;
}
