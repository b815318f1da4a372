/* backend.h - the interface of what runs Core ML packages. The engine knows the
 * CPU backend, the interpreter and Core ML only through it.
 *
 * A backend_model is one function of one package, ready to run. Its inputs
 * and results are arrays in memory that the backend chooses: a binding (struct
 * backend_io) ties one array to each input, for one set of shapes. A
 * backend_state holds the values of the function's states for one sequence,
 * zero at first. It works with every function of the package that declares the
 * same states; the model that made it must outlive it.
 *
 *   open -> info -> warm (each width) -> array_new, bind -> predict ...
 *                   state_new ------------------------------^
 *
 * T, or the width, is the axis of the rows that one call computes. On some
 * hardware a row's last bits depend on it: info.exact_widths says which widths
 * agree. Within one of those, a row's result never depends on the other rows of
 * the call, on the row's place, or on the number of threads.
 *
 * Thread: one call at a time for each model and what it made; the backend may
 * use threads inside.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "mil/mil.h"
#include "proto/limits.h"
#include "proto/state_file.h"

/* An array in a backend's memory. Element (i, j, ...) stands strides[0] * i +
 * strides[1] * j + ... elements after data; between rows there may be padding
 * that is nobody's. engine/array.h reads and writes it. */
struct backend_array {
    enum mil_dtype dtype; /* MIL_FP32, MIL_FP16, MIL_INT32, MIL_BOOL; bools as
                             a byte */
    int rank;
    int64_t dims[MIL_RANK_MAX], strides[MIL_RANK_MAX]; /* elements */
    void *data; /* valid between backend.lock and unlock */
    void *own;  /* the backend's */
};

/* What a backend asks between pieces of long work: whether to go on. False: end
 * with CANCELLED. Called on the thread that called the backend, at least every
 * BACKEND_ASK_MS while it waits for others. How far opening is, the engine
 * tells: systems do not. */
struct backend_watch {
    bool (*go)(void *ctx); /* NULL: never cancelled */
    void *ctx;
};

struct cpu_conf;    /* engine/cpu/backend_cpu.h */
struct coreml_conf; /* engine/coreml/backend_coreml.h */

struct backend_conf {
    unsigned threads; /* 0 = number of cores */
    struct backend_watch watch;
    /* What was measured on this machine about this package (`aned probe`):
     * widths whose rows have the same bits. NULL: nothing is known. */
    const uint32_t *exact_widths;
    size_t n_exact_widths;
    const char *cache; /* folder for what the backend prepares; NULL: none */
    const struct cpu_conf *cpu;       /* NULL: the defaults */
    const struct coreml_conf *coreml; /* the same */
};

struct backend_model;
struct backend_state;

/* An input, output or state: its name and declared type. A flexible dimension
 * is MIL_UNKNOWN, and t_lo and t_hi are its range. */
struct backend_port {
    const char *name;
    struct mil_type type;
    int64_t t_lo, t_hi; /* range of the unknown dimension; 0, 0 when fixed */
};

/* What an input is in a program that runs as rows. DATA: numbers of each row.
 * MASK: the attention mask; a row gives the range of positions that it sees.
 * WRITE: the write mask; a row gives the position at which it is stored. PAST:
 * what a short convolution reads of earlier positions; the state has it. UNREAD:
 * no result depends on it, so it need not be given. */
enum backend_row_use {
    BACKEND_ROW_DATA,
    BACKEND_ROW_MASK,
    BACKEND_ROW_WRITE,
    BACKEND_ROW_PAST,
    BACKEND_ROW_UNREAD,
};

struct backend_row_port {
    enum backend_row_use use;
    uint32_t width; /* numbers of a row; 0 for masks */
};

