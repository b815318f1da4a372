/* submit.h - gives the daemon a job and follows it. */
#pragma once

#include "client/client.h"
#include "proto/json.h"

/* The daemon has another working folder: it needs the absolute path of a
 * regular file; *ret is the caller's. An error here can name the path as the
 * user wrote it. Errors: NOT_FOUND, IO. */
CHECKED int submit_path(const char *file, char **ret, struct err *e);
/* POST body, which is used up, as a job; print its id, or follow it to its end.
 * Returns the exit code. */
int submit_job(struct client *c, struct json *body, bool no_wait);
