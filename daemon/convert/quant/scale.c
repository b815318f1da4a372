/* scale.c - AVX2 and portable forms give the same bits: both divide, round to
 * nearest even and clamp in fp32. */
#include <math.h>

#include "base/half.h"
#include "base/isa.h"
#include "convert/quant.h"

#if defined(ISA_FOR_V3)
#include <immintrin.h>

/* Whole eights of n: the largest magnitude to *m; true when all are finite. */
ISA_FOR_V3 static bool peak_v3(const float *w, size_t n, float *m)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 top = _mm256_set1_ps(INFINITY);
    __m256 acc = _mm256_setzero_ps();
    __m256 ok = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    for (size_t i = 0; i + 8 <= n; i += 8) {
        __m256 a = _mm256_andnot_ps(sign, _mm256_loadu_ps(w + i));
        acc = _mm256_max_ps(acc, a);
        ok = _mm256_and_ps(ok, _mm256_cmp_ps(a, top, _CMP_LT_OQ));
    }
    float lane[8];
    _mm256_storeu_ps(lane, acc);
    for (size_t j = 0; j < 8; j++) {
        *m = lane[j] > *m ? lane[j] : *m;
    }
    return _mm256_movemask_ps(ok) == 0xff;
}

/* n: a multiple of 32. */
ISA_FOR_V3 static void round_v3(const float *w, size_t n, float s, int levels,
                                int8_t *q)
{
    __m256 d = _mm256_set1_ps(s);
    __m256i hi = _mm256_set1_epi8((char)levels);
    __m256i lo = _mm256_set1_epi8((char)-levels);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (size_t i = 0; i < n; i += 32) {
        __m256i v[4];
        for (size_t j = 0; j < 4; j++) {
            v[j] = _mm256_cvtps_epi32(
                _mm256_div_ps(_mm256_loadu_ps(w + i + 8 * j), d));
        }
        __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]),
                                       _mm256_packs_epi32(v[2], v[3]));
        b = _mm256_permutevar8x32_epi32(b, order);
        b = _mm256_max_epi8(_mm256_min_epi8(b, hi), lo);
        _mm256_storeu_si256((__m256i *)(void *)(q + i), b);
    }
}
#endif

float quant_peak(const float *w, size_t n)
{
    float m = 0;
    bool bad = false;
    size_t i = 0;
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        bad = !peak_v3(w, n, &m);
        i = n & ~(size_t)7;
    }
#endif
    for (; i < n; i++) {
        float a = fabsf(w[i]);
        m = a > m ? a : m;
        bad = bad || !(a < INFINITY);
    }
    return bad ? NAN : m;
}

uint16_t quant_scale(float peak, int levels)
{
    if (!(peak > 0)) {
        return half_from_float(1.0f);
    }
    uint16_t s = half_from_float(peak / (float)levels);
    /* Positive halves order as integers: the next one is bits + 1. */
    while (s < 0x7c00 && half_to_float(s) * ((float)levels + 0.5f) < peak) {
        s++;
    }
    return s;
}

void quant_round(const float *w, size_t n, uint16_t scale, int levels,
                 int8_t *q)
{
    float s = half_to_float(scale);
    float top = (float)levels;
    size_t i = 0;
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        i = n & ~(size_t)31;
        round_v3(w, i, s, levels, q);
    }
#endif
    for (; i < n; i++) {
        float v = rintf(w[i] / s);
        v = v > top ? top : v < -top ? -top : v;
        q[i] = (int8_t)v;
    }
}
