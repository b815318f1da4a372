/* sandbox.h - limits the damage that a hostile file can do to the converter's
 * own job.
 *
 * What the system does not have is left out, and the report says so.
 */
#pragma once

#include "base/err.h"

struct sandbox_conf {
    const char *writable;  /* the one folder that may be written and read */
    const char *readable;  /* another that may be read only; NULL: none */
    int keep_fds;          /* descriptors from this number on are closed */
    uint64_t source_bytes; /* limits of output follow from it */
};

/* What is in force. */
struct sandbox_report {
    bool limits;   /* rlimits on memory, time, file size, descriptors */
    bool landlock; /* files: only `writable` */
    bool seccomp;  /* system calls: an allow-list */
    bool seatbelt; /* macOS: files, network, processes (base/seatbelt.h) */
};

/* Enter the sandbox, for the whole process. Call it before another thread
 * starts and before the first byte of the file is read. Under a sanitizer only
 * those parts are used with which its run-time works. */
void sandbox_enter(const struct sandbox_conf *c, struct sandbox_report *ret);
