/* tile.h - square blocks of double, the unit of all that is done with Hessians.
 *
 * A symmetric or triangular matrix is kept as the tiles of its lower half, row
 * by row: half the memory, and every step reads whole tiles that fit the first
 * level cache. A product and its sum are rounded once, in a fixed order: the same
 * bits on every machine.
 */
#pragma once

#include "base/base.h"

#define TILE       48u /* whole steps of 6 rows and of 8 columns */
#define TILE_COUNT ((size_t)TILE * TILE)
#define TILE_ROWS  6u

/* How many tiles stand side by side over n elements. */
static inline size_t tile_strips(size_t n)
{
    return (n + TILE - 1) / TILE;
}

/* Where the tile at (row, col) begins, row >= col, both in tiles. */
static inline size_t tile_at(size_t row, size_t col)
{
    return (row * (row + 1) / 2 + col) * TILE_COUNT;
}

/* c -= a * b, of the first `rows` rows of a and c, a multiple of TILE_ROWS. */
void tile_sub(double *c, const double *a, const double *b, size_t rows);
/* Row i of x -= a[i] * from, for n rows of TILE numbers. */
void tile_spread(double *x, size_t n, const double *a, const double *from);
/* to = from, turned */
void tile_turn(double *to, const double *from);
