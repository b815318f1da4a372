/* ops.h - the operations' prep and run functions and their sub-operations, for
 * the table in optable.c. */
#pragma once

#include "engine/cpu/cpu.h"

enum { /* unary */
       UN_ABS,
       UN_SQUARE,
       UN_SQRT,
       UN_RSQRT,
       UN_INVERSE,
       UN_EXP,
       UN_EXP2,
       UN_LOG,
       UN_SIN,
       UN_COS,
       UN_TAN,
       UN_TANH,
       UN_ERF,
       UN_SIGMOID,
       UN_SILU,
       UN_GELU,
       UN_RELU,
       UN_RELU6,
       UN_LEAKY_RELU,
       UN_ELU,
       UN_SOFTPLUS,
       UN_SOFTSIGN,
       UN_HARD_SIGMOID,
       UN_CLIP,
       UN_FLOOR,
       UN_CEIL,
       UN_ROUND,
       UN_SIGN,
       UN_NOT,
};

enum { /* binary; the order groups arithmetic, comparisons, logic */
       BIN_ADD,
       BIN_SUB,
       BIN_MUL,
       BIN_DIV,
       BIN_MAX,
       BIN_MIN,
       BIN_POW,
       BIN_FLOOR_DIV,
       BIN_MOD,
       BIN_GREATER,
       BIN_GREATER_EQUAL,
       BIN_LESS,
       BIN_LESS_EQUAL,
       BIN_EQUAL,
       BIN_NOT_EQUAL,
       BIN_AND,
       BIN_OR,
       BIN_XOR,
};

enum { /* reductions */
       RED_SUM,
       RED_MEAN,
       RED_MAX,
       RED_MIN,
       RED_PROD,
       RED_SUM_SQUARE,
       RED_L1,
       RED_L2,
       RED_LOG_SUM,
    RED_LOG_SUM_EXP,
       RED_ARGMAX,
       RED_ARGMIN,
};

enum { /* scatter's mode */
       SCATTER_UPDATE,
       SCATTER_ADD,
       SCATTER_SUB,
       SCATTER_MUL,
       SCATTER_DIV,
       SCATTER_MAX,
       SCATTER_MIN,
};

enum { CONTROL_COND, CONTROL_WHILE };

#define OP(name)                                    \
    int name##_prep(struct step *s, struct err *e); \
    int name##_run(const struct step *s, const struct run *r, struct err *e)

OP(unary);  /* op_unary.c */
OP(binary); /* op_binary.c */
OP(select);
OP(cast);
OP(reduce); /* op_reduce.c */
OP(softmax);
OP(cumsum);
OP(transpose); /* op_move.c */
OP(concat);
OP(stack);
OP(split);
OP(tile); /* op_make.c */
OP(pad);
OP(fill);
OP(fill_like);
OP(range);
OP(one_hot);
OP(band_part);
OP(reverse);
OP(slice_index); /* op_slice.c */
OP(slice_size);
OP(slice_update);
OP(gather); /* op_gather.c */
OP(gather_along);
OP(gather_nd);
OP(scatter);
OP(scatter_along);
OP(scatter_nd);
OP(topk); /* op_sort.c */
OP(argsort);
OP(layer_norm); /* op_norm.c */
OP(batch_norm);
OP(instance_norm);
OP(l2_norm);
OP(conv);   /* op_conv.c */
OP(dense);  /* op_matmul.c: the operation linear */
OP(matmul);
OP(sdpa); /* op_attention.c */
OP(attention);
OP(experts); /* op_experts.c */
OP(rank);
OP(einsum);   /* op_einsum.c */
OP(int_product); /* op_int.c */
OP(quantize); /* op_quant.c */
OP(dequantize);
OP(sliding_windows); /* op_move.c */
OP(non_zero);        /* op_make.c */
OP(read_state);      /* op_state.c */
OP(write_state);
OP(store_rows);

int control_prep(struct step *s, struct err *e); /* op_control.c */
int cond_run(const struct step *s, const struct run *r, struct err *e);
int while_run(const struct step *s, const struct run *r, struct err *e);

/* Views: op_move.c */
int identity_prep(struct step *s, struct err *e);
int reshape_prep(struct step *s, struct err *e);
int reshape_like_prep(struct step *s, struct err *e);
int expand_dims_prep(struct step *s, struct err *e);
int squeeze_prep(struct step *s, struct err *e);
int shape_prep(struct step *s, struct err *e);

#undef OP

/* o[i] = a[i * sa] op b[i * sb] for the arithmetic of BIN_ADD .. BIN_MOD;
 * sa and sb are 0 or 1, not both 0. */
void binary_floats(int sub, float *o, const float *a, size_t sa, const float *b,
                   size_t sb, size_t n);

/* The function of a prepared unary step over any n floats. */
void unary_floats(const struct step *s, float *o, const float *x, size_t n);
/* One without parameters, or gelu in a mode of unary_gelu_mode. */
void unary_plain(int sub, int gelu, float *o, const float *x, size_t n);
/* Which way of gelu `mode` names; "" is EXACT, 0. -1: none. */
int unary_gelu_mode(const char *mode);

/* Make out[0] a view of operand 0's memory from element `at` on. */
void step_view(struct step *s, size_t at);

/* A kind whose elements are 4 bytes and may be moved about. */
bool val_is_plain(const struct val *v);

/* The fp32 data of an operand that may be read in place: *ret is in plan memory
 * when it has to be decoded. Errors: MIL_INVALID, NOMEM. */
int step_dense(struct step *s, int arg, const float **ret, struct err *e);
