/* cost.h - how long steps took, and how long the next one may take.
 *
 * A step has sampled rows, whose logits are needed (decoding and drafts), and
 * prompt rows. The time of a step with sampled rows only is kept in a table by
 * their number, because kernels change their speed at some numbers. For prompt
 * rows the time that one row adds to such a step is kept. A high cost keeps
 * wide steps from being taken, so it would never be measured again: that is why
 * it is forgotten after a while. All times are in microseconds.
 */
#pragma once

#include "base/base.h"

#define COST_SLOTS  40u   /* up to 8 rows one each, then 4 for each doubling */
#define COST_KEPT   128.0 /* prompt rows that their measured cost follows */
#define COST_GUESS  16.0  /* a row more than ever measured: 1/16 of a step */
#define COST_STALE  256u  /* steps until a wider step's cost is forgotten */
#define COST_HIGHER 0.2   /* weight of a measurement above the average */
#define COST_LOWER  0.5   /* and of one below it */

struct cost {
    double us[COST_SLOTS]; /* of a step without prompt rows; 0 = unknown */
    double rows[COST_SLOTS];
    uint32_t step[COST_SLOTS]; /* `steps` when it was last measured */
    uint32_t steps;            /* steps so far */
    double us_prompt; /* time that the last prompt rows added to steps, */
    double n_prompt;  /* and how many rows they were; 0 = unknown */
};

/* A step with so many rows took `us` (0: not known, ignored). */
void cost_note(struct cost *c, uint32_t sampled, uint32_t prompt, double us);

/* The time of a step of `sampled` rows; 0 when none was ever measured. */
double cost_of(const struct cost *c, uint32_t sampled);
/* Whether a step of at most `sampled` rows was measured. */
bool cost_known(const struct cost *c, uint32_t sampled);
/* The most rows of a step that was measured; 0 when none was. */
double cost_most(const struct cost *c);
/* The time that one prompt row adds; 0 when not known. */
double cost_prompt(const struct cost *c);
