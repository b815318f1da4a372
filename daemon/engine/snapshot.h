/* snapshot.h - saves a sequence's states to a file and loads them, in slices of
 * time between steps.
 *
 * A save works on a copy of the sequence (shared blocks, where the backend
 * forks), so the sequence may continue or be closed meanwhile. A load makes a
 * new sequence. Files: proto/state_file.h. A file is written as NAME.part and
 * renamed when it is complete; a dead engine leaves the ".part".
 * Thread: the engine's main thread.
 */
#pragma once

#include "engine/engine.h"

struct snapshot;

/* Begin to save positions [from, to) of s to part->path, which is replaced.
 * Errors: INVALID (bounds are not multiples of STATE_BLOCK, or after s),
 * UNSUPPORTED (the backend cannot), IO, NO_SPACE, NOMEM. */
CHECKED int snapshot_save(const struct engine_seq *s,
                          const struct msg_state_part *part,
                          struct snapshot **ret, struct err *e);
/* Begin to load a sequence of `tokens`, as far as the files have it. m is
 * borrowed until the end. Errors: INVALID (gaps, bounds, tokens), UNSUPPORTED,
 * NOMEM. */
CHECKED int snapshot_load(struct engine *g, const struct msg_state *m,
                          struct snapshot **ret, struct err *e);
/* Work for about `us` microseconds. 1: finished; 0: there is more. Errors of a
 * save (then only snapshot_free is allowed): IO, NO_SPACE. A damaged file is no
 * error of a load: it ends early, and `bad` of the result says where. */
CHECKED int snapshot_run(struct snapshot *x, uint64_t us, struct err *e);
/* The result, when it has finished. *why: what is wrong with file `bad`. */
void snapshot_done(const struct snapshot *x, struct msg_state_done *ret,
                   struct err *why);
/* The sequence of a finished load; the caller owns it. Call once. */
struct engine_seq *snapshot_take(struct snapshot *x);
void snapshot_free(struct snapshot *x); /* NULL is fine; unfinished too */
