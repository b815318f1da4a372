/* shed.h - closing warm sequences to free memory. */
#pragma once

#include "sched/sched.h"

bool sched_idle(const struct sched *s); /* no stream runs or waits */
/* Close the warm sequences with the next step, and drop the texts kept for
 * drafts. Returns the number of sequences. */
uint32_t sched_shed(struct sched *s);

/* n tokens, borrowed. */
struct sched_line {
    const int32_t *tokens;
    uint32_t n;
};

/* Close, with the next step, the warm sequences that hold `gone` and little
 * else. One stays when a line of `others` is its beginning, or it is the
 * beginning of that line. Nothing is saved. Returns the number of sequences. */
uint32_t sched_forget(struct sched *s, struct sched_line gone,
                      const struct sched_line *others, size_t n_others);
