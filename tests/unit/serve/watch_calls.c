/* watch_calls.c - LD_PRELOAD for `aned serve` (Linux): tells of calls that may
 * block and that the first thread, which is the loop's, makes: files, folders,
 * names of users, waits. A line a call goes to the file $WATCH_CALLS. Children
 * are not watched. For tests/e2e/test_loop.py. */
/* Each name is defined as it is written, the 64-bit ones too. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int out = -1;
static pthread_t loop;

static void __attribute__((constructor)) begin(void)
{
    const char *path = getenv("WATCH_CALLS");
    if (path != NULL) {
        out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        loop = pthread_self();
    }
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("WATCH_CALLS");
}

static void tell(const char *call, const char *what)
{
    char line[1200];
    if (out < 0 || !pthread_equal(pthread_self(), loop)) {
        return;
    }
    int n = snprintf(line, sizeof(line), "%s %.1000s\n", call,
                     what != NULL ? what : "");
    if (n > 0 && write(out, line, (size_t)n) < 0) {
        _exit(1);
    }
}

typedef int open_fn(const char *, int, ...);
typedef int openat_fn(int, const char *, int, ...);
typedef FILE *fopen_fn(const char *, const char *);
typedef DIR *opendir_fn(const char *);
typedef int stat_fn(const char *, struct stat *);
typedef int stat64_fn(const char *, struct stat64 *);
typedef int path_fn(const char *);
typedef int mkdir_fn(const char *, mode_t);
typedef int rename_fn(const char *, const char *);
typedef int fd_fn(int);
typedef struct passwd *getpwuid_fn(uid_t);
typedef pid_t waitpid_fn(pid_t, int *, int);

/* The libc's own function of this name. */
#define REAL(type, name)                                                      \
    static type *real;                                                        \
    if (real == NULL) {                                                       \
        void *p = dlsym(RTLD_NEXT, name);                                     \
        memcpy(&real, &p, sizeof(p));                                         \
    }

#define MODE()                                                                \
    mode_t mode = 0;                                                          \
    if ((flags & O_CREAT) != 0) {                                             \
        va_list ap;                                                           \
        va_start(ap, flags);                                                  \
        mode = va_arg(ap, mode_t);                                            \
        va_end(ap);                                                           \
    }

#define OPEN(name)                                                            \
    int name(const char *path, int flags, ...)                                \
    {                                                                         \
        REAL(open_fn, #name)                                                  \
        MODE()                                                                \
        tell(#name, path);                                                    \
        return real(path, flags, mode);                                       \
    }
#define OPENAT(name)                                                          \
    int name(int dir, const char *path, int flags, ...)                       \
    {                                                                         \
        REAL(openat_fn, #name)                                                \
        MODE()                                                                \
        tell(#name, path);                                                    \
        return real(dir, path, flags, mode);                                  \
    }
#define CALL1(ret, type, name, a)                                             \
    ret name(a x)                                                             \
    {                                                                         \
        REAL(type, #name)                                                     \
        tell(#name, TEXT_OF(x));                                              \
        return real(x);                                                       \
    }
#define CALL2(ret, type, name, b)                                             \
    ret name(const char *path, b y)                                           \
    {                                                                         \
        REAL(type, #name)                                                     \
        tell(#name, path);                                                    \
        return real(path, y);                                                 \
    }
#define TEXT_OF(x) _Generic((x), const char *: (x), default: "")

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
CALL2(FILE *, fopen_fn, fopen, const char *)
CALL2(FILE *, fopen_fn, fopen64, const char *)
CALL1(DIR *, opendir_fn, opendir, const char *)
CALL2(int, stat_fn, stat, struct stat *)
CALL2(int, stat64_fn, stat64, struct stat64 *)
CALL2(int, stat_fn, lstat, struct stat *)
CALL2(int, stat64_fn, lstat64, struct stat64 *)
CALL1(int, path_fn, unlink, const char *)
CALL1(int, path_fn, rmdir, const char *)
CALL2(int, mkdir_fn, mkdir, mode_t)
CALL2(int, rename_fn, rename, const char *)
CALL1(int, fd_fn, fsync, int)
CALL1(int, fd_fn, fdatasync, int)
CALL1(int, fd_fn, syncfs, int)
CALL1(struct passwd *, getpwuid_fn, getpwuid, uid_t)

pid_t waitpid(pid_t pid, int *status, int options)
{
    REAL(waitpid_fn, "waitpid")
    if ((options & WNOHANG) == 0) {
        tell("waitpid", "");
    }
    return real(pid, status, options);
}
