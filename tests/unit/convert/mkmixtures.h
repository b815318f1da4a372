/* mkmixtures.h - gemma4 with experts beside its feed-forward: gate and up in one
 * tensor, and in two. */
#pragma once

#include "mkfamilies.h"

enum { EXPERTS = 6, TOP = 2, WIDE = 10 };

#define BOTH                                          \
    LAYER("ffn_gate_inp.weight", D, EXPERTS),         \
        LAYER("ffn_gate_inp.scale", D, 0),            \
        LAYER("ffn_down_exps.weight", WIDE, EXPERTS *D), \
        LAYER("ffn_down_exps.scale", EXPERTS, 0),     \
        LAYER("pre_ffw_norm_2.weight", D, 0),         \
        LAYER("post_ffw_norm_1.weight", D, 0),        \
        LAYER("post_ffw_norm_2.weight", D, 0)
static const struct mk_row fused_rows[] = {
    ENDS, QKVO, MLP, PRE, POST, HEAD_NORMS, BOTH,
    LAYER("ffn_gate_up_exps.weight", D, 2 * EXPERTS *WIDE)};
static const struct mk_row split_rows[] = {
    ENDS, QKVO, MLP, PRE, POST, HEAD_NORMS, BOTH,
    LAYER("ffn_gate_exps.weight", D, EXPERTS *WIDE),
    LAYER("ffn_up_exps.weight", D, EXPERTS *WIDE)};
static const uint32_t kinds[] = {1, 0};
#define ITEMS                                                               \
    U("attention.key_length", 8), U("attention.value_length", 8),           \
        U("attention.key_length_swa", 8), U("rope.dimension_count", 8),     \
        U("attention.sliding_window", 24),                                  \
        BS("attention.sliding_window_pattern", 2, kinds)
static const struct mk_item items[] = {
    ITEMS, U("expert_count", EXPERTS), U("expert_used_count", TOP),
    U("expert_feed_forward_length", WIDE)};
static const struct mk fused = MODEL("gemma4", 2, fused_rows, items);
static const struct mk split = MODEL("gemma4", 2, split_rows, items);
