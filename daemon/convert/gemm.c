/* gemm.c - a tile of 6 rows by 16 tokens stays in registers over a strip of
 * DEPTH columns: 12 fused multiply-adds for 2 loads and 6 broadcasts keep both
 * FMA ports of an AVX2 core busy. The strip of x that a tile reads stays in the
 * first level cache and serves all rows before the next one is touched. Its
 * lines are a whole panel row apart, so they share few of the cache's sets:
 * deeper strips are slower (measured: 84 GFLOP/s at 64, 64 at 256).
 */
#include "convert/gemm.h"

#include "base/fmath.h"
#include "base/isa.h"

#define TILE_ROWS 6u
#define DEPTH     64u

/* One strip: y += w * x, or y = w * x when `fresh`. */
struct strip {
    const float *w, *x;
    float *y;
    size_t cols, stride; /* of w's rows; of x's and y's */
    size_t depth;        /* columns of this strip */
    bool fresh;
};

static void tile1(const struct strip *s)
{
    for (size_t t = 0; t < GEMM_LANES; t++) {
        float a = s->fresh ? 0 : s->y[t];
        for (size_t k = 0; k < s->depth; k++) {
            a = fmath_fmaf(s->w[k], s->x[k * s->stride + t], a);
        }
        s->y[t] = a;
    }
}

static void tile6(const struct strip *s)
{
    for (size_t r = 0; r < TILE_ROWS; r++) {
        struct strip one = *s;
        one.w += r * s->cols;
        one.y += r * s->stride;
        tile1(&one);
    }
}

#if defined(ISA_FOR_V3)
#include <immintrin.h>

ISA_FOR_V3 static void tile6_v3(const struct strip *s)
{
    __m256 a[TILE_ROWS][2];
#pragma GCC unroll 6
    for (size_t r = 0; r < TILE_ROWS; r++) {
        const float *y = s->y + r * s->stride;
        a[r][0] = s->fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(y);
        a[r][1] = s->fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(y + 8);
    }
    for (size_t k = 0; k < s->depth; k++) {
        __m256 x0 = _mm256_loadu_ps(s->x + k * s->stride);
        __m256 x1 = _mm256_loadu_ps(s->x + k * s->stride + 8);
#pragma GCC unroll 6
        for (size_t r = 0; r < TILE_ROWS; r++) {
            __m256 b = _mm256_broadcast_ss(s->w + r * s->cols + k);
            a[r][0] = _mm256_fmadd_ps(b, x0, a[r][0]);
            a[r][1] = _mm256_fmadd_ps(b, x1, a[r][1]);
        }
    }
#pragma GCC unroll 6
    for (size_t r = 0; r < TILE_ROWS; r++) {
        _mm256_storeu_ps(s->y + r * s->stride, a[r][0]);
        _mm256_storeu_ps(s->y + r * s->stride + 8, a[r][1]);
    }
}

ISA_FOR_V3 static void tile1_v3(const struct strip *s)
{
    __m256 a0 = s->fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(s->y);
    __m256 a1 = s->fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(s->y + 8);
    for (size_t k = 0; k < s->depth; k++) {
        const float *x = s->x + k * s->stride;
        __m256 b = _mm256_broadcast_ss(s->w + k);
        a0 = _mm256_fmadd_ps(b, _mm256_loadu_ps(x), a0);
        a1 = _mm256_fmadd_ps(b, _mm256_loadu_ps(x + 8), a1);
    }
    _mm256_storeu_ps(s->y, a0);
    _mm256_storeu_ps(s->y + 8, a1);
}
#endif

static void one_tile(const struct strip *s, bool six)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        (six ? tile6_v3 : tile1_v3)(s);
        return;
    }
#endif
    (six ? tile6 : tile1)(s);
}

void gemm_rows(const float *w, size_t rows, size_t cols, const float *x,
               size_t stride, float *y)
{
    must(stride % GEMM_LANES == 0);
    struct strip s = {.cols = cols, .stride = stride};
    for (size_t k = 0; k < cols; k += DEPTH) {
        s.depth = cols - k < DEPTH ? cols - k : DEPTH;
        s.fresh = k == 0;
        for (size_t t = 0; t < stride; t += GEMM_LANES) {
            s.x = x + k * stride + t;
            size_t r = 0;
            for (; r + TILE_ROWS <= rows; r += TILE_ROWS) {
                s.w = w + r * cols + k;
                s.y = y + r * stride + t;
                one_tile(&s, true);
            }
            for (; r < rows; r++) {
                s.w = w + r * cols + k;
                s.y = y + r * stride + t;
                one_tile(&s, false);
            }
        }
    }
}
