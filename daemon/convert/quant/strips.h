/* strips.h - products of the features of two panels, summed over some tokens.
 *
 * A panel (gemm.h) is cut into strips of TILE features, each laid out so that a
 * tile of the sum is a few calls of gemm_rows.
 */
#pragma once

#include "base/err.h"
#include "convert/gemm.h"
#include "convert/quant/tile.h"

#define STRIPS_TOKENS 256u /* at once, at most */

struct strips {
    size_t left_rows, right_rows; /* features of either panel */
    size_t depth;                 /* tokens in them now */
    float *left;                  /* strips x (TILE x depth) */
    float *right; /* strips x (TILE / GEMM_LANES x depth x GEMM_LANES) */
};

/* Errors: NOMEM. strips_close after it in any case; zeroed is fine. */
CHECKED int strips_open(struct strips *s, size_t left_rows, size_t right_rows,
                        struct err *e);
void strips_close(struct strips *s);

struct strips_from { /* the first of `depth` tokens; element (f, t) at
                        [f * stride + t] */
    const float *left, *minus; /* left panel: left, or left - minus */
    const float *right;
    size_t stride;
};
/* threads: crew.h. depth: STRIPS_TOKENS at most. */
void strips_fill(struct strips *s, unsigned threads,
                 const struct strips_from *from, size_t depth);

/* The sum over the tokens for strip i of the left and strip j of the right
 * panel; element (r, c) at y[strips_at(r, c)]. Thread: any. */
void strips_tile(const struct strips *s, size_t i, size_t j,
                 float y[TILE_COUNT]);
static inline size_t strips_at(size_t r, size_t c)
{
    return (c / GEMM_LANES * TILE + r) * GEMM_LANES + c % GEMM_LANES;
}
