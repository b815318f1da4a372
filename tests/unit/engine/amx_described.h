/* amx_described.h - Intel's tiles as their manual describes them, for tests on
 * machines with AVX-512 and without AMX. Included before anything else. A tile
 * that is read and not configured, or a product of tiles that do not fit one
 * another, ends the test. */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct described_tile {
    int rows, bytes; /* of a row */
    int8_t at[16][64];
};

static _Thread_local struct described_tile described[8];

static inline void described_loadconfig(const void *config)
{
    const uint8_t *c = config;
    memset(described, 0, sizeof(described));
    for (int i = 0; i < 8; i++) {
        uint16_t bytes = 0;
        memcpy(&bytes, c + 16 + 2 * i, sizeof(bytes));
        described[i].bytes = bytes;
        described[i].rows = c[48 + i];
        if (c[0] != 1 || bytes > 64 || bytes % 4 != 0 || c[48 + i] > 16) {
            abort();
        }
    }
}

static inline void described_zero(int t)
{
    memset(described[t].at, 0, sizeof(described[t].at));
}

static inline void described_loadd(int t, const void *p, size_t ld)
{
    if (described[t].rows == 0) {
        abort();
    }
    described_zero(t);
    for (int r = 0; r < described[t].rows; r++) {
        memcpy(described[t].at[r], (const char *)p + (size_t)r * ld,
               (size_t)described[t].bytes);
    }
}

static inline void described_stored(int t, void *p, size_t ld)
{
    for (int r = 0; r < described[t].rows; r++) {
        memcpy((char *)p + (size_t)r * ld, described[t].at[r],
               (size_t)described[t].bytes);
    }
}

static inline void described_dpbssd(int to, int x, int y)
{
    struct described_tile *c = &described[to];
    const struct described_tile *a = &described[x];
    const struct described_tile *b = &described[y];
    if (c->rows != a->rows || c->bytes != b->bytes ||
        a->bytes != 4 * b->rows) {
        abort();
    }
    /* the manual's loops over m, k, n and the four bytes, n inside: vectors */
    for (int m = 0; m < c->rows; m++) {
        int32_t sum[16];
        memcpy(sum, c->at[m], sizeof(sum));
        for (int k = 0; k < b->rows; k++) {
            for (int i = 0; i < 4; i++) {
                const int32_t w = a->at[m][4 * k + i];
                for (int n = 0; n < 16; n++) { /* zeros after c->bytes */
                    sum[n] += w * b->at[k][4 * n + i];
                }
            }
        }
        memcpy(c->at[m], sum, sizeof(sum));
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#define _tile_loadconfig described_loadconfig
#define _tile_release()  memset(described, 0, sizeof(described))
#define _tile_zero       described_zero
#define _tile_loadd      described_loadd
#define _tile_stored     described_stored
#define _tile_dpbssd     described_dpbssd
