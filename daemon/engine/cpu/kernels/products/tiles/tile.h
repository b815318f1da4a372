/* tile.h - the tile registers, and what is in them. Where the names below come
 * from is told in sets/kernel_amx.c, which includes all of this folder. */
#pragma once

#include <immintrin.h>

#include "engine/cpu/kernels/products/linear_impl.h"

#define TILE_ROWS  16u
#define STEP       64u   /* elements of k in a tile: bytes of its rows */
#define TILE       1024u /* bytes */
#define PAIR       (2 * TILE)
#define GROUP      PACK_COLS /* columns in a tile */
#define MANY       4u /* columns from which tiles pay: 8 take as long as 2, for
                         which avx512 is up to 1.3 times as fast */
#define FEW_GROUPS 2u
#define UNIT       LINEAR_MANY
#define AHEAD      12288u /* bytes, at least, that weights are prefetched */

static_assert(LOOK_BLOCK / STEP * PAIR <= LINEAR_TILE, "a block");
static_assert(LINEAR_BLOCK % PACK_PAIR == 0 && LOOK_BLOCK % LINEAR_BLOCK == 0,
              "pairs");

/* What the tile registers are (Intel's manual, volume 1, on AMX): 0 to 3 sums,
 * 4 and 5 weights, 6 and 7 columns. */
struct tile_config {
    uint8_t palette, start_row, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Up to HALF columns take half of a row, with a product more and with a sum;
 * it takes as long, but there are fewer sums to join afterwards. */
#define HALF (GROUP / 2)

INLINE void tiles_configure(size_t width)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = TILE_ROWS;
        c.row_bytes[i] = i == 4 || i == 5 ? STEP : (uint16_t)(width * 8);
    }
    const struct tile_config *p = &c;
    HOLD(p); /* gcc's header says that 8 bytes are read */
    RELOAD();
    _tile_loadconfig(p);
}

/* Rows' weights come to tiles a step at a time; in pairs the even step has the
 * low nibbles of 64 bytes, the odd one their high nibbles. */
INLINE bool in_pairs(int kind)
{
    return kind == WEIGHT_LUT4 || kind == LOOK_NARROW || kind == WEIGHT_I4;
}

/* Weights of a step: two tiles whose rows are ld apart. */
struct operand {
    const char *p;
    size_t ld, second; /* to the next row, to the second tile */
};

INLINE void tiles_zero(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* One step with two tiles of columns, or with one. That one has sums of their
 * own for odd steps: a sum waits for the one before it. */
INLINE void tiles_add(const struct operand *a, const int8_t *b, size_t b_next,
                      bool odd)
{
    _tile_loadd(4, a->p, a->ld);
    _tile_loadd(6, b, STEP);
    _tile_loadd(5, a->p + a->second, a->ld);
    if (b_next > 0) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
        _tile_loadd(7, b + b_next, STEP);
        _tile_dpbssd(2, 4, 7);
        _tile_dpbssd(3, 5, 7);
    } else if (odd) {
        _tile_dpbssd(2, 4, 6);
        _tile_dpbssd(3, 5, 6);
    } else {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
    }
}
