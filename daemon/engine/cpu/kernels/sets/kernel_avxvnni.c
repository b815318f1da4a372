/* kernel_avxvnni.c - the "avxvnni" set: AVX2's loops, with the dot product in
 * one instruction (vpdpwssd in the VEX encoding; client processors of Intel's).
 */
#define KERNELS        kernels_avxvnni
#define NAME           "avxvnni"
#define DOT(acc, w, x) _mm256_dpwssd_avx_epi32(acc, w, x)

#include "engine/cpu/kernels/sets/kernel_256.h"
