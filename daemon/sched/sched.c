/* sched.c - see sched.h for the rules.
 *
 * There is no difference between prompt, output and replay: a sequence has n
 * known tokens of which `computed` are in the engine, and a row carries some of
 * the n - computed others. With one left the stream decodes; with more it is
 * computing its prompt, or everything once more after sched_lost(). The last
 * known token's row draws the next token.
 *
 *   OUT --add--> WAITING --place and sequence found--> RUNNING
 *    ^              |                                     |
 *    +---remove-----+----------------remove--------------+
 *
 * Sequence operations take effect here at once: the engine works its frames
 * off in order, and none is planned while a step is in flight.
 */
#include "sched/sched.h"

#include <string.h>

#include "base/num.h"

static uint32_t clamp(uint32_t v, uint32_t lo, uint32_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

void sched_init(struct sched *s, const struct sched_conf *c)
{
    *s = (struct sched){.conf = *c};
    s->conf.rows_step = clamp(c->rows_step, 1, ENGINE_STEP_ROWS_MAX);
    s->conf.rows_seq = clamp(c->rows_seq, 1, s->conf.rows_step);
    s->conf.chunk = c->chunk == 0 ? s->conf.rows_step
                                  : clamp(c->chunk, 1, s->conf.rows_step);
    s->conf.seqs = clamp(c->seqs, 1, ENGINE_SEQS_MAX);
    s->conf.running = clamp(c->running, 1, STREAMS_MAX);
    s->conf.running = clamp(s->conf.running, 1, s->conf.seqs);
    s->conf.context = clamp(c->context, 1, MODEL_CONTEXT_MAX);
    list_init(&s->waiting);
    list_init(&s->running);
    s->seqs = calloc(s->conf.seqs, sizeof(*s->seqs));
    must(s->seqs != NULL);
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        s->seqs[i].id = i;
    }
}

void sched_fini(struct sched *s)
{
    if (s->seqs == NULL) {
        return;
    }
    must(list_empty(&s->waiting) && list_empty(&s->running));
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        free(s->seqs[i].tokens);
    }
    free(s->seqs);
    *s = (struct sched){0};
}

static struct sched_stream *stream_of(struct list *l)
{
    return container_of(l, struct sched_stream, link);
}

int sched_add(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    must(x->phase == SCHED_OUT);
    if (x->n_prompt == 0) {
        return ERR_INVALID;
    }
    if (x->n_prompt > s->conf.context) {
        return ERR_CONTEXT;
    }
    if (s->n_waiting + s->n_running >= s->conf.queue + s->conf.running) {
        return ERR_BUSY;
    }
    x->phase = SCHED_WAITING;
    x->paused = false;
    x->added_us = now_us;
    x->started_us = 0;
    x->cached = 0;
    x->seq = NULL;
    list_push(&s->waiting, &x->link);
    s->n_waiting++;
    return 0;
}

void sched_remove(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    if (x->phase == SCHED_OUT) {
        return;
    }
    list_del(&x->link);
    if (x->phase == SCHED_WAITING) {
        s->n_waiting--;
    } else {
        s->n_running--;
        struct sched_seq *q = x->seq;
        q->owner = NULL;
        q->used_us = now_us;
        if (!q->in_step) {
            q->n = q->computed;
        }
        if (!q->in_step && (q->n == 0 || !q->opened)) {
            q->failed = true; /* nothing worth keeping */
        }
    }
    LIST_EACH(l, &s->waiting) {
        if (stream_of(l)->after == x) {
            stream_of(l)->after = NULL;
        }
    }
    x->seq = NULL;
    x->phase = SCHED_OUT;
}

void sched_pause(struct sched_stream *x, bool paused)
{
    x->paused = paused;
}

/* Room for at least n tokens. Sizes are bounded by the context. */
static void seq_reserve(struct sched_seq *q, uint32_t n)
{
    if (n <= q->cap) {
        return;
    }
    uint32_t cap = q->cap < 64 ? 64 : q->cap;
    while (cap < n) {
        cap *= 2;
    }
    int32_t *p = realloc(q->tokens, (size_t)cap * sizeof(*p));
    must(p != NULL); /* at most 2 * MODEL_CONTEXT_MAX * 4 bytes */
    q->tokens = p;
    q->cap = cap;
}

int sched_push(struct sched *s, struct sched_stream *x, int32_t token)
{
    struct sched_seq *q = x->seq;
    must(x->phase == SCHED_RUNNING && q->computed == q->n);
    if (q->n >= s->conf.context) {
        return ERR_CONTEXT;
    }
    seq_reserve(q, q->n + 1);
    q->tokens[q->n++] = token;
    return 0;
}

bool sched_settled(const struct sched_stream *x)
{
    return x->phase == SCHED_RUNNING && x->seq->computed == x->seq->n;
}

/* --- choosing a sequence --- */

static void plan_op(struct sched *s, enum sched_op_kind kind, uint32_t seq,
                    uint32_t from, uint32_t n)
{
    must(s->plan.n_ops < countof(s->plan.ops));
    s->plan.ops[s->plan.n_ops++] =
        (struct sched_op){.kind = kind, .seq = seq, .from = from, .n = n};
}

