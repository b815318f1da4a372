/* kmeans.h - the best palette for weighted numbers.
 *
 * In one dimension k-means has an exact answer: clusters of the sorted numbers
 * are runs of them, and dynamic programming finds the best k runs. Where
 * numbers * entries is beyond KMEANS_EXACT the runs may end at some of the
 * numbers only, and the result is then improved until every number is with the
 * nearest entry (quant/README.md: what this costs, measured).
 *
 * The result has the same bits on every machine.
 */
#pragma once

#include "base/err.h"

/* points * entries. 16 entries: up to 16384 numbers, the widest rows there are.
 */
#define KMEANS_EXACT ((size_t)16 << 14)
#define KMEANS_CUTS  2048u /* where runs may end, beyond that */

struct kmeans; /* scratch, for one thread at a time */

/* For palettes of `entries` entries, 2 to 255, of up to `points` numbers.
 * Errors: NOMEM. */
CHECKED int kmeans_open(size_t points, size_t entries, struct kmeans **ret,
                        struct err *e);
void kmeans_close(struct kmeans *m); /* NULL is fine */

/* Give kmeans_open's number of ascending entries that make the sum of w * (x -
 * nearest)^2 least. x: n finite numbers, n > 0. w: what an error of each costs,
 * not negative and finite; numbers that cost nothing are left out; NULL, or all
 * zero: all cost the same. Where there are fewer different numbers than entries
 * the last one stands in the rest. */
void kmeans_run(struct kmeans *m, const float *x, const float *w, size_t n,
                double *ret);
