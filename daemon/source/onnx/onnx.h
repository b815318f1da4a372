/* onnx.h - reads ONNX models, which may be hostile, and finds the decoder that
 * one of them is.
 *
 * A graph is data here: nodes, the values between them, initialisers as bytes.
 * Nothing is run. onnx_recover matches the structure of a decoder, from the
 * logits back to the embedding, and gives a source under GGUF's names; what it
 * does not understand is an error that names the node.
 *
 * External data are files of the model's own folder that were opened with it:
 * no path of a graph is ever opened. Their ranges are checked against the file,
 * and two tensors share all of their bytes or none.
 *
 * Thread: one at a time.
 */
#pragma once

#include "base/arena.h"
#include "proto/limits.h"
#include "source/made.h"

/* Numbers of TensorProto.DataType that aned reads. */
enum onnx_type {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_BFLOAT16 = 16,
    ONNX_UINT4 = 21,
    ONNX_INT4 = 22,
};

struct onnx_tensor {
    const char *name; /* "" of an attribute's */
    enum onnx_type type;
    uint32_t n_dims;
    uint64_t dims[ONNX_DIMS_MAX];
    uint64_t elems;
    uint64_t bytes;      /* 4-bit types: two elements a byte, low half first */
    const uint8_t *data; /* little endian, any alignment */
    const char *location; /* external file; NULL: in the model's file */
    uint64_t offset;      /* in it */
};

/* Kinds are those of AttributeProto.AttributeType. */
enum onnx_kind {
    ONNX_ATTR_FLOAT = 1,
    ONNX_ATTR_INT = 2,
    ONNX_ATTR_STRING = 3,
    ONNX_ATTR_TENSOR = 4,
    ONNX_ATTR_GRAPH = 5,
    ONNX_ATTR_FLOATS = 6,
    ONNX_ATTR_INTS = 7,
    ONNX_ATTR_STRINGS = 8,
};

struct onnx_graph;
struct onnx_attr {
    const char *name;
    enum onnx_kind kind;
    float f;
    int64_t i;
    const char *s;
    const struct onnx_tensor *t;
    struct onnx_graph *g;
    size_t n; /* of floats or ints */
    const float *floats;
    const int64_t *ints;
};

struct onnx_value {
    const char *name;
    struct onnx_node *node; /* that makes it; NULL: an input, an initialiser */
    size_t out;             /* which output of node */
    const struct onnx_tensor *init; /* an initialiser or a Constant */
    bool input;                     /* of the graph, without a default */
};

struct onnx_node {
    const char *op, *domain, *name;
    size_t n_in, n_out, n_attrs;
    struct onnx_value **in, **out; /* NULL: an optional one that is not there */
    struct onnx_attr *attrs;
    bool seen; /* by what recovers the decoder */
};

struct onnx_graph {
    const struct onnx_graph *outer; /* NULL: the model's own */
    unsigned depth;
    size_t n_nodes, n_inits, n_inputs, n_outputs;
    struct onnx_node *nodes;
    struct onnx_tensor *inits;
    struct onnx_value **inputs, **outputs;
    struct onnx_names *names; /* names.c */
};

struct onnx_opset {
    const char *domain;
    int64_t version;
};

struct onnx_file {
    const char *location;
    struct span bytes;
};

struct onnx {
    struct arena arena;
    struct arena scratch; /* messages, while it is read */
    int64_t ir;
    const char *producer;
    struct onnx_graph graph;
    size_t n_opsets;
    struct onnx_opset *opsets;
    size_t n_files;
    struct onnx_file files[ONNX_FILES_MAX]; /* external ones that it names */
    size_t n_nodes, n_values; /* of all graphs */
};

/* The bytes of an external file. location is relative and has passed
 * onnx_location_ok. Errors: ONNX_DATA, NOT_FOUND, IO. */
typedef int onnx_find_fn(void *ctx, const char *location, struct span *ret,
                         struct err *e);
struct onnx_files {
    onnx_find_fn *find;
    void *ctx;
};

/* p[0..n) and the files' bytes are borrowed as long as *ret lives. When they
 * are mapped, call it inside gguf_guard, and onnx_fini outside, whatever came.
 * Errors: ONNX (malformed, unsound), ONNX_DATA, TOO_BIG, UNSUPPORTED (by name),
 * those of find. */
CHECKED int onnx_read(struct onnx *ret, const void *p, size_t n,
                      const struct onnx_files *files, struct err *e);
void onnx_fini(struct onnx *m); /* zeroed is fine */

/* A relative path that stays below its folder, in plain UTF-8. */
bool onnx_location_ok(const char *location);
const char *onnx_type_name(enum onnx_type t);
/* Bytes of n elements; false: no type that aned reads, or too many. */
CHECKED bool onnx_type_bytes(enum onnx_type t, uint64_t n, uint64_t *ret);

/* --- of the reader's files --- */

struct onnx_names;
/* The value of this name here or in an outer graph; NULL: none. */
struct onnx_value *onnx_names_find(const struct onnx_graph *g,
                                   const char *name);
/* Errors: ONNX (it is there already, here or in an outer graph), NOMEM. */
CHECKED int onnx_names_add(struct onnx *m, struct onnx_graph *g,
                           struct onnx_value *v, struct err *e);

/* order.c: every value is made before it is used, and none by itself. */
CHECKED int onnx_check_order(struct onnx *m, const struct onnx_graph *g,
                             struct err *e);
/* A text of the file: UTF-8 without control characters, as long as `max`. */
CHECKED int onnx_text(struct onnx *m, const uint8_t *p, size_t n, size_t max,
                      const char *what, const char **ret, struct err *e);
