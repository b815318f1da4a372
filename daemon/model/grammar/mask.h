/* mask.h - which tokens of a vocabulary may come next.
 *
 *   masker_new (a matcher and a trie) -> mask_fill, mask_token, mask_forced
 *
 * A mask has a bit for each token id: set exactly for tokens of text whose bytes
 * match, and for tokens that end a text where it may end. Masks are kept by
 * configuration, the least recently used ones are forgotten (MASK_CACHE_MAX).
 *
 * Thread: a masker belongs to its matcher's thread.
 */
#pragma once

#include "base/buf.h"
#include "model/grammar/match.h"
#include "model/grammar/trie.h"

struct masker;

/* m and t must outlive it. Errors: NOMEM. */
CHECKED int masker_new(struct matcher *m, const struct trie *t,
                       struct masker **ret, struct err *e);
void masker_free(struct masker *k); /* NULL is fine */

/* bits: (trie_tokens + 63) / 64 words, all written; bit id % 64 of word id / 64.
 * s must be held. Returns whether any token is allowed. */
bool mask_fill(struct masker *k, match_t s, uint64_t *bits);

/* Move *s, which is held, behind token id and hold that instead. Behind a token
 * that ends a text it is MATCH_DEAD. A token that is not allowed: false, *s as
 * before. */
CHECKED bool mask_token(struct masker *k, match_t *s, uint32_t id);

/* Append to `bytes` what must come next, up to its limit: at each place the one
 * byte that can follow. Returns how many tokens, at most `max`, spell the
 * beginning of that, the longest first: a draft, since other tokens may spell
 * it too. s must be held. */
uint32_t mask_forced(struct masker *k, match_t s, struct buf *bytes,
                     uint32_t *tokens, uint32_t max);

/* For tests and measurements: masks that were made, not found. */
uint64_t mask_made(const struct masker *k);
