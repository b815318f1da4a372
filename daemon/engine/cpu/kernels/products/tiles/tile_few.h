/* tile_few.h - products with one or two groups of columns: the time goes to
 * reading weights, and to looking them up. */
#pragma once

#include "engine/cpu/kernels/products/tiles/tile_columns.h"
#include "engine/cpu/kernels/products/tiles/tile_sums.h"
#include "engine/cpu/kernels/products/tiles/tile_weights.h"

/* Units of a call with one or two groups of columns. The sums of a block wait
 * until the next block is under way: they take a while to arrive in memory. So
 * do those of a unit, which is why there are two places for them. */
struct few {
    const struct linear_job *j;
    struct columns q;
    int8_t *tiles; /* of PLACES steps */
    float *acc;    /* of two units */
    bool waits;
    bool ends; /* the unit at `o`, with these sums */
    size_t o;
    struct sums sums;
};

#define LAG     2u /* even, as odd steps have sums of their own */
#define PLACES  (2 * LAG)
#define FEW_ACC ((size_t)FEW_GROUPS * GROUP * UNIT)

static_assert(PLACES * PAIR + 2 * FEW_ACC * sizeof(float) <= LINEAR_TILE,
              "few");

INLINE void few_settle(struct few *f, int kind, size_t width)
{
    if (!f->waits) {
        return;
    }
    sums_settle(&f->sums, kind, width);
    if (f->ends) {
        unit_finish(f->j, f->o, width, f->acc + f->o / UNIT % 2 * FEW_ACC);
    }
    f->waits = false;
}

/* A block of a strip, looked up LAG steps ahead: what is stored can be read as
 * tiles when it has left the core's queue, which is after the products before
 * it. */
INLINE void few_looked_up(struct few *f, const struct strip *s, int kind,
                          size_t width, size_t k, size_t n)
{
    struct operand a = {NULL, STEP, TILE};
    const int8_t *b = f->q.b + k / STEP * TILE;
    const size_t b_next = f->q.groups > 1 ? f->q.ld : 0;
    const size_t steps = steps_of(kind, n);
    for (size_t i = 0; i < steps + LAG; i += 2) {
        if (in_pairs(kind) && i < steps) {
            strip_pair(s, kind, k, n, i, true, f->tiles + i % PLACES * PAIR);
        }
        for (size_t odd = 0; odd < 2; odd++) {
            const size_t step = i + odd;
            if (!in_pairs(kind) && step < steps) {
                strip_step(s, kind, k, n, step, true,
                           f->tiles + step % PLACES * PAIR);
            }
            if (step >= LAG && step - LAG < steps) {
                a.p = (const char *)f->tiles + (step - LAG) % PLACES * PAIR;
                tiles_add(&a, b + (step - LAG) * TILE, b_next, odd);
            }
        }
        if (i == 0) {
            few_settle(f, kind, width);
        }
    }
}

/* The same with weights of 8 bits, read where they lie. */
INLINE void few_in_place(struct few *f, const struct strip *s, size_t width,
                         size_t k, size_t n)
{
    const size_t ldw = s->j->ldw;
    struct operand a = {s->w + k, ldw, TILE_ROWS * ldw};
    const int8_t *b = f->q.b + k / STEP * TILE;
    const size_t b_next = f->q.groups > 1 ? f->q.ld : 0;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP, a.p += STEP, b += TILE) {
        for (size_t line = 0; line < UNIT; line++) {
            __builtin_prefetch(s->next + (k + i) * UNIT + line * 64, 0, 2);
        }
        tiles_add(&a, b, b_next, false);
        if (i == STEP) {
            few_settle(f, WEIGHT_I8, width);
        }
    }
    if (i < n) {
        strip_step(s, WEIGHT_I8, k, n, i / STEP, true, f->tiles);
        a = (struct operand){(const char *)f->tiles, STEP, TILE};
        tiles_add(&a, b, b_next, false);
    }
    few_settle(f, WEIGHT_I8, width);
}

INLINE void few_strip(struct few *f, const struct strip *s, int kind,
                      size_t width)
{
    const struct linear_job *j = s->j;
    const size_t unit = s->o / UNIT * UNIT;
    float *acc = f->acc + unit / UNIT % 2 * FEW_ACC + (s->o - unit) * width;
    for (size_t k = 0; k < j->k; k += int_block(kind)) {
        const size_t n = int_block_at(kind, j->k, k);
        tiles_zero();
        if (kind == WEIGHT_I8) {
            few_in_place(f, s, width, k, n);
        } else {
            few_looked_up(f, s, kind, width, k, n);
        }
        sums_store(&f->sums, width, acc, f->q.groups > 1, k == 0);
        f->waits = true;
        f->o = unit;
        f->ends =
            k + n == j->k && s->o + strip_rows(kind) == unit + UNIT;
    }
}

INLINE size_t few_units(const struct linear_job *j, int kind, size_t width,
                        size_t begin, size_t end, char *scratch)
{
    UNSET struct few f;
    f.j = j;
    f.q = columns_of(j);
    f.tiles = (int8_t *)(void *)scratch;
    f.acc = (float *)(void *)(scratch + (size_t)PLACES * PAIR);
    f.waits = false;
    const size_t stop = begin + (end - begin) / UNIT * UNIT;
    for (size_t o = begin; o < stop; o += strip_rows(kind)) {
        UNSET struct strip s;
        strip_new(&s, kind, j, o, end);
        few_strip(&f, &s, kind, width);
    }
    few_settle(&f, kind, width);
    return stop;
}
