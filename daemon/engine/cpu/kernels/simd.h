/* simd.h - eight floats at a time, one arithmetic on every machine.
 *
 * Every operation is one IEEE operation a lane; fma is rounded once in every
 * form. So those of AVX2 and NEON and the portable one (which compilers
 * vectorise as they like) give the same bits. For the files of sets/ and their
 * templates: elsewhere nothing is compiled for more than the plainest machine.
 */
#pragma once

#include "base/fmath.h"
#include "base/half.h"

/* SIMD_FORCE_SCALAR: the portable form, whatever the machine (kernel.h). */
#if !defined(SIMD_FORCE_SCALAR) && defined(__AVX2__) && defined(__FMA__) && \
    defined(__F16C__)
#define SIMD_AVX2 1
#include <immintrin.h>
#else
#define SIMD_AVX2 0
#endif
#if !defined(SIMD_FORCE_SCALAR) && defined(__aarch64__)
#define SIMD_NEON 1
#else
#define SIMD_NEON 0
#endif

#define V8_LANES 8

#if SIMD_AVX2

typedef __m256 v8;

static inline v8 v8_zero(void)
{
    return _mm256_setzero_ps();
}

static inline v8 v8_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline v8 v8_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void v8_store(float *p, v8 a)
{
    _mm256_storeu_ps(p, a);
}

static inline v8 v8_add(v8 a, v8 b)
{
    return _mm256_add_ps(a, b);
}

static inline v8 v8_sub(v8 a, v8 b)
{
    return _mm256_sub_ps(a, b);
}

static inline v8 v8_mul(v8 a, v8 b)
{
    return _mm256_mul_ps(a, b);
}

static inline v8 v8_div(v8 a, v8 b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c, rounded once */
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* a > b ? a : b, so b when either is NaN */
static inline v8 v8_max(v8 a, v8 b)
{
    return _mm256_max_ps(a, b);
}

static inline v8 v8_min(v8 a, v8 b)
{
    return _mm256_min_ps(a, b);
}

/* a < b ? x : y */
static inline v8 v8_less(v8 a, v8 b, v8 x, v8 y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static inline v8 v8_abs(v8 a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

/* |a| with the sign of b */
static inline v8 v8_copysign(v8 a, v8 b)
{
    __m256 s = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(s, a), _mm256_and_ps(s, b));
}

static inline v8 v8_from_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline v8 v8_from_i8(const int8_t *p)
{
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}

/* Nearest binary16 and back. */
static inline v8 v8_round16(v8 a)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* p * 2^n for p near 1 and n = the integer in the low bits of `t` minus those
 * of `magic` (see vmath.c), in two factors so that results below 2^-126 are
 * rounded once and results above 2^128 become infinity. */
static inline v8 v8_scale2(v8 p, v8 t, v8 magic)
{
    __m256i n =
        _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(magic));
    __m256i half = _mm256_srai_epi32(n, 1);
    __m256i bias = _mm256_set1_epi32(127);
    __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i b = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(a));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(b));
}

/* Sum of the lanes: (0+4)+(2+6) + (1+5)+(3+7). */
static inline float v8_sum(v8 a)
{
    __m128 s =
        _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#elif SIMD_NEON

#include "engine/cpu/kernels/simd_neon.h"

#else

typedef struct {
    float l[V8_LANES];
} v8;

#define V8_EACH(i) for (int i = 0; i < V8_LANES; i++)

static inline v8 v8_set(float x)
{
    v8 r;
    V8_EACH(i)
    {
        r.l[i] = x;
    }
    return r;
}

static inline v8 v8_zero(void)
{
    return v8_set(0.0f);
}

static inline v8 v8_load(const float *p)
{
    v8 r;
    V8_EACH(i) /* memcpy would be a call under ASan */
    {
        r.l[i] = p[i];
    }
    return r;
}

static inline void v8_store(float *p, v8 a)
{
    V8_EACH(i)
    {
        p[i] = a.l[i];
    }
}

#define V8_BINARY(name, expr)              \
    static inline v8 v8_##name(v8 a, v8 b) \
    {                                      \
        V8_EACH(i)                         \
        {                                  \
            a.l[i] = (expr);               \
        }                                  \
        return a;                          \
    }

V8_BINARY(add, a.l[i] + b.l[i])
V8_BINARY(sub, a.l[i] - b.l[i])
V8_BINARY(mul, a.l[i] * b.l[i])
V8_BINARY(div, a.l[i] / b.l[i])
V8_BINARY(max, a.l[i] > b.l[i] ? a.l[i] : b.l[i])
V8_BINARY(min, a.l[i] < b.l[i] ? a.l[i] : b.l[i])
V8_BINARY(copysign, copysignf(a.l[i], b.l[i]))

/* Without the instruction it is a long piece of code, which kernels would have
 * some thousand times. */
__attribute__((noinline, unused)) static v8 v8_fma(v8 a, v8 b, v8 c)
{
    V8_EACH(i)
    {
        c.l[i] = fmath_fmaf(a.l[i], b.l[i], c.l[i]);
    }
    return c;
}

static inline v8 v8_less(v8 a, v8 b, v8 x, v8 y)
{
    V8_EACH(i)
    {
        y.l[i] = a.l[i] < b.l[i] ? x.l[i] : y.l[i];
    }
    return y;
}

static inline v8 v8_abs(v8 a)
{
    V8_EACH(i)
    {
        a.l[i] = fabsf(a.l[i]);
    }
    return a;
}

__attribute__((noinline, unused)) static v8 v8_from_f16(const uint16_t *p)
{
    v8 r;
    V8_EACH(i)
    {
        r.l[i] = half_to_float(p[i]);
    }
    return r;
}

static inline v8 v8_from_i8(const int8_t *p)
{
    v8 r;
    V8_EACH(i)
    {
        r.l[i] = (float)p[i];
    }
    return r;
}

static inline v8 v8_round16(v8 a)
{
    V8_EACH(i)
    {
        a.l[i] = half_round(a.l[i]);
    }
    return a;
}

static inline v8 v8_scale2(v8 p, v8 t, v8 magic)
{
    V8_EACH(i)
    {
        uint32_t n = half_bits(t.l[i]) - half_bits(magic.l[i]);
        uint32_t half = (n >> 1) | (n & 0x80000000u);
        p.l[i] *= half_float((half + 127u) << 23);
        p.l[i] *= half_float((n - half + 127u) << 23);
    }
    return p;
}

static inline float v8_sum(v8 a)
{
    float s0 = (a.l[0] + a.l[4]) + (a.l[2] + a.l[6]);
    float s1 = (a.l[1] + a.l[5]) + (a.l[3] + a.l[7]);
    return s0 + s1;
}

#endif

/* The canonical reduction has 16 lanes: element k goes to lane k % 16, in
 * order; lanes 0..7 are held in `a`, 8..15 in `b`. */
static inline float v16_sum(v8 a, v8 b)
{
    return v8_sum(v8_add(a, b));
}
