/* mil.h - an ML Program in memory. The reader makes it from a .mlpackage, the
 * validator checks it, the interpreter and the compiler run it, and the writer
 * (build.h) writes one to disk. Nothing here depends on a family of models.
 *
 * The format is that of Model.proto, MIL.proto and MIL Blob Storage v2.
 * "facts 4.3" in a comment of this room is a section of the authors' notes on
 * the format, which are not in this tree.
 *
 * Ownership: a struct mil_program owns the mapped weight files and one arena,
 * which holds all else that the program points to. Strings end with NUL.
 *
 * Thread: nothing changes a program after mil_read, so any number of threads
 * may read it at once.
 *
 * SSA: each mil_value is defined once, as an input of a function, an input of a
 * block or an output of an operation. Bindings point to the mil_value itself.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "proto/limits.h"

/* MIL.proto DataType numbers. */
enum mil_dtype {
    MIL_NONE = 0, /* no tensor: a list, a tuple, a dictionary */
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

/* A tensor type; rank 0 is a scalar. state: the value is a state that holds
 * such a tensor. */
struct mil_type {
    enum mil_dtype dtype;
    bool state;
    int rank;
    int64_t dims[MIL_RANK_MAX];
};

/* A constant. Its data is dense, row-major and little-endian. A bool takes one
 * byte; elements of less than 8 bits are packed, least significant bit first
 * (facts 4.3). Strings are in `strings`; `data` is NULL then. */
struct mil_const {
    struct mil_type type;
    const void *data;  /* in the arena or in a mapped weight file; NULL while a
                        * program is being built and its blob is on disk */
    uint64_t bytes;    /* of data */
    const char *const *strings; /* type.dtype == MIL_STRING */
    size_t n_strings;
    const char *blob_file; /* "@model_path/weights/weight.bin"; NULL when immediate */
    uint64_t blob_offset;  /* of the blob's metadata record in that file */
};

struct mil_op;

struct mil_value {
    const char *name;
    struct mil_type type;
    struct mil_op *def; /* NULL for a function or block input */
    int def_out;        /* which output of def */
    uint32_t id;        /* dense from 0 within its function, blocks included */
};

/* What an operand is bound to: exactly one of the two is set. */
struct mil_binding {
    struct mil_value *value;
    const struct mil_const *imm;
};

/* One operand. Only a tuple has more than one binding (concat's `values`). */
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
    struct mil_attr *attrs; /* name, val; operands of an old constexpr form */
    size_t n_blocks;
    struct mil_block **blocks;
};

/* An input, an output or a state as the description declares it. type.dims is
 * the default shape. Where the file has none, it is the lower bounds or the
 * first enumerated shape; where it has no shape at all, type.rank is 0. */
struct mil_feature {
    const char *name;
    struct mil_type type;
    bool has_range;       /* the file has a shapeRange: lo and hi are set */
    int64_t lo[MIL_RANK_MAX];
    int64_t hi[MIL_RANK_MAX]; /* -1: no upper bound */
    bool optional;
    bool has_default; /* default_value is set: of each element */
    double default_value;
    size_t n_shapes; /* enumerated shapes, type.rank numbers each */
    const int64_t *shapes;
};

struct mil_function {
    const char *name;
    const char *opset; /* "CoreML8" */
    size_t n_inputs;
    struct mil_value **inputs; /* tensors and states */
    struct mil_block *body;
    uint32_t n_values; /* every value's id is below this */
    /* from the description; states are not among `in` */
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
    bool multi; /* the description lists functions (facts 7) */
    const char *short_description; /* NULL when absent */
    size_t n_meta;
    struct mil_meta *meta;
    size_t n_maps;
    struct file_map *maps; /* weight files */
    uint64_t weight_bytes; /* of all maps */
};

/* --- package.c: from a folder to a program --- */

