/* weights.h - turns tensors of the source into constants of a package, in
 * blocks of rows.
 *
 * A block of rows is dequantised, permuted, quantised and written before the
 * next one is read: memory is a few blocks a thread, for any size of model.
 * Output bytes do not depend on the number of threads.
 */
#pragma once

#include "convert/arch/arch.h"
#include "convert/progress.h"
#include "convert/quant/choice.h"
#include "mil/build.h"

/* What calibration knows of a matrix's inputs: see quant_input. */
struct weights_inputs {
    const float *importance;
    const struct feedback *feedback;
};

/* Rows in their form (quant_form), in the order of the package. */
struct weights_codes {
    const uint8_t *codes;
    const uint16_t *params;
};

struct weights {
    unsigned threads;                  /* crew.h */
    struct progress *progress;         /* borrowed; NULL: none */
    const struct quant_choice *choice; /* borrowed: forms of matrices */
    /* Fill *ret for a matrix; it is borrowed until weights_matrix returns.
     * NULL: there is no calibration. Called by the thread of weights_matrix. */
    void (*inputs)(void *ctx, const struct gguf_tensor *t,
                   struct weights_inputs *ret);
    /* Codes of rows [first, first + rows) of p that were made before and are
     * used in place of encoding; false: there are none. NULL: never. Borrowed
     * until weights_matrix returns; same thread. */
    bool (*codes)(void *ctx, const struct part *p, uint64_t first,
                  uint64_t rows, struct weights_codes *ret);
    void *ctx; /* of both */
};

/* A matrix as the operand of a 1x1 conv, in the form that its tensor has. */
struct weight {
    const struct mil_const *data;   /* codes [rows, cols, 1, 1] */
    const struct mil_const *params; /* scales or palettes; NULL for fp16 */
    bool palette;
    double error; /* what quantising cost: quant_form.error, all rows */
};

/* Rows [first, first + rows) of p. perm: NULL, or the permutation that the rows
 * of each head need (then whole heads). Errors: RANGE (a weight that fp16 cannot
 * hold), CONVERT (NaN), UNSUPPORTED, NOMEM, CANCELLED, those of gguf_rows. Where
 * the writer keeps it already (mil_writer_keeps), nothing is read and ret->error
 * is 0. */
CHECKED int weights_matrix(const struct weights *x, struct mil_writer *w,
                           const struct part *p, uint64_t first, uint64_t rows,
                           const struct head_rows *perm, struct weight *ret,
                           struct err *e);

/* The encoding alone: `put` gets the codes of successive rows, params (of the
 * caller) the parameters of all, as quant_fit(spec, rows) has them. *ret_error:
 * as weight.error. Same errors, and those of put. fp16: params is not used. */
CHECKED int weights_encode(
    const struct weights *x, const struct part *p, uint64_t first,
    uint64_t rows, const struct head_rows *perm, struct quant_spec spec,
    int (*put)(void *ctx, const void *codes, size_t n, struct err *e),
    void *ctx, uint16_t *params, double *ret_error, struct err *e);
/* The parameters alone that weights_matrix would store beside all rows of p:
 * quant_params(quant_fit(spec, p->rows), p->rows) of fp16. *error: as
 * struct weight's. spec is not fp16. Errors: those of weights_matrix. */
CHECKED int weights_params(const struct weights *x, const struct part *p,
                           const struct head_rows *perm, struct quant_spec spec,
                           uint16_t *params, double *error, struct err *e);

/* The value that the weight is, whatever its form. */
struct mil_value *weights_value(struct mil_program *p, struct mil_function *f,
                                const char *name, const struct weight *w);

/* A vector times `factor` (plus_one: 1 + it, times `factor`), fp16, permuted
 * likewise. conv_bias: [n]; else [1, n, 1, 1] when `channel`, [1, 1, 1, n] when
 * not. */
enum weights_shape { WEIGHTS_BIAS, WEIGHTS_CHANNEL, WEIGHTS_LAST };
CHECKED int weights_vector(struct mil_writer *w, const struct part *p,
                           enum weights_shape shape, float factor,
                           bool plus_one, const struct head_rows *perm,
                           const struct mil_const **ret, struct err *e);

/* The taps of a convolution along T, (channels, inputs * taps): fp16
 * [channels, inputs, taps, 1]. Errors: those of weights_vector. */
CHECKED int weights_taps(struct mil_writer *w, const struct part *p,
                         uint32_t inputs, const struct mil_const **ret,
                         struct err *e);
/* n numbers that were made of a tensor of this name. Where the writer keeps the
 * constant already, v is not read. */
CHECKED int weights_floats(struct mil_writer *w, const char *name,
                           enum weights_shape shape, const float *v, size_t n,
                           const struct mil_const **ret, struct err *e);

/* Rows [first, first + n) of a table as one constant: fp16 [n * cols], or as a
 * 1x1 conv's weight that adds them up, [cols, n, 1, 1]. Same errors. */
CHECKED int weights_table(struct mil_writer *w, const struct part *p,
                          uint64_t first, uint64_t n, bool turned,
                          const struct mil_const **ret, struct err *e);

struct weights_hash {
    uint64_t bytes;
    char sha256[SHA256_HEX];
};
/* All rows as fp16 into a new file, which is synced. Errors: also IO, NO_SPACE.
 */
CHECKED int weights_file(const struct weights *x, const struct gguf_tensor *t,
                         const char *path, struct weights_hash *ret,
                         struct err *e);