struct backend_info {
    size_t n_in, n_out, n_states;
    const struct backend_port *in, *out, *states; /* live as long as the model */
    bool wide_masks; /* an input that is declared [1, 1, 1, T] may be given as
                        [1, 1, T, T], a row for each of T. What a row hides of a
                        mask (-1e4) changes no bit of it, wherever what it sees
                        begins, if that is a multiple of 16 */
    int64_t t_min, t_max; /* T range this backend runs (1, 1 when no input has T) */
    /* Widths whose rows have the same bits, ascending; none: all of them. */
    const uint32_t *exact_widths;
    size_t n_exact_widths;
    /* What the bits of a result depend on besides package and inputs, as text
     * of at most ARITH_BYTES_MAX: the version of our kernels, or chip, system
     * build and compute units. Lives as long as the model. */
    const char *arith;
    uint64_t weight_bytes;
    uint64_t state_bytes; /* memory that a state costs at most */
    /* Where states grow, else 0: n states with b blocks of STATE_BLOCK
     * positions in all cost at most (n + 1) * base_bytes + b * block_bytes. */
    uint64_t base_bytes, block_bytes;
    /* Only where backend.rows is not NULL: */
    uint32_t rows_max; /* rows that rows->predict takes; 0: not row-wise */
    const struct backend_row_port *row_in, *row_out; /* n_in, n_out of them */
    bool recurrent; /* rows need a state, though n_states may be 0, and it can be
                       cut at some positions only (backend_row_ops.can_cut) */
    uint64_t whole_bytes; /* what a state costs on top of that when rows_max > 0
                             and `predict` is called with it */
};

/* A model's inputs and results for one set of shapes. */
struct backend_io {
    struct backend_model *m;
    size_t n_in, n_out;
    /* Of info.in, in order; NULL: not given, the package has a default. */
    struct backend_array **in;
    /* Of info.out, in order: the results of the last prediction. Where they lie
     * may change with every prediction, the shapes too. */
    struct backend_array *out;
    void *own; /* the backend's */
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

/* What a backend adds that runs rows of many sequences in one call. Not called
 * when info.rows_max is 0. */
struct backend_row_ops {
    /* Errors: MIL_INPUT, NOMEM, CANCELLED (`go` returned false). */
    int (*predict)(struct backend_model *m, const struct backend_rows *in,
                   struct backend_row_out *out, size_t n_out, struct err *e);
    /* A new state that shares the first n positions of `from`. Errors: NOMEM,
     * CONFLICT (can_cut). */
    int (*fork)(const struct backend_state *from, uint32_t n,
                struct backend_state **ret, struct err *e);
    /* Forget positions n and later; can_cut says whether that can be. */
    void (*truncate)(struct backend_state *s, uint32_t n);
    /* Whether rows can go on at position n, which is at most the length of what
     * was computed: always, but with info.recurrent (engine/tails.h). */
    bool (*can_cut)(const struct backend_state *s, uint32_t n);
    /* With info.recurrent: see tails_mark. */
    int (*mark)(struct backend_state *s, uint32_t n, bool hold, struct err *e);
    /* Give memory that no state uses back to the system, also what would stay
     * for states to come. */
    void (*trim)(struct backend_model *m);
};

/* Where an operation may run. */
enum backend_device { BACKEND_CPU, BACKEND_GPU, BACKEND_NEURAL_ENGINE };

struct backend_plan_op {
    char name[BACKEND_OP_NAME_MAX]; /* of its first result; cut */
    char type[BACKEND_OP_TYPE_MAX]; /* "conv", without a prefix */
    enum backend_device preferred;  /* where the system would run it */
    unsigned supported;             /* bit 1 << device for each that could */
    double cost; /* its share of the function's time, 0..1; < 0: not told */
};

/* What the system says it would do with a function; operations that compute
 * nothing at run time (constants) are left out. */
struct backend_plan {
    size_t n_ops;
    struct backend_plan_op *ops; /* owned */
};

/* One state's array, valid until it returns. May be read and written. */
typedef int backend_state_fn(void *ctx, struct backend_array *a, struct err *e);

struct backend {
    const char *name; /* "interpreter", "cpu", "coreml" */
    uint32_t models_max; /* that a process has open at once; 0: no limit */

