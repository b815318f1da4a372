/* schema.h - the database file: settings, schema versions, integrity check. */
#pragma once

#include <sqlite3.h>

#include "store/store.h"

/* Set e from the connection's last failure: FULL is NO_SPACE, BUSY and LOCKED
 * are CONFLICT; for a damaged file the message says what to do next. */
int schema_fail(sqlite3 *db, const char *path, const char *what, struct err *e);
CHECKED int schema_exec(sqlite3 *db, const char *path, const char *sql,
                        struct err *e);
/* Open path with the settings in schema.c, and migrate it to the newest
 * version. */
CHECKED int schema_open(const char *path, sqlite3 **ret, struct err *e);
