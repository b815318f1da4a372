/* sandbox.h - a converter that reads hostile files can hurt only its own job.
 *
 * Best effort and reported: what a system does not have is left out, never
 * pretended. Order and numbers: facts on reliability, section 4.
 */
#pragma once

#include "base/err.h"

struct sandbox_conf {
    const char *writable;  /* the one folder that may be written and read */
    int keep_fds;          /* descriptors from this number on are closed */
    uint64_t source_bytes; /* limits of output follow from it */
};

/* What is in force now. */
struct sandbox_report {
    bool limits;   /* rlimits on memory, time, file size, descriptors */
    bool landlock; /* files: only `writable` */
    bool seccomp;  /* system calls: an allow-list */
};

/* Enter it, for the whole process. Before any other thread starts and before
 * the first byte of the file is read. Under a sanitizer only what its run-time
 * bears. */
void sandbox_enter(const struct sandbox_conf *c, struct sandbox_report *ret);