/* Read the .mlpackage folder at path: the manifest, the model file, the weight
 * files. All sizes and references are checked. The result is well-formed SSA;
 * mil_validate checks its operations.
 * Errors: PKG_*, MIL_INVALID, MIL_SHAPE, MIL_BLOB, TOO_BIG, INVALID, IO. */
CHECKED int mil_read(const char *path, struct mil_program **ret,
                     struct err *e);
void mil_free(struct mil_program *p); /* NULL is fine */

/* --- access.c: parts of a program --- */

/* The function of that name; the default one when name is NULL. NULL: there is
 * none. */
const struct mil_function *mil_function_find(const struct mil_program *p,
                                             const char *name);

/* The operand of that name; NULL: there is none. */
const struct mil_arg *mil_op_arg(const struct mil_op *op, const char *name);
/* The constant that the operand is: its inline value, or `val` of the const op
 * that it is bound to; without such an operand, the attribute of that name.
 * NULL: there is none, it is not constant, or it is a tuple. */
const struct mil_const *mil_op_const(const struct mil_op *op, const char *name);
/* The value that the operand is bound to. NULL: there is no such operand, or it
 * is inline or a tuple. */
struct mil_value *mil_op_value(const struct mil_op *op, const char *name);
/* The constant of a value that a const op defines; else NULL. */
const struct mil_const *mil_value_const(const struct mil_value *v);

/* Copy a constant's elements to out: the first takes integers of every width,
 * the second integers and floats (rounded to fp32), the third bools. False: c
 * is NULL or of another dtype, has more than cap elements, or one of them does
 * not fit int64. */
CHECKED bool mil_const_ints(const struct mil_const *c, int64_t *out,
                            size_t cap, size_t *ret_n);
CHECKED bool mil_const_floats(const struct mil_const *c, float *out,
                              size_t cap, size_t *ret_n);
CHECKED bool mil_const_bools(const struct mil_const *c, bool *out, size_t cap,
                             size_t *ret_n);
const char *mil_const_str(const struct mil_const *c); /* scalar string or NULL */

/* --- type.c --- */

unsigned mil_dtype_bits(enum mil_dtype t);      /* 0: a string, or none */
const char *mil_dtype_name(enum mil_dtype t);   /* "fp16" */
enum mil_dtype mil_dtype_parse(const char *s);  /* MIL_NONE: no such name */
/* The number of elements. False: it overflows, or a dimension is unknown. */
CHECKED bool mil_type_count(const struct mil_type *t, uint64_t *ret);
bool mil_type_equal(const struct mil_type *a, const struct mil_type *b);
/* Write the type into out as "fp16[1,64,?,1]". */
void mil_type_print(const struct mil_type *t, char *out, size_t size);

/* --- einsum.c --- */

/* An equation of two operands. Labels are numbered as they appear, from 0;
 * in[k][i] is the label of dimension i of operand k. */
#define MIL_EINSUM_LABELS ((int)(2 * MIL_RANK_MAX))
struct mil_einsum {
    int n_labels;
    int rank[2], in[2][MIL_RANK_MAX];
    int out_rank, out[MIL_RANK_MAX];
};
/* False: not an equation of two operands with "->" and a result, a label stands
 * twice in one term, one of the result's labels is in no operand, or a term has
 * too many. */
CHECKED bool mil_einsum_parse(const char *equation, struct mil_einsum *ret);

/* --- validate.c --- */

/* Refuse what Core ML's loader refuses. Checked are: versions and opsets; the
 * description against the program; each op's operands (names, dtypes, ranks,
 * which are required); its declared output types against the inferred ones; the
 * use of states; names (facts 2.7, 3.9, 5, 5.6). The error names the function,
 * the op and the field.
 * Errors: MIL_INVALID, MIL_OP (unknown op), MIL_SHAPE, NOMEM. */
CHECKED int mil_validate(const struct mil_program *p, struct err *e);

/* --- dump.c --- */

/* Append the program as text: one op a line, the first 8 elements of each
 * constant. */
struct buf;
void mil_dump(const struct mil_program *p, struct buf *out);
