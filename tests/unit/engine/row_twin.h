/* row_twin.h - a package run twice: by the interpreter and compiled. Inputs
 * are made up from the sequence and the position alone, so that the same rows
 * may come in any chunks:
 *
 *   name begins with   a row has
 *   mask               0 up to its own position, -1e4 after
 *   window             the same for the last `window` positions
 *   write              a one at its position
 *   anything else      noise
 *
 * Results are compared row by row: |a - b| <= bound * (largest |a| of the row,
 * at least TWIN_LEAST: a small difference of numbers near one has their error).
 * Functions return false with a text in `why`. */
#pragma once

#include "plain.h"

#define TWIN_SEQS  3
#define TWIN_ROWS  192 /* of a sequence */
#define TWIN_LEAST (1.0f / 16)

struct twin_seq {
    struct backend_state *ref, *rows;
    uint32_t n_ref, n_rows; /* rows so far */
    float **want;           /* of each output [TWIN_ROWS][width] */
};

struct twin {
    struct backend_model *ref, *rows;
    struct backend_info info; /* of the compiled one */
    struct backend_info ref_info;
    uint32_t window, seed;
    float bound;
    bool has_t;
    bool nudged; /* in place of the compiled one: the interpreter, with noise
                    one unit in the last place beside the other's */
    struct twin_seq seq[TWIN_SEQS];
    double worst; /* error so far, of the row's largest */
    unsigned calls, called_off; /* of twin_rows */
    char why[512];
};

/* Set window, seed, bound and nudged before. conf is the compiled one's. */
bool twin_open(struct twin *t, const char *path,
               const struct backend_conf *conf);
void twin_close(struct twin *t);

/* The next n rows of a sequence by the interpreter: what is wanted of them. */
bool twin_reference(struct twin *t, int seq, uint32_t n);
/* The next n of these rows compiled, in one prediction. */
bool twin_predict(struct twin *t, int seq, uint32_t n);
/* The next rows of several sequences through predict_rows: which[i] is the
 * sequence of row i. Now and then they are called off before. */
bool twin_rows(struct twin *t, uint32_t n, const uint8_t *which);
/* The next n rows by both, compared as they are: for what is not row-wise. */
bool twin_whole(struct twin *t, int seq, uint32_t n);
