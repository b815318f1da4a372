/* draft.h - predicts the next tokens of a text from its earlier tokens.
 *
 * An index over a growing text of token ids answers: where did the last few
 * tokens occur before, and what followed them there? It has chains of equal
 * n-grams, found by hash, like a compressor. One chain is over n-grams of
 * `ngram_min` tokens, the other over DRAFT_LONG, so that a long repetition is
 * found among any number of short ones.
 *
 *   (1) The longest match among the latest `tries` candidates wins; of equal
 *       ones the latest. Candidates of the long chain come first; the short
 *       chain is searched only when they give nothing.
 *   (2) To append a token, or to take it off again, costs constant time: the
 *       chains are a stack. A fork indexes its text anew.
 *   (3) Only the latest DRAFT_WINDOW positions are kept, 16 bytes each. When
 *       the text is cut to before them, draft_extend indexes what is left once
 *       more.
 *   (4) A negative number is not a token but a border: nothing matches it, and
 *       nothing is found where it comes next.
 *
 * The text belongs to the caller, who passes it to every call. It must be the
 * same up to the indexed length, and may have moved in memory.
 */
#pragma once

#include "base/base.h"
#include "proto/limits.h"

#define DRAFT_LONG  DRAFT_NGRAM_MAX /* tokens of the longer n-gram */
#define DRAFT_TRIES 32u             /* candidates looked at */
#define DRAFT_MATCH 64u             /* tokens compared, back from the end */

struct draft_chain {
    uint32_t gram;  /* tokens of an n-gram */
    uint32_t *head; /* by hash: the latest position; 0 = none */
    uint32_t *prev; /* by position, modulo cap: the one before it */
};

struct draft {
    uint32_t n;     /* tokens indexed */
    uint32_t low;   /* positions below are forgotten */
    uint32_t cap;   /* entries of each array: a power of two; 0 = none yet */
    uint32_t tries; /* DRAFT_TRIES; tests look at all */
    struct draft_chain chains[2]; /* the longer n-gram first */
    uint64_t ops;                 /* steps done, for tests of the cost */
};

/* ngram_min is clamped to 1..DRAFT_LONG. Memory is allocated at first use. */
void draft_init(struct draft *d, uint32_t ngram_min);
void draft_fini(struct draft *d); /* zeroed is fine */

/* Index text up to its first n tokens, but at most `most` tokens in this call.
 */
void draft_extend(struct draft *d, const int32_t *text, uint32_t n,
                  uint32_t most);
/* Forget all after the first n tokens; n beyond them is fine. */
void draft_truncate(struct draft *d, const int32_t *text, uint32_t n);

/* Find the best match for the end of `tail` (n_tail tokens, often the text
 * itself) in the indexed text. Returns its length, 0 for none; *ret_at is the
 * position after it, below d->n. */
uint32_t draft_find(struct draft *d, const int32_t *text, const int32_t *tail,
                    uint32_t n_tail, uint32_t *ret_at);

/* Copy up to `max` tokens of text[0, n) from `at` (< n) on. When the text ends
 * before that, the copy repeats from `at`. Returns how many. */
uint32_t draft_copy(const int32_t *text, uint32_t n, uint32_t at, uint32_t max,
                    int32_t *ret);
