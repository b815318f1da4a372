/* schema.h - the file as SQL sees it: settings, versions, soundness. */
#pragma once

#include <sqlite3.h>

#include "store/store.h"

/* err from the connection's last failure: FULL is NO_SPACE, BUSY and LOCKED
 * are CONFLICT, damage says what to do next. */
int schema_fail(sqlite3 *db, const char *path, const char *what, struct err *e);
CHECKED int schema_exec(sqlite3 *db, const char *path, const char *sql,
                        struct err *e);
/* Open path with the settings of facts/reliability.md 5.1 and bring it to the
 * newest version. */
CHECKED int schema_open(const char *path, sqlite3 **ret, struct err *e);
