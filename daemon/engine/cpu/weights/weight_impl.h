/* weight_impl.h - shared by weight.c and weight_sparse.c. */
#pragma once

#include "engine/cpu/weights/weight.h"

/* A constant operand that holds numbers; NULL with the error set. */
const struct mil_const *weight_const(const struct mil_op *op, const char *name,
                                     struct err *e);
/* Operand as fp32: a constant, or the result of another constexpr op, *type
 * its type. *ret is NULL when the operand is absent. */
CHECKED int weight_floats(struct arena *a, const struct mil_op *op,
                          const char *name, int depth, const float **ret,
                          struct mil_type *type, struct err *e);

/* constexpr_lut_to_dense (weight_table.c). */
CHECKED int weight_of_lut(struct arena *a, const struct mil_op *op, int depth,
                          struct weight *w, struct err *e);
/* Integer tables for w, when it is of a form that has kernels: its kind
 * changes, else nothing does. */
CHECKED int weight_prefer_table(struct arena *a, struct weight *w,
                                struct err *e);
/* Cells of a grid over the weight's shape; what: for the error's text. */
CHECKED int weight_set_grid(struct weight *w, const struct mil_type *g,
                            int rank, const char *what, struct err *e);

/* constexpr_sparse_to_dense, in any form: w becomes WEIGHT_F32 of its own. */
CHECKED int weight_of_sparse(struct arena *a, const struct mil_op *op,
                             int depth, struct weight *w, struct err *e);
