/* bundle_share.c - files that two bundles have alike take room once.
 *
 * A published file is never written again, so a second name for it is safe: a
 * bundle that is removed leaves the other its bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/bundle_impl.h"

static const struct bundle_file *alike(const struct bundle *b,
                                       const struct bundle_file *f)
{
    for (size_t i = 0; i < b->n_files; i++) {
        if (b->files[i].bytes == f->bytes &&
            strcmp(b->files[i].sha256, f->sha256) == 0) {
            return &b->files[i];
        }
    }
    return NULL;
}

/* `to` becomes the file that `from` is. false: it stays what it is. */
static bool share_one(const struct bundle *from, const struct bundle *to,
                      const struct bundle_file *a, const struct bundle_file *b)
{
    char src[BUNDLE_PATH_MAX + 1024];
    char dst[BUNDLE_PATH_MAX + 1024];
    char tmp[BUNDLE_PATH_MAX + 1040];
    struct err ignored = {0};
    if (bundle_file_path(from->dir, a->path, src, &ignored) < 0 ||
        bundle_file_path(to->dir, b->path, dst, &ignored) < 0) {
        return false;
    }
    (void)snprintf(tmp, sizeof(tmp), "%s.shared", dst);
    if (!file_clone(src, tmp) && link(src, tmp) != 0) {
        return false;
    }
    if (rename(tmp, dst) == 0) {
        (void)unlink(tmp); /* both were one file already: rename did nothing */
        return true;
    }
    (void)unlink(tmp);
    return false;
}

int bundle_share(const char *from, const char *to, uint64_t *ret_bytes,
                 struct err *e)
{
    struct bundle *a = NULL;
    struct bundle *b = NULL;
    int rc = 0;
    *ret_bytes = 0;
    CHECK(bundle_open(from, &a, e));
    CHECK(bundle_open(to, &b, e));
    for (size_t i = 0; i < b->n_files; i++) {
        const struct bundle_file *f = alike(a, &b->files[i]);
        if (f != NULL && f->bytes > 0 && share_one(a, b, f, &b->files[i])) {
            *ret_bytes += f->bytes;
        }
    }
out:
    bundle_close(a);
    bundle_close(b);
    return rc;
}
