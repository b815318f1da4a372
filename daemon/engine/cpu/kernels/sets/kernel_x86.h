/* kernel_x86.h - what "avx2" and "avx512" share: sums of four, and rounding
 * rows of floats (linear_round.h), 32 elements at a time. The includer defines
 * VB, vi, vi4 and how tables are looked up. */
#pragma once

#include <immintrin.h>

#include "engine/cpu/kernels/products/linear_impl.h"

/* --- sums (linear_int.h, linear_look.h) --- */

/* out (+)= four sums. */
INLINE void vi_put(vi4 s, float out[4], bool first)
{
    __m128 f = _mm_cvtepi32_ps(s);
    _mm_storeu_ps(out, first ? f : _mm_add_ps(_mm_loadu_ps(out), f));
}

INLINE void vi_put_wide(vi4 high, vi4 low, float out[4], bool first)
{
    __m128 f = _mm_fmadd_ps(_mm_cvtepi32_ps(high),
                            _mm_set1_ps((float)(1 << LOOK_SHIFT)),
                            _mm_cvtepi32_ps(low));
    _mm_storeu_ps(out, first ? f : _mm_add_ps(_mm_loadu_ps(out), f));
}

INLINE vi lk_dot(vi acc, vi w, vi x)
{
    return vi_dot(acc, w, x);
}

INLINE void lk_look(int kind, const struct lk_table *t, const uint8_t *p,
                    vi w[2])
{
    if (kind == WEIGHT_LUT4) {
        lk_look4(t, p, w);
    } else {
        lk_look6(t, p, w);
    }
}

/* --- rounding (linear_round.h) --- */

typedef __m256i rb_peak;

INLINE rb_peak rb_peak_new(void)
{
    return _mm256_setzero_si256();
}

INLINE rb_peak rb_peak_more(rb_peak m, const float *x)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    for (int i = 0; i < VB; i += 8) {
        __m256i b = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        m = _mm256_max_epi32(m, _mm256_and_si256(b, mask));
    }
    return m;
}

INLINE uint32_t rb_peak_of(rb_peak m)
{
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(m),
                              _mm256_extracti128_si256(m, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(a);
}

struct rb_count {
    __m256i some, small; /* in -1 */
};

INLINE size_t rb_count_sum(__m256i n)
{
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(n),
                              _mm256_extracti128_si256(n, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1));
    return (size_t)-_mm_cvtsi128_si32(a);
}

INLINE size_t rb_count_some(const struct rb_count *n)
{
    return rb_count_sum(n->some);
}

INLINE size_t rb_count_small(const struct rb_count *n)
{
    return rb_count_sum(n->small);
}

INLINE __m256i rb_nearest(__m256 x, float pre, float mul)
{
    x = _mm256_mul_ps(x, _mm256_set1_ps(pre));
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(mul)));
}

/* 32 integers to int16, the even ones and the odd ones of each group apart.
 * at: of the first one in its group. */
INLINE void rb_store(__m256i v[4], int16_t *q, int at)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 f[4];
    for (int i = 0; i < 4; i++) {
        f[i] = _mm256_castsi256_ps(v[i]);
    }
    for (int odd = 0; odd < 2; odd++) {
        __m256 a = odd ? _mm256_shuffle_ps(f[0], f[1], 0xdd)
                       : _mm256_shuffle_ps(f[0], f[1], 0x88);
        __m256 b = odd ? _mm256_shuffle_ps(f[2], f[3], 0xdd)
                       : _mm256_shuffle_ps(f[2], f[3], 0x88);
        __m256i p =
            _mm256_packs_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b));
        p = _mm256_permutevar8x32_epi32(p, order);
        _mm256_storeu_si256((void *)(q + at / 2 + odd * (VB / 2)), p);
    }
}

INLINE void rb_round(const float *x, const struct linear_round *f, int16_t *q,
                     struct rb_count *n)
{
    const __m256i limit = _mm256_set1_epi32(LINEAR_SMALL);
    UNSET __m256i v[4];
    for (int at = 0; at < VB; at += 32) {
        for (int i = 0; i < 4; i++) {
            __m256 a = _mm256_loadu_ps(x + at + 8 * i);
            v[i] = rb_nearest(a, f->pre, f->mul);
            __m256i some = _mm256_castps_si256(
                _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ));
            __m256i small = _mm256_cmpgt_epi32(limit, _mm256_abs_epi32(v[i]));
            n->some = _mm256_add_epi32(n->some, some);
            n->small =
                _mm256_add_epi32(n->small, _mm256_and_si256(some, small));
        }
        rb_store(v, q, at);
    }
}

INLINE void rb_split(const float *x, const struct linear_round *f, int16_t *hi,
                     int16_t *lo)
{
    const __m256i half = _mm256_set1_epi32(1 << (LINEAR_SHIFT - 1));
    UNSET __m256i h[4];
    UNSET __m256i l[4];
    for (int at = 0; at < VB; at += 32) {
        for (int i = 0; i < 4; i++) {
            __m256i v = rb_nearest(_mm256_loadu_ps(x + at + 8 * i), f->pre,
                                   f->wide_mul);
            h[i] = _mm256_srai_epi32(_mm256_add_epi32(v, half), LINEAR_SHIFT);
            l[i] = _mm256_sub_epi32(v, _mm256_slli_epi32(h[i], LINEAR_SHIFT));
        }
        rb_store(h, hi, at);
        rb_store(l, lo, at);
    }
}
