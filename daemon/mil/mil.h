/* mil.h - an ML Program in memory: what the reader makes, the validator
 * checks, the interpreter and compiler run, and the writer puts back.
 * It knows no model. Source of every number: facts on the Core ML package
 * format (Model.proto, MIL.proto, MIL Blob Storage v2).
 *
 * Ownership: a struct mil_program owns everything reachable from it in one
 * arena, and the mapped weight files. All strings are NUL terminated and live
 * in the arena. A program that is read is not changed by its readers: any
 * number of threads may look at it.
 *
 * SSA: a mil_value is defined once, by a function input, a block input or an
 * operation's output, and has identity: bindings point to it.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "proto/limits.h"

/* MIL.proto DataType numbers. */
enum mil_dtype {
    MIL_NONE = 0,
    MIL_BOOL = 1,
    MIL_STRING = 2,
    MIL_FP16 = 10,
    MIL_FP32 = 11,
    MIL_FP64 = 12,
    MIL_BF16 = 13,
    MIL_INT8 = 21,
    MIL_INT16 = 22,
    MIL_INT32 = 23,
    MIL_INT64 = 24,
    MIL_INT4 = 25,
    MIL_UINT8 = 31,
    MIL_UINT16 = 32,
    MIL_UINT32 = 33,
    MIL_UINT64 = 34,
    MIL_UINT4 = 35,
    MIL_UINT2 = 36,
    MIL_UINT1 = 37,
    MIL_UINT6 = 38,
    MIL_UINT3 = 39,
};

#define MIL_UNKNOWN (-1) /* a dimension known only when the program runs */

/* A tensor type; rank 0 is a scalar. state: a state holding such a tensor. */
struct mil_type {
    enum mil_dtype dtype;
    bool state;
    int rank;
    int64_t dims[MIL_RANK_MAX];
};

/* A constant. Data is dense, row-major, little-endian, in the dtype's own
 * width: 1 byte for bool and 8-bit types; sub-byte types are packed LSB first
 * (facts 4.3). Strings: n_strings pointers in `strings`. */
struct mil_const {
    struct mil_type type;
    const void *data;  /* arena, or borrowed from a mapped weight file; NULL in
                        * a program under construction whose blob is on disk */
    uint64_t bytes;    /* of data */
    const char *const *strings; /* type.dtype == MIL_STRING */
    size_t n_strings;
    const char *blob_file; /* "@model_path/weights/weight.bin"; NULL when immediate */
    uint64_t blob_offset;  /* of the metadata record */
};

struct mil_op;

struct mil_value {
    const char *name;
    struct mil_type type;
    struct mil_op *def; /* NULL for a function or block input */
    int def_out;        /* which output of def */
    uint32_t id;        /* dense from 0 within its function, blocks included */
};

/* Exactly one of the two is set. */
struct mil_binding {
    struct mil_value *value;
    const struct mil_const *imm;
};

/* One operand; more than one binding only for tuple operands (concat.values). */
struct mil_arg {
    const char *name;
    size_t n;
    struct mil_binding *b;
};

struct mil_attr {
    const char *name;
    const struct mil_const *val;
};

struct mil_block {
    size_t n_inputs;
    struct mil_value **inputs;
    size_t n_ops;
    struct mil_op **ops; /* program order */
    size_t n_outputs;
    struct mil_value **outputs;
};

struct mil_op {
    const char *type; /* "conv", "const", "constexpr_lut_to_dense", ... */
    size_t n_args;
    struct mil_arg *args;
    size_t n_outputs;
    struct mil_value **outputs;
    size_t n_attrs;
    struct mil_attr *attrs; /* name, val, and operands of old constexpr forms */
    size_t n_blocks;
    struct mil_block **blocks;
};

/* Model inputs, outputs and states as the description declares them. */
struct mil_feature {
    const char *name;
    struct mil_type type; /* dims = default shape; rank 0 when omitted */
    bool has_range;       /* shapeRange present: lo/hi per dimension */
    int64_t lo[MIL_RANK_MAX];
    int64_t hi[MIL_RANK_MAX]; /* -1 is unbounded */
    bool optional;
    bool has_default; /* of an optional input's elements */
    double default_value;
    size_t n_shapes; /* enumeratedShapes: n_shapes x type.rank */
    const int64_t *shapes;
};

