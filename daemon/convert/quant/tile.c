/* tile.c - 6 rows by 8 columns of c stay in registers over the whole depth. */
#include "convert/quant/tile.h"

#include "base/fmath.h"
#include "base/isa.h"

#if defined(ISA_FOR_V3)
#include <immintrin.h>

ISA_FOR_V3 static void corner_v3(double *c, const double *a, const double *b)
{
    __m256d s[TILE_ROWS][2];
#pragma GCC unroll 6
    for (size_t i = 0; i < TILE_ROWS; i++) {
        s[i][0] = _mm256_loadu_pd(c + i * TILE);
        s[i][1] = _mm256_loadu_pd(c + i * TILE + 4);
    }
    for (size_t k = 0; k < TILE; k++) {
        __m256d b0 = _mm256_loadu_pd(b + k * TILE);
        __m256d b1 = _mm256_loadu_pd(b + k * TILE + 4);
#pragma GCC unroll 6
        for (size_t i = 0; i < TILE_ROWS; i++) {
            __m256d v = _mm256_broadcast_sd(a + i * TILE + k);
            s[i][0] = _mm256_fnmadd_pd(v, b0, s[i][0]);
            s[i][1] = _mm256_fnmadd_pd(v, b1, s[i][1]);
        }
    }
#pragma GCC unroll 6
    for (size_t i = 0; i < TILE_ROWS; i++) {
        _mm256_storeu_pd(c + i * TILE, s[i][0]);
        _mm256_storeu_pd(c + i * TILE + 4, s[i][1]);
    }
}

ISA_FOR_V3 static void sub_v3(double *c, const double *a, const double *b,
                              size_t rows)
{
    for (size_t j = 0; j < TILE; j += 8) {
        for (size_t i = 0; i < rows; i += TILE_ROWS) {
            corner_v3(c + i * TILE + j, a + i * TILE, b + j);
        }
    }
}

ISA_FOR_V3 static void spread_v3(double *x, size_t n, const double *a,
                                 const double *from)
{
    for (size_t i = 0; i < n; i++, x += TILE) {
        __m256d v = _mm256_set1_pd(a[i]);
        for (size_t c = 0; c < TILE; c += 4) {
            __m256d to = _mm256_loadu_pd(x + c);
            to = _mm256_fnmadd_pd(v, _mm256_loadu_pd(from + c), to);
            _mm256_storeu_pd(x + c, to);
        }
    }
}
#endif

void tile_sub(double *c, const double *a, const double *b, size_t rows)
{
    must(rows % TILE_ROWS == 0 && rows <= TILE);
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        sub_v3(c, a, b, rows);
        return;
    }
#endif
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < TILE; k++) {
            double v = a[i * TILE + k];
            for (size_t j = 0; j < TILE; j++) {
                double *to = &c[i * TILE + j];
                *to = fmath_fma(-v, b[k * TILE + j], *to);
            }
        }
    }
}

void tile_spread(double *x, size_t n, const double *a, const double *from)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        spread_v3(x, n, a, from);
        return;
    }
#endif
    for (size_t i = 0; i < n; i++, x += TILE) {
        for (size_t c = 0; c < TILE; c++) {
            x[c] = fmath_fma(-a[i], from[c], x[c]);
        }
    }
}

void tile_turn(double *to, const double *from)
{
    for (size_t i = 0; i < TILE; i++) {
        for (size_t j = 0; j < TILE; j++) {
            to[j * TILE + i] = from[i * TILE + j];
        }
    }
}
