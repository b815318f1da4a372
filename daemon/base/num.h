/* num.h - overflow-checked size arithmetic. Each returns true on success and
 * leaves *ret untouched on overflow. */
#pragma once

#include "base/base.h"

CHECKED static inline bool num_add(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r = 0;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *ret = r;
    return true;
}

CHECKED static inline bool num_mul(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r = 0;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *ret = r;
    return true;
}

/* Round a up to a multiple of the power of two `align`. */
CHECKED static inline bool num_align(uint64_t a, uint64_t align, uint64_t *ret)
{
    uint64_t r = 0;
    if (!num_add(a, align - 1, &r)) {
        return false;
    }
    *ret = r & ~(align - 1);
    return true;
}

static inline size_t num_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t num_max(size_t a, size_t b)
{
    return a > b ? a : b;
}
