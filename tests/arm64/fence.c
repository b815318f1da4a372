/* fence.c - preloaded into a program: what malloc gives ends where a page ends
 * that nothing may touch. So a read behind it ends the program, in kernels of
 * arm64 too, for which there is no AddressSanitizer here. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* In a page of its own before the block. */
struct head {
    size_t size, mapped;
};

static struct head *head_of(void *p)
{
    return (struct head *)((uintptr_t)p / PAGE * PAGE - PAGE);
}

/* Aligned as its size is, which is as much as its type can want. */
void *malloc(size_t n)
{
    n = n > 0 ? n : 1;
    if (n > SIZE_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    size_t room = (n + PAGE - 1) / PAGE * PAGE;
    size_t mapped = PAGE + room + PAGE;
    char *base = (char *)syscall(SYS_mmap, NULL, mapped, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        errno = ENOMEM;
        return NULL;
    }
    *(struct head *)base = (struct head){.size = n, .mapped = mapped};
    (void)syscall(SYS_mprotect, base + PAGE + room, PAGE, PROT_NONE);
    return base + PAGE + room - n;
}

void free(void *p)
{
    if (p != NULL) {
        struct head *h = head_of(p);
        (void)syscall(SYS_munmap, h, h->mapped);
    }
}

void *calloc(size_t n, size_t size)
{
    if (size > 0 && n > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc(n * size); /* fresh pages are zeros */
}

void *realloc(void *p, size_t n)
{
    void *fresh = malloc(n);
    if (fresh != NULL && p != NULL) {
        size_t old = head_of(p)->size;
        memcpy(fresh, p, old < n ? old : n);
        free(p);
    }
    return fresh;
}

/* The size is a multiple of the alignment, which is no more than a page. */
void *aligned_alloc(size_t align, size_t n)
{
    if (align > PAGE || n % align != 0) {
        errno = EINVAL;
        return NULL;
    }
    return malloc(n);
}
