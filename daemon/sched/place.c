/* place.c - sequences: which one a stream gets, and when it is closed.
 *
 * Here sequence operations take effect at once: the engine handles its frames
 * in order, and no operation is planned while a step is in flight.
 */
#include <string.h>

#include "base/num.h"
#include "sched/sched_impl.h"

void seq_reserve(struct sched_seq *q, uint32_t n)
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

void seq_cut(struct sched_seq *q, uint32_t n)
{
    draft_truncate(&q->index, q->tokens, n);
    q->n = n;
    q->computed = q->computed < n ? q->computed : n;
    q->told = q->told < n ? q->told : n;
    uint32_t left = 0;
    for (uint32_t i = 0; i < q->n_marks; i++) {
        if (q->marks[i] <= n) {
            q->marks[left++] = q->marks[i];
        }
    }
    q->n_marks = left;
}

uint32_t seq_cut_at(const struct sched *s, const struct sched_seq *q,
                    uint32_t n)
{
    if (s->conf.cut_at == 0 || n == q->computed) {
        return n;
    }
    uint32_t best = n - n % s->conf.cut_at;
    for (uint32_t i = 0; i < q->n_marks; i++) {
        if (q->marks[i] <= n && q->marks[i] > best) {
            best = q->marks[i];
        }
    }
    return best;
}

/* q now begins with n tokens of `from`, for x: how much of them its share has
 * seen, or will when their owner ends. */
static void seq_told(struct sched_seq *q, const struct sched_seq *from,
                     const struct sched_stream *x, uint32_t n)
{
    bool same = from->owner != NULL ? from->owner->share == x->share
                                    : from->told_to == x->share;
    uint32_t told = from->owner != NULL ? n : from->told;
    q->told = same && x->share != 0 ? (uint32_t)num_min(told, n) : 0;
    q->told_to = x->share;
}

void place_op(struct sched *s, enum sched_op_kind kind, uint32_t seq,
              uint32_t from, uint32_t n)
{
    must(s->plan.n_ops < countof(s->plan.ops));
    s->plan.ops[s->plan.n_ops++] =
        (struct sched_op){.kind = kind, .seq = seq, .from = from, .n = n};
}

static void tell_loss(const struct sched *s, const struct sched_seq *q,
                      uint32_t left)
{
    if (s->on_loss != NULL && !q->pooled && q->computed - left > SCHED_TAIL) {
        s->on_loss(s->on_loss_ctx, q);
    }
}

void seq_close(struct sched *s, struct sched_seq *q)
{
    if (q->opened) {
        tell_loss(s, q, 0);
        place_op(s, SCHED_OP_CLOSE, q->id, 0, 0);
    }
    draft_fini(&q->index);
    free(q->tokens);
    *q = (struct sched_seq){.id = q->id};
}

/* What x's timeline is to be: its prompt, or all it had when it lost its
 * place. */
static const int32_t *line_of(const struct sched_stream *x, uint32_t *ret_n)
{
    *ret_n = x->line != NULL ? x->n_line : x->n_prompt;
    return x->line != NULL ? x->line : x->prompt;
}

/* Tokens that q's state and x's timeline begin with; not the last one. */
static uint32_t shared(const struct sched *s, const struct sched_seq *q,
                       const struct sched_stream *x)
{
    uint32_t n_line = 0;
    const int32_t *line = line_of(x, &n_line);
    if (q->long_list != sched_long(s, n_line)) {
        return 0;
    }
    uint32_t max = (uint32_t)num_min(q->computed, n_line - 1);
    uint32_t n = 0;
    if (sched_scores(x)) {
        max = (uint32_t)num_min(max, x->n_scored); /* rule 14 */
    }
    while (n < max && q->tokens[n] == line[n]) {
        n++;
    }
    return seq_cut_at(s, q, n);
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
        uint32_t n = shared(s, q, x);
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

static struct sched_seq *oldest_warm(struct sched *s, const struct sched_seq *a,
                                     const struct sched_seq *b)
{
    struct sched_seq *oldest = NULL;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        if (q->used && q->owner == NULL && q != a && q != b &&
            (oldest == NULL || q->used_us < oldest->used_us)) {
            oldest = q;
        }
    }
    return oldest;
}

bool place_close_oldest(struct sched *s, const struct sched_seq *q,
                        const struct sched_seq *keep)
{
    struct sched_seq *oldest = oldest_warm(s, q, keep);
    if (oldest != NULL) {
        seq_close(s, oldest);
    }
    return oldest != NULL;
}

struct sched_seq *place_free(struct sched *s, const struct sched_seq *keep)
{
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        if (!s->seqs[i].used) {
            return &s->seqs[i];
        }
    }
    struct sched_seq *oldest = oldest_warm(s, keep, NULL);
    if (oldest != NULL) {
        seq_close(s, oldest);
    }
    return oldest;
}

