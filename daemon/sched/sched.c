/* sched.c - see sched.h for the rules.
 *
 * Prompt, output and recomputation are treated alike: a sequence has n known
 * tokens, the engine has computed `computed` of them, and a row has some of the
 * n - computed others. When one is left, the stream decodes; when more are, it
 * computes its prompt, or all of its timeline again after sched_lost(). The row
 * of the last known token draws the next token.
 *
 *   OUT --add--> WAITING --place and sequence found--> RUNNING
 *    ^              | ^------------rule 7------------------|
 *    +---remove-----+----------------remove----------------+
 *
 * Drafts that were right are computed before they are known to the caller:
 * they join the timeline in sched_done(), and the pushes that follow only
 * confirm them.
 */
#include <string.h>

#include "sched/sched.h"

#include "base/num.h"
#include "sched/sched_impl.h"

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
    s->conf.short_max = c->short_max == 0
                            ? s->conf.context
                            : clamp(c->short_max, 1, s->conf.context);
    s->conf.max_draft = clamp(c->max_draft, 0, ENGINE_DRAFTS_MAX);
    share_init(&s->share, s->conf.max_draft > 0 ? c->share_tokens : 0,
               c->ngram_min);
    s->since_plain = SCHED_FRESH; /* nothing is known: the first one is plain */
    s->conf.age_us = c->age_us == 0 ? SCHED_AGE_US : c->age_us;
    s->conf.block = clamp(c->block == 0 ? SCHED_BLOCK : c->block, 1,
                          MODEL_CONTEXT_MAX);
    if (c->positions > 0) { /* rule 13: one alone has to fit */
        s->conf.positions =
            num_max(c->positions, room_cost(s, s->conf.context));
    }
    list_init(&s->waiting);
    list_init(&s->running);
    s->seqs = calloc(s->conf.seqs, sizeof(*s->seqs));
    s->n_peers = s->conf.queue + s->conf.running;
    s->peers = calloc(s->n_peers, sizeof(*s->peers));
    must(s->seqs != NULL && s->peers != NULL);
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        s->seqs[i].id = i;
    }
}

void sched_set_drafts(struct sched *s, uint32_t max_draft)
{
    s->conf.max_draft = clamp(max_draft, 0, ENGINE_DRAFTS_MAX);
}

void sched_fini(struct sched *s)
{
    if (s->seqs == NULL) {
        return;
    }
    must(list_empty(&s->waiting) && list_empty(&s->running));
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        draft_fini(&s->seqs[i].index);
        free(s->seqs[i].tokens);
    }
    share_fini(&s->share);
    free(s->seqs);
    free(s->peers);
    *s = (struct sched){0};
}

int sched_add(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    must(x->phase == SCHED_OUT && x->cls < SCHED_CLASSES);
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
    x->kept = false;
    x->primed = false;
    x->number = s->number++;
    x->added_us = now_us;
    x->started_us = 0;
    x->queued_us = now_us;
    x->waited_us = 0;
    x->row_turn = 0;
    x->added_turn = s->turn;
    x->first_turn = 0;
    x->cached = 0;
    x->n_scored = 0;
    x->line = NULL;
    x->seq = NULL;
    x->n_new = 0;
    x->ahead = 0;
    x->n_drafted = 0;
    x->n_accepted = 0;
    x->n_again = 0;
    x->odds = (struct odds){0};
    x->declined = 0;
    x->trial_at = WIDTH_PROBE;
    x->predicted_at = 0;
    x->predicted_off = 0;
    x->source_at = 0;
    x->source_off = 0;
    draft_init(&x->predicted, s->conf.ngram_min);
    order_join(s, x);
    list_push(&s->waiting, &x->link);
    s->n_waiting++;
    s->class_waiting[x->cls]++;
    s->n_deadlines += x->deadline_us != 0;
    return 0;
}

/* Rule 11: what its `share` has not seen of x's text. */
static void tell_text(struct sched *s, const struct sched_stream *x)
{
    struct sched_seq *q = x->seq;
    if (x->share != 0) {
        share_put(&s->share, x->share, q->tokens, q->told, q->n);
        q->told_to = x->share;
        q->told = q->n;
    }
}

void sched_remove(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    if (x->phase == SCHED_OUT) {
        return;
    }
    list_del(&x->link);
    if (x->phase == SCHED_WAITING) {
        s->n_waiting--;
        s->class_waiting[x->cls]--;
    } else {
        s->n_running--;
        x->account->running--;
        tell_text(s, x);
        place_leave(s, x, now_us);
    }
    LIST_EACH(l, &s->waiting) {
        if (stream_of(l)->after == x) {
            stream_of(l)->after = NULL;
        }
    }
    order_leave(s, x);
    s->n_deadlines -= x->deadline_us != 0;
    free(x->line);
    x->line = NULL;
    draft_fini(&x->predicted);
    x->phase = SCHED_OUT;
}

void sched_pause(struct sched_stream *x, bool paused, uint64_t now_us)
{
    if (x->paused && !paused && x->phase == SCHED_WAITING) {
        x->queued_us = now_us; /* until now it waited for its client */
    }
    x->paused = paused;
}

/* A token came where another text has one at `at`: the place of the next one,
 * as if one stood for the other; 0 when too many in a row were different. */
static uint32_t follow(uint32_t at, uint32_t *off, bool same)
{
    *off = same ? 0 : *off + 1;
    return *off < SCHED_OFF ? at + 1 : 0;
}

