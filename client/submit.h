/* submit.h - gives the daemon a job and follows it. */
#pragma once

#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

#define JOB_ID_MAX 64

/* The daemon has another working folder: it needs the absolute path of a
 * regular file; *ret is the caller's. An error here can name the path as the
 * user wrote it. Errors: NOT_FOUND, IO. */
CHECKED int submit_path(const char *file, char **ret, struct err *e);
/* POST body, which is used up, as a job; id and name (NULL is fine) are those
 * of the job and of its model. Prints the id where no_wait. EXIT_SUCCESS, or
 * the exit code of an error that was printed. */
int submit_post(struct client *c, struct json *body, bool no_wait,
                char id[JOB_ID_MAX], char name[MODEL_NAME_MAX + 1]);
/* Follow a job to its end, which is printed. Returns the exit code. */
int submit_wait(struct client *c, const char *id);
/* POST body, which is used up, as a job; print its id, or follow it to its end.
 * Returns the exit code. */
int submit_job(struct client *c, struct json *body, bool no_wait);
