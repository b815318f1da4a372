/* attend_impl.h - the inner loops of attention, a template that every
 * kernel_NAME.c includes (kernel_impl.h).
 *
 * Both products of attention are one loop: coefficients of some columns times
 * rows of fp16 (keys transposed, or values). Each element of the result is a
 * chain of fused multiply-adds over the rows in order, in a lane of its own. So
 * the result depends neither on the width of a vector nor on the shape of a
 * tile. A tile's rows are converted once for all its columns. */
#pragma once

#include <float.h>

#include "engine/cpu/kernels/attention/attend.h"
#include "engine/cpu/kernels/kernel_impl.h"
#include "engine/cpu/kernels/simd_exp.h"

/* --- the widest vector of the set --- */

#if defined(__AVX512F__) && SIMD_AVX2

#define WIDE 16 /* lanes */
/* Columns of a tile of 16, 32 and 64 elements, for 32 registers. */
enum { TILE_16 = 8, TILE_32 = 8, TILE_64 = 4 };
typedef __m512 wide;

static inline wide wide_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline wide wide_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void wide_store(float *p, wide a)
{
    _mm512_storeu_ps(p, a);
}

static inline wide wide_fma(wide a, wide b, wide c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline wide wide_add(wide a, wide b)
{
    return _mm512_add_ps(a, b);
}

/* v8_exp of a - b, twice as wide. */
static inline wide wide_exp_sub(wide a, wide b)
{
    wide x = _mm512_sub_ps(a, b);
    x = _mm512_min_ps(wide_set(90.0f), x);
    x = _mm512_max_ps(wide_set(-110.0f), x);
    wide magic = wide_set(EXP_MAGIC);
    wide t = wide_fma(x, wide_set(1.44269504088896341f), magic);
    wide n = _mm512_sub_ps(t, magic);
    wide r = wide_fma(n, wide_set(-0.693145751953125f), x);
    r = wide_fma(n, wide_set(-1.42860676533018e-06f), r);
    wide p = wide_set(1.0f / 5040.0f);
    p = wide_fma(p, r, wide_set(1.0f / 720.0f));
    p = wide_fma(p, r, wide_set(1.0f / 120.0f));
    p = wide_fma(p, r, wide_set(1.0f / 24.0f));
    p = wide_fma(p, r, wide_set(1.0f / 6.0f));
    p = wide_fma(p, r, wide_set(0.5f));
    p = wide_fma(p, r, wide_set(1.0f));
    p = wide_fma(p, r, wide_set(1.0f));
    __m512i k =
        _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_castps_si512(magic));
    __m512i half = _mm512_srai_epi32(k, 1);
    __m512i bias = _mm512_set1_epi32(127);
    __m512i u = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
    __m512i v = _mm512_slli_epi32(
        _mm512_add_epi32(_mm512_sub_epi32(k, half), bias), 23);
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(u));
    return _mm512_mul_ps(p, _mm512_castsi512_ps(v));
}

static inline wide wide_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(
        _mm256_loadu_si256((const __m256i *)(const void *)p));
}

#else

#define WIDE          8
/* For 16 registers: 12 sums, 2 rows and a coefficient; 8, 4 and 1; 8, 1, 1. */
enum { TILE_16 = 6, TILE_32 = 2, TILE_64 = 1 };
typedef v8 wide;
#define wide_set      v8_set
#define wide_load     v8_load
#define wide_store    v8_store
#define wide_fma      v8_fma
#define wide_add      v8_add
#define wide_from_f16 v8_from_f16

static inline wide wide_exp_sub(wide a, wide b)
{
    return v8_exp(v8_sub(a, b));
}

#endif

/* --- products --- */

/* The prefetch while a product runs: `step` bytes more with each of its rows,
 * of which it reads two cache lines at most. So the memory is busy all the
 * time, and no burst of requests delays the loads that are needed now. */
struct attend_ahead {
    const char *p;
    size_t step, second; /* bytes; to the second line */
};

/* Columns from j on, elements from `at` on; nj columns and 16 * units elements
 * are constants wherever this is inlined. */
