/* backend.h - what can run a Core ML package: the only thing the engine knows
 * of CPU, interpreter and Core ML.
 *
 * A backend_model is one function of one package, ready to run. A
 * backend_state holds the values of its states for one sequence, zero at
 * first. A state serves every function of its package that declares the same
 * states; the model it was made by must outlive it. Shapes and roles are in
 * the program itself; the engine feeds inputs by name.
 *
 * Thread: one call at a time per model; the backend may use threads inside.
 * A row's result never depends on the other rows of the call, on T, or on the
 * number of threads (design 7), for programs that are row-wise along T.
 */
#pragma once

#include "base/err.h"
#include "mil/mil.h"

/* A dense row-major array. fp32 data, or fp16 bit patterns, or int32. */
struct tensor {
    const char *name; /* borrowed */
    enum mil_dtype dtype; /* MIL_FP32, MIL_FP16, MIL_INT32, MIL_BOOL */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    void *data; /* inputs: borrowed; outputs: see predict */
};

struct backend_conf {
    unsigned threads; /* 0 = number of cores */
    bool round_fp16;  /* round each operation's result to fp16 */
};

struct backend_model;
struct backend_state;

/* Input and output names, in declaration order, with declared types
 * (MIL_UNKNOWN where flexible; then lo and hi give the range of that input). */
struct backend_port {
    const char *name;
    struct mil_type type;
    int64_t t_lo, t_hi; /* range of the unknown dimension; 0, 0 when fixed */
};

struct backend_info {
    size_t n_in, n_out, n_states;
    const struct backend_port *in, *out, *states; /* live as long as the model */
    int64_t t_min, t_max; /* T range this backend runs (1, 1 when no input has T) */
    uint64_t weight_bytes;
    uint64_t state_bytes;
};

struct backend {
    const char *name;       /* "interpreter", "cpu", "coreml" */
    uint32_t arith_version; /* changes when results may change in any bit */

    /* function NULL is the default one. Errors: those of mil_read and
     * mil_validate, MIL_OP, NOMEM. */
    int (*open)(const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_model **ret,
                struct err *e);
    void (*close)(struct backend_model *m); /* NULL is fine */
    void (*info)(const struct backend_model *m, struct backend_info *ret);

    int (*state_new)(struct backend_model *m, struct backend_state **ret,
                     struct err *e);
    void (*state_free)(struct backend_state *s); /* NULL is fine */
    int (*state_copy)(struct backend_state *to, const struct backend_state *from,
                      struct err *e);
    /* Borrowed view of one state's values (fp16) for tests and saving. */
    int (*state_get)(struct backend_state *s, const char *name,
                     struct tensor *ret, struct err *e);

    /* One prediction. All declared inputs must be given, in any order, dtype
     * fp32, fp16 or int32, of the declared rank and dimensions. out: one
     * tensor per wanted output, name set by the caller; dtype MIL_FP32,
     * dims and data are filled: data is owned by the model and valid
     * until its next call. s may be NULL when the function has no states.
     * Errors: MIL_INPUT, MIL_SHAPE, NOMEM. */
    int (*predict)(struct backend_model *m, struct backend_state *s,
                   const struct tensor *in, size_t n_in, struct tensor *out,
                   size_t n_out, struct err *e);
};

extern const struct backend backend_interpreter; /* op by op */
extern const struct backend backend_cpu; /* the same kernels and fast paths */

/* "cpu", "interpreter", "coreml" (macOS). NULL: unknown or not in this
 * build. */
const struct backend *backend_find(const char *name);
