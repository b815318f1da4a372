/* dpwssd_evex.h - vpdpwssd in the encoding of AVX-512, for machines that have
 * that and no AVX-VNNI. The header comes first: clang's defines the function of
 * the name that is replaced. Included before anything else. */
#pragma once

#include <immintrin.h>

#define _mm256_dpwssd_avx_epi32 _mm256_dpwssd_epi32
