/* ahead.h - the step that mostly comes next.
 *
 * When every row of a step drew a token and none had drafts, the next step is
 * nearly always the same rows with those tokens. Its frame is predicted byte
 * for byte, so that the engine can begin the step while serve hands out the
 * tokens, and then compare the frame that serve sends. The engine must be able
 * to call the step off: nothing of it may be visible before the frame arrives.
 * Thread: one.
 */
#pragma once

#include "proto/msg.h"

/* Right predictions in a row before a step is begun early: drafts, ends and new
 * streams come in bunches. A wrong prediction costs the operation that runs
 * when the frame arrives. */
#define AHEAD_SURE 2u

struct ahead {
    struct msg_step m; /* owned; no rows: no prediction, or it was taken */
    struct buf bytes;  /* its frame's payload; empty: no prediction */
    uint32_t right;
};

void ahead_init(struct ahead *a);
void ahead_fini(struct ahead *a);

/* Step m ended with `done`. Takes m's rows, m is empty afterwards. */
void ahead_note(struct ahead *a, struct msg_step *m,
                const struct msg_step_done *done, uint32_t context);
/* The predicted step, to be begun now. The caller owns it; call once. */
struct msg_step ahead_take(struct ahead *a);
/* Is the payload of a STEP frame the predicted one? */
bool ahead_is(const struct ahead *a, const void *p, size_t n);
/* Count a right or wrong prediction; is the next worth an early start? */
void ahead_count(struct ahead *a, bool right);
bool ahead_sure(const struct ahead *a);
