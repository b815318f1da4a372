/* kernel_avx512.c - the "avx512" set of inner loops. */
#include "engine/cpu/kernel_impl.h"
#include "engine/cpu/simd.h"

const struct kernels kernels_avx512 = {
    .name = "avx512",
};
