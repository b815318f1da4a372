/* kernel_neon.c - the "neon" set of inner loops. */
#include "engine/cpu/attend_impl.h"
#include "engine/cpu/kernel_impl.h"
#include "engine/cpu/simd.h"

const struct kernels kernels_neon = {
    .name = "neon",
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
};
