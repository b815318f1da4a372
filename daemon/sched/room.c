/* room.c - rule 13: how many positions sequences may take.
 *
 * A sequence has `room`, and no row or draft goes past it. An engine may keep
 * what it has stored for drafts that were wrong, so a warm sequence takes what
 * was ever written (`top`), which is a block more than its tokens at most.
 */
#include "base/num.h"
#include "sched/sched_impl.h"

uint32_t room_wanted(const struct sched *s, const struct sched_stream *x,
                     uint32_t n)
{
    uint64_t most = s->conf.context - n;
    uint64_t at_once = (uint64_t)SCHED_ROOM_MOST * s->conf.block;
    if (s->conf.positions == 0) {
        return s->conf.context;
    }
    if (x->compute_only) {
        return n;
    }
    bool known = x->max_new > 0;
    if (known) {
        most = num_min(most, x->max_new > x->n_new ? x->max_new - x->n_new : 1);
    }
    if (!known || most > at_once) {
        uint64_t part = num_max((uint64_t)SCHED_ROOM * s->conf.block, n / 8);
        most = num_min(most, num_min(part, at_once));
    }
    return n + (uint32_t)most;
}

static uint32_t whole_blocks(const struct sched *s, uint32_t n)
{
    return (n + s->conf.block - 1) / s->conf.block * s->conf.block;
}

uint64_t room_cost(const struct sched *s, uint32_t n)
{
    return (uint64_t)s->conf.overhead + whole_blocks(s, n);
}

/* Of the sequences that streams own, and of the warm ones if `warm`; but q's is
 * not counted, and keep's always. */
static uint64_t taken(const struct sched *s, const struct sched_seq *q,
                      const struct sched_seq *keep, bool warm)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        const struct sched_seq *a = &s->seqs[i];
        if (a->used && a != q && (warm || a->owner != NULL || a == keep)) {
            n += room_cost(s, a->room);
        }
    }
    return n;
}

uint64_t sched_positions(const struct sched *s)
{
    return taken(s, NULL, NULL, true);
}

bool room_free(const struct sched *s, uint64_t cost)
{
    return s->conf.positions == 0 ||
           taken(s, NULL, NULL, false) + cost <= s->conf.positions;
}

bool room_make(struct sched *s, uint32_t n, const struct sched_seq *q,
               const struct sched_seq *keep)
{
    uint64_t cost = room_cost(s, n);
    if (s->conf.positions == 0) {
        return true;
    }
    if (taken(s, q, keep, false) + cost > s->conf.positions) {
        return false;
    }
    while (taken(s, q, keep, true) + cost > s->conf.positions) {
        must(place_close_oldest(s, q, keep));
    }
    return true;
}

void room_set(const struct sched *s, struct sched_seq *q, uint32_t n)
{
    q->room = (uint32_t)num_min(whole_blocks(s, n), s->conf.context);
}

void room_settle(const struct sched *s, struct sched_seq *q)
{
    room_set(s, q, q->top);
}
