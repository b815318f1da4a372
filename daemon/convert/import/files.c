#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/import/impl.h"

#define PIECE     MIB(1) /* copied between two looks at progress */
#define DEPTH_MAX 8      /* folders in a package: three are usual */

int import_resolve(const char *dir, const char *path,
                   char out[IMPORT_PATH_ROOM], struct err *e)
{
    char joined[IMPORT_PATH_ROOM];
    char *real = NULL;
    size_t n = strlen(dir);
    int rc = 0;
    if (!file_join(joined, sizeof(joined), dir, path)) {
        return err_set(e, ERR_CONVERT, "%.200s: the path is too long", path);
    }
    real = realpath(joined, NULL);
    if (real == NULL) {
        return err_errno(e, errno, path);
    }
    if (strncmp(real, dir, n) != 0 || (real[n] != '/' && n > 1)) {
        rc = err_set(e, ERR_CONVERT,
                     "%.200s leads out of the manifest's folder; put the file "
                     "there",
                     path);
    } else if (snprintf(out, IMPORT_PATH_ROOM, "%s", real) >=
               IMPORT_PATH_ROOM) {
        rc = err_set(e, ERR_CONVERT, "%.200s: the path is too long", path);
    }
    free(real);
    return rc;
}

/* --- one file --- */

/* Takes each piece that is copied. */
typedef int piece_fn(const uint8_t *p, size_t n, const char *path,
                     struct err *e);

static int finite(const uint8_t *p, size_t n, const char *path, struct err *e)
{
    for (size_t i = 0; i + 1 < n; i += 2) { /* fp16, little-endian */
        if ((p[i + 1] & 0x7c) == 0x7c) {
            return err_set(e, ERR_CONVERT,
                           "%.200s has numbers that are not finite: it is no "
                           "table of fp16, or it is damaged",
                           path);
        }
    }
    return 0;
}

static int copy_pieces(const struct import_copy *c, int from, int to,
                       const char *path, uint64_t want, piece_fn *look,
                       struct err *e)
{
    uint8_t *room = malloc(PIECE);
    uint64_t done = 0;
    int rc = 0;
    must(room != NULL);
    while (done < want) {
        ssize_t n = pread(from, room, PIECE, (off_t)done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            rc = n < 0 ? err_errno(e, errno, path)
                       : err_set(e, ERR_SOURCE_CHANGED, "%.200s", path);
            goto out;
        }
        CHECK(look != NULL ? look(room, (size_t)n, path, e) : 0);
        CHECK(to >= 0 ? file_put(to, room, (size_t)n, FILE_HERE, path, e) : 0);
        CHECK(progress_add(c->progress, (uint64_t)n, e));
        done += (uint64_t)n;
    }
out:
    free(room);
    return rc;
}

static int link_to(const char *from, const char *to, struct err *e)
{
    if (link(from, to) == 0) {
        return 0;
    }
    return errno == EXDEV
               ? err_set(e, ERR_UNSUPPORTED,
                         "%.200s lies on another file system: it cannot be "
                         "linked, only copied",
                         from)
               : err_errno(e, errno, to);
}

/* want: the bytes that it must have; UINT64_MAX: as many as it has. */
static int copy_file(const struct import_copy *c, const char *from,
                     uint64_t want, const char *to, piece_fn *look,
                     struct err *e)
{
    struct stat st;
    int in = open(from, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    int out = -1;
    int rc = 0;
    if (in < 0 || fstat(in, &st) != 0) {
        rc = err_errno(e, errno, from);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_CONVERT, "%.200s is not a regular file", from);
        goto out;
    }
    if (want != UINT64_MAX && (uint64_t)st.st_size != want) {
        rc = err_set(e, ERR_CONVERT,
                     "%.200s has %lld bytes; vocab_size rows of d_model "
                     "numbers of fp16 are %llu",
                     from, (long long)st.st_size, (unsigned long long)want);
        goto out;
    }
    if (c->link) {
        CHECK(link_to(from, to, e));
    } else {
        out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (out < 0) {
            rc = err_errno(e, errno, to);
            goto out;
        }
    }
    if (c->link && look == NULL) {
        rc = progress_add(c->progress, (uint64_t)st.st_size, e);
    } else {
        rc = copy_pieces(c, in, out, from, (uint64_t)st.st_size, look, e);
    }
out:
    if (in >= 0) {
        (void)close(in);
    }
    if (out >= 0 && close(out) != 0 && rc == 0) {
        rc = err_errno(e, errno, to);
    }
    return rc;
}

int import_table(const struct import_copy *c, const char *from, uint64_t bytes,
                 const char *to, struct err *e)
{
    return copy_file(c, from, bytes, to, finite, e);
}

/* --- a folder --- */

struct copying {
    const struct import_copy *c;
    unsigned depth;
    size_t n; /* files */
};

static int copy_folder(struct copying *k, const char *from, const char *to,
                       struct err *e);

static int copy_entry(struct copying *k, const char *dir, const char *to_dir,
                      const char *name, struct err *e)
{
    char from[IMPORT_PATH_ROOM];
    char to[IMPORT_PATH_ROOM];
    struct stat st;
    if (!file_join(from, sizeof(from), dir, name) ||
        !file_join(to, sizeof(to), to_dir, name)) {
        return err_set(e, ERR_CONVERT, "%.200s: the path is too long", name);
    }
    if (lstat(from, &st) != 0) {
        return err_errno(e, errno, from);
    }
    if (S_ISDIR(st.st_mode)) {
        return copy_folder(k, from, to, e);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_CONVERT,
                       "%.200s: a package has only files and folders", from);
    }
    if (++k->n > BUNDLE_FILES_MAX) {
        return err_set(e, ERR_CONVERT, "%.200s: more than %u files", dir,
                       BUNDLE_FILES_MAX);
    }
    return copy_file(k->c, from, UINT64_MAX, to, NULL, e);
}

static int copy_folder(struct copying *k, const char *from, const char *to,
                       struct err *e)
{
    int rc = 0;
    if (k->depth >= DEPTH_MAX) {
        return err_set(e, ERR_CONVERT, "%.200s: too many folders in each other",
                       from);
    }
    DIR *d = opendir(from);
    if (d == NULL) {
        return err_errno(e, errno, from);
    }
    k->depth++;
    if (mkdir(to, 0700) != 0) {
        rc = err_errno(e, errno, to);
    }
    for (struct dirent *x = NULL; rc == 0 && (x = readdir(d)) != NULL;) {
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) {
            rc = copy_entry(k, from, to, x->d_name, e);
        }
    }
    k->depth--;
    (void)closedir(d);
    return rc;
}

int import_tree(const struct import_copy *c, const char *from, const char *to,
                struct err *e)
{
    struct copying k = {.c = c};
    return copy_folder(&k, from, to, e);
}
