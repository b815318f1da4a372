/* The table of operations: their operands in the order in which prep and run
 * know them by index ('?' optional, '*' tuple, '%' may be read in place). */
#include <string.h>

#include "engine/cpu/ops/ops.h"

#define UNARY(type, sub)                        \
    {                                           \
        type, {"x"}, unary_prep, unary_run, sub \
    }
#define BINARY(type, sub)                              \
    {                                                  \
        type, {"x", "y"}, binary_prep, binary_run, sub \
    }
#define REDUCE(type, sub)                                                \
    {                                                                    \
        type, {"x", "?axes", "?keep_dims"}, reduce_prep, reduce_run, sub \
    }

#define CUT_OPTIONS "?stride", "?begin_mask", "?end_mask", "?squeeze_mask"

/* clang-format off */
static const struct op_def ops[] = {
    /* elementwise */
    UNARY("abs", UN_ABS),
    UNARY("square", UN_SQUARE),
    UNARY("sqrt", UN_SQRT),
    {"rsqrt", {"x", "?epsilon"}, unary_prep, unary_run, UN_RSQRT},
    {"inverse", {"x", "?epsilon"}, unary_prep, unary_run, UN_INVERSE},
    {"log", {"x", "?epsilon"}, unary_prep, unary_run, UN_LOG},
    UNARY("exp", UN_EXP),
    UNARY("exp2", UN_EXP2),
    UNARY("sin", UN_SIN),
    UNARY("cos", UN_COS),
    UNARY("tan", UN_TAN),
    UNARY("tanh", UN_TANH),
    UNARY("erf", UN_ERF),
    UNARY("sigmoid", UN_SIGMOID),
    UNARY("silu", UN_SILU),
    {"gelu", {"x", "?mode"}, unary_prep, unary_run, UN_GELU},
    UNARY("relu", UN_RELU),
    UNARY("relu6", UN_RELU6),
    {"leaky_relu", {"x", "alpha"}, unary_prep, unary_run, UN_LEAKY_RELU},
    {"elu", {"x", "alpha"}, unary_prep, unary_run, UN_ELU},
    {"sigmoid_hard", {"x", "alpha", "beta"}, unary_prep, unary_run, UN_HARD_SIGMOID},
    UNARY("softplus", UN_SOFTPLUS),
    UNARY("softsign", UN_SOFTSIGN),
    {"clip", {"x", "alpha", "beta"}, unary_prep, unary_run, UN_CLIP},
    UNARY("floor", UN_FLOOR),
    UNARY("ceil", UN_CEIL),
    UNARY("round", UN_ROUND),
    UNARY("sign", UN_SIGN),
    UNARY("logical_not", UN_NOT),
    BINARY("add", BIN_ADD),
    BINARY("sub", BIN_SUB),
    BINARY("mul", BIN_MUL),
    BINARY("real_div", BIN_DIV),
    BINARY("maximum", BIN_MAX),
    BINARY("minimum", BIN_MIN),
    BINARY("pow", BIN_POW),
    BINARY("floor_div", BIN_FLOOR_DIV),
    BINARY("mod", BIN_MOD),
    BINARY("greater", BIN_GREATER),
    BINARY("greater_equal", BIN_GREATER_EQUAL),
    BINARY("less", BIN_LESS),
    BINARY("less_equal", BIN_LESS_EQUAL),
    BINARY("equal", BIN_EQUAL),
    BINARY("not_equal", BIN_NOT_EQUAL),
    BINARY("logical_and", BIN_AND),
    BINARY("logical_or", BIN_OR),
    BINARY("logical_xor", BIN_XOR),
    {"select", {"cond", "a", "b"}, select_prep, select_run, 0},
    {"cast", {"x", "dtype"}, cast_prep, cast_run, 0},

    /* reductions and normalisations */
    REDUCE("reduce_sum", RED_SUM),
    REDUCE("reduce_mean", RED_MEAN),
    REDUCE("reduce_max", RED_MAX),
    REDUCE("reduce_min", RED_MIN),
    REDUCE("reduce_prod", RED_PROD),
    REDUCE("reduce_sum_square", RED_SUM_SQUARE),
    REDUCE("reduce_l1_norm", RED_L1),
    REDUCE("reduce_l2_norm", RED_L2),
    REDUCE("reduce_log_sum", RED_LOG_SUM),
    REDUCE("reduce_log_sum_exp", RED_LOG_SUM_EXP),
    {"reduce_argmax", {"x", "?axis", "?keep_dims", "?output_dtype"},
     reduce_prep, reduce_run, RED_ARGMAX},
    {"reduce_argmin", {"x", "?axis", "?keep_dims", "?output_dtype"},
     reduce_prep, reduce_run, RED_ARGMIN},
    {"softmax", {"x", "?axis"}, softmax_prep, softmax_run, 0},
    {"cumsum", {"x", "?axis", "?exclusive", "?reverse"}, cumsum_prep, cumsum_run, 0},
    {"layer_norm", {"x", "?axes", "?gamma", "?beta", "?epsilon"},
     layer_norm_prep, layer_norm_run, 0},
    {"batch_norm", {"x", "mean", "variance", "?gamma", "?beta", "?epsilon"},
     batch_norm_prep, batch_norm_run, 0},
    {"instance_norm", {"x", "?gamma", "?beta", "?epsilon"},
     instance_norm_prep, instance_norm_run, 0},
    {"l2_norm", {"x", "?epsilon"}, l2_norm_prep, l2_norm_run, 0},

    /* products */
    {"conv", {"x", "%weight", "?bias", "?strides", "?pad_type", "?pad",
              "?dilations", "?groups"}, conv_prep, conv_run, 0},
    {"linear", {"x", "%weight", "?bias"}, dense_prep, dense_run, 0},
    {"matmul", {"x", "%y", "?transpose_x", "?transpose_y"},
     matmul_prep, matmul_run, 0},
    {"scaled_dot_product_attention", {"query", "key", "value", "?attn_mask"},
     sdpa_prep, sdpa_run, 0},
    {"einsum", {"*values", "equation"}, einsum_prep, einsum_run, 0},
    {"quantize", {"input", "scale", "?zero_point", "?axis", "output_dtype"},
     quantize_prep, quantize_run, 0},
    {"dequantize", {"input", "scale", "?zero_point", "?axis"},
     dequantize_prep, dequantize_run, 0},

    /* views and movement */
    {"identity", {"x"}, identity_prep, NULL, 0},
    {"reshape", {"x", "shape"}, reshape_prep, NULL, 0},
    {"reshape_like", {"x", "*ref_tensors", "*begins", "*ends", "*end_masks"},
     reshape_like_prep, NULL, 0},
    {"expand_dims", {"x", "axes"}, expand_dims_prep, NULL, 0},
    {"squeeze", {"x", "?axes"}, squeeze_prep, NULL, 0},
    {"shape", {"x"}, shape_prep, NULL, 0},
    {"transpose", {"x", "perm"}, transpose_prep, transpose_run, 0},
    {"concat", {"*values", "axis", "?interleave"}, concat_prep, concat_run, 0},
    {"stack", {"*values", "axis"}, stack_prep, stack_run, 0},
    {"split", {"x", "axis", "?num_splits", "?split_sizes"}, split_prep, split_run, 0},
    {"slice_by_index", {"x", "begin", "end", CUT_OPTIONS},
     slice_index_prep, slice_index_run, 0},
    {"slice_by_size", {"x", "begin", "size"}, slice_size_prep, slice_size_run, 0},
    {"slice_update", {"x", "update", "begin", "end", CUT_OPTIONS},
     slice_update_prep, slice_update_run, 0},
    {"gather", {"%x", "indices", "?axis", "?batch_dims", "?validate_indices"},
     gather_prep, gather_run, 0},
    {"gather_along_axis", {"x", "indices", "?axis", "?validate_indices"},
     gather_along_prep, gather_along_run, 0},
    {"gather_nd", {"x", "indices", "?batch_dims", "?validate_indices"},
     gather_nd_prep, gather_nd_run, 0},
    {"scatter", {"data", "indices", "updates", "?axis", "?mode", "?validate_indices"},
     scatter_prep, scatter_run, 0},
    {"scatter_along_axis", {"data", "indices", "updates", "?axis", "?mode",
                            "?validate_indices"}, scatter_along_prep, scatter_along_run, 0},
    {"scatter_nd", {"data", "indices", "updates", "?mode", "?validate_indices"},
     scatter_nd_prep, scatter_nd_run, 0},
    {"tile", {"x", "reps"}, tile_prep, tile_run, 0},
    {"pad", {"x", "pad", "?mode", "?constant_val"}, pad_prep, pad_run, 0},
    {"fill", {"shape", "?value"}, fill_prep, fill_run, 0},
    {"fill_like", {"ref_tensor", "?value"}, fill_like_prep, fill_like_run, 0},
    {"range_1d", {"start", "end", "step"}, range_prep, range_run, 0},
    {"one_hot", {"indices", "one_hot_vector_size", "?axis", "?on_value",
                 "?off_value"}, one_hot_prep, one_hot_run, 0},
    {"band_part", {"x", "?lower", "?upper"}, band_part_prep, band_part_run, 0},
    {"reverse", {"x", "?axes"}, reverse_prep, reverse_run, 0},
    {"sliding_windows", {"x", "axis", "size", "?stride"},
     sliding_windows_prep, sliding_windows_run, 0},
    {"non_zero", {"x"}, non_zero_prep, non_zero_run, 0},
    {"topk", {"x", "?k", "?axis", "?ascending", "?sort", "?return_indices",
              "?output_indices_dtype"}, topk_prep, topk_run, 0},
    {"argsort", {"x", "?axis", "?ascending"}, argsort_prep, argsort_run, 0},

    /* control flow */
    {"cond", {"pred"}, control_prep, cond_run, CONTROL_COND},
    {"while_loop", {"*loop_vars"}, control_prep, while_run, CONTROL_WHILE},

    /* states */
    {"read_state", {"input"}, read_state_prep, read_state_run, 0},
    {"write_state", {"input", "data"}, write_state_prep, write_state_run, 0},
};

