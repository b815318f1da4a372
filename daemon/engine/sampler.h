/* sampler.h - how a token is drawn.
 *
 * Order: logits -> logit bias -> penalties (repeat, then frequency and
 * presence, over the sequence's tokens) -> temperature -> top-k -> top-p ->
 * min-p -> inverse CDF in id order with one random number. Greedy
 * (temperature 0) takes the largest after bias and penalties, ties to the
 * lowest id. The random number is Philox4x32-10 keyed by the seed, counter
 * (choice, out_index, which): `which` is 0, but 1 for the second draw under a
 * grammar. A seed gives the same text for ever. All sums run in id
 * order in double. repeat_last_n limits the repeat penalty only; frequency and
 * presence count the whole sequence.
 */
#pragma once

#include "proto/msg.h"

/* Uniform in [0, 1) with 53 bits. Source: Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC11 (Philox4x32-10). */
double sampler_random(uint64_t seed, uint32_t choice, uint32_t index,
                      uint32_t which);
/* The generator itself, for its known answers. */
void sampler_philox(const uint32_t ctr[4], const uint32_t key[2],
                    uint32_t ret[4]);

struct sampler; /* scratch for one vocabulary size */
CHECKED int sampler_new(uint32_t vocab, struct sampler **ret, struct err *e);
void sampler_free(struct sampler *s);

/* Draw one token. logits: vocab fp32; the call changes them for bias and
 * penalties, and restores them. history: all tokens of the sequence so far,
 * newest last. Fills id and, where they are wanted, logprob and the top
 * alternatives, both from the log softmax of the given logits.
 * Errors: INVALID when a logit is NaN or infinite (minus infinity is allowed
 * while one is finite), or when a bias names no token. */
CHECKED int sampler_draw(struct sampler *s, float *logits,
                         const struct msg_sampling *p, const int32_t *history,
                         size_t n_history, uint32_t out_index,
                         struct msg_token *ret, struct err *e);

/* The log-probability of a given token and of the k likeliest, by the same
 * logits. Fills all of *ret. Errors: INVALID, as sampler_draw. */
CHECKED int sampler_score(struct sampler *s, const float *logits, int32_t id,
                          uint32_t k, struct msg_token *ret, struct err *e);

/* Room for a mask of the vocabulary: (vocab + 63) / 64 words, owned by s. NULL:
 * memory is out. */
uint64_t *sampler_mask(struct sampler *s);
/* Draw among the tokens whose bit is set, as sampler_draw does among all, but
 * with a random number of its own: for a draw that a grammar did not allow.
 * Errors: also INVALID when none of them has a finite logit. */
CHECKED int sampler_draw_masked(struct sampler *s, float *logits,
                                const struct msg_sampling *p,
                                const int32_t *history, size_t n_history,
                                uint32_t out_index, const uint64_t *mask,
                                struct msg_token *ret, struct err *e);

/* The filtered, renormalised probabilities that sampler_draw would use:
 * vocab doubles in scratch owned by s (for tests against vectors). */
const double *sampler_probs(struct sampler *s, float *logits,
                            const struct msg_sampling *p,
                            const int32_t *history, size_t n_history);
