/* kernel_avx2.c - the "avx2" set of inner loops. */
#include "engine/cpu/kernel_impl.h"
#include "engine/cpu/simd.h"

const struct kernels kernels_avx2 = {
    .name = "avx2",
};
