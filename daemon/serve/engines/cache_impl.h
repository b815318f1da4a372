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
    uint64_t bytes; /* of the file; an estimate while planned */
    bool planned;   /* the engine has not written it yet */
    int64_t used_ms;    /* last use by a prompt, or by the saved sequence */
    int64_t touched_ms; /* time stamp of the file */
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
    uint64_t bytes; /* of all files, also those that are being removed */
    uint64_t going; /* of those being removed, on the file thread */
    uint64_t last_id;
    double credit; /* bytes that may be written at credit_ms */
    int64_t credit_ms;
    struct cache_stats stats;
};

/* The hashes of tokens [0, blocks * STATE_BLOCK): one a block, each of all
 * tokens up to its end. The caller frees them. */
uint64_t *cache_chain(const int32_t *tokens, uint32_t blocks);
/* Add an entry to the index; it counts as never used. */
struct entry *cache_entry(struct cache *c, uint64_t id,
                          const struct cache_key *k, uint32_t from, uint32_t to,
                          const uint64_t *chain, uint64_t bytes);

/* cache_budget.c: read what is left of the hourly budget from its file. Returns
 * the id of the last file that it has counted (0: none). */
uint64_t budget_open(struct cache *c, int64_t now_ms);
/* Charge a later file, found at start. */
void budget_found(struct cache *c, int64_t created_ms, uint64_t bytes,
                  int64_t now_ms);
bool budget_allows(struct cache *c, uint64_t bytes, int64_t now_ms);
/* Charge bytes that are written. Negative: give back what a file took less than
 * was planned. */
void budget_charge(struct cache *c, int64_t bytes);

/* cache_scan.c: add the files of the folder to the index; known: from
 * budget_open. Errors: IO. */
CHECKED int cache_scan(struct cache *c, uint64_t known, int64_t now_ms,
                       struct err *e);
