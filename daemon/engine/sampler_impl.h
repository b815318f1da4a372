/* sampler_impl.h - shared by sampler.c and sampler_filter.c. */
#pragma once

#include "engine/sampler.h"

#define BLOCK 256u  /* logits of one peak */
#define SPAN  2048u /* logits between two kept sums */

/* A logit that was changed: one for each bias, two for each token with
 * penalties. */
struct undo {
    int32_t id;
    float was;
};
#define UNDO_MAX(vocab) (ENGINE_BIAS_MAX + 2 * (size_t)(vocab))

struct sampler {
    uint32_t vocab;
    uint32_t blocks;  /* of the vocabulary */
    struct undo *undo; /* what bias and penalties changed, in order */
    size_t n_undo;     /* 0 between calls */
    uint32_t *counts; /* of tokens in the history; zero between calls */
    float *peaks;     /* largest logit of each block */
    double *before;   /* sum of all weights before each SPAN */
    double max;       /* the largest logit */
    double scale;     /* 1 / temperature */
    uint32_t n;       /* candidates */
    int32_t *ids;     /* ascending */
    float *x;         /* their logits after bias and penalties */
    double *w;        /* exp((x - max) * scale) */
    uint64_t *sort[2];
    double *probs; /* sampler_probs */
    uint64_t *mask; /* sampler_mask; NULL: not made yet */
    float *masked; /* (vocab): logits of a draw under a mask; the same */
};

/* Find the largest logit, the lowest id among equals, and fill `peaks`. Errors:
 * INVALID (not finite). */
CHECKED int sampler_argmax(struct sampler *s, const float *x, uint32_t *ret,
                           struct err *e);
/* Find the k largest with the help of `peaks`, ties to the lower id; returns
 * how many. */
uint32_t sampler_alternatives(const struct sampler *s, const float *x,
                              uint32_t k, struct msg_logprob *top);

/* After sampler_argmax(x), with s->max and s->scale set: */
bool sampler_has_filter(const struct sampler *s, const struct msg_sampling *p);
/* Candidates and their weights after all filters. */
void sampler_filter(struct sampler *s, const float *x,
                    const struct msg_sampling *p);
double sampler_sum(const struct sampler *s); /* of the candidates' weights */
/* Inverse CDF at u of the candidates, and of the whole vocabulary. */
int32_t sampler_draw_list(struct sampler *s, double u);
int32_t sampler_draw_all(struct sampler *s, const float *x, double u);
