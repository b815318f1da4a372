/* impl.h - shared by the files of reference.h: run.c (layers), panels.c
 * (memory), embed.c, attention.c and scores.c, cca.c, conv.c, experts.c, product.c (weights
 * times panels), norm.c (norms and their error in fp16).
 *
 * Activations are feature-major panels (gemm.h): a column is a token, so norms
 * and rotations are loops over columns and every product is rows of weights
 * times the whole panel. */
#pragma once

#include "convert/reference/walk.h"

#define BLOCK_FLOATS (128u * 1024u)
#define BLOCK_ROWS   48u /* at least: they share a copy of the panel (gemm.c) */
#define TOKENS       REFERENCE_TOKENS_MAX
#define QUERIES      8u /* of scores.c, side by side */

struct scratch { /* of one worker */
    float *rows; /* dequantised weights */
    float *y;    /* a block's products, when they are not kept */
    double *queries; /* (d_head, QUERIES) */
    double *scores;  /* (room of the keys, QUERIES) */
    int rc;
    struct err err;
    double peak;
};

/* Keys and values of all positions so far: (n_kv * d_head, stride), position p
 * of sequence s at s * room + p. A layer that reads another's has none; those
 * that no other layer reads may have one memory, common_k and _v. What a short
 * convolution reads of earlier positions stands in k, (d_model, stride); what
 * MIXER_CCA does after the keys in k: u, then values of the position. */
struct reference_keys {
    uint32_t n_layers, room;
    size_t stride;
    float **k, **v; /* a layer */
    float *common_k, *common_v;
};

struct reference {
    const struct decoder *d;
    unsigned threads;
    struct progress *progress;
    struct range *range;
    const struct reference_conf *conf; /* borrowed */
    uint32_t n;                        /* tokens: sequences * columns */
    uint32_t columns;                  /* of a sequence, side by side */
    uint32_t position;                 /* of a sequence's first column */
    size_t stride;           /* n rounded up to whole lanes */
    float *x, *h, *y;        /* (d_model, stride) */
    float *q, *attn;         /* (n_heads * d_head, stride) */
    float *k, *v;            /* (n_kv * d_head, stride): of these columns */
    struct reference_keys *keys; /* borrowed */
    float *gate, *up;        /* (d_ff, stride), or an expert's */
    float *route, *gates;    /* (n_experts, stride): scores, and what the chosen
                                are multiplied by, else 0; NULL: no experts */
    float *picked;           /* (d_model, stride): what an expert reads */
    float *mixed;            /* (d_model, stride): what all have given */
    float *x0;               /* (d_model, stride): the embeddings; NULL: not
                                needed later */
    float *ple;              /* (d_ple, stride): of this layer */
    float *cos, *sin;        /* (rope_dim / 2, stride), of this layer */
    double *head_peak;       /* per head: scores */
    float *sinks;            /* the same, of this layer: layer.h */
    const int32_t *tokens;   /* borrowed */
    const struct layer *layer; /* this one */
    struct scratch *scratch; /* per worker */
    size_t n_scratch;
};

struct product {
    struct reference *r;
    const struct part *w;
    const float *x;
    float *y; /* (rows, stride); NULL: peaks, and logits when wanted */
    uint64_t block_rows;
    uint64_t first; /* block of this batch */
    float *logits;  /* (n, vocab) */
};

/* --- product.c --- Errors: CANCELLED, NOMEM, those of gguf_rows. */

/* Rows of a matrix that are dequantised at once. */
uint64_t reference_block_rows(uint64_t cols);
CHECKED int reference_product(struct product *p, struct err *e);
/* y = w x (+ bias); bias->t may be NULL. */
CHECKED int reference_multiply(struct reference *r, const struct part *w,
                               const struct part *bias, const float *x,
                               float *y, struct err *e);
/* The same with a layer's matrix, whose peak is noted; bias: SLOT_COUNT for
 * none. */
CHECKED int reference_project(struct reference *r, uint32_t l,
                              enum arch_slot slot, enum arch_slot bias,
                              enum range_kind kind, const float *x, float *y,
                              struct err *e);
/* Note the peak of x where the range is wanted. */
void reference_peak(struct reference *r, enum range_kind kind, uint32_t layer,
                    const float *x, size_t rows);

/* --- norm.c --- */

#define NORM_BARE_EPS 1e-12 /* a row of zeros stays one */

struct norm {
    const struct part *weight; /* weight->t NULL: none */
    const struct part *bias;   /* added afterwards; NULL: none */
    bool centred;              /* LayerNorm: less the mean of x first */
    bool plus_one;             /* times 1 + weight */
    size_t d, groups;          /* so many norms of d features, one weight */
    bool stream;               /* x is stored times alpha */
    bool bare;                 /* the model has no epsilon here */
    enum range_kind kind;      /* where its peak and error belong */
    uint32_t layer;
};

/* y may be x. Errors: NOMEM, those of gguf_rows. */
CHECKED int reference_normalise(struct reference *r, const struct norm *n,
                                const float *x, float *y, struct err *e);

/* --- run.c (reference_embed: embed.c) --- */

/* a = act(a) * b, `rows` rows; b NULL: act(a). ACT_CLAMPED: of both. */
void reference_activate(struct reference *r, float *a, const float *b,
                        size_t rows);

/* --- experts.c --- */

/* r->mixed: what the experts of layer l give, by the stream as it is. Errors:
 * CANCELLED, NOMEM, those of gguf_rows. */
CHECKED int reference_experts(struct reference *r, uint32_t l, struct err *e);
/* r->y, what the dense feed-forward gave if the layer has one, becomes what
 * joins the stream. Same errors. */
CHECKED int reference_join_experts(struct reference *r, uint32_t l,
                                   struct err *e);

/* --- attention.c --- */

/* r->attn becomes what heads have gathered, from r->h. */
CHECKED int reference_attention(struct reference *r, uint32_t l,
                                struct err *e);
/* Put the columns' rows among those of all positions (struct reference_keys). */
void reference_keep(const struct reference *r, const float *x, size_t rows,
                    float *to);

/* --- cca.c --- */

/* r->q, r->k and r->v become the queries, keys and values of MIXER_CCA before
 * their rotation, from r->h. What later positions read is kept. */
CHECKED int reference_cca(struct reference *r, uint32_t l, struct err *e);

/* --- conv.c --- */

/* The same of a short convolution: r->attn has d_model rows. */
CHECKED int reference_conv(struct reference *r, uint32_t l, struct err *e);

/* --- scores.c --- */

/* r->attn becomes what heads gather with r->q from layer l's keys and values:
 * scores, softmax and sums in double. The peak of the scores is noted. */
void reference_scores(struct reference *r, uint32_t l);
