/* Plain C and vectors give the same bits: the sources of convert/quant/ once
 * more without their vectors, against the library. */
#include <math.h>

#include "base/isa.h"
#include "convert/quant.h"
#include "convert/quant/palette.h"
#include "convert/quant/tile.h"

#undef ISA_FOR_V3
#define kmeans_open     plain_open
#define kmeans_close    plain_close
#define kmeans_run      plain_run
#define palette_init    plain_init
#define palette_make    plain_make
#define palette_nearest plain_nearest
#define tile_sub        plain_sub
#define tile_turn       plain_turn
#define quant_peak      plain_peak
#define quant_scale     plain_scale
#define quant_round     plain_round
void kmeans_close(struct kmeans *m); /* called before it is defined */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "convert/quant/kmeans.c"
#include "convert/quant/palette.c"
#include "convert/quant/scale.c"
#include "convert/quant/tile.c"
#pragma GCC diagnostic pop
#undef kmeans_open
#undef kmeans_close
#undef kmeans_run
#undef palette_init
#undef palette_make
#undef palette_nearest
#undef tile_sub
#undef tile_turn
#undef quant_peak
#undef quant_scale
#undef quant_round

#include "mkgguf.h"

enum { N = 5003 };

static float drawn(uint64_t *seed)
{
    float u = (float)mk_random(seed) / 1073741824.0f - 1.0f;
    return u * u * u;
}

static void palettes(void **state)
{
    (void)state;
    static float x[N];
    static float w[N];
    static uint8_t a[N];
    static uint8_t b[N];
    uint64_t seed = 3;
    for (size_t round = 0; round < 24; round++) {
        size_t n = round % 4 == 0 ? N : 1 + mk_random(&seed) % 900;
        unsigned entries = round % 2 == 0 ? 64 : 16;
        double c[2][64];
        struct kmeans *m = NULL;
        struct err e = {0};
        for (size_t i = 0; i < n; i++) {
            x[i] = drawn(&seed);
            w[i] = (float)(mk_random(&seed) % 100);
        }
        unit_ok(kmeans_open(n, entries, &m, &e), &e);
        kmeans_run(m, x, w, n, c[0]);
        kmeans_close(m);
        unit_ok(plain_open(n, entries, &m, &e), &e);
        plain_run(m, x, w, n, c[1]);
        plain_close(m);
        assert_memory_equal(c[0], c[1], entries * sizeof(c[0][0]));
        uint16_t entry[64];
        for (unsigned i = 0; i < entries; i++) {
            entry[i] = half_from_float((float)c[0][i]);
        }
        struct palette p;
        palette_init(&p, entry, entries);
        for (size_t i = 0; i < n; i += 17) {
            x[i] = p.edge[i % (entries - 1)]; /* ties */
        }
        palette_nearest(&p, x, n, a);
        plain_nearest(&p, x, n, b);
        assert_memory_equal(a, b, n);
    }
}

static void scales(void **state)
{
    (void)state;
    static float x[N];
    static int8_t a[N];
    static int8_t b[N];
    uint64_t seed = 4;
    for (int round = 0; round < 8; round++) {
        int levels = round % 2 == 0 ? 127 : 7;
        for (size_t i = 0; i < N; i++) {
            x[i] = drawn(&seed);
        }
        float peak = quant_peak(x, N);
        assert_true(peak == plain_peak(x, N));
        uint16_t s = quant_scale(peak, levels);
        for (size_t i = 0; i < N; i += 13) {
            x[i] = half_to_float(s) * 1.5f; /* ties */
        }
        quant_round(x, N, s, levels, a);
        plain_round(x, N, s, levels, b);
        assert_memory_equal(a, b, N);
    }
}

static void tiles(void **state)
{
    (void)state;
    static double a[TILE_COUNT];
    static double b[TILE_COUNT];
    static double c[2][TILE_COUNT];
    uint64_t seed = 5;
    for (size_t rows = TILE_ROWS; rows <= TILE; rows += TILE_ROWS) {
        for (size_t i = 0; i < TILE_COUNT; i++) {
            a[i] = (double)drawn(&seed);
            b[i] = (double)drawn(&seed) / 3;
            c[0][i] = c[1][i] = (double)drawn(&seed);
        }
        tile_sub(c[0], a, b, rows);
        plain_sub(c[1], a, b, rows);
        assert_memory_equal(c[0], c[1], sizeof(c[0]));
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(palettes),
        cmocka_unit_test(scales),
        cmocka_unit_test(tiles),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
