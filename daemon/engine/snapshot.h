/* snapshot.h - a sequence's states to a file and back, a slice of time at once.
 *
 * What is saved is a copy of the sequence as it was (shared, where the backend
 * forks), so the sequence may go on, or go. What is loaded becomes a sequence
 * of its own. Files: proto/state_file.h. A file is written beside its name and
 * takes it when it is whole; what a dead engine leaves behind ends in ".part".
 * Thread: the engine's.
 */
#pragma once

#include "engine/engine.h"

struct snapshot;

/* Positions [from, to) of s into `path`, which is replaced.
 * Errors: INVALID (bounds are not multiples of STATE_BLOCK, or after s),
 * UNSUPPORTED (the backend cannot), IO, NO_SPACE, NOMEM. */
CHECKED int snapshot_save(const struct engine_seq *s,
                          const struct msg_state_part *part,
                          struct snapshot **ret, struct err *e);
/* A sequence of `tokens`, as far as the files hold it. m is borrowed until the
 * end. Errors: INVALID (gaps, bounds, tokens), UNSUPPORTED, NOMEM. */
CHECKED int snapshot_load(struct engine *g, const struct msg_state *m,
                          struct snapshot **ret, struct err *e);
/* Work for about `us` microseconds. 1: finished; 0: there is more. Errors (it
 * is over, only snapshot_free is allowed): save: IO, NO_SPACE; load never fails
 * by a file: it ends early, and `bad` of the result says where. */
CHECKED int snapshot_run(struct snapshot *x, uint64_t us, struct err *e);
/* After the end. *why: what is wrong with file `bad`. */
void snapshot_done(const struct snapshot *x, struct msg_state_done *ret,
                   struct err *why);
/* After the end of a load: the sequence, once; the caller's. */
struct engine_seq *snapshot_take(struct snapshot *x);
void snapshot_free(struct snapshot *x); /* NULL is fine; unfinished too */
