/* restore.h - sequences and files: which are worth saving next, and those that
 * come from a file instead of being computed.
 *
 *   sched_restore_begin -> the engine loads -> sched_restore_end -> warm
 *
 * In between the place is taken and nobody can have it. Rule 4 then finds the
 * sequence like any other.
 *
 * After sched_lost, for what running streams own:
 *
 *   sched_restore_hold -> sched_restore_held -> the engine loads
 *      -> sched_restore_end: its stream computes what is missing
 *
 * A stream that leaves in between leaves the load behind: it ends warm. */
#pragma once

#include "sched/sched.h"

/* Of the warm sequences that the engine has and that tried[id] does not mark,
 * the one used last; NULL when there is none. tried: conf.seqs of them. */
const struct sched_seq *sched_warmest(const struct sched *s, const bool *tried);

/* How many of the tokens (not the last) some sequence holds already. */
uint32_t sched_shared(const struct sched *s, const int32_t *tokens, uint32_t n);
/* Take a place, if need be by rule 5. Returns the sequence's number; the ops of
 * s->plan have to be sent before it is used. -1: all are owned, or a step is in
 * flight. */
int sched_restore_begin(struct sched *s);
/* The next sequence, counted from `from`, that a stream owns and the engine
 * does not have (sched_lost); NULL after the last. */
const struct sched_seq *sched_restore_lost(const struct sched *s,
                                           uint32_t from);
/* Such a one is not computed until its load has ended, or until it is let go.
 */
void sched_restore_hold(struct sched *s, uint32_t seq);
/* The first that is held and not being loaded; NULL: none. */
const struct sched_seq *sched_restore_waiting(const struct sched *s);
/* There is no file for it any more: its stream computes it. */
void sched_restore_let_go(struct sched *s, uint32_t seq);
/* The load of a held one begins; no step is out. */
void sched_restore_held(struct sched *s, uint32_t seq);
/* The engine has the sequence with these n tokens; opened false: it has not. */
void sched_restore_end(struct sched *s, uint32_t seq, const int32_t *tokens,
                       uint32_t n, bool opened, uint64_t now_us);
