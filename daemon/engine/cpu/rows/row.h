/* row.h - a program that is row-wise along T, compiled to run any rows.
 *
 * The program is planned at T = 1, where every value belongs to one row, and
 * run for all rows at once: a value is an array [rows][ld] of fp32; ld is its
 * number of elements rounded up to ROW_ALIGN. Only states and the masks over
 * them connect rows, and these must be recognised: the masked write becomes a
 * store at the row's position, attention a loop over the sequence's blocks, a
 * convolution along T a sum over the sequence's tail. Any
 * other operation either has a form of its own here, or the interpreter's T = 1
 * step runs once for each row.
 *
 *   nodes --row_length.c--> checked: nothing depends on the number of rows
 *         --row_make.c--> ops, one a step
 *         --row_pass.c--> recognised ops (passes by name, in order)
 *         --row_plan.c--> places in memory
 *         --row_run.c--> results
 *
 * A row's numbers depend on that row and its sequence only.
 */
#pragma once

#include "base/buf.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/kernels/attention/attend.h"
#include "engine/cpu/kernels/products/linear.h"
#include "engine/tails.h"

#define ROW_ALIGN     16u /* floats; a value's rows start at cache lines */
#define ROW_PARTS_MAX 8 /* products of one set; one more begins a new set */
#define ROW_IN_MIN    3 /* operands that any op has room for */

enum row_class {
    ROW_ABSENT, /* not seen, or dead */
    ROW_VALUE,  /* numbers of each row */
    ROW_FIXED,  /* known when the program was compiled */
    ROW_MASK,   /* an attention mask: an input, or a view of one */
    ROW_WRITE,  /* the write mask: the same */
    ROW_PAST,   /* an input that the state of a row's sequence keeps */
};

struct row_value {
    enum row_class class;
    const char *name;
    size_t n;     /* elements of a row */
    size_t ld;    /* of the memory it lies in */
    int root;     /* value whose memory this one is in; itself */
    size_t at;    /* first element in root's row */
    int input;    /* index of the model's input it is, or is a view of; -1 */
    size_t place; /* of a root: floats of all values before it, a row */
};

enum row_kind {
    ROW_STEP,   /* the interpreter's step, row by row */
    ROW_VIEW,   /* out[k] is in from at[k] on */
    ROW_LINEAR, /* out = W in + b, W one or more matrices */
    ROW_NORM,
    ROW_ROPE,
    ROW_STORE,
    ROW_ATTEND,
    ROW_TAIL,   /* out = taps over in and what the row's tail has of it */
    ROW_UNARY,  /* out = f(in) */
    ROW_BINARY, /* out = in0 op in1 */
    ROW_GLU,    /* out = f(in0) * in1 */
    ROW_EXPERTS, /* in: x, gates; see struct row_experts */
    ROW_DEAD,
};

/* The results of the matrices follow one another in the result. */
struct row_linear {
    int parts;
    const struct weight *w[ROW_PARTS_MAX];
    const float *bias[ROW_PARTS_MAX]; /* NULL: none */
    bool integer, real;               /* forms of the input that they need */
};

/* y = w * (c x) / sqrt(sum((c x)^2) * mean + eps + eps_max * max(|x|, floor)^2)
 * over groups of `width` neighbours */
struct row_norm {
    size_t width;
    float scale, mean, eps;
    float eps_peak, floor; /* of the form that divides by the peak */
    const float *w;        /* NULL: none; n_w elements, repeated */
    size_t n_w;
    float gain; /* factor of a multiplication after it */
};

/* Pairs (i, i + half) of each head of `dim` turn by the row's angles; elements
 * from 2 half on pass. in: x, cos, sin. */
struct row_rope {
    size_t dim, half;
};

struct row_store {
    int state;
};

struct row_attend {
    int k_state, v_state;
    uint32_t heads, kv_heads, dim, vdim;
    uint32_t kv_first; /* first key/value head of the states */
    int mask;          /* input */
    bool tanh; /* scores are tanh(q k^T * before) * scale */
    float before;
    bool divide;
    float scale;
};

struct row_tail {
    size_t port;       /* of row_program.tails */
    uint32_t n_taps;
    const float *taps; /* (n_taps, width), the newest position's last */
    const float *bias; /* width; NULL: none */
    /* The convolution after it, a group each `group` channels: (width, group *
     * mix_taps) fp16. NULL: there is none, and mix_taps is 1. */
    const uint16_t *mix;
    uint32_t mix_taps, group;
    const float *mix_bias;
};

/* Elementwise: sub is that of the table (ops.h). A fixed operand is a scalar
 * or as long as the row. */
struct row_ew {
    int sub;
    const float *fixed[2]; /* ROW_BINARY; NULL: a row value */
    size_t n_fixed[2];     /* 1, or the row's elements */
};

/* out = sum over e of down_e (f(gate_e x) * (gates[e] * (up_e x))); the rows of n
 * experts follow one another in each weight. f is that of the op's step. */
enum { EXPERTS_GATE, EXPERTS_UP, EXPERTS_DOWN, EXPERTS_MATRICES };
struct row_experts {
    size_t n, width; /* experts; rows of gate_e and up_e */
    const struct weight *w[EXPERTS_MATRICES];
};

struct row_op {
    enum row_kind kind;
    const char *name;
    int step; /* index in the plan; -1: made by a pass */
    int n_in, n_out;
    int *in;    /* values; fixed ones are left out of the special forms; room
                 * for ROW_IN_MIN */
    int *out;   /* room for 1 */
    size_t *at; /* ROW_VIEW: first element of each result */
    union {
        struct row_linear linear;
        struct row_norm norm;
        struct row_rope rope;
        struct row_store store;
        struct row_attend attend;
        struct row_tail tail;
        struct row_ew ew;
        struct row_experts experts;
    };
};

