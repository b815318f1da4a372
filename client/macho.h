/* macho.h - what a program says of itself: a Mach-O file for arm64, as the
 * linker and codesign(1) left it. Apple's <mach-o/loader.h> and the code
 * directory of <kern/cs_blobs.h> have the numbers. */
#pragma once

#include "base/err.h"

#define MACHO_BYTES_MAX  ((size_t)256 << 20)
#define MACHO_DYLIBS_MAX 64u
#define MACHO_NAME_MAX   256u

struct macho {
    bool arm64, macos;         /* for what it was built */
    unsigned minos[2], sdk[2]; /* major, minor */
    size_t n_dylibs;
    char dylibs[MACHO_DYLIBS_MAX][MACHO_NAME_MAX]; /* install names */
    char bundle[MACHO_NAME_MAX]; /* CFBundleIdentifier of the Info.plist
                                    section; "": none */
    bool is_signed;
    bool ad_hoc;                     /* by nobody: another with each build */
    char identifier[MACHO_NAME_MAX]; /* of the signature; "": none */
};

/* Errors: NOT_FOUND, IO, TOO_BIG, INVALID (no thin 64-bit Mach-O file, or one
 * that is not sound). */
CHECKED int macho_read(const char *path, struct macho *ret, struct err *e);
/* The same of bytes; `what` names them in errors. */
CHECKED int macho_parse(const void *p, size_t n, const char *what,
                        struct macho *ret, struct err *e);
