/* quality.h - how far a bundle's programs are from the model they came from.
 *
 * The truth is the reference (reference.h): fp32 from the source file. The
 * candidate is the bundle itself, run op by op with every result rounded to
 * fp16, through the engine's own step code; of a mixture of experts what was
 * chosen, which gives the bits of all (op_experts.h). Five rungs, from the ground up, so
 * that the first one that fails says where to look:
 *
 *   weights    every constant of every package is finite
 *   program    the whole text in one prediction, each layer and the logits
 *              against the reference
 *   steps      the last positions one by one, over the states of those before:
 *              as in one prediction
 *   chunks     the same in the widths that the packages declare
 *   prompt     text to ids and back; the chat template gives a prompt
 *
 * and exactness: on the CPU backend the bits of logits are the same for every
 * chunk and batch. Of an encoder the logits are those of its labels, the text
 * is one window, and steps, chunks and exactness do not run; of one that embeds
 * they are what its last layer gives, compared by cosine alone. Pure but for the
 * bundle's files.
 */
#pragma once

#include "base/buf.h"
#include "convert/reference/reference.h"
#include "model/bundle.h"
#include "proto/json.h"

#define QUALITY_TOKENS 256u /* positions that are compared */

/* What a quantisation must hold (conf/quality.json). */
struct quality_bars {
    char quant[24];
    double cosine; /* of each layer and program: the mean over positions */
    double kl;     /* of the logits: mean over positions, nats */
    double target; /* not 0: a target may be exceeded so many times */
    double argmax; /* share of clear positions with the same likeliest token */
    char reason[160];
};
/* experts: of a model that has any. Errors: INVALID (no bars for this
 * quantisation). */
CHECKED int quality_bars(const char *quant, bool experts,
                         struct quality_bars *ret, struct err *e);

enum quality_rung {
    RUNG_WEIGHTS,
    RUNG_PROGRAM,
    RUNG_STEPS,
    RUNG_CHUNKS,
    RUNG_PROMPT,
    RUNGS,
};

/* Of what a layer gives, against the reference: over all positions. */
struct quality_layer {
    double cosine_mean, cosine_min;
    double error_mean, error_max; /* of |difference| */
    double rms;                   /* of the reference, to hold errors against */
};

/* One package of layers [first, last). */
struct quality_shard {
    char package[256];
    uint32_t first, last;
};

struct quality_logits {
    uint32_t n;       /* positions */
    uint32_t n_clear; /* whose two likeliest tokens differ by CLEAR or more */
    double kl_mean, kl_max;
    double cosine_mean, cosine_min;
    double argmax; /* share of the clear ones; 1 when there are none */
    double top5;   /* mean share of the five likeliest that both have */
    double error_mean, error_max;
};

struct quality_result {
    const char *verdict; /* "passed", "failed", "not run" */
    char detail[ERR_MSG_MAX];
};

struct quality {
    struct quality_bars bars;
    struct quality_result rungs[RUNGS], exactness, all;
    uint32_t n_tokens, n_layers;
    struct quality_layer *layers;  /* owned, n_layers */
    size_t n_shards;
    struct quality_shard *shards;  /* owned */
    float *kl, *cosine;            /* owned, n_tokens: of the logits */
    struct quality_logits program; /* RUNG_PROGRAM against the reference */
    struct quality_logits steps, chunks; /* against RUNG_PROGRAM */
};

struct quality_conf {
    unsigned threads;
    struct progress *progress; /* NULL: none */
};

/* Measure the bundle at dir against its source. Whatever the bundle is like,
 * the result is 0 and stands in *ret; errors: those of reading the source,
 * NOMEM, CANCELLED. */
CHECKED int quality_measure(const char *dir, const struct decoder *d,
                            const struct quality_conf *conf,
                            struct quality *ret, struct err *e);
void quality_fini(struct quality *q); /* zeroed is fine */
/* Units of progress of a measurement. */
uint64_t quality_work(const struct decoder *d);

const char *quality_rung_name(enum quality_rung r);
/* The whole report as one object; the caller frees it. Where its text would
 * have more than `max` bytes it comes without layers and positions, and "cut"
 * says so. */
struct json *quality_json(const struct quality *q, size_t max);

/* The text that is measured with: ids, BOS first where there is one. A
 * vocabulary that aned cannot tokenise gives ids all the same. Returns how
 * many. */
uint32_t quality_tokens(const struct gguf *g, const char *vocab_file,
                        uint32_t vocab, int32_t *out, uint32_t max,
                        struct gguf_notes *notes);
/* The text. */
extern const char quality_text[];
