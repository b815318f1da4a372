/* model_call.h - one request about one model, for show, load, unload, rm. */
#pragma once

#include "client/show.h"

/* Send METHOD /aned/v1/models/NAME + suffix; *ret is set on success. An error
 * is printed, and with --json the answer. Returns the exit code. */
int model_call(struct client *c, const char *method, const char *name,
               const char *suffix, struct json **ret);
