/* digest.h - the source's SHA-256, computed while the conversion runs: of a
 * split model's parts one after the other. A thread of its own reads the files
 * with pread: so a truncated file is a short read here, not a SIGBUS. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "source/gguf.h"

struct digest {
    const struct gguf *g; /* borrowed until digest_end */
    pthread_t thread;
    bool started;
    atomic_bool stop;
    int rc;
    struct err err;
    char hex[SHA256_HEX];
};

void digest_begin(struct digest *d, const struct gguf *g);
/* Wait (after `cancel`: not for the whole file). Errors: IO. Idempotent. */
CHECKED int digest_end(struct digest *d, bool cancel, struct err *e);