static void seq_close(struct sched *s, struct sched_seq *q)
{
    if (q->opened) {
        plan_op(s, SCHED_OP_CLOSE, q->id, 0, 0);
    }
    free(q->tokens);
    *q = (struct sched_seq){.id = q->id};
}

/* Tokens that q's state and the prompt begin with; not the last one. */
static uint32_t shared(const struct sched_seq *q, const struct sched_stream *x)
{
    uint32_t max = (uint32_t)num_min(q->computed, x->n_prompt - 1);
    uint32_t n = 0;
    while (n < max && q->tokens[n] == x->prompt[n]) {
        n++;
    }
    return n;
}

/* The sequence that shares most with x; among equals a warm one, then the one
 * that would lose least. *ret_n is 0 and NULL is returned when none shares. */
static struct sched_seq *best_seq(struct sched *s, const struct sched_stream *x,
                                  uint32_t *ret_n)
{
    struct sched_seq *best = NULL;
    uint32_t best_n = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        if (!q->used || !q->opened || q->failed) {
            continue;
        }
        uint32_t n = shared(q, x);
        bool better = n > best_n;
        if (n == best_n && n > 0 && q->owner == NULL) {
            better = best->owner != NULL || q->computed < best->computed;
        }
        if (better) {
            best = q;
            best_n = n;
        }
    }
    *ret_n = best_n;
    return best;
}

/* A free place, if need be by rule 5; never `keep`. NULL: all are owned. */
static struct sched_seq *take_place(struct sched *s,
                                    const struct sched_seq *keep)
{
    struct sched_seq *oldest = NULL;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        if (!q->used) {
            return q;
        }
        if (q->owner == NULL && q != keep &&
            (oldest == NULL || q->used_us < oldest->used_us)) {
            oldest = q;
        }
    }
    if (oldest != NULL) {
        seq_close(s, oldest);
    }
    return oldest;
}

/* Rule 4. NULL: no sequence can be had now. */
static struct sched_seq *choose(struct sched *s, struct sched_stream *x)
{
    uint32_t n = 0;
    struct sched_seq *best = x->reuse ? best_seq(s, x, &n) : NULL;
    bool warm = best != NULL && best->owner == NULL;
    bool worth = n >= SCHED_FORK_MIN;
    if (warm && best->computed - n > SCHED_TAIL) {
        warm = false; /* rather a copy, if a place is left */
    }
    struct sched_seq *q = NULL;
    if (!warm) {
        q = take_place(s, worth ? best : NULL);
        if (q == NULL && worth && best->owner == NULL) {
            warm = true;
        } else if (q == NULL) {
            return NULL;
        }
    }
    if (warm) {
        q = best;
        if (q->computed > n) {
            plan_op(s, SCHED_OP_TRUNCATE, q->id, 0, n);
        }
    } else {
        q->used = true;
        q->opened = true;
        if (worth) {
            plan_op(s, SCHED_OP_FORK, q->id, best->id, n);
        } else {
            n = 0;
            plan_op(s, SCHED_OP_OPEN, q->id, 0, 0);
        }
    }
    q->computed = n;
    x->cached = n;
    return q;
}

static bool start(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    struct sched_seq *q = choose(s, x);
    if (q == NULL) {
        return false;
    }
    seq_reserve(q, x->n_prompt);
    memcpy(q->tokens, x->prompt, x->n_prompt * sizeof(*q->tokens));
    q->n = x->n_prompt;
    q->owner = x;
    q->used_us = now_us;
    x->seq = q;
    x->prompt = NULL;
    x->after = NULL;
    x->phase = SCHED_RUNNING;
    x->started_us = now_us;
    list_del(&x->link);
    list_push(&s->running, &x->link);
    s->n_waiting--;
    s->n_running++;
    return true;
}

static void start_waiting(struct sched *s, uint64_t now_us)
{
    LIST_EACH_SAFE(l, &s->waiting) {
        struct sched_stream *x = stream_of(l);
        if (s->n_running >= s->conf.running) {
            return;
        }
        if (x->after != NULL && !(x->after->phase == SCHED_RUNNING &&
                                  x->after->seq->computed >= x->n_prompt)) {
            continue; /* its leader's prompt is what it will fork */
        }
        if (!start(s, x, now_us)) {
            return;
        }
    }
}

/* --- forming a step --- */

static uint32_t left(const struct sched_stream *x)
{
    return x->paused ? 0 : x->seq->n - x->seq->computed;
}

static void plan_row(struct sched *s, struct sched_stream *x, uint32_t n)
{
    struct sched_seq *q = x->seq;
    must(s->plan.n_rows < countof(s->plan.rows));
    s->plan.rows[s->plan.n_rows++] = (struct sched_row){
        .seq = q->id,
        .position = q->computed,
        .n = n,
        .tokens = q->tokens + q->computed,
        .sample = q->computed + n == q->n && !x->compute_only,
    };
    q->in_step = true;
}

/* One row for each stream that decodes, at most `max`; when not all fit, the
 * next step begins with those left out. Returns how many. */
