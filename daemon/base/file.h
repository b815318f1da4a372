/* file.h - files and folders: bounded reads, atomic publication, paths. */
#pragma once

#include "base/buf.h"

/* Read a whole regular file of at most max bytes into b (initialised here).
 * Errors: NOT_FOUND, TOO_BIG, INVALID (not a regular file), IO. */
CHECKED int file_read(const char *path, size_t max, struct buf *b,
                      struct err *e);

/* Write path so that a crash leaves the old file or the whole new one: write a
 * temporary file beside it, fsync, rename, fsync the folder. */
CHECKED int file_write(const char *path, const void *p, size_t n,
                       struct err *e);
/* The same without fsync: a reader sees the old file or the new one, but a
 * power cut may leave neither. */
CHECKED int file_replace(const char *path, const void *p, size_t n,
                         struct err *e);

/* A file mapped read-only. zero bytes gives p = NULL. */
struct file_map {
    const uint8_t *p;
    size_t n;
};
CHECKED int file_map(const char *path, struct file_map *ret, struct err *e);
CHECKED int file_map_fd(int fd, struct file_map *ret, struct err *e);
void file_unmap(struct file_map *m); /* zeroed is fine */

/* Drop a finished file from the page cache and read it again, in pages as large
 * as the file system has them (Linux; elsewhere nothing happens). Writing
 * leaves small pages, and they would stay as long as the file is in use.
 * Errors: NOT_FOUND, INVALID, IO. */
CHECKED int file_repage(const char *path, struct err *e);

/* A new file `to` with the bytes of `from`, synced by nobody. Errors: as
 * err_errno, EXISTS. */
CHECKED int file_copy(const char *from, const char *to, struct err *e);
/* The same without room of its own, where the file system can: the first write
 * to either parts them. false: it cannot, and nothing was made. On Linux it is
 * synced. */
bool file_clone(const char *from, const char *to);

/* mkdir -p with mode for what is made. */
CHECKED int file_mkdirs(const char *path, unsigned mode, struct err *e);
/* Remove a tree; absent is success. Never follows symlinks. */
CHECKED int file_rmtree(const char *path, struct err *e);
/* fsync every file below path and the folders, then rename(from, to) and sync
 * the parent of `to`. `to` must not exist (EXISTS). */
CHECKED int file_publish_dir(const char *from, const char *to, struct err *e);

/* Write all of p[0..n) to fd at byte `at`, or with FILE_HERE at fd's own offset
 * (the only way for a pipe or socket). Signals do not cut it short. `what`
 * names the file in an error. Errors: as err_errno; a part may be written. */
#define FILE_HERE (-1)
CHECKED int file_put(int fd, const void *p, size_t n, int64_t at,
                     const char *what, struct err *e);

/* What was written to fd survives a loss of power. `what` as above. After an
 * error the file is to be written anew: a second call may say yes to pages that
 * the first one has lost. Errors: IO, NO_SPACE. */
CHECKED int file_sync(int fd, const char *what, struct err *e);

/* A relative path that stays inside its folder: '/' between components, none
 * of them empty, "." or "..". */
bool file_path_ok(const char *path);

/* Times of a file in nanoseconds since 1970. */
struct stat;
int64_t file_mtime_ns(const struct stat *st);
int64_t file_ctime_ns(const struct stat *st);
/* Whether the file was not written between the two: same size and same time of
 * modification, to the nanosecond. A rename or chmod does not count. */
bool file_unwritten(const struct stat *before, const struct stat *after);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Bytes in all regular files below path; 0 when absent. */
uint64_t file_tree_bytes(const char *path);
/* A number that changes when a file below path is written, added, removed or
 * renamed: made of names, sizes and times of modification. 0 when absent. */
uint64_t file_tree_stamp(const char *path);

/* The folder that path stands in, cut to size: "a" of "a/b", "/" of "/b", "."
 * of "b". A slash at the end of path counts as before a name. */
void file_parent(const char *path, char *out, size_t size);

/* Make an empty folder beside `path`, so that it can be renamed to it: "a" of
 * "a/b" gets "a/.staging-XXXXXX". out is its path, or "". Errors: INVALID (too
 * long), as err_errno. */
CHECKED int file_staging(const char *path, char *out, size_t size,
                         struct err *e);

/* "dir/name" with snprintf semantics; false when it does not fit. */
CHECKED bool file_join(char *out, size_t size, const char *dir,
                       const char *name);

/* A name that may become a folder or stand in a URL: 1..128 characters of
 * [A-Za-z0-9._-], first a letter or digit, no "..". */
bool file_name_ok(const char *name);
/* Make the n bytes at `from` such a name where that is a matter of characters:
 * others become '-'; it is cut to size. */
void file_name_from(const char *from, size_t n, char *out, size_t size);
