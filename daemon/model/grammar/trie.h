/* trie.h - the tokens of a vocabulary by their bytes.
 *
 * A node is a beginning of tokens. Nodes stand in the order of their bytes, a
 * node before what it begins, so all tokens of a subtree are one range of
 * ranks: a rank is a token's place in the order of bytes. Of every subtree it is
 * known of which characters its rest consists.
 *
 * Thread: a trie never changes. */
#pragma once

#include "base/err.h"

enum trie_kind {
    TRIE_TEXT,   /* a token of text */
    TRIE_BANNED, /* never allowed, such as other special tokens */
    TRIE_END,    /* allowed exactly where a text may end */
};

struct trie;

/* Of n tokens by id, their bytes (copied) and their trie_kind; kinds NULL: all
 * are text. A token without bytes is banned. Errors: TOO_BIG (TOKEN_BYTES_MAX,
 * MODEL_VOCAB_MAX), NOMEM. *ret is the caller's. */
CHECKED int trie_new(const struct span *tokens, const uint8_t *kinds,
                     uint32_t n, struct trie **ret, struct err *e);
void trie_free(struct trie *t); /* NULL is fine */
uint32_t trie_tokens(const struct trie *t); /* n */
size_t trie_bytes(const struct trie *t);    /* of memory */
