#include "base/arena.h"

#include <stdarg.h>
#include <string.h>

/* AddressSanitizer sees whole blocks only, so there each allocation is a block
 * of just its size: what runs over its end is found. */
#if defined(__SANITIZE_ADDRESS__)
#define EXACT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EXACT 1
#endif
#endif
#ifndef EXACT
#define EXACT 0
#endif

/* Blocks double: most arenas hold the strings of one request, and a cleared
 * block costs more than all else that is done with them. */
enum { BLOCK_MIN = 2 * 1024, BLOCK_MAX = 64 * 1024, ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t cap;
    _Alignas(ALIGN) char data[];
};

void arena_init(struct arena *a, size_t limit)
{
    *a = (struct arena){.limit = limit};
}

void arena_fini(struct arena *a)
{
    while (a->head != NULL) {
        struct arena_block *next = a->head->next;
        free(a->head);
        a->head = next;
    }
    a->used = 0;
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX - BLOCK_MAX) {
        return NULL;
    }
    if (!EXACT) {
        n = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    }
    if (a->limit != 0 && n > a->limit - a->used) {
        return NULL;
    }
    struct arena_block *b = a->head;
    if (b == NULL || n > b->cap - b->used) {
        size_t cap = b == NULL ? BLOCK_MIN : 2 * b->cap;
        cap = cap < BLOCK_MAX ? cap : BLOCK_MAX;
        cap = n > cap || EXACT ? n : cap;
        b = calloc(1, sizeof(*b) + cap);
        if (b == NULL) {
            return NULL;
        }
        b->cap = cap;
        b->next = a->head;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += n;
    a->used += n;
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        return NULL;
    }
    return arena_alloc(a, bytes);
}

char *arena_strn(struct arena *a, const char *s, size_t n)
{
    if (n == SIZE_MAX) {
        return NULL;
    }
    char *p = arena_alloc(a, n + 1);
    if (p != NULL && n > 0) {
        memcpy(p, s, n);
    }
    return p;
}

char *arena_str(struct arena *a, const char *s)
{
    return arena_strn(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return NULL;
    }
    char *p = arena_alloc(a, (size_t)n + 1);
    if (p != NULL) {
        va_start(ap, fmt);
        (void)vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return p;
}
