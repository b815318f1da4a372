/* bundle_verify.c - checks that the files of a bundle are still those that were
 * published. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/bundle_impl.h"

#define PIECE KIB(256) /* a millisecond of hashing: so often fn is called */

struct verify {
    const struct bundle *b;
    bundle_hashed_fn *fn;
    void *ctx;
    uint64_t done;
    uint8_t *piece;
};

/* read(2), not a mapping: a bad block is EIO here and no SIGBUS. */
static int hash_fd(struct verify *v, int fd, const char *path,
                   char out[SHA256_HEX], struct err *e)
{
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];
    sha256_init(&s);
    for (;;) {
        ssize_t n = read(fd, v->piece, PIECE);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_errno(e, errno, path);
        }
        if (n == 0) {
            break;
        }
        sha256_add(&s, v->piece, (size_t)n);
        v->done += (uint64_t)n;
        if (v->fn != NULL && !v->fn(v->ctx, v->done)) {
            return err_set(e, ERR_CANCELLED, "%s", err_text(ERR_CANCELLED));
        }
    }
    sha256_end(&s, digest);
    sha256_hex(digest, out);
    return 0;
}

static int verify_file(struct verify *v, const struct bundle_file *f,
                       struct err *e)
{
    char path[BUNDLE_PATH_MAX + 1024];
    char digest[SHA256_HEX];
    RETERR(bundle_file_path(v->b->dir, f->path, path, e));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return err_errno(e, errno, f->path);
    }
    int rc = hash_fd(v, fd, f->path, digest, e);
    (void)close(fd);
    RETERR(rc);
    if (strcmp(digest, f->sha256) != 0) {
        return err_set(e, ERR_BUNDLE, "%s is not the file that was recorded",
                       f->path);
    }
    return 0;
}

int bundle_verify(const struct bundle *b, bundle_hashed_fn *fn, void *ctx,
                  struct err *e)
{
    struct verify v = {.b = b, .fn = fn, .ctx = ctx};
    int rc = 0;
    v.piece = malloc(PIECE);
    must(v.piece != NULL);
    CHECK(bundle_check_files(b, b->dir, e));
    for (size_t i = 0; i < b->n_files; i++) {
        CHECK(verify_file(&v, &b->files[i], e));
    }
out:
    free(v.piece);
    return rc;
}

int bundle_stamp(const struct bundle *b, char out[SHA256_HEX], struct err *e)
{
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];
    char path[BUNDLE_PATH_MAX + 1024];
    char line[160];
    sha256_init(&s);
    sha256_add(&s, b->fingerprint, strlen(b->fingerprint));
    for (size_t i = 0; i < b->n_files; i++) {
        struct stat st;
        RETERR(bundle_file_path(b->dir, b->files[i].path, path, e));
        if (lstat(path, &st) != 0) {
            return err_set(e, ERR_BUNDLE, "%s: %s", b->files[i].path,
                           strerror(errno));
        }
        int n = snprintf(line, sizeof(line),
                         "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64
                         " %" PRId64 "\n",
                         (uint64_t)st.st_dev, (uint64_t)st.st_ino,
                         (int64_t)st.st_size, file_mtime_ns(&st),
                         file_ctime_ns(&st));
        sha256_add(&s, line, (size_t)n);
    }
    sha256_end(&s, digest);
    sha256_hex(digest, out);
    return 0;
}
