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

#define REFERENCE_TOKENS_MAX 64u

/* Run n tokens (1 .. REFERENCE_TOKENS_MAX, each below the vocabulary) from
 * position 0. range: filled (may be NULL). logits: (n, vocab) fp32, or NULL.
 * threads: of crew.h; they never change a bit of the result.
 * Errors: CANCELLED, NOMEM, INVALID, those of gguf_rows. */
CHECKED int reference_run(const struct decoder *d, unsigned threads,
                          const int32_t *tokens, uint32_t n,
                          struct progress *progress, struct range *range,
                          float *logits, struct err *e);

/* Bytes of source weights that a run reads, for its progress. */
uint64_t reference_bytes(const struct decoder *d);
