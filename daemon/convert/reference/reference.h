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
 * position 0. logits: (n, vocab) fp32, or NULL. Errors: CANCELLED, NOMEM,
 * INVALID, those of gguf_rows. */
CHECKED int reference_run(const struct decoder *d,
                          const struct reference_conf *conf,
                          const int32_t *tokens, uint32_t n, float *logits,
                          struct err *e);

/* --- a run in pieces ---
 *
 * A run that is kept may compute its last layers again, with other weights
 * (conf->rows). It keeps the keys and values that later layers share, so layer
 * `first` may only be computed again while those before it last ran as they
 * should: go from the last layer to the first. Thread: one at a time. */
struct reference;
/* The embeddings of n tokens, as reference_run. conf and tokens are borrowed
 * until reference_close; conf may change between two calls. */
CHECKED int reference_open(const struct decoder *d,
                           const struct reference_conf *conf,
                           const int32_t *tokens, uint32_t n,
                           struct reference **ret, struct err *e);
void reference_close(struct reference *r); /* NULL is fine */
/* The stream: value (f, t) at [f * stride + t]; d_model * stride floats, which
 * the caller may keep, and put back. */
float *reference_stream(struct reference *r, size_t *stride);
/* Layers [first, last). */
CHECKED int reference_layers(struct reference *r, uint32_t first, uint32_t last,
                             struct err *e);
/* Logits of the stream, which stays as it is. */
CHECKED int reference_head(struct reference *r, float *logits, struct err *e);

/* Bytes of source weights that a run reads, for its progress. */
uint64_t reference_bytes(const struct decoder *d);
/* The same of layers [first, last), without the head. */
uint64_t reference_layers_bytes(const struct decoder *d, uint32_t first,
                                uint32_t last);
