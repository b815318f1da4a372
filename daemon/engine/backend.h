/* backend.h - the interface of what runs Core ML packages. The engine knows the
 * CPU backend, the interpreter and Core ML only through it.
 *
 * A backend_model is one function of one package, ready to run. A
 * backend_state holds the values of the function's states for one sequence,
 * zero at first. It works with every function of the package that declares the
 * same states; the model that made it must outlive it. The program itself has
 * the shapes; the engine gives inputs by name. T is the axis of the rows that
 * one call computes.
 *
 * In a program that is row-wise along T, a row's result never depends on the
 * other rows of the call, on T, or on the number of threads.
 *
 * Thread: one call at a time for each model; the backend may use threads
 * inside.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "mil/mil.h"
#include "proto/state_file.h"

/* A dense row-major array of numbers of dtype; fp16 as bit patterns. */
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
    const char *isa;  /* instruction set of the kernels ("scalar", "avx2", ...);
                       * NULL: the best this machine has */
    /* The last pass to run (backend_pass); NULL: all passes. The operations
     * that later passes would replace then run as they are. */
    const char *after;
};

struct backend_model;
struct backend_state;

/* An input or output: its name and declared type. A flexible dimension is
 * MIL_UNKNOWN, and t_lo and t_hi are its range. */
struct backend_port {
    const char *name;
    struct mil_type type;
    int64_t t_lo, t_hi; /* range of the unknown dimension; 0, 0 when fixed */
};

/* What an input is in a program that runs as rows. DATA: numbers of each row.
 * MASK: the attention mask; a row gives the range of positions that it sees.
 * WRITE: the write mask; a row gives the position at which it is stored. */
enum backend_row_use { BACKEND_ROW_DATA, BACKEND_ROW_MASK, BACKEND_ROW_WRITE };

struct backend_row_port {
    enum backend_row_use use;
    uint32_t width; /* numbers of a row; 0 for masks */
};

struct backend_info {
    uint32_t rows_max; /* rows that predict_rows takes; 0: not row-wise */
    const struct backend_row_port *row_in, *row_out; /* n_in, n_out of them */
    size_t n_in, n_out, n_states;
    const struct backend_port *in, *out, *states; /* live as long as the model */
    int64_t t_min, t_max; /* T range this backend runs (1, 1 when no input has T) */
    uint64_t weight_bytes;
    uint64_t state_bytes; /* memory that a state costs at most */
    uint64_t whole_bytes; /* what it costs on top of that when rows_max > 0 and
                             `predict` is called with it */
};

#define BACKEND_NO_WRITE UINT32_MAX /* a row that is not stored */

struct backend_row_in {
    const float *p; /* number i of row r is p[r * ld + i] */
    size_t ld;
};

struct backend_row_out {
    const char *name;
    float *p; /* p[r * ld + i], the caller's memory */
    size_t ld;
};

/* Rows of any number of sequences, in any mixture; rows of one sequence come in
 * the order of their positions. All rows are stored before any attends. A row
 * sees positions [lo, hi) of its own sequence, its own position included. */
struct backend_rows {
    size_t n;                           /* 1 .. rows_max */
    const struct backend_row_in *in;    /* info.n_in; DATA only */
    struct backend_state *const *state; /* n; NULL without states */
    const uint32_t *write;              /* n positions, or BACKEND_NO_WRITE */
    const uint32_t *const *lo, *const *hi; /* info.n_in; [n] for MASK */
    /* NULL, or called before each product (a layer has several). When it
     * returns false, the call ends with CANCELLED; positions of the rows may
     * have been written. */
    bool (*go)(void *ctx);
    void *go_ctx;
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
    /* A borrowed view of one state's values (fp16): for `aned mil run`. */
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

    /* Run rows. This and the next two are NULL in a backend that cannot; they
     * are not called when info.rows_max is 0. Errors: MIL_INPUT, NOMEM,
     * CANCELLED (`go` returned false). */
    int (*predict_rows)(struct backend_model *m, const struct backend_rows *in,
                        struct backend_row_out *out, size_t n_out,
                        struct err *e);
    /* A new state that shares the first n positions of `from`, for a model
     * whose rows_max is not 0. */
    int (*state_fork)(const struct backend_state *from, uint32_t n,
                      struct backend_state **ret, struct err *e);
    /* Forget positions n and later. */
    void (*state_truncate)(struct backend_state *s, uint32_t n);
    /* Give memory that no state uses back to the system, also what would stay
     * for states to come. NULL: it goes back by itself. */
    void (*trim)(struct backend_model *m);
    /* Save a state, STATE_BLOCK positions at a time. block_arrays describes the
     * arrays of one block, at most STATE_ARRAYS_MAX, and returns their number;
     * 0 when the state has no separate positions. block_save writes all of them
     * to out. block_load reads them back bit for bit, so that later rows give
     * the same results. All three are NULL in a backend that saves no states.
     * Errors of block_load: NOMEM, CONTEXT. */
    size_t (*block_arrays)(const struct backend_state *s,
                           struct state_array *ret);
    void (*block_save)(const struct backend_state *s, uint32_t b, void *out);
    int (*block_load)(struct backend_state *s, uint32_t b, const void *in,
                      struct err *e);
    /* The compiled program as text; NULL: there is none. */
    void (*dump)(const struct backend_model *m, struct buf *out);
};

extern const struct backend backend_interpreter; /* op by op */
extern const struct backend backend_cpu; /* the same kernels and fast paths */

/* "cpu", "interpreter", "coreml" (macOS). NULL: unknown or not in this
 * build. */
const struct backend *backend_find(const char *name);
/* The i-th instruction set that the CPU backends have kernels for on this
 * machine, best first; NULL after the last. */
const char *backend_isa(size_t i);
/* The i-th pass of the CPU backend over a program that runs as rows; NULL
 * after the last. */
const char *backend_pass(size_t i);
