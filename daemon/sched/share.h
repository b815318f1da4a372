/* share.h - texts of ended streams, from which later streams of the same peer
 * draft.
 *
 * Each peer has its own store; no other peer's streams see it. A peer is
 * identified by the number in its streams' `share`; 0 means no peer. A store
 * has two halves. Texts are appended to one of them, with a border between two
 * texts. When it has no room left, the other half is emptied and used. So the
 * latest texts are kept, between a half and all of `tokens`. Of a text longer
 * than a half only the end is kept.
 *
 *   (1) share_put copies a text; share_index indexes it in parts. Both cost
 *       constant time a token, and so does emptying a half.
 *   (2) At most DRAFT_PEERS_MAX peers have a store. A new peer gets the one
 *       that was used least recently.
 */
#pragma once

#include "sched/draft.h"

struct share_half {
    int32_t *text; /* owned; borders are -1 */
    uint32_t n;
    struct draft index;
};

struct share_peer {
    uint64_t id; /* 0: a free place */
    uint64_t used;
    unsigned now; /* the half to which texts are appended */
    struct share_half half[2];
};

struct share {
    uint32_t room; /* tokens of a half; 0: nothing is kept */
    uint32_t ngram_min;
    uint64_t clock; /* counts uses */
    struct share_peer peers[DRAFT_PEERS_MAX];
};

/* tokens: kept of one peer, at most DRAFT_SHARED_MAX; 0: nothing is kept.
 * ngram_min as in draft_init. */
void share_init(struct share *s, uint32_t tokens, uint32_t ngram_min);
void share_fini(struct share *s);   /* zeroed is fine */
void share_forget(struct share *s); /* all texts */

/* Keep text[from, n) for peer, and the DRAFT_LONG tokens before it. */
void share_put(struct share *s, uint64_t peer, const int32_t *text,
               uint32_t from, uint32_t n);
/* Index at most `most` tokens more; returns how many. */
uint32_t share_index(struct share *s, uint32_t most);
/* Copy to ret up to `max` tokens that followed the end of `tail` in peer's
 * texts. Returns how many; *ret_match is the length of the match. */
uint32_t share_find(struct share *s, uint64_t peer, const int32_t *tail,
                    uint32_t n_tail, uint32_t max, int32_t *ret,
                    uint32_t *ret_match);
