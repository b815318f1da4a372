/* vmath.c - see vmath.h: the loops are in the table of this machine. */
#include "engine/cpu/kernels/vmath.h"

#include "engine/cpu/kernels/floats.h"

#define MAP(name)                                         \
    void vmath_##name(float *o, const float *x, size_t n) \
    {                                                     \
        floats()->name(o, x, n);                          \
    }

MAP(exp)
MAP(sigmoid)
MAP(silu)
MAP(tanh)
MAP(gelu_tanh)
MAP(gelu_sigmoid)
MAP(softmax)

float vmath_sum(const float *x, size_t n)
{
    return floats()->sum(x, n);
}

float vmath_sum_square(const float *x, size_t n)
{
    return floats()->sum_square(x, n);
}

float vmath_max(const float *x, size_t n)
{
    return floats()->max(x, n);
}
