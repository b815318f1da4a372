/* gen.c - see gen.h: makes and frees a gen, and takes it from the request to
 * its streams. What is asked of the text thread: gen_encode.c. The tokens drawn
 * for them: gen_token.c.
 *
 * A gen is freed when nothing refers to it: not the text thread (`encoding`),
 * not the scheduler (streams removed), not the model's waiters. `over` means
 * that on_done was called, or that the gen was cancelled. */
#include "serve/gen/gen.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "serve/gen/deadline.h"
#include "serve/gen/gen_impl.h"

#define GEN_TEXT_MAX KIB(64) /* text of one token: what a stop held back */

static struct gen *gen_make(struct server *s, struct model *m,
                            const struct gen_sink *sink, void *ctx,
                            struct gen_memory *mem)
{
    struct gen *g = calloc(1, sizeof(*g));
    must(g != NULL);
    g->magic = GEN_MAGIC;
    g->srv = s;
    g->model = m;
    g->voc = voc_ref(m->voc);
    g->sink = sink;
    g->ctx = ctx;
    g->usage.created_us = server_now_us();
    g->mem = mem;
    mem->refs++;
    buf_init(&g->piece, GEN_TEXT_MAX);
    return g;
}

struct gen *gen_new(struct server *s, struct model *m,
                    const struct gen_sink *sink, void *ctx, struct arena *a)
{
    struct gen_memory *mem = calloc(1, sizeof(*mem));
    must(mem != NULL);
    struct gen *g = gen_make(s, m, sink, ctx, mem);
    g->req.n = 1;
    g->req.max_tokens = GEN_MAX_TOKENS;
    g->req.reuse = true;
    msg_sampling_init(&g->req.sampling);
    mem->arena = *a;
    arena_init(a, a->limit);
    return g;
}

struct gen *gen_beside(const struct gen *g, void *ctx)
{
    struct gen *x = gen_make(g->srv, g->model, g->sink, ctx, g->mem);
    x->req = g->req;
    return x;
}

static void memory_unref(struct gen_memory *mem)
{
    if (--mem->refs == 0) {
        arena_fini(&mem->arena);
        free(mem);
    }
}

struct arena *gen_arena(struct gen *g)
{
    return &g->mem->arena;
}

struct gen_req *gen_request(struct gen *g)
{
    return &g->req;
}

const struct model *gen_model(const struct gen *g)
{
    return g->model;
}

const char *gen_stop(const struct gen *g, uint32_t choice)
{
    const struct text_stream *t = &g->choices[choice].text;
    return t->stopped && t->stop_index >= 0 ? g->req.stops[t->stop_index]
                                            : NULL;
}

const struct tokenizer *gen_tokenizer(const struct gen *g)
{
    return g->voc->tok;
}

const int32_t *gen_tokens(const struct gen *g, uint32_t *ret_n)
{
    *ret_n = g->encoded ? (uint32_t)g->work.n_tokens : 0;
    return *ret_n > 0 ? g->work.tokens : NULL;
}

bool gen_has_parts(const struct gen *g)
{
    return g->encoded && g->req.kind == GEN_CHAT && g->req.parts &&
           (g->req.tools.n > 0 || g->voc->forms.thoughts != REPLY_NO_THOUGHTS);
}

const struct reply_forms *gen_forms(const struct gen *g)
{
    return &g->voc->forms;
}

const char *gen_blamed(const struct gen *g)
{
    return g->work.blame;
}

struct span gen_prompt(const struct gen *g)
{
    return (struct span){g->work.out.p, g->work.out.n};
}

void gen_get_usage(const struct gen *g, struct gen_usage *ret)
{
    *ret = g->usage;
    for (uint32_t i = 0; g->choices != NULL && i < g->req.n; i++) {
        ret->n_drafted += g->choices[i].run.n_drafted;
        ret->n_accepted += g->choices[i].run.n_accepted;
        ret->n_again += g->choices[i].run.s.n_again;
        ret->on_cpu = ret->on_cpu || g->choices[i].run.on_cpu;
    }
}

