/* digest.h - the source's SHA-256, made beside the conversion: it reads the
 * file with pread on a thread of its own, so that a truncated file is a short
 * read there and nothing else. */
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
