/* restore.c - see restore.h. A sequence being loaded is owned by a stream that
 * is in no list, so no rule touches it, and has nothing computed, so none
 * shares it. */
#include "sched/restore.h"

#include <string.h>

#include "base/num.h"
#include "sched/sched_impl.h"

const struct sched_seq *sched_warmest(const struct sched *s, const bool *tried)
{
    const struct sched_seq *best = NULL;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        const struct sched_seq *q = &s->seqs[i];
        if (q->used && q->owner == NULL && q->opened && !q->failed &&
            !q->in_step && !tried[i] &&
            (best == NULL || q->used_us > best->used_us)) {
            best = q;
        }
    }
    return best;
}

uint32_t sched_shared(const struct sched *s, const int32_t *tokens, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        const struct sched_seq *q = &s->seqs[i];
        if (!q->used || !q->opened || q->failed || n == 0 ||
            q->long_list != sched_long(s, n)) {
            continue;
        }
        uint32_t max = (uint32_t)num_min(q->computed, n - 1);
        uint32_t k = 0;
        while (k < max && q->tokens[k] == tokens[k]) {
            k++;
        }
        k = seq_cut_at(s, q, k);
        best = k > best ? k : best;
    }
    return best;
}

int sched_restore_begin(struct sched *s, uint32_t n_whole)
{
    if (s->in_flight) {
        return -1;
    }
    s->plan.n_ops = 0;
    s->plan.n_rows = 0;
    struct sched_seq *q =
        room_make(s, n_whole, NULL, NULL) ? place_free(s, NULL) : NULL;
    if (q == NULL) {
        return -1;
    }
    room_set(s, q, n_whole);
    q->used = true;
    q->opened = true;
    q->owner = &s->restoring;
    q->long_list = sched_long(s, n_whole);
    draft_init(&q->index, s->conf.ngram_min);
    return (int)q->id;
}

const struct sched_seq *sched_restore_lost(const struct sched *s, uint32_t from)
{
    for (uint32_t i = from; i < s->conf.seqs; i++) {
        const struct sched_seq *q = &s->seqs[i];
        if (q->used && q->owner != NULL && !q->opened && q->n > 1 &&
            !sched_scores(q->owner)) {
            return q;
        }
    }
    return NULL;
}

void sched_restore_hold(struct sched *s, uint32_t seq)
{
    struct sched_seq *q = &s->seqs[seq];
    must(seq < s->conf.seqs && q->owner != NULL && !q->opened);
    q->held = true;
}

const struct sched_seq *sched_restore_waiting(const struct sched *s)
{
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        if (s->seqs[i].held && !s->seqs[i].opened) {
            return &s->seqs[i];
        }
    }
    return NULL;
}

void sched_restore_let_go(struct sched *s, uint32_t seq)
{
    must(seq < s->conf.seqs && s->seqs[seq].held && !s->seqs[seq].opened);
    s->seqs[seq].held = false;
}

void sched_restore_held(struct sched *s, uint32_t seq)
{
    struct sched_seq *q = &s->seqs[seq];
    must(seq < s->conf.seqs && q->held && !q->opened);
    q->opened = true;
}

void sched_restore_end(struct sched *s, uint32_t seq, const int32_t *tokens,
                       uint32_t n, bool opened, uint64_t now_us)
{
    struct sched_seq *q = &s->seqs[seq];
    if (q->held) { /* the stream is still there: it continues */
        must(n < q->n);
        q->held = false;
        q->opened = opened;
        q->computed = n;
        q->top = n;
        return;
    }
    must(seq < s->conf.seqs && q->owner == &s->restoring);
    q->owner = NULL;
    q->opened = opened;
    q->failed = !opened || n == 0; /* sched_next closes it */
    q->used_us = now_us;
    if (!q->failed) {
        seq_reserve(q, n);
        memcpy(q->tokens, tokens, n * sizeof(*tokens));
        q->n = n;
        q->computed = n;
        q->top = n;
        room_settle(s, q);
    }
}
