/* shed.h - giving back what nobody uses. */
#pragma once

#include "sched/sched.h"

bool sched_idle(const struct sched *s); /* no stream runs or waits */
/* Give up the warm sequences, with the next step, and the texts kept for
 * drafts; how many sequences they are. */
uint32_t sched_shed(struct sched *s);

/* n tokens, borrowed. */
struct sched_line {
    const int32_t *tokens;
    uint32_t n;
};

/* Give up, with the next step, the warm sequences that hold `gone` and little
 * else, unless one of the others is a beginning of theirs and would go on from
 * it; how many they are. Nothing of them is saved. */
uint32_t sched_forget(struct sched *s, struct sched_line gone,
                      const struct sched_line *others, size_t n_others);
