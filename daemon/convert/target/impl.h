/* impl.h - shared by the files of target.h: list.c (matrices and bytes),
 * values.c (a matrix in a form), measure.c (runs and KLs), choose.c, target.c
 * (from one to the next). */
#pragma once

#include "convert/target/target.h"

/* --- list.c --- */

/* Rows of the matrix in one layer, or the head. */
struct target_part {
    const struct part *p;
    struct head_rows perm; /* d_head 0: rows stay in their order */
    uint32_t *emitted; /* owned: place of each row of a head; NULL: the same */
};

/* The other half of struct target_matrix: where its rows are. */
struct target_place {
    const struct gguf_tensor *t;
    uint32_t first; /* layer that reads it first; n_layers: the head */
    size_t n_parts;
    struct target_part *parts;      /* owned; ascending rows */
    uint16_t *params[TARGET_FORMS]; /* owned: of all parts, one by one */
    double error[TARGET_FORMS];     /* squared, of all weights */
    int now; /* the form that runs have of it; -1: the source's weights */
};

/* t->picks: what was chosen for those that are not kept. */
void target_pick(struct target *t);

/* In the order of t's matrices. Errors: NOMEM. */
CHECKED int target_places(const struct decoder *d, const struct target *t,
                          struct target_place **ret, struct err *e);
void target_places_free(struct target_place *p, uint32_t n);

/* --- values.c --- */

/* Parameters and error of all forms. Errors: those of weights_matrix. */
CHECKED int target_params(const struct target *t, struct target_place *p,
                          const struct weights *w, struct err *e);

struct target_values {
    const struct target *t;
    const struct target_place *places;
};
/* reference_conf.rows, with a struct target_values: rows in the form that
 * their matrix has now. */
CHECKED int target_rows(void *ctx, const struct gguf_tensor *t, uint64_t first,
                        uint64_t n, float *out, struct err *e);

/* --- measure.c --- */

/* The KL of each matrix in each form; t's costs are filled. Errors: those of
 * reference_run. */
CHECKED int target_measure(const struct decoder *d,
                           const struct target_conf *conf, struct target *t,
                           struct target_place *places, struct err *e);

/* The source's logits, (n, vocab), and the log of each one's sum of exp. Of
 * each `columns` positions those before the last of `given` are not counted. */
struct target_truth {
    const float *logits;
    uint32_t n, columns, given;
    size_t vocab;
    unsigned threads;
    double log_sum[REFERENCE_TOKENS_MAX];
};

/* Whole runs against the source's. */
struct target_check {
    const struct decoder *d;
    const struct target_conf *conf;
    struct target_place *places;
    uint32_t sequences, positions; /* positions: those that count */
    float *want, *got;
    struct target_truth truth;
};
CHECKED int target_check_open(struct target_check *c, struct err *e);
void target_check_close(struct target_check *c);
/* The KL of all matrices as chosen; kept_only: the others as in the source. */
CHECKED int target_check_run(struct target_check *c, const struct target *t,
                             bool kept_only, double *ret, struct err *e);
