/* op_experts.h - a mixture of experts over all rows of a program that runs as a
 * whole (graph/fuse_experts.c finds it).
 *
 *   out = sum over e of D_e f(P_e x + p_e, Q_e x + q_e, g_e)
 *
 * f works on elements, and is zero where the gate g_e is: such rows of an
 * expert are not computed, and its weights not read when no row chose it. Rows
 * are grouped by expert and results added experts in order, so a row's bits
 * depend on that row alone.
 *
 * With `exact` the bits are those of the operations that this one stands for,
 * also where each result is rounded to fp16: sums have the lanes of reduce_sum,
 * and an expert whose values could leave the range before its gate makes zeros
 * of them is computed for all rows (op_experts_bound.c).
 */
#pragma once

#include "engine/cpu/cpu.h"

#define EXPERTS_PRODUCTS_MAX 2
#define EXPERTS_STEPS_MAX    12

/* What f computes with. Registers are the products, the gate, and the results
 * of the steps before. */
enum { EXPERTS_BY = EXPERTS_PRODUCTS_MAX, EXPERTS_FIRST_STEP };

struct experts_step {
    const struct op_def *def; /* a unary operation that has one operand, gelu, or
                                 a binary one of arithmetic */
    bool binary;
    int gelu;   /* its mode: unary_gelu_mode */
    int in[2];  /* registers; -1: c */
    float c;
};

#define EXPERTS_REGISTERS (EXPERTS_FIRST_STEP + EXPERTS_STEPS_MAX)

/* How large an expert's rows are: the largest L2 norm of one of P_e, Q_e and of
 * D_e, and the largest |p_e|, |q_e|. NaN or infinity: some number is none. */
struct experts_peaks {
    float norm[EXPERTS_PRODUCTS_MAX], bias[EXPERTS_PRODUCTS_MAX], down;
};

struct experts_form {
    size_t n, width, cols, out; /* experts; rows of P_e; columns of it; rows of
                                   D_e */
    int n_products;
    int n_steps; /* the last one's result is f */
    struct experts_step steps[EXPERTS_STEPS_MAX];
    const struct mil_type *type; /* of the result */
    /* exact: */
    bool exact;
    bool half[EXPERTS_REGISTERS], half_down; /* declared fp16: registers, and
                                                what D_e gives */
    struct experts_peaks *peaks; /* an expert; filled by the first run */
    bool *measured;              /* they are */
};

/* Operands of the fused node "experts"; bias i belongs to product i. */
enum {
    EXPERTS_IN_X,
    EXPERTS_IN_BY,
    EXPERTS_IN_DOWN,
    EXPERTS_IN_PRODUCT,
    EXPERTS_IN_BIAS = EXPERTS_IN_PRODUCT + EXPERTS_PRODUCTS_MAX,
};

/* --- op_experts_bound.c --- */

/* Fill form->peaks from the step's weights; scratch: (threads, longest row)
 * floats. */
void experts_measure(const struct step *s, unsigned threads, float *scratch);
/* Does expert e give +0 to every row whose gate is zero, if no row of x has a
 * larger L2 norm than x_norm? round: each result is rounded to fp16. */
bool experts_give_zero(const struct experts_form *f, size_t e, float x_norm,
                       bool round);
