#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

enum { PATH_BYTES = 4096, TREE_DEPTH_MAX = 64 };

#define HUGE_PAGE ((size_t)2 << 20)

static int open_regular(const char *path, struct stat *st, int *ret,
                        struct err *e)
{
    /* O_NONBLOCK: a FIFO must not hang us before fstat can refuse it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_errno(e, errno, path);
    }
    if (fstat(fd, st) != 0) {
        int rc = err_errno(e, errno, path);
        (void)close(fd);
        return rc;
    }
    if (!S_ISREG(st->st_mode)) {
        (void)close(fd);
        return err_set(e, ERR_INVALID, "%s: not a regular file", path);
    }
    *ret = fd;
    return 0;
}

int file_read(const char *path, size_t max, struct buf *b, struct err *e)
{
    struct stat st;
    int fd = -1;
    buf_init(b, max);
    int rc = open_regular(path, &st, &fd, e);
    if (rc < 0) {
        return rc;
    }
    for (;;) {
        char chunk[16384];
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            rc = err_errno(e, errno, path);
            break;
        }
        if (n == 0) {
            buf_put(b, "", 0); /* an empty file gives "", not NULL */
            break;
        }
        buf_put(b, chunk, (size_t)n);
        if (!buf_ok(b)) {
            rc = err_set(e, ERR_TOO_BIG, "%s: more than %zu bytes", path, max);
            break;
        }
    }
    (void)close(fd);
    if (rc < 0) {
        buf_fini(b);
    }
    return rc;
}

/* file_put with -errno for a result. */
static int put_all(int fd, const void *p, size_t n, int64_t at)
{
    const char *from = p;
    while (n > 0) {
        ssize_t k = at == FILE_HERE ? write(fd, from, n)
                                    : pwrite(fd, from, n, (off_t)at);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return k < 0 ? -errno : -EIO;
        }
        from += k;
        at += at == FILE_HERE ? 0 : k;
        n -= (size_t)k;
    }
    return 0;
}

int file_put(int fd, const void *p, size_t n, int64_t at, const char *what,
             struct err *e)
{
    int rc = put_all(fd, p, n, at);
    return rc == 0 ? 0 : err_errno(e, -rc, what);
}

/* On macOS fsync leaves data in the drive's cache. Some file systems there
 * (of networks, of sticks) have only that; a drive that failed has nothing. */
static int sync_fd(int fd)
{
#if defined(F_FULLFSYNC)
    if (fcntl(fd, F_FULLFSYNC) == 0) {
        return 0;
    }
    if (errno == EIO || errno == ENOSPC || errno == EDQUOT) {
        return -errno;
    }
#endif
    return fsync(fd) == 0 ? 0 : -errno;
}

int file_sync(int fd, const char *what, struct err *e)
{
    int rc = sync_fd(fd);
    return rc == 0 ? 0 : err_errno(e, -rc, what);
}

void file_parent(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        (void)snprintf(out, size, ".");
    } else if (slash == path) {
        (void)snprintf(out, size, "/");
    } else {
        (void)snprintf(out, size, "%.*s", (int)(slash - path), path);
    }
}

static int sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int rc = sync_fd(fd);
    (void)close(fd);
    /* Some file systems cannot sync a folder; rename is still ordered. */
    return rc == -EINVAL ? 0 : rc;
}

static int put_file(const char *path, const void *p, size_t n, bool sync,
                    struct err *e)
{
    char tmp[PATH_BYTES];
    char dir[PATH_BYTES];
    int len = snprintf(tmp, sizeof(tmp), "%s.%ld.tmp", path, (long)getpid());
    if (len < 0 || (size_t)len >= sizeof(tmp)) {
        return err_set(e, ERR_INVALID, "path too long");
    }
    int fd =
        open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return err_errno(e, errno, tmp);
    }
    int rc = put_all(fd, p, n, FILE_HERE);
    if (rc == 0 && sync) {
        rc = sync_fd(fd);
    }
    if (close(fd) != 0 && rc == 0) {
        rc = -errno;
    }
    if (rc == 0 && rename(tmp, path) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        (void)unlink(tmp);
    } else if (sync) {
        file_parent(path, dir, sizeof(dir));
        rc = sync_dir(dir);
    }
    return rc == 0 ? 0 : err_errno(e, -rc, path);
}

int file_write(const char *path, const void *p, size_t n, struct err *e)
{
    return put_file(path, p, n, true, e);
}

int file_replace(const char *path, const void *p, size_t n, struct err *e)
{
    return put_file(path, p, n, false, e);
}

/* Map n > 0 bytes. A large file goes to a multiple of HUGE_PAGE and asks for
 * pages of that size: where the file system has them (ext4 since Linux 6.16,
 * xfs, btrfs), a file that is not in the page cache yet is read and mapped in
 * them. Reading weights through 4 KiB pages costs up to a third of the memory
 * bandwidth. */