    /* function NULL is the default one. Errors: those of mil_read and
     * mil_validate, MIL_OP, NOMEM, CANCELLED, BACKEND (the system refused the
     * package). */
    int (*open)(const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_model **ret,
                struct err *e);
    void (*close)(struct backend_model *m); /* NULL is fine */
    void (*info)(const struct backend_model *m, struct backend_info *ret);
    /* Run width t once on zeros and throw the results away, so that what
     * happens only at the first prediction (minutes, on some systems) has
     * happened. NULL: there is no such thing. Errors: those of predict,
     * CANCELLED. */
    int (*warm)(struct backend_model *m, uint32_t t,
                const struct backend_watch *watch, struct err *e);

    /* An array for input i, zero. `dtype` is what the caller has; the backend
     * may choose another, which the result says. Models of one backend take
     * each other's arrays where dtype and shape fit. Errors: MIL_INPUT (not as
     * declared), NOMEM. */
    int (*array_new)(struct backend_model *m, size_t i, enum mil_dtype dtype,
                     int rank, const int64_t *dims, struct backend_array **ret,
                     struct err *e);
    void (*array_free)(struct backend_array *a); /* NULL is fine */
    /* Begin and end access by the host; not during a prediction. write: the
     * data may change. lock NULL: `data` is always valid. Errors: BACKEND. */
    int (*lock)(struct backend_array *a, bool write, struct err *e);
    void (*unlock)(struct backend_array *a, bool write);
    /* Tie arrays to the inputs (see backend_io; borrowed). Errors: MIL_INPUT,
     * MIL_SHAPE, NOMEM. */
    int (*bind)(struct backend_model *m, struct backend_array *const *in,
                struct backend_io **ret, struct err *e);
    void (*unbind)(struct backend_io *io); /* NULL is fine */
    /* Another array for input i from now on, of the same dtype and shape; the
     * one before may be gone. */
    void (*rebind)(struct backend_io *io, size_t i, struct backend_array *a);
    /* One prediction: io->out is filled; it is valid until the model's next
     * call. s may be NULL when the function has no states. Errors: MIL_INPUT,
     * MIL_SHAPE, NOMEM, BACKEND (it failed on the device: the same call may
     * succeed again; the positions that it writes are undefined). */
    int (*predict)(struct backend_io *io, struct backend_state *s,
                   struct err *e);

    int (*state_new)(struct backend_model *m, struct backend_state **ret,
                     struct err *e);
    void (*state_free)(struct backend_state *s); /* NULL is fine */
    int (*state_copy)(struct backend_state *to, const struct backend_state *from,
                      struct err *e);
    /* Call fn with the state's array: [1, heads, positions, dim] in most
     * packages. Its place in memory may differ from call to call. Errors:
     * NOT_FOUND, NOMEM, and what fn returns. */
    int (*state_with)(struct backend_state *s, const char *name,
                      backend_state_fn *fn, void *ctx, struct err *e);
    /* Save a state, STATE_BLOCK positions at a time. block_arrays describes the
     * arrays of one block, at most STATE_ARRAYS_MAX, and returns their number;
     * 0 when the state has no separate positions. block_save writes all of them
     * to out. block_load reads them back bit for bit, so that later rows give
     * the same results. All three are NULL in a backend that saves no states.
     * Errors: NOMEM, CONTEXT, BACKEND. */
    size_t (*block_arrays)(const struct backend_state *s,
                           struct state_array *ret);
    int (*block_save)(const struct backend_state *s, uint32_t b, void *out,
                      struct err *e);
    int (*block_load)(struct backend_state *s, uint32_t b, const void *in,
                      struct err *e);

    const struct backend_row_ops *rows; /* NULL: one sequence at a time */

    /* Ask the system where a function's operations would run, without running
     * it. It may take as long as warm, and end the process (facts of Core ML):
     * `aned probe` calls it, the engine does not. free(ret->ops) when done.
     * NULL: there is no such thing. Errors: those of open. */
    int (*plan)(const char *pkg, const char *function,
                const struct backend_conf *conf, struct backend_plan *ret,
                struct err *e);
    /* What info.arith of every package is under this conf. NULL: only an open
     * package tells. */
    void (*machine)(const struct backend_conf *conf,
                    char out[ARITH_BYTES_MAX]);
};

/* "cpu", "interpreter", "coreml" (macOS). NULL: unknown or not in this
 * build. */
const struct backend *backend_find(const char *name);