/* Leave scheduler, waiters and counts; free unless the text thread has it. */
static void leave(struct gen *g)
{
    g->over = true;
    deadline_free(g->deadline);
    g->deadline = NULL;
    model_unwait(&g->wait);
    warm_unwant(&g->states);
    for (uint32_t i = 0; i < g->req.n && g->queued; i++) {
        runner_remove(g->model->runner, &g->choices[i].run);
    }
    g->queued = false;
    if (g->grammar != 0) {
        runner_grammar_release(g->model->runner, g->grammar);
        g->grammar = 0;
    }
    if (g->seated) {
        admit_leave(&g->model->admit, &g->seat);
        g->seated = false;
    }
    if (g->admitted) {
        model_unuse(g->model);
        g->admitted = false;
    }
    if (g->encoding && !text_cancel(g->srv->text, &g->work)) {
        return;
    }
    for (uint32_t i = 0; g->choices != NULL && i < g->req.n; i++) {
        text_stream_fini(&g->choices[i].text);
    }
    text_fini(&g->work);
    buf_fini(&g->piece);
    voc_unref(g->voc);
    memory_unref(g->mem);
    g->magic = 0;
    free(g);
}

void gen_done(struct gen *g, int rc, const struct err *e)
{
    struct stats *st = &g->srv->stats;
    must(g->magic == GEN_MAGIC && !g->over);
    st->generations_failed += rc != 0 ? 1 : 0;
    log_debug("gen_done", "model=%s rc=%s prompt=%u cached=%u output=%u",
              g->model->name, rc == 0 ? "ok" : err_name(rc), g->usage.n_prompt,
              g->usage.n_cached, g->usage.n_output);
    g->over = true;
    g->sink->on_done(g->ctx, rc, e);
    leave(g);
}

void gen_cancel(struct gen *g)
{
    must(g->magic == GEN_MAGIC);
    g->srv->stats.generations_cancelled += g->admitted ? 1 : 0;
    leave(g);
}

/* --- from prompt to streams --- */

/* Of the request's field. */
static int check_ids(const struct gen *g, const char *field, const int32_t *t,
                     size_t n, struct err *e)
{
    int32_t vocab = tokenizer_vocab(g->voc->tok);
    for (size_t i = 0; i < n; i++) {
        if (t[i] < 0 || t[i] >= vocab) {
            return err_set(e, ERR_INVALID,
                           "%s: token %d is not in the vocabulary of %d", field,
                           (int)t[i], (int)vocab);
        }
    }
    return 0;
}

static int check_tokens(struct gen *g, struct err *e)
{
    const struct text_work *w = &g->work;
    size_t n = w->n_tokens;
    uint32_t context = gen_context(g);
    g->usage.n_prompt = (uint32_t)n;
    if (n == 0) {
        return err_set(e, ERR_INVALID, "prompt: it has no token");
    }
    RETERR(check_ids(g, "prompt", w->tokens, n, e));
    RETERR(check_ids(g, "prediction", w->guess_tokens, w->n_guess_tokens, e));
    if (n > context) {
        return err_set(e, ERR_CONTEXT,
                       "the request exceeds the available context size: %zu "
                       "tokens in the prompt, %u in the context",
                       n, context);
    }
    return 0;
}

/* llama-server's meaning of ignore_eos: such a token is never drawn. */
static int ban_eog(struct gen *g, struct err *e)
{
    struct msg_sampling *s = &g->req.sampling;
    size_t n = s->n_bias + g->voc->n_eog;
    if (n > ENGINE_BIAS_MAX) {
        return err_set(e, ERR_TOO_BIG,
                       "logit_bias: with ignore_eos more than %u entries",
                       ENGINE_BIAS_MAX);
    }
    struct msg_bias *b = arena_array(&g->mem->arena, n, sizeof(*b));
    if (b == NULL) {
        return err_set(e, ERR_NOMEM, "logit_bias: %zu entries", n);
    }
    for (size_t i = 0; i < n; i++) {
        b[i] = i < s->n_bias
                   ? s->bias[i]
                   : (struct msg_bias){.id = g->voc->eog[i - s->n_bias],
                                       .bias = -INFINITY};
    }
    s->bias = b;
    s->n_bias = (uint32_t)n;
    return 0;
}

