/* tile_many.h - products with more columns: the time goes to multiplying. */
#pragma once

#include "engine/cpu/kernels/products/tiles/tile_columns.h"
#include "engine/cpu/kernels/products/tiles/tile_sums.h"
#include "engine/cpu/kernels/products/tiles/tile_weights.h"

/* The next block of the strip, or the first one of the next strip. */
INLINE struct asking strip_next(const struct strip *s, int kind, size_t k,
                                size_t n)
{
    const bool more = k + n < s->j->k;
    return (struct asking){
        .w = s->w + (more ? int_bytes(kind, k + n)
                          : strip_rows(kind) * s->j->ldw),
        .ldw = s->j->ldw,
        .lines = (int_bytes(kind, n) + 63) / 64,
        .rows = strip_rows(kind),
    };
}

INLINE void many_tiles(const int8_t *tiles, const int8_t *b, size_t b_next,
                       size_t steps)
{
    struct operand a = {(const char *)tiles, STEP, TILE};
    for (size_t i = 0; i < steps; i++, a.p += PAIR, b += TILE) {
        tiles_add(&a, b, b_next, false);
    }
}

INLINE void many_strip(const struct strip *s, int kind, const struct columns *q,
                       int8_t *tiles, float *acc)
{
    const struct linear_job *j = s->j;
    UNSET struct sums sums[2];
    for (size_t k = 0; k < j->k; k += int_block(kind)) {
        const size_t n = int_block_at(kind, j->k, k);
        const size_t steps = steps_of(kind, n);
        struct asking next = strip_next(s, kind, k, n);
        const size_t lines = next.rows * next.lines / ((q->groups + 1) / 2) + 1;
        for (size_t i = 0; in_pairs(kind) && i < steps; i += 2) {
            strip_pair(s, kind, k, n, i, false, tiles + i * PAIR);
        }
        for (size_t i = 0; !in_pairs(kind) && i < steps; i++) {
            strip_step(s, kind, k, n, i, false, tiles + i * PAIR);
        }
        for (size_t g = 0; g < q->groups; g += 2) {
            const bool two = g + 1 < q->groups;
            ask(&next, lines);
            tiles_zero();
            many_tiles(tiles, q->b + g * q->ld + k / STEP * TILE,
                       two ? q->ld : 0, steps);
            sums_store(&sums[g / 2 % 2], GROUP, acc + g * UNIT * GROUP, two,
                       k == 0);
            if (g > 0) { /* those before arrived meanwhile */
                sums_settle(&sums[(g / 2 + 1) % 2], kind, GROUP);
            }
        }
        sums_settle(&sums[(q->groups + 1) / 2 % 2 == 0], kind, GROUP);
    }
}

INLINE size_t many_units(const struct linear_job *j, int kind, size_t begin,
                         size_t end, char *scratch)
{
    const struct columns q = columns_of(j);
    int8_t *tiles = (int8_t *)(void *)scratch;
    float *acc = (float *)(void *)(scratch + LINEAR_TILE);
    size_t o = begin;
    for (; o + UNIT <= end; o += UNIT) {
        for (size_t r = 0; r < UNIT; r += strip_rows(kind)) {
            UNSET struct strip s;
            strip_new(&s, kind, j, o + r, end);
            many_strip(&s, kind, &q, tiles, acc + r * GROUP);
        }
        unit_finish(j, o, GROUP, acc);
    }
    return o;
}
