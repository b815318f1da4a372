/* vmath_impl.h - the loops of vmath.h, part of the table of floats.h.
 *
 * exp: simd_exp.h.
 * tanh: a polynomial fitted to (tanh x / x - 1) / x^2 below 0.6, and
 * 1 - 2 / (exp 2x + 1) above. The rest is built from these two.
 *
 * A tail of fewer than 8 elements runs through the same vector code in a
 * padded copy, so that no element is computed in a second way. */
#pragma once

#include "engine/cpu/kernels/simd_exp.h"

static v8 sigmoid8(v8 x)
{
    v8 one = v8_set(1.0f);
    v8 e = v8_exp(v8_sub(v8_zero(), x));
    return v8_div(one, v8_add(one, e));
}

static v8 silu8(v8 x)
{
    v8 e = v8_exp(v8_sub(v8_zero(), x));
    return v8_div(x, v8_add(v8_set(1.0f), e));
}

static v8 tanh8(v8 x)
{
    v8 a = v8_abs(x);
    v8 z = v8_mul(x, x);
    v8 p = v8_set(0.00221836281f);
    p = v8_fma(p, z, v8_set(-0.00827612586f));
    p = v8_fma(p, z, v8_set(0.0217475504f));
    p = v8_fma(p, z, v8_set(-0.0539565565f));
    p = v8_fma(p, z, v8_set(0.133332919f));
    p = v8_fma(p, z, v8_set(-0.333333331f));
    v8 near = v8_fma(v8_mul(p, z), x, x);
    v8 one = v8_set(1.0f);
    v8 e = v8_exp(v8_add(a, a));
    v8 far = v8_sub(one, v8_div(v8_set(2.0f), v8_add(e, one)));
    return v8_less(a, v8_set(0.6f), near, v8_copysign(far, x));
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
static v8 gelu_tanh8(v8 x)
{
    v8 half = v8_mul(v8_set(0.5f), x);
    v8 c = v8_mul(v8_set(0.044715f), v8_mul(x, x));
    v8 u = v8_mul(v8_set(0.797884560802865f), v8_fma(c, x, x));
    return v8_fma(half, tanh8(u), half);
}

static v8 gelu_sigmoid8(v8 x)
{
    return v8_mul(x, sigmoid8(v8_mul(v8_set(1.702f), x)));
}

#define MAP(name, f)                                      \
    static void floats_##name(float *o, const float *x,   \
                              size_t n)                   \
    {                                                     \
        size_t i = 0;                                     \
        for (; i + V8_LANES <= n; i += V8_LANES) {        \
            v8_store(o + i, f(v8_load(x + i)));           \
        }                                                 \
        if (i < n) {                                      \
            float t[V8_LANES] = {0};                      \
            memcpy(t, x + i, (n - i) * sizeof(*x));       \
            v8_store(t, f(v8_load(t)));                   \
            memcpy(o + i, t, (n - i) * sizeof(*o));       \
        }                                                 \
    }

MAP(exp, v8_exp)
MAP(sigmoid, sigmoid8)
MAP(silu, silu8)
MAP(tanh, tanh8)
MAP(gelu_tanh, gelu_tanh8)
MAP(gelu_sigmoid, gelu_sigmoid8)

static float floats_sum(const float *x, size_t n)
{
    v8 a = v8_zero();
    v8 b = v8_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a = v8_add(a, v8_load(x + i));
        b = v8_add(b, v8_load(x + i + 8));
    }
    if (i < n) {
        float t[16] = {0};
        memcpy(t, x + i, (n - i) * sizeof(*x));
        a = v8_add(a, v8_load(t));
        b = v8_add(b, v8_load(t + 8));
    }
    return v16_sum(a, b);
}

static float floats_sum_square(const float *x, size_t n)
{
    v8 a = v8_zero();
    v8 b = v8_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v8 p = v8_load(x + i);
        v8 q = v8_load(x + i + 8);
        a = v8_fma(p, p, a);
        b = v8_fma(q, q, b);
    }
    if (i < n) {
        float t[16] = {0};
        memcpy(t, x + i, (n - i) * sizeof(*x));
        v8 p = v8_load(t);
        v8 q = v8_load(t + 8);
        a = v8_fma(p, p, a);
        b = v8_fma(q, q, b);
    }
    return v16_sum(a, b);
}

static float floats_max(const float *x, size_t n)
{
    float r = -INFINITY;
    v8 m = v8_set(r);
    size_t i = 0;
    for (; i + V8_LANES <= n; i += V8_LANES) {
        m = v8_max(v8_load(x + i), m);
    }
    float t[V8_LANES];
    v8_store(t, m);
    for (size_t k = 0; k < V8_LANES; k++) {
        r = t[k] > r ? t[k] : r;
    }
    for (; i < n; i++) {
        r = x[i] > r ? x[i] : r;
    }
    return r;
}

static void floats_softmax(float *o, const float *x, size_t n)
{
    v8 m = v8_set(floats_max(x, n));
    size_t i = 0;
    for (; i + V8_LANES <= n; i += V8_LANES) {
        v8_store(o + i, v8_exp(v8_sub(v8_load(x + i), m)));
    }
    if (i < n) {
        float t[V8_LANES] = {0};
        memcpy(t, x + i, (n - i) * sizeof(*x));
        v8_store(t, v8_exp(v8_sub(v8_load(t), m)));
        memcpy(o + i, t, (n - i) * sizeof(*o));
    }
    float sum = floats_sum(o, n);
    for (i = 0; i < n; i++) {
        o[i] = o[i] / sum;
    }
}