static void *map_pages(int fd, size_t n)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (n >= HUGE_PAGE && n <= SIZE_MAX / 2) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t whole = (n + page - 1) / page * page;
        char *space = mmap(NULL, whole + HUGE_PAGE, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED) {
            return MAP_FAILED;
        }
        size_t before = (HUGE_PAGE - (uintptr_t)space % HUGE_PAGE) % HUGE_PAGE;
        size_t rest = HUGE_PAGE - before;
        void *p =
            mmap(space + before, n, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
        int failed = errno;
        if (p == MAP_FAILED) {
            must(munmap(space, whole + HUGE_PAGE) == 0);
            errno = failed;
            return MAP_FAILED;
        }
        must(before == 0 || munmap(space, before) == 0);
        must(munmap(space + before + whole, rest) == 0);
        (void)madvise(p, n, MADV_HUGEPAGE); /* a wish */
        return p;
    }
#endif
    return mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
}

int file_map_fd(int fd, struct file_map *ret, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_errno(e, errno, "fstat");
    }
    if (!S_ISREG(st.st_mode) || st.st_size < 0) {
        return err_set(e, ERR_INVALID, "not a regular file");
    }
    struct file_map m = {.n = (size_t)st.st_size};
    if (m.n > 0) {
        void *p = map_pages(fd, m.n);
        if (p == MAP_FAILED) {
            return err_errno(e, errno, "mmap");
        }
        m.p = p;
    }
    *ret = m;
    return 0;
}

int file_map(const char *path, struct file_map *ret, struct err *e)
{
    struct stat st;
    int fd = -1;
    int rc = open_regular(path, &st, &fd, e);
    if (rc < 0) {
        return rc;
    }
    rc = file_map_fd(fd, ret, e);
    (void)close(fd);
    if (rc < 0) {
        (void)err_prefix(e, rc, "%s", path);
    }
    return rc;
}

void file_unmap(struct file_map *m)
{
    if (m->p != NULL) {
        void *p = NULL;
        memcpy(&p, &m->p, sizeof(p)); /* munmap takes a non-const pointer */
        must(munmap(p, m->n) == 0);
    }
    *m = (struct file_map){0};
}

#if defined(MADV_POPULATE_READ) && defined(POSIX_FADV_DONTNEED)
static int drop_and_read(int fd, const char *path, struct err *e)
{
    struct file_map m = {0};
    void *p = NULL;
    int rc = sync_fd(fd); /* only what is written can be dropped */
    if (rc < 0) {
        return err_errno(e, -rc, path);
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    RETERR(file_map_fd(fd, &m, e));
    memcpy(&p, &m.p, sizeof(p)); /* madvise takes a non-const one */
    (void)madvise(p, m.n, MADV_POPULATE_READ);
    file_unmap(&m);
    return 0;
}
#endif

int file_repage(const char *path, struct err *e)
{
    struct stat st;
    int fd = -1;
    int rc = open_regular(path, &st, &fd, e);
    if (rc < 0) {
        return rc;
    }
#if defined(MADV_POPULATE_READ) && defined(POSIX_FADV_DONTNEED)
    if ((uint64_t)st.st_size >= HUGE_PAGE) {
        rc = drop_and_read(fd, path, e);
    }
#endif
    (void)close(fd);
    return rc;
}

int file_mkdirs(const char *path, unsigned mode, struct err *e)
{
    char tmp[PATH_BYTES];
    int n = snprintf(tmp, sizeof(tmp), "%s", path);
    if (n <= 0 || (size_t)n >= sizeof(tmp)) {
        return err_set(e, ERR_INVALID, "path too long or empty");
    }
    for (char *p = tmp + 1;; p++) {
        if (*p != '/' && *p != '\0') {
            continue;
        }
        char c = *p;
        *p = '\0';
        if (mkdir(tmp, (mode_t)mode) != 0 && errno != EEXIST) {
            return err_errno(e, errno, tmp);
        }
        *p = c;
        if (c == '\0') {
            break;
        }
    }
    if (!file_is_dir(path)) {
        return err_set(e, ERR_EXISTS, "%s: not a folder", path);
    }
    return 0;
}

/* Walks a tree without following links: fn sees files first, then their
 * folder. */
typedef int walk_fn(int dirfd, const char *name, bool is_dir, void *ctx);

static int walk(int parent, const char *name, int depth, walk_fn *fn, void *ctx)
{
    int fd =
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        int rc = -errno;
        (void)close(fd);
        return rc;
    }
    int rc = 0;
    for (struct dirent *it = NULL; rc == 0 && (it = readdir(d)) != NULL;) {
        struct stat st;
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0) {
            continue;
        }
        if (fstatat(fd, it->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            rc = -errno;
        } else if (!S_ISDIR(st.st_mode)) {
            rc = fn(fd, it->d_name, false, ctx);
        } else if (depth >= TREE_DEPTH_MAX) {
            rc = -ELOOP;
        } else {
            rc = walk(fd, it->d_name, depth + 1, fn, ctx);
        }
    }
    (void)closedir(d);
    return rc != 0 ? rc : fn(parent, name, true, ctx);
}

static int remove_one(int dirfd, const char *name, bool is_dir, void *ctx)
{
    (void)ctx;
    return unlinkat(dirfd, name, is_dir ? AT_REMOVEDIR : 0) == 0 ? 0 : -errno;
}

