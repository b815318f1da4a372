/* emit.h - writes a decoder's layers and head as ML Programs. The engine checks
 * their inputs and outputs when it opens them (engine/unit.c).
 */
#pragma once

#include "convert/norm.h"
#include "convert/weights.h"
#include "convert/work.h"

#define EMIT_T_MAX 4u /* rows of one prediction on the Neural Engine */

struct emit {
    const struct decoder *d; /* borrowed */
    struct weights weights;
    uint32_t context; /* S */
    bool functions;   /* fixed-T functions t1 and t4 instead of one ranged */
    bool host;        /* kv = host */
    enum norm_form norm;
    float alpha; /* the residual stream is stored times this */
    struct work *work; /* borrowed: where packages are, and what is kept */
    uint64_t (*now_ms)(void); /* for the time between marks */
    uint64_t marked_ms;
};

/* Write layers [first, last) as the package folder `name` of m->work's bundle.
 * Layers that an earlier run has recorded are not made again; what is made is
 * recorded from time to time, and at the end. Errors: those of weights.h and
 * mil_writer_finish. */
CHECKED int emit_layers(struct emit *m, const char *name, uint32_t first,
                        uint32_t last, uint64_t *ret_weight_bytes,
                        struct err *e);

/* The final norm and rows [first, last) of the vocabulary. */
CHECKED int emit_head(struct emit *m, const char *name, uint32_t first,
                      uint32_t last, uint64_t *ret_weight_bytes, struct err *e);

/* The path below the bundle of a package's weight file. */
void emit_weight_file(const char *name, char out[WORK_PATH_MAX]);
