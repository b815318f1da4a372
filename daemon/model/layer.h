/* layer.h - one layer of a decoder, as data.
 *
 * The reference computes a layer from this description, the emitter draws it,
 * the range measurement names its values, and a bundle (format 2) keeps it. So
 * none of them knows a family.
 *
 *   h = pre_norm ? rms(x) * g : x
 *   q, k, v = W h (+ b); norms of q, k, v; rotation; scores; values; o
 *   x += residual_scale * (post_norm ? rms(o) * g : o)
 *   (sum_norm: x = (x + o - mean) / deviation * g + b, LayerNorm of the sum)
 *   the same around the feed-forward, which may be a mixture of experts:
 *     s = R h; the n_top experts with the largest score; y = sum g_e * expert_e(h)
 *     expert_branch: beside a dense feed-forward, and
 *       s = R (rms(x) * r / sqrt(d_model)); h of the experts = rms(x) * g2
 *       y = rms(dense) * g3 + rms(sum) * g4
 *   (per-layer embeddings: x += rms(W (act(W x) * e)) * g)
 *   x *= out_scale
 *
 * A layer of an encoder sees to both sides: query i the keys j with |i - j| <=
 * window, or all keys where the window is 0. There are no positions before and
 * none to come.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

/* How positions reach one another. MIXER_CONV is the short convolution of
 * lfm2: [b; c; x] = W h, u = b * x, y = sum over j of w[j] * u at the position
 * conv_len - 1 - j before, and o = c * y. It has no heads, no keys and no
 * values; what it keeps are the last conv_len - 1 of u, its tail.
 *
 * MIXER_CCA is attention whose queries and keys are mixed along positions first
 * (zaya): q0 = Wq h, k0 = Wk h, of query head i q' = (q0 + k0 of its key head)
 * / 2, of a key head k' = the mean of its queries' q'; u = [q0; k0] through a
 * depthwise convolution of conv_len taps and one of mix_len taps with a group a
 * head, both with a bias; q = its part + q', k = its part + k'. Each head of q
 * and k is divided by its root mean square, those of k times a factor. The first
 * half of the values is of h, the second of the position before (0 at the
 * first). Its tails: conv_len + mix_len - 2 of u, and one of those values. */
enum layer_mixer { MIXER_ATTENTION, MIXER_CONV, MIXER_CCA };

/* ACT_CLAMPED is of experts alone, and of both their products: with g = min(g,
 * ACT_LIMIT) and u in [-ACT_LIMIT, ACT_LIMIT], g * sigmoid(ACT_SLOPE * g) * (u +
 * 1). The others are multiplied by u as it is. */
enum layer_act { ACT_SILU, ACT_GELU_TANH, ACT_CLAMPED, ACT_GELU_ERF };
#define ACT_LIMIT 7.0f
#define ACT_SLOPE 1.702f

/* What the norm of queries and keys runs over. */
enum layer_qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* each head, one weight for all */
    QK_NORM_FULL, /* all heads together */
};

/* How a router's scores s choose experts, and what those are multiplied by. Of
 * equal scores the expert with the lower index comes first. */
enum layer_router {
    ROUTER_NONE,
    ROUTER_SOFTMAX_TOP,  /* by s; g = softmax of the chosen s, which is that of
                            all, divided by the sum of the chosen */
    ROUTER_SIGMOID_BIAS, /* by sigmoid(s) + bias; g = sigmoid(s) divided by the
                            chosen ones' sum + ROUTER_SUM_MIN */
    /* s of a network of d_router: r = W h + b (+ the r of the layer before times
     * a scale); s = W3 gelu(W2 gelu(W1 rms(r) + b1) + b2), gelu by erf. It has
     * one class more than there are experts, which stands for none. By
     * softmax(s) + bias; g = softmax(s), the one of all. n_top is 1. */
    ROUTER_NETWORK,
};
#define ROUTER_SUM_MIN 1e-6f

/* Layers have one of at most two kinds of positions. */
#define LAYER_KINDS  2u
#define LAYER_GLOBAL 0u
#define LAYER_LOCAL  1u

