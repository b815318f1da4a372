/* Plain C and vectors give the same bits: the sources of convert/quant/ once
 * more without their vectors, against the library. */
#include <math.h>

#include "base/isa.h"
#include "convert/gemm.h"
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
#define gemm_rows       plain_rows
#define tile_spread     plain_spread
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
#include "convert/gemm.c"
#pragma GCC diagnostic pop
#undef kmeans_open
#undef kmeans_close
#undef kmeans_run
#undef palette_init
#undef palette_make
#undef palette_nearest
#undef gemm_rows
#undef tile_spread
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

static void tiles_spread(void **state)
{
    (void)state;
    static double x[2][TILE_COUNT];
    double a[TILE];
    double from[TILE];
    uint64_t seed = 9;
    for (size_t n = 0; n <= TILE; n++) {
        for (size_t i = 0; i < TILE_COUNT; i++) {
            x[0][i] = x[1][i] = (double)drawn(&seed);
        }
        for (size_t i = 0; i < TILE; i++) {
            a[i] = (double)drawn(&seed);
            from[i] = (double)drawn(&seed);
        }
        tile_spread(x[0], n, a, from);
        plain_spread(x[1], n, a, from);
        assert_memory_equal(x[0], x[1], sizeof(x[0]));
    }
}

/* Every rest of rows, of columns, one piece and a strided panel. */
static void products(void **state)
{
    (void)state;
    enum { ROWS = 13, COLS = 300, WIDE = 48 };
    static float w[ROWS * COLS];
    static float x[COLS * WIDE];
    static float y[2][ROWS * WIDE];
    uint64_t seed = 10;
    for (size_t i = 0; i < ROWS * COLS; i++) {
        w[i] = drawn(&seed);
    }
    for (size_t i = 0; i < COLS * WIDE; i++) {
        x[i] = drawn(&seed);
    }
    for (size_t rows = 1; rows <= ROWS; rows++) {
        for (size_t cols = 1; cols <= COLS; cols += 23) {
            size_t stride = rows % 2 == 0 ? WIDE : GEMM_LANES;
            gemm_rows(w, rows, cols, x, stride, y[0]);
            plain_rows(w, rows, cols, x, stride, y[1]);
            assert_memory_equal(y[0], y[1], rows * stride * sizeof(float));
            double sum = 0;
            for (size_t k = 0; k < cols; k++) {
                sum += (double)w[(rows - 1) * cols + k] *
                       (double)x[k * stride + 5];
            }
            double got = (double)y[0][(rows - 1) * stride + 5];
            assert_true(fabs(got - sum) < 1e-4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(palettes),
        cmocka_unit_test(scales),
        cmocka_unit_test(tiles),
        cmocka_unit_test(tiles_spread),
        cmocka_unit_test(products),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
