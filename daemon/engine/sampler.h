/* sampler.h - how a token is drawn.
 *
 * Order: logits -> logit bias -> a chain of samplers -> inverse CDF in id order
 * with one random number, over what they leave. Each sampler works on what the
 * one before it left; what it does is llama.cpp's, in double, with sums in id
 * order:
 *   penalties    of tokens of the sequence: repeat (the last repeat_last_n),
 *                then frequency and presence (the whole sequence)
 *   dry          of tokens that would make a repetition longer: sampler_dry.c
 *   top_n_sigma  keep logits within n standard deviations of the largest
 *   top_k        keep the k likeliest
 *   typ_p        keep those whose surprise is nearest to the entropy, until
 *                their mass is above typical_p
 *   top_p        keep the likeliest, until their mass is at least top_p
 *   min_p        keep those that weigh min_p of the likeliest, or more
 *   xtc          with xtc_probability: of the tokens of at least xtc_threshold
 *                keep only the last
 *   temperature  divide logits; with dynatemp_range by a temperature between
 *                T - range and T + range, that grows with the entropy
 * All ranks and ties are by logit, then by the lower id. At least one token is
 * left, always. With mirostat the chain is the temperature, then a cut (v1: the
 * likeliest k; v2: a surprise of at most mu); the drawn token's surprise gives
 * the next mu.
 *
 * A request gives the order (msg_sampling.chain); samplers that it does not
 * list are off. The default order is penalties, dry, top_n_sigma, temperature,
 * top_k, typ_p, top_p, min_p, xtc: llama.cpp's, but for its temperature, which
 * comes last.
 *
 * Greedy (temperature 0, no dynatemp_range) takes the likeliest of what is left
 * where the temperature stands, or at the end.
 *
 * Random numbers are Philox4x32-10 keyed by the seed, counter (choice,
 * out_index, stream, 0): stream 0 draws the token, stream 1 the second one
 * under a grammar, stream 2 is xtc's. A seed gives the same text for ever.
 */
#pragma once

#include "proto/msg.h"

/* Uniform in [0, 1) with 53 bits. Source: Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC11 (Philox4x32-10). */
double sampler_random(uint64_t seed, uint32_t choice, uint32_t index);
/* The generator itself, for its known answers. */
void sampler_philox(const uint32_t ctr[4], const uint32_t key[2],
                    uint32_t ret[4]);

/* The same of another stream of numbers. */
double sampler_random_of(uint64_t seed, uint32_t choice, uint32_t index,
                         uint32_t stream);

struct sampler; /* scratch for one vocabulary size */
CHECKED int sampler_new(uint32_t vocab, struct sampler **ret, struct err *e);
void sampler_free(struct sampler *s);

/* Draw one token. logits: vocab fp32; the call changes them for bias and
 * penalties, and restores them. history: all tokens of the sequence so far,
 * newest last. Fills id and, where they are wanted, logprob and the top
 * alternatives, both from the log softmax of the given logits.
 * Errors: INVALID when a logit is NaN or infinite (minus infinity is allowed
 * while one is finite), or when a bias names no token; NOMEM (dry). */
CHECKED int sampler_draw(struct sampler *s, float *logits,
                         const struct msg_sampling *p, const int32_t *history,
                         size_t n_history, uint32_t out_index,
                         struct msg_token *ret, struct err *e);

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

/* After sampler_draw: what p->mu is for the next token of the sequence. */
float sampler_mu(const struct sampler *s);

/* The filtered, renormalised probabilities from which sampler_draw would draw:
 * vocab doubles in scratch owned by s (for tests against vectors). */
const double *sampler_probs(struct sampler *s, float *logits,
                            const struct msg_sampling *p,
                            const int32_t *history, size_t n_history,
                            uint32_t out_index);