static int add_streams(struct gen *g, struct err *e)
{
    struct gen_req *q = &g->req;
    RETERR(check_tokens(g, e));
    if (q->ignore_eos) {
        RETERR(ban_eog(g, e));
    }
    if (g->work.constraint.n > 0) {
        RETERR(runner_grammar(g->model->runner, g->work.constraint.p,
                              g->work.constraint.n, &g->grammar, e));
    }
    q->sampling.breaks = g->work.breaks;
    q->sampling.n_breaks = (uint32_t)g->work.n_breaks;
    for (uint32_t i = 0; i < q->n; i++) {
        struct gen_choice *c = &g->choices[i];
        RETERR(text_stream_init(&c->text, g->voc->tok, false, q->stops,
                                q->n_stops, e));
        if (gen_has_parts(g) || g->grammar != 0) { /* what matched is told */
            text_stream_marks(&c->text, g->voc->forms.marks);
        }
        c->text.indent = q->indent;
        c->run.events = &gen_run_events;
        c->run.sampling = &q->sampling;
        c->run.grammar = g->grammar;
        c->run.mu = msg_sampling_mu(&q->sampling);
        c->run.s.prompt = g->work.tokens;
        c->run.s.n_prompt = (uint32_t)g->work.n_tokens;
        c->run.s.reuse = q->reuse || i > 0;
        c->run.s.score = q->score && i == 0; /* the others have its prompt */
        c->run.s.compute_only = q->max_tokens == 0;
        c->run.s.after = i > 0 ? &g->choices[0].run.s : NULL;
        c->run.s.cls = q->cls;
        c->run.s.peer = q->peer;
        c->run.s.share = q->share;
        c->run.s.request = &g->seat;
        c->run.s.deadline_us = g->deadline_us;
        c->run.s.max_new = q->max_tokens == GEN_MAX_TOKENS ? 0 : q->max_tokens;
        c->run.s.prediction = g->work.guess_tokens;
        c->run.s.n_prediction = (uint32_t)g->work.n_guess_tokens;
    }
    g->queued = true;
    for (uint32_t i = 0; i < q->n; i++) {
        int rc = runner_add(g->model->runner, &g->choices[i].run);
        if (rc != 0) {
            return err_set(e, rc, "the queue is full");
        }
    }
    return 0;
}

static void advance(struct gen *g);

static void on_states(struct warm_wait *w)
{
    advance(container_of(w, struct gen, states));
}

/* Saved states of the prompt are on their way. */
static bool waits_for_states(struct gen *g)
{
    if (g->asked || !g->req.reuse || g->req.score) {
        return g->states.waits;
    }
    g->asked = true;
    g->states.tokens = g->work.tokens;
    g->states.n = (uint32_t)g->work.n_tokens;
    g->states.fn = on_states;
    return runner_want(g->model->runner, &g->states) == 1;
}

/* Continue when the tokens, the engine and saved states are there. */
static void advance(struct gen *g)
{
    struct err e = {0};
    if (!g->encoded || !g->up || waits_for_states(g)) {
        return;
    }
    int rc = add_streams(g, &e);
    if (rc != 0) {
        g->srv->stats.refused_busy += rc == ERR_BUSY ? 1 : 0;
        gen_done(g, rc, &e);
        return;
    }
    g->srv->stats.prompt_tokens += g->usage.n_prompt;
    runner_kick(g->model->runner);
}

static void on_encoded(struct text_work *w)
{
    struct gen *g = container_of(w, struct gen, work);
    struct err e = {0};
    g->encoding = false;
    if (g->over) {
        leave(g); /* cancelled meanwhile: only the memory is left */
        return;
    }
    int rc = w->rc;
    if (rc != 0) {
        struct err why = w->e;
        gen_done(g, rc, &why);
        return;
    }
    g->encoded = true;
    g->usage.cut = w->cut;
    rc = check_tokens(g, &e); /* before a long load, not after it */
    if (rc == 0 && g->up) {   /* its engine may have been given up since */
        rc = model_serves(g->model, &e);
    }
    if (rc != 0) {
        gen_done(g, rc, &e);
        return;
    }
    advance(g);
}

