/* job_post.h - a job is made, and waited for. */
#pragma once

#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

/* POST the job; body is used up. id and name (NULL is fine): of the new job and
 * of its model. Prints the id where no_wait. 0, or the exit code of an error
 * that was printed. */
#define JOB_ID_MAX 64
int job_post(struct client *c, struct json *body, bool no_wait,
             char id[JOB_ID_MAX], char name[MODEL_NAME_MAX + 1]);
/* Follow it to its end, which is printed. Returns the exit code. */
int job_wait(struct client *c, const char *id);
