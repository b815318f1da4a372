/* calibrate.h - error feedback over a whole model, layer by layer.
 *
 * Samples of text run through the model twice, side by side: once with the
 * source's weights, once with those that are quantised already. What each
 * matrix reads in both is summed (quant/hessian.h), and its codes are chosen so
 * that the product on the quantised inputs comes near to the wanted one
 * (quant/feedback.h). An expert's sums are of the tokens that chose it, by their
 * gates, and of what all tokens have in common as if PSEUDO of them had chosen
 * it (experts.c). The codes go to files, one a layer and one for the head;
 * the package takes them from there (weights.h).
 *
 * The same source, samples and options give the same bytes, for every number
 * of threads, and whether the run was interrupted or not.
 */
#pragma once

#include "base/hash.h"
#include "convert/arch/arch.h"
#include "convert/progress.h"
#include "convert/quant/choice.h"
#include "convert/weights.h"

#define CALIBRATE_SEED 1u

/* Rows [first, last) of the vocabulary: one program's part of the head. */
struct calibrate_slice {
    uint32_t first, last;
};

struct calibrate_conf {
    unsigned threads;                 /* crew.h */
    uint32_t sequences;               /* at most, CALIBRATE_SEQUENCES_MIN at
                                         least; 0: CALIBRATE_SEQUENCES */
    struct progress *progress;        /* NULL: none; a stage has begun, of
                                         calibrate_cost units */
    const struct quant_choice *forms; /* borrowed, as all that follows */
    const char *dir;    /* folder of the files: made, or from a run before */
    const char *vocab;  /* file of the vocabulary, for text and BOS */
    const char *source; /* what names the source's bytes: its digest */
    /* Text to take the samples from, which calibrate_check_text passed; NULL:
     * the model writes them itself. */
    const char *text;
    size_t text_bytes;
    const struct calibrate_slice *heads; /* as the packages will have them */
    size_t n_heads;
};

struct calibration;

/* What was done, for the bundle's description. */
struct calibrate_samples {
    uint32_t sequences, tokens; /* tokens: of each */
    uint64_t seed;
    char text_sha256[SHA256_HEX]; /* "": own samples */
};

/* Make all codes, or take those of `dir` that the same run has made before.
 * Errors: UNSUPPORTED (a shape that needs more than CALIBRATE_BYTES_MAX),
 * INVALID (text that is too short, or that the vocabulary cannot read), CONVERT,
 * CANCELLED, NOMEM, IO, NO_SPACE, those of gguf_rows. */
CHECKED int calibrate_run(const struct decoder *d,
                          const struct calibrate_conf *conf,
                          struct calibration **ret, struct err *e);
void calibration_close(struct calibration *c); /* NULL is fine */
const struct calibrate_samples *
calibration_samples(const struct calibration *c);

/* weights.codes, with a struct calibration as its context. Rows may be some of
 * what was calibrated together, as an expert's are: false where its palettes are
 * another's too. */
bool calibration_codes(void *c, const struct part *p, uint64_t first,
                       uint64_t rows, struct weights_codes *ret);

/* reference_conf.rows, with a struct calibration: the rows of all matrices as
 * the packages will have them; those of forms that feedback does not change as
 * in the source. */
CHECKED int calibration_rows(void *c, const struct gguf_tensor *t,
                             uint64_t first, uint64_t n, float *out,
                             struct err *e);

/* A text to calibrate with, before anything is made of it. Errors: TOO_BIG,
 * INVALID (no UTF-8). */
CHECKED int calibrate_check_text(const char *text, size_t n, struct err *e);

/* How many sequences fit in CALIBRATE_BYTES_MAX, CALIBRATE_SEQUENCES at most.
 * Errors: UNSUPPORTED, which names both amounts. */
CHECKED int calibrate_fit(const struct decoder *d,
                          const struct quant_choice *forms,
                          uint32_t *ret_sequences, struct err *e);
/* Bytes that so many sequences take, beside the mapped source. */
uint64_t calibrate_bytes(const struct decoder *d,
                         const struct quant_choice *forms, uint32_t sequences);
/* Bytes of the files. */
uint64_t calibrate_file_bytes(const struct decoder *d,
                              const struct quant_choice *forms);
/* Nanoseconds of one core, about. own: the model writes the samples. */
double calibrate_cost(const struct decoder *d, const struct quant_choice *forms,
                      bool own);
