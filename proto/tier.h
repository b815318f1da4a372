/* tier.h - one model for several contexts: NAME for the largest, NAME-2k for
 * one of 2048 positions, NAME-1000 for one of 1000. What both executables
 * know of it. */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

struct tiers {
    uint32_t n;
    uint32_t context[TIERS_MAX]; /* the largest first */
};

/* "4096" or "8192,2048,1024": at most TIERS_MAX numbers from 1 to
 * MODEL_CONTEXT_MAX, in any order, none twice. Errors: INVALID. */
CHECKED int tiers_parse(const char *text, struct tiers *ret, struct err *e);

#define TIER_SUFFIX_MAX 16u
/* "-2k": what stands behind the name, or the folder, of a smaller one. */
void tier_suffix(uint32_t context, char out[TIER_SUFFIX_MAX]);
