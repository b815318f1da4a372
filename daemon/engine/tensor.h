/* tensor.h - a dense array of numbers in the caller's memory, row-major. */
#pragma once

#include "mil/mil.h"

struct tensor {
    const char *name;     /* borrowed */
    enum mil_dtype dtype; /* MIL_FP32, MIL_FP16 (bit patterns), MIL_INT32,
                             MIL_BOOL (bytes) */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    void *data; /* who owns it is said where it is used */
};
