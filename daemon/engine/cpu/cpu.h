/* cpu.h - inside the CPU backend: what its files share.
 *
 *   program --bind.c--> nodes and slots --fuse.c--> fewer nodes
 *           --plan.c--> steps for one set of input shapes --> run
 *
 * A *slot* is a value's place: one for each mil_value and each inline constant
 * of the function. A *node* is an operation bound to slots. A *plan* is made
 * once for a set of input shapes: it holds every slot's shape and memory
 * (struct val) and one *step* a node with what its operation prepared.
 *
 * Values are dense and row-major. Floats of every width are held as fp32,
 * integers of every width and bools as int32, so data movement knows only
 * 4-byte elements. Three kinds are left as they are in the package or the
 * state and read in place: VAL_F16, VAL_WEIGHT and VAL_STR.
 */
#pragma once

#include "engine/cpu/backend_cpu.h"
#include "engine/cpu/weights/weight.h"
#include "engine/tensor.h"
#include "proto/limits.h"

#define CPU_ARGS_MAX  16

enum val_kind {
    VAL_NONE, /* absent, or not resolved yet */
    VAL_F32,
    VAL_I32,
    VAL_BOOL,
    VAL_F16,    /* fp16 read in place: a constant or a state */
    VAL_WEIGHT, /* a constant read in place through weight.h */
    VAL_STR,
    VAL_STATE, /* names a state; holds no data */
};

struct val {
    enum val_kind kind;
    bool known; /* the data is set when the plan is made, and never changes */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    size_t n; /* elements */
    union {
        void *p;
        float *f;
        int32_t *i;
        const uint16_t *h;
    };
    const struct weight *w; /* VAL_WEIGHT */
    const char *str;        /* VAL_STR */
    int state;              /* VAL_STATE: index of the state */
};

struct node;
struct step;

/* What a step may use while it runs. */
struct run {
    unsigned threads;
    bool round;               /* round results declared fp16 */
    void *scratch;            /* step.scratch bytes, 64-byte aligned */
    struct backend_state *st; /* NULL without states */
    uint64_t serial;          /* of this prediction */
};

/* One row of the operation table (optable.c). */
struct op_def {
    const char *type;
    const char *args[CPU_ARGS_MAX]; /* operands in order; '?' marks optional,
                                       '*' a tuple, '%' one that may be read in
                                       place (VAL_F16, VAL_WEIGHT) */
    /* Shapes: set kind, rank and dims of the outputs (val_set), keep what run
     * needs in s->u, ask for s->scratch bytes, or set s->alias. */
    int (*prep)(struct step *s, struct err *e);
    /* NULL when the outputs always alias operand 0. */
    int (*run)(const struct step *s, const struct run *r, struct err *e);
    int sub; /* which of several operations with one prep and run */
};

/* A block of cond or while_loop: its operations, the slots that go in and come
 * out. Slots are the function's: one numbering for all blocks. */
struct sub_block {
    int n_nodes;
    struct node **nodes;
    int n_in;
    int *in;
    int n_out;
    int *out;
};

struct node {
    const struct op_def *def;
    const char *name; /* of the first output, for messages */
    int *in;          /* slot of each def->args entry, -1 when absent */
    int n_list; /* of the tuple operands, and what blocks read */
    int *list;
    int n_vars; /* of a node with blocks: its tuple alone */
    int n_blocks;
    struct sub_block *blocks;
    bool writes; /* some operation inside the blocks writes a state */
    int n_out;
    int *out;
    int state;         /* write_state and fused forms; else -1 */
    const void *fused; /* parameters of a fused form (fuse.c) */
};

struct step {
    const struct node *node;
    struct val *v; /* the plan's slots */
    struct plan *plan;
    void *u;               /* plan memory, made by prep */
    size_t scratch;        /* bytes */
    unsigned plan_threads; /* scratch made for each thread is times this */
    bool alias;            /* out[0] is in[0]'s memory from alias_at on */
    size_t alias_at;
    bool done; /* computed while the plan was made */
};

/* A required operand. */
static inline struct val *step_in(const struct step *s, int i)
{
    return &s->v[s->node->in[i]];
}

/* An optional one: NULL when absent. */
static inline struct val *step_opt(const struct step *s, int i)
{
    int at = s->node->in[i];
    return at < 0 ? NULL : &s->v[at];
}

static inline struct val *step_list(const struct step *s, int i)
{
    return &s->v[s->node->list[i]];
}

static inline struct val *step_out(const struct step *s, int i)
{
    return &s->v[s->node->out[i]];
}

/* --- value.c: helpers of prep --- */

/* Zeroed plan memory for parameters, at most STEP_ALLOC_MAX bytes; never NULL
 * (the plan notes a failure and what prep made is then dropped). */
