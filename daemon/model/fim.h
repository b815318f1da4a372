/* fim.h - the prompt that makes a model fill in the middle of a text.
 *
 *   FIM_REP myproject\n                         where the vocabulary has it
 *   FIM_SEP name\n text ...                     further files
 *   FIM_SEP filename\n
 *   FIM_PRE prefix prompt FIM_SUF suffix FIM_MID
 *
 * The order of llama-server, whose clients tune their texts for it; a BOS is in
 * front of everything. Texts of special tokens in what is given stay text.
 *
 * What does not fit is cut: what is far from the gap goes first. Prefix and
 * suffix have a window of FIM_WINDOW tokens, of which the suffix takes a
 * quarter and what the prefix leaves. Other files have the rest, which does not
 * depend on what is typed: so the prompt begins like the one before it and is
 * warm.
 *
 * Thread: any; it uses only its arguments.
 */
#pragma once

#include "model/tokenizer.h"

struct fim_file {
    struct span name, text;
};

struct fim_text {
    struct span prefix; /* before the gap */
    struct span prompt; /* the same, behind prefix: what was just typed */
    struct span suffix; /* after the gap */
    const struct fim_file *files;
    size_t n_files;
};

/* Bytes of all of it. */
size_t fim_bytes(const struct fim_text *text);
/* Whether the vocabulary has the tokens for it. Errors: UNSUPPORTED, with the
 * names of what is missing. */
CHECKED int fim_check(const struct tokenizer *t, struct err *e);

/* At most `room` tokens, which the caller frees. *ret_cut: something was left
 * out. words: tokenizer.h; may be NULL. Errors: those of fim_check and
 * tokenizer_encode; TOO_BIG: the room has no place for the FIM tokens. */
CHECKED int fim_encode(const struct tokenizer *t, struct tokenizer_words *words,
                       const struct fim_text *text, size_t room, int32_t **ret,
                       size_t *ret_n, bool *ret_cut, struct err *e);
