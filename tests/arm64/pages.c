/* pages.c - preloaded into a program: its pages are 16 KiB, as on Apple's
 * machines, and what a kernel with such pages refuses is refused.
 *
 * qemu does not show this: its option -p only changes what sysconf() says, and
 * since qemu 9 not even that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 16384 };

static size_t up(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

static int wrong(const void *p)
{
    if ((uintptr_t)p % PAGE == 0) {
        return 0;
    }
    errno = EINVAL;
    return 1;
}

long sysconf(int name)
{
    static long (*real)(int);
    if (name == _SC_PAGESIZE) {
        return PAGE;
    }
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    }
    return real(name);
}

int getpagesize(void)
{
    return PAGE;
}

static void *map(void *p, size_t n, int prot, int flags, int fd, off_t off)
{
    return (void *)syscall(SYS_mmap, p, n, prot, flags, fd, off);
}

/* More is reserved than wanted, and both ends go back: then what lies at a
 * multiple of PAGE is mapped there. */
void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t off)
{
    if (wrong((void *)(uintptr_t)off) ||
        ((flags & MAP_FIXED) != 0 && wrong(p))) {
        return MAP_FAILED;
    }
    if ((flags & MAP_FIXED) != 0 || n == 0 || n > SIZE_MAX / 2) {
        return map(p, n, prot, flags, fd, off);
    }
    char *space = map(NULL, up(n) + PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) {
        return MAP_FAILED;
    }
    char *at = (char *)up((uintptr_t)space);
    if (at > space) {
        (void)syscall(SYS_munmap, space, at - space);
    }
    (void)syscall(SYS_munmap, at + up(n), space + PAGE - at);
    void *ret = map(at, n, prot, flags | MAP_FIXED, fd, off);
    if (ret == MAP_FAILED) {
        int failed = errno;
        (void)syscall(SYS_munmap, at, up(n));
        errno = failed;
    }
    return ret;
}

void *mmap64(void *p, size_t n, int prot, int flags, int fd, off_t off)
    __attribute__((alias("mmap")));

int munmap(void *p, size_t n)
{
    return wrong(p) ? -1 : (int)syscall(SYS_munmap, p, up(n));
}

int mprotect(void *p, size_t n, int prot)
{
    return wrong(p) ? -1 : (int)syscall(SYS_mprotect, p, up(n), prot);
}

int madvise(void *p, size_t n, int advice)
{
    return wrong(p) ? -1 : (int)syscall(SYS_madvise, p, up(n), advice);
}

int msync(void *p, size_t n, int flags)
{
    return wrong(p) ? -1 : (int)syscall(SYS_msync, p, n, flags);
}
