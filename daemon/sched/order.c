/* order.c - which stream starts next, and which one loses its place for it.
 *
 * A stream that loses its place waits again, with its whole timeline as the
 * prompt. When it starts again, its warm sequence is found by the prefix; if
 * that was closed meanwhile, the timeline is computed once more. Either way the
 * stream continues with the same tokens.
 */
#include <string.h>

#include "base/num.h"
#include "sched/admit.h"
#include "sched/sched_impl.h"

void order_join(struct sched *s, struct sched_stream *x)
{
    struct sched_peer *free_one = NULL;
    struct sched_peer *p = NULL;
    double least = -1;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        struct sched_peer *a = &s->peers[i];
        if (a->streams == 0) {
            free_one = free_one == NULL ? a : free_one;
            continue;
        }
        p = a->id == x->peer ? a : p;
        least = least < 0 || a->served < least ? a->served : least;
    }
    if (p == NULL) { /* rule 9 leaves a place for every stream */
        p = free_one;
        must(p != NULL);
        *p =
            (struct sched_peer){.id = x->peer, .served = least > 0 ? least : 0};
    }
    p->streams++;
    x->account = p;
}

void order_leave(struct sched *s, struct sched_stream *x)
{
    (void)s;
    x->account->streams--;
    x->account = NULL;
}

static bool startable(const struct sched_stream *x, uint64_t now_us)
{
    return !x->paused && !sched_late(x, now_us) &&
           (x->after == NULL || x->after->primed);
}

/* Rule 1. */
static bool before(const struct sched_stream *a, const struct sched_stream *b)
{
    const struct sched_peer *pa = a->account;
    const struct sched_peer *pb = b->account;
    if (a->cls != b->cls) {
        return a->cls < b->cls;
    }
    if (pa != pb && pa->running != pb->running) {
        return pa->running < pb->running;
    }
    if (pa != pb && (pa->served < pb->served || pa->served > pb->served)) {
        return pa->served < pb->served;
    }
    uint64_t da = a->deadline_us - 1; /* none: the last of all */
    uint64_t db = b->deadline_us - 1;
    return da != db ? da < db : a->number < b->number;
}

static struct sched_stream *first(struct sched *s, uint64_t now_us)
{
    struct sched_stream *best = NULL;
    LIST_EACH(l, &s->waiting) {
        struct sched_stream *x = stream_of(l);
        if (startable(x, now_us) && (best == NULL || before(x, best))) {
            best = x;
        }
    }
    return best;
}

/* Rule 8: the oldest that is aged, if there may be one more that keeps its
 * place. */
static struct sched_stream *oldest(struct sched *s, uint64_t now_us)
{
    struct sched_stream *best = NULL;
    uint32_t kept = 0;
    LIST_EACH(l, &s->running) {
        kept += stream_of(l)->kept;
    }
    if (kept >= num_max(1, s->conf.running / 4)) {
        return NULL;
    }
    LIST_EACH(l, &s->waiting) {
        struct sched_stream *x = stream_of(l);
        uint64_t waited = x->waited_us + (now_us - x->queued_us);
        if (startable(x, now_us) && waited >= s->conf.age_us &&
            (best == NULL || x->number < best->number)) {
            best = x;
        }
    }
    return best;
}

static bool gives_way(const struct sched_stream *v,
                      const struct sched_stream *x)
{
    return v->paused || (!v->kept && v->cls > x->cls);
}

/* Whom of two it costs least. */
static bool rather(const struct sched_stream *a, const struct sched_stream *b)
{
    if (a->paused != b->paused) {
        return a->paused;
    }
    return a->cls != b->cls ? a->cls > b->cls : a->number > b->number;
}

static void park(struct sched *s, struct sched_stream *x, uint64_t now_us)
{
    const struct sched_seq *q = x->seq;
    x->line = malloc(q->n * sizeof(*x->line));
    must(x->line != NULL); /* MODEL_CONTEXT_MAX bounds it */
    memcpy(x->line, q->tokens, q->n * sizeof(*x->line));
    x->n_line = q->n;
    place_leave(s, x, now_us);
    list_del(&x->link);
    list_push(&s->waiting, &x->link);
    s->n_running--;
    s->n_waiting++;
    s->class_waiting[x->cls]++;
    x->account->running--;
    x->phase = SCHED_WAITING;
    x->queued_us = now_us;
    x->kept = false;
}

/* Its sequence stays owned when it leaves, until a file is loaded. */
static bool loads(const struct sched_stream *x)
{
    return x->seq->held && x->seq->opened;
}

/* --- room: rule 13 --- */

/* v loses its place for x's growth. */
static bool yields(const struct sched_stream *v, const struct sched_stream *x)
{
    if (v->paused != x->paused) {
        return v->paused;
    }
    if (v->kept != x->kept) {
        return x->kept;
    }
    return v->cls != x->cls ? v->cls > x->cls : v->start > x->start;
}

static bool hungry(const struct sched_stream *x, uint64_t now_us)
{
    return !x->paused && !x->seq->held && !sched_late(x, now_us) &&
           x->seq->n > x->seq->room;
}

/* x can have room for its tokens when those after it lose their places. */
static bool can_grow(const struct sched *s, const struct sched_stream *x)
{
    uint64_t n = room_cost(s, x->seq->n);
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        const struct sched_seq *q = &s->seqs[i];
        const struct sched_stream *y = q->owner;
        if (q->used && y != NULL && y != x &&
            (y == &s->restoring || loads(y) || yields(x, y))) {
            n += room_cost(s, q->room);
        }
    }
    return n <= s->conf.positions;
}

