/* kernel.h - the inner loops that exist once for each instruction set.
 *
 * Every set gives the same bits; which one runs is chosen when a model is
 * opened. "scalar" is plain C, the reference, and runs everywhere; "avx2" wants
 * x86-64-v3, "avxvnni" AVX-VNNI besides, "avx512" F, BW, DQ, VL and VNNI, "amx"
 * VBMI, AMX-TILE and AMX-INT8 besides; "neon" is arm64, "neon_dot" wants
 * FEAT_DotProd besides, "neon_i8mm" FEAT_I8MM.
 */
#pragma once

#include "base/base.h"

struct kernels;

/* By name; NULL: the best this machine runs. Returns NULL when the name is
 * unknown or the machine or build does not have it. */
const struct kernels *kernels_find(const char *name);
/* The i-th set that this machine runs, best first; NULL after the last. */
const struct kernels *kernels_each(size_t i);
const char *kernels_name(const struct kernels *k);
