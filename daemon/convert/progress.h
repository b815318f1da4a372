/* progress.h - reports the progress of a conversion; the caller may cancel.
 *
 * The parts of a conversion and what each costs are told first; a fraction is
 * the cost of what is done by the cost of all, so it grows evenly with time,
 * and what is left can be told from it. Costs have any unit: only what they
 * are to each other counts.
 */
#pragma once

#include "base/err.h"

#define PROGRESS_PARTS_MAX 16u

struct progress_part {
    const char *stage; /* a static word; successive parts may share it */
    double cost;
};

struct progress {
    bool (*fn)(void *ctx, const char *stage, double fraction); /* may be NULL */
    void *ctx;
    uint64_t (*now_ms)(void); /* NULL: the monotonic clock */
    struct progress_part parts[PROGRESS_PARTS_MAX];
    size_t n_parts;
    size_t at; /* of parts: the one that goes on */
    const char *stage;
    double sum;           /* of all parts' costs, and of `before` */
    double before;        /* done when it began */
    double base, cost;    /* of the parts before, and of this one */
    uint64_t done, total; /* of this part, in units of its own */
    double told;          /* the last fraction: none is less than one before */
    uint64_t told_ms;
};

/* All parts in order, at most PROGRESS_PARTS_MAX; costs are finite and not
 * negative. Those already behind count as done. */
void progress_plan(struct progress *p, const struct progress_part *parts,
                   size_t n);
/* After progress_plan: an earlier run has done what costs so much, and no part
 * has it. The fraction begins there. */
void progress_credit(struct progress *p, double cost);
/* The next part of that stage begins, of `total` units. One that was not told
 * has no cost. Errors: CANCELLED. */
CHECKED int progress_stage(struct progress *p, const char *stage,
                           uint64_t total, struct err *e);
/* n more units are done; calls fn at most 20 times a second. Errors: CANCELLED.
 */
CHECKED int progress_add(struct progress *p, uint64_t n, struct err *e);
/* 0 to 1, of the whole. */
double progress_fraction(const struct progress *p);