struct mil_function {
    const char *name;
    const char *opset; /* "CoreML8" */
    size_t n_inputs;
    struct mil_value **inputs; /* tensors and states */
    struct mil_block *body;
    uint32_t n_values; /* ids are below this */
    /* description */
    size_t n_in, n_out, n_states;
    struct mil_feature *in, *out, *states;
};

struct mil_meta { /* Metadata.userDefined */
    const char *key;
    const char *value;
};

struct mil_program {
    struct arena arena;
    int spec_version; /* 9 */
    size_t n_functions;
    struct mil_function **functions; /* the default one is functions[default_function] */
    size_t default_function;
    bool multi; /* description uses `functions` (facts 7) */
    const char *short_description; /* NULL when absent */
    size_t n_meta;
    struct mil_meta *meta;
    size_t n_maps;
    struct file_map *maps; /* weight files */
    uint64_t weight_bytes; /* of all maps */
};

/* --- package.c: folder <-> program --- */

/* Read the .mlpackage folder at path: manifest, spec, weights. Every size and
 * reference is checked; the result is well-formed SSA but not yet validated
 * against the op signatures (mil_validate).
 * Errors: PKG_*, MIL_INVALID, MIL_BLOB, TOO_BIG. */
CHECKED int mil_read(const char *path, struct mil_program **ret,
                     struct err *e);
void mil_free(struct mil_program *p); /* NULL is fine */

/* Function by name; NULL name is the default. NULL when absent. */
const struct mil_function *mil_function_find(const struct mil_program *p,
                                             const char *name);

/* Operand by name, NULL when absent. */
const struct mil_arg *mil_op_arg(const struct mil_op *op, const char *name);
/* The single binding's constant: an inline value, or the `val` of the const op
 * it names, or the attribute of that name; NULL when it is not constant. */
const struct mil_const *mil_op_const(const struct mil_op *op, const char *name);
/* The single binding's value; NULL when absent or inline. */
struct mil_value *mil_op_value(const struct mil_op *op, const char *name);
/* Constant held by a value defined by a `const` op; else NULL. */
const struct mil_const *mil_value_const(const struct mil_value *v);

/* Scalars and small vectors out of constants; false when dtype, count or range
 * do not fit. Integers of every width. Floats of fp16, fp32 and ints. */
CHECKED bool mil_const_ints(const struct mil_const *c, int64_t *out,
                            size_t cap, size_t *ret_n);
CHECKED bool mil_const_floats(const struct mil_const *c, float *out,
                              size_t cap, size_t *ret_n);
CHECKED bool mil_const_bools(const struct mil_const *c, bool *out, size_t cap,
                             size_t *ret_n);
const char *mil_const_str(const struct mil_const *c); /* scalar string or NULL */

unsigned mil_dtype_bits(enum mil_dtype t);      /* 0 for string */
const char *mil_dtype_name(enum mil_dtype t);   /* "fp16" */
enum mil_dtype mil_dtype_parse(const char *s);  /* "fp16" -> MIL_FP16; MIL_NONE */
/* Elements; false on overflow or an unknown dimension. */
CHECKED bool mil_type_count(const struct mil_type *t, uint64_t *ret);
bool mil_type_equal(const struct mil_type *a, const struct mil_type *b);
/* "fp16[1,64,?,1]" into out. */
void mil_type_print(const struct mil_type *t, char *out, size_t size);

/* --- einsum.c --- */

/* Two operands; labels are numbered in order of appearance. */
#define MIL_EINSUM_LABELS ((int)(2 * MIL_RANK_MAX))
struct mil_einsum {
    int n_labels;
    int rank[2], in[2][MIL_RANK_MAX];
    int out_rank, out[MIL_RANK_MAX];
};
/* false for what is no equation of two operands with an explicit result, or
 * has a label twice in one term. */
CHECKED bool mil_einsum_parse(const char *equation, struct mil_einsum *ret);

/* --- validate.c --- */

/* Refuse what a loader refuses: versions and opsets, description against
 * program, operands of every known op (names, dtypes, ranks, required ones),
 * declared output types against inference, states (facts 2.7, 3.9, 5, 5.6),
 * names, blobs. The error names function, op and field.
 * Errors: MIL_INVALID, MIL_OP, MIL_SHAPE, MIL_BLOB. */
CHECKED int mil_validate(const struct mil_program *p, struct err *e);

/* --- dump.c --- */

/* The program as text, one op a line, constants shown up to 8 elements. */
struct buf;
void mil_dump(const struct mil_program *p, struct buf *out);
