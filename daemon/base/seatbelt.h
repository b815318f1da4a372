/* seatbelt.h - rules of macOS's sandbox for this process.
 *
 * The rules are written in Apple's profile language (sandbox-exec(1)), which
 * Apple documents nowhere and marks as deprecated without another for programs
 * that are no applications; browsers ship on it. The last rule that matches an
 * operation decides. Paths are those of the file itself: no symbolic link in
 * them.
 */
#pragma once

#include "base/err.h"

enum seatbelt {
    SEATBELT_CONVERT, /* nothing but its folder: it reads a hostile file */
    SEATBELT_ENGINE,  /* everything that Core ML needs, but no network, no
                         programs, no writing outside of caches */
};

/* The rules as text, with parameters ROOM, SOURCE, and for an engine CACHES and
 * TEMPORARY. Static. */
const char *seatbelt_profile(enum seatbelt kind);

/* Put the whole process under the rules, for good. `room` is a folder that
 * exists: what the process may write. `source` is another that a converter may
 * read; NULL: none. Call it before a hostile byte is read.
 * Errors: UNAVAILABLE (this is no macOS, or it refuses the rules), NOT_FOUND,
 * IO (room); then nothing has changed. */
CHECKED int seatbelt_enter(enum seatbelt kind, const char *room,
                           const char *source, struct err *e);
/* The rules of an engine for a process that reads only files of ours: if the
 * system refuses them, it goes on without, and a line in the log says so.
 * Nothing on systems without Seatbelt. */
void seatbelt_engine(const char *room);
