/* op_experts.h - a mixture of experts over all rows of a program that runs as a
 * whole (graph/fuse_experts.c finds it).
 *
 *   out = sum over e of D_e f(P_e x + p_e, Q_e x + q_e, g_e)
 *
 * f works on elements, and is zero where the gate g_e is: such rows of an
 * expert are not computed, and its weights not read when no row chose it. Rows
 * are grouped by expert and results added experts in order, so a row's bits
 * depend on that row alone.
 */
#pragma once

#include "engine/cpu/cpu.h"

#define EXPERTS_PRODUCTS_MAX 2
#define EXPERTS_STEPS_MAX    12

/* What f computes with. Registers are the products, the gate, and the results
 * of the steps before. */
enum { EXPERTS_BY = EXPERTS_PRODUCTS_MAX, EXPERTS_FIRST_STEP };

struct experts_step {
    const struct op_def *def; /* a unary operation without parameters, or a
                                 binary one of arithmetic */
    bool binary;
    int in[2];  /* registers; -1: c */
    float c;
};

struct experts_form {
    size_t n, width, cols, out; /* experts; rows of P_e; columns of it; rows of
                                   D_e */
    int n_products;
    int n_steps; /* the last one's result is f */
    struct experts_step steps[EXPERTS_STEPS_MAX];
    const struct mil_type *type; /* of the result */
};

/* Operands of the fused node "experts"; bias i belongs to product i. */
enum {
    EXPERTS_IN_X,
    EXPERTS_IN_BY,
    EXPERTS_IN_DOWN,
    EXPERTS_IN_PRODUCT,
    EXPERTS_IN_BIAS = EXPERTS_IN_PRODUCT + EXPERTS_PRODUCTS_MAX,
};
