/* base.h - the few macros every file may use. libc only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define countof(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(p, type, member) \
    ((type *)(void *)((char *)(p)-offsetof(type, member)))

/* The result must be looked at. */
#define CHECKED           __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Borrowed bytes, not NUL terminated. p may be NULL only when n is 0. */
struct span {
    const char *p;
    size_t n;
};

/* Always on, also in release. For our own mistakes only, never for what a
 * peer, a file or the clock can cause: those return an error code. */
#define must(x)                                          \
    do {                                                 \
        if (!(x)) {                                      \
            must_fail(#x, __FILE__, __LINE__, __func__); \
        }                                                \
    } while (0)

__attribute__((noreturn, cold)) static inline void
must_fail(const char *expr, const char *file, int line, const char *func)
{
    (void)fprintf(stderr, "aned: must(%s) failed at %s:%d in %s\n", expr, file,
                  line, func);
    abort();
}
