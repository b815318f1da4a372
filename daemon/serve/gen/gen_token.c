/* gen_token.c - counts the tokens of a choice, makes them text and passes both
 * to the sink, until the choice ends.
 *
 * When no stop string can end a choice, its tokens become text after the next
 * step was sent (on_said), at the latest before the choice ends. A choice that
 * got its last token leaves the scheduler at once; it ends (on_left) after the
 * other choices have passed on their tokens.
 */
#include <string.h>

#include "serve/gen/gen_impl.h"

static struct gen_choice *choice_of(struct run_stream *x)
{
    return container_of(x, struct gen_choice, run);
}

static void note_start(struct gen_choice *c)
{
    struct gen *g = c->gen;
    struct stats *st = &g->srv->stats;
    if (g->usage.started_us == 0) {
        g->usage.started_us = c->run.s.started_us;
        g->usage.n_cached = c->run.s.cached;
        g->usage.n_queued = c->run.s.first_turn;
        st->cached_tokens += c->run.s.cached;
        hist_add_us(&st->queue_wait, c->run.s.started_us - g->usage.created_us);
    }
}

static void pause_all(struct gen *g, bool paused)
{
    g->paused = paused;
    for (uint32_t i = 0; i < g->req.n; i++) {
        struct gen_choice *c = &g->choices[i];
        if (g->queued && !c->leaving && !c->ended) {
            runner_pause(g->model->runner, &c->run, paused);
        }
    }
}

/* Only a text that may end by what it says has to be known before the next
 * step. */
static bool speaks_later(const struct gen *g)
{
    return g->req.n_stops == 0 && g->req.indent == 0;
}

static bool ends_text(const struct gen *g, const struct msg_token *t)
{
    return !g->req.ignore_eos && tokenizer_is_eog(g->voc->tok, t->id);
}

/* What the last step says of the prompt to the sink. */
static void pass_scores(struct gen_choice *c)
{
    struct gen *g = c->gen;
    if (c->run.n_scores > 0) {
        g->sink->on_scores(g->ctx, c->run.scores, c->run.n_scores);
        c->run.n_scores = 0;
    }
}

/* The token and its text to the sink. */
static void speak(struct gen_choice *c, const struct msg_token *t)
{
    struct gen *g = c->gen;
    pass_scores(c);
    buf_clear(&g->piece);
    if (!ends_text(g, t)) {
        text_stream_put(&c->text, t->id, &g->piece);
    }
    enum gen_more more =
        g->sink->on_token(g->ctx, c->run.choice, t,
                          g->piece.p != NULL ? g->piece.p : "", g->piece.n);
    c->enough = c->enough || more == GEN_ENOUGH;
    if (more == GEN_PAUSE && !g->paused) {
        pause_all(g, true);
    }
}

/* What was drawn for it and has not gone to the sink. */
static void catch_up(struct gen_choice *c)
{
    uint32_t n = speaks_later(c->gen) ? c->run.n_said : 0;
    pass_scores(c);
    for (uint32_t k = 0; k < n; k++) {
        speak(c, &c->run.said[k]);
    }
    c->run.n_said = 0;
}

static void end_choice(struct gen_choice *c, enum gen_finish why)
{
    static const struct err none;
    struct gen *g = c->gen;
    catch_up(c);
    c->ended = true;
    g->n_ended++;
    if (c->run.s.started_us != 0) {
        note_start(c);
    }
    runner_remove(g->model->runner, &c->run);
    buf_clear(&g->piece);
    text_stream_end(&c->text, &g->piece);
    g->sink->on_end(g->ctx, c->run.choice, why,
                    g->piece.p != NULL ? g->piece.p : "", g->piece.n);
    if (g->n_ended == g->req.n) {
        gen_done(g, 0, &none);
    }
}

static void note_token(struct gen_choice *c)
{
    struct gen *g = c->gen;
    struct stats *st = &g->srv->stats;
    uint64_t now = server_now_us();
    note_start(c);
    if (g->usage.first_us == 0) {
        g->usage.first_us = now;
        hist_add_us(&st->first_token, now - g->usage.created_us);
    }
    if (c->last_us != 0) {
        hist_add_us(&st->between_tokens, now - c->last_us);
    }
    c->last_us = now;
    g->usage.last_us = now;
    g->usage.n_output++;
    st->output_tokens++;
}

static void on_said(struct run_stream *x)
{
    catch_up(choice_of(x));
}

static void on_left(struct run_stream *x)
{
    struct gen_choice *c = choice_of(x);
    end_choice(c, c->why);
}

/* Whether a choice with a line in it has had its time (gen_req.lines_ms). */
static bool had_its_time(struct gen_choice *c, const struct msg_token *t)
{
    struct gen *g = c->gen;
    struct span s = tokenizer_piece(g->voc->tok, t->id, false);
    c->lined = c->lined || (s.n > 0 && memchr(s.p, '\n', s.n) != NULL);
    return c->lined &&
           c->last_us - g->usage.first_us > (uint64_t)g->req.lines_ms * 1000;
}

static void on_token(struct run_stream *x, const struct msg_token *t)
{
    struct gen_choice *c = choice_of(x);
    struct gen *g = c->gen;
    enum gen_finish why = GEN_LENGTH; /* max_tokens, or no position is left */
    note_token(c);
    if (!speaks_later(g)) {
        speak(c, t);
    }
    if (ends_text(g, t)) {
        why = GEN_EOG;
    } else if (c->text.stopped) {
        why = GEN_STOP;
    } else if (g->req.lines_ms > 0 && had_its_time(c, t)) {
        why = GEN_LATE;
    } else if (!c->enough && x->n_out < g->req.max_tokens &&
               runner_push(g->model->runner, x, t->id) == 0) {
        return;
    }
    c->leaving = true;
    c->why = why;
    runner_leave(g->model->runner, x);
}

static void on_computed(struct run_stream *x)
{
    end_choice(choice_of(x), GEN_LENGTH);
}

void gen_late(void *ctx)
{
    struct gen *g = ctx;
    uint32_t left = g->req.n - g->n_ended;
    must(g->magic == GEN_MAGIC && !g->over);
    g->srv->stats.generations_late++;
    g->usage.late = true;
    for (uint32_t i = 0; left > 0; i++) {
        struct gen_choice *c = &g->choices[i];
        if (!c->ended) {
            left--; /* the last one is the end of g */
            end_choice(c, c->leaving ? c->why : GEN_LATE);
        }
    }
}

static void on_expired(struct run_stream *x)
{
    gen_late(choice_of(x)->gen);
}

static void on_fail(struct run_stream *x, int code, const char *msg)
{
    struct err e = {0};
    struct gen *g = choice_of(x)->gen;
    int rc = err_set(&e, code, "%s", msg);
    for (uint32_t i = 0; i < g->req.n; i++) { /* what it has is said before */
        catch_up(&g->choices[i]);
    }
    gen_done(g, rc, &e);
}

const struct run_events gen_run_events = {
    .on_token = on_token,
    .on_said = on_said,
    .on_left = on_left,
    .on_computed = on_computed,
    .on_expired = on_expired,
    .on_fail = on_fail,
};

void gen_resume(struct gen *g)
{
    must(g->magic == GEN_MAGIC);
    if (g->paused && !g->over) {
        pause_all(g, false);
    }
}