static void on_model(struct model_wait *w, int rc, const struct err *e)
{
    struct gen *g = container_of(w, struct gen, wait);
    if (rc != 0) {
        gen_done(g, rc, e);
        return;
    }
    g->up = true;
    advance(g);
}

/* Another request takes its room, and the queue is full. */
static void make_way(struct admit_req *x)
{
    struct gen *g = container_of(x, struct gen, seat);
    struct err e = {0};
    int rc = err_set(&e, ERR_BUSY, "the queue is full, and others go first");
    g->srv->stats.refused_busy++;
    gen_done(g, rc, &e);
}

/* Take room in the queue for g. It stays there until gen_start returns: g must
 * not end inside it. */
static int take_seat(struct gen *g, struct err *e)
{
    struct model *m = g->model;
    g->seat = (struct admit_req){
        .cls = g->req.cls, .n = g->req.n, .make_way = make_way, .stays = true};
    if (admit_add(&m->admit, &g->seat) != 0) {
        g->srv->stats.refused_busy++;
        return err_set(e, ERR_BUSY, "%u requests are on %s already", m->admit.n,
                       m->name);
    }
    g->seated = true;
    return 0;
}

/* Whether the model can draw what is asked for. */
static int check_draw(const struct gen *g, struct err *e)
{
    const struct gen_req *q = &g->req;
    if (q->ignore_eos && text_wants(&q->want)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "ignore_eos: an answer that keeps to a grammar ends "
                       "where that ends");
    }
    if (g->model->bundle->argmax && text_wants(&q->want)) {
        return err_set(e, ERR_UNSUPPORTED, MSG_ONLY_TOP ": no grammar");
    }
    const char *what = q->score        ? "log-probabilities of a prompt"
                       : q->ignore_eos ? "ignore_eos"
                                       : msg_sampling_beyond_top(&q->sampling);
    return !g->model->bundle->argmax || what == NULL
               ? 0
               : err_set(e, ERR_UNSUPPORTED, MSG_ONLY_TOP ": no %s", what);
}

/* A seat in the model's queue, the model itself, then the text's tokens. */
static int admit(struct gen *g, struct err *e)
{
    struct model *m = g->model;
    if (g->choices == NULL) {
        return err_set(e, ERR_TOO_BIG, "the request is over the limit");
    }
    if (m->bundle == NULL) {
        return err_set(e, ERR_MODEL_FAILED, "%s: %s", m->name, m->reason);
    }
    RETERR(bundle_want_kind(m->bundle, BUNDLE_DECODER, e));
    RETERR(check_draw(g, e));
    RETERR(take_seat(g, e));
    int rc = model_load(m, false, &g->wait, e);
    g->wait.fn = on_model;
    g->up = rc == 1;
    if (rc != 0 && !g->up) {
        return rc;
    }
    model_use(m);
    g->admitted = true;
    return gen_encode(g, on_encoded, e);
}

int gen_start(struct gen *g, struct err *e)
{
    must(g->req.n >= 1 && g->req.n <= CHOICES_MAX);
    if (g->req.arrived_us != 0) {
        g->usage.created_us = g->req.arrived_us;
    }
    g->srv->stats.generations++;
    g->choices = arena_array(&g->mem->arena, g->req.n, sizeof(*g->choices));
    for (uint32_t i = 0; g->choices != NULL && i < g->req.n; i++) {
        g->choices[i].gen = g;
        g->choices[i].run.choice = i;
    }
    if (g->req.deadline_ms > 0) {
        g->deadline_us =
            g->usage.created_us + (uint64_t)g->req.deadline_ms * 1000;
        g->deadline =
            deadline_new(&g->srv->loop, g->deadline_us, gen_late, g);
    }
    int rc = admit(g, e);
    if (rc == 0) {
        admit_settle(&g->model->admit);
        g->seat.stays = false;
    } else {
        g->srv->stats.generations_failed++;
        leave(g);
    }
    return rc;
}
