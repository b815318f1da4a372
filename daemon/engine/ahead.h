/* ahead.h - predicts the next step.
 *
 * When every row of a step drew a token and none had drafts, the next step is
 * nearly always the same rows with those tokens. Its frame is predicted byte
 * for byte. So the engine can begin the step while serve hands out the tokens,
 * and compare the frame that serve then sends with the predicted one. The
 * engine must be able to cancel the step: before the frame arrives, nothing of
 * it may be visible. Thread: one.
 */
#pragma once

#include "model/bundle.h"
#include "proto/msg.h"

/* A step is begun early after this many right predictions in a row: drafts,
 * ends and new streams come in bunches. A wrong prediction costs the time until
 * the running operation ends. */
#define AHEAD_SURE 2u

struct ahead {
    struct msg_step m; /* owned; no rows: no prediction, or it was taken */
    struct buf bytes;  /* its frame's payload; empty: no prediction */
    uint32_t right;
};

void ahead_init(struct ahead *a);
void ahead_fini(struct ahead *a);

/* Step m ended with `done`. m's rows are moved: it is empty afterwards. */
void ahead_note(struct ahead *a, struct msg_step *m,
                const struct msg_step_done *done, const struct bundle *b);
/* The predicted step, to be begun now. The caller owns it; call once. */
struct msg_step ahead_take(struct ahead *a);
/* Whether the payload of a STEP frame is the predicted one. */
bool ahead_is(const struct ahead *a, const void *p, size_t n);
/* Count a right or wrong prediction; whether to begin the next step early. */
void ahead_count(struct ahead *a, bool right);
bool ahead_sure(const struct ahead *a);