static bool is_first(const struct sched *s, const struct sched_stream *x)
{
    bool first = true;
    LIST_EACH(l, &s->running) {
        first = first && (stream_of(l) == x || yields(stream_of(l), x));
    }
    return first;
}

/* Who loses its place first for x's growth; x itself if it is the last. */
static struct sched_stream *last_of(struct sched *s, struct sched_stream *x)
{
    struct sched_stream *v = x;
    LIST_EACH(l, &s->running) {
        struct sched_stream *y = stream_of(l);
        v = !loads(y) && yields(y, v) ? y : v;
    }
    return v;
}

static bool grow(struct sched *s, struct sched_stream *x)
{
    uint32_t n = room_wanted(s, x, x->seq->n);
    if (!room_make(s, n, x->seq, NULL)) {
        n = x->seq->n;
        if (!room_make(s, n, x->seq, NULL)) {
            return false;
        }
    }
    room_set(s, x->seq, n);
    return true;
}

/* The first in the order of those that need room. */
static struct sched_stream *next_to_grow(struct sched *s, uint64_t now_us)
{
    struct sched_stream *best = NULL;
    LIST_EACH(l, &s->running) {
        struct sched_stream *x = stream_of(l);
        if (hungry(x, now_us) && (best == NULL || yields(best, x))) {
            best = x;
        }
    }
    return best;
}

void order_grow(struct sched *s, uint64_t now_us)
{
    struct sched_stream *x = NULL;
    while (s->conf.positions > 0 && (x = next_to_grow(s, now_us)) != NULL) {
        if (grow(s, x)) {
            continue;
        }
        if (can_grow(s, x)) {
            park(s, last_of(s, x), now_us);
        } else if (!is_first(s, x)) {
            park(s, x, now_us);
        } else {
            return; /* a load has the room: until it ends, x gets no row */
        }
    }
}

/* x could start, if need be by rule 7. `only`: with no more room than what
 * rule 7 gives. */
static bool has_room(const struct sched *s, const struct sched_stream *x,
                     bool only)
{
    uint64_t need = room_cost(s, room_wanted(s, x, place_tokens(x)));
    uint64_t others = 0;
    uint64_t given = 0;
    if (s->conf.positions == 0) {
        return true;
    }
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        const struct sched_seq *q = &s->seqs[i];
        const struct sched_stream *y = q->owner;
        if (!q->used || y == NULL) {
            continue;
        }
        bool gives = y != &s->restoring && !loads(y) && gives_way(y, x);
        *(gives ? &given : &others) += room_cost(s, q->room);
    }
    return only ? need <= given : others + need <= s->conf.positions;
}

/* --- starting --- */

/* A place and room for x, if need be by rule 7. */
static bool make_way(struct sched *s, const struct sched_stream *x,
                     uint64_t now_us)
{
    uint64_t need = room_cost(s, room_wanted(s, x, place_tokens(x)));
    if (!has_room(s, x, false)) {
        return false;
    }
    while (s->n_running >= s->conf.running || !room_free(s, need)) {
        bool places = s->n_running < s->conf.running;
        struct sched_stream *v = NULL;
        LIST_EACH(l, &s->running) {
            struct sched_stream *y = stream_of(l);
            bool helps = gives_way(y, x) && (!places || !loads(y));
            if (helps && (v == NULL || rather(y, v))) {
                v = y;
            }
        }
        if (v == NULL) {
            return false;
        }
        park(s, v, now_us);
    }
    return true;
}

static bool start(struct sched *s, struct sched_stream *x, bool kept,
                  uint64_t now_us)
{
    if (!place_take(s, x, now_us)) {
        return false;
    }
    x->phase = SCHED_RUNNING;
    x->kept = kept;
    x->start = s->starts++;
    if (x->request != NULL) {
        x->request->stays = true;
    }
    x->started_us = x->started_us == 0 ? now_us : x->started_us;
    x->waited_us += now_us - x->queued_us;
    x->row_us = now_us;
    list_del(&x->link);
    list_push(&s->running, &x->link);
    s->n_waiting--;
    s->class_waiting[x->cls]--;
    s->n_running++;
    x->account->running++;
    return true;
}

/* Cheap, since it is asked before every step: could anyone start at all? */
static bool worth_looking(const struct sched *s)
{
    int lowest = 0;
    if (s->n_waiting == 0) {
        return false;
    }
    while (s->class_waiting[lowest] == 0) {
        lowest++;
    }
    bool yes = s->n_running < s->conf.running;
    LIST_EACH(l, &s->running) {
        const struct sched_stream *v = stream_of(l);
        yes = yes || v->paused || (int)v->cls > lowest;
    }
    return yes;
}

void order_start(struct sched *s, uint64_t now_us)
{
    while (worth_looking(s)) {
        struct sched_stream *x = oldest(s, now_us);
        if (x != NULL && make_way(s, x, now_us)) {
            if (!start(s, x, true, now_us)) {
                return;
            }
            continue;
        }
        /* It waits for room: what is free is for it alone. */
        bool only = x != NULL && !has_room(s, x, false);
        x = first(s, now_us);
        if (x == NULL || (only && !has_room(s, x, true)) ||
            !make_way(s, x, now_us) ||
            !start(s, x, false, now_us)) {
            return;
        }
    }
}
