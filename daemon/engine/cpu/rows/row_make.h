/* row_make.h - shared by the files that compile a row program. */
#pragma once

#include "engine/cpu/graph/plan.h"
#include "engine/cpu/rows/row.h"

/* --- row_check.c --- */

/* The one unknown dimension of a slot's declared type; -1 none, -2 several. */
int row_t_axis(const struct backend_model *m, int slot);
/* The reason why the program cannot run as rows; NULL: it can. The first looks
 * at inputs and outputs, the second at the ops once states are recognised. */
const char *row_check_ports(const struct backend_model *m);
const char *row_check_ops(struct row_program *p);
/* Whether T has one element in the plan of one row, that is, is not joined with
 * another axis; true for a value without T. */
bool row_is_one(const struct row_program *p, int value);
/* Whether n keeps the positions along T apart, in types and in the plan. */
bool row_keeps_rows(const struct row_program *p, const struct node *n);

/* --- row_length.c --- */

/* Set *why when an operation of the run reads a number that depends on the
 * number of rows. Errors: NOMEM. */
CHECKED int row_check_length(struct row_program *p, const char **why,
                             struct err *e);

/* --- row_make.c --- */

bool row_is(const struct row_program *p, const struct row_op *op,
            const char *type);
bool row_is_elementwise(const struct node *n);
const struct node *row_node(const struct row_program *p,
                            const struct row_op *op); /* NULL: a pass's own */
const struct step *row_step(const struct row_program *p,
                            const struct row_op *op);
/* Follow views to the value that is computed; *at is the first element in it.
 */
int row_root(const struct row_program *p, int value, size_t *at);
/* A float constant's data: n elements, or 1. NULL: not known. */
const float *row_fixed(const struct row_program *p, int value, size_t *n);
bool row_fixed1(const struct row_program *p, int value, float *ret);

/* A conv or linear that sees no padding and has one weight an input: a product,
 * but for its groups. */
bool row_is_product(const struct row_program *p, const struct node *n);

/* The operand's index in the table's row; -1. */
int row_arg(const struct node *n, const char *name);
/* The plan's value: shape at T = 1, and data of what is fixed. */
const struct val *row_val(const struct row_program *p, int value);
/* The op of that type that makes `value`, through whole views; NULL. */
struct row_op *row_maker(const struct row_program *p, int value,
                         const char *type);
/* Whether a and b are the same elements of the same memory. */
bool row_same(const struct row_program *p, int a, int b);
/* Whether small repeats along the last axes of big, so that element i of big
 * meets element i % small->n. */
bool row_repeats(const struct val *small, const struct val *big);

/* --- row_view.c --- */

/* A slice_by_index of step 1 that cuts at most one axis (*axis, -1 none), from
 * *begin on. */
bool row_slice(const struct row_program *p, const struct node *n, int *axis,
               int64_t *begin);

/* --- row_tail.c --- */

/* Convolutions along T become TAIL; p->tails are their inputs. Those that are
 * not understood stay as they are. Errors: NOMEM. */
CHECKED int row_tails(struct row_program *p, struct err *e);

/* --- row_state.c --- */

/* The masked write and attention become STORE and ATTEND. *why is set, and the
 * result 0, when something about the states is not understood. Errors: NOMEM.
 */
CHECKED int row_states(struct row_program *p, const char **why, struct err *e);
