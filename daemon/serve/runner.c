/* runner.c - see runner.h.
 *
 * Frames carry a request number. A step's has STEP_BIT, a state's WARM_REQUEST;
 * a sequence operation's has the sequence in its low byte. The engine answers
 * in order, so a failed operation needs no bookkeeping here: the rows of that
 * sequence come back failed too.
 */
#include "serve/runner.h"

#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "sched/shed.h"

#define STEP_BIT      0x80000000u
#define LOAD_REQUEST  0x40000000u
#define STOP_MS       2000u     /* from UNLOAD to SIGKILL */
#define OP_COUNTER    0x1fffffu /* of a sequence operation's number */
#define SAMPLING_ROWS STREAMS_MAX

struct runner {
    struct runner_conf conf;
    struct runner_owner owner;
    char dir[1024];
    enum runner_state state;
    struct child *child;
    struct list turn;   /* in conf.turn: a step is wanted */
    struct list saying; /* streams whose on_said is to be called */
    bool stopping;
    bool in_results; /* results are being handed out: no step is formed */
    bool ever_up;
    uint32_t counter;
    uint32_t step_request;
    uint64_t sent_us;
    double progress;
    struct msg_ready ready;
    int load_rc; /* what the engine said before it went */
    struct err load_error;
    struct sched sched;
    struct warm *warm;
    struct msg_row *rows; /* SAMPLING_ROWS, scratch of one step */
    struct buf out;
};

static uint64_t now_us(void)
{
    return uv_hrtime() / 1000;
}

static struct run_stream *stream_of(struct sched_stream *s)
{
    return container_of(s, struct run_stream, s);
}

static void send_state(void *ctx, enum frame_type type, uint32_t request,
                       const struct buf *b)
{
    struct runner *r = ctx;
    child_send(r->child, type, request, b->p, b->n);
    if (type == FRAME_STATE_LOAD) {
        child_deadline(r->child, r->conf.step_ms);
    }
}

static void send_unload(void *ctx)
{
    struct runner *r = ctx;
    if (r->child != NULL && r->stopping) {
        child_send(r->child, FRAME_UNLOAD, 0, NULL, 0);
        child_deadline(r->child, STOP_MS);
    }
}

struct runner *runner_new(const struct runner_conf *c, const char *dir,
                          const struct runner_owner *o)
{
    struct runner *r = calloc(1, sizeof(*r));
    must(r != NULL);
    r->conf = *c;
    r->conf.step_ms = c->step_ms != 0 ? c->step_ms : ENGINE_STEP_MS;
    r->owner = *o;
    list_init(&r->turn);
    list_init(&r->saying);
    (void)snprintf(r->dir, sizeof(r->dir), "%s", dir);
    r->rows = calloc(SAMPLING_ROWS, sizeof(*r->rows));
    must(r->rows != NULL);
    buf_init(&r->out, FRAME_ENGINE_MAX);
    const struct warm_conf w = {.loop = c->loop,
                                .cache = c->cache,
                                .fingerprint = c->fingerprint,
                                .backend = c->backend,
                                .gain_min = c->cache_tokens,
                                .sched = &r->sched,
                                .ctx = r,
                                .send = send_state,
                                .flushed = send_unload};
    r->warm = warm_new(&w);
    return r;
}

void runner_free(struct runner *r)
{
    if (r == NULL) {
        return;
    }
    list_del(&r->turn);
    child_drop(r->child);
    warm_free(r->warm);
    sched_fini(&r->sched);
    buf_fini(&r->out);
    free(r->rows);
    free(r);
}

/* --- steps --- */

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
    m->out_index = x->n_out;
    m->n_prompt = x->s.n_prompt;
    msg_sampling_copy(&m->sampling, x->sampling);
    m->sampling.choice = x->choice;
}

/* Nothing is expected of the engine, unless it is on its way out. */
static void quiet(struct runner *r)
{
    if (!r->stopping) {
        child_deadline(r->child, 0);
    }
}

/* Form and send the next step, if there is one to send. */
static void kick(struct runner *r)
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

