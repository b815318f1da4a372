/* gemm.c - a tile of 6 rows by 16 tokens stays in registers over a strip of
 * DEPTH columns: 12 fused multiply-adds for 2 loads and 6 broadcasts keep both
 * FMA ports of an AVX2 core busy. The strip of x that a tile reads has its lines
 * a whole panel row apart, and those share few sets of the first cache: so it
 * is copied to one place, once for all rows (one thread of a Zen 4, 146 rows of
 * 896, 1024 tokens: 101 GFLOP/s, and 64 without the copy).
 */
#include "convert/gemm.h"

#include <string.h>

#include "base/fmath.h"
#include "base/isa.h"

#define ROWS_SIX 6u
#define DEPTH    256u

/* One strip: y += w * x, or y = w * x when `fresh`. x: depth x GEMM_LANES. */
struct strip {
    const float *w, *x;
    float *y;
    size_t cols, stride; /* of w's rows; of y's */
    size_t depth;        /* columns of this strip */
    bool fresh;
};

static void tile(const struct strip *s, size_t rows)
{
    for (size_t r = 0; r < rows; r++) {
        float *y = s->y + r * s->stride;
        const float *w = s->w + r * s->cols;
        float a[GEMM_LANES] = {0};
        if (!s->fresh) {
            memcpy(a, y, sizeof(a));
        }
        for (size_t k = 0; k < s->depth; k++) {
            for (size_t t = 0; t < GEMM_LANES; t++) {
                a[t] = fmath_fmaf(w[k], s->x[k * GEMM_LANES + t], a[t]);
            }
        }
        memcpy(y, a, sizeof(a));
    }
}

#if defined(ISA_FOR_V3)
#include <immintrin.h>

/* rows is known to the compiler. */
__attribute__((always_inline)) ISA_FOR_V3 static inline void
some_v3(const struct strip *s, size_t rows)
{
    __m256 a[ROWS_SIX][2];
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++) {
        const float *y = s->y + r * s->stride;
        a[r][0] = s->fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(y);
        a[r][1] = s->fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(y + 8);
    }
    for (size_t k = 0; k < s->depth; k++) {
        __m256 x0 = _mm256_loadu_ps(s->x + k * GEMM_LANES);
        __m256 x1 = _mm256_loadu_ps(s->x + k * GEMM_LANES + 8);
#pragma GCC unroll 6
        for (size_t r = 0; r < rows; r++) {
            __m256 b = _mm256_broadcast_ss(s->w + r * s->cols + k);
            a[r][0] = _mm256_fmadd_ps(b, x0, a[r][0]);
            a[r][1] = _mm256_fmadd_ps(b, x1, a[r][1]);
        }
    }
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++) {
        _mm256_storeu_ps(s->y + r * s->stride, a[r][0]);
        _mm256_storeu_ps(s->y + r * s->stride + 8, a[r][1]);
    }
}

ISA_FOR_V3 static void tile_v3(const struct strip *s, size_t rows)
{
    switch (rows) {
    case 1:
        some_v3(s, 1);
        return;
    case 2:
        some_v3(s, 2);
        return;
    case 3:
        some_v3(s, 3);
        return;
    case 4:
        some_v3(s, 4);
        return;
    case 5:
        some_v3(s, 5);
        return;
    default:
        some_v3(s, ROWS_SIX);
    }
}
#endif

static void one_tile(const struct strip *s, size_t rows)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        tile_v3(s, rows);
        return;
    }
#endif
    tile(s, rows);
}

/* The strip of x at column t in one piece: `room`, unless it is one already. */
static const float *lanes(const float *x, size_t stride, size_t depth,
                          float *room)
{
    if (stride == GEMM_LANES) {
        return x;
    }
    for (size_t k = 0; k < depth; k++) {
        memcpy(room + k * GEMM_LANES, x + k * stride,
               GEMM_LANES * sizeof(*room));
    }
    return room;
}

static void run(const float *w, size_t rows, size_t cols, const float *x,
                size_t stride, float *y, float *room)
{
    struct strip s = {.cols = cols, .stride = stride};
    for (size_t k = 0; k < cols; k += DEPTH) {
        s.depth = cols - k < DEPTH ? cols - k : DEPTH;
        s.fresh = k == 0;
        for (size_t t = 0; t < stride; t += GEMM_LANES) {
            s.x = lanes(x + k * stride + t, stride, s.depth, room);
            for (size_t r = 0; r < rows; r += ROWS_SIX) {
                s.w = w + r * cols + k;
                s.y = y + r * stride + t;
                one_tile(&s, rows - r < ROWS_SIX ? rows - r : ROWS_SIX);
            }
        }
    }
}

void gemm_rows(const float *w, size_t rows, size_t cols, const float *x,
               size_t stride, float *y)
{
    must(stride % GEMM_LANES == 0);
    if (stride == GEMM_LANES) {
        run(w, rows, cols, x, stride, y, NULL);
    } else {
        _Alignas(64) float room[DEPTH * GEMM_LANES];
        run(w, rows, cols, x, stride, y, room);
    }
}