static uint32_t plan_decode(struct sched *s, uint32_t max)
{
    uint32_t n = 0;
    uint32_t skip =
        s->n_running > max && s->n_running > 0 ? s->turn % s->n_running : 0;
    for (unsigned round = 0; round < 2; round++) {
        uint32_t i = 0;
        LIST_EACH(l, &s->running) {
            bool second_half = i++ >= skip;
            struct sched_stream *x = stream_of(l);
            if (second_half == (round == 0) && left(x) == 1 && n < max) {
                plan_row(s, x, 1);
                n++;
            }
        }
    }
    return n;
}

static void plan_prefill(struct sched *s, uint32_t room)
{
    double fit = SCHED_ROWS_FIRST;
    if (s->us_prompt > 0) {
        double us = (double)SCHED_STEP_GOAL_US - s->us_base;
        fit = us > 0 ? us * s->n_prompt / s->us_prompt : 0;
    }
    uint32_t goal = fit < (double)room ? (uint32_t)fit : room;
    uint32_t budget = (uint32_t)num_min(
        room, num_min(s->conf.chunk, num_max(goal, SCHED_ROWS_MIN)));
    LIST_EACH(l, &s->running) {
        struct sched_stream *x = stream_of(l);
        uint32_t n = left(x);
        if (n < 2 || budget == 0) {
            continue;
        }
        n = (uint32_t)num_min(n, num_min(budget, s->conf.rows_seq));
        plan_row(s, x, n);
        s->plan.n_prefill += n;
        budget -= n;
    }
}

static void plan_rows(struct sched *s)
{
    bool prefill = false;
    LIST_EACH(l, &s->running) {
        prefill = prefill || left(stream_of(l)) > 1;
    }
    uint32_t max = s->conf.rows_step;
    if (prefill && max > 1) {
        max -= (uint32_t)num_max(1, max / 4); /* rule 3: prompts go on */
    } else if (prefill && s->turn % 2 == 1) {
        max = 0;
    }
    uint32_t used = plan_decode(s, max);
    if (prefill) {
        plan_prefill(s, s->conf.rows_step - used);
    }
}

const struct sched_plan *sched_next(struct sched *s, uint64_t now_us)
{
    if (s->in_flight) {
        return NULL;
    }
    s->plan.n_ops = 0;
    s->plan.n_rows = 0;
    s->plan.n_prefill = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        if (q->used && q->failed && q->owner == NULL) {
            seq_close(s, q);
        } else if (q->used && !q->opened && q->owner != NULL) {
            q->opened = true; /* replay after sched_lost */
            plan_op(s, SCHED_OP_OPEN, q->id, 0, 0);
        }
    }
    start_waiting(s, now_us);
    plan_rows(s);
    s->turn++;
    s->in_flight = s->plan.n_rows > 0;
    return s->plan.n_rows > 0 || s->plan.n_ops > 0 ? &s->plan : NULL;
}

void sched_row_failed(struct sched *s, size_t i)
{
    must(s->in_flight && i < s->plan.n_rows);
    s->plan.rows[i].failed = true;
}

/* What the step took says what the next one may hold. Prompt rows are charged
 * with what the step cost beyond one without them, if that leaves anything like
 * a cost, and forgotten as others follow: two rows hardly count, many do. */
static void measure(struct sched *s, double us)
{
    double n = s->plan.n_prefill;
    if (us <= 0) {
        return;
    }
    if (s->plan.n_prefill == 0) {
        s->us_base = s->us_base > 0 ? 0.75 * s->us_base + 0.25 * us : us;
        return;
    }
    double least = us / 4;
    double cost = us - s->us_base > least ? us - s->us_base : least;
    double keep = SCHED_ROWS_KEPT / (SCHED_ROWS_KEPT + n);
    s->us_prompt = s->us_prompt * keep + cost;
    s->n_prompt = s->n_prompt * keep + n;
}

void sched_done(struct sched *s, uint64_t step_us, uint64_t now_us)
{
    must(s->in_flight);
    s->in_flight = false;
    measure(s, (double)step_us);
    for (size_t i = 0; i < s->plan.n_rows; i++) {
        const struct sched_row *r = &s->plan.rows[i];
        struct sched_seq *q = &s->seqs[r->seq];
        q->in_step = false;
        q->used_us = now_us;
        if (r->failed) {
            q->failed = true;
        } else {
            q->computed += r->n;
        }
        if (q->owner == NULL) {
            q->n = q->computed;
        }
    }
}

struct sched_stream *sched_row_stream(struct sched *s, size_t i)
{
    must(i < s->plan.n_rows);
    return s->seqs[s->plan.rows[i].seq].owner;
}

void sched_lost(struct sched *s)
{
    s->in_flight = false;
    s->plan.n_rows = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        q->opened = false;
        q->in_step = false;
        q->computed = 0;
        if (q->used && q->owner == NULL) {
            seq_close(s, q);
        }
    }
}

uint32_t sched_warm(const struct sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        n += s->seqs[i].used && s->seqs[i].owner == NULL ? 1u : 0u;
    }
    return n;
}