/* The tokens of row i, until its stream leaves (and may be gone). */
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
    for (uint32_t k = 0; k < d->n_tokens; k++) {
        x->n_out++;
        x->n_accepted += k < d->n_accepted;
        x->n_said = k;
        x->events->on_token(x, &d->tokens[k]);
        if (sched_row_stream(&r->sched, i) != s) {
            return;
        }
    }
    x->n_said = d->n_tokens;
    list_push(&r->saying, &x->saying);
}

/* The engine is at work again, or has nothing to do. */
static void say(struct runner *r)
{
    while (!list_empty(&r->saying)) {
        struct run_stream *x =
            container_of(r->saying.next, struct run_stream, saying);
        list_del(&x->saying);
        x->events->on_said(x);
        x->n_said = 0;
    }
}

/* Hand out the results of the step that just came back. `codes` (n_rows) is 0
 * or the row's error; rows may be NULL when all failed. */
static void hand_out(struct runner *r, const struct msg_row_done *rows,
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
        if (codes[i] != 0) {
            x->events->on_fail(x, codes[i], msg);
        } else if (p->rows[i].sample) {
            hand_out_row(r, i, &rows[i]);
        } else if (s->compute_only && sched_settled(s)) {
            x->events->on_computed(x);
        }
    }
    struct sched_stream *late = NULL;
    while ((late = sched_expired(&r->sched, now_us())) != NULL) {
        struct run_stream *x = stream_of(late);
        x->events->on_expired(x); /* its place is free for the next step */
    }
    r->in_results = false;
    kick(r);
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
           d->n_tokens == (r->sample ? d->n_accepted + 1 : 0);
    for (uint32_t k = 0; fits && k < d->n_accepted; k++) {
        fits = d->tokens[k].id == r->drafts[k];
    }
    return fits;
}

static void on_step_done(struct runner *r, const struct frame *f)
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
        quiet(r);
        struct stats *st = r->conf.stats;
        st->steps++;
        st->step_rows += p->n_rows;
        hist_add_us(&st->step, m.us_total);
        /* What a step costs is what it keeps others waiting: with the frames.
         * The engine may have begun before it was sent. */
        hand_out(r, m.rows, codes, "the engine refused this row",
                 num_max(now_us() - r->sent_us, m.us_total));
    }
    msg_step_done_fini(&m);
}

/* m NULL: the engine could not. */
static void on_state(struct runner *r, uint32_t request,
                     const struct msg_state_done *m)
{
    if (!r->sched.in_flight) {
        quiet(r);
    }
    warm_answer(r->warm, request, m);
    kick(r);
}

static void on_state_done(struct runner *r, const struct frame *f)
{
    struct msg_state_done m = {0};
    struct err e = {0};
    if (msg_state_done_get(f->payload, f->n, &m, &e) != 0) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    on_state(r, f->request, &m);
}

static void on_error(struct runner *r, const struct frame *f)
{
    struct msg_error m = {0};
    struct err e = {0};
    if (msg_error_get(f->payload, f->n, &m, &e) != 0) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    int code = m.code < 0 ? m.code : ERR_INTERNAL;
    if (r->state == RUNNER_LOADING) {
        r->load_rc = err_set(&r->load_error, code, "%s", m.msg);
        child_kill(r->child, code);
    } else if (r->sched.in_flight && f->request == r->step_request) {
        int codes[STREAMS_MAX];
        for (size_t i = 0; i < countof(codes); i++) {
            codes[i] = code;
        }
        quiet(r);
        hand_out(r, NULL, codes, m.msg, 0);
    } else if ((f->request & (STEP_BIT | LOAD_REQUEST | WARM_REQUEST)) ==
               WARM_REQUEST) {
        log_info("state_refused", "error=%s: %s", err_name(code), m.msg);
        if (code == ERR_UNSUPPORTED) { /* it never will */
            warm_discard(r->warm);
        }
        on_state(r, f->request, NULL);
    } else { /* a sequence operation; its rows will tell the streams */
        log_warn("engine_refused", "seq=%u error=%s: %s, continuing",
                 f->request & 0xffu, err_name(code), m.msg);
    }
}

