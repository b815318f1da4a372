/* accept.h - gates whose failure a user takes, by name: of a request of the
 * daemon, or as a list with commas between on the command line. */
#pragma once

#include "base/err.h"

/* Whether a failure of this gate can be accepted. Errors: INVALID. */
CHECKED int accept_gate(const char *name, struct err *e);
/* The same for each of a list. Errors: INVALID. */
CHECKED int accept_check(const char *list, struct err *e);
/* Whether the list, or NULL, has this gate. */
bool accept_has(const char *list, const char *gate);
