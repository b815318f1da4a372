/* rss.h - this process's own resident memory, for tests that memory is freed.
 */
#pragma once

#include "../unit.h"

/* Bytes, or 0 where it is not known: not on Linux, and under
 * ThreadSanitizer, whose notes of every touched byte stay. */
static inline uint64_t rss_anon(void)
{
    unsigned long long kib = 0;
#if defined(__linux__)
    char line[256];
    FILE *f = UNIT_TSAN ? NULL : fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL &&
           sscanf(line, "RssAnon: %llu", &kib) != 1) {
    }
    assert_true(UNIT_TSAN || (f != NULL && kib > 0));
    if (f != NULL) {
        (void)fclose(f);
    }
#endif
    return kib << 10;
}
