#include "base/memory.h"

#include <unistd.h>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/file.h"
#include "base/parse.h"

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
