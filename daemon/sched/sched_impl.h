/* sched_impl.h - shared by the files of sched.h: sched.c (streams are added and
 * removed, results of steps), order.c (which stream starts, which loses its
 * place), place.c (which sequence a stream gets), room.c (how many positions
 * sequences may take), form.c (the rows of a step).
 */
#pragma once

#include "sched/sched.h"

static inline struct sched_stream *stream_of(struct list *l)
{
    return container_of(l, struct sched_stream, link);
}

static inline bool sched_late(const struct sched_stream *x, uint64_t now_us)
{
    return x->deadline_us != 0 && now_us >= x->deadline_us;
}

/* order.c */
void order_join(struct sched *s, struct sched_stream *x);
void order_leave(struct sched *s, struct sched_stream *x);
/* Rule 13: room for the next token of all that run, or they lose their places.
 */
void order_grow(struct sched *s, uint64_t now_us);
/* Rules 1, 7 and 8: start all that can. */
void order_start(struct sched *s, uint64_t now_us);

/* place.c */
/* Make room for at least n tokens. The context bounds n. */
void seq_reserve(struct sched_seq *q, uint32_t n);
/* Cut the timeline to n tokens; at most these are computed then. */
void seq_cut(struct sched_seq *q, uint32_t n);
void seq_close(struct sched *s, struct sched_seq *q);
/* Rule 15: the last place, n at most, at which q can be cut. */
uint32_t seq_cut_at(const struct sched *s, const struct sched_seq *q,
                    uint32_t n);
void place_op(struct sched *s, enum sched_op_kind kind, uint32_t seq,
              uint32_t from, uint32_t n);
/* A free place, by rule 5 if there is none; never `keep`. NULL: streams own all
 * sequences. */
struct sched_seq *place_free(struct sched *s, const struct sched_seq *keep);
/* Close the warm sequence used least recently, but neither of these two. False:
 * there is none. */
bool place_close_oldest(struct sched *s, const struct sched_seq *q,
                        const struct sched_seq *keep);
/* Tokens of the timeline that x, which waits, begins with. */
uint32_t place_tokens(const struct sched_stream *x);
/* Give x, which waits, a sequence with its timeline (rules 4, 5 and 13). False:
 * streams own all sequences, or take too many positions. */
bool place_take(struct sched *s, struct sched_stream *x, uint64_t now_us);
/* Rule 12: open sequences anew that have grown past their list. */
void place_change_lists(struct sched *s);
/* x gives its sequence back; it stays warm. */
void place_leave(struct sched *s, struct sched_stream *x, uint64_t now_us);

/* room.c: rule 13 */
/* Positions that x is to have room for when its timeline has n tokens. */
uint32_t room_wanted(const struct sched *s, const struct sched_stream *x,
                     uint32_t n);
/* What a sequence with room for n positions takes. */
uint64_t room_cost(const struct sched *s, uint32_t n);
/* Whether that can be had without closing what streams own. */
bool room_free(const struct sched *s, uint64_t cost);
/* Make room for n positions in q (NULL: in one that is opened next): close warm
 * sequences, but neither q nor `keep`. False, and nothing is closed: streams
 * own too much. */
bool room_make(struct sched *s, uint32_t n, const struct sched_seq *q,
               const struct sched_seq *keep);
void room_set(const struct sched *s, struct sched_seq *q, uint32_t n);
/* q is warm now: it has what the engine has. */
void room_settle(const struct sched *s, struct sched_seq *q);

/* form.c: rules 2, 3 and 10 */
void form_step(struct sched *s, uint64_t now_us);