#define STEP_ALLOC_MAX 16384
void *step_alloc(struct step *s, size_t n) __attribute__((returns_nonnull));
/* The same for data of any size; NULL when memory is out. */
void *step_data(struct step *s, size_t n);

/* Kind and shape of an output. Errors: MIL_SHAPE, TOO_BIG. */
CHECKED int val_set(struct val *o, enum val_kind kind, int rank,
                    const int64_t *dims, struct err *e);
/* The same shape as x. */
CHECKED int val_like(struct val *o, enum val_kind kind, const struct val *x,
                     struct err *e);

/* Operands that shapes depend on. A value that is not known yet makes the plan
 * dynamic: the function returns CPU_UNKNOWN and the plan is made again, step
 * by step with the data. Optional ones absent: *ret stays. */
#define CPU_UNKNOWN (-1)
CHECKED int step_int(struct step *s, int arg, int64_t *ret, struct err *e);
CHECKED int step_bool(struct step *s, int arg, bool *ret, struct err *e);
CHECKED int step_float(struct step *s, int arg, float *ret, struct err *e);
/* "" when absent */
const char *step_str(const struct step *s, int arg);
/* At most cap values; *ret_n stays when absent. */
CHECKED int step_ints(struct step *s, int arg, size_t cap, int64_t *ret,
                      size_t *ret_n, struct err *e);
/* Axis operand in 0..rank-1. */
CHECKED int step_axis(struct step *s, int arg, int rank, int64_t *axis,
                      struct err *e);
/* axes operand as a mask; all axes when absent. */
CHECKED int step_axes(struct step *s, int arg, int rank, bool *set,
                      struct err *e);

bool val_is_float(const struct val *v);
/* Element strides of a dense value, in elements. */
void val_strides(const struct val *v, int64_t *strides);
/* numpy's broadcast of two shapes. Errors: MIL_SHAPE. */
CHECKED int val_broadcast(const struct val *a, const struct val *b, int *rank,
                          int64_t *dims, struct err *e);
/* "[1,64,4,1]" */
const char *val_shape_print(const struct val *v, char *out, size_t size);

/* An axis in the middle: x as [outer][n][inner]. */
struct axis3 {
    size_t outer, n, inner;
};
struct axis3 val_axis3(const struct val *v, int64_t axis);

/* Axes gone through in row-major order; those that lie one behind the other are
 * folded into one. */
struct axes {
    int n;
    size_t dims[MIL_RANK_MAX], strides[MIL_RANK_MAX];
};
void axes_add(struct axes *w, size_t dim, size_t stride);
/* The element after the one at `at`, whose position in the first n axes is
 * idx. After the last one it is the first again. */
static inline size_t axes_next(const struct axes *w, int n, size_t *idx,
                               size_t at)
{
    for (int i = n - 1; i >= 0; i--) {
        at += w->strides[i];
        if (++idx[i] < w->dims[i]) {
            break;
        }
        at -= w->strides[i] * w->dims[i];
        idx[i] = 0;
    }
    return at;
}

/* --- optable.c --- */
const struct op_def *op_find(const char *type);
const struct op_def *op_of_ints(const char *type); /* a row of its own */
const struct op_def *op_fused(const char *type); /* rows only fuse.c makes */

/* --- bind.c --- */

struct state_def {
    const char *name;
    size_t n; /* elements */
    const struct mil_type *type;
};

struct backend_model {
    struct mil_program *program; /* owned */
    const struct mil_function *fn;
    struct arena arena; /* nodes, constants, ports */
    bool round;
    bool once; /* cpu_conf's */
    void (*tap)(void *ctx, const char *op, const float *v, size_t n);
    void *tap_ctx; /* cpu_conf's */
    unsigned threads;
    const struct kernels *kernels;
    struct row_program *rows; /* NULL: it only runs as a whole */
    const char *why_not_rows; /* then the reason */
    const char *after;        /* cpu_conf.after */
    const char *seen;         /* with `after`: text of rows that cannot run */
    int n_slots;
    struct val *consts;                /* n_slots: constants, else VAL_NONE */
    const struct mil_type **slot_type; /* declared types; NULL: inline */
    int n_nodes;
    struct node **nodes;
    int n_plain; /* nodes before fuse.c changed them */
    struct node **plain;
    bool has_blocks; /* cond or while_loop */

    size_t n_in, n_out, n_states;
    struct backend_port *in, *out, *states;
    const struct mil_feature **features; /* of the inputs; NULL entries */
    int *in_slot, *out_slot;
    struct state_def *state;

