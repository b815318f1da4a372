/* writer.h - the model writes text, with the source's weights in fp32.
 *
 * Sequences are written side by side, so each step reads the weights once. A
 * token depends on the seed, its sequence and its place alone: not on the
 * threads, and not on how many stand beside it.
 */
#pragma once

#include "convert/reference/walk.h"

struct writer_conf {
    unsigned threads;          /* crew.h */
    struct progress *progress; /* NULL: none */
    double position;    /* units of progress of a position, of all sequences */
    double temperature; /* 0: the likeliest token */
    uint64_t seed;
    uint32_t tokens; /* of a sequence: 1 .. REFERENCE_TOKENS_MAX */
    uint32_t given;  /* of them, at its beginning: 1 .. tokens */
};

/* tokens: sequences * conf->tokens ids, sequence after sequence; the first
 * `given` of each are there, below the vocabulary, and the others are written.
 * sequences: a power of two. Errors: CANCELLED, NOMEM, CONVERT (logits that are
 * not finite), those of gguf_rows. */
CHECKED int writer_run(const struct decoder *d, const struct writer_conf *conf,
                       uint32_t sequences, int32_t *tokens, struct err *e);

/* The token that a sequence begins with, by the vocabulary in this file, or by
 * the source; TOKEN_NONE: none does. */
int32_t writer_bos(const struct decoder *d, const char *vocab);