/* The compiled program; belongs to its model. */
struct row_program {
    struct backend_model *m;
    struct plan *plan; /* T = 1; owned */
    struct arena arena;
    int n_values, cap_values; /* the model's slots first */
    struct row_value *v;
    int n_ops, cap_ops;
    struct row_op *ops;
    int *def;  /* op that makes a value; -1 */
    int *uses; /* readers, the outputs among them */
    struct backend_row_port *in_port, *out_port;
    int *t_axis_in, *t_axis_out; /* of each input and output; -1 fixed */
    struct kv_shape *shapes;     /* one a state */
    struct kv_pool *pool;        /* NULL without states */
    size_t n_tails;
    struct tail_port *tails;
    size_t tail_width;   /* floats of a worker's tail_scratch */
    float *tail_scratch; /* NULL without tails */
    float *tail_each;    /* of each row: values between two convolutions */
    int *before; /* of each row: the one of its sequence's last position, or -1 */
    const struct kernels *kernels;
    size_t floats;   /* of a row's memory */
    size_t rows_max; /* of a run */
    float *memory;   /* rows_max * floats */
    struct linear_in *lin;          /* the input of the present product */
    float *scratch;                 /* attend.c's */
    float *mixing;                  /* row_experts.c's, and */
    uint32_t *picked;               /* rows of an expert, or a row's experts */
    const struct kv_table **tables; /* of each row; rows_max */
    struct row_at {
        float *p;
        size_t ld;
    } * base; /* of each root in this run */
};

/* --- row_make.c --- */

/* Compile m for rows, after fuse.c, with the passes up to m->after (NULL: all).
 * When the program is not row-wise, *ret stays NULL and the result is 0; *why
 * (may be NULL) is then the reason, a static or arena string. Errors: NOMEM. */
CHECKED int row_make(struct backend_model *m, struct row_program **ret,
                     const char **why, struct err *e);
void row_free(struct row_program *p); /* NULL is fine */

/* A value or op added by a pass; -1 when memory is out. */
int row_value_new(struct row_program *p, const char *name, size_t n);
/* Compute def and uses from the present ops. */
void row_count(struct row_program *p);
/* The op that makes a value; NULL. Views are looked through by row_source. */
struct row_op *row_def(const struct row_program *p, int value);

/* --- row_pass.c --- */

struct row_pass {
    const char *name;
    int (*run)(struct row_program *p, struct err *e);
};

/* row_state.c runs first, always; it is not in the list of passes. */
#define ROW_STATES "states"

/* In order; NULL name after the last. */
extern const struct row_pass row_passes[];

int row_pass_views(struct row_program *p, struct err *e); /* row_view.c */
int row_pass_norm(struct row_program *p, struct err *e);  /* row_norm.c */
int row_pass_rope(struct row_program *p, struct err *e);  /* row_rope.c */
int row_pass_linear(struct row_program *p, struct err *e);
int row_pass_elementwise(struct row_program *p, struct err *e);
int row_pass_experts(struct row_program *p, struct err *e);
int row_pass_glu(struct row_program *p, struct err *e);
int row_pass_heads(struct row_program *p, struct err *e);
int row_pass_share(struct row_program *p, struct err *e);
int row_pass_dead(struct row_program *p, struct err *e);

/* --- row_plan.c --- */

/* Give every root its place; NOMEM. */
CHECKED int row_place(struct row_program *p, struct err *e);

/* --- row_experts.c --- */

/* Elements of the longest row that it multiplies, and floats that a row takes
 * beside the values. */
size_t row_experts_inputs(const struct row_experts *f);
size_t row_experts_floats(const struct row_experts *f);
/* Room for p->rows_max rows. NOMEM. */
CHECKED int row_experts_open(struct row_program *p, struct err *e);
/* Compute op for `rows` rows. Errors: NOMEM. */
CHECKED int row_experts_run(const struct row_program *p,
                            const struct row_op *op, size_t rows,
                            struct err *e);

/* --- row_run.c --- */

CHECKED int row_run(struct row_program *p, const struct backend_rows *in,
                    struct backend_row_out *out, size_t n_out, struct err *e);

/* Value `value` of row r. */
static inline float *row_of(const struct row_program *p, int value, size_t r)
{
    const struct row_value *v = &p->v[value];
    const struct row_at *b = &p->base[v->root];
    return b->p + r * b->ld + v->at;
}

/* --- row_tail.c --- */

/* What runs need of memory, when rows_max is known. Errors: NOMEM. */
CHECKED int row_tails_open(struct row_program *p, struct err *e);
/* Before the ops of a run: p->before, and room in the rows' tails. Errors:
 * MIL_INPUT, NOMEM. */
CHECKED int row_tails_begin(struct row_program *p,
                            const struct backend_rows *in, struct err *e);
void row_run_tail(const struct row_program *p, const struct backend_rows *in,
                  const struct row_op *op);

/* --- row_tensor.c --- */

/* Run the prediction of m->in_now as rows; out: m->n_out results. 1: it cannot
 * be expressed as rows. Errors: those of row_run, MIL_INPUT. */
CHECKED int row_predict(struct row_program *p, struct backend_state *s,
                        struct tensor *out, struct err *e);

/* --- row_dump.c --- */

/* The program as text, one op a line. Its places in memory need not be known
 * yet. */
void row_dump(const struct row_program *p, struct buf *out);
