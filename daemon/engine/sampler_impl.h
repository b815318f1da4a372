/* sampler_impl.h - shared by the sampler's files: sampler.c (random numbers,
 * bias, penalties, what a draw is), sampler_chain.c (the chain and its longer
 * samplers), sampler_dry.c, sampler_filter.c (the list, and what keeps its
 * best). */
#pragma once

#include <float.h>

#include "engine/sampler.h"

#define BLOCK 256u  /* logits of one peak */
#define SPAN  2048u /* logits between two kept sums */

/* Random numbers of: the token, the second one under a grammar, xtc. */
#define STREAM_DRAW   0u
#define STREAM_MASKED 1u
#define STREAM_XTC    2u

/* A logit that was changed: one for each bias, two for each token with
 * penalties, one for each token that dry knows. */
struct undo {
    int32_t id;
    float was;
};
#define UNDO_MAX(vocab) (ENGINE_BIAS_MAX + 3 * (size_t)(vocab))

/* A draw begins with all tokens (not listed). What changes logits changes them
 * where they stand. Then the largest is found (begun), and logits do not change
 * any more; the first filter makes a list, and from then on everything happens
 * in the list. A logit counts as x * scale. */
struct sampler {
    uint32_t vocab;
    uint32_t blocks;   /* of the vocabulary */
    struct undo *undo; /* what was changed in the logits, in order */
    size_t n_undo;     /* 0 between calls */
    uint32_t *counts;  /* by token; zero between calls */
    float *peaks;      /* largest logit of each block */
    double *before;    /* sum of all weights before each SPAN */
    bool begun;        /* peaks, best and max are set */
    bool listed;       /* the candidates are in ids; else all tokens are */
    bool weighed;      /* listed: max is not below any x, and w is set */
    uint32_t best;     /* id of the largest logit, the lowest one */
    double max;        /* the largest logit */
    double scale;      /* product of all 1 / temperature so far */
    uint32_t n;        /* candidates */
    int32_t *ids;      /* ascending */
    float *x;          /* their logits */
    double *w;         /* exp((x - max) * scale) */
    uint64_t *sort[2];
    double *probs;     /* sampler_probs */
    uint32_t *lengths; /* of repetitions (dry), for max_lengths tokens */
    size_t max_lengths;
    float mu;       /* sampler_mu */
    uint64_t *mask; /* sampler_mask; NULL: not made yet */
    float *masked;  /* (vocab): logits of a draw under a mask; the same */
};

/* Between lo and hi; NaN is lo. (libm's fmin may give either zero.) */
static inline double sampler_limited(double v, double lo, double hi)
{
    return !(v > lo) ? lo : v > hi ? hi : v;
}

static inline float sampler_finite(double v)
{
    return (float)sampler_limited(v, (double)-FLT_MAX, (double)FLT_MAX);
}

/* --- sampler.c --- */

/* Where a token's logit stands, to be changed now: among `logits` (a note to
 * put it back is made) or in the list. NULL: it is no candidate. */
float *sampler_at(struct sampler *s, float *logits, int32_t id);
void sampler_penalize(struct sampler *s, float *logits,
                      const struct msg_sampling *p, const int32_t *history,
                      size_t n);

/* --- sampler_dry.c --- */

/* Errors: NOMEM. */
CHECKED int sampler_dry(struct sampler *s, float *logits,
                        const struct msg_sampling *p, const int32_t *history,
                        size_t n, struct err *e);

/* --- sampler_chain.c --- */

/* All samplers, over logits with their bias. Afterwards either there is a list
 * of at least one candidate, or all tokens are candidates; begun in any case.
 * Errors: INVALID (not finite), NOMEM. */
CHECKED int sampler_chain(struct sampler *s, float *logits,
                          const struct msg_sampling *p, const int32_t *history,
                          size_t n, uint32_t out_index, struct err *e);
/* mirostat's number after candidate i was drawn. */
float sampler_learn(const struct sampler *s, const struct msg_sampling *p,
                    uint32_t i);

/* --- sampler_filter.c --- */

/* Find the largest logit, the lowest id among equals, and fill `peaks`. Errors:
 * INVALID (not finite). */
CHECKED int sampler_argmax(struct sampler *s, const float *x, uint32_t *ret,
                           struct err *e);
/* Find the k largest with the help of `peaks`, ties to the lower id; returns
 * how many. */
uint32_t sampler_alternatives(const struct sampler *s, const float *x,
                              uint32_t k, struct msg_logprob *top);

/* The following need `begun`. */

/* List all tokens but those of minus infinity, where there is no list. */
void sampler_gather(struct sampler *s, const float *x);
/* List one token. */
void sampler_only(struct sampler *s, const float *x, uint32_t id);
/* Set max and w of the list. */
void sampler_weigh(struct sampler *s);
double sampler_sum(const struct sampler *s); /* of the candidates' weights */
/* Index of the best candidate, the lowest id among equals. */
uint32_t sampler_best(const struct sampler *s);
/* The candidates, best first, as key << 32 | index; one of s->sort. */
const uint64_t *sampler_sort(struct sampler *s);
void sampler_move(const struct sampler *s, uint32_t from, uint32_t to);

/* The filters that keep the best, from all tokens or the list. */
void sampler_top_k(struct sampler *s, const float *x, uint32_t k); /* k > 0 */
void sampler_top_p(struct sampler *s, const float *x, double p);   /* 0..1 */
void sampler_min_p(struct sampler *s, const float *x, double p);   /* 0..1 */
/* Of all tokens keep those with this share of all weight; false: none has it,
 * and the list is empty. */
bool sampler_min_share(struct sampler *s, const float *x, double share);

/* Inverse CDF at u: of the list, an index; of all tokens, an id. */
uint32_t sampler_draw_list(struct sampler *s, double u);
int32_t sampler_draw_all(struct sampler *s, const float *x, double u);
