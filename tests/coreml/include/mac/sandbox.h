/* The part of Apple's <sandbox.h> that aned needs. NOT PROVEN: no machine-made
 * source has these types; written from sandbox_init(3). Only that libSystem has
 * the symbols is checked (tests/coreml/decl/exceptions.py).
 */
#ifndef ANED_SANDBOX_H
#define ANED_SANDBOX_H

#include <os/availability.h>
#include <stdint.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

/* flags: SANDBOX_NAMED, and then profile is one of Apple's names. */
#define SANDBOX_NAMED 0x0001
int sandbox_init(const char *profile, uint64_t flags, char **errorbuf)
    API_DEPRECATED("no longer supported", macos(10.5, 10.8));
void sandbox_free_error(char *errorbuf)
    API_DEPRECATED("no longer supported", macos(10.5, 10.8));

__END_DECLS

#endif
