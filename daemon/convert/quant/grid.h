/* grid.h - the values that the weights of one row may take. */
#pragma once

#include <math.h>

#include "convert/quant/palette.h"

/* A palette, or the multiples of a scale. A code is an index into the palette,
 * or the factor as int8. */
struct grid {
    const struct palette *palette; /* NULL: scale */
    float scale;
    int levels; /* factors are -levels .. levels */
};

/* The code of the value nearest to w. */
static inline uint8_t grid_code(const struct grid *g, float w)
{
    if (g->palette != NULL) {
        return palette_index(g->palette, w);
    }
    float top = (float)g->levels;
    float v = rintf(w / g->scale);
    v = v > top ? top : v >= -top ? v : -top;
    return (uint8_t)(int8_t)v;
}

static inline float grid_value(const struct grid *g, uint8_t code)
{
    return g->palette != NULL ? g->palette->entry[code]
                              : g->scale * (float)(int8_t)code;
}
