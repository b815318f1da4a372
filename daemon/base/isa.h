/* isa.h - instructions that not every machine of a kind has.
 *
 * The build is for the plainest machine (x86-64, armv8-a). A function or a file
 * that is compiled for more is only entered after a look here. */
#pragma once

#include "base/base.h"

enum isa {
    ISA_V3 = 1,      /* all of x86-64-v3: AVX2, FMA, F16C, BMI ... */
    ISA_AVX512 = 2,  /* F, BW, VL and VNNI, on top of V3 */
    ISA_AVXVNNI = 4, /* on top of V3 */
    ISA_SHA = 8,
};

/* Has the processor all of `which`, and does the system save its registers?
 * Never on machines other than x86-64. Any thread. */
bool isa_has(unsigned which);

/* Before a function that uses AVX2, FMA and F16C, is entered after
 * isa_has(ISA_V3), and has a name that ends in _v3 (tests/lint/isa.py). */
#if defined(__x86_64__)
#define ISA_FOR_V3 __attribute__((target("avx2,fma,f16c")))
#endif
