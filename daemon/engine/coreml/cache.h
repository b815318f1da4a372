/* cache.h - compiled models on disk.
 *
 *   CACHE/<hash of the package's path>/
 *       lock                 held while one process compiles
 *       source               the package's path, for people and for cleaning up
 *       <key>.mlmodelc       key: the package's files and the system's build
 *       part                 a compiled model on its way
 *
 * Core ML's own caches know a model by its path, so it must be the same each
 * time; and a model compiled under another build of macOS may fail to load
 * (error -14). A folder has one entry: others are of an older package or build.
 *
 * Thread: any, for different entries.
 */
#pragma once

#include "engine/backend.h"

#define COREML_PATH_MAX (PATH_BYTES_MAX + 64u) /* a path below the cache */

struct cache_entry {
    char source[PATH_BYTES_MAX]; /* of the package, absolute */
    char dir[COREML_PATH_MAX], path[COREML_PATH_MAX];
    uint64_t key;
};

/* The paths. Nothing is made. Errors: PKG_MISSING, INVALID (too long). */
CHECKED int cache_entry_init(struct cache_entry *x, const char *cache,
                             const char *pkg, const char *os_build,
                             struct err *e);
/* Wait until nobody else compiles this package, asking `watch`. *fd: for
 * cache_unlock. Errors: CANCELLED, those of files. */
CHECKED int cache_lock(const struct cache_entry *x,
                       const struct backend_watch *watch, int *fd,
                       struct err *e);
void cache_unlock(int fd);
/* With the lock: remove all that is not this entry; name the package. */
CHECKED int cache_tidy(const struct cache_entry *x, struct err *e);
/* The path at which a model lies before cache_publish. */
CHECKED int cache_part(const struct cache_entry *x, char *ret, size_t size,
                       struct err *e);
/* With the lock: what lies at cache_part's path becomes the entry, durably. */
CHECKED int cache_publish(const struct cache_entry *x, struct err *e);
/* With the lock: remove the entry. */
CHECKED int cache_remove(const struct cache_entry *x, struct err *e);
/* Which one the entry is: 0 when there is none. */
uint64_t cache_stamp(const struct cache_entry *x);

/* A cache for a process that was given none: one temporary folder, removed when
 * its last user drops it. Errors: those of files. */
CHECKED int cache_temporary(char *ret, size_t size, struct err *e);
void cache_temporary_drop(void);
