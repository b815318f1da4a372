/* unit.h - cmocka and what unit tests share. */
#pragma once

/* clang-format off: cmocka.h needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
/* clang-format on */

#include "base/err.h"

/* The shared data folder, or NULL: then the test calls skip(). */
static inline const char *unit_shared(void)
{
    return getenv("ANED_SHARED");
}

/* tests/ in the source tree. */
static inline const char *unit_tests(void)
{
    const char *s = getenv("ANED_TESTS");
    return s != NULL ? s : ".";
}

/* rc must be 0; shows the error when it is not. */
#define unit_ok(rc, e)                                            \
    do {                                                          \
        int rc_ = (rc);                                           \
        if (rc_ != 0) {                                           \
            fail_msg("%s: %s: %s", #rc, err_name(rc_), (e)->msg); \
        }                                                         \
    } while (0)

/* Built with ThreadSanitizer. */
#if defined(__SANITIZE_THREAD__)
#define UNIT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNIT_TSAN 1
#endif
#endif
#ifndef UNIT_TSAN
#define UNIT_TSAN 0
#endif

/* Built with it or AddressSanitizer: everything takes ten times as long, and
 * what they look for shows in the first of many rounds. */
#if defined(__SANITIZE_ADDRESS__)
#define UNIT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNIT_SANITIZED 1
#endif
#endif
#ifndef UNIT_SANITIZED
#define UNIT_SANITIZED UNIT_TSAN
#endif
/* Of like cases one in n runs there; all of them where there is no sanitizer. */
static inline bool unit_passed_over(size_t i, size_t n)
{
    return UNIT_SANITIZED && i % n != 0;
}
