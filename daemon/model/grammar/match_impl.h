/* match_impl.h - what match.c, match_store.c and match_loop.c share. */
#pragma once

#include "model/grammar/grammar_impl.h"
#include "model/grammar/match.h"

#define NOT_KNOWN UINT32_MAX /* in a row of next configurations */

/* Where a text stands: a state, and the stack below it. */
struct head {
    uint32_t state, stack;
};

struct stack_node {
    uint32_t ret;    /* state to come back to */
    uint32_t below;  /* stack; 0: the empty one */
    uint32_t depth;
    uint32_t chain;  /* next of the same hash, or of free ones; 0 ends */
    bool used, mark;
};

struct config {
    uint64_t serial;
    uint32_t held;
    uint32_t n_heads;
    uint32_t chain;
    uint32_t hash;
    bool may_end, mark;
    uint8_t loop_known;
    uint32_t plain; /* of match_plain, at least */
    struct match_loop loop;
    struct head *heads; /* (n_heads), sorted; behind `next` in memory */
    match_t next[];     /* (n_classes) */
};

struct matcher {
    const struct grammar *g;
    /* Numbers are places in these arrays; place 0 is the dead configuration,
     * and the empty stack. Both have tables of chains by hash. */
    struct config **configs;
    uint32_t n_configs, cap_configs, live_configs, free_config; /* chain */
    uint32_t *config_table; /* (TABLE) */
    struct stack_node *stacks;
    uint32_t n_stacks, cap_stacks, live_stacks, free_stack;
    uint32_t *stack_table; /* (TABLE) */
    size_t bytes; /* of configurations */
    uint64_t serial;
    match_t start;
    const match_t *path;
    const uint32_t *path_n;
    /* The configuration that is being made. */
    struct head *heads; /* (MATCH_HEADS_MAX) with bytes to follow */
    struct head *work;  /* (MATCH_HEADS_MAX) seen so far, in order */
    uint32_t *seen;     /* (SEEN) place in work + 1, open addressing */
    uint32_t n_heads, n_work;
    bool may_end, over;
};

enum { MATCH_TABLE = 8192, MATCH_SEEN = 4 * MATCH_HEADS_MAX };

static inline uint32_t hash_pair(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

/* match_store.c: a stack with `ret` on top; 0 when it is too deep or memory is
 * out. */
uint32_t stack_push(struct matcher *m, uint32_t ret, uint32_t below);
/* The configuration of m->heads and m->may_end, found or made; MATCH_DEAD when
 * there is no room. keep: one that must stay meanwhile. */
match_t store_config(struct matcher *m, match_t keep);