/* --- life --- */

static uint32_t seqs_of(const struct runner *r, const struct msg_ready *m)
{
    uint64_t n = num_min(r->conf.sessions, m->seqs_max);
    if (m->state_bytes > 0) {
        uint64_t fit = r->conf.state_bytes / m->state_bytes;
        n = fit < n ? fit : n;
    }
    return n > 0 ? (uint32_t)n : 1;
}

static void on_ready(struct runner *r, const struct frame *f)
{
    struct msg_ready m = {0};
    struct err e = {0};
    if (r->state != RUNNER_LOADING ||
        msg_ready_get(f->payload, f->n, &m, &e) != 0 || m.context == 0 ||
        (r->ever_up && m.context < r->ready.context)) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    child_deadline(r->child, 0);
    if (!r->ever_up) {
        struct sched_conf c = {.rows_seq = m.t_max,
                               .rows_step = m.batch_max,
                               .chunk = r->conf.chunk,
                               .seqs = seqs_of(r, &m),
                               .running = r->conf.streams,
                               .queue = r->conf.queue,
                               .context = m.context,
                               .max_draft = r->conf.max_draft,
                               .ngram_min = r->conf.ngram_min,
                               .share_tokens = r->conf.share_tokens};
        sched_init(&r->sched, &c);
        r->ready = m;
        r->ever_up = true;
    }
    r->state = RUNNER_UP;
    r->progress = 1;
    warm_up(r->warm, &m);
    r->owner.on_up(r->owner.ctx);
    kick(r);
}

static void on_frame(void *ctx, const struct frame *f)
{
    struct runner *r = ctx;
    struct msg_progress m = {0};
    struct err e = {0};
    if (f->type == FRAME_READY) {
        on_ready(r, f);
    } else if (f->type == FRAME_STEP_DONE) {
        on_step_done(r, f);
    } else if (f->type == FRAME_STATE_DONE) {
        on_state_done(r, f);
    } else if (f->type == FRAME_ERROR) {
        on_error(r, f);
    } else if (f->type == FRAME_PROGRESS) {
        if (msg_progress_get(f->payload, f->n, &m, &e) == 0 && m.total > 0) {
            r->progress = (double)m.done / (double)m.total;
            if (r->owner.on_progress != NULL) {
                r->owner.on_progress(r->owner.ctx);
            }
        }
    } else if (f->type != FRAME_OK) {
        log_warn("engine_frame", "pid=%d type=%d out of place, killing it",
                 child_pid(r->child), (int)f->type);
        child_kill(r->child, ERR_FRAME);
    }
}

static void on_gone(void *ctx, const struct child_exit *x)
{
    struct runner *r = ctx;
    bool stopping = r->stopping;
    int rc = r->load_rc;
    struct err e = r->load_error;
    log_info("engine_exit", "status=%d signal=%d reason=%s", (int)x->status,
             x->signal, x->code != 0 ? err_name(x->code) : "none");
    if (stopping) {
        rc = 0;
    } else if (rc == 0) {
        rc = err_set(&e, ERR_ENGINE_LOST,
                     "the engine ended (status %d, signal %d%s%s)",
                     (int)x->status, x->signal, x->code != 0 ? ", " : "",
                     x->code != 0 ? err_name(x->code) : "");
    }
    r->child = NULL;
    r->state = RUNNER_DOWN;
    r->stopping = false;
    r->load_rc = 0;
    r->progress = 0;
    warm_down(r->warm);
    if (r->ever_up) {
        sched_lost(&r->sched);
    }
    r->owner.on_down(r->owner.ctx, rc, &e);
}