__attribute__((always_inline)) static inline void
attend_tile(const struct attend_product *m, size_t j, size_t at,
            const size_t nj, const size_t units, struct attend_ahead *ahead)
{
    const size_t nv = units * 16 / WIDE;
    const float *x = m->x + j * m->ldx;
    const uint16_t *w = m->w + at;
    float *y = m->y + j * m->ldy + at;
    wide sum[16];
    UNROLL
    for (size_t i = 0; i < nj * nv; i++) {
        sum[i] = wide_load(y + i / nv * m->ldy + i % nv * WIDE);
    }
    const char *next = ahead->p;
    for (size_t k = 0; k < m->k; k++, w += m->ldw, next += ahead->step) {
        wide row[8];
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + ahead->second, 0, 2);
        UNROLL
        for (size_t v = 0; v < nv; v++) {
            row[v] = wide_from_f16(w + v * WIDE);
        }
        UNROLL
        for (size_t c = 0; c < nj; c++) {
            wide a = wide_set(x[c * m->ldx + k]);
            UNROLL
            for (size_t v = 0; v < nv; v++) {
                sum[c * nv + v] = wide_fma(a, row[v], sum[c * nv + v]);
            }
        }
    }
    ahead->p = next;
    UNROLL
    for (size_t i = 0; i < nj * nv; i++) {
        wide_store(y + i / nv * m->ldy + i % nv * WIDE, sum[i]);
    }
}

/* Wide tiles for few columns: their chains hide each other's latency. */
#define ATTEND_TILE(n, units, max)               \
    case (units)*16 + (n):                       \
        if ((n) <= (max)) {                      \
            attend_tile(m, j, at, (n), (units), ahead); \
        }                                        \
        break

static void attend_tiles(const struct attend_product *m, size_t j, size_t at,
                         size_t nj, size_t units, struct attend_ahead *ahead)
{
    switch (units * 16 + nj) {
        ATTEND_TILE(1, 4, TILE_64);
        ATTEND_TILE(2, 4, TILE_64);
        ATTEND_TILE(3, 4, TILE_64);
        ATTEND_TILE(4, 4, TILE_64);
        ATTEND_TILE(1, 2, TILE_32);
        ATTEND_TILE(2, 2, TILE_32);
        ATTEND_TILE(3, 2, TILE_32);
        ATTEND_TILE(4, 2, TILE_32);
        ATTEND_TILE(5, 2, TILE_32);
        ATTEND_TILE(6, 2, TILE_32);
        ATTEND_TILE(7, 2, TILE_32);
        ATTEND_TILE(8, 2, TILE_32);
        ATTEND_TILE(1, 1, TILE_16);
        ATTEND_TILE(2, 1, TILE_16);
        ATTEND_TILE(3, 1, TILE_16);
        ATTEND_TILE(4, 1, TILE_16);
        ATTEND_TILE(5, 1, TILE_16);
        ATTEND_TILE(6, 1, TILE_16);
        ATTEND_TILE(7, 1, TILE_16);
        ATTEND_TILE(8, 1, TILE_16);
    default:
        must(false);
    }
}

/* The width of the next tile of nj columns, in 16 elements. */
static size_t attend_units(size_t nj, size_t left)
{
    return left >= 64 && nj <= TILE_64   ? 4
           : left >= 32 && nj <= TILE_32 ? 2
                                         : 1;
}

/* Columns of the next tile. */
static size_t attend_columns(size_t left)
{
    return left > TILE_16 ? left - 2 : left; /* two are fast by themselves */
}

/* Spread over the rows that all tiles pass together. */
static struct attend_ahead attend_spread(const struct attend_product *m)
{
    size_t tiles = 0;
    for (size_t j = 0, nj = 0; j < m->cols; j += nj) {
        nj = attend_columns(m->cols - j);
        for (size_t at = 0; at < m->n; at += attend_units(nj, m->n - at) * 16) {
            tiles++;
        }
    }
    size_t rows = tiles * m->k;
    size_t step = rows > 0 ? (m->ahead_bytes + rows - 1) / rows : 0;
    step = m->ahead != NULL ? (step < 128 ? step : 128) : 0;
    return (struct attend_ahead){
        .p = m->ahead != NULL ? m->ahead : m->w,
        .step = step,
        .second = step > 64 ? 64 : 0,
    };
}

