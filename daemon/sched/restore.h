/* restore.h - sequences that come from a file instead of being computed.
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

/* How many of the tokens (not the last) some sequence holds already. */
uint32_t sched_shared(const struct sched *s, const int32_t *tokens, uint32_t n);
/* Take a place, if need be by rule 5. Returns the sequence's number; the ops of
 * s->plan have to be sent before it is used. -1: all are owned, or a step is in
 * flight. */
int sched_restore_begin(struct sched *s);
/* seq is not computed until its load has ended; without one, until `held` is
 * false again. For an owned one that the engine does not have. */
void sched_restore_hold(struct sched *s, uint32_t seq);
/* The load of a held one begins; no step is out. */
void sched_restore_held(struct sched *s, uint32_t seq);
/* The engine has the sequence with these n tokens; opened false: it has not. */
void sched_restore_end(struct sched *s, uint32_t seq, const int32_t *tokens,
                       uint32_t n, bool opened, uint64_t now_us);
