/* make.h - a recovered decoder becomes a source under GGUF's names. */
#pragma once

#include "source/onnx/config.h"

/* Which family has this structure, its keys and its tensors, into m. *ret_arch:
 * general.architecture. Errors: ONNX_GRAPH (no family that aned knows, or the
 * configuration says another), UNSUPPORTED, those of made_*. */
CHECKED int onnx_make(const struct onnx_decoder *d, const struct onnx_config *c,
                      struct made *m, const char **ret_arch, struct err *e);

/* --- of its files --- */

struct onnx_making {
    const struct onnx_decoder *d;
    const struct onnx_config *c;
    struct made *m;
    const char *arch;
    const struct onnx_layer *plain; /* the first layer with attention */
    struct onnx_rope rope, local;   /* local.dim 0: there is one kind */
    uint32_t local_every;           /* layer l is global: (l+1) % it == 0 */
    uint32_t window;                /* of local layers, or of all; 0: none */
    char key[GGUF_KEY_MAX];
};

/* families.c: arch, and everything above from `plain` on. */
CHECKED int onnx_choose_family(struct onnx_making *k, struct err *e);
/* tensors.c */
CHECKED int onnx_make_tensors(struct onnx_making *k, struct err *e);
