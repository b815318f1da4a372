/* match.h - small questions about a graph, for what recovers the decoder.
 *
 * A node that is understood is taken: onnx_take checks that it has no attribute
 * and no input beyond those that its reader looks at, and marks it. What is
 * never taken is told of in the end.
 */
#pragma once

#include "source/onnx/rows.h"

/* Was v made by this operation (of the standard set, or com.microsoft)? Its
 * node, else NULL. */
struct onnx_node *onnx_made_by(const struct onnx_value *v, const char *op);
bool onnx_is(const struct onnx_node *n, const char *op);

/* attrs: names that are looked at, with a space between. Input i >= n_in must
 * not be there. Errors: ONNX_GRAPH. */
CHECKED int onnx_take(struct onnx_node *n, const char *attrs, size_t n_in,
                      struct err *e);
/* "node 'name' (op): ..." */
int onnx_not(const struct onnx_node *n, struct err *e, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

const struct onnx_attr *onnx_attr(const struct onnx_node *n, const char *name);
int64_t onnx_attr_int(const struct onnx_node *n, const char *name,
                      int64_t absent);
float onnx_attr_float(const struct onnx_node *n, const char *name,
                      float absent);
bool onnx_attr_is(const struct onnx_node *n, const char *name,
                  const char *text, bool absent);

/* Input i; NULL when there is none. */
struct onnx_value *onnx_in(const struct onnx_node *n, size_t i);

/* v is a constant of whole numbers: up to max of them. Returns how many; 0: it
 * is no such constant. */
size_t onnx_const_ints(const struct onnx_value *v, int64_t *out, size_t max);
/* v is a constant of one number. */
CHECKED bool onnx_const_number(const struct onnx_value *v, float *ret);

/* v through casts between types of floats, which only round; they are taken. */
CHECKED int onnx_unround(struct onnx_value *v, struct onnx_value **ret,
                         struct err *e);

/* --- weights.c --- */

/* A product with a matrix, and what is added to it. */
struct onnx_linear {
    struct onnx_node *node;
    struct onnx_value *in;
    struct onnx_rows w;    /* (outputs, inputs) */
    struct onnx_rows bias; /* (1, outputs); rows 0: none */
};
bool onnx_is_linear(const struct onnx_value *v);
/* Errors: ONNX_GRAPH, UNSUPPORTED, ONNX. */
CHECKED int onnx_linear(struct onnx_value *v, struct onnx_linear *ret,
                        struct err *e);
/* v is a vector of constants: (1, n). */
CHECKED int onnx_vector(const struct onnx_value *v, struct onnx_rows *ret,
                        struct err *e);
/* The rows that a Gather or a GatherBlockQuantized picks from. *ret_index: by
 * which value. */
CHECKED int onnx_table(struct onnx_node *n, struct onnx_rows *ret,
                       struct onnx_value **ret_index, struct err *e);
/* The matrix that v is: an initialiser, or one that is transposed, dequantised
 * or cast. */
CHECKED int onnx_matrix(struct onnx_value *v, struct onnx_rows *ret,
                        struct err *e);
