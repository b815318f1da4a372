/* isa.h - which optional instructions the processor has.
 *
 * The build is for the oldest machines (x86-64, armv8-a). A function or file
 * that is compiled for newer ones may only be called after isa_has. */
#pragma once

#include "base/base.h"

enum isa {
    ISA_V3 = 1,      /* all of x86-64-v3: AVX2, FMA, F16C, BMI ... */
    ISA_AVX512 = 2,  /* F, BW, DQ, VL and VNNI, on top of V3 */
    ISA_AVXVNNI = 4, /* on top of V3 */
    ISA_SHA = 8,
    ISA_DOTPROD = 16, /* arm64: FEAT_DotProd, on top of ARMv8.2 */
    ISA_I8MM = 32,    /* arm64: FEAT_I8MM, the same */
    ISA_INTEL = 64,   /* no instruction: who made it; its caches differ */
    ISA_VBMI = 128,   /* AVX-512's VBMI, on top of AVX512 */
    ISA_AMX = 256, /* AMX-TILE and AMX-INT8, on top of VBMI; the process may use
                      the tiles (Linux) */
};

/* Has the processor all of `which`, and does the system save its registers?
 * isa_has(0) is true everywhere. Any thread. */
bool isa_has(unsigned which);

/* Put this before a function that uses AVX2, FMA and F16C. Its name must end in
 * _v3 (tests/lint/isa.py checks), and callers call isa_has(ISA_V3) first. */
#if defined(__x86_64__)
#define ISA_FOR_V3 __attribute__((target("avx2,fma,f16c")))
#endif
