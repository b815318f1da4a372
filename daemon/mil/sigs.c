/* sigs.c - the table of op signatures (facts 5). Data, no code. */
#include <string.h>

#include "mil/sig.h"

#define BIT(t) ((uint64_t)1 << MIL_##t)

#define F   (BIT(FP16) | BIT(FP32))
#define I   BIT(INT32)
#define B   BIT(BOOL)
#define STR BIT(STRING)
#define N   (F | I)
#define NB  (N | B)
/* small integers: data movement from spec 8 on (infer.c holds the version) */
#define S8  (BIT(INT8) | BIT(UINT8))
#define SM  (S8 | BIT(INT16) | BIT(UINT16))
#define MOV (NB | SM)
#define GAT (N | SM)
#define POS (I | BIT(INT8) | BIT(INT16)) /* begin, end, size, shape */
#define IDX (I | SM)
#define SUB                                                           \
    (BIT(UINT1) | BIT(UINT2) | BIT(UINT3) | BIT(UINT4) | BIT(UINT6) | \
     BIT(UINT8))
#define Q (BIT(INT4) | BIT(UINT4) | S8) /* quantised weights */

/* operands: needed; with a default; absent by default; c: constant */
#define R(n, v, d)           \
    {                        \
        n, SIG_NEED, v, d, 0 \
    }
#define RC(n, v, d)                      \
    {                                    \
        n, SIG_NEED | SIG_CONST, v, d, 0 \
    }
#define D(n, v, d)              \
    {                           \
        n, SIG_DEFAULT, v, d, 0 \
    }
#define DC(n, v, d)                         \
    {                                       \
        n, SIG_DEFAULT | SIG_CONST, v, d, 0 \
    }
#define DCV(n, v, d, s)                     \
    {                                       \
        n, SIG_DEFAULT | SIG_CONST, v, d, s \
    } /* since s */
#define O(n, v, d)    \
    {                 \
        n, 0, v, d, 0 \
    }
#define OC(n, v, d)           \
    {                         \
        n, SIG_CONST, v, d, 0 \
    }
#define TUPLE(n, v, d)                   \
    {                                    \
        n, SIG_NEED | SIG_TUPLE, v, d, 0 \
    }
#define TUPLEC(n, v, d)                              \
    {                                                \
        n, SIG_NEED | SIG_TUPLE | SIG_CONST, v, d, 0 \
    }
#define STATE(n)                                     \
    {                                                \
        n, SIG_NEED | SIG_STATE, 0, F | BIT(INT8), 0 \
    }

#define LIST(...)                \
    (const struct sig_operand[]) \
    {                            \
        __VA_ARGS__,             \
        {                        \
            0                    \
        }                        \
    }
#define OP(op, f, ...)                                 \
    {                                                  \
        op, 6, 10, false, infer_##f, LIST(__VA_ARGS__), 0 \
    }
#define OPV(op, v, f, ...)                             \
    {                                                  \
        op, v, 10, false, infer_##f, LIST(__VA_ARGS__), 0 \
    }
#define ATTRS(op, v, w, f, ...)                      \
    {                                                \
        op, v, w, true, infer_##f, LIST(__VA_ARGS__), 0 \
    }

#define BLOCKS(op, f, ...)                                \
    {                                                     \
        op, 6, 10, false, infer_##f, LIST(__VA_ARGS__), 2 \
    }

#define UNARY(op, d) OP(op, same, R("x", 'T', d))
#define BINARY(op)   OP(op, binary, R("x", 'T', N), R("y", 'T', N))
#define COMPARE(op)  OP(op, compare, R("x", 'T', N), R("y", 'T', N))
#define LOGICAL(op)  OP(op, compare, R("x", 'T', B), R("y", 'T', B))
#define EPSILON(op)  OP(op, epsilon, R("x", 'T', F), DC("epsilon", 'U', F))
#define REDUCE(op) \
    OP(op, reduce, R("x", 'T', N), OC("axes", 0, I), DC("keep_dims", 0, B))
#define ARG(op)                                                          \
    OP(op, arg, R("x", 'T', N), DC("axis", 0, I), DC("keep_dims", 0, B), \
       DCV("output_dtype", 0, STR, 8))

