/* widths.h - which of the widths that agree a model runs as: what the engine
 * takes, and what a probe tells of it. */
#pragma once

#include "base/base.h"

/* Neither narrower, which spares nothing that is known (facts of the Neural
 * Engine: 4 rows cost as much as 1), nor much wider, when a row is alone. */
#define WIDTH_LONE 4u

/* Asked of widths in ascending order, best and most 0 at first: is the next
 * one, with which k widths agree, better than `best`, with which `most` do? It
 * is with more. Of as many the least from WIDTH_LONE on is best, else the
 * largest. */
static inline bool width_better(uint32_t k, uint32_t best, uint32_t most)
{
    return k > most || (k == most && k > 0 && best < WIDTH_LONE);
}
