/* palette.h - entries for a group of rows, and the nearest one to a weight. */
#pragma once

#include "convert/quant/kmeans.h"

#define PALETTE_MAX 64u /* entries */

/* An index is the number of `edge`s below the weight: edges are the middles
 * between neighbouring entries, as floats, so a weight on an edge goes to the
 * lower entry, and of equal entries the first one is used. */
struct palette {
    unsigned entries;
    float entry[PALETTE_MAX]; /* ascending; each a value of fp16 */
    float edge[PALETTE_MAX];  /* entries - 1, the rest infinite */
};

/* entry: `entries` values, 16 or 64, ascending. */
void palette_init(struct palette *p, const uint16_t *entry, unsigned entries);

/* The best entries for rows (n x cols), rounded to fp16. importance: cols, or
 * NULL. m: for n * cols numbers and so many entries; weights: scratch for n *
 * cols numbers, unused without importance. */
void palette_make(struct kmeans *m, const float *rows, size_t n, size_t cols,
                  const float *importance, float *weights, uint16_t *entry,
                  unsigned entries);

/* The index of the entry for w; NaN gives 0. */
static inline uint8_t palette_index(const struct palette *p, float w)
{
    unsigned at = 0; /* entries are a power of two: halve the edges */
    for (unsigned step = p->entries / 2; step > 0; step /= 2) {
        at += w > p->edge[at + step - 1] ? step : 0;
    }
    return (uint8_t)at;
}

/* index[i] = that of the entry for w[i]. */
void palette_nearest(const struct palette *p, const float *w, size_t n,
                     uint8_t *index);
