/* digest.h - the source's SHA-256, computed while the conversion runs. A thread
 * of its own reads the file with pread: so a truncated file is a short read
 * here, not a SIGBUS. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"

struct digest {
    int fd; /* borrowed until digest_end */
    pthread_t thread;
    bool started;
    atomic_bool stop;
    uint64_t bytes;
    int rc;
    struct err err;
    char hex[SHA256_HEX];
};

void digest_begin(struct digest *d, int fd);
/* Wait (after `cancel`: not for the whole file). Errors: IO. Idempotent. */
CHECKED int digest_end(struct digest *d, bool cancel, struct err *e);
