/* breakers.h - the texts that end a repetition (the sampler dry), as tokens.
 *
 * A text may lie inside of one token, or begin with the end of one token and go
 * on in others. As in llama.cpp, of every token of the vocabulary is asked:
 *   - whether the text is in it: then the token is a breaker by itself;
 *   - whether it ends with the beginning of the text: then it is one together
 *     with the tokens of the rest, encoded by itself, of which DRY_TAIL_MAX
 *     count.
 * Other ways to cut the text into tokens are not found, there as here. A
 * token's text is what it is in running text, with its leading space.
 *
 * Thread: any; it uses only its arguments.
 */
#pragma once

#include "model/tokenizer.h"

/* Make the numbers of msg_sampling.breaks from n texts of 1 to DRY_TEXT_BYTES
 * bytes. The caller frees *ret; it is NULL when no token has to do with them.
 * Errors: TOO_BIG (DRY_GROUPS_MAX, DRY_BREAKS_MAX), NOMEM. */
CHECKED int breakers_find(const struct tokenizer *t, const char *const *texts,
                          size_t n, int32_t **ret, size_t *ret_n,
                          struct err *e);
