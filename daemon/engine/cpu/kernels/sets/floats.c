/* floats.c - one table of floats.h. Compiled once for each level with its
 * flags; FLOATS is the table's name. */
#include <string.h>

#include "base/fmath.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/products/gemm_impl.h"
#include "engine/cpu/kernels/simd.h"
#include "engine/cpu/kernels/vmath_impl.h"

static void add_scaled(float *o, float a, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + V8_LANES <= n; i += V8_LANES) {
        v8_store(o + i, v8_fma(v8_set(a), v8_load(x + i), v8_load(o + i)));
    }
    for (; i < n; i++) {
        o[i] = fmath_fmaf(a, x[i], o[i]);
    }
}

static void multiply(float *o, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        o[i] = o[i] * x[i];
    }
}

static void scale(float *o, const float *x, float s, const float *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        o[i] = w != NULL ? x[i] * s * w[i] : x[i] * s;
    }
}

static void rotate(float *to, const float *x, const float *c, const float *s,
                   size_t half)
{
    const float *y = x + half;
    size_t i = 0;
    for (; i + V8_LANES <= half; i += V8_LANES) {
        v8 a = v8_load(x + i);
        v8 b = v8_load(y + i);
        v8 cos = v8_load(c + i);
        v8 sin = v8_load(s + i);
        v8_store(to + i, v8_sub(v8_mul(a, cos), v8_mul(b, sin)));
        v8_store(to + half + i, v8_add(v8_mul(b, cos), v8_mul(a, sin)));
    }
    for (; i < half; i++) {
        float a = x[i];
        float b = y[i];
        to[i] = a * c[i] - b * s[i];
        to[half + i] = b * c[i] + a * s[i];
    }
}

static void look_up(float *o, const uint8_t *index, const float table[16],
                    size_t n)
{
    size_t i = 0;
#if SIMD_AVX2
    const __m256 low = _mm256_loadu_ps(table);
    const __m256 high = _mm256_loadu_ps(table + 8);
    const __m256i places = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for (; i + 8 <= n; i += 8) { /* eight indices are four whole bytes */
        int32_t word = 0;
        memcpy(&word, index + i / 2, sizeof(word));
        __m256i k = _mm256_srlv_epi32(_mm256_set1_epi32(word), places);
        __m256 half = _mm256_castsi256_ps(_mm256_slli_epi32(k, 28));
        __m256 x = _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, k),
                                    _mm256_permutevar8x32_ps(high, k),
                                    half); /* by bit 3 */
        _mm256_storeu_ps(o + i, x);
    }
#endif
    for (; i < n; i++) {
        o[i] = table[(index[i / 2] >> (i % 2 * 4)) & 15];
    }
}

extern const struct floats FLOATS;
const struct floats FLOATS = {
#if SIMD_AVX2
    .name = "avx2",
#elif SIMD_NEON
    .name = "neon",
#else
    .name = "scalar",
#endif
    .exp = floats_exp,
    .sigmoid = floats_sigmoid,
    .silu = floats_silu,
    .tanh = floats_tanh,
    .gelu_tanh = floats_gelu_tanh,
    .gelu_sigmoid = floats_gelu_sigmoid,
    .softmax = floats_softmax,
    .sum = floats_sum,
    .sum_square = floats_sum_square,
    .max = floats_max,
    .gemm = floats_gemm,
    .chain = floats_chain,
    .add_scaled = add_scaled,
    .multiply = multiply,
    .scale = scale,
    .rotate = rotate,
    .look_up = look_up,
};