/* clang-format off */
static const struct sig sigs[] = {
    UNARY("abs", N), UNARY("square", N), UNARY("exp2", N), UNARY("sign", N),
    UNARY("sqrt", F), UNARY("exp", F), UNARY("cos", F), UNARY("sin", F),
    UNARY("tan", F), UNARY("tanh", F), UNARY("erf", F), UNARY("sigmoid", F),
    UNARY("silu", F), UNARY("relu", F), UNARY("relu6", F),
    UNARY("softplus", F), UNARY("softsign", F), UNARY("floor", F),
    UNARY("ceil", F), UNARY("round", F), UNARY("logical_not", B),
    UNARY("identity", MOV),
    EPSILON("rsqrt"), EPSILON("log"), EPSILON("inverse"),
    OP("gelu", gelu, R("x", 'T', F), DC("mode", 0, STR)),
    OP("leaky_relu", same, R("x", 'T', F), RC("alpha", 'T', F)),
    OP("elu", same, R("x", 'T', F), RC("alpha", 'T', F)),
    OP("sigmoid_hard", same, R("x", 'T', F), RC("alpha", 'T', F),
       RC("beta", 'T', F)),
    OP("clip", clip, R("x", 'T', F), RC("alpha", 'T', F), RC("beta", 'T', F)),
    OP("softmax", axis, R("x", 'T', F), DC("axis", 0, I)),
    OP("cumsum", axis, R("x", 'T', N), DC("axis", 0, I), DC("exclusive", 0, B),
       DC("reverse", 0, B)),
    OP("select", select, R("cond", 0, B), R("a", 'T', NB), R("b", 'T', NB)),
    OP("cast", cast, R("x", 0, MOV), RC("dtype", 0, STR)),

    BINARY("add"), BINARY("sub"), BINARY("mul"), BINARY("real_div"),
    BINARY("pow"), BINARY("maximum"), BINARY("minimum"), BINARY("floor_div"),
    BINARY("mod"),
    COMPARE("greater"), COMPARE("greater_equal"), COMPARE("less"),
    COMPARE("less_equal"), COMPARE("equal"), COMPARE("not_equal"),
    LOGICAL("logical_and"), LOGICAL("logical_or"), LOGICAL("logical_xor"),

    REDUCE("reduce_sum"), REDUCE("reduce_mean"), REDUCE("reduce_max"),
    REDUCE("reduce_min"), REDUCE("reduce_prod"), REDUCE("reduce_sum_square"),
    REDUCE("reduce_l1_norm"), REDUCE("reduce_l2_norm"),
    REDUCE("reduce_log_sum"), REDUCE("reduce_log_sum_exp"),
    ARG("reduce_argmax"), ARG("reduce_argmin"),

    /* epsilon and constant_val: coremltools writes fp32 defaults into fp16
     * programs of every opset */
    OP("layer_norm", layer_norm, R("x", 'T', F), OC("axes", 0, I),
       OC("gamma", 'U', F), OC("beta", 'U', F), DC("epsilon", 0, F)),
    OP("batch_norm", channel_norm, R("x", 'T', F), RC("mean", 'U', F),
       RC("variance", 'U', F), OC("gamma", 'U', F), OC("beta", 'U', F),
       DC("epsilon", 0, F)),
    OP("instance_norm", channel_norm, R("x", 'T', F), OC("gamma", 'U', F),
       OC("beta", 'U', F), DC("epsilon", 0, F)),
    OP("l2_norm", same, R("x", 'T', F), DC("epsilon", 0, F)),

    OP("conv", conv, R("x", 'T', F), R("weight", 'U', F), O("bias", 'U', F),
       DC("strides", 0, I), DC("pad_type", 0, STR), DC("pad", 0, I),
       DC("dilations", 0, I), DC("groups", 0, I)),
    OP("linear", linear, R("x", 'T', N), RC("weight", 'U', N),
       DC("bias", 'U', N)),
    OP("matmul", matmul, R("x", 'T', N), R("y", 'U', N),
       DC("transpose_x", 0, B), DC("transpose_y", 0, B)),
    OPV("scaled_dot_product_attention", 9, attention, R("query", 'T', F),
        R("key", 'T', F), R("value", 'T', F), O("attn_mask", 0, F | B)),
    OP("einsum", einsum, TUPLE("values", 'T', N), RC("equation", 0, STR)),
    OPV("quantize", 8, quantize, R("input", 'T', F), OC("zero_point", 'Z', S8),
        RC("scale", 'T', F), OC("axis", 0, I), RC("output_dtype", 0, STR)),
    OPV("dequantize", 8, dequantize, R("input", 'Z', S8),
        OC("zero_point", 'Z', S8), RC("scale", 0, F), OC("axis", 0, I)),

    OP("reshape", reshape, R("x", 0, MOV), R("shape", 0, POS)),
    OPV("reshape_like", 7, reshape_like, R("x", 0, NB),
        TUPLE("ref_tensors", 0, NB), TUPLEC("begins", 0, I),
        TUPLEC("ends", 0, I), TUPLEC("end_masks", 0, B)),
    OP("transpose", transpose, R("x", 0, MOV), RC("perm", 0, I)),
    OP("expand_dims", expand_dims, R("x", 0, MOV), RC("axes", 0, I)),
    OP("squeeze", squeeze, R("x", 0, MOV), OC("axes", 0, I)),
    OP("reverse", reverse, R("x", 0, MOV), OC("axes", 0, I)),
    OP("concat", concat, TUPLE("values", 'T', NB), RC("axis", 0, I),
       DC("interleave", 0, B)),
    OP("stack", stack, TUPLE("values", 'T', NB), RC("axis", 0, I)),
    OP("split", split, R("x", 0, NB), RC("axis", 0, I),
       OC("num_splits", 0, I), OC("split_sizes", 0, I)),
    OP("slice_by_index", slice, R("x", 0, MOV), R("begin", 'P', POS),
       R("end", 'P', POS), OC("stride", 'P', POS), OC("begin_mask", 0, B),
       OC("end_mask", 0, B), OC("squeeze_mask", 0, B)),
    OP("slice_by_size", slice_size, R("x", 0, MOV), R("begin", 'P', POS),
       R("size", 'P', POS)),
    OPV("slice_update", 9, slice_update, R("x", 'T', MOV),
        R("update", 'T', MOV), R("begin", 'P', POS), R("end", 'P', POS),
        DC("stride", 'P', POS), DC("begin_mask", 0, B), DC("end_mask", 0, B),
        DC("squeeze_mask", 0, B)),
    OP("tile", tile, R("x", 0, NB), R("reps", 0, I)),
    OP("pad", pad, R("x", 'T', F), R("pad", 0, I), DC("mode", 0, STR),
       DC("constant_val", 0, F)),
    OP("fill", fill, R("shape", 0, POS), DC("value", 0, NB)),
    OPV("fill_like", 7, fill_like, R("ref_tensor", 0, NB), DC("value", 0, NB)),
    OP("range_1d", range, R("start", 'T', N), R("end", 'T', N),
       R("step", 'T', N)),
    OP("shape", shape, R("x", 0, NB)),
    OP("sliding_windows", sliding_windows, R("x", 0, MOV), RC("axis", 0, I),
       RC("size", 0, I), DC("stride", 0, I)),
    OP("non_zero", non_zero, R("x", 0, NB)),
    OP("band_part", band_part, R("x", 0, NB), DC("lower", 0, I),
       DC("upper", 0, I)),

    OP("gather", gather, R("x", 0, GAT), R("indices", 0, IDX),
       DC("axis", 0, I), DCV("batch_dims", 0, I, 7),
       DCV("validate_indices", 0, B, 8)),
    OP("gather_along_axis", gather_along, R("x", 0, GAT), R("indices", 0, IDX),
       DC("axis", 0, I), DCV("validate_indices", 0, B, 8)),
    OP("gather_nd", gather_nd, R("x", 0, GAT), R("indices", 0, IDX),
       DCV("batch_dims", 0, I, 7), DCV("validate_indices", 0, B, 8)),
    OP("scatter", scatter, R("data", 'T', N), R("indices", 0, I),
       R("updates", 'T', N), DC("axis", 0, I), DC("mode", 0, STR),
       DCV("validate_indices", 0, B, 8)),
    OP("scatter_along_axis", scatter_along, R("data", 'T', N),
       R("indices", 0, I), R("updates", 'T', N), DC("axis", 0, I),
       DC("mode", 0, STR), DCV("validate_indices", 0, B, 8)),
    OP("scatter_nd", scatter_nd, R("data", 'T', N), R("indices", 0, I),
       R("updates", 'T', N), DC("mode", 0, STR),
       DCV("validate_indices", 0, B, 8)),
    OP("topk", topk, R("x", 0, GAT), DC("k", 0, I), DC("axis", 0, I),
       DC("ascending", 0, B), DCV("sort", 0, B, 7),
       DCV("return_indices", 0, B, 7), DCV("output_indices_dtype", 0, STR, 8)),
    OP("argsort", arg, R("x", 0, N), DC("axis", 0, I), DC("ascending", 0, B)),
    OP("one_hot", one_hot, R("indices", 0, I), R("one_hot_vector_size", 0, I),
       DC("axis", 0, I), DC("on_value", 'T', NB), DC("off_value", 'T', NB)),

    BLOCKS("cond", cond, R("pred", 0, B)),
    BLOCKS("while_loop", while, TUPLE("loop_vars", 0, MOV)),

    OPV("read_state", 9, read_state, STATE("input")),
    OPV("write_state", 9, write_state, STATE("input"),
        R("data", 0, F | BIT(INT8))),

    ATTRS("constexpr_affine_dequantize", 7, 10, affine,
          RC("quantized_data", 'Q', S8), RC("zero_point", 0, S8 | F),
          RC("scale", 0, F), RC("axis", 0, I)),
    ATTRS("constexpr_lut_to_dense", 7, 8, lut_flat,
          RC("indices", 0, BIT(UINT8)), RC("lut", 0, F | S8),
          RC("shape", 0, BIT(UINT32))),
    ATTRS("constexpr_sparse_to_dense", 7, 8, sparse_flat,
          RC("nonzero_data", 0, F | S8), RC("mask", 0, BIT(UINT8)),
          RC("shape", 0, BIT(UINT32))),
    ATTRS("constexpr_cast", 7, 8, constexpr_cast,
          RC("source_val", 0, BIT(FP16)), RC("output_dtype", 0, STR)),
    OPV("constexpr_cast", 9, constexpr_cast, RC("source_val", 0, BIT(FP16)),
        RC("output_dtype", 0, STR)),
    OPV("constexpr_blockwise_shift_scale", 9, blockwise, RC("data", 0, Q | F),
        RC("scale", 0, F), OC("offset", 0, Q | F)),
    OPV("constexpr_lut_to_dense", 9, lut, RC("indices", 0, SUB),
        RC("lut", 0, F | S8), OC("vector_axis", 0, I)),
    OPV("constexpr_sparse_to_dense", 9, sparse, RC("nonzero_data", 0, Q | F),
        RC("mask", 0, BIT(UINT1))),
    OPV("constexpr_lut_to_sparse", 9, lut_sparse,
        RC("indices_mask", 0, BIT(UINT1)), RC("indices_nonzero_data", 0, SUB),
        RC("lut", 0, F | S8), OC("vector_axis", 0, I)),
    OPV("constexpr_sparse_blockwise_shift_scale", 9, sparse_blockwise,
        RC("data_mask", 0, BIT(UINT1)), RC("nonzero_data", 0, Q | F),
        RC("scale", 0, F), OC("offset", 0, Q | F)),
};
/* clang-format on */

size_t sig_count(void)
{
    return countof(sigs);
}

const struct sig *sig_at(size_t i)
{
    must(i < countof(sigs));
    return &sigs[i];
}

const struct sig *sig_find(const char *op, int spec, bool *ret_known)
{
    *ret_known = false;
    for (size_t i = 0; i < countof(sigs); i++) {
        if (strcmp(sigs[i].op, op) != 0) {
            continue;
        }
        *ret_known = true;
        if (spec >= sigs[i].since && spec <= sigs[i].until) {
            return &sigs[i];
        }
    }
    return NULL;
}
