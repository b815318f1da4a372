/* trie_impl.h - a trie as mask.c walks it. */
#pragma once

#include "model/grammar/trie.h"

#define NO_SET UINT32_MAX

/* Tokens of plain characters: of MATCH_PLAIN_MIN bytes at most, of any number. */
enum { PLAIN_SHORT = 1, PLAIN_ALL = 2 };

struct trie_node {
    uint32_t next;  /* node behind its subtree */
    uint32_t rank;  /* tokens before it; its own are up to the next node's */
    uint32_t below; /* set of what is below it; NO_SET: no whole characters,
                       or nothing */
    uint16_t depth; /* bytes */
    uint8_t byte;
    uint8_t in_plain; /* PLAIN_*: its tokens and all below it are such */
};

/* What the tokens of a subtree consist of behind its node: whole characters,
 * the last one perhaps cut. */
struct trie_set {
    uint64_t ascii[2]; /* bit of a byte below 128 */
    uint32_t chars;    /* of the longest */
    bool wide;         /* others than ASCII too */
    bool plain;        /* no control, '"', '\\' */
};

struct trie {
    uint32_t n_tokens; /* by id */
    uint32_t n_ranks;  /* of text */
    uint32_t n_nodes;
    uint32_t n_sets;
    struct trie_node *nodes; /* (n_nodes + 1); 0 is the root */
    struct trie_set *sets;
    uint32_t *id;     /* (n_ranks) */
    uint64_t *plain[2]; /* bits of ids: short plain tokens, all of them */
    /* (MATCH_PLAIN_MIN, words) bits of ids: row n has the plain tokens of at
     * most n characters, one that is cut counted. */
    uint64_t *plain_upto;
    uint32_t *ends;   /* (n_ends) ids */
    uint32_t n_ends;
    struct span *tokens; /* (n_tokens); p NULL: banned, or an end */
    uint8_t *kinds;      /* (n_tokens) */
    char *bytes;
};

static inline size_t trie_words(const struct trie *t)
{
    return ((size_t)t->n_tokens + 63) / 64;
}

static inline uint64_t *trie_plain_upto(const struct trie *t, uint32_t n)
{
    return t->plain_upto + n * trie_words(t);
}

static inline bool set_plain(uint64_t low, uint64_t high)
{
    return (low & 0xFFFFFFFFu) == 0 && (low >> '"' & 1) == 0 &&
           (high >> ('\\' - 64) & 1) == 0 && high >> 63 == 0;
}
