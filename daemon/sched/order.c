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

/* A place for x, if need be by rule 7. */
static bool make_way(struct sched *s, const struct sched_stream *x,
                     uint64_t now_us)
{
    struct sched_stream *v = NULL;
    if (s->n_running < s->conf.running) {
        return true;
    }
    LIST_EACH(l, &s->running) {
        struct sched_stream *y = stream_of(l);
        if (gives_way(y, x) && (v == NULL || rather(y, v))) {
            v = y;
        }
    }
    if (v != NULL) {
        park(s, v, now_us);
    }
    return v != NULL;
}

static bool start(struct sched *s, struct sched_stream *x, bool kept,
                  uint64_t now_us)
{
    if (!place_take(s, x, now_us)) {
        return false;
    }
    x->phase = SCHED_RUNNING;
    x->kept = kept;
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
        x = first(s, now_us);
        if (x == NULL || !make_way(s, x, now_us) ||
            !start(s, x, false, now_us)) {
            return;
        }
    }
}
