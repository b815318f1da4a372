/* kernel_avx2.c - the "avx2" set. */
#define KERNELS        kernels_avx2
#define NAME           "avx2"
#define DOT(acc, w, x) _mm256_add_epi32(acc, _mm256_madd_epi16(w, x))

#include "engine/cpu/kernels/sets/kernel_256.h"
