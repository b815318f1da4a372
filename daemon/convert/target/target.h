/* target.h - a form for each matrix of a model, so that the model holds an
 * amount: bytes of its programs' weights at most, or KL of its logits at most.
 *
 *   source --measure.c--> what each matrix costs in each form: bytes and KL
 *   costs --choose.c--> the forms, by what a byte buys
 *   forms --a whole run--> the KL that they have together; then again, when
 *                          it does not hold what was asked for
 *
 * KL is that of the logits from the fp32 reference's, the mean over positions,
 * in nats. The same input gives the same forms, whatever the threads.
 */
#pragma once

#include "convert/plan_input.h"
#include "convert/reference/reference.h"
#include "convert/weights.h"

/* A choice may be made of these, in this order. */
#define TARGET_FORMS 4u /* lut4, lut6, int8, fp16 */

/* What KL is measured on: pieces of text, each continued by the model, for that
 * is where logits are used. Sequences have the same length. */
#define TARGET_SEQUENCES   8u
#define TARGET_COLUMNS     48u /* of each at most */
#define TARGET_GIVEN       8u  /* of them not the model's own, BOS included */
#define TARGET_FEW         3u  /* sequences of the runs for single matrices */
#define TARGET_TEMPERATURE 0.7
#define TARGET_SEED        2u /* calibration has another one */

struct target_text {
    int32_t *tokens; /* owned: sequences * columns, sequence after sequence */
    uint32_t sequences, columns;
    uint32_t given; /* positions before the last of them are not counted */
};

struct target_text_conf {
    unsigned threads;          /* crew.h */
    struct progress *progress; /* NULL: none; else a part of "choosing" */
    const int32_t *ids;        /* n of them, of a text to cut pieces from */
    uint32_t n;
    int32_t bos;      /* TOKEN_NONE: none */
    uint32_t context; /* sequences are not longer */
};
/* Errors: those of writer_run. */
CHECKED int target_text_make(const struct decoder *d,
                             const struct target_text_conf *conf,
                             struct target_text *ret, struct err *e);
void target_text_fini(struct target_text *t); /* zeroed is fine */

struct target_conf {
    uint64_t bytes; /* of all matrices at most; 0: none asked for */
    double kl;      /* at most, where bytes is 0 */
    /* Palettes are made, and rows read, as the conversion will: its threads,
     * its importance. Its choice's rules are kept: what one of them matches is
     * not chosen. Borrowed; feedback would be ignored. */
    const struct weights *weights;
    struct target_text text; /* sequences * columns: REFERENCE_TOKENS_MAX at
                                most; borrowed */
    /* The conversion will encode with error feedback, which is not run here:
     * what it takes off is predicted (target_feedback). */
    bool feedback;
    /* Run each form of each matrix, and predict none from another. Slow; for
     * those who want to know how good the predictions are. */
    bool every_form;
};

/* What a matrix costs in a form. */
struct target_cost {
    struct quant_spec spec;
    uint64_t bytes; /* in weight.bin, with its parameters and records */
    double kl;      /* when it alone has that form */
    bool measured;  /* by a run; else from another form's */
};

struct target_matrix {
    const char *tensor; /* the source's name; of the source */
    uint64_t weights;
    bool kept; /* a rule says its form: there is one cost */
    unsigned n_costs;
    struct target_cost costs[TARGET_FORMS];
    unsigned chosen; /* of costs */
};

struct target {
    uint32_t n_matrices;
    struct target_matrix *matrices; /* owned; layers first, then the head */
    struct quant_pick *picks; /* owned: what was chosen, for quant_choice */
    uint32_t n_picks;
    uint64_t bytes;     /* of all matrices as chosen */
    double sum;         /* of the matrices' own KLs */
    double measured;    /* of a whole run without feedback */
    double expected;    /* the same, or what feedback is to make of it */
    double reached;     /* of the weights as stored; set by the conversion */
    uint32_t positions; /* counted in that run */
    unsigned rounds;    /* whole runs with chosen forms */
};

/* The matrices and what each form weighs; each has its smallest form, and no
 * KL is known. No weight is read. Errors: NOMEM. */
CHECKED int target_list(const struct decoder *d,
                        const struct quant_choice *choice, struct target *ret,
                        struct err *e);
void target_fini(struct target *t); /* zeroed is fine */

/* Choose. t is what target_list gave for the same decoder and choice. Progress:
 * three parts of the stage "choosing". Errors: CONVERT when nothing holds what
 * was asked for, with what would; those of reference_run and weights_matrix. */
CHECKED int target_choose(const struct decoder *d,
                          const struct target_conf *conf, struct target *t,
                          struct err *e);

/* The KL of the model whose matrices have the rows that rows(ctx, ...) gives
 * (reference_conf.rows), on the same text. Errors: those of the runs. */
CHECKED int target_verify(const struct decoder *d,
                          const struct target_conf *conf,
                          int (*rows)(void *ctx, const struct gguf_tensor *t,
                                      uint64_t first, uint64_t n, float *out,
                                      struct err *e),
                          void *ctx, double *ret, struct err *e);

/* The share of a form's KL that error feedback leaves: 1 for forms that it does
 * not help. Measured on gemma-3-270m (README.md). */
double target_feedback(enum quant kind);

/* --- the choice alone (choose.c); pure --- */

/* Choose for all matrices that are not kept, by their costs; `scale`: for each
 * kind of form what its KL is multiplied by (target_feedback), or NULL. Both
 * set `chosen`, `bytes` and `sum` (which is not scaled), and return whether the
 * limit holds. Where it cannot, each matrix has its smallest form for bytes,
 * and its best one for KL. More bytes never give a larger predicted KL. */
bool target_by_bytes(struct target *t, uint64_t most, bool feedback);
bool target_by_kl(struct target *t, double most, bool feedback);
/* The sum of own KLs as chosen, with what feedback leaves of them. */
double target_sum(const struct target *t, bool feedback);
