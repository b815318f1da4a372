/* file_copy.c - a file once more: its bytes, or the same room on the disk. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

#if defined(__linux__)
#include <linux/fs.h>
#include <sys/ioctl.h>
#elif defined(__APPLE__)
#include <sys/clonefile.h>
#endif

#define PIECE ((size_t)1 << 20)

static int copy_bytes(int from, int to, const char *path, struct err *e)
{
    uint8_t *piece = malloc(PIECE);
    int rc = 0;
    must(piece != NULL);
    for (;;) {
        ssize_t n = read(from, piece, PIECE);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            rc = err_errno(e, errno, path);
        }
        if (n <= 0) {
            break;
        }
        CHECK(file_put(to, piece, (size_t)n, FILE_HERE, path, e));
    }
out:
    free(piece);
    return rc;
}

int file_copy(const char *from, const char *to, struct err *e)
{
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (in < 0) {
        return err_errno(e, errno, from);
    }
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (out < 0) {
        int rc = errno == EEXIST ? err_set(e, ERR_EXISTS, "%s exists", to)
                                 : err_errno(e, errno, to);
        (void)close(in);
        return rc;
    }
    int rc = copy_bytes(in, out, to, e);
    (void)close(in);
    if (close(out) < 0 && rc == 0) {
        rc = err_errno(e, errno, to);
    }
    return rc;
}

#if defined(__APPLE__)
bool file_clone(const char *from, const char *to)
{
    return clonefile(from, to, CLONE_NOFOLLOW) == 0;
}
#elif defined(FICLONE)
bool file_clone(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int out =
        in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool cloned = out >= 0 && ioctl(out, FICLONE, in) == 0 && fsync(out) == 0;
    if (out >= 0) {
        (void)close(out);
        if (!cloned) {
            (void)unlink(to);
        }
    }
    if (in >= 0) {
        (void)close(in);
    }
    return cloned;
}
#else
bool file_clone(const char *from, const char *to)
{
    (void)from;
    (void)to;
    return false;
}
#endif
