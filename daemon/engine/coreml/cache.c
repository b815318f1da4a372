/* cache.c - see cache.h. */
#include "engine/coreml/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

#define LOCK_ASK_MS (BACKEND_ASK_MS / 5) /* between two tries to get the lock \
                                          */

#define LOCK_NAME   "lock"
#define SOURCE_NAME "source"
#define PART_NAME   "part"

/* --- paths --- */

static int join(char *out, size_t size, const char *dir, const char *name,
                struct err *e)
{
    return file_join(out, size, dir, name)
               ? 0
               : err_set(e, ERR_INVALID, "%s: the path is too long", dir);
}

/* The absolute path of a package. */
static int resolve(const char *pkg, char ret[PATH_BYTES_MAX], struct err *e)
{
    char *full = realpath(pkg, NULL);
    if (full == NULL) {
        return err_set(e, ERR_PKG_MISSING, "%s: %s", pkg, strerror(errno));
    }
    int n = snprintf(ret, PATH_BYTES_MAX, "%s", full);
    free(full);
    return n > 0 && (size_t)n < PATH_BYTES_MAX
               ? 0
               : err_set(e, ERR_INVALID, "%s: the path is too long", pkg);
}

int cache_entry_init(struct cache_entry *x, const char *cache, const char *pkg,
                     const char *os_build, struct err *e)
{
    char name[64];
    *x = (struct cache_entry){0};
    RETERR(resolve(pkg, x->source, e));
    const uint64_t of[2] = {file_tree_stamp(x->source),
                            hash_bytes(os_build, strlen(os_build))};
    x->key = hash_bytes(of, sizeof(of));
    (void)snprintf(
        name, sizeof(name), "%016llx",
        (unsigned long long)hash_bytes(x->source, strlen(x->source)));
    RETERR(join(x->dir, sizeof(x->dir), cache, name, e));
    (void)snprintf(name, sizeof(name), "%016llx.mlmodelc",
                   (unsigned long long)x->key);
    return join(x->path, sizeof(x->path), x->dir, name, e);
}

uint64_t cache_stamp(const struct cache_entry *x)
{
    struct stat st;
    if (lstat(x->path, &st) != 0) {
        return 0;
    }
    const uint64_t of[2] = {st.st_ino, (uint64_t)file_ctime_ns(&st)};
    return hash_bytes(of, sizeof(of)) | 1;
}

/* --- the lock --- */

static int wait_lock(int fd, const struct backend_watch *watch, struct err *e)
{
    const struct timespec nap = {.tv_nsec = LOCK_ASK_MS * 1000000L};
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return err_errno(e, errno, "locking a folder of compiled models");
        }
        if (watch->go != NULL && !watch->go(watch->ctx)) {
            return err_set(e, ERR_CANCELLED,
                           "while another process compiled the package");
        }
        (void)nanosleep(&nap, NULL);
    }
    return 0;
}

/* Somebody may clean up between open and flock: a lock without a name locks
 * nobody out. *fd: -1 then. */
static int try_lock(const struct cache_entry *x,
                    const struct backend_watch *watch, int *fd, struct err *e)
{
    char path[COREML_PATH_MAX];
    struct stat st;
    RETERR(file_mkdirs(x->dir, 0700, e));
    RETERR(join(path, sizeof(path), x->dir, LOCK_NAME, e));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0) {
        return err_errno(e, errno, path);
    }
    int rc = wait_lock(*fd, watch, e);
    if (rc < 0 || fstat(*fd, &st) != 0 || st.st_nlink == 0) {
        (void)close(*fd);
        *fd = -1;
    }
    return rc;
}

int cache_lock(const struct cache_entry *x, const struct backend_watch *watch,
               int *fd, struct err *e)
{
    *fd = -1;
    while (*fd < 0) {
        RETERR(try_lock(x, watch, fd, e));
    }
    return 0;
}

void cache_unlock(int fd)
{
    (void)close(fd);
}

/* --- what lies in a folder --- */

static bool keeps(const struct cache_entry *x, const char *name)
{
    const char *own = strrchr(x->path, '/') + 1;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
           strcmp(name, LOCK_NAME) == 0 || strcmp(name, own) == 0;
}

static int remove_others(const struct cache_entry *x, DIR *d, struct err *e)
{
    for (struct dirent *it = NULL; (it = readdir(d)) != NULL;) {
        char path[COREML_PATH_MAX + 256];
        if (!keeps(x, it->d_name)) {
            RETERR(join(path, sizeof(path), x->dir, it->d_name, e));
            RETERR(file_rmtree(path, e));
        }
    }
    return 0;
}

int cache_tidy(const struct cache_entry *x, struct err *e)
{
    char path[COREML_PATH_MAX];
    DIR *d = opendir(x->dir);
    if (d == NULL) {
        return err_errno(e, errno, x->dir);
    }
    int rc = remove_others(x, d, e);
    (void)closedir(d);
    RETERR(rc);
    RETERR(join(path, sizeof(path), x->dir, SOURCE_NAME, e));
    return file_replace(path, x->source, strlen(x->source), e);
}

int cache_part(const struct cache_entry *x, char *ret, size_t size,
               struct err *e)
{
    return join(ret, size, x->dir, PART_NAME, e);
}

int cache_publish(const struct cache_entry *x, struct err *e)
{
    char part[COREML_PATH_MAX];
    RETERR(cache_part(x, part, sizeof(part), e));
    return file_publish_dir(part, x->path, e);
}

int cache_remove(const struct cache_entry *x, struct err *e)
{
    return file_rmtree(x->path, e);
}

/* --- a temporary cache --- */

static struct {
    pthread_mutex_t lock;
    unsigned users;
    char path[PATH_BYTES_MAX];
} temporary = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int temporary_make(struct err *e)
{
    const char *tmp = getenv("TMPDIR"); /* NOLINT: nobody sets it */
    int n = snprintf(temporary.path, sizeof(temporary.path),
                     "%s/aned-coreml-XXXXXX",
                     tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    if (n < 0 || (size_t)n >= sizeof(temporary.path)) {
        return err_set(e, ERR_INVALID, "TMPDIR is too long");
    }
    return mkdtemp(temporary.path) != NULL
               ? 0
               : err_errno(e, errno, "a temporary folder");
}

int cache_temporary(char *ret, size_t size, struct err *e)
{
    (void)pthread_mutex_lock(&temporary.lock);
    int rc = temporary.users == 0 ? temporary_make(e) : 0;
    if (rc == 0) {
        temporary.users++;
        (void)snprintf(ret, size, "%s", temporary.path);
    }
    (void)pthread_mutex_unlock(&temporary.lock);
    return rc;
}

void cache_temporary_drop(void)
{
    struct err e = {0};
    (void)pthread_mutex_lock(&temporary.lock);
    must(temporary.users > 0);
    if (--temporary.users == 0) {
        (void)!file_rmtree(temporary.path, &e);
    }
    (void)pthread_mutex_unlock(&temporary.lock);
}
