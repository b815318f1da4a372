/* runner_step.c - one step: it is formed from the scheduler's plan and sent
 * after its sequence operations; its results are checked and handed out. The
 * next step is sent before on_said and on_left are called, so that the engine
 * works meanwhile.
 */
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "serve/engines/runner_impl.h"

static void send_op(struct runner *r, const struct sched_op *op)
{
    static const enum frame_type types[] = {
        [SCHED_OP_OPEN] = FRAME_SEQ_OPEN,
        [SCHED_OP_FORK] = FRAME_SEQ_FORK,
        [SCHED_OP_TRUNCATE] = FRAME_SEQ_TRUNCATE,
        [SCHED_OP_CLOSE] = FRAME_SEQ_CLOSE,
    };
    struct msg_seq m = {.seq = op->seq, .from = op->from, .n = op->n};
    buf_clear(&r->out);
    msg_seq_put(&r->out, &m);
    must(buf_ok(&r->out));
    uint32_t request = ((r->counter++ & OP_COUNTER) << 8) | (op->seq & 0xffu);
    child_put(r->child, types[op->kind], request, r->out.p, r->out.n);
}

static void fill_row(struct runner *r, size_t i, const struct sched_row *row)
{
    const struct run_stream *x = stream_of(sched_row_stream(&r->sched, i));
    struct msg_row *m = &r->rows[i];
    m->seq = row->seq;
    m->position = row->position;
    m->n_tokens = row->n;
    m->tokens = (int32_t *)(uintptr_t)row->tokens; /* only read by the codec */
    m->n_drafts = row->n_drafts;
    memcpy(m->drafts, row->drafts, row->n_drafts * sizeof(*m->drafts));
    m->sample = row->sample;
    m->keep = row->keep;
    m->score = row->score;
    m->pool = (uint8_t)(x->s.pool ? x->pool : POOL_NONE);
    m->give = row->give;
    m->after = row->score ? row->after : -1;
    m->out_index = x->n_out;
    m->n_prompt = x->s.n_prompt;
    m->grammar = x->grammar;
    if (x->grammar != 0) {
        grammars_tell(&r->grammars, x->grammar);
    }
    m->sampling = *x->sampling;
    m->sampling.choice = x->choice;
    m->sampling.mu = x->mu;
}

void runner_step(struct runner *r)
{
    if (r->state != RUNNER_UP || r->in_results || r->stopping) {
        return;
    }
    warm_next(r->warm);
    const struct sched_plan *p = sched_next(&r->sched, now_us());
    for (size_t i = 0; p != NULL && i < p->n_ops; i++) {
        send_op(r, &p->ops[i]);
    }
    if (p == NULL || p->n_rows == 0) {
        child_flush(r->child);
        if (!r->sched.in_flight) {
            warm_stalled(r->warm);
        }
        return;
    }
    for (size_t i = 0; i < p->n_rows; i++) {
        fill_row(r, i, &p->rows[i]);
    }
    struct msg_step m = {.n_rows = (uint32_t)p->n_rows, .rows = r->rows};
    buf_clear(&r->out);
    msg_step_put(&r->out, &m);
    must(buf_ok(&r->out));
    r->step_request = STEP_BIT | (r->counter++ & 0x3fffffffu);
    r->sent_us = now_us();
    child_send(r->child, FRAME_STEP, r->step_request, r->out.p, r->out.n);
    child_deadline(r->child, r->conf.step_ms);
}

/* The tokens of row i, until its stream leaves, or is removed (and gone). */
static void hand_out_row(struct runner *r, size_t i,
                         const struct msg_row_done *d)
{
    struct sched_stream *s = sched_row_stream(&r->sched, i);
    struct run_stream *x = stream_of(s);
    uint32_t drafts = r->sched.plan.rows[i].n_drafts;
    struct stats *st = r->conf.stats;
    if (drafts > 0) {
        st->drafted_tokens += drafts;
        st->accepted_tokens += d->n_accepted;
        st->accepted[d->n_accepted]++;
        x->n_drafted += drafts;
    }
    x->said = d->tokens;
    x->mu = d->mu;
    x->on_cpu = x->on_cpu || r->n_on_cpu > 0;
    r->one_left = false;
    for (uint32_t k = 0; k < d->n_tokens && !r->one_left; k++) {
        x->n_out++;
        x->n_accepted += k < d->n_accepted;
        x->n_said = k;
        x->events->on_token(x, &d->tokens[k]);
        if (sched_row_stream(&r->sched, i) != s && !r->one_left) {
            return; /* removed */
        }
        x->n_said = k + 1;
    }
    sched_forced(s, d->forced, d->n_forced);
    list_push(&r->saying, &x->saying);
}

/* The scores of a row that draws nothing yet. */
static void hand_out_scores(struct runner *r, struct run_stream *x,
                            const struct msg_row_done *d)
{
    x->n_said = 0;
    if (d->n_scores > 0) {
        list_push(&r->saying, &x->saying);
    }
}

