/* emit.h - writes a decoder's layers and head as ML Programs. The engine checks
 * their inputs and outputs when it opens them (engine/unit.c).
 */
#pragma once

#include "convert/norm.h"
#include "convert/shape.h"
#include "convert/weights.h"

struct stored; /* convert/stored.h */

struct emit {
    const struct decoder *d; /* borrowed */
    struct weights weights;
    const struct stored *from; /* take the weights from these packages, not
                                  from d's source; NULL; borrowed */
    const char *architecture, *quant; /* for the package's metadata */
    uint32_t context; /* S */
    struct program_shape shape;
    bool host;   /* kv = host */
    bool argmax; /* heads give ids and not logits */
    enum norm_form norm;
    float alpha; /* the residual stream is stored times this */
};

/* Write layers [first, last) as the package folder `dir`, which is made.
 * Errors: those of weights.h and mil_writer_finish. */
CHECKED int emit_layers(const struct emit *m, const char *dir, uint32_t first,
                        uint32_t last, uint64_t *ret_weight_bytes,
                        struct err *e);

/* What emit_layers and emit_head would write, without weights: its program,
 * which mil_writer_abort frees, is for looking at. Reads no weight. */
struct mil_writer *emit_sketch_layers(const struct emit *m, uint32_t first,
                                      uint32_t last);
struct mil_writer *emit_sketch_head(const struct emit *m, uint32_t first,
                                    uint32_t last);

/* The final norm and rows [first, last) of the vocabulary. */
CHECKED int emit_head(const struct emit *m, const char *dir, uint32_t first,
                      uint32_t last, uint64_t *ret_weight_bytes, struct err *e);
