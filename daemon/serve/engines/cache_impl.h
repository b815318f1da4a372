/* cache_impl.h - shared by cache.c, cache_budget.c and cache_scan.c. */
#pragma once

#include "base/list.h"
#include "serve/engines/cache.h"

#define CACHE_SUFFIX ".state"

struct entry {
    struct list link;
    uint64_t id;
    uint64_t key;
    char fingerprint[65];
    uint32_t from, to;
    uint64_t bytes; /* of the file; while planned, about */
    bool planned;
    int64_t used_ms;    /* by a prompt, or what it is the state of */
    int64_t touched_ms; /* the file's own time */
    uint64_t chain[];   /* to / STATE_BLOCK */
};

struct pin {
    struct list link;
    char id[40];
    char fingerprint[65];
    uint32_t n;
    uint64_t chain[];
};

struct cache {
    struct cache_conf conf;
    char dir[CACHE_PATH_MAX];
    struct list all, pins;
    size_t n, n_pins;
    uint64_t bytes; /* also of files that the file thread is to remove: */
    uint64_t going;
    uint64_t last_id;
    double credit; /* bytes that may be written at credit_ms */
    int64_t credit_ms;
    struct cache_stats stats;
};

/* Of tokens [0, blocks * STATE_BLOCK): one hash a block, each of all tokens up
 * to its end. The caller's. */
uint64_t *cache_chain(const int32_t *tokens, uint32_t blocks);
/* A new entry, there, never used. */
struct entry *cache_entry(struct cache *c, uint64_t id,
                          const struct cache_key *k, uint32_t from, uint32_t to,
                          const uint64_t *chain, uint64_t bytes);

/* cache_budget.c: what is left of the hourly budget, as it was kept. Returns
 * the last file that it knows of (0: none): later ones are to be charged. */
uint64_t budget_open(struct cache *c, int64_t now_ms);
/* A file was found that it does not know of. */
void budget_found(struct cache *c, int64_t created_ms, uint64_t bytes,
                  int64_t now_ms);
bool budget_allows(struct cache *c, uint64_t bytes, int64_t now_ms);
/* Written, or about to be; what it is less than thought comes back negative. */
void budget_charge(struct cache *c, int64_t bytes);

/* cache_scan.c: take in what lies in the folder; known: of budget_open.
 * Errors: IO. */
CHECKED int cache_scan(struct cache *c, uint64_t known, int64_t now_ms,
                       struct err *e);
