/* narrow.h - palettes of 16 entries that are bytes times a scale. */
#pragma once

#include "base/base.h"

#define NARROW_ENTRIES 16u
#define NARROW_COST    1.1 /* at most, of the squared error before */

/* Move the entries of a palette, ascending values of fp16, to integers from
 * -127 to 127 times a scale, which fp16 has exactly, if the squared error of
 * the weights stays below NARROW_COST of what it is. Weights that each have an
 * entry of their own keep it. rows: the n weights that the palette is for.
 * cost: what an error of each counts, or NULL: 1. */
void narrow_entries(const float *rows, const float *cost, size_t n,
                    uint16_t *entry);
