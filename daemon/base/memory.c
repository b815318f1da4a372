#include "base/memory.h"

#include <stdatomic.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/file.h"
#include "base/parse.h"

#define FIRST_CACHE 32768u /* where nobody knows */

uint64_t machine_memory(void)
{
#if defined(__APPLE__)
    uint64_t v = 0;
    size_t n = sizeof(v);
    return sysctlbyname("hw.memsize", &v, &n, NULL, 0) == 0 ? v : 0;
#else
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
    struct buf b = {0};
    /* a container's; the text is "max" or a number */
    if (file_read("/sys/fs/cgroup/memory.max", 64, &b, NULL) == 0) {
        buf_u8(&b, '\0');
        uint64_t max = 0;
        bool some = buf_ok(&b) && parse_digits(b.p, UINT64_MAX, &max) != NULL;
        all = some && max > 0 && max < all ? max : all;
        buf_fini(&b);
    }
    return all;
#endif
}

static size_t look_first_cache(void)
{
#if defined(__APPLE__)
    uint64_t v = 0;
    size_t n = sizeof(v);
    /* of the fast cores; Intel's have no levels */
    if (sysctlbyname("hw.perflevel0.l1dcachesize", &v, &n, NULL, 0) == 0 ||
        sysctlbyname("hw.l1dcachesize", &v, &n, NULL, 0) == 0) {
        return v > 0 ? (size_t)v : FIRST_CACHE;
    }
#elif defined(_SC_LEVEL1_DCACHE_SIZE)
    long v = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return v > 0 ? (size_t)v : FIRST_CACHE;
#endif
    return FIRST_CACHE;
}

size_t machine_first_cache(void)
{
    static atomic_size_t known;
    size_t n = atomic_load_explicit(&known, memory_order_relaxed);
    if (n == 0) {
        n = look_first_cache();
        atomic_store_explicit(&known, n, memory_order_relaxed);
    }
    return n;
}
