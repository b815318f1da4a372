/* encode.h - a loaded encoder: token ids in, of each token its logits of labels
 * out, or what the last layer gives where there are none (bundle_outputs).
 *
 * Without a window every row sees the whole text, which is one run then.
 *
 * A text is read in windows. A row of one depends on layers * window rows on
 * each side (the reach); where a window has more of them than that, or the text
 * ends, its rows are those of the whole text at once. Programs of fixed lengths
 * may be too short for it: then seams between windows are approximate.
 * Thread: one.
 */
#pragma once

#include "engine/engine.h"

struct encoder;

/* Errors: those of engine_open, UNSUPPORTED (a decoder). */
CHECKED int encoder_open(const char *bundle_dir, const struct engine_conf *conf,
                         struct encoder **ret, struct err *e);
void encoder_close(struct encoder *g); /* NULL is fine */
const struct bundle *encoder_bundle(const struct encoder *g);
const char *encoder_arith(const struct encoder *g); /* as engine_arith */

/* What a text of n tokens is read in. */
struct encoder_plan {
    uint32_t rows;  /* of a window at most, a multiple of the block */
    uint32_t side;  /* of them for context, on each side where there is more */
    bool exact;     /* side is the reach, or there is one window */
};
struct encoder_plan encoder_plan(const struct encoder *g, uint32_t n);

/* Takes the numbers of rows [first, first + n): (n, bundle_outputs), valid during
 * the call. An error of it ends the run. */
typedef int encoder_rows_fn(void *ctx, uint32_t first, uint32_t n,
                            const float *logits, struct err *e);
struct encoder_run {
    const int32_t *tokens;
    uint32_t n;
    uint32_t rows; /* of a window at most, for tests; 0: encoder_plan's */
    encoder_rows_fn *fn;
    bool (*go)(void *ctx); /* asked between programs; NULL: always */
    void *ctx;             /* of both */
};
/* Rows come in order, each once. Errors: INVALID (a token beyond the
 * vocabulary), CONTEXT (no window, and more tokens than the context), CANCELLED (go), NOMEM, those of the backend and of fn. */
CHECKED int encoder_run(struct encoder *g, const struct encoder_run *r,
                        struct err *e);

/* The vectors of texts of an encoder without labels: their rows pooled, in double
 * and in their order. A text's bits do not depend on the others: short ones share
 * a run where the backend's arithmetic allows it. */
struct encoder_texts {
    const int32_t *tokens; /* of all texts, one behind the other */
    const uint32_t *len;   /* n of them, each at least 1 */
    uint32_t n;
    enum pooling pool;
    uint32_t rows; /* of a run at most, for tests; 0: ENCODER_PACK_ROWS */
    bool (*go)(void *ctx); /* as encoder_run's */
    void *ctx;
};
/* out: n rows of d_model numbers. Errors: those of encoder_run for any text,
 * before anything is computed; INVALID (a number that is none). */
CHECKED int encoder_vectors(struct encoder *g, const struct encoder_texts *x,
                            float *out, struct err *e);
