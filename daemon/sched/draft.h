/* draft.h - what a text's own past says comes next.
 *
 * An index over a growing text of token ids answers: where did these last few
 * tokens stand before, and what followed them there? Chains of equal n-grams,
 * found by hash, as a compressor finds its matches. One chain is over n-grams
 * of `ngram_min` tokens, the other over DRAFT_LONG, so that a long repetition
 * is found among however many short ones.
 *
 *   (1) The longest match among the latest `tries` candidates wins, the later
 *       one among equals. Candidates of the long chain come first; the short
 *       one is asked only when they give nothing.
 *   (2) A token costs a constant to append, and as much to take off again: the
 *       chains are a stack. A fork indexes its text anew.
 *   (3) Only the latest DRAFT_WINDOW positions are remembered, whatever the
 *       length of the text: 16 bytes each. Cutting the text to before them
 *       makes draft_extend index once more what is left.
 *   (4) A negative number is no token but a border: nothing matches it, and
 *       nothing is found where it comes next.
 *
 * The text belongs to the caller, who gives it at every call; it must be the
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

/* ngram_min is cut to 1..DRAFT_LONG. Nothing is allocated before it is used. */
void draft_init(struct draft *d, uint32_t ngram_min);
void draft_fini(struct draft *d); /* zeroed is fine */

/* Index text up to n tokens, at most `most` more of them than now. */
void draft_extend(struct draft *d, const int32_t *text, uint32_t n,
                  uint32_t most);
/* Forget all after the first n tokens; n beyond them is fine. */
void draft_truncate(struct draft *d, const int32_t *text, uint32_t n);

/* The indexed text's best match for the end of `tail` (n_tail tokens; often the
 * text itself). Returns its length, 0 for none; *ret_at is the position that
 * follows it, below d->n. */
uint32_t draft_find(struct draft *d, const int32_t *text, const int32_t *tail,
                    uint32_t n_tail, uint32_t *ret_at);

/* Up to `max` tokens of text[0, n) from `at` (< n) on; what is repeated so far
 * is taken as going on when the text ends. Returns how many. */
uint32_t draft_copy(const int32_t *text, uint32_t n, uint32_t at, uint32_t max,
                    int32_t *ret);