static void attend_product(const struct attend_product *m)
{
    struct attend_ahead ahead = attend_spread(m);
    for (size_t j = 0; j < m->cols && !m->add; j++) {
        memset(m->y + j * m->ldy, 0, m->n * sizeof(*m->y));
    }
    for (size_t j = 0, nj = 0; j < m->cols; j += nj) {
        nj = attend_columns(m->cols - j);
        size_t units = 1;
        for (size_t at = 0; at < m->n; at += units * 16) {
            units = attend_units(nj, m->n - at);
            attend_tiles(m, j, at, nj, units, &ahead);
        }
    }
}

/* --- softmax --- */

/* Scores x[begin .. end) of a span become exp(scale(x) - max), and its other
 * places as far as a lane of 16 reaches become 0. The sum runs over the
 * canonical 16 lanes, which are positions: zeros add nothing. */
static void attend_weigh(float *x, size_t begin, size_t end, bool divide,
                         float scale, float *ret_max, float *ret_sum)
{
    size_t from = begin & ~(size_t)15;
    size_t to = (end + 15) & ~(size_t)15;
    v8 s = v8_set(scale);
    for (size_t i = from; i < to; i += V8_LANES) {
        v8 a = v8_load(x + i);
        v8_store(x + i, divide ? v8_div(a, s) : v8_mul(a, s));
    }
    for (size_t i = from; i < begin; i++) {
        x[i] = -INFINITY;
    }
    for (size_t i = end; i < to; i++) {
        x[i] = -INFINITY;
    }
    v8 m0 = v8_set(-FLT_MAX); /* finite: a score of -infinity weighs 0 */
    v8 m1 = m0;
    for (size_t i = from; i < to; i += 16) {
        m0 = v8_max(v8_load(x + i), m0); /* a NaN is passed over */
        m1 = v8_max(v8_load(x + i + V8_LANES), m1);
    }
    float lane[V8_LANES];
    v8_store(lane, v8_max(m0, m1));
    float max = lane[0];
    for (size_t i = 1; i < V8_LANES; i++) {
        max = lane[i] > max ? lane[i] : max;
    }
    wide m = wide_set(max);
    _Alignas(64) float sum[16] = {0};
    wide a = wide_load(sum);
    wide b = wide_load(sum + 16 - WIDE);
    for (size_t i = from; i < to; i += 16) {
        wide p = wide_exp_sub(wide_load(x + i), m);
        wide_store(x + i, p);
        a = wide_add(a, p);
        if (WIDE < 16) { /* lanes 8 .. 15 */
            p = wide_exp_sub(wide_load(x + i + 8), m);
            wide_store(x + i + 8, p);
            b = wide_add(b, p);
        }
    }
    wide_store(sum + 16 - WIDE, b);
    wide_store(sum, a);
    *ret_max = max;
    *ret_sum = v16_sum(v8_load(sum), v8_load(sum + 8));
}

/* --- spans --- */

/* Each span's m becomes its weight, and the first one's o the result. */
static void attend_join(const struct attend_spans *s)
{
    float max = s->m[0];
    for (size_t i = 1; i < s->n; i++) {
        float m = s->m[i * s->step];
        max = m > max ? m : max;
    }
    float sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        float lane[V8_LANES];
        float *w = s->m + i * s->step;
        v8_store(lane, v8_exp(v8_set(*w - max)));
        *w = lane[0];
        sum = fmath_fmaf(*w, s->l[i * s->step], sum);
    }
    v8 l = v8_set(sum);
    for (size_t i = 0; i < s->width; i += V8_LANES) {
        v8 a = v8_mul(v8_set(s->m[0]), v8_load(s->o + i));
        for (size_t k = 1; k < s->n; k++) {
            a = v8_fma(v8_set(s->m[k * s->step]),
                       v8_load(s->o + k * s->step + i), a);
        }
        v8_store(s->o + i, v8_div(a, l));
    }
}
