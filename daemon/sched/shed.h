/* shed.h - giving back what nobody uses. */
#pragma once

#include "sched/sched.h"

bool sched_idle(const struct sched *s); /* no stream runs or waits */
/* Give up the warm sequences, with the next step; how many they are. */
uint32_t sched_shed(struct sched *s);
