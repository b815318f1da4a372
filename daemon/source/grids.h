/* grids.h - the grids of the i-quants: an entry is a point of eight, or of
 * four, small numbers, and a block names its points by their index. An entry
 * holds a code for each number, the first one in the lowest bits. grids.c is
 * made by mkgrids.py; which number a code stands for is in dequant_grid.c. */
#pragma once

#include "base/base.h"

/* eight codes of two bits */
extern const uint16_t grid_iq1[2048];
extern const uint16_t grid_iq2_xxs[256];
extern const uint16_t grid_iq2_xs[512];
extern const uint16_t grid_iq2_s[1024];
/* four codes of three bits, each in four */
extern const uint16_t grid_iq3_xxs[256];
extern const uint16_t grid_iq3_s[512];
