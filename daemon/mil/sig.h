/* sig.h - op signatures and type inference, for the builder and the validator.
 *
 * One table row an op: its operands with dtypes and constness, the
 * specification versions it exists in, and the function that gives its output
 * types. Inference follows facts 5: an unknown dimension stays unknown, a
 * dimension known on one side of a broadcast is known in the result.
 */
#pragma once

#include "mil/impl.h"

enum {
    SIG_NEED = 1,    /* absent is an error */
    SIG_DEFAULT = 2, /* optional with a default value: our builder gives it */
    SIG_CONST = 4,   /* must be a compile-time constant */
    SIG_TUPLE = 8,   /* any number of bindings */
    SIG_STATE = 16,  /* a state, and nothing else is */
};

struct sig_operand {
    const char *name; /* NULL ends the list */
    unsigned flags;
    /* Same letter, same dtype. 'U' is the dtype of parameters: own from
     * spec 8 on, T's before (facts 5.7). 0 is free. */
    char var;
    uint64_t dtypes; /* set of 1 << enum mil_dtype */
    int since;       /* spec version; 0: as old as the op */
};

struct infer;

struct sig {
    const char *op;
    int since, until; /* spec versions, both included */
    bool attrs;       /* operands are attributes */
    int (*infer)(struct infer *i);
    const struct sig_operand *operands;
    int n_blocks; /* of cond and while_loop */
};

/* The row for op in this spec version; NULL with *ret_known telling whether
 * other versions have the op. */
const struct sig *sig_find(const char *op, int spec, bool *ret_known);

/* The rows by index, 0 to sig_count() - 1. */
size_t sig_count(void);
const struct sig *sig_at(size_t i);

/* One inference under way. Outputs past cap are counted, not stored. */
struct infer {
    const struct mil_op *op;
    const struct sig *sig;
    int spec;
    struct mil_type *out;
    size_t cap;
    size_t n;
    struct err *e;
};

/* Check the operands against the signature, then infer the output types: *ret_n
 * of them, of which the first min(cap, *ret_n) are stored. Errors: MIL_OP,
 * MIL_INVALID, MIL_SHAPE; the message starts with the wrong operand's name. */
CHECKED int mil_infer(const struct mil_op *op, int spec, struct mil_type *out,
                      size_t cap, size_t *ret_n, struct err *e);

/* Same dtype and rank, dimensions equal or unknown on one side. */
bool mil_type_agrees(const struct mil_type *a, const struct mil_type *b);

/* --- infer.c, for the infer functions --- */

bool in_has(const struct infer *i, const char *name);
size_t in_count(const struct infer *i, const char *name); /* bindings */
/* Type of binding k; name must be present. */
const struct mil_type *in_type_at(const struct infer *i, const char *name,
                                  size_t k);
const struct mil_type *in_type(const struct infer *i, const char *name);
/* NULL when absent or not known at compile time. */
const struct mil_const *in_const(const struct infer *i, const char *name);
/* The same of binding k of a tuple. */
const struct mil_const *in_const_at(const struct infer *i, const char *name,
                                    size_t k);
/* Small constants; an absent operand leaves *ret as it is. What is present but
 * not constant, or does not fit, is an error. */
CHECKED int in_int(struct infer *i, const char *name, int64_t *ret);
CHECKED int in_bool(struct infer *i, const char *name, bool *ret);
CHECKED int in_str(struct infer *i, const char *name, const char **ret);
/* Exactly n elements. */
CHECKED int in_ints(struct infer *i, const char *name, size_t n, int64_t *ret);
CHECKED int in_bools(struct infer *i, const char *name, size_t n, bool *ret);
/* A constant axis, made non-negative; the default is used when absent. */
CHECKED int in_axis(struct infer *i, const char *name, int64_t def, int rank,
                    int *ret);
/* Constant axes as a set; absent gives all below rank. Errors on duplicates. */
CHECKED int in_axes(struct infer *i, const char *name, int rank,
                    bool set[MIL_RANK_MAX], size_t *ret_n);
