#include "base/random.h"

#include <string.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/random.h>
#endif

enum { POOL = 256 }; /* what getentropy(3) gives at once, and without blocking */

void random_bytes(void *p, size_t n)
{
    static _Thread_local uint8_t pool[POOL];
    static _Thread_local size_t left;
    must(n <= POOL);
    if (left < n) {
        must(getentropy(pool, POOL) == 0);
        left = POOL;
    }
    left -= n;
    memcpy(p, pool + left, n);
    memset(pool + left, 0, n); /* used bytes are not to be found in memory */
}
