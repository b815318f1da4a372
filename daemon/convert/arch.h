/* arch.h - the shape of a decoder, in one form for all families.
 *
 * A family is a row of the table in arch.c: which tensors it has, its
 * activation, the order of its rotary pairs, which layers are local. arch_read
 * reads the numbers and finds the tensors. What runs after it (reference,
 * emitter, planner) uses struct decoder only and knows no family by name.
 */
#pragma once

#include "source/gguf.h"

enum arch_act { ARCH_SILU, ARCH_GELU_TANH };

/* Tensors of a model. Those from SLOT_LAYER on exist once per layer. */
enum arch_slot {
    SLOT_EMBD,
    SLOT_OUT_NORM,
    SLOT_OUTPUT,
    SLOT_ROPE_FREQS,
    SLOT_LAYER,
    SLOT_ATTN_NORM = SLOT_LAYER,
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_O,
    SLOT_Q_BIAS,
    SLOT_K_BIAS,
    SLOT_V_BIAS,
    SLOT_O_BIAS,
    SLOT_Q_NORM,
    SLOT_K_NORM,
    SLOT_POST_ATTN,
    SLOT_FFN_NORM,
    SLOT_GATE,
    SLOT_UP,
    SLOT_DOWN,
    SLOT_POST_FFN,
    SLOT_COUNT,
};
#define SLOT_GLOBALS ((size_t)SLOT_LAYER)
#define SLOT_LAYERED ((size_t)SLOT_COUNT - SLOT_GLOBALS)

struct arch_row {
    const char *name;   /* general.architecture */
    uint32_t need, may; /* bits 1 << enum arch_slot */
    enum arch_act act;
    bool rope_interleaved; /* pairs (2i, 2i+1): q and k rows are permuted */
    bool embed_sqrt;       /* embeddings times sqrt(d_model) */
    uint32_t local_every;  /* n: layer l is global when (l + 1) % n == 0 */
    float local_base;      /* rotary base of local layers */
    uint32_t wide_layers;  /* with that many layers, scores are scaled by
                              1/sqrt(d_model / n_heads), not by d_head's */
};

struct decoder {
    const struct arch_row *arch;
    uint32_t n_layers, d_model, n_heads, n_kv, d_head, d_ff, vocab;
    uint32_t context_train;
    uint32_t rope_dim; /* rotated elements of a head, the first ones */
    float norm_eps;
    float rope_base;  /* of global layers, or of all */
    float rope_scale; /* position = pos * rope_scale; global layers */
    float rope_base_local;
    uint32_t local_every; /* 0: all layers are alike */
    uint32_t window;      /* keys a query sees in local layers (or in all
                             layers when local_every is 0); 0 = all */
    float embed_scale;
    float score_scale;  /* scores are q.k times this */
    uint32_t n_factors; /* 0 or rope_dim / 2 */
    float *factors;     /* owned; frequency i is divided by factors[i] */
    const struct gguf_tensor *global[SLOT_GLOBALS];
    const struct gguf_tensor *(*layer)[SLOT_LAYERED]; /* owned, n_layers */
};

/* g is borrowed and must outlive ret. Errors: ARCH (unknown family, by name),
 * CONVERT (numbers that do not fit, tensors of a wrong shape or of no use),
 * UNSUPPORTED (soft caps, experts, rope scalings), GGUF_MISSING, GGUF_VALUE. */
CHECKED int arch_read(const struct gguf *g, struct decoder *ret, struct err *e);
void arch_fini(struct decoder *d); /* zeroed is fine */

/* Check that every key "FAMILY.*" of g is read by arch_read, does not affect
 * the arithmetic, or has its neutral value. Errors: UNSUPPORTED, which names
 * the key. */
CHECKED int arch_check_keys(const struct gguf *g,
                            const struct arch_row *family, struct err *e);

static inline const struct gguf_tensor *
arch_tensor(const struct decoder *d, uint32_t layer, enum arch_slot slot)
{
    return slot < SLOT_LAYER ? d->global[slot]
                             : d->layer[layer][slot - SLOT_LAYER];
}

/* The output projection: its own tensor, or the embedding when tied. */
const struct gguf_tensor *arch_head(const struct decoder *d);

bool arch_local(const struct decoder *d, uint32_t layer);

/* Row of a head in the source that becomes row i of the head as emitted
 * (rotate-half form, where the pair of i is i + rope_dim / 2). */
uint32_t arch_rope_row(const struct decoder *d, uint32_t i);

/* Rows of one of a layer's matrices (outputs) and its columns (inputs). */
void arch_shape(const struct decoder *d, enum arch_slot slot, uint64_t *rows,
                uint64_t *cols);

/* Elements of all layers' matrices, and of one layer's: for plans and bars. */
uint64_t arch_layer_weights(const struct decoder *d);
