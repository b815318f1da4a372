/* reference_impl.h - shared by the files of reference.h: reference.c (layers,
 * memory), reference_product.c (weights times panels), reference_norm.c (norms
 * and their error in fp16).
 *
 * Activations are feature-major panels (gemm.h): a column is a token, so norms
 * and rotations are loops over columns and every product is rows of weights
 * times the whole panel. */
#pragma once

#include "convert/reference.h"

#define BLOCK_FLOATS (128u * 1024u)
#define TOKENS       REFERENCE_TOKENS_MAX

struct scratch { /* of one worker */
    float *rows; /* dequantised weights */
    float *y;    /* a block's products, when they are not kept */
    int rc;
    struct err err;
    double peak;
};

struct reference {
    const struct decoder *d;
    unsigned threads;
    struct progress *progress;
    struct range *range;
    uint32_t n;              /* tokens */
    size_t stride;           /* n rounded up to whole lanes */
    float *x, *h, *y;        /* (d_model, stride) */
    float *q, *attn;         /* (n_heads * d_head, stride) */
    float *k, *v;            /* (n_kv * d_head, stride) */
    float *gate, *up;        /* (d_ff, stride) */
    float *cos, *sin;        /* (rope_dim / 2, stride), of this layer */
    double *head_peak;       /* per head: scores */
    uint32_t window;         /* of this layer; 0 = all */
    struct scratch *scratch; /* per worker */
    size_t n_scratch;
};

struct product {
    struct reference *r;
    const struct gguf_tensor *t;
    const float *x;
    float *y; /* (rows, stride); NULL: peaks, and logits when wanted */
    uint64_t block_rows;
    uint64_t first; /* block of this batch */
    float *logits;  /* (n, vocab) */
};

/* reference_product.c. Errors: CANCELLED, NOMEM, those of gguf_rows. */
/* Rows of a matrix that are dequantised at once. */
uint64_t reference_block_rows(uint64_t cols);
CHECKED int reference_product(struct product *p, struct err *e);
/* y = t * x (+ bias) */
CHECKED int reference_multiply(struct reference *r, const struct gguf_tensor *t,
                               const struct gguf_tensor *bias, const float *x,
                               float *y, struct err *e);
/* Note the peak of x where the range is wanted. */
void reference_peak(struct reference *r, enum range_kind kind, uint32_t layer,
                    const float *x, size_t rows);

/* reference_norm.c */
/* `groups` norms of d features each, one weight. y may be x. stream: x is
 * stored times alpha. kind: where its peak and error belong. Errors: NOMEM,
 * those of gguf_rows. */
CHECKED int reference_normalise(struct reference *r,
                                const struct gguf_tensor *t,
                                enum range_kind kind, uint32_t layer,
                                const float *x, size_t groups, bool stream,
                                float *y, struct err *e);
