/* form.c - the rows of a step: first decoding rows with their drafts, then
 * prompt rows up to a budget.
 */
#include <string.h>

#include "base/num.h"
#include "sched/sched_impl.h"

struct forming {
    struct sched *s;
    uint64_t now;
    uint32_t decoding; /* rows that decode, without drafts */
    bool hurry;        /* a stream of another class than batch waits for it */
};

/* Rows that x could have. */
static uint32_t left(const struct forming *f, const struct sched_stream *x)
{
    bool none = x->paused || x->seq->held || sched_late(x, f->now) ||
                x->seq->n > x->seq->room; /* rule 13 */
    return none ? 0 : x->seq->n - x->seq->computed;
}

/* Rule 15: the row completes a prompt, or what its stream lost. */
static bool leaves_mark(const struct sched *s, const struct sched_stream *x,
                    uint32_t n)
{
    const struct sched_seq *q = x->seq;
    return s->conf.cut_at > 0 && !x->pool && q->computed + n == q->n &&
           (n > 1 || !x->primed) && q->n > 1;
}

static struct sched_row *add_row(struct forming *f, struct sched_stream *x,
                                 uint32_t n)
{
    struct sched_plan *p = &f->s->plan;
    struct sched_seq *q = x->seq;
    must(p->n_rows < countof(p->rows));
    struct sched_row *r = &p->rows[p->n_rows++];
    r->seq = q->id;
    r->position = q->computed;
    r->n = n;
    r->tokens = q->tokens + q->computed;
    r->sample = q->computed + n == q->n && !x->compute_only;
    r->score = false;
    r->give = x->pool && q->computed + n == q->n;
    r->after = q->computed + n < q->n ? q->tokens[q->computed + n] : -1;
    r->keep = leaves_mark(f->s, x, n);
    r->n_drafts = 0;
    r->failed = false;
    r->accepted = 0;
    q->in_step = true;
    x->row_turn = f->s->turn;
    if (x->first_turn == 0) {
        x->first_turn = f->s->turn + 1 - x->added_turn;
    }
    return r;
}

/* --- decoding, and drafts --- */

/* Index what is known of the running streams' texts, a bounded part a step. */
static void index_texts(struct sched *s)
{
    uint32_t most = SCHED_INDEX;
    if (s->conf.max_draft == 0) {
        return;
    }
    LIST_EACH(l, &s->running) {
        struct sched_stream *x = stream_of(l);
        struct sched_seq *q = x->seq;
        if (x->compute_only) {
            continue; /* nothing is drawn */
        }
        uint32_t was = q->index.n + x->predicted.n;
        draft_extend(&q->index, q->tokens, q->n, most);
        draft_extend(&x->predicted, x->prediction, x->n_prediction, most);
        uint32_t did = q->index.n + x->predicted.n - was;
        most -= did < most ? did : most;
    }
    (void)share_index(&s->share, most);
}

/* Rule 11: from texts that agree with more than the `mine` tokens its own text
 * does. */
static uint32_t find_shared(struct sched *s, const struct sched_stream *x,
                            struct sched_row *r, uint32_t mine, uint32_t max)
{
    uint32_t match = 0;
    if (x->share == 0 || mine >= DRAFT_LONG) {
        return 0;
    }
    uint32_t n = share_find(&s->share, x->share, x->seq->tokens, x->seq->n, max,
                            r->drafts, &match);
    r->kind = match < DRAFT_LONG ? WIDTH_SHARED : WIDTH_SHARED_LONG;
    return match > mine ? n : 0;
}

/* Drafts for x after its last token, at most `max`, into r. What its grammar
 * forces goes before all. Where both its prediction and its own text have some,
 * those that were right more often. */
