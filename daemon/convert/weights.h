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
#include "convert/quant.h"
#include "mil/build.h"

struct weights {
    unsigned threads;          /* crew.h */
    struct progress *progress; /* borrowed; NULL: none */
    enum quant quant;          /* of matrices */
};

/* A matrix as the operand of a 1x1 conv. */
struct weight {
    const struct mil_const *data;  /* [rows, cols, 1, 1] */
    const struct mil_const *scale; /* [rows or 1, 1, 1, 1]; NULL for fp16 */
};

/* Rows [first, first + rows) of p. perm: NULL, or the permutation that the rows
 * of each head need (then whole heads). Errors: RANGE (a weight that fp16 cannot
 * hold), CONVERT (NaN), UNSUPPORTED, CANCELLED, those of gguf_rows. */
CHECKED int weights_matrix(const struct weights *x, struct mil_writer *w,
                           const struct part *p, uint64_t first, uint64_t rows,
                           const struct head_rows *perm, struct weight *ret,
                           struct err *e);

/* A vector times `factor` (plus_one: 1 + it, times `factor`), fp16, permuted
 * likewise. conv_bias: [n]; else [1, n, 1, 1] when `channel`, [1, 1, 1, n] when
 * not. */
enum weights_shape { WEIGHTS_BIAS, WEIGHTS_CHANNEL, WEIGHTS_LAST };
CHECKED int weights_vector(struct mil_writer *w, const struct part *p,
                           enum weights_shape shape, float factor,
                           bool plus_one, const struct head_rows *perm,
                           const struct mil_const **ret, struct err *e);

/* All rows as fp16 into a new file. Errors: also IO, NO_SPACE. */
CHECKED int weights_file(const struct weights *x, const struct gguf_tensor *t,
                         const char *path, struct err *e);