static void compare(struct sched_stream *x, int32_t token)
{
    if (x->predicted_off < SCHED_OFF && x->predicted_at < x->n_prediction) {
        bool same = x->prediction[x->predicted_at] == token;
        x->predicted_at = follow(x->predicted_at, &x->predicted_off, same);
    }
    if (x->source_at > 0) {
        bool same = x->seq->tokens[x->source_at] == token;
        x->source_at = follow(x->source_at, &x->source_off, same);
    }
}

int sched_push(struct sched *s, struct sched_stream *x, int32_t token)
{
    struct sched_seq *q = x->seq;
    must(x->phase == SCHED_RUNNING && q->computed == q->n);
    if (x->ahead > 0) {
        must(q->tokens[q->n - x->ahead] == token);
        x->ahead--;
    } else if (q->n >= s->conf.context) {
        return ERR_CONTEXT;
    } else {
        seq_reserve(q, q->n + 1);
        q->tokens[q->n++] = token;
    }
    x->n_new++;
    compare(x, token);
    return 0;
}

bool sched_settled(const struct sched_stream *x)
{
    return x->phase == SCHED_RUNNING && x->seq->computed == x->seq->n;
}

void sched_forced(struct sched_stream *x, const int32_t *tokens, uint32_t n)
{
    must(n <= countof(x->forced));
    x->n_forced = n;
    if (n > 0) {
        memcpy(x->forced, tokens, n * sizeof(*tokens));
    }
}

struct sched_stream *sched_expired(struct sched *s, uint64_t now_us)
{
    struct list *lists[] = {&s->running, &s->waiting};
    for (size_t i = 0; i < countof(lists) && s->n_deadlines > 0; i++) {
        LIST_EACH(l, lists[i]) {
            if (sched_late(stream_of(l), now_us)) {
                return stream_of(l);
            }
        }
    }
    return NULL;
}

const struct sched_plan *sched_next(struct sched *s, uint64_t now_us)
{
    if (s->in_flight) {
        return NULL;
    }
    s->plan.n_ops = 0;
    s->plan.n_rows = 0;
    s->plan.n_prefill = 0;
    s->plan.n_sampled = 0;
    s->plan.n_scored = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        if (q->used && q->failed && q->owner == NULL) {
            seq_close(s, q);
        } else if (q->used && !q->opened && !q->held && q->owner != NULL &&
                   q->owner != &s->restoring) {
            q->opened = true; /* replay after sched_lost */
            place_op(s, SCHED_OP_OPEN, q->id, 0, q->n);
        }
    }
    order_grow(s, now_us);
    order_start(s, now_us);
    place_change_lists(s);
    form_step(s, now_us);
    s->in_flight = s->plan.n_rows > 0;
    return s->plan.n_rows > 0 || s->plan.n_ops > 0 ? &s->plan : NULL;
}

void sched_row_failed(struct sched *s, size_t i)
{
    must(s->in_flight && i < s->plan.n_rows);
    s->plan.rows[i].failed = true;
}

void sched_row_accepted(struct sched *s, size_t i, uint32_t n)
{
    must(s->in_flight && i < s->plan.n_rows);
    must(n <= s->plan.rows[i].n_drafts);
    s->plan.rows[i].accepted = n;
}

/* What verifying r's drafts has taught. */
static void learn(struct sched *s, struct sched_stream *x,
                  const struct sched_row *r)
{
    odds_note(&s->odds, r->kind, r->n_drafts, r->accepted, WIDTH_ALL);
    if (x == NULL) {
        return;
    }
    odds_note(&x->odds, r->kind, r->n_drafts, r->accepted, WIDTH_OWN);
    x->n_drafted += r->n_drafts;
    x->n_accepted += r->accepted;
}

/* Rule 15. */
static void add_mark(struct sched_seq *q, uint32_t n)
{
    uint32_t last = (uint32_t)countof(q->marks) - 1;
    memmove(q->marks + 1, q->marks, last * sizeof(*q->marks));
    q->marks[0] = n;
    q->n_marks += q->n_marks <= last;
}

static void row_done(struct sched *s, const struct sched_row *r,
                     uint64_t now_us)
{
    struct sched_seq *q = &s->seqs[r->seq];
    struct sched_stream *x = q->owner;
    uint32_t from = r->position + r->n;
    q->computed = from;
    if (r->keep) {
        add_mark(q, from - 1);
    }
    if (r->accepted > 0) { /* only after the last known token */
        seq_reserve(q, from + r->accepted);
        for (uint32_t i = 0; i < r->accepted; i++) {
            q->tokens[from + i] = r->drafts[i];
        }
        q->n = from + r->accepted;
        q->computed = q->n;
    }
    if (r->n_drafts > 0) {
        learn(s, x, r);
    }
    if (x != NULL) {
        x->ahead = r->accepted;
        x->n_scored = r->score ? from : x->n_scored;
        x->primed = x->primed || q->computed >= x->n_prompt;
        x->account->served += r->n;
        x->row_us = now_us;
    }
}

void sched_done(struct sched *s, uint64_t step_us, uint64_t now_us)
{
    must(s->in_flight);
    s->in_flight = false;
    cost_note(&s->cost, s->plan.n_sampled, s->plan.n_prefill, (double)step_us);
    for (size_t i = 0; i < s->plan.n_rows; i++) {
        const struct sched_row *r = &s->plan.rows[i];
        struct sched_seq *q = &s->seqs[r->seq];
        q->in_step = false;
        q->used_us = now_us;
        if (r->failed) {
            q->failed = true;
        } else {
            row_done(s, r, now_us);
        }
        if (q->owner == NULL) {
            seq_cut(q, q->computed);
            room_settle(s, q);
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
        q->held = false;
        q->in_step = false;
        q->computed = 0;
        q->n_marks = 0;
        q->top = 0;
        q->long_list = sched_long(s, q->n); /* restore.c loads by it */
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
