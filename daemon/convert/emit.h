/* emit.h - a decoder's layers and head as ML Programs, to the letter of the
 * shard contract (design 5.1).
 */
#pragma once

#include "convert/weights.h"

#define EMIT_T_MAX 4u /* rows of one prediction on the Neural Engine */

enum emit_norm { EMIT_NORM_SCALE, EMIT_NORM_MAX };

struct emit {
    const struct decoder *d; /* borrowed */
    struct weights weights;
    uint32_t context; /* S */
    bool functions;   /* fixed-T functions t1 and t4 instead of one ranged */
    bool host;        /* kv = host */
    enum emit_norm norm;
    float alpha; /* the residual stream is stored times this */
};

/* Write layers [first, last) as the package folder `dir`, which is made.
 * Errors: those of weights.h and mil_writer_finish. */
CHECKED int emit_layers(const struct emit *m, const char *dir, uint32_t first,
                        uint32_t last, uint64_t *ret_weight_bytes,
                        struct err *e);

/* The final norm and rows [first, last) of the vocabulary. */
CHECKED int emit_head(const struct emit *m, const char *dir, uint32_t first,
                      uint32_t last, uint64_t *ret_weight_bytes, struct err *e);

/* What the norm's epsilon becomes in fp16: of a norm over the stream, which
 * sees x * alpha. 0 when it vanishes. */
float emit_epsilon(enum emit_norm norm, float eps, float alpha);
