/* follow.h - follows a job until it ends. */
#pragma once

#include "client/client.h"
#include "proto/json.h"

/* Whether a job in this state has ended. */
bool follow_over(const char *state);
/* Follow job `id`: a progress line on the terminal, one line a stage
 * elsewhere, a JSON line a change with --json and `changes`. *ret is its last
 * state (json_free). Errors: as ask(), CANCELLED after Ctrl-C. */
CHECKED int follow_job(struct client *c, const char *id, bool changes,
                       struct json **ret, struct err *e);
/* The exit code for an ended job; 65 where its model is rejected. */
int follow_exit(const struct json *job);
/* Print how it ended; returns the exit code. */
int follow_end(struct client *c, const struct json *job);
