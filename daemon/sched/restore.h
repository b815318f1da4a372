/* restore.h - sequences and files: which sequence to save next, and sequences
 * that the engine loads from files instead of computing them.
 *
 * A load for a prompt:
 *
 *   sched_restore_begin -> the engine loads -> sched_restore_end -> warm
 *
 * Until sched_restore_end no stream can use this place. After it rule 4 finds
 * the sequence like any other.
 *
 * After sched_lost, a load for a sequence that a running stream owns:
 *
 *   sched_restore_hold -> sched_restore_held -> the engine loads
 *      -> sched_restore_end: the stream computes what is missing
 *
 * When the stream leaves before the load has ended, the sequence becomes warm.
 */
#pragma once

#include "sched/sched.h"

/* The warm sequence used last, of those that the engine has and whose tried[id]
 * is false; NULL when there is none. `tried` has conf.seqs entries. */
const struct sched_seq *sched_warmest(const struct sched *s, const bool *tried);

/* The most of these n tokens (without the last) that one open sequence has
 * computed as its beginning, by the list that n tokens are for (rule 12). */
uint32_t sched_shared(const struct sched *s, const int32_t *tokens, uint32_t n);
/* Take a place, by rule 5 if none is free, and room by rule 13, for the
 * beginning of a timeline of n_whole tokens. Returns the sequence's number; the
 * ops of s->plan must be sent before it is used. -1: all sequences are owned,
 * or too many positions, or a step is in flight. */
int sched_restore_begin(struct sched *s, uint32_t n_whole);
/* The first sequence with a number of at least `from` that a stream owns and
 * the engine does not have (sched_lost); NULL: there is none. */
const struct sched_seq *sched_restore_lost(const struct sched *s,
                                           uint32_t from);
/* Do not compute such a sequence until its load has ended, or until
 * sched_restore_let_go. */
void sched_restore_hold(struct sched *s, uint32_t seq);
/* The first held sequence whose load has not begun; NULL: none. */
const struct sched_seq *sched_restore_waiting(const struct sched *s);
/* There is no file for this held sequence any more: its stream computes it. */
void sched_restore_let_go(struct sched *s, uint32_t seq);
/* The load of a held sequence begins; no step is in flight. */
void sched_restore_held(struct sched *s, uint32_t seq);
/* A load has ended: the engine has the sequence with these n tokens. opened
 * false: it does not have the sequence. */
void sched_restore_end(struct sched *s, uint32_t seq, const int32_t *tokens,
                       uint32_t n, bool opened, uint64_t now_us);
