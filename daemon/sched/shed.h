/* shed.h - giving back what nobody uses. */
#pragma once

#include "sched/sched.h"

bool sched_idle(const struct sched *s); /* no stream runs or waits */
/* Give up the warm sequences, with the next step, and the texts kept for
 * drafts; how many sequences they are. */
uint32_t sched_shed(struct sched *s);