    uint64_t id;
    bool has_crew;
    bool has_t;                   /* some input has an unknown dimension */
    const struct tensor **in_now; /* of the prediction, in order of `in` */
    struct tensor *in_default;    /* optional inputs; made when first needed */
    float **out_buf;              /* outputs that are not floats, or copied */
    struct tensor *out_now;       /* n_out: results of the prediction */

    struct plan *plans[ENGINE_PLANS_MAX]; /* most recently used first */
    size_t n_plans;
    struct plan *last; /* the dynamic one of the last prediction */
    bool dynamic;      /* shapes depend on data (plan.c) */
    int64_t *key;      /* of the shapes wanted now */
    uint64_t serial;
    void *scratch; /* shared by all plans */
    size_t scratch_bytes;
    int64_t t_min, t_max;
    uint64_t state_bytes; /* of flat arrays */
};

struct kv_table;
struct tails;

/* States are in blocks (kv) when the model runs as rows, else in flat arrays.
 * Flat copies of blocks are made when a program has to run as a whole. */
struct backend_state {
    const struct backend_model *m; /* borrowed */
    uint64_t model_id;
    size_t n;
    struct kv_table *kv; /* NULL: flat */
    struct tails *tails; /* NULL: none, or the model does not run as rows */
    uint16_t **data;     /* n arrays of fp16; NULL entries when not made */
};

/* --- state.c --- */

CHECKED int cpu_state_new(struct backend_model *m, struct backend_state **ret,
                          struct err *e);
void cpu_state_free(struct backend_state *s);
CHECKED int cpu_state_copy(struct backend_state *to,
                           const struct backend_state *from, struct err *e);
CHECKED int cpu_state_with(struct backend_state *s, const char *name,
                           backend_state_fn *fn, void *ctx, struct err *e);
CHECKED int cpu_state_fork(const struct backend_state *from, uint32_t n,
                           struct backend_state **ret, struct err *e);
void cpu_state_truncate(struct backend_state *s, uint32_t n);
bool cpu_state_can_cut(const struct backend_state *s, uint32_t n);
CHECKED int cpu_state_mark(struct backend_state *s, uint32_t n, bool hold,
                           struct err *e);
void cpu_state_trim(struct backend_model *m);
size_t cpu_block_arrays(const struct backend_state *s, struct state_array *ret);
CHECKED int cpu_block_save(const struct backend_state *s, uint32_t b,
                           void *out, struct err *e);
CHECKED int cpu_block_load(struct backend_state *s, uint32_t b, const void *in,
                           struct err *e);
/* Whether s has the states of m; with `rows`: in blocks that m's row program
 * can use. */
bool cpu_state_fits(const struct backend_state *s,
                    const struct backend_model *m, bool rows);
/* Flat copies of blocks for a run as a whole, and back. Nothing to do for a
 * flat state. Errors: NOMEM. */
CHECKED int cpu_state_flatten(struct backend_state *s, struct err *e);
CHECKED int cpu_state_unflatten(struct backend_state *s, struct err *e);

/* Bind program's function (ownership of p is taken in every case). fast:
 * also run fuse.c's passes. Errors: MIL_*, NOMEM. Used by the backends' open
 * and by tests. */
CHECKED int cpu_open_program(struct mil_program *p, const char *function,
                             const struct backend_conf *conf, bool fast,
                             struct backend_model **ret, struct err *e);
void cpu_close(struct backend_model *m);

/* Whether the slot is declared fp16: round mode rounds it. */
static inline bool slot_is_fp16(const struct backend_model *m, int slot)
{
    return m->slot_type[slot] != NULL && m->slot_type[slot]->dtype == MIL_FP16;
}

/* --- io.c --- */

CHECKED int cpu_array_new(struct backend_model *m, size_t i,
                          enum mil_dtype dtype, int rank, const int64_t *dims,
                          struct backend_array **ret, struct err *e);
void cpu_array_free(struct backend_array *a);
CHECKED int cpu_bind(struct backend_model *m, struct backend_array *const *in,
                     struct backend_io **ret, struct err *e);
void cpu_unbind(struct backend_io *io);
void cpu_rebind(struct backend_io *io, size_t i, struct backend_array *a);
CHECKED int cpu_predict(struct backend_io *io, struct backend_state *s,
                        struct err *e);

/* --- plan.c --- */

/* Predict with the plan for these inputs (their shapes already checked against
 * the declaration), kept or new. A dynamic plan is made anew and run at once.
 * The values live until the next prediction. Errors: MIL_SHAPE, MIL_INPUT,
 * NOMEM. */
CHECKED int plan_run(struct backend_model *m, struct backend_state *st,
                     const struct tensor *const *in, const struct val **ret_v,
                     struct err *e);
void plan_free(struct plan *p); /* NULL is fine */
