/* reference.h - runs the model in fp32, directly from its source file.
 *
 * Range and quality are measured against its results. It shares no code with
 * the emitter: rotary pairs are rotated where the source has them, norms and
 * attention are written out. Weights are dequantised one block of rows at a
 * time, and each block is used for all tokens together.
 */
#pragma once

#include "convert/arch/arch.h"
#include "convert/progress.h"
#include "convert/range.h"

#define REFERENCE_TOKENS_MAX 512u

struct reference_conf {
    unsigned threads; /* of crew.h; they never change a bit of the result */
    struct progress *progress; /* NULL: none */
    struct range *range;       /* filled; NULL: not wanted */
    /* In place of gguf_rows for every matrix of a layer and the head: rows
     * [first, first + n) of t as fp32, so that a model whose weights were
     * replaced can be run. Called by any worker. NULL: the source's own. */
    int (*rows)(void *ctx, const struct gguf_tensor *t, uint64_t first,
                uint64_t n, float *out, struct err *e);
    /* Called with the stream after each layer: value (f, t) at x[f * stride +
     * t]. May be NULL. */
    void (*layer)(void *ctx, uint32_t layer, const float *x, size_t stride);
    void *ctx; /* of both */
};

/* Run n tokens (1 .. REFERENCE_TOKENS_MAX, each below the vocabulary) from
 * position 0. logits: (n, arch_outputs) fp32, or NULL. Errors: CANCELLED, NOMEM,
 * INVALID, those of gguf_rows. */
CHECKED int reference_run(const struct decoder *d,
                          const struct reference_conf *conf,
                          const int32_t *tokens, uint32_t n, float *logits,
                          struct err *e);

/* What a token's experts are multiplied by, from its scores (y->n_experts of
 * each): 0 for those that are not among the n_top best. bias: of
 * ROUTER_SIGMOID_BIAS; scale: a factor an expert, or NULL. */
void reference_gates(const struct layer *y, const float *scores,
                     const float *bias, const float *scale, float *gates);

/* Bytes of source weights that a run reads, for its progress. */
uint64_t reference_bytes(const struct decoder *d);
/* The same of layers [first, last), without the head. */
uint64_t reference_layers_bytes(const struct decoder *d, uint32_t first,
                                uint32_t last);
