/* range.h - makes a model's values fit fp16.
 *
 * The reference pass (reference.h) measures the values and fills a struct
 * range. From it range_choose takes the residual scale alpha and the norm's
 * form, or gives an error that names the tensor that no scaling makes fit. Pure
 * apart from allocation.
 */
#pragma once

#include "convert/arch/arch.h"
#include "convert/norm.h"

#define RANGE_FP16   65504.0 /* largest finite fp16 number */
#define RANGE_FREE   4.0     /* the factor that should stay free */
#define RANGE_ALPHAS 12u     /* alpha is one of 2^0 .. 2^-11 */

enum range_kind {
    RANGE_EMBEDDING,
    RANGE_EMBEDDING_NORM, /* of an encoder's sum of embeddings */
    RANGE_ATTN_IN, /* the stream itself, where there is no norm before */
    RANGE_ATTN_NORM,
    RANGE_Q,
    RANGE_K,
    RANGE_V,
    RANGE_Q_MIX, /* MIXER_CCA: after the convolutions */
    RANGE_K_MIX,
    RANGE_Q_NORM,
    RANGE_K_NORM,
    RANGE_V_NORM,
    RANGE_SCORES,
    RANGE_ATTN,
    RANGE_CONV_IN, /* a short convolution: [b; c; x], */
    RANGE_CONV_U,  /* b * x, */
    RANGE_CONV,    /* and c * y */
    RANGE_ATTN_OUT,
    RANGE_POST_ATTN,
    RANGE_RESIDUAL_MID,
    RANGE_FFN_IN,
    RANGE_FFN_NORM,
    RANGE_GATE,
    RANGE_UP,
    RANGE_ACT_UP,
    RANGE_FFN_OUT,
    RANGE_POST_DENSE,
    RANGE_ROUTER_NORM, /* what a router reads, with a branch of experts */
    RANGE_ROUTER_STATE, /* ROUTER_NETWORK: what the next layer reads */
    RANGE_ROUTER_NET,   /* and its norm; its inner layers */
    RANGE_ROUTER_1,
    RANGE_ROUTER_2,
    RANGE_ROUTER,
    RANGE_EXPERT_NORM,
    RANGE_EXPERT_GATE, /* of the chosen experts */
    RANGE_EXPERT_UP,
    RANGE_EXPERT_ACT, /* times their gates */
    RANGE_EXPERT_OUT,
    RANGE_EXPERTS, /* their sum */
    RANGE_POST_EXPERTS,
    RANGE_BRANCHES, /* the sum of both branches */
    RANGE_POST_FFN,
    RANGE_RESIDUAL,
    RANGE_PLE_PROJ, /* per-layer embeddings: the embedding's part */
    RANGE_PLE_IN,   /* both parts */
    RANGE_PLE_GATE,
    RANGE_PLE,
    RANGE_PLE_OUT,
    RANGE_PLE_NORM,
    RANGE_RESIDUAL_PLE,
    RANGE_OUT_SCALE,
    RANGE_OUT_NORM,
    RANGE_LOGITS,
    RANGE_KINDS,
};

/* max |value| of one tensor, fp32, unscaled. In forward order. */
struct range_peak {
    enum range_kind kind;
    uint32_t layer;
    double peak;
};

/* The error that the x / sqrt(d) form of a norm has in fp16, for each alpha:
 * the largest relative error of its factor over all rows; INFINITY where the
 * squares overflow or vanish. Norms that do not read the residual stream do not
 * depend on alpha. */
struct range_norm {
    enum range_kind kind; /* of the norm's output */
    uint32_t layer;
    float error[RANGE_ALPHAS];
};

struct range {
    size_t n_peaks, cap_peaks;
    struct range_peak *peaks; /* owned */
    size_t n_norms, cap_norms;
    struct range_norm *norms; /* owned */
    uint32_t n_tokens;
};

void range_fini(struct range *r); /* zeroed is fine */
void range_add_peak(struct range *r, enum range_kind kind, uint32_t layer,
                    double peak);
/* Zeroed errors, to be filled by the caller until the next call. */
struct range_norm *range_add_norm(struct range *r, enum range_kind kind,
                                  uint32_t layer);

/* "layers.7.residual", "embedding". */
#define RANGE_NAME_MAX 48
void range_name(enum range_kind kind, uint32_t layer, char out[RANGE_NAME_MAX]);
/* Whether a value of this kind is stored times alpha. */
bool range_scaled(enum range_kind kind);

struct range_choice {
    float alpha;
    enum norm_form norm;
    double margin; /* 65504 / (alpha * largest stream peak) */
    bool eps_omitted;
    bool warned;              /* less than RANGE_FREE is free somewhere */
    char detail[ERR_MSG_MAX]; /* text for the gate */
};

/* norm: NULL, "scale" or "max"; alpha: 0 or a power of two. Errors: RANGE
 * naming the first tensor that does not fit, INVALID (a bad override). */
CHECKED int range_choose(const struct range *r, const struct decoder *d,
                         const char *norm, double alpha,
                         struct range_choice *ret, struct err *e);
