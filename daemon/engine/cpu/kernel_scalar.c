/* kernel_scalar.c - the "scalar" set of inner loops. */
#include "engine/cpu/kernel_impl.h"
#include "engine/cpu/simd.h"

const struct kernels kernels_scalar = {
    .name = "scalar",
};
