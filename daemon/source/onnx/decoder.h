/* decoder.h - the decoder behind a graph, as it was matched.
 *
 * Layers stand in the order of computation. Every matrix is borrowed from the
 * graph. Nothing here is a family's: families.c says which one has this
 * structure.
 */
#pragma once

#include "source/onnx/match.h"

/* Matrices and vectors of a layer. */
enum onnx_slot {
    ONNX_S_PRE,      /* norm before attention or convolution */
    ONNX_S_QKV,      /* rows of q, k, v */
    ONNX_S_Q,
    ONNX_S_K,
    ONNX_S_V,
    ONNX_S_O,
    ONNX_S_QKV_BIAS,
    ONNX_S_Q_BIAS,
    ONNX_S_K_BIAS,
    ONNX_S_V_BIAS,
    ONNX_S_O_BIAS,
    ONNX_S_Q_NORM,
    ONNX_S_K_NORM,
    ONNX_S_POST,     /* norm of what attention gives */
    ONNX_S_CONV,
    ONNX_S_CONV_IN,
    ONNX_S_CONV_OUT,
    ONNX_S_FFN_PRE,
    ONNX_S_GATE,
    ONNX_S_UP,
    ONNX_S_DOWN,
    ONNX_S_FFN_POST,
    ONNX_S_ROUTER,   /* of a mixture: (experts, width) */
    ONNX_S_ROUTER_BIAS,
    ONNX_S_EXPERT_GATE, /* all experts' rows, one expert after another */
    ONNX_S_EXPERT_UP,
    ONNX_S_EXPERT_DOWN,
    ONNX_S_COUNT,
};

enum onnx_act { ONNX_ACT_NONE, ONNX_ACT_SILU, ONNX_ACT_GELU_TANH };

/* Tables of cosines and sines, (positions, half of what turns). */
struct onnx_rotation {
    const struct onnx_tensor *cos, *sin;
    const struct onnx_tensor *cos_long, *sin_long; /* NULL: there is one pair */
    uint64_t original; /* longer sequences take the long pair */
};

struct onnx_layer {
    struct onnx_rows slots[ONNX_S_COUNT]; /* rows 0: there is none */
    bool conv;                            /* in the place of attention */
    uint32_t n_heads, n_kv, d_head;
    uint32_t n_experts, n_top; /* 0: no mixture */
    uint32_t window;   /* keys a query sees; 0: all */
    float score_scale, score_cap;
    bool norm_last;    /* of q and k, after the rotation */
    uint32_t rotation; /* which; UINT32_MAX: it does not turn */
    const struct onnx_value *past[2];
};

#define ONNX_ROTATIONS_MAX 4u
struct onnx_decoder {
    struct onnx *m;
    uint32_t n_layers;
    struct onnx_layer *layers; /* in m's arena */
    struct onnx_rows embd, out_norm, head;
    bool tied;         /* head is embd */
    float embed_scale; /* 1: none */
    float logit_cap;   /* 0: none */
    float eps;
    enum onnx_act act;
    uint32_t d_model, vocab;
    size_t n_rotations;
    struct onnx_rotation rotations[ONNX_ROTATIONS_MAX];
    const struct onnx_value *ids, *mask, *positions; /* inputs; may be NULL */
    const struct onnx_value *mask_tensor; /* of all layers; NULL: none has one */
    const struct onnx_value *mask_past;   /* the state whose length it reads */
};

/* Match m. Nodes that are understood become `seen`. Errors: ONNX_GRAPH, which
 * names a node, UNSUPPORTED, TOO_BIG. */
CHECKED int onnx_recover(struct onnx *m, struct onnx_decoder *ret,
                         struct err *e);

/* --- of its files --- */

/* decoder.c: x / sqrt(mean x^2 + epsilon) * w, by either of its names. */
bool onnx_is_norm(const struct onnx_node *n);

/* attention.c: branch is what attention (or a convolution) gives, before any
 * norm. *ret_in: what the layer's projections read. */
bool onnx_is_mixer(const struct onnx_value *branch);
CHECKED int onnx_mixer(struct onnx_decoder *d, struct onnx_layer *l,
                       struct onnx_value *branch, struct onnx_value **ret_in,
                       struct err *e);
/* experts.c: branch is a mixture of experts. *ret_in: what it reads. */
bool onnx_is_experts(const struct onnx_value *branch);
CHECKED int onnx_experts(struct onnx_decoder *d, struct onnx_layer *l,
                         struct onnx_value *branch, struct onnx_value **ret_in,
                         struct err *e);
/* Set *at, or check that it is v. */
CHECKED int onnx_same_input(const struct onnx_value **at,
                            const struct onnx_value *v,
                            const struct onnx_node *n, struct err *e);
/* v through casts between whole numbers; those are taken. */
CHECKED int onnx_uncast(struct onnx_value *v, struct onnx_value **ret,
                        struct err *e);
/* mask.c: v is causal, and leaves out what the input mask does; one for all
 * layers. */
CHECKED int onnx_match_mask(struct onnx_decoder *d, struct onnx_value *v,
                            struct err *e);
/* tables.c: the rotation of these tables, found or added. */
CHECKED int onnx_rotation_of(struct onnx_decoder *d, struct onnx_value *cos,
                             struct onnx_value *sin, uint32_t *ret,
                             struct err *e);
/* The number of keys that the mask lets count, less one; all keys. */
CHECKED int onnx_match_lengths(struct onnx_decoder *d, struct onnx_value *less,
                               struct onnx_value *total, struct err *e);
CHECKED int onnx_match_total(struct onnx_decoder *d, struct onnx_value *total,
                             struct err *e);
