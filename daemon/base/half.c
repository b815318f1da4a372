/* half.c - arrays of halves: F16C where the machine has it, else the portable
 * form of half.h, one at a time. */
#include "base/half.h"

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Whole eights of n; returns how many. */
ISA_FOR_V3 static size_t to_floats_v3(const uint16_t *src, float *dst,
                                      size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(h));
    }
    return i;
}

ISA_FOR_V3 static size_t from_floats_v3(const float *src, uint16_t *dst,
                                        size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i),
                                    _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
    }
    return i;
}

ISA_FOR_V3 static size_t round_v3(float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h =
            _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(h));
    }
    return i;
}

#define EIGHTS(call) (isa_has(ISA_V3) ? (call) : 0)
#else
#define EIGHTS(call) 0
#endif

void half_to_floats(const uint16_t *src, float *dst, size_t n)
{
    for (size_t i = EIGHTS(to_floats_v3(src, dst, n)); i < n; i++) {
        dst[i] = half_to_float(src[i]);
    }
}

void half_from_floats(const float *src, uint16_t *dst, size_t n)
{
    for (size_t i = EIGHTS(from_floats_v3(src, dst, n)); i < n; i++) {
        dst[i] = half_from_float(src[i]);
    }
}

void half_round_floats(float *x, size_t n)
{
    for (size_t i = EIGHTS(round_v3(x, n)); i < n; i++) {
        x[i] = half_round(x[i]);
    }
}
