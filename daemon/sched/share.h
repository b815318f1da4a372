/* share.h - texts of ended streams, for drafts of the same peer's next ones.
 *
 * Each peer has its own store, of which nobody else sees anything: a peer is
 * found by the number its streams carry, and 0 is no peer. A store is two
 * halves. Texts are put into one, a border between them; when one has no room
 * left, the other is emptied and goes on. So what is latest is kept, between
 * half and all of `tokens`; a text of more than a half is kept by its end.
 *
 *   (1) Putting a text in copies it; it is indexed in parts, by share_index.
 *       Both cost a constant a token, and so does forgetting.
 *   (2) At most DRAFT_PEERS_MAX peers have a store: the one used least
 *       recently loses its own to a new one.
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
    unsigned now; /* the half that is put into */
    struct share_half half[2];
};

struct share {
    uint32_t room; /* tokens of a half; 0: nothing is kept */
    uint32_t ngram_min;
    uint64_t clock; /* counts uses */
    struct share_peer peers[DRAFT_PEERS_MAX];
};

/* tokens: of a peer altogether, cut to DRAFT_SHARED_MAX; 0: nothing is kept.
 * ngram_min as in draft_init. */
void share_init(struct share *s, uint32_t tokens, uint32_t ngram_min);
void share_fini(struct share *s);   /* zeroed is fine */
void share_forget(struct share *s); /* all texts */

/* Keep text[from, n) for peer, with as many tokens before it as an n-gram has.
 */
void share_put(struct share *s, uint64_t peer, const int32_t *text,
               uint32_t from, uint32_t n);
/* Index at most `most` tokens more; returns how many. */
uint32_t share_index(struct share *s, uint32_t most);
/* What followed the end of `tail` in peer's texts: up to `max` tokens into ret.
 * Returns how many; *ret_match is the length of what was the same. */
uint32_t share_find(struct share *s, uint64_t peer, const int32_t *tail,
                    uint32_t n_tail, uint32_t max, int32_t *ret,
                    uint32_t *ret_match);
