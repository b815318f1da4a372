/* rules.h - how a rule is written; private to convert/residency.
 *
 * rules.c          the table: which operations, which verdict, which text
 * rules_type.c     conditions on types, sizes and operands
 * rules_state.c    on states and how they are written
 * rules_weight.c   on how weights are stored
 * rules_program.c  on inputs, states and sizes of functions and programs
 * residency.c      the walk over a program, and its sums
 */
#pragma once

#include "convert/residency/residency.h"

/* What a rule may look at: one operation, in its function. */
struct look {
    const struct predict_limits *l;
    const struct mil_function *f;
    const struct mil_op *op;
    size_t at;           /* its number in the walk */
    unsigned depth;      /* blocks around it; 0: the function's own */
    const uint8_t *uses; /* by id of a value: USE_* */
    const size_t *reads; /* by id of a state: its last read_state, plus 1 */
    char detail[PREDICT_DETAIL_MAX]; /* a condition that holds may set it */
};

#define USE_STATE 1u /* it is what a write_state writes */
#define USE_OTHER 2u /* anything else reads it */

/* The gravest rule that holds decides, the first of several. */
struct op_rule {
    struct predict_rule is;
    enum predict_verdict verdict;
    const char *ops;               /* their types, blanks between; NULL: all */
    bool (*holds)(struct look *k); /* NULL: always */
};

/* Sets k->detail to the deciding rule's. */
const struct op_rule *rule_for(struct look *k);

void look_detail(struct look *k, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool rule_word(const char *words, const char *word);

/* --- rules_type.c --- */
/* The type of the operand's k-th binding; NULL: there is none. */
const struct mil_type *look_type(const struct mil_op *op, const char *arg,
                                 size_t k);
/* The operand is there, and not known before the program runs. */
bool look_at_run_time(const struct mil_op *op, const char *arg);
bool look_is(const struct mil_op *op, const char *type); /* NULL: false */
/* A flag of matmul: transpose_x, transpose_y. */
bool look_transposed(const struct mil_op *op, const char *arg);
bool look_is_const(const struct mil_op *op); /* const, constexpr_* */
bool holds_fp32(struct look *k);
bool holds_integers(struct look *k);
bool holds_integer(struct look *k);
bool holds_rank(struct look *k);
bool holds_axis(struct look *k);
bool holds_contraction(struct look *k);
bool holds_rows(struct look *k);
bool holds_nested(struct look *k);
bool holds_dynamic(struct look *k);
bool holds_slice(struct look *k);
bool holds_kernel(struct look *k);
bool holds_stride(struct look *k);
bool holds_reps(struct look *k);
bool holds_pad(struct look *k);
bool holds_old_chip(struct look *k);
bool holds_attention(struct look *k);

/* --- rules_state.c --- */
bool holds_state_type(struct look *k);
bool holds_state_width(struct look *k);
bool holds_state_view(struct look *k);
bool holds_state_reread(struct look *k);
bool holds_alone(struct look *k);
bool holds_begin_ranged(struct look *k);
bool holds_begin_tensor(struct look *k);
bool holds_begin_scalar(struct look *k);

/* --- rules_weight.c --- */
bool holds_blocks(struct look *k);
bool holds_int4(struct look *k);
bool holds_lut_blocks(struct look *k);
bool holds_lut_int8(struct look *k);
bool holds_lut_scale(struct look *k);
bool holds_lut_state(struct look *k);
bool holds_lut_other(struct look *k);
bool holds_sparse(struct look *k);
bool holds_weight_other(struct look *k);

/* --- rules_program.c --- */
void find_in_function(const struct mil_function *f,
                      const struct predict_limits *l,
                      struct predict_findings *to);
void find_in_program(const struct mil_program *p, uint64_t bytes,
                     const struct predict_limits *l,
                     struct predict_findings *to);
void find_in_total(struct predict_total *t);
/* Sizes of the range that the function's inputs have; 1: none. */
uint64_t rule_shapes(const struct mil_function *f);
const struct predict_rule *program_rule_at(size_t i);