static uint32_t find_drafts(struct sched *s, struct sched_stream *x,
                            struct sched_row *r, uint32_t max)
{
    struct sched_seq *q = x->seq;
    uint32_t at = 0;
    uint32_t far = 0;
    if (x->n_forced > 0) {
        uint32_t k = (uint32_t)num_min(max, x->n_forced);
        memcpy(r->drafts, x->forced, k * sizeof(*r->drafts));
        r->kind = WIDTH_FORCED;
        x->n_forced = 0;
        return k;
    }
    uint32_t mine = draft_find(&q->index, q->tokens, q->tokens, q->n, &at);
    uint32_t n = 0;
    if (x->predicted_off > 0 || x->predicted_at >= x->n_prediction) {
        n = draft_find(&x->predicted, x->prediction, q->tokens, q->n, &far);
    }
    if (n > 0 && n >= mine) {
        x->predicted_at = far;
        x->predicted_off = 0;
    }
    if (mine > 0) {
        x->source_at = at;
        x->source_off = 0;
    }
    enum width_kind kind = mine > 0 ? width_kind(mine) : WIDTH_RESUMED;
    bool right = x->predicted_off == 0;
    bool there =
        x->predicted_at < x->n_prediction && x->predicted_off < SCHED_OFF;
    if (there && mine > 0) {
        there = right && odds_of(&x->odds, &s->odds, WIDTH_PREDICTED) >=
                             odds_of(&x->odds, &s->odds, kind);
    }
    if (there) {
        r->kind = right ? WIDTH_PREDICTED : WIDTH_RESUMED;
        n = (uint32_t)num_min(max, x->n_prediction - x->predicted_at);
        return draft_copy(x->prediction, x->n_prediction, x->predicted_at, n,
                          r->drafts);
    }
    n = find_shared(s, x, r, mine, max);
    if (n > 0) {
        return n;
    }
    if (x->source_at == 0) {
        return 0;
    }
    r->kind = kind;
    return draft_copy(q->tokens, q->n, x->source_at, max, r->drafts);
}

/* Drafts that x has a use for. */
static uint32_t max_drafts(const struct sched *s, const struct sched_stream *x)
{
    uint32_t max = (uint32_t)num_min(s->conf.max_draft, s->conf.rows_seq - 1);
    const struct sched_seq *q = x->seq;
    uint32_t end = q->long_list ? s->conf.context : s->conf.short_max;
    end = (uint32_t)num_min(end, q->room);
    max = (uint32_t)num_min(max, end - q->n);
    if (x->max_new > 0) {
        uint32_t wanted = x->max_new > x->n_new ? x->max_new - x->n_new : 1;
        max = (uint32_t)num_min(max, wanted - 1);
    }
    return max;
}

/* One that is not worth it is tried at times, ever more rarely: texts change,
 * and machines. */
static uint32_t trial(struct sched_stream *x, struct width w)
{
    if (w.n > 0 || w.max == 0) {
        x->trial_at = w.n > 0 ? WIDTH_PROBE : x->trial_at;
        return w.n;
    }
    if (++x->declined < x->trial_at) {
        return 0;
    }
    x->declined = 0;
    x->trial_at = (uint32_t)num_min(2 * x->trial_at, WIDTH_PROBES);
    return (uint32_t)num_min(w.max, WIDTH_TRIED);
}

/* Give the rows planned so far their drafts, `room` at most. */
static void add_drafts(struct forming *f, uint32_t room, bool prompts)
{
    struct sched *s = f->s;
    struct width w[STREAMS_MAX];
    struct sched_stream *who[STREAMS_MAX];
    size_t n = 0;
    if (s->conf.max_draft == 0) {
        return;
    }
    for (size_t i = 0; i < s->plan.n_rows; i++) {
        struct sched_row *r = &s->plan.rows[i];
        struct sched_stream *x = s->seqs[r->seq].owner;
        uint32_t max = r->sample ? max_drafts(s, x) : 0;
        r->n_drafts = max > 0 ? find_drafts(s, x, r, max) : 0;
        who[n] = x;
        w[n] = (struct width){.p = odds_of(&x->odds, &s->odds, r->kind),
                              .max = r->n_drafts};
        n++;
    }
    uint32_t rows = (uint32_t)n;
    size_t some = 0; /* those that have any */
    struct width few[STREAMS_MAX];
    for (size_t i = 0; i < n; i++) {
        if (w[i].max > 0) {
            few[some++] = w[i];
        }
    }
    width_choose(few, some, rows, room, some < rows || prompts, &s->cost);
    some = 0;
    for (size_t i = 0; i < n; i++) {
        if (w[i].max > 0) {
            w[i].n = few[some++].n;
        }
        struct sched_row *r = &s->plan.rows[i];
        r->n_drafts = (uint32_t)num_min(trial(who[i], w[i]), room);
        room -= r->n_drafts;
        s->plan.n_sampled += r->n_drafts;
    }
}