uint32_t place_tokens(const struct sched_stream *x)
{
    return x->line != NULL ? x->n_line : x->n_prompt;
}

/* A place with room for n positions, but not keep's. */
static struct sched_seq *place_new(struct sched *s, uint32_t n,
                                   const struct sched_seq *keep)
{
    return room_make(s, n, NULL, keep) ? place_free(s, keep) : NULL;
}

/* The engine keeps q's first n positions. */
static void keep_first(struct sched *s, struct sched_seq *q, uint32_t n)
{
    if (q->computed > n || (s->conf.positions > 0 && q->top > n)) {
        tell_loss(s, q, n);
        place_op(s, SCHED_OP_TRUNCATE, q->id, 0, n);
    }
}

/* Rule 4. NULL: no sequence can be had now. */
static struct sched_seq *choose(struct sched *s, const struct sched_stream *x,
                                uint32_t *ret_cached)
{
    uint32_t n = 0;
    uint32_t n_line = place_tokens(x);
    uint32_t room = room_wanted(s, x, n_line);
    bool reuse = (x->reuse || x->line != NULL) && !x->pool;
    struct sched_seq *best = reuse ? best_seq(s, x, &n) : NULL;
    bool warm = best != NULL && best->owner == NULL;
    bool worth = n >= SCHED_FORK_MIN;
    if (warm && best->computed - n > SCHED_TAIL) {
        warm = false; /* rather a copy, if a place is left */
    }
    struct sched_seq *q = NULL;
    if (!warm) {
        q = place_new(s, room, worth ? best : NULL);
        if (q == NULL && worth && best->owner == NULL) {
            warm = true;
        } else if (q == NULL) {
            return NULL;
        }
    }
    if (warm) {
        if (!room_make(s, room, best, NULL)) {
            return NULL;
        }
        q = best;
        keep_first(s, q, n);
    } else {
        q->used = true;
        q->opened = true;
        draft_init(&q->index, s->conf.ngram_min);
        if (worth) {
            place_op(s, SCHED_OP_FORK, q->id, best->id, n);
            memcpy(q->marks, best->marks, sizeof(q->marks));
            q->n_marks = best->n_marks; /* those up to n, by seq_cut */
        } else {
            n = 0;
            place_op(s, SCHED_OP_OPEN, q->id, 0, n_line);
        }
        q->long_list = sched_long(s, n_line);
    }
    seq_cut(q, n);
    q->computed = n;
    q->top = n;
    q->pooled = x->pool;
    room_set(s, q, room);
    seq_told(q, n > 0 ? best : q, x, n);
    *ret_cached = n;
    return q;
}

bool place_take(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    uint32_t cached = 0;
    uint32_t n = 0;
    struct sched_seq *q = choose(s, x, &cached);
    if (q == NULL) {
        return false;
    }
    const int32_t *line = line_of(x, &n);
    seq_reserve(q, n);
    memcpy(q->tokens, line, n * sizeof(*q->tokens));
    q->n = n;
    q->owner = x;
    q->used_us = now_us;
    x->seq = q;
    if (x->line == NULL) {
        x->cached = cached;
    }
    free(x->line);
    x->line = NULL;
    x->prompt = NULL;
    x->after = NULL;
    return true;
}

/* After streams have got their places: those may still have begun with what the
 * short list computed. */
void place_change_lists(struct sched *s)
{
    if (!sched_long(s, s->conf.context)) {
        return; /* there is one list */
    }
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        if (q->owner == NULL || q->owner == &s->restoring || !q->opened ||
            q->held || q->failed || q->long_list || !sched_long(s, q->n)) {
            continue;
        }
        tell_loss(s, q, 0);
        place_op(s, SCHED_OP_CLOSE, q->id, 0, 0);
        place_op(s, SCHED_OP_OPEN, q->id, 0, q->n);
        q->owner->n_again += q->computed;
        q->long_list = true;
        q->computed = 0;
        q->n_marks = 0;
        q->top = 0;
    }
}

void place_leave(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    struct sched_seq *q = x->seq;
    x->seq = NULL;
    q->used_us = now_us;
    if (q->held && q->opened) { /* it is being loaded, and will be warm */
        q->held = false;
        q->owner = &s->restoring;
        return;
    }
    q->held = false;
    q->owner = NULL;
    if (!q->in_step) {
        seq_cut(q, q->computed);
        room_settle(s, q);
    }
    bool nothing = !q->in_step && (q->n == 0 || !q->opened);
    q->failed = q->failed || nothing || q->pooled; /* not worth keeping */
}
