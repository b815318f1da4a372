/* tokenizer.h - text <-> token ids, from a GGUF's vocabulary metadata.
 *
 * Kinds: "gpt2" (BPE by rank, of bytes; the pre-tokenizer pattern is chosen by
 * tokenizer.ggml.pre), "gemma4" (the same of characters, with byte fallback;
 * some names of tokenizer.ggml.pre are that too), "llama" (SentencePiece-style
 * BPE with scores and byte fallback), "t5" (SentencePiece's Unigram) and "bert"
 * (WordPiece; BOS and EOS are [CLS] and [SEP], which stand around each text).
 * Others are refused by name (TOKENIZER).
 *
 * Thread: immutable after open; encode and decode may run on any thread at
 * the same time.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

#define TOKEN_NONE (-1)

struct tokenizer;

/* path: a GGUF (the vocabulary is enough), or a bundle folder (its
 * tokenizer.gguf). Errors: NOT_FOUND, GGUF_*, TOKENIZER, SOURCE_CHANGED (the
 * file was written or cut short meanwhile). */
CHECKED int tokenizer_open(const char *path, struct tokenizer **ret,
                           struct err *e);
/* From a source that is open; g is not needed afterwards. */
struct gguf;
CHECKED int tokenizer_of(const struct gguf *g, struct tokenizer **ret,
                         struct err *e);
/* From a GGUF in memory (fuzzing, tests); p is not needed afterwards. */
CHECKED int tokenizer_open_mem(const void *p, size_t n, struct tokenizer **ret,
                               struct err *e);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

int32_t tokenizer_vocab(const struct tokenizer *t); /* number of ids */
int32_t tokenizer_bos(const struct tokenizer *t);   /* TOKEN_NONE if absent */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_add_bos(const struct tokenizer *t); /* add_bos_token */
bool tokenizer_add_eos(const struct tokenizer *t);
/* End of generation: eos, eot, eom and the well-known end-of-turn tokens. */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
/* Control or user-defined token. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* The chat template text; NULL when the file has none. */
const char *tokenizer_template(const struct tokenizer *t);
const char *tokenizer_kind(const struct tokenizer *t); /* as above */
const char *tokenizer_pre(const struct tokenizer *t);  /* "qwen2", ... or "" */
/* Tokens for filling in the middle: before the text in front, before the text
 * behind, before what is to be filled in; padding; before a repository's name
 * and before a file's. By the file's keys or, as in llama.cpp, by their texts.
 * TOKEN_NONE where the vocabulary has none. */
enum tokenizer_fim { FIM_PRE, FIM_SUF, FIM_MID, FIM_PAD, FIM_REP, FIM_SEP };
#define FIM_TOKENS 6
int32_t tokenizer_fim(const struct tokenizer *t, enum tokenizer_fim which);
/* Id of a token by its exact text in the vocabulary; TOKEN_NONE. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n);

/* Encode n bytes. Bytes that are not UTF-8 become byte tokens in "llama" kinds
 * and U+FFFD, one a byte, in the others, as in llama.cpp ("bert" leaves that out). Text is normalised
 * where the family does (qwen2: NFC). special: texts of special tokens in the
 * input become those tokens; otherwise they are plain text. BOS and EOS are not
 * added. The caller frees *ret. Errors: TOO_BIG (TEXT_BYTES_MAX, TOKENS_MAX),
 * NOMEM. */
CHECKED int tokenizer_encode(const struct tokenizer *t, const char *text,
                             size_t n, bool special, int32_t **ret,
                             size_t *ret_n, struct err *e);

/* A cache of words that were encoded before, for one vocabulary (256 KiB). Most
 * words of a text are in it, so the vocabulary's tables (10 MB and more) are
 * not read for them. One call at a time. NULL when memory is out. */
struct tokenizer_words;
struct tokenizer_words *tokenizer_words_new(void);
void tokenizer_words_free(struct tokenizer_words *w); /* NULL is fine */
/* tokenizer_encode with that cache; it gives the same tokens. NULL: no cache.
 */
CHECKED int tokenizer_encode_words(const struct tokenizer *t,
                                   struct tokenizer_words *words,
                                   const char *text, size_t n, bool special,
                                   int32_t **ret, size_t *ret_n,
                                   struct err *e);

/* The bytes of one token as they stand in running text (leading space kept).
 * Borrowed, lives as long as t. Control tokens give their text when `special`,
 * else nothing; user-defined ones are text (Gemma's runs of newlines are).
 * Unknown ids give nothing. */
struct span tokenizer_piece(const struct tokenizer *t, int32_t id,
                            bool special);

/* Decode all; appends to b. At the start of a text SentencePiece vocabularies
 * with a space prefix drop that one leading space. */
struct buf;
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                      bool special, struct buf *b);
