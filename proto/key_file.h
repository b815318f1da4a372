/* key_file.h - the key of loopback TCP, in a file of the daemon's home that
 * only its user can read. The daemon makes it, anectl prints it.
 *
 * The file has one line: KEY_BYTES_MIN to KEY_BYTES_MAX characters of
 * [A-Za-z0-9._~+/=-]. One that others could have read or written is not used.
 * Thread: any.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

#define KEY_FILE "http.key" /* in the home */

struct key_text {
    char s[KEY_BYTES_MAX + 1];
};

/* Errors: NOT_FOUND; CONFIG (not a regular file of this user with mode 0600, or
 * no key in it); IO. */
CHECKED int key_read(const char *path, struct key_text *ret, struct err *e);
/* A new random key in place of the old one, if there is one. It is on disk when
 * this returns. Errors: as file_write. */
CHECKED int key_make(const char *path, struct key_text *ret, struct err *e);
/* Read it, or make it when it is absent. *made tells (NULL is fine). */
CHECKED int key_open(const char *path, struct key_text *ret, bool *made,
                     struct err *e);
/* Overwrite the key in memory. */
void key_forget(struct key_text *k);