/* The stream that decodes next: the one whose last row is longest ago. */
static struct sched_stream *next_decode(const struct forming *f)
{
    struct sched_stream *best = NULL;
    LIST_EACH(l, &f->s->running) {
        struct sched_stream *x = stream_of(l);
        if (left(f, x) == 1 && !x->seq->in_step &&
            (best == NULL || x->row_turn < best->row_turn)) {
            best = x;
        }
    }
    return best;
}

/* One row for each stream that decodes, at most `max`. */
static void plan_decode(struct forming *f, uint32_t max)
{
    struct sched_stream *x = NULL;
    while (f->decoding < max && (x = next_decode(f)) != NULL) {
        add_row(f, x, 1);
        f->decoding++;
        f->hurry = f->hurry || x->cls != SCHED_CLASS_BATCH;
    }
    f->s->plan.n_sampled = f->decoding;
}

/* --- prompts --- */

/* What a step with prompt rows may take, by rule 3. */
static double time_allowed(const struct forming *f)
{
    double plain = SCHED_SLOWER * cost_of(&f->s->cost, f->decoding);
    return f->hurry && plain < SCHED_STEP_US ? plain : SCHED_STEP_US;
}

/* Prompt rows that fit a step, by rule 3. */
static uint32_t rows_that_fit(const struct forming *f)
{
    const struct sched *s = f->s;
    const struct cost *c = &s->cost;
    double goal = time_allowed(f);
    double row = cost_prompt(c);
    double base = cost_of(c, s->plan.n_sampled > 0 ? s->plan.n_sampled : 1);
    if (f->hurry) {
        row = row > 0 ? row : cost_of(c, 1) / COST_GUESS;
    }
    if (row <= 0) {
        return SCHED_ROWS_FIRST;
    }
    double fit = (goal - base) / row;
    return fit < SCHED_ROWS_MIN              ? SCHED_ROWS_MIN
           : fit < (double)s->conf.rows_step ? (uint32_t)fit
                                             : s->conf.rows_step;
}

/* Rule 2 between two prompts. */
static bool prompt_before(const struct forming *f, const struct sched_stream *a,
                          const struct sched_stream *b)
{
    bool due_a = f->now - a->row_us >= f->s->conf.age_us;
    bool due_b = f->now - b->row_us >= f->s->conf.age_us;
    if (due_a != due_b) {
        return due_a;
    }
    if (due_a || a->cls != b->cls) {
        return due_a ? a->row_us < b->row_us : a->cls < b->cls;
    }
    const struct sched_peer *pa = a->account;
    const struct sched_peer *pb = b->account;
    return pa->served < pb->served ||
           (pa->served <= pb->served && a->number < b->number);
}

/* The stream that gets the next prompt rows; NULL: all have their rows. */
static struct sched_stream *next_prompt(const struct forming *f)
{
    struct sched_stream *best = NULL;
    LIST_EACH(l, &f->s->running) {
        struct sched_stream *x = stream_of(l);
        if (left(f, x) < 2 || x->seq->in_step) {
            continue;
        }
        if (best == NULL || prompt_before(f, x, best)) {
            best = x;
        }
    }
    return best;
}

