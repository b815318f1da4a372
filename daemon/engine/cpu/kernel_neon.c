/* kernel_neon.c - the "neon" set of inner loops. */
#include "engine/cpu/kernel_impl.h"
#include "engine/cpu/simd.h"

const struct kernels kernels_neon = {
    .name = "neon",
};
