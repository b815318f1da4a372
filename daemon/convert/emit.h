/* emit.h - writes a decoder's layers and head as ML Programs. The engine checks
 * their inputs and outputs when it opens them (engine/unit.c).
 */
#pragma once

#include "convert/norm.h"
#include "convert/shape.h"
#include "convert/weights.h"
#include "convert/work.h"

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
    const char *dir;   /* of the bundle; borrowed */
    struct work *work; /* what is kept of it; NULL: nothing; borrowed */
    uint64_t (*now_ms)(void); /* for the time between marks */
    uint64_t marked_ms;
};

/* Write layers [first, last) as the package folder `name` of m->dir; a layer that
 * is sparse is cut at its experts (program.h). With
 * m->work, layers that an earlier run has recorded are not made again; what is
 * made is recorded from time to time, and at the end. Errors: those of weights.h and
 * mil_writer_finish. */
CHECKED int emit_layers(struct emit *m, const char *name, uint32_t first,
                        uint32_t last, uint64_t *ret_weight_bytes,
                        struct err *e);

/* What emit_layers and emit_head would write, without weights: its program,
 * which mil_writer_abort frees, is for looking at. Reads no weight. */
struct mil_writer *emit_sketch_layers(struct emit *m, uint32_t first,
                                      uint32_t last);
struct mil_writer *emit_sketch_experts(struct emit *m, uint32_t layer,
                                       uint32_t first, uint32_t last);
struct mil_writer *emit_sketch_head(struct emit *m, uint32_t first,
                                    uint32_t last);

/* The same of experts [first, last) of a sparse layer. */
CHECKED int emit_experts(struct emit *m, const char *name, uint32_t layer,
                         uint32_t first, uint32_t last,
                         uint64_t *ret_weight_bytes, struct err *e);

/* The final norm and rows [first, last) of the vocabulary. */
CHECKED int emit_head(struct emit *m, const char *name, uint32_t first,
                      uint32_t last, uint64_t *ret_weight_bytes, struct err *e);

/* The path below the bundle of a package's weight file. */
void emit_weight_file(const char *name, char out[WORK_PATH_MAX]);