int file_rmtree(const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        return errno == ENOENT ? 0 : err_errno(e, errno, path);
    }
    int rc = S_ISDIR(st.st_mode) ? walk(AT_FDCWD, path, 0, remove_one, NULL)
                                 : remove_one(AT_FDCWD, path, false, NULL);
    return rc == 0 || rc == -ENOENT ? 0 : err_errno(e, -rc, path);
}

static int sync_one(int dirfd, const char *name, bool is_dir, void *ctx)
{
    (void)ctx;
    int fd = openat(dirfd, name,
                    O_RDONLY | O_NOFOLLOW | O_CLOEXEC |
                        (is_dir ? O_DIRECTORY : O_NONBLOCK));
    if (fd < 0) {
        return -errno;
    }
    int rc = sync_fd(fd);
    (void)close(fd);
    return rc == -EINVAL ? 0 : rc;
}

int file_publish_dir(const char *from, const char *to, struct err *e)
{
    char dir[PATH_BYTES];
    struct stat st;
    int rc = walk(AT_FDCWD, from, 0, sync_one, NULL);
    if (rc < 0) {
        return err_errno(e, -rc, from);
    }
    if (lstat(to, &st) == 0) {
        return err_set(e, ERR_EXISTS, "%s: already there", to);
    }
    if (rename(from, to) != 0) {
        return err_errno(e, errno, to);
    }
    file_parent(to, dir, sizeof(dir));
    rc = sync_dir(dir);
    return rc == 0 ? 0 : err_errno(e, -rc, dir);
}

static int64_t in_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

int64_t file_mtime_ns(const struct stat *st)
{
#if defined(__APPLE__)
    return in_ns(&st->st_mtimespec);
#else
    return in_ns(&st->st_mtim);
#endif
}

int64_t file_ctime_ns(const struct stat *st)
{
#if defined(__APPLE__)
    return in_ns(&st->st_ctimespec);
#else
    return in_ns(&st->st_ctim);
#endif
}

bool file_unwritten(const struct stat *before, const struct stat *after)
{
    return before->st_size == after->st_size &&
           file_mtime_ns(before) == file_mtime_ns(after);
}

bool file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int add_bytes(int dirfd, const char *name, bool is_dir, void *ctx)
{
    struct stat st;
    uint64_t *sum = ctx;
    if (!is_dir && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode)) {
        *sum += (uint64_t)st.st_size;
    }
    return 0;
}

uint64_t file_tree_bytes(const char *path)
{
    uint64_t sum = 0;
    (void)walk(AT_FDCWD, path, 0, add_bytes, &sum);
    return sum;
}

/* A sum: readdir has no order. */
static int add_stamp(int dirfd, const char *name, bool is_dir, void *ctx)
{
    struct stat st;
    uint64_t *sum = ctx;
    if (!is_dir && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        const int64_t of[3] = {(int64_t)hash_bytes(name, strlen(name)),
                               st.st_size, file_mtime_ns(&st)};
        *sum += hash_bytes(of, sizeof(of));
    }
    return 0;
}

uint64_t file_tree_stamp(const char *path)
{
    uint64_t sum = 0;
    (void)walk(AT_FDCWD, path, 0, add_stamp, &sum);
    return sum;
}

bool file_join(char *out, size_t size, const char *dir, const char *name)
{
    int n = snprintf(out, size, "%s/%s", dir, name);
    return n > 0 && (size_t)n < size;
}

int file_staging(const char *path, char *out, size_t size, struct err *e)
{
    const char *slash = strrchr(path, '/');
    int dir = slash != NULL ? (int)(slash + 1 - path) : 0;
    int n = snprintf(out, size, "%.*s.staging-XXXXXX", dir, path);
    int rc = 0;
    if (n < 0 || (size_t)n >= size) {
        rc = err_set(e, ERR_INVALID, "the path is too long");
    } else if (mkdtemp(out) == NULL) {
        char parent[PATH_BYTES];
        int error = errno;
        file_parent(path, parent, sizeof(parent));
        rc = err_errno(e, error, parent);
    }
    if (rc < 0) {
        out[0] = '\0';
    }
    return rc;
}

bool file_path_ok(const char *path)
{
    for (const char *part = path; part != NULL;) {
        const char *end = strchr(part, '/');
        size_t n = end != NULL ? (size_t)(end - part) : strlen(part);
        if (n == 0 || (n == 1 && part[0] == '.') ||
            (n == 2 && part[0] == '.' && part[1] == '.')) {
            return false;
        }
        part = end != NULL ? end + 1 : NULL;
    }
    return true;
}

bool file_name_ok(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > 128 || strstr(name, "..") != NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c >= '0' && c <= '9');
        if (!word && (i == 0 || (c != '.' && c != '_' && c != '-'))) {
            return false;
        }
    }
    return true;
}

void file_name_from(const char *from, size_t n, char *out, size_t size)
{
    size_t m = 0;
    for (size_t i = 0; i < n && m + 1 < size; i++) {
        char c = from[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        out[m++] = ok ? c : '-';
    }
    out[m] = '\0';
}