struct layer {
    enum layer_mixer mixer;
    uint32_t kind; /* LAYER_GLOBAL or LAYER_LOCAL: its rotation and window */
    bool rotates;  /* queries and keys are rotated by the kind's angles */
    uint32_t conv_len; /* of MIXER_CONV and _CCA: taps, the row's own among them;
                          or 0 */
    uint32_t mix_len;  /* of MIXER_CCA: the same; or 0 */
    uint32_t n_heads, n_kv, d_head; /* 0 where the mixer has none */
    uint32_t kv_from; /* layer whose keys and values it reads; itself */
    bool pre_norm, post_norm;
    bool sum_norm; /* LayerNorm of the stream after each block, see above */
    bool gain_plus_one; /* norms multiply by 1 + weight */
    enum layer_qk_norm qk_norm;
    bool qk_norm_last; /* after the rotation */
    bool v_norm;       /* values are normed, without a weight */
    bool v_is_k;       /* values are the keys' projection, before its norm */
    float score_scale; /* scores are q.k times this */
    float score_cap;   /* cap * tanh(scores / cap); 0: none */
    bool both_sides;   /* of an encoder, see above */
    bool sinks;        /* a score more for each head in the softmax, without a
                          value */
    enum layer_act act;
    bool gated; /* act(gate) * up, or act(up) */
    uint32_t d_ff; /* of the dense feed-forward; 0: there are experts alone */
    enum layer_router router;
    uint32_t n_experts, n_top, d_expert; /* 0: none */
    uint32_t d_router; /* of ROUTER_NETWORK; or 0 */
    bool expert_branch; /* experts beside the dense feed-forward, see above */
    bool sparse; /* of a bundle: its experts are functions that the engine runs
                    (bundle_group), and no part of a program of layers */
    bool affine_join; /* x = (y + a) * b + (x + c) * d, a vector each, in place
                         of x += residual_scale * y */
    float residual_scale; /* of what is added to the stream */
    uint32_t d_ple;       /* width of the per-layer embedding; 0: none */
    float out_scale;      /* of the stream after the layer */
};

/* Positions before its own that a row reads of the layer's tail: [p - this, p).
 * 0: it has no tail. (MIXER_CCA: of u.) */
static inline uint32_t layer_tail_len(const struct layer *l)
{
    return l->mixer == MIXER_CONV  ? l->conv_len - 1
           : l->mixer == MIXER_CCA ? l->conv_len + l->mix_len - 2
                                   : 0;
}

/* Queries that an encoder's program takes together: a block sees itself and its
 * neighbours. A power of two, at least the window, so that lengths of programs
 * are whole blocks. */
#define LAYER_BLOCK_MIN 32u
static inline uint32_t layer_block(uint32_t window)
{
    uint32_t n = LAYER_BLOCK_MIN;
    while (n < window && n < ENCODER_ROWS_MAX) {
        n *= 2;
    }
    return n;
}

/* Experts that a program computes together, of n: their rows are one constant,
 * and no axis passes MODEL_DIM_MAX. The last group may be smaller. */
static inline uint32_t layer_expert_group(const struct layer *l,
                                          uint32_t d_model)
{
    uint32_t wide = d_model > l->d_expert ? d_model : l->d_expert;
    uint32_t most = MODEL_DIM_MAX / wide > 0 ? MODEL_DIM_MAX / wide : 1;
    uint32_t groups = (l->n_experts + most - 1) / most;
    return (l->n_experts + groups - 1) / groups;
}

/* What a layer has of a row that a layer of a later program may read: normed and
 * rotated keys, values, and the r of a ROUTER_NETWORK. As rows of `heads` times
 * `dim` numbers. */
enum layer_port { PORT_KEYS, PORT_VALUES, PORT_ROUTER, LAYER_PORTS };

static inline uint32_t layer_port_heads(const struct layer *l,
                                        enum layer_port p)
{
    return p == PORT_ROUTER ? 1 : l->n_kv;
}
static inline uint32_t layer_port_dim(const struct layer *l, enum layer_port p)
{
    return p == PORT_ROUTER ? l->d_router : l->d_head;
}

/* Whether a layer of [first, last) reads the keys and values of `owner`. */
static inline bool layer_read_by(const struct layer *layers, uint32_t owner,
                                 uint32_t first, uint32_t last)
{
    uint32_t l = first;
    while (l < last && layers[l].kv_from != owner) {
        l++;
    }
    return l < last;
}
/* The same of any port: a router reads that of the layer before. */
static inline bool layer_port_read_by(const struct layer *layers,
                                      enum layer_port p, uint32_t owner,
                                      uint32_t first, uint32_t last)
{
    if (p != PORT_ROUTER) {
        return layer_read_by(layers, owner, first, last);
    }
    return owner + 1 >= first && owner + 1 < last &&
           layers[owner + 1].router == ROUTER_NETWORK;
}
