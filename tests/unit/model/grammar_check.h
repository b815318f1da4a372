/* grammar_check.h - what tests of grammars share: whether a text matches, and
 * masks against every token tried. Any failure is a failed test. */
#pragma once

#include "model/grammar/mask.h"
#include "tests/unit/unit.h"

/* The whole of p[0..n) matches, and may end there. */
static inline bool grammar_takes(struct matcher *m, const char *p, size_t n)
{
    match_t s = match_start(m);
    match_hold(m, s);
    bool ok = match_bytes(m, &s, p, n) && match_may_end(m, s);
    match_drop(m, s);
    return ok;
}

/* Small pseudo-random numbers. */
static inline uint32_t roll(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

struct voc {
    struct span tokens[2048];
    uint8_t kinds[2048];
    char bytes[65536];
    uint32_t n;
    size_t used;
};

static inline void voc_add(struct voc *v, const char *p, size_t n,
                           enum trie_kind kind)
{
    if (v->n == countof(v->tokens) || v->used + n > sizeof(v->bytes)) {
        return;
    }
    memcpy(v->bytes + v->used, p, n);
    v->tokens[v->n] = (struct span){v->bytes + v->used, n};
    v->kinds[v->n++] = (uint8_t)kind;
    v->used += n;
}

/* Every byte, a few special tokens, pieces of `parts` and their mixtures. */
static inline void voc_make(struct voc *v, const char *const *parts,
                            size_t n_parts, uint64_t *seed)
{
    v->n = 0;
    v->used = 0;
    for (unsigned c = 0; c < 256; c++) {
        char byte = (char)c;
        voc_add(v, &byte, 1, TRIE_TEXT);
    }
    voc_add(v, "<|end|>", 7, TRIE_END);
    voc_add(v, "</s>", 4, TRIE_END);
    voc_add(v, "<|ban|>", 7, TRIE_BANNED);
    voc_add(v, "", 0, TRIE_TEXT);
    while (v->n < 1500) {
        char s[64];
        size_t n = 0;
        for (uint32_t k = 1 + roll(seed, 4); k > 0; k--) {
            const char *part = parts[roll(seed, (uint32_t)n_parts)];
            size_t len = strlen(part);
            size_t from = roll(seed, 6) == 0 ? roll(seed, (uint32_t)len) : 0;
            size_t take = roll(seed, 6) == 0
                              ? 1 + roll(seed, (uint32_t)(len - from))
                              : len - from;
            if (n + take <= sizeof(s)) {
                memcpy(s + n, part + from, take);
                n += take;
            }
        }
        voc_add(v, s, n, TRIE_TEXT);
    }
}

/* The mask of s, compared with every token tried. Returns whether any is
 * allowed. */
static inline bool mask_compare(struct matcher *m, struct masker *k, match_t s,
                                const struct voc *v, uint64_t *bits)
{
    bool any = mask_fill(k, s, bits);
    bool found = false;
    for (uint32_t id = 0; id < v->n; id++) {
        match_t x = s;
        match_hold(m, x);
        bool ok = mask_token(k, &x, id);
        match_drop(m, x);
        bool bit = (bits[id / 64] >> id % 64 & 1) != 0;
        found |= ok;
        if (ok != bit) {
            fail_msg("token %u \"%.*s\": mask %d, tried %d", id,
                     (int)v->tokens[id].n, v->tokens[id].p, bit, ok);
        }
    }
    assert_int_equal(any, found);
    return any;
}