/* What these types stand for when their operands are integers. */
static const struct op_def ints[] = {
    {"matmul", {"x", "y", "?transpose_x", "?transpose_y"},
     int_product_prep, int_product_run, 0},
    {"linear", {"x", "weight", "?bias"}, int_product_prep, int_product_run, 1},
};

static const struct op_def fused[] = {
    {"read_state_in_place", {"input"}, read_state_prep, read_state_run, 1},
    {"store_rows", {"mask", "new"}, store_rows_prep, store_rows_run, 0},
    {"attention", {"q", "k", "v", "mask"}, attention_prep, attention_run, 0},
    {"experts", {"x", "by", "%down", "%p", "?%q", "?p_bias", "?q_bias"},
     experts_prep, experts_run, 0},
    {"rank", {"x"}, rank_prep, rank_run, 0},
};
/* clang-format on */

static const struct op_def *find(const struct op_def *d, size_t n,
                                 const char *type)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(d[i].type, type) == 0) {
            return &d[i];
        }
    }
    return NULL;
}

const struct op_def *op_find(const char *type)
{
    return find(ops, countof(ops), type);
}

const struct op_def *op_of_ints(const char *type)
{
    return find(ints, countof(ints), type);
}

const struct op_def *op_fused(const char *type)
{
    return find(fused, countof(fused), type);
}
