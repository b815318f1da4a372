/* layer.h - a layer for bundles that tests make: nothing but its sizes. */
#pragma once

#include "model/layer.h"

#define UNIT_LAYER(heads, dim, ff)                                        \
    {                                                                     \
        .rotates = true, .n_heads = (heads), .n_kv = (heads),             \
        .d_head = (dim), .pre_norm = true, .gated = true, .d_ff = (ff),   \
        .residual_scale = 1, .out_scale = 1                               \
    }