/* The engine is at work again, or has nothing to do: streams say what they were
 * given, and then those that leave end. */
static void say(struct runner *r)
{
    while (!list_empty(&r->saying)) {
        struct run_stream *x =
            container_of(r->saying.next, struct run_stream, saying);
        list_del(&x->saying);
        x->events->on_said(x);
        x->n_said = 0;
        x->n_scores = 0;
        if (x->leaving) {
            list_push(&r->left, &x->saying);
        }
    }
    if (!list_empty(&r->left) && r->owner.flush != NULL) {
        r->owner.flush(r->owner.ctx);
    }
    while (!list_empty(&r->left)) {
        struct run_stream *x =
            container_of(r->left.next, struct run_stream, saying);
        x->events->on_left(x); /* may free x */
        must(r->left.next != &x->saying);
    }
}

void runner_hand_out(struct runner *r, const struct msg_row_done *rows,
                     const int *codes, const char *msg, uint64_t us)
{
    const struct sched_plan *p = &r->sched.plan;
    for (size_t i = 0; i < p->n_rows; i++) {
        if (codes[i] != 0) {
            sched_row_failed(&r->sched, i);
        } else {
            sched_row_accepted(&r->sched, i, rows[i].n_accepted);
        }
    }
    sched_done(&r->sched, us, now_us());
    r->in_results = true;
    for (size_t i = 0; i < p->n_rows; i++) {
        struct sched_stream *s = sched_row_stream(&r->sched, i);
        if (s == NULL) {
            continue; /* cancelled meanwhile */
        }
        struct run_stream *x = stream_of(s);
        x->scores = codes[i] == 0 ? rows[i].scores : NULL;
        x->n_scores = codes[i] == 0 ? rows[i].n_scores : 0;
        x->vector = codes[i] == 0 ? rows[i].vector : NULL;
        x->n_vector = codes[i] == 0 ? rows[i].n_vector : 0;
        if (codes[i] != 0) {
            x->events->on_fail(x, codes[i], msg);
        } else if (p->rows[i].sample) {
            hand_out_row(r, i, &rows[i]);
        } else if (s->compute_only && sched_settled(s)) {
            x->events->on_computed(x);
        } else {
            hand_out_scores(r, x, &rows[i]);
        }
    }
    struct sched_stream *late = NULL;
    while ((late = sched_expired(&r->sched, now_us())) != NULL) {
        struct run_stream *x = stream_of(late);
        x->events->on_expired(x); /* its place is free for the next step */
    }
    r->in_results = false;
    runner_step(r);
    say(r);
}

/* What an engine says of a row, against what it was asked. */
static bool row_fits(const struct sched_row *r, const struct msg_row_done *d)
{
    bool fits = d->seq == r->seq;
    if (d->error != 0) {
        return fits;
    }
    fits = fits && d->n_accepted <= r->n_drafts &&
           d->n_tokens == (r->sample ? d->n_accepted + 1 : 0) &&
           (d->n_vector > 0) == r->give &&
           d->n_scores == (r->score ? r->n - (r->after < 0 ? 1u : 0u) : 0u);
    for (uint32_t k = 0; fits && k < d->n_accepted; k++) {
        fits = d->tokens[k].id == r->drafts[k];
    }
    return fits;
}

void runner_on_step_done(struct runner *r, const struct frame *f)
{
    struct msg_step_done m = {0};
    struct err e = {0};
    const struct sched_plan *p = &r->sched.plan;
    if (!r->sched.in_flight || f->request != r->step_request ||
        msg_step_done_get(f->payload, f->n, &m, &e) != 0) {
        log_warn("engine_frame", "pid=%d unexpected step_done %s, killing it",
                 child_pid(r->child), e.msg);
        child_kill(r->child, ERR_FRAME);
        return;
    }
    int codes[STREAMS_MAX] = {0};
    bool fits = m.n_rows == p->n_rows;
    for (size_t i = 0; fits && i < p->n_rows; i++) {
        codes[i] = m.rows[i].error;
        fits = row_fits(&p->rows[i], &m.rows[i]);
    }
    if (!fits) {
        log_warn("engine_frame",
                 "pid=%d step_done does not fit its step, "
                 "killing it",
                 child_pid(r->child));
        child_kill(r->child, ERR_FRAME);
    } else {
        runner_quiet(r);
        struct stats *st = r->conf.stats;
        st->steps++;
        st->step_rows += p->n_rows;
        hist_add_us(&st->step, m.us_total);
        /* What a step costs is what it keeps others waiting: with the frames.
         * The engine may have begun before it was sent. */
        runner_hand_out(r, m.rows, codes, "the engine refused this row",
                        num_max(now_us() - r->sent_us, m.us_total));
    }
    msg_step_done_fini(&m);
}
