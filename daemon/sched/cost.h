/* cost.h - what steps were measured to cost, and what the next one may.
 *
 * A step has rows whose logits are looked at (decoding and drafts) and rows
 * that are only prompt. The first kind is learned as a table by number of rows,
 * because kernels change their pace at some numbers; the second as what a row
 * adds to such a step. A cost that keeps wide steps from being taken is never
 * measured again, right or wrong: it is forgotten in time. Microseconds.
 */
#pragma once

#include "base/base.h"

#define COST_SLOTS  40u   /* up to 8 rows one each, then 4 for each doubling */
#define COST_KEPT   128.0 /* prompt rows that their measured cost follows */
#define COST_GUESS  16.0  /* a row more than ever measured: 1/16 of a step */
#define COST_STALE  256u  /* steps until a wider one's cost is forgotten */
#define COST_HIGHER 0.2   /* weight of a measurement above the others */
#define COST_LOWER  0.5   /* and of one below */

struct cost {
    double us[COST_SLOTS]; /* of a step without prompt rows; 0 = unknown */
    double rows[COST_SLOTS];
    uint32_t step[COST_SLOTS]; /* the last one that was measured, */
    uint32_t steps;            /* of so many */
    double us_prompt; /* what prompt rows added to steps lately, */
    double n_prompt;  /* and how many they were; 0 = unknown */
};

/* A step with so many rows took us (0: not known, ignored). */
void cost_note(struct cost *c, uint32_t sampled, uint32_t prompt, double us);

/* A step of `sampled` rows; 0 when none was ever measured. */
double cost_of(const struct cost *c, uint32_t sampled);
/* A step of so few rows was measured, or one of fewer. */
bool cost_known(const struct cost *c, uint32_t sampled);
/* The most rows of a step that was measured; 0 when none was. */
double cost_most(const struct cost *c);
/* What one prompt row adds; 0 when not known. */
double cost_prompt(const struct cost *c);
