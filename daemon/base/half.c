#include "base/half.h"

/* Plain loops: the compiler vectorises the F16C conversions where it has them,
 * and the portable form is only met on machines that are not x86-64-v3. */

void half_to_floats(const uint16_t *src, float *dst, size_t n)
{
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(h));
    }
#endif
    for (; i < n; i++) {
        dst[i] = half_to_float(src[i]);
    }
}

void half_from_floats(const float *src, uint16_t *dst, size_t n)
{
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i),
                                    _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), h);
    }
#endif
    for (; i < n; i++) {
        dst[i] = half_from_float(src[i]);
    }
}

void half_round_floats(float *x, size_t n)
{
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i h =
            _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(h));
    }
#endif
    for (; i < n; i++) {
        x[i] = half_round(x[i]);
    }
}