int runner_start(struct runner *r, struct err *e)
{
    must(r->state == RUNNER_DOWN && r->child == NULL);
    struct child_conf c = {
        .program = r->conf.program,
        .role = "engine",
        .fd = -1,
        .frame_max = FRAME_ENGINE_MAX,
        .ctx = r,
        .on_frame = on_frame,
        .on_exit = on_gone,
    };
    int rc = child_spawn(r->conf.loop, &c, &r->child, e);
    if (rc != 0) {
        return rc;
    }
    r->conf.stats->engine_starts++;
    r->state = RUNNER_LOADING;
    r->progress = 0;
    struct msg_load m = {.bundle = r->dir,
                         .backend = r->conf.backend,
                         .threads = r->conf.threads};
    buf_clear(&r->out);
    msg_load_put(&r->out, &m);
    must(buf_ok(&r->out));
    child_send(r->child, FRAME_LOAD, LOAD_REQUEST, r->out.p, r->out.n);
    child_deadline(r->child, ENGINE_LOAD_MS);
    return 0;
}

void runner_discard(struct runner *r)
{
    warm_discard(r->warm);
}

void runner_stop(struct runner *r)
{
    if (r->child == NULL || r->stopping) {
        return;
    }
    r->stopping = true;
    if (r->state == RUNNER_UP && warm_flush(r->warm)) {
        child_deadline(r->child, WARM_FLUSH_MS);
    } else {
        send_unload(r);
    }
}

enum runner_state runner_state(const struct runner *r)
{
    return r->state;
}

double runner_progress(const struct runner *r)
{
    return r->progress;
}

const struct msg_ready *runner_ready(const struct runner *r)
{
    return &r->ready;
}

int runner_pid(const struct runner *r)
{
    return r->child != NULL ? child_pid(r->child) : 0;
}

const struct sched *runner_sched(const struct runner *r)
{
    return &r->sched;
}

int runner_add(struct runner *r, struct run_stream *x)
{
    must(r->ever_up);
    x->n_out = 0;
    x->n_drafted = 0;
    x->n_accepted = 0;
    x->n_said = 0;
    list_init(&x->saying);
    int rc = sched_add(&r->sched, &x->s, now_us());
    warm_touch(r->warm);
    return rc;
}

int runner_want(struct runner *r, struct warm_wait *x)
{
    int rc = warm_want(r->warm, x);
    if (rc == 1) {
        kick(r);
    }
    return rc;
}

void runner_kick(struct runner *r)
{
    if (r->conf.turn == NULL) {
        kick(r);
    } else if (list_empty(&r->turn)) {
        list_push(r->conf.turn, &r->turn);
    }
}

void runner_turn(struct list *turn)
{
    while (!list_empty(turn)) {
        struct runner *r = container_of(turn->next, struct runner, turn);
        list_del(&r->turn);
        kick(r);
    }
}

int runner_push(struct runner *r, struct run_stream *x, int32_t token)
{
    return sched_push(&r->sched, &x->s, token);
}

void runner_remove(struct runner *r, struct run_stream *x)
{
    if (x->s.phase == SCHED_OUT) {
        return;
    }
    list_del(&x->saying);
    sched_remove(&r->sched, &x->s, now_us());
    kick(r);
    warm_touch(r->warm);
}

void runner_pause(struct runner *r, struct run_stream *x, bool paused)
{
    sched_pause(&x->s, paused, now_us());
    if (!paused) {
        kick(r);
    }
}

uint32_t runner_shed(struct runner *r)
{
    uint32_t n = r->ever_up ? sched_shed(&r->sched) : 0;
    if (n > 0) {
        kick(r);
    }
    return n;
}

void runner_fail_all(struct runner *r, int code, const char *msg)
{
    if (!r->ever_up) {
        return;
    }
    struct list *lists[] = {&r->sched.running, &r->sched.waiting};
    r->in_results = true;
    warm_release(r->warm); /* into the queue, with the others */
    for (size_t i = 0; i < countof(lists); i++) {
        while (!list_empty(lists[i])) {
            struct sched_stream *s =
                container_of(lists[i]->next, struct sched_stream, link);
            struct run_stream *x = stream_of(s);
            struct list *was = &s->link;
            x->events->on_fail(x, code, msg); /* may free x */
            must(lists[i]->next != was);      /* it was removed */
        }
    }
    r->in_results = false;
}
