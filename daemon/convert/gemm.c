/* gemm.c - a tile of 6 rows by 16 tokens stays in registers over all k:
 * 12 fused multiply-adds for 2 loads and 6 broadcasts, which keeps both FMA
 * ports of an AVX2 core busy while x stays in its second level cache. */
#include "convert/gemm.h"

#include <math.h>

#define TILE_ROWS 6u

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

static void tile6(const float *w, size_t cols, const float *x, size_t stride,
                  float *y)
{
    __m256 a[TILE_ROWS][2];
    for (size_t r = 0; r < TILE_ROWS; r++) {
        a[r][0] = _mm256_setzero_ps();
        a[r][1] = _mm256_setzero_ps();
    }
    for (size_t k = 0; k < cols; k++) {
        __m256 x0 = _mm256_loadu_ps(x + k * stride);
        __m256 x1 = _mm256_loadu_ps(x + k * stride + 8);
#pragma GCC unroll 6
        for (size_t r = 0; r < TILE_ROWS; r++) {
            __m256 b = _mm256_broadcast_ss(w + r * cols + k);
            a[r][0] = _mm256_fmadd_ps(b, x0, a[r][0]);
            a[r][1] = _mm256_fmadd_ps(b, x1, a[r][1]);
        }
    }
    for (size_t r = 0; r < TILE_ROWS; r++) {
        _mm256_storeu_ps(y + r * stride, a[r][0]);
        _mm256_storeu_ps(y + r * stride + 8, a[r][1]);
    }
}

static void tile1(const float *w, size_t cols, const float *x, size_t stride,
                  float *y)
{
    __m256 a0 = _mm256_setzero_ps();
    __m256 a1 = _mm256_setzero_ps();
    for (size_t k = 0; k < cols; k++) {
        __m256 b = _mm256_broadcast_ss(w + k);
        a0 = _mm256_fmadd_ps(b, _mm256_loadu_ps(x + k * stride), a0);
        a1 = _mm256_fmadd_ps(b, _mm256_loadu_ps(x + k * stride + 8), a1);
    }
    _mm256_storeu_ps(y, a0);
    _mm256_storeu_ps(y + 8, a1);
}
#else
static void tile1(const float *w, size_t cols, const float *x, size_t stride,
                  float *y)
{
    float a[GEMM_LANES] = {0};
    for (size_t k = 0; k < cols; k++) {
        for (size_t t = 0; t < GEMM_LANES; t++) {
            a[t] = fmaf(w[k], x[k * stride + t], a[t]);
        }
    }
    for (size_t t = 0; t < GEMM_LANES; t++) {
        y[t] = a[t];
    }
}

static void tile6(const float *w, size_t cols, const float *x, size_t stride,
                  float *y)
{
    for (size_t r = 0; r < TILE_ROWS; r++) {
        tile1(w + r * cols, cols, x, stride, y + r * stride);
    }
}
#endif

void gemm_rows(const float *w, size_t rows, size_t cols, const float *x,
               size_t stride, float *y)
{
    must(stride % GEMM_LANES == 0);
    size_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS) {
        for (size_t t = 0; t < stride; t += GEMM_LANES) {
            tile6(w + r * cols, cols, x + t, stride, y + r * stride + t);
        }
    }
    for (; r < rows; r++) {
        for (size_t t = 0; t < stride; t += GEMM_LANES) {
            tile1(w + r * cols, cols, x + t, stride, y + r * stride + t);
        }
    }
}