/* Rule 14: how many of x's next n rows to take, all scored or none. */
static uint32_t scored_rows(const struct forming *f,
                            const struct sched_stream *x, uint32_t n,
                            bool *ret_score)
{
    const struct sched *s = f->s;
    uint32_t at = x->seq->computed;
    uint32_t scored = s->plan.n_scored;
    *ret_score = sched_scores(x) && at >= x->n_scored;
    if (!*ret_score) { /* computed again, up to where it was scored */
        return sched_scores(x) ? (uint32_t)num_min(n, x->n_scored - at) : n;
    }
    double goal = time_allowed(f) - s->plan.n_prefill * cost_prompt(&s->cost);
    uint32_t most = cost_most(&s->cost) > 0 ? n : SCHED_ROWS_FIRST;
    uint32_t taken = s->plan.n_prefill + scored;
    uint32_t least = SCHED_ROWS_MIN - (uint32_t)num_min(SCHED_ROWS_MIN, taken);
    n = (uint32_t)num_min(num_min(n, most), ENGINE_SCORES_MAX - scored);
    while (n > least && cost_of(&s->cost, s->plan.n_sampled + n) > goal) {
        n -= n / 8 + 1;
    }
    return n;
}

static void plan_prefill(struct forming *f, uint32_t room)
{
    struct sched *s = f->s;
    struct sched_stream *x = NULL;
    uint32_t budget =
        (uint32_t)num_min(room, num_min(s->conf.chunk, rows_that_fit(f)));
    bool others = false;
    bool shared = f->hurry;
    while (budget > 0 && (x = next_prompt(f)) != NULL) {
        uint32_t n = (uint32_t)num_min(left(f, x), s->conf.rows_seq);
        if (x->cls == SCHED_CLASS_BATCH && others && !shared) {
            /* Others wait for their prompts: it may take twice their time. */
            budget = (uint32_t)num_min(
                budget, num_max(s->plan.n_prefill, SCHED_ROWS_MIN));
            shared = true;
        }
        bool score = false;
        n = scored_rows(f, x, (uint32_t)num_min(n, budget), &score);
        if (n == 0) {
            return; /* the step has no room for scores */
        }
        add_row(f, x, n)->score = score;
        *(score ? &s->plan.n_sampled : &s->plan.n_prefill) += n;
        budget -= n;
        if (score) { /* it takes the time of more rows than that */
            uint32_t fit = rows_that_fit(f);
            s->plan.n_scored += n;
            budget = (uint32_t)num_min(budget,
                                       fit - num_min(fit, s->plan.n_prefill));
        }
        others = others || x->cls != SCHED_CLASS_BATCH;
    }
}

/* What a step costs without prompts and drafts has to be known, and fresh. */
static bool measures(const struct forming *f)
{
    const struct sched *s = f->s;
    return f->decoding > 0 &&
           (s->since_plain >= SCHED_FRESH ||
            (s->since_plain > 0 && !cost_known(&s->cost, f->decoding)));
}

/* The step's rows and drafts are written, whatever becomes of them. */
static void note_tops(struct sched *s)
{
    for (size_t i = 0; i < s->plan.n_rows; i++) {
        const struct sched_row *r = &s->plan.rows[i];
        struct sched_seq *q = &s->seqs[r->seq];
        q->top = (uint32_t)num_max(q->top, r->position + r->n + r->n_drafts);
    }
}

void form_step(struct sched *s, uint64_t now_us)
{
    struct forming f = {.s = s, .now = now_us};
    bool prefill = false;
    LIST_EACH(l, &s->running) {
        prefill = prefill || left(&f, stream_of(l)) > 1;
    }
    uint32_t max = s->conf.rows_step;
    if (prefill && max > 1) {
        max -= (uint32_t)num_max(1, max / 4); /* rule 3: room for prompts */
    } else if (prefill && s->turn % 2 == 1) {
        max = 0;
    }
    index_texts(s);
    plan_decode(&f, max);
    if (!measures(&f) || max < 2) {
        add_drafts(&f, max - f.decoding, prefill);
        if (prefill) {
            plan_prefill(&f, s->conf.rows_step - s->plan.n_sampled);
        }
    }
    note_tops(s);
    bool plain = s->plan.n_prefill == 0 && s->plan.n_sampled == f.decoding;
    if (s->plan.n_rows > 0) {
        s->since_plain = plain ? 0 : s->since_plain + 1;
        s->turn++;
    }
}
