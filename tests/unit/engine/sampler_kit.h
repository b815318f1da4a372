/* sampler_kit.h - what the tests of the sampler share. */
#pragma once

#include "../unit.h"
#include "engine/sampler.h"

static inline struct sampler *sampler_of(uint32_t vocab)
{
    struct sampler *s = NULL;
    struct err e;
    unit_ok(sampler_new(vocab, &s, &e), &e);
    return s;
}

/* A plain generator for test data, apart from the one under test. */
static inline uint32_t noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
