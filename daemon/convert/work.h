/* work.h - the folder of a conversion that is not over: what a later run of the
 * same conversion need not do again.
 *
 *   PARENT/.staging-KEY/         KEY: 32 hex digits; locked while in use
 *     journal                    what is whole (below)
 *     ...                        folders of stages that keep more than files
 *   PARENT/.staging-KEY.bundle/  becomes the bundle, by a rename (which the
 *                                sandbox only allows within one folder)
 *
 * The journal is lines of text, each synced after the bytes it speaks of:
 *
 *   SHA aned-work 1 KEY          the first line; KEY has all 64 digits
 *   SHA note NAME TEXT           something that must come out the same again
 *   SHA file BYTES SHA256 PATH   the first BYTES of the bundle's PATH are whole
 *                                and have this hash; a later line replaces it
 *
 * SHA is the hash of the rest of its line. The first line that is torn, wrong
 * or of no known kind ends the journal: no record of what came after counts,
 * and the file is cut there. A record is a promise, not a proof: who continues
 * a file reads those bytes and compares.
 * Thread: one at a time.
 */
#pragma once

#include "base/err.h"
#include "base/hash.h"
#include "proto/limits.h"

#define WORK_PATH_MAX   96u
#define WORK_PREFIX     ".staging-"
#define WORK_HOME_PREFIX "work-" /* of the daemon's folders around works */
#define WORK_BUNDLE     ".bundle"
#define WORK_NAME_CHARS 32u /* of the key, in the folder's name */
#define WORK_ROOM       2048

struct work_record {
    char path[WORK_PATH_MAX]; /* or a note's name */
    bool note;
    uint64_t bytes;
    char sha256[SHA256_HEX]; /* or the hash of a note's text */
};

struct work_records {
    size_t n;
    struct work_record *v; /* owned */
};

/* Read a journal. *ret is what counts (to be freed with work_records_fini),
 * *ret_whole how many bytes of the journal that is: 0 for one that is not
 * this key's. Never fails on any bytes. */
void work_records_read(const void *p, size_t n, const char key[SHA256_HEX],
                       struct work_records *ret, size_t *ret_whole);
void work_records_fini(struct work_records *r); /* zeroed is fine */
/* NULL: none. */
const struct work_record *work_records_find(const struct work_records *r,
                                            const char *path, bool note);

struct work;

/* Where the work of that key is, or would be. Errors: INVALID (too long). */
CHECKED int work_place(const char *parent, const char key[SHA256_HEX],
                       char out[WORK_ROOM], struct err *e);
/* Bytes of the work at a place, its bundle's too. */
uint64_t work_tree_bytes(const char *place);
/* Make or find the folder and lock it. Waits WORK_LOCK_MS for another process
 * that has it. `moved`, which may be NULL, is where an earlier run may have put
 * the bundle: it comes back. What the journal does not speak of is removed from
 * the bundle. Errors: BUSY (somebody else is at it), EXISTS (there is something at
 * `moved`, and no journal of it), IO, NO_SPACE, INVALID. */
CHECKED int work_open(const char *parent, const char key[SHA256_HEX],
                      const char *moved, struct work **ret, struct err *e);
/* Let go of the folder; not `keep`: remove it. NULL is fine. */
void work_close(struct work *w, bool keep);

const char *work_dir(const struct work *w);
const char *work_bundle(const struct work *w);
/* Is anything recorded that saves time? */
bool work_worth(const struct work *w);
/* Sum of the bytes on record of files whose path begins so. */
uint64_t work_bytes(const struct work *w, const char *prefix);
/* The record of the bundle's `path`; NULL: none. Borrowed until the next change. */
const struct work_record *work_find(const struct work *w, const char *path);
/* bytes of the bundle's `path` are whole; the caller has synced them. Errors: IO,
 * NO_SPACE; then the record does not count. */
CHECKED int work_put(struct work *w, const char *path, uint64_t bytes,
                     const char sha256[SHA256_HEX], struct err *e);
/* text must be what an earlier run noted under that name. *ret_same: it is, or
 * nothing was noted and now it is. If not, nothing has changed. */
CHECKED int work_note(struct work *w, const char *name, const char *text,
                      bool *ret_same, struct err *e);
/* Nothing of it holds: forget all records. */
CHECKED int work_forget(struct work *w, struct err *e);

/* Remove works from `parent` that nobody uses and that are beyond the limits
 * (WORK_AGE_S, WORKS_MAX, WORK_BYTES_MAX); `spare`, a folder's name or NULL,
 * stays. Other files are left alone. */
void work_sweep(const char *parent, const char *spare);
/* The same for the daemon's folders (WORK_HOME_PREFIX) in `staging`, each with
 * works in it. */
void work_sweep_homes(const char *staging);
/* Is this the name of such a folder? */
bool work_is_home(const char *name);
/* Is there a work in `parent` that has a journal? */
bool work_left(const char *parent);
