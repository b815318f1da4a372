/* cache.h - the index of states saved on disk: which positions are saved, which
 * of them a prompt can use, what may be written, and what is removed.
 *
 * A file (proto/state_file.h) holds positions [from, to) of the timelines that
 * begin with its tokens. Engines write and read the files. The cache keeps an
 * index of them in memory, made from their headers at start, and two budgets:
 * bytes on disk, and bytes written in an hour. To make room for a timeline, the
 * least recently used files are removed, but only those last used before this
 * timeline. Of one timeline the end is removed before the beginning.
 *
 *   cache_plan -> STATE_SAVE to the engine -> cache_saved
 *   cache_find -> STATE_LOAD to the engine -> cache_loaded
 *
 * Tokens are compared by chained hashes, one a block; the engine compares the
 * tokens themselves before it uses a file.
 * Thread: the loop thread; files are removed and touched on the file thread.
 */
#pragma once

#include "proto/msg.h"
#include "serve/workq.h"

#define CACHE_PATH_MAX  PATH_BYTES_MAX
#define CACHE_COMPACT   32u /* parts of a timeline; then it is saved anew */
#define CACHE_WINDOW_MS 3600000
#define CACHE_SPARE     8u /* a part in so many of bytes_max is left free */

/* What the bytes of a position depend on, besides the tokens. */
struct cache_key {
    const char *fingerprint, *backend, *arith; /* borrowed for the call */
    bool long_list;                            /* state_file.long_list */
};

struct cache_conf {
    const char *dir;     /* exists, belongs to this user, 0700 */
    uint64_t bytes_max;  /* of all files, also those being written and removed,
                            for which 1 / CACHE_SPARE of it is kept free. 0: no
                            file is kept */
    uint64_t write_max;  /* bytes in any CACHE_WINDOW_MS; 0: nothing is saved */
    uint32_t tokens_min; /* shorter timelines are not worth a file */
    struct workq *files; /* NULL: files are removed at once (tests) */
};

struct cache_stats {
    uint64_t files, bytes; /* now; bytes include files being removed */
    uint64_t hits, misses;                    /* cache_find */
    uint64_t loaded_tokens, loaded_bytes;     /* by engines */
    uint64_t saved_files, saved_bytes;        /* by engines */
    uint64_t refused_budget, refused_damaged; /* saves; files */
    uint64_t evicted_files;
};

struct cache;

/* Read the headers in dir; files that are not sound, unfinished or too many
 * are removed. Blocking, before the loop runs. Errors: IO. */
CHECKED int cache_open(const struct cache_conf *c, int64_t now_ms,
                       struct cache **ret, struct err *e);
void cache_free(struct cache *c); /* files stay; NULL is fine */
/* Take other limits; dir and files stay. Files beyond a smaller bytes_max are
 * removed. */
void cache_set_conf(struct cache *c, const struct cache_conf *conf,
                    int64_t now_ms);

/* Files that hold positions from 0 on of these tokens, without gaps. */
struct cache_hit {
    uint32_t n; /* positions; 0: none */
    uint32_t n_parts;
    struct {
        uint32_t from, to;
        uint64_t id;
    } parts[STATE_PARTS_MAX];
};
void cache_find(struct cache *c, const struct cache_key *k,
                const int32_t *tokens, uint32_t n, struct cache_hit *ret);
/* Call before they are read: other files are removed before them. */
void cache_use(struct cache *c, const struct cache_hit *h, int64_t now_ms);
/* The file's path; false: it is gone. */
CHECKED bool cache_path(const struct cache *c, uint64_t id,
                        char out[CACHE_PATH_MAX]);
/* An engine read n positions of the hit, and found part `bad` (from 1; 0:
 * none) damaged: that one is removed. */
void cache_loaded(struct cache *c, const struct cache_hit *h, uint32_t n,
                  uint32_t bad, uint64_t bytes, int64_t now_ms);

/* Which positions to save of a timeline with n computed tokens, last used at
 * used_ms. block_bytes: about the bytes of a block. 1: *ret says which, and the
 * hourly budget is charged. 0: none; all are saved, there are too few, or a
 * budget does not allow it. (When other files have to be removed for it, a
 * later call may give 1: there is room when they are gone.) */
struct cache_save {
    uint64_t id;
    uint32_t from, to;
};
CHECKED int cache_plan(struct cache *c, const struct cache_key *k,
                       const int32_t *tokens, uint32_t n, uint64_t block_bytes,
                       int64_t used_ms, int64_t now_ms, struct cache_save *ret);
/* The engine wrote the file; bytes 0: it did not. */
void cache_saved(struct cache *c, uint64_t id, uint64_t bytes);

/* Remove all saved states of a model. */
void cache_forget(struct cache *c, const char *fingerprint);
/* Pin the timelines that begin with these tokens: they are removed last. This
 * replaces the tokens that the model has under this id. n 0: unpin. */
void cache_pin(struct cache *c, const char *id, const char *fingerprint,
               const int32_t *tokens, uint32_t n);
void cache_get_stats(const struct cache *c, struct cache_stats *ret);
