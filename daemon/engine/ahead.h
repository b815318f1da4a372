/* ahead.h - the step that mostly comes next.
 *
 * When every row of a step drew a token and none had drafts, the next step is
 * nearly always the same rows with those tokens. It is foretold byte for byte,
 * so that the engine can begin with it while serve hands out the tokens, and
 * know at a glance whether what serve then sends is that step. Whoever begins
 * must be able to call it off: nothing of it may be seen before the frame came.
 * Thread: one.
 */
#pragma once

#include "proto/msg.h"

/* Foretold frames that came one after the other, until it is worth to begin
 * early: drafts, ends and new streams come in bunches. A wrong guess costs the
 * operation that is running when the frame comes. */
#define AHEAD_SURE 2u

struct ahead {
    struct msg_step m; /* owned; no rows: nothing is foretold, or it is taken */
    struct buf bytes;  /* its frame's payload; empty: nothing is foretold */
    uint32_t right;
};

void ahead_init(struct ahead *a);
void ahead_fini(struct ahead *a);

/* `m` (its rows become a's, it is empty after it) was done with `done`. */
void ahead_note(struct ahead *a, struct msg_step *m,
                const struct msg_step_done *done, uint32_t context);
/* The foretold step, to begin with it; the caller's, once. */
struct msg_step ahead_take(struct ahead *a);
/* The payload of a STEP frame is the one that was foretold. */
bool ahead_is(const struct ahead *a, const void *p, size_t n);
/* Whether the frame that came was; and whether to begin with the next. */
void ahead_count(struct ahead *a, bool right);
bool ahead_sure(const struct ahead *a);