/* dims of a 1-D operand: its length, MIL_UNKNOWN when that is unknown. */
CHECKED int in_length(struct infer *i, const char *name, int64_t *ret);

/* A 1-D operand of `rank` elements; *known tells whether ret holds them. */
CHECKED int in_vector(struct infer *i, const char *name, int64_t rank,
                      int64_t *ret, bool *known);

int in_fail(struct infer *i, int code, const char *name, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Operand `name` must agree with dims (unknown on either side agrees). */
CHECKED int in_same_dims(struct infer *i, const char *name, int rank,
                         const int64_t *dims);

int out_type(struct infer *i, enum mil_dtype t, int rank, const int64_t *dims);
int out_like(struct infer *i, const char *name); /* the operand's own type */

/* Broadcast b into a (rank and dims); false when they do not fit. */
CHECKED bool dims_broadcast(int *rank, int64_t *dims, int b_rank,
                            const int64_t *b);
/* a and b agree; *ret gets what is known. */
CHECKED bool dim_unify(int64_t a, int64_t b, int64_t *ret);

/* --- infer_math.c --- */
int infer_same(struct infer *i); /* output has x's type */
int infer_epsilon(struct infer *i);
int infer_binary(struct infer *i);
int infer_compare(struct infer *i);
int infer_clip(struct infer *i);
int infer_axis(struct infer *i);
int infer_gelu(struct infer *i);
int infer_select(struct infer *i);
int infer_cast(struct infer *i);
int infer_reduce(struct infer *i);
int infer_arg(struct infer *i);
int infer_layer_norm(struct infer *i);
int infer_channel_norm(struct infer *i);
int infer_quantize(struct infer *i);
int infer_dequantize(struct infer *i);
int infer_read_state(struct infer *i);
int infer_write_state(struct infer *i);

/* --- infer_product.c --- */
int infer_conv(struct infer *i);
int infer_linear(struct infer *i);
int infer_matmul(struct infer *i);
int infer_attention(struct infer *i);
int infer_einsum(struct infer *i);

/* --- infer_shape.c --- */
int infer_reshape(struct infer *i);
int infer_reshape_like(struct infer *i);
int infer_transpose(struct infer *i);
int infer_expand_dims(struct infer *i);
int infer_squeeze(struct infer *i);
int infer_concat(struct infer *i);
int infer_stack(struct infer *i);
int infer_split(struct infer *i);
int infer_tile(struct infer *i);
int infer_pad(struct infer *i);
int infer_fill(struct infer *i);
int infer_fill_like(struct infer *i);
int infer_range(struct infer *i);
int infer_shape(struct infer *i);
int infer_band_part(struct infer *i);
int infer_reverse(struct infer *i);
int infer_sliding_windows(struct infer *i);
int infer_non_zero(struct infer *i);

/* --- infer_slice.c --- */
int infer_slice(struct infer *i);
int infer_slice_size(struct infer *i);
int infer_slice_update(struct infer *i);

/* --- infer_gather.c --- */
int infer_gather(struct infer *i);
int infer_gather_along(struct infer *i);
int infer_gather_nd(struct infer *i);
int infer_scatter(struct infer *i);
int infer_scatter_along(struct infer *i);
int infer_scatter_nd(struct infer *i);
int infer_topk(struct infer *i);
int infer_one_hot(struct infer *i);

/* --- infer_control.c --- */
int infer_cond(struct infer *i);
int infer_while(struct infer *i);

/* --- infer_const.c --- */
int infer_affine(struct infer *i);
int infer_blockwise(struct infer *i);
int infer_lut(struct infer *i);
int infer_lut_flat(struct infer *i);
int infer_lut_sparse(struct infer *i);
int infer_sparse(struct infer *i);
int infer_sparse_flat(struct infer *i);
int infer_sparse_blockwise(struct infer *i);
int infer_constexpr_cast(struct infer *i);
