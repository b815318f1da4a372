/* random_gen.h - between the files of random_program. */
#pragma once

#include "random_program.h"
#include "row_ops.h"

#define GEN_VALUES 40
#define GEN_MANY   64 /* channels that gen_many takes apart */

/* A value: [1, a, T, b]. */
struct gen_value {
    struct mil_value *v;
    int32_t a, b;
    bool input;
};

struct gen {
    struct pkg k;
    uint64_t rng;
    int64_t t; /* of the inputs: -1, or 1 */
    int n;
    struct gen_value pool[GEN_VALUES];
    int n_inputs, n_states;
    struct mil_value *mask, *window, *write; /* NULL: not yet */
    int64_t positions;
    uint32_t window_size;
    struct mil_value *mixed; /* what mixes rows, an output; NULL */
    bool real;               /* no integer weights */
    int integers;            /* products with them */
};

uint64_t gen_next(struct gen *g);
/* 0 .. n - 1 */
int gen_pick(struct gen *g, int n);
bool gen_chance(struct gen *g, int percent);
float gen_float(struct gen *g, float lo, float hi);

/* Keep a result for others to read. */
struct mil_value *gen_keep(struct gen *g, struct mil_value *v, int32_t a,
                           int32_t b);
/* An input [1, a, T, b]. */
struct mil_value *gen_input(struct gen *g, int32_t a, int32_t b);

/* --- random_forms.c: what has many spellings --- */

struct mil_value *gen_norm(struct gen *g, struct mil_value *x, int axis);
struct mil_value *gen_rope(struct gen *g, struct mil_value *x);
struct mil_value *gen_conv(struct gen *g, struct mil_value *x, int32_t rows);
/* The same by linear, which has its channels last. */
struct mil_value *gen_dense(struct gen *g, struct mil_value *x, int32_t rows);
struct mil_value *gen_constant(struct gen *g, int32_t a, int32_t b);
/* A layer's attention over [1, C, T, 1]: also [1, C, T, 1]. */
struct mil_value *gen_attention(struct gen *g, struct mil_value *x);
/* Something of the same shape that mixes rows. */
struct mil_value *gen_mix(struct gen *g, struct mil_value *x, int32_t a,
                          int32_t b);

/* --- random_length.c: what looks at shapes --- */

/* Something of the same shape that looks at x's, and says nothing of T. */
struct mil_value *gen_shape(struct gen *g, struct mil_value *x, int32_t a,
                            int32_t b);
/* Something of the same shape whose rows depend on how many there are. */
struct mil_value *gen_length(struct gen *g, struct mil_value *x, int32_t a,
                             int32_t b);

/* --- random_many.c: many operands, results and widths --- */

/* Of [1, a, T, 1], a <= GEN_MANY. */
struct mil_value *gen_many(struct gen *g, struct mil_value *x, int32_t a);
